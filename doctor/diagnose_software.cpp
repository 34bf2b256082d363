// Rules for compilers, PyTorch, caches, problems and what surrounds them.
#include <algorithm>
#include <set>

#include "doctor/judge.h"

namespace trigen::doctor {
namespace {

constexpr char kInstallNvrtc[] =
    "the toolkit's package cuda-nvrtc-12-9, or pip install 'nvidia-cuda-nvrtc-cu12==12.9.*' (either makes "
    "sm_70 to sm_120); or name a libnvrtc.so in TRIGEN_NVRTC";

std::string words(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& each : list) text += (text.empty() ? "" : " ") + each;
  return text;
}

// PTX ISA of a CUDA release (PTX ISA, "Release Notes"), "" where it is not known.
std::string ptx_isa(int major, int minor) {
  if (major == 11) return "7." + std::to_string(minor);
  if (major == 12 && minor <= 5) return "8." + std::to_string(minor);
  if (major == 12) return "8." + std::to_string(minor - 1);
  return major == 13 ? "9." + std::to_string(minor) : "";
}

// NVIDIA's oldest driver for a CUDA major (CUDA Compatibility, "Minor Version Compatibility").
int oldest_driver(int major) { return major >= 13 ? 580 : major == 12 ? 525 : 450; }

// On PyPI; from CUDA 13 on without the major in its name.
std::string nvrtc_package(int major) {
  return "nvidia-cuda-nvrtc" + (major >= 13 ? std::string() : "-cu" + std::to_string(major));
}

TargetAnswer answer(const Judge& judge, const Target& target) {
  TargetAnswer out;
  out.target = &target;
  const NvrtcFinding* best = nullptr;
  const int cuda = judge.driver_cuda();
  const auto rank = [&](const NvrtcFinding& found) {
    return preference(found.file.major, found.file.minor, cuda);
  };
  for (const NvrtcFinding& found : judge.environment.nvrtc) {
    if (!found.makes(target)) continue;
    out.makers.push_back("nvrtc " + found.version);
    if (best == nullptr || rank(found) > rank(*best)) best = &found;
  }
  if (best == nullptr) return out;
  out.chosen = "nvrtc " + best->version;
  out.path = best->file.path;
  if (judge.environment.has("TRIGEN_NVRTC"))
    out.why = "named by TRIGEN_NVRTC";
  else if (out.makers.size() == 1)
    out.why = "the only one here that makes it";
  else if (cuda > 0 && rank(*best) < 0)
    out.why = "all that make it are newer than the driver's CUDA " + cuda_text(cuda) + "; this is the oldest";
  else
    out.why = "the newest here that makes it" +
              (cuda > 0 ? " and is no newer than the driver's CUDA " + cuda_text(cuda) : std::string());
  return out;
}

// A compiler that is newer than the driver: what its kernels can and cannot do there.
void judge_age(Judge& judge, const TargetAnswer& made) {
  const int cuda = judge.driver_cuda();
  const NvrtcFinding* compiler = nullptr;
  for (const NvrtcFinding& found : judge.environment.nvrtc)
    if (found.file.path == made.path) compiler = &found;
  if (cuda == 0 || compiler == nullptr) return;
  const int major = compiler->file.major, minor = std::max(0, compiler->file.minor);
  if (major * 1000 + minor * 10 <= cuda) return;
  const std::string driver = "driver " + judge.environment.driver.version + " (CUDA " + cuda_text(cuda) + ")";
  if (major > cuda / 1000) {
    judge.add(Severity::kWarning, "nvrtc.newer-major", "nvrtc",
              made.chosen + " would make " + made.target->name.str() + "'s kernels, and " + driver +
                  " is of an older major",
              "NVIDIA promises that a driver runs newer kernels within one CUDA major only",
              "the libnvrtc of a CUDA " + std::to_string(cuda / 1000) + " toolkit, or pip install '" +
                  nvrtc_package(cuda / 1000) + "==" + std::to_string(cuda / 1000) +
                  ".*'; or a driver of branch " + std::to_string(oldest_driver(major)) + " or newer");
    return;
  }
  // Kernels of the device's own target load as cubins; those of another come as PTX through the driver's
  // compiler.
  const std::string named = judge.environment.variable("TRIGEN_TARGET");
  bool asked_for_ptx = false;
  for (const DeviceFacts& device : judge.environment.devices) {
    auto own = target_for_capability(device.info.major, device.info.minor);
    if (!own)
      llvm::consumeError(own.takeError());
    else
      asked_for_ptx = asked_for_ptx || (!named.empty() && (*own)->name != named) ||
                      made.target->compute_capability / 10 != device.info.major;
  }
  judge.add(asked_for_ptx ? Severity::kWarning : Severity::kNote, "nvrtc.newer-ptx", "nvrtc",
            made.chosen + " writes PTX " + ptx_isa(major, minor) + "; " + driver + " reads PTX up to " +
                ptx_isa(cuda / 1000, cuda % 1000 / 10),
            "kernels of the device's own target run (cubins); kernels of another target, which reach it as "
            "PTX, fail with CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)",
            asked_for_ptx ? "the libnvrtc of CUDA " + cuda_text(cuda) + "'s toolkit, or pip install '" +
                                nvrtc_package(cuda / 1000) + "==" + cuda_text(cuda) + ".*'; or a newer driver"
                          : "");
}

}  // namespace

