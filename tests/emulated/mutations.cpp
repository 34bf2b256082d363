#include "mutations.h"

#include <dlfcn.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "check/emulated_device.h"
#include "check/integers.h"
#include "check/selection.h"
#include "runtime/compile.h"

namespace trigen::mutations {
namespace {

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

// The same PTX as runtime/compile makes, with the lines of the templates in it.
llvm::Expected<std::string> compile_with_lines(const Candidate& candidate, const Nvrtc& nvrtc) {
  const Source source = render(candidate);
  std::vector<const char*> texts, names;
  for (const TemplateFile& file : template_files()) {
    texts.push_back(file.text.data());
    names.push_back(file.name.data());
  }
  std::vector<std::string> options = {"--generate-line-info"};
  std::istringstream words(compile_options(*candidate.target, Code::kPtx));
  for (std::string word; words >> word;) options.push_back(word);
  std::vector<const char*> pointers;
  for (const std::string& option : options) pointers.push_back(option.c_str());
  const Nvrtc::Api& api = nvrtc.api();
  void* program = nullptr;
  int result = api.nvrtcCreateProgram(&program, source.text.c_str(), (source.entry + ".cu").c_str(),
                                      static_cast<int>(texts.size()), texts.data(), names.data());
  if (result == 0)
    result = api.nvrtcCompileProgram(program, static_cast<int>(pointers.size()), pointers.data());
  size_t size = 0;
  std::string ptx;
  if (result == 0 && (result = api.nvrtcGetPTXSize(program, &size)) == 0) {
    ptx.resize(size);
    result = api.nvrtcGetPTX(program, ptx.data());
  }
  api.nvrtcDestroyProgram(&program);
  if (result != 0)
    return make_error(ErrorKind::kBuild, describe(candidate) + ": " + api.nvrtcGetErrorString(result));
  ptx.resize(ptx.find('\0'));
  return ptx;
}

llvm::Expected<Candidate> candidate_of(const Subject& subject, const Problem& problem, const Target& target) {
  if (subject.choice.find(':') != std::string::npos) return parse_candidate(problem, target, subject.choice);
  auto family = find_family(subject.choice);
  if (!family) return family.takeError();
  auto store = Store::open({});
  Selection selection;
  selection.family = *family;
  auto selected = select(problem, target, nullptr, *store, selection);
  if (!selected) return selected.takeError();
  return selected->front();
}

uint64_t steps_of(const EmulatedDevice& device) {
  uint64_t total = 0;
  const auto counters = nlohmann::json::parse(device.counters());
  for (const auto& kernel : counters["kernels"]) total += kernel["steps"].get<uint64_t>();
  return total;
}

}  // namespace

llvm::Expected<std::vector<Subject>> read_subjects(const std::string& path) {
  std::ifstream in(path);
  if (!in) return make_error(ErrorKind::kBadRequest, path + ": cannot be read");
  std::vector<Subject> subjects;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    std::istringstream words(line);
    std::string what;
    if (!(words >> what) || what[0] == '#') continue;
    bool good = what == "kernel" || !subjects.empty();
    if (what == "kernel") {
      Subject& subject = subjects.emplace_back();
      subject.line = number;
      good = static_cast<bool>(words >> subject.name >> subject.target >> subject.choice >> subject.problem);
    } else if (good && what == "run") {
      Subject::Run run;
      good = static_cast<bool>(words >> run.sms);
      if (!(words >> run.problem)) run.problem = subjects.back().problem;
      subjects.back().runs.push_back(run);
    } else if (good && what == "values") {
      good = static_cast<bool>(words >> subjects.back().values);
    } else {
      good = false;
    }
    if (!good)
      return make_error(ErrorKind::kBadRequest, path + ":" + std::to_string(number) + ": '" + line +
                                                    "' is none of kernel, run, values with their fields");
  }
  return subjects;
}

