// Makes the recorded corpus, in two steps, since the machine with the GPU needs no compiler:
//   record_corpus compile PROBLEMS CORPUS    here: kernels of the list as PTX (NVRTC)
//   record_corpus run CORPUS [DEVICE]        there: runs everything on the device and stores the results
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

// PTX without what no instruction sees, to keep the file small: comments, blank lines, and the templates'
// constants that NVRTC lists as variables and nothing refers to.
std::string strip(const std::string& ptx) {
  std::string out;
  std::istringstream lines(ptx);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.rfind("//", 0) == 0) continue;
    if (line.rfind(".global", 0) == 0 && line.back() == ';') {
      std::istringstream words(line);
      std::string name;
      while (words >> name && name.rfind("_Z", 0) != 0) {
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

llvm::Expected<json> compile_line(const std::string& line, Store& store) {
  std::istringstream words(line);
  std::string target_name, choice, text;
  words >> target_name >> choice >> text;
  auto target = find_target(target_name);
  if (!target) return target.takeError();
  auto problem = parse_problem(text);
  if (!problem) return problem.takeError();
  Candidate candidate;
  if (choice.find(':') != std::string::npos) {
    auto parsed = parse_candidate(*problem, **target, choice);
    if (!parsed) return parsed.takeError();
    candidate = *parsed;
  } else {
    auto family = find_family(choice);
    if (!family) return family.takeError();
    Selection selection;
    selection.family = *family;
    auto selected = select(*problem, **target, nullptr, store, selection);
    if (!selected) return selected.takeError();
    candidate = selected->front();
  }
  auto built = build(candidate, store);
  if (!built) return built.takeError();
  const std::string ptx = strip(built->binary.ptx), packed = pack_ptx(ptx);
  if (unpack_ptx(packed) != ptx)
    return make_error(ErrorKind::kInternal, "packing changed the PTX of " + describe(candidate));
  return json{{"target", target_name},
              {"candidate", describe(candidate)},
              {"problem", to_string(*problem)},
              {"entry", built->binary.entry},
              {"source_hash", built->binary.key.source_hash},
              {"compiler", built->binary.key.compiler},
              {"ptx", packed}};
}

llvm::Error compile_all(const std::string& list, const std::string& path) {
  std::ifstream in(list);
  if (!in) return make_error(ErrorKind::kBadRequest, list + ": cannot be read");
  auto store = Store::open({});
  json kernels = json::array();
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    auto kernel = compile_line(line, *store);
    if (!kernel) return kernel.takeError();
    std::printf("%s  %s  %s\n", (*kernel)["target"].get<std::string>().c_str(),
                (*kernel)["candidate"].get<std::string>().c_str(),
                (*kernel)["problem"].get<std::string>().c_str());
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

}  // namespace
}  // namespace trigen::recorded

int main(int argc, char** argv) {
  const std::string verb = argc > 2 ? argv[1] : "";
  llvm::Error error = verb == "compile" && argc == 4 ? trigen::recorded::compile_all(argv[2], argv[3])
                      : verb == "run" && argc <= 4
                          ? trigen::recorded::run_all(argv[2], argc == 4 ? argv[3] : "cuda:0")
                          : trigen::make_error(trigen::ErrorKind::kBadRequest,
                                               "use: record_corpus compile PROBLEMS CORPUS, or "
                                               "record_corpus run CORPUS [DEVICE]");
  if (!error) return 0;
  std::fprintf(stderr, "%s\n", llvm::toString(std::move(error)).c_str());
  return 1;
}