void judge_compilers(Judge& judge) {
  const Environment& e = judge.environment;
  for (const NvrtcFinding& found : e.nvrtc)
    if (!found.problem.empty())
      judge.add(Severity::kWarning, "nvrtc.broken", "nvrtc " + found.file.path, found.problem,
                "it is passed over", "remove it, or name a working one in TRIGEN_NVRTC");
  std::vector<std::string> missing;
  std::set<std::string> judged;
  for (const Target* target : judge.targets) {
    judge.diagnosis.targets.push_back(answer(judge, *target));
    const TargetAnswer& made = judge.diagnosis.targets.back();
    if (made.chosen.empty())
      missing.push_back(target->name.str());
    else if (judged.insert(made.path).second)
      judge_age(judge, made);
  }
  if (missing.empty()) return;
  // No compiler is needed where the cache has every problem asked for.
  const auto hit = [](const ProblemFacts& problem) { return problem.binary; };
  const bool served = !e.problems.empty() && llvm::all_of(e.problems, hit);
  const bool named = judge.question.here || !judge.question.targets.empty() || !e.devices.empty();
  const Severity severity = served || e.no_jit ? Severity::kNote
                            : named            ? Severity::kError
                                               : Severity::kWarning;
  if (e.nvrtc.empty()) {
    judge.add(severity, "nvrtc.none", "nvrtc", "no compiler was found",
              "only kernels that a cache holds can run", kInstallNvrtc);
    return;
  }
  std::string found;
  for (const NvrtcFinding& each : e.nvrtc)
    if (each.problem.empty() && !each.archs.empty())
      found += (found.empty() ? "" : ", ") + each.version + " (from sm_" +
               std::to_string(each.archs.front()) + ")";
  const bool volta = llvm::is_contained(missing, "sm_70");
  judge.add(severity, "nvrtc.target", "nvrtc",
            "no compiler here makes " + words(missing) + (found.empty() ? "" : "; found " + found),
            volta ? "NVRTC 13 dropped sm_70; 12.9 is the last that makes it, and both may be installed"
                  : "only kernels that a cache holds can run there",
            kInstallNvrtc);
}