llvm::Expected<std::unique_ptr<Patient>> Patient::create(const Subject& subject, const Device& device) {
  auto target = find_target(subject.target);
  if (!target) return target.takeError();
  auto problem = parse_problem(subject.problem);
  if (!problem) return problem.takeError();
  auto candidate = candidate_of(subject, *problem, **target);
  if (!candidate) return candidate.takeError();
  auto nvrtc = Nvrtc::choose(**target, 12090);  // the one release that makes all targets
  if (!nvrtc) return nvrtc.takeError();
  auto ptx = compile_with_lines(*candidate, **nvrtc);
  if (!ptx) return ptx.takeError();
  std::unique_ptr<Patient> patient(new Patient);
  patient->device_ = &device;
  patient->compiler_ = (*nvrtc)->name();
  patient->listing_ = read_listing(*ptx);
  patient->binary_.key = binary_key(*candidate, **nvrtc, Code::kPtx);
  patient->binary_.entry = render(*candidate).entry;
  auto emulated = EmulatedDevice::of(device);
  if (!emulated) return emulated.takeError();
  uint64_t steps = 0;
  for (const Subject::Run& wanted : subject.runs) {
    Run& run = patient->runs_.emplace_back();
    run.target = std::make_unique<Target>(**target);
    if (wanted.sms > 0) run.target->sms = wanted.sms;
    auto other = parse_problem(wanted.problem);
    if (!other) return other.takeError();
    run.candidate = *candidate;
    run.candidate.target = run.target.get();
    run.candidate.problem = *other;
    if (render(run.candidate).text != render(*candidate).text)
      return make_error(ErrorKind::kBadRequest,
                        wanted.problem + " is another kernel: " + describe(*candidate));
    WorkbenchOptions options;
    options.gap = subject.values > 0 ? 1 : 0;
    auto bench = Workbench::create(device, run.candidate.problem, options);
    if (!bench) return bench.takeError();
    run.bench = std::move(*bench);
    run.reference = std::make_unique<Reference>(run.bench->problem(), run.bench->list(), run.bench->inputs());
    auto plan = patient->load(run, patient->listing_.ptx());
    if (!plan) return plan.takeError();
    emulated->reset_counters();
    auto expected = patient->outputs(run, **plan, "late");
    if (!expected) return expected.takeError();
    run.expected = std::move(*expected);
    steps = std::max(steps, 2 * steps_of(*emulated) + 100'000);
    auto verdict = patient->judge_run(run, **plan);
    if (!verdict) return verdict.takeError();
    if (verdict->kind != Verdict::kSame)
      return make_error(ErrorKind::kDevice, "the kernel itself: " + verdict->found);
  }
  patient->steps_ = steps;
  return patient;
}

llvm::Expected<std::shared_ptr<const Plan>> Patient::load(const Run& run, const std::string& ptx) {
  Binary binary = binary_;
  binary.ptx = ptx;
  binary.key.source_hash += '/';  // modules are shared by their key
  binary.key.source_hash += std::to_string(loads_++);
  return Plan::of(run.candidate, std::move(binary), *device_, LoadFrom::kPtx);
}

llvm::Expected<HostBuffers> Patient::outputs(Run& run, const Plan& plan, const std::string& order) {
  const EmulatorEntries emulator(device_->driver().path());
  emulator.configure(("reports=quiet async=" + order + " steps=" + std::to_string(steps_)).c_str());
  emulator.clear(0);
  const auto made = [&](llvm::Expected<trigen_args> args) -> llvm::Expected<HostBuffers> {
    if (!args) return args.takeError();
    if (auto error = run.bench->poison()) return error;
    if (auto error = plan.run(*args, run.bench->stream())) return error;
    const auto reports = emulator.all_reports();
    if (!reports.empty())
      return make_error(ErrorKind::kDevice, reports[0]["fault"].get<std::string>() + " at line " +
                                                std::to_string(reports[0]["line"].get<int>()) + ": " +
                                                reports[0]["detail"].get<std::string>());
    return run.bench->download();
  };
  auto out = made(run.bench->args(0, plan.workspace_bytes()));
  if (!out || !takes_pointers(run.bench->problem())) return out;
  auto by_pointers = made(run.bench->args_of_pointers(0, plan.workspace_bytes()));
  if (by_pointers && *by_pointers != *out)
    return make_error(ErrorKind::kDevice, "arrays of pointers gave other bits");
  return by_pointers;
}

std::string Patient::run(const std::string& ptx, const std::string& order) {
  for (Run& run : runs_) {
    auto plan = load(run, ptx);
    if (!plan) return llvm::toString(plan.takeError());
    auto found = outputs(run, **plan, order);
    if (!found) {
      EmulatorEntries(device_->driver().path()).clear(0);  // the context's error
      return llvm::toString(found.takeError());
    }
    if (*found != run.expected) return "wrong answer";
  }
  return "";
}

llvm::Expected<Verdict> Patient::judge_run(Run& run, const Plan& plan) {
  auto random = outputs(run, plan, "late");
  if (!random) return random.takeError();
  Verdict verdict;
  if (*random != run.expected) {
    verdict.kind = Verdict::kNear;
    const CheckResult result = run.reference->check(*random);
    if (!result.ok) return Verdict{Verdict::kKilled, result.failure};
  }
  const Integers integers(run.bench->problem(), run.bench->list());
  for (int i = 0; i < integers.runs(); ++i) {
    const HostBuffers inputs = integers.inputs(i);
    if (auto error = run.bench->put_inputs(inputs)) return error;
    auto exact = outputs(run, plan, "late");
    if (auto error = run.bench->put_inputs(run.bench->inputs())) {
      if (exact) return error;
      llvm::consumeError(std::move(error));
    }
    if (!exact) return exact.takeError();
    CheckResult result;
    result.ok = true;
    integers.check(i, *exact, result);
    if (!result.ok) return Verdict{Verdict::kKilled, "integers: " + result.failure};
  }
  return verdict;
}

Verdict Patient::judge(const Mutant& mutant) {
  const std::string ptx = mutated(listing_, mutant);
  if (mutant.kind == "sync") {
    for (const char* order : {"late", "early", "random:1", "random:2", "random:3", "shuffled:3"}) {
      const std::string found = run(ptx, order);
      if (!found.empty()) return {Verdict::kKilled, std::string(order) + ": " + found};
    }
    return {};
  }
  Verdict out;
  for (Run& one : runs_) {
    auto plan = load(one, ptx);
    if (!plan) return {Verdict::kRefused, llvm::toString(plan.takeError())};
    auto verdict = judge_run(one, **plan);
    if (!verdict) {
      EmulatorEntries(device_->driver().path()).clear(0);  // the context's error
      out = {Verdict::kKilled, llvm::toString(verdict.takeError())};
      if (auto error = one.bench->put_inputs(one.bench->inputs())) llvm::consumeError(std::move(error));
      return out;
    }
    if (verdict->kind == Verdict::kKilled) return *verdict;
    if (verdict->kind == Verdict::kNear) out = *verdict;
  }
  return out;
}

llvm::Expected<CanaryReport> Patient::canary(const Mutant& mutant) {
  auto plan = load(runs_.front(), mutated(listing_, mutant));
  if (!plan) return plan.takeError();
  const EmulatorEntries emulator(device_->driver().path());
  emulator.configure(("reports=quiet async=late steps=" + std::to_string(steps_)).c_str());
  CanaryReport report = run_canary(**plan);
  emulator.clear(0);  // the context's error
  return report;
}

}  // namespace trigen::mutations
