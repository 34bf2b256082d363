// Makes the recorded corpus, in two steps, since the machine with the GPU needs no compiler:
//   record_corpus compile PROBLEMS CORPUS    here: kernels of the list as PTX (NVRTC)
//   record_corpus run CORPUS [DEVICE]        there: runs everything on the device and stores the results
// and, after a change to templates (NVRTC, no GPU):
//   record_corpus sources CORPUS PROBLEMS SOURCES   which kernels are still what today's templates make
#include <cstdio>
#include <ctime>
#include <fstream>
#include <sstream>

#include "check/selection.h"
#include "recorded_corpus.h"
#include "recorded_probes.h"
#include "runtime/compile.h"

namespace trigen::recorded {
namespace {

using nlohmann::json;

// PTX without what no instruction sees, to keep the file small: comments, blank lines, and the constants of templates and
// sources that NVRTC lists as variables and nothing refers to.
std::string strip(const std::string& ptx) {
  std::string out;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.rfind("//", 0) == 0) continue;
    if (line.rfind(".global", 0) == 0 && line.back() == ';') {
      std::istringstream words(line);
      std::string name;
      while (words >> name && (name[0] == '.' || std::isdigit(static_cast<unsigned char>(name[0])) != 0)) {
      }
      name = name.substr(0, name.find_first_of(";["));
      const size_t first = ptx.find(name);
      if (!name.empty() && ptx.find(name, first + 1) == std::string::npos) continue;
    }
    out += line.substr(line.find_first_not_of('\t') == std::string::npos ? 0 : line.find_first_not_of('\t')) +
           "\n";
  }
  return out;
}

// `choice`: a family, whose first choice it is, or family:config, or family:generic.
llvm::Expected<Candidate> candidate_of(const Problem& problem, const Target& target,
                                       const std::string& choice, Store& store) {
  const auto [name, config] = llvm::StringRef(choice).split(':');
  if (!config.empty() && config != "generic") return parse_candidate(problem, target, choice);
  auto family = find_family(name);
  if (!family) return family.takeError();
  if (config == "generic") {
    const auto generic = (*family)->generic_config(problem, target);
    if (!generic)
      return make_error(ErrorKind::kUnsupported,
                        choice + ": " + name.str() + " has no kernel for all sizes of " + to_string(problem));
    return Candidate{problem, &target, *family, *generic, true};
  }
  Selection selection;
  selection.family = *family;
  auto selected = select(problem, target, nullptr, store, selection);
  if (!selected) return selected.takeError();
  return selected->front();
}

llvm::Expected<json> compile_kernel(const Candidate& candidate, Store& store) {
  BuildOptions options;
  options.code = Code::kPtx;
  auto built = build(candidate, store, options);
  if (!built) return built.takeError();
  const std::string ptx = strip(built->binary.ptx), packed = pack_ptx(ptx);
  if (unpack_ptx(packed) != ptx)
    return make_error(ErrorKind::kInternal, "packing changed the PTX of " + describe(candidate));
  return json{{"target", candidate.target->name.str()},
              {"candidate", describe(candidate)},
              {"problem", to_string(candidate.problem)},
              {"entry", built->binary.entry},
              {"source_hash", built->binary.key.source_hash},
              {"compiler", built->binary.key.compiler},
              {"ptx", packed}};
}

llvm::Expected<json> compile_line(const std::string& line, Store& store) {
  std::istringstream words(line);
  std::string target_name, choice, text;
  words >> target_name >> choice >> text;
  auto target = find_target(target_name);
  if (!target) return target.takeError();
  auto problem = parse_problem(text);
  if (!problem) return problem.takeError();
  auto candidate = candidate_of(*problem, **target, choice, store);
  if (!candidate) return candidate.takeError();
  return compile_kernel(*candidate, store);
}

llvm::Error compile_all(const std::string& list, const std::string& path) {
  auto lines = load_lines(list);
  if (!lines) return lines.takeError();
  auto store = Store::open({});
  json kernels = json::array();
  for (const std::string& line : *lines) {
    auto kernel = compile_line(line, *store);
    if (!kernel) return kernel.takeError();
    std::printf("%s\n", name_of(*kernel).c_str());
    kernels.push_back(std::move(*kernel));
  }
  return save_corpus(path, {{"kernels", std::move(kernels)}});
}

