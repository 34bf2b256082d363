#include "mutations.h"

#include <dlfcn.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "check/selection.h"
#include "runtime/compile.h"

namespace trigen::mutations {
namespace {

// Opcodes that synchronise, the longest match first. Those of one row that begin alike are told apart here.
const char* const kKinds[] = {"bar.warp.sync",
                              "bar.sync",
                              "barrier.sync",
                              "bar.arrive",
                              "barrier.cluster.arrive",
                              "barrier.cluster.wait",
                              "cp.async.commit_group",
                              "cp.async.wait_group",
                              "cp.async.wait_all",
                              "cp.async.bulk.commit_group",
                              "cp.async.bulk.wait_group",
                              "cp.async.mbarrier.arrive",
                              "mbarrier.arrive.expect_tx",
                              "mbarrier.arrive",
                              "mbarrier.expect_tx",
                              "mbarrier.try_wait",
                              "mbarrier.test_wait",
                              "wgmma.fence",
                              "wgmma.commit_group",
                              "wgmma.wait_group",
                              "fence.proxy.async",
                              "fence.mbarrier_init",
                              "griddepcontrol.wait",
                              "fence.acq_rel",
                              "fence.sc",
                              "membar"};

std::string trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t");
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

// "mbarrier.try_wait.parity.shared::cta.b64 complete, [%r1], %r2;" -> "complete"
std::string first_operand(const std::string& instruction) {
  const size_t begin = instruction.find_first_of(" \t");
  const size_t first = instruction.find_first_not_of(" \t", begin);
  return instruction.substr(first, instruction.find(',', first) - first);
}

// Entries that nothing else needs, found in the driver library that is loaded.
struct EmulatorEntries {
  int (*configure)(const char*) = nullptr;
  void (*clear)(int) = nullptr;
  unsigned long long (*reports)(int, char*, unsigned long long) = nullptr;
  explicit EmulatorEntries(const std::string& path) {
    void* handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    configure = reinterpret_cast<int (*)(const char*)>(::dlsym(handle, "trigen_emulator_configure"));
    clear = reinterpret_cast<void (*)(int)>(::dlsym(handle, "trigen_emulator_clear_reports"));
    reports = reinterpret_cast<decltype(reports)>(::dlsym(handle, "trigen_emulator_reports"));
    ::dlclose(handle);  // the driver keeps it loaded
  }
  nlohmann::json all_reports() const {
    std::string text(reports(0, nullptr, 0), '\0');
    reports(0, text.data(), text.size());
    return nlohmann::json::parse(text.c_str());
  }
};

}  // namespace

std::vector<Removal> find_removals(const std::string& ptx) {
  std::vector<Removal> removals;
  std::map<std::string, int> count;
  std::istringstream lines(ptx);
  int number = 0;
  for (std::string raw; std::getline(lines, raw);) {
    ++number;
    const std::string line = trimmed(raw);
    const size_t guard = line.rfind('@', 0) == 0 ? line.find_first_of(" \t") + 1 : 0;
    const std::string instruction = trimmed(line.substr(guard));
    for (const char* kind : kKinds) {
      if (instruction.rfind(kind, 0) != 0) continue;
      Removal removal{kind, number, 0, line, "", 1};
      if (removal.kind == "mbarrier.try_wait" || removal.kind == "mbarrier.test_wait")
        removal.instead = "setp.eq.u32 " + first_operand(instruction) + ", 0, 0;";
      if (removal.kind == "mbarrier.arrive.expect_tx") {
        // The arrival stays: the phase then ends before the bytes have come.
        Removal bytes = removal;
        bytes.kind = "expect_tx";
        std::string arrival = instruction;
        arrival.erase(arrival.find(".expect_tx"), 10);
        arrival.erase(arrival.rfind(']') + 1);
        bytes.instead = arrival + ";";
        bytes.ordinal = count[bytes.kind]++;
        removals.push_back(bytes);
      }
      if (removal.kind == "barrier.cluster.arrive") {
        // Both halves, where they stand together.
        const std::streampos here = lines.tellg();
        std::string next;
        if (std::getline(lines, next) && trimmed(next).rfind("barrier.cluster.wait", 0) == 0) {
          removal.kind = "barrier.cluster";
          removal.lines = 2;
          ++number;
        } else {
          lines.clear();
          lines.seekg(here);
        }
      }
      removal.ordinal = count[removal.kind]++;
      removals.push_back(removal);
      break;
    }
  }
  return removals;
}

std::string without(const std::string& ptx, const Removal& removal) {
  std::string out;
  std::istringstream lines(ptx);
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    if (number == removal.line)
      out += removal.instead;  // keeps the numbers of the lines
    else if (number < removal.line || number >= removal.line + removal.lines)
      out += line;
    out += "\n";
  }
  return out;
}