void judge_torch(Judge& judge) {
  const Environment& e = judge.environment;
  for (const TorchFacts& torch : e.torch) {
    const std::string about = "pytorch " + torch.version;
    if (torch.cuda.empty()) {
      if (!e.devices.empty() && !e.driver.emulated)
        judge.add(Severity::kWarning, "torch.cpu", about, torch.path + " was built without CUDA",
                  "its tensors never reach the GPU, and trigen's kernels neither",
                  "install a CUDA build: pip install torch (see pytorch.org's table of builds)");
      continue;
    }
    if (torch.archs.empty()) continue;
    for (const Target* target : judge.targets) {
      const std::string arch = "sm_" + std::to_string(target->compute_capability);
      // A cubin runs on newer minors of its major, PTX on everything newer.
      const auto serves = [&](llvm::StringRef name) {
        const bool ptx = name.consume_front("compute_");
        if (!ptx) name.consume_front("sm_");
        int capability = 0;
        if (name.take_while(llvm::isDigit).getAsInteger(10, capability)) return false;
        return capability <= target->compute_capability &&
               (ptx || capability / 10 == target->compute_capability / 10);
      };
      if (llvm::any_of(torch.archs, serves)) continue;
      const bool here = llvm::any_of(e.devices, [&](const DeviceFacts& device) {
        return device.info.major * 10 + device.info.minor == target->compute_capability;
      });
      if (!here && judge.question.targets.empty()) continue;  // nobody asked
      judge.add(here ? Severity::kWarning : Severity::kNote, "torch.arch", about,
                torch.path + " has kernels for " + words(torch.archs) + ", none for " + arch,
                "trigen's own kernels run; PyTorch's fail with 'no kernel image is available'",
                target->compute_capability < 75
                    ? "pip install 'torch<2.15' --index-url https://download.pytorch.org/whl/cu126 (sm_70 is "
                      "in the cu126 builds up to 2.14, and in cu128 up to 2.10)"
                    : "install a build whose torch.cuda.get_arch_list() has " + arch);
    }
  }
}

void judge_caches(Judge& judge) {
  const Environment& e = judge.environment;
  int64_t binaries = 0;
  bool writable = false;
  for (const LayerInfo& layer : e.caches) {
    binaries += layer.binaries;
    writable = writable || layer.writable;
    llvm::StringRef problem = layer.problem;  // "cache '/x.db' is damaged ..."
    problem.consume_front("cache ");
    if (problem.consume_front("'" + layer.path + "' ")) problem.consume_front("is ");
    if (!layer.problem.empty())
      judge.add(Severity::kWarning, "cache.problem", "cache " + layer.path, problem.str(), "", "");
    if (!layer.note.empty())
      judge.add(Severity::kNote, "cache.note", "cache " + layer.path, layer.note, "", "");
  }
  if (e.no_jit && binaries == 0)
    judge.add(Severity::kError, "cache.empty", "cache",
              "TRIGEN_NO_JIT forbids compiling, and no cache holds a kernel", "every plan fails",
              "name a filled cache in TRIGEN_CACHE, or unset TRIGEN_NO_JIT");
  else if (e.no_jit)
    judge.add(Severity::kNote, "cache.no-jit", "cache", "TRIGEN_NO_JIT forbids compiling",
              "problems that no cache holds are errors", "");
  else if (e.no_cache)
    judge.add(Severity::kNote, "cache.none", "cache",
              "TRIGEN_CACHE is none: no cache file is read or written",
              "every process compiles its kernels anew", "");
  else if (!writable)
    judge.add(e.bundles_alone ? Severity::kNote : Severity::kWarning, "cache.read-only", "cache",
              "no cache file can be written", "what the caches lack is compiled anew by every process",
              "name a writable file in TRIGEN_CACHE");
  const int cuda = judge.driver_cuda();
  for (const CachedCode& code : e.cached) {
    int major = 0;
    llvm::StringRef version = code.compiler;
    if (cuda == 0 || !version.consume_front("nvrtc ") || version.split('.').first.getAsInteger(10, major) ||
        major <= cuda / 1000)
      continue;
    const bool here =
        llvm::any_of(judge.targets, [&](const Target* target) { return target->name == code.arch; });
    if (!here) continue;
    judge.add(Severity::kWarning, "cache.newer-major", "cache",
              std::to_string(code.binaries) + " kernels for " + code.arch + " were made by " + code.compiler +
                  ", and driver " + e.driver.version + " serves CUDA " + cuda_text(cuda),
              "NVIDIA promises that a driver runs newer kernels within one CUDA major only",
              "a driver of branch " + std::to_string(oldest_driver(major)) +
                  " or newer, or a cache made with NVRTC " + std::to_string(cuda / 1000) + ".*");
  }
}

