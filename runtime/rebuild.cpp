#include "runtime/rebuild.h"

#include "runtime/compile.h"

namespace trigen {
namespace {

const Nvrtc* compiler_named(const std::string& name) {
  for (const NvrtcFile& file : find_nvrtc()) {
    auto nvrtc = Nvrtc::load(file);
    if (!nvrtc)
      llvm::consumeError(nvrtc.takeError());
    else if ((*nvrtc)->name() == name)
      return *nvrtc;
  }
  return nullptr;
}

// The first difference of two texts, for a message.
std::string first_difference(llvm::StringRef stored, llvm::StringRef remade) {
  size_t at = 0;
  while (at < std::min(stored.size(), remade.size()) && stored[at] == remade[at]) ++at;
  return "byte " + std::to_string(at) + " of " + std::to_string(stored.size()) + " stored and " +
         std::to_string(remade.size()) + " remade";
}

llvm::Expected<Candidate> candidate_of(const Binary& binary) {
  // compute_90a: PTX alone, of the target sm_90a.
  llvm::StringRef arch = binary.key.arch;
  const std::string name = arch.consume_front("compute_") ? "sm_" + arch.str() : arch.str();
  auto target = find_target(name);
  if (!target) return target.takeError();
  auto problem = parse_problem(binary.problem);
  if (!problem) return problem.takeError();
  return parse_candidate(*problem, **target, binary.candidate);
}

}  // namespace

Rebuilt rebuild(const Binary& binary, std::string& why) {
  auto candidate = candidate_of(binary);
  if (!candidate) {
    why = take_error(candidate.takeError()).message;
    return Rebuilt::kCannot;
  }
  const Source source = render(*candidate);
  if (source.hash != binary.key.source_hash) {
    why = "it was made with other templates than this version's";
    return Rebuilt::kCannot;
  }
  if (source.text != binary.source) {
    why = "its stored source is not the one that its hash names";
    return Rebuilt::kDiffers;
  }
  const Code code = binary.cubin.empty() ? Code::kPtx : Code::kCubinAndPtx;
  if (compile_options(*candidate->target, code) != binary.key.options) {
    why = "its options are not this version's: " + binary.key.options;
    return Rebuilt::kCannot;
  }
  const Nvrtc* const nvrtc = compiler_named(binary.key.compiler);
  if (nvrtc == nullptr) {
    why = "no '" + binary.key.compiler + "' is here";
    return Rebuilt::kNoCompiler;
  }
  auto remade = compile(*candidate, *nvrtc, nullptr, code);
  if (!remade) {
    why = take_error(remade.takeError()).message;
    return Rebuilt::kCannot;
  }
  why.clear();
  const auto differs = [&](const std::string& what) { why += (why.empty() ? "" : "; ") + what; };
  if (remade->entry != binary.entry)
    differs("entry '" + binary.entry + "' stored, '" + remade->entry + "' remade");
  if (remade->cubin != binary.cubin) differs("cubin, " + first_difference(binary.cubin, remade->cubin));
  if (remade->ptx != binary.ptx) differs("PTX, " + first_difference(binary.ptx, remade->ptx));
  return why.empty() ? Rebuilt::kSame : Rebuilt::kDiffers;
}

}  // namespace trigen