llvm::Expected<std::vector<Subject>> read_subjects(const std::string& path) {
  std::ifstream in(path);
  if (!in) return make_error(ErrorKind::kBadRequest, path + ": cannot be read");
  std::vector<Subject> subjects;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line);
    std::string what, kind;
    if (!(words >> what) || what[0] == '#') continue;
    Subject::Run run;
    int count = 0;
    bool good = true;
    if (what == "kernel") {
      Subject& subject = subjects.emplace_back();
      subject.line = number;
      good = static_cast<bool>(words >> subject.target >> subject.choice >> subject.problem);
    } else if (!subjects.empty() && what == "run" && words >> run.sms >> run.batch) {
      subjects.back().runs.push_back(run);
    } else if (!subjects.empty() && what == "keeps" && words >> kind >> count) {
      subjects.back().keeps[kind] = count;
    } else {
      good = false;
    }
    if (!good)
      return make_error(ErrorKind::kBadRequest, path + ":" + std::to_string(number) + ": '" + line +
                                                    "' is none of kernel, run, keeps with their fields");
  }
  return subjects;
}

llvm::Expected<std::unique_ptr<Patient>> Patient::create(const Subject& subject, const Device& device,
                                                         Store& store) {
  auto target = find_target(subject.target);
  if (!target) return target.takeError();
  auto problem = parse_problem(subject.problem);
  if (!problem) return problem.takeError();
  Candidate candidate;
  if (subject.choice.find(':') != std::string::npos) {
    auto parsed = parse_candidate(*problem, **target, subject.choice);
    if (!parsed) return parsed.takeError();
    candidate = *parsed;
  } else {
    auto family = find_family(subject.choice);
    if (!family) return family.takeError();
    Selection selection;
    selection.family = *family;
    auto selected = select(*problem, **target, nullptr, store, selection);
    if (!selected) return selected.takeError();
    candidate = selected->front();
  }
  BuildOptions options;
  options.code = Code::kPtx;
  auto built = build(candidate, store, options);
  if (!built) return built.takeError();
  std::unique_ptr<Patient> patient(new Patient);
  patient->device_ = &device;
  patient->binary_ = built->binary;
  patient->ptx_ = built->binary.ptx;
  for (const Subject::Run& wanted : subject.runs) {
    Run& run = patient->runs_.emplace_back();
    run.target = std::make_unique<Target>(**target);
    if (wanted.sms > 0) run.target->sms = wanted.sms;
    run.candidate = candidate;
    run.candidate.target = run.target.get();
    run.candidate.problem.B = wanted.batch;
    if (render(run.candidate).text != render(candidate).text)
      return make_error(ErrorKind::kBadRequest,
                        "B=" + std::to_string(wanted.batch) + " is another kernel: " + describe(candidate));
    auto bench = Workbench::create(device, run.candidate.problem);
    if (!bench) return bench.takeError();
    run.bench = std::move(*bench);
    auto expected = patient->outputs(run, patient->ptx_, "late");
    if (!expected) return expected.takeError();
    run.expected = std::move(*expected);
  }
  return patient;
}

llvm::Expected<std::vector<std::byte>> Patient::outputs(Run& run, const std::string& ptx,
                                                        const std::string& order) {
  const EmulatorEntries emulator(device_->driver().path());
  emulator.configure(("reports=quiet async=" + order).c_str());
  emulator.clear(0);
  Binary binary = binary_;
  binary.ptx = ptx;
  binary.key.source_hash += '/';  // modules are shared by their key
  binary.key.source_hash += std::to_string(loads_++);
  auto plan = Plan::of(run.candidate, std::move(binary), *device_, LoadFrom::kPtx);
  if (!plan) return plan.takeError();
  auto args = run.bench->args(0, (*plan)->workspace_bytes());
  if (!args) return args.takeError();
  if (auto error = run.bench->poison()) return error;
  if (auto error = (*plan)->run(*args, run.bench->stream())) return error;
  const auto reports = emulator.all_reports();
  if (!reports.empty())
    return make_error(ErrorKind::kDevice, reports[0]["fault"].get<std::string>() + " at line " +
                                              std::to_string(reports[0]["line"].get<int>()) + ": " +
                                              reports[0]["detail"].get<std::string>());
  auto buffers = run.bench->download();
  if (!buffers) return buffers.takeError();
  std::vector<std::byte> bytes;
  for (const auto& buffer : *buffers) bytes.insert(bytes.end(), buffer.begin(), buffer.end());
  return bytes;
}

std::string Patient::run(const std::string& ptx, const std::string& order) {
  for (Run& run : runs_) {
    auto found = outputs(run, ptx, order);
    if (!found) {
      EmulatorEntries(device_->driver().path()).clear(0);  // the context's error
      return llvm::toString(found.takeError());
    }
    if (*found != run.expected) return "wrong answer";
  }
  return "";
}

std::string Patient::find(const std::string& ptx) {
  for (const char* order : {"late", "early", "random:1", "random:2", "random:3"}) {
    std::string found = run(ptx, order);
    if (!found.empty()) return std::string(order) + ": " + found;
  }
  return "";
}

}  // namespace trigen::mutations