void judge_problems(Judge& judge) {
  const Environment& e = judge.environment;
  for (const ProblemFacts& problem : e.problems) {
    const std::string about = problem.target + " " + problem.problem;
    const std::string tune = "trigen tune --arch " + problem.target + " \"" + problem.problem + "\"";
    const char* const miss = e.no_jit ? "TRIGEN_NO_JIT forbids compiling: its plan is an error"
                                      : "its first plan compiles for seconds";
    if (problem.match == "none")
      judge.add(Severity::kError, "problem.none", about, "no record in any cache", miss, tune);
    else if (!problem.binary)
      judge.add(Severity::kError, "problem.no-code", about,
                "a record (" + problem.candidate + "), and no cache has its kernel", miss, tune);
    else if (problem.provenance == "predicted")
      judge.add(Severity::kNote, "problem.predicted", about,
                "untuned: the cost model chose " + problem.candidate,
                "nothing is compiled; tuning may find a faster kernel", tune + " on such a device");
    else if (problem.match == "near" && !problem.difference.empty())
      judge.add(Severity::kNote, "problem.near", about, "near: " + problem.difference,
                "nothing is compiled; the choice was measured elsewhere", tune + " on this device");
  }
}

void judge_surroundings(Judge& judge) {
  const Environment& e = judge.environment;
  std::string found =
      e.toolkits.empty() ? "none is here" : words(e.toolkits) + ": not used, but for its NVRTC";
  judge.add(
      Severity::kNote, "toolkit.none", "toolkit", "no CUDA toolkit is needed; " + found,
      "kernels come from the cache or from NVRTC; nvcc, the CUDA runtime and a host compiler have no part "
      "in it",
      "");
  if (!e.glibc.empty() && !e.glibc_needed.empty()) {
    int major = 0, minor = 0;
    const auto [first, second] = llvm::StringRef(e.glibc_needed).split('.');
    if (!first.getAsInteger(10, major) && !second.getAsInteger(10, minor) && !at_least(e.glibc, major, minor))
      judge.add(Severity::kError, "glibc.old", "glibc",
                "glibc " + e.glibc + " is here, this build of trigen needs " + e.glibc_needed,
                "its library does not load: version `GLIBC_" + e.glibc_needed + "' not found",
                "install the wheel for manylinux_2_28, or build on this machine");
  }
  if (!e.glibc.empty() && !at_least(e.glibc, 2, 28))
    judge.add(Severity::kWarning, "glibc.wheels", "glibc", "glibc " + e.glibc + " is older than 2.28",
              "pip finds no wheel of today's PyTorch (manylinux_2_28): 'no matching distribution found'",
              "use a container or a conda environment with a newer base (RHEL 8, Debian 10, Ubuntu 20.04)");
  for (const auto& [name, value] : e.variables) {
    const auto same = [&, &name = name](const char* known) { return name == known; };
    if (!llvm::StringRef(name).startswith("TRIGEN_") || llvm::any_of(known_variables(), same)) continue;
    const llvm::StringRef start = llvm::StringRef(name).take_front(sizeof "TRIGEN_TEST_" - 1);
    if (start == "TRIGEN_TEST_") continue;  // of trigen's own tests
    llvm::StringRef near;
    for (const char* known : known_variables())
      if (near.empty() ||
          llvm::StringRef(name).edit_distance(known) < llvm::StringRef(name).edit_distance(near))
        near = known;
    judge.add(Severity::kWarning, "variable.unknown", name, "trigen reads no variable of this name",
              "it has no effect",
              llvm::StringRef(name).edit_distance(near) <= 3 ? "did you mean " + near.str() + "?"
                                                             : "docs/environment.md lists them");
  }
}

}  // namespace trigen::doctor