llvm::Error run_all(const std::string& path, const std::string& spec) {
  auto corpus = load_corpus(path);
  if (!corpus) return corpus.takeError();
  auto device = Device::open(spec);
  if (!device) return device.takeError();
  const DeviceInfo& info = (*device)->info();
  if (info.emulated)
    return make_error(ErrorKind::kBadRequest, spec + " is emulated: a recording is of a GPU; name cuda:0");
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof date, "%Y-%m-%d", std::gmtime(&now));
  (*corpus)["device"] = info.name;
  (*corpus)["driver"] = info.driver;
  (*corpus)["date"] = date;
  int failures = 0;
  json probes = json::object();
  for (const Probe& probe : all_probes()) {
    auto out = run_probe(**device, probe);
    if (!out) {  // the others are recorded all the same
      std::fprintf(stderr, "%s\n", llvm::toString(out.takeError()).c_str());
      ++failures;
      continue;
    }
    const auto* bytes = reinterpret_cast<const uint8_t*>(out->data());
    probes[probe.name] = json::binary(std::vector<uint8_t>(bytes, bytes + 4 * out->size()));
  }
  std::printf("%zu probes\n", probes.size());
  (*corpus)["probes"] = std::move(probes);
  for (json& kernel : (*corpus)["kernels"]) {
    kernel["runs"] = json::object();
    for (const Data data : kAllData) {
      auto run = run_kernel(**device, kernel, data);
      if (!run) {
        std::fprintf(stderr, "%s\n", llvm::toString(run.takeError()).c_str());
        ++failures;
        break;
      }
      kernel["runs"][to_string(data)] = json::binary(join(run->outputs));
    }
    std::printf("ran %s\n", kernel["problem"].get<std::string>().c_str());
    std::fflush(stdout);
  }
  if (auto error = save_corpus(path, *corpus)) return error;
  if (failures != 0)
    return make_error(ErrorKind::kDevice, path + " lacks " + std::to_string(failures) + " runs that failed");
  return llvm::Error::success();
}

// "current HASH" or "stale HASH": of what today's templates make of a recorded kernel.
llvm::Expected<SourceLine> stand(const json& kernel, Store& store) {
  SourceLine line{"stale", "-", name_of(kernel)};
  auto hash = todays_hash(kernel);
  if (!hash) {
    std::fprintf(stderr, "%s\n", llvm::toString(hash.takeError()).c_str());
    return line;
  }
  line.hash = *hash;
  if (line.hash == kernel["source_hash"]) {
    line.status = "current";
    return line;
  }
  auto candidate = recorded_candidate(kernel);
  if (!candidate) return candidate.takeError();
  auto today = compile_kernel(*candidate, store);
  if (!today) return today.takeError();
  if ((*today)["compiler"] != kernel["compiler"])
    return make_error(ErrorKind::kBuild, "the corpus was compiled by NVRTC " +
                                             kernel["compiler"].get<std::string>() + ", here is " +
                                             (*today)["compiler"].get<std::string>() +
                                             "; name that one in TRIGEN_NVRTC");
  const auto stripped = [](const json& of) { return strip(unpack_ptx(of["ptx"])); };
  if (stripped(*today) == stripped(kernel)) line.status = "current";
  return line;
}

llvm::Error write_sources(const std::string& path, const std::string& list, const std::string& out) {
  auto corpus = load_corpus(path);
  if (!corpus) return corpus.takeError();
  auto lines = load_lines(list);
  if (!lines) return lines.takeError();
  auto missing = missing_lines(*lines, *corpus);
  if (!missing) return missing.takeError();
  auto store = Store::open({});
  std::string text =
      "# What today's templates make of the recorded kernels (`record_corpus sources` writes this file):\n"
      "# current or stale, the hash of today's source, target, candidate, problem; and what problems.txt "
      "has\n"
      "# and nobody recorded. Stale kernels are not compared with a GPU's answers.\n";
  size_t current = 0;
  for (const json& kernel : (*corpus)["kernels"]) {
    auto line = stand(kernel, *store);
    if (!line) return line.takeError();
    current += line->is_current() ? 1 : 0;
    text += line->status + " " + line->hash + " " + line->kernel + "\n";
  }
  for (const std::string& line : *missing) text += "missing - " + line + "\n";
  std::ofstream file(out);
  file << text;
  file.close();
  if (!file) return make_error(ErrorKind::kBadRequest, out + ": cannot be written");
  std::printf("%zu current, %zu stale, %zu missing\n", current, (*corpus)["kernels"].size() - current,
              missing->size());
  return llvm::Error::success();
}

}  // namespace
}  // namespace trigen::recorded

int main(int argc, char** argv) {
  using namespace trigen::recorded;
  const std::string verb = argc > 2 ? argv[1] : "";
  const auto made = [&]() -> llvm::Error {
    if (verb == "compile" && argc == 4) return compile_all(argv[2], argv[3]);
    if (verb == "run" && argc <= 4) return run_all(argv[2], argc == 4 ? argv[3] : "cuda:0");
    if (verb == "sources" && argc == 5) return write_sources(argv[2], argv[3], argv[4]);
    return trigen::make_error(trigen::ErrorKind::kBadRequest,
                              "use: record_corpus compile PROBLEMS CORPUS, record_corpus run CORPUS "
                              "[DEVICE], or record_corpus sources CORPUS PROBLEMS SOURCES");
  };
  llvm::Error error = made();
  if (!error) return 0;
  std::fprintf(stderr, "%s\n", llvm::toString(std::move(error)).c_str());
  return 1;
}
