// Time of a cold process with a warm cache from an existing context to its first launch, through
// libtrigen.so. Each start is a process of its own:
//
//   start_bench [--starts N] [--device SPEC] [problem]     (9, the first device, forward bf16 32,512,1024)
//
// prints one line of JSON: medians in milliseconds of making the runtime, making the plan and the first run's
// return, and their sum, which is what 4 ms are asked of; whether NVRTC was mapped (it must not be); the
// kernel. Then the host time of asking for the same plan again (trigen_plan_create and _destroy of a problem
// that is resolved already), in microseconds, of which 1 is asked. The cache is TRIGEN_CACHE's or the user's;
// compiling is forbidden. On the emulated device (--device emulated:sm_90a) the figures are those of this
// host without a driver, and the line says so.
//
//   start_bench --list FILE [--find] [--starts N] [--device SPEC]
//
// starts with all problems of a list: medians of what finding all their kernels takes (record, source's hash,
// checked cubin), in wall time and in the process's CPU time, and, in processes of their own, of making all
// their plans from the context on, which finds and loads them. The emulated device reads PTX, which takes
// longer than a driver's load of a cubin: there the finds are what counts, and --find makes no plans.
// TRIGEN_CANARY=0 leaves out the canaries of kernels that others made; with them the first start pays for all
// that a user layer remembers after it.
//
//   start_bench --calls [--device SPEC] [problem]
//
// one start in this process without libtrigen.so, from a context on, by stages: milliseconds in all and inside the
// driver, and each of the driver's entries with its calls and their milliseconds. What is left is trigen's own.
// With --list FILE the stages are those of all its problems' plans.
//
//   start_bench --floor --list FILE [--threads N] [--device SPEC]
//
// the driver's own time for the list's kernels: their cubins, found before, are loaded by a bare loop of
// cuModuleLoadDataEx, then their entries are looked up, given their attributes and loaded (cuFuncLoad).
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/driver_calls.h"
#include "check/workbench.h"
#include "runtime/plan.h"
#include "trigen/trigen.h"

namespace trigen {
namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double cpu_ms() {
  timespec time = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) * 1e3 + static_cast<double>(time.tv_nsec) * 1e-6;
}

bool nvrtc_is_mapped() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find("libnvrtc") != std::string::npos) return true;
  return false;
}

int fail(const std::string& text) {
  std::fprintf(stderr, "start_bench: %s\n", text.c_str());
  return 1;
}

// One start. Prints "runtime plan run lookup nvrtc emulated kernel"; the driver, the context and the tensors
// are there first.
int start(const std::string& spec, const std::string& text) {
  auto device = Device::open(spec);
  if (!device) return fail(take_error(device.takeError()).message);
  auto problem = parse_problem(text);
  if (!problem) return fail(take_error(problem.takeError()).message);
  auto bench = Workbench::create(**device, *problem);
  if (!bench) return fail(take_error(bench.takeError()).message);
  const ContextScope scope((*device)->api(), (*bench)->context());
  constexpr int64_t kWorkspace = 64 << 20;  // more than the first choice of any problem here needs
  auto args = (*bench)->args(0, kWorkspace);
  if (!args) return fail(take_error(args.takeError()).message);

  const double before = now_ms();
  trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
  options.no_jit = 1;
  const std::string driver = (*device)->info().emulated ? spec : "";
  if (!driver.empty()) options.driver = driver.c_str();
  trigen_runtime* runtime = nullptr;
  if (trigen_runtime_create(&options, &runtime) != TRIGEN_OK) return fail(trigen_last_error());
  const double made_runtime = now_ms();
  trigen_problem parsed;
  parsed.struct_size = sizeof parsed;
  trigen_plan* plan = nullptr;
  if (trigen_problem_parse(text.c_str(), &parsed) != TRIGEN_OK ||
      trigen_plan_create(runtime, &parsed, TRIGEN_CURRENT_DEVICE, &plan) != TRIGEN_OK)
    return fail(trigen_last_error());
  const double made_plan = now_ms();
  if (trigen_plan_run(plan, &*args, (*bench)->stream()) != TRIGEN_OK) return fail(trigen_last_error());
  const double launched = now_ms();
  if (auto error = (*bench)->synchronize()) return fail(take_error(std::move(error)).message);

  trigen_plan_info info{};
  info.struct_size = sizeof info;
  trigen_plan_describe(plan, &info);
  constexpr int kLookups = 20000;
  const double lookups = now_ms();
  for (int i = 0; i < kLookups; ++i) {
    trigen_plan* again = nullptr;
    if (trigen_plan_create(runtime, &parsed, TRIGEN_CURRENT_DEVICE, &again) != TRIGEN_OK)
      return fail(trigen_last_error());
    trigen_plan_destroy(again);
  }
  const double lookup = (now_ms() - lookups) / kLookups;
  std::printf("%.6f %.6f %.6f %.9f %d %d %s,%s\n", made_runtime - before, made_plan - made_runtime,
              launched - made_plan, lookup, nvrtc_is_mapped() ? 1 : 0, (*device)->info().emulated ? 1 : 0,
              info.candidate, info.provenance);
  trigen_plan_destroy(plan);
  trigen_runtime_destroy(runtime);
  return 0;
}

llvm::Expected<std::vector<Problem>> read_list(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file) return make_error(ErrorKind::kBadRequest, "cannot read " + path);
  return parse_problem_list(text.str());
}

llvm::Error make_plans_of(const std::vector<Problem>& problems, const Device& device, Store& store,
                          const PlanOptions& options, std::vector<std::shared_ptr<const Plan>>& plans) {
  for (const Problem& problem : problems) {
    auto plan = Plan::create(problem, device, store, options);
    if (!plan) return plan.takeError();
    plans.push_back(*plan);
  }
  return llvm::Error::success();
}

// One start with a list: what finding all kernels takes, or with `make_plans` making all plans, from an existing
// context on. Prints "ms cpu_ms nvrtc emulated problems".
int start_list(const std::string& spec, const std::string& path, bool make_plans) {
  auto problems = read_list(path);
  if (!problems) return fail(take_error(problems.takeError()).message);
  auto device = Device::open(spec);
  if (!device) return fail(take_error(device.takeError()).message);
  auto context = (*device)->context();
  if (!context) return fail(take_error(context.takeError()).message);
  PlanOptions options = plan_options_from_environment();
  options.no_jit = true;
  const double before = now_ms(), cpu_before = cpu_ms();
  const auto store = Store::open({});
  std::vector<std::shared_ptr<const Plan>> plans;
  if (make_plans) {
    if (auto error = make_plans_of(*problems, **device, *store, options, plans))
      return fail(take_error(std::move(error)).message);
  } else {
    for (const Problem& problem : *problems) {
      auto found = resolve(problem, **device, *store, options, BinaryParts::kCubin);
      if (!found) return fail(take_error(found.takeError()).message);
    }
  }
  std::printf("%.6f %.6f %d %d %zu\n", now_ms() - before, cpu_ms() - cpu_before, nvrtc_is_mapped() ? 1 : 0,
              (*device)->info().emulated ? 1 : 0, problems->size());
  return 0;
}

// A stage's JSON, and the clock set anew.
class Stages {
 public:
  Stages() { begin(); }
  void begin() {
    DriverCalls::clear();
    since_ = now_ms();
  }
  void end(const char* stage) {
    const double took = now_ms() - since_;
    double driver = 0;
    std::string calls;
    for (const DriverCalls::Entry& entry : DriverCalls::list()) {
      const double ms = static_cast<double>(entry.nanoseconds) * 1e-6;
      driver += ms;
      char text[160];
      std::snprintf(text, sizeof text, "%s\"%s\": [%lld, %.3f]", calls.empty() ? "" : ", ", entry.name,
                    static_cast<long long>(entry.calls), ms);
      calls += text;
    }
    std::printf("{\"stage\": \"%s\", \"ms\": %.3f, \"driver_ms\": %.3f, \"own_ms\": %.3f, \"calls\": {%s}}\n",
                stage, took, driver, took - driver, calls.c_str());
    begin();
  }

 private:
  double since_ = 0;
};

// A driver whose calls are counted, with its first device's context current.
llvm::Expected<const Driver*> open_watched(const std::string& spec) {
  const llvm::StringRef name = spec;
  auto driver = name.startswith("emulated:") ? Driver::load_emulated(name.drop_front(9)) : Driver::load();
  if (!driver) return driver.takeError();
  DriverCalls::watch(**driver);
  const DriverApi& api = (*driver)->api();
  cuda::CUcontext context = nullptr;
  if (api.cuDevicePrimaryCtxRetain(&context, 0) != cuda::CUDA_SUCCESS ||
      api.cuCtxPushCurrent(context) != cuda::CUDA_SUCCESS)
    return make_error(ErrorKind::kDevice, "no context of device 0");
  return *driver;
}

int measure_list_calls(const std::string& spec, const std::string& path) {
  auto problems = read_list(path);
  if (!problems) return fail(take_error(problems.takeError()).message);
  auto driver = open_watched(spec);
  if (!driver) return fail(take_error(driver.takeError()).message);
  Stages stages;
  auto device = Device::open(**driver, 0);
  if (!device) return fail(take_error(device.takeError()).message);
  stages.end("device");
  PlanOptions options = plan_options_from_environment();
  options.no_jit = true;
  const auto store = Store::open({});
  std::vector<std::shared_ptr<const Plan>> plans;
  if (auto error = make_plans_of(*problems, **device, *store, options, plans))
    return fail(take_error(std::move(error)).message);
  stages.end("store and plans");
  return 0;
}

// The driver's own time of the kernels' loads; prints each stage's wall time and calls.
int measure_floor(const std::string& spec, const std::string& path, size_t threads) {
  auto problems = read_list(path);
  if (!problems) return fail(take_error(problems.takeError()).message);
  auto driver = open_watched(spec);
  if (!driver) return fail(take_error(driver.takeError()).message);
  auto device = Device::open(**driver, 0);
  if (!device) return fail(take_error(device.takeError()).message);
  PlanOptions options = plan_options_from_environment();
  options.no_jit = true;
  const auto store = Store::open({});
  std::vector<Resolution> kernels;
  for (const Problem& problem : *problems) {
    auto found = resolve(problem, **device, *store, options,
                         (*device)->info().emulated ? BinaryParts::kAll : BinaryParts::kCubin);
    if (!found) return fail(take_error(found.takeError()).message);
    const auto same = [&](const Resolution& other) { return other.binary.digest == found->binary.digest; };
    if (std::none_of(kernels.begin(), kernels.end(), same)) kernels.push_back(std::move(*found));
  }
  const DriverApi& api = (*driver)->api();
  auto context = (*device)->context();
  if (!context) return fail(take_error(context.takeError()).message);
  std::atomic<int> failures{0};
  std::vector<cuda::CUmodule> modules(kernels.size());
  const auto load = [&](size_t i) {
    const Binary& binary = kernels[i].binary;
    const std::string& image = (*device)->info().emulated ? binary.ptx : binary.cubin;
    if (api.cuModuleLoadDataEx(&modules[i], image.c_str(), 0, nullptr, nullptr) != cuda::CUDA_SUCCESS)
      ++failures;
  };
  const auto prepare = [&](size_t i) {
    for (const Launch& launch : launch_plan_on(kernels[i].candidate, (*device)->info().sms).launches) {
      cuda::CUfunction function = nullptr;
      if (api.cuModuleGetFunction(&function, modules[i], launch.entry.c_str()) != cuda::CUDA_SUCCESS)
        ++failures;
      else if (launch.shared_bytes > (48 << 10))
        api.cuFuncSetAttribute(function, cuda::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               static_cast<int>(launch.shared_bytes));
      if (function != nullptr && api.cuFuncLoad != nullptr) api.cuFuncLoad(function);
    }
  };
  const auto in_threads = [&](const auto& work) {
    std::vector<std::thread> team;
    for (size_t t = 0; t < threads; ++t)
      team.emplace_back([&, t] {
        const ContextScope scope(api, *context);
        for (size_t i = t; i < kernels.size(); i += threads) work(i);
      });
    for (std::thread& thread : team) thread.join();
  };
  std::printf("%zu kernels, %zu threads\n", kernels.size(), threads);
  Stages stages;
  in_threads(load);
  stages.end("floor: load");
  in_threads(prepare);
  stages.end("floor: functions");
  return failures > 0 ? fail(std::to_string(failures) + " calls failed") : 0;
}

int measure_calls(const std::string& spec, const std::string& text) {
  auto problem = parse_problem(text);
  if (!problem) return fail(take_error(problem.takeError()).message);
  auto driver = open_watched(spec);
  if (!driver) return fail(take_error(driver.takeError()).message);
  Stages stages;
  auto device = Device::open(**driver, 0);
  if (!device) return fail(take_error(device.takeError()).message);
  stages.end("device");
  auto bench = Workbench::create(**device, *problem);
  if (!bench) return fail(take_error(bench.takeError()).message);
  constexpr int64_t kWorkspace = 64 << 20;
  auto args = (*bench)->args(0, kWorkspace);
  if (!args) return fail(take_error(args.takeError()).message);
  PlanOptions options = plan_options_from_environment();
  options.no_jit = true;
  stages.begin();
  const auto store = Store::open({});
  stages.end("store");
  for (const char* stage : {"find", "find again"}) {
    auto found = resolve(*problem, **device, *store, options, BinaryParts::kCubin);
    if (!found) return fail(take_error(found.takeError()).message);
    stages.end(stage);
  }
  auto plan = Plan::create(*problem, **device, *store, options);
  if (!plan) return fail(take_error(plan.takeError()).message);
  stages.end("plan, found before");
  if (auto error = (*plan)->run(*args, (*bench)->stream())) return fail(take_error(std::move(error)).message);
  stages.end("first run");
  return 0;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int measure(const std::string& self, const std::string& spec, const std::string& text, int starts) {
  std::vector<double> stages[5];  // runtime, plan, run, sum, lookup
  int mapped = 0;
  int emulated = 0;
  std::string kernel;
  for (int i = 0; i < starts + 1; ++i) {  // the first warms the page cache
    std::FILE* child = ::popen(("'" + self + "' --one '" + spec + "' '" + text + "'").c_str(), "r");
    if (child == nullptr) return fail("popen failed");
    char line[1024] = "";
    char* got = std::fgets(line, sizeof line, child);
    if (::pclose(child) != 0 || got == nullptr) return fail("a start failed");
    std::istringstream fields(line);
    double values[5];
    fields >> values[0] >> values[1] >> values[2] >> values[4] >> mapped >> emulated >> kernel;
    values[3] = values[0] + values[1] + values[2];
    for (int s = 0; s < 5 && i > 0; ++s) stages[s].push_back(values[s]);
  }
  std::printf(
      "{\"problem\": \"%s\", \"kernel\": \"%s\", \"emulated\": %s, \"starts\": %d, \"runtime_ms\": %.3f, "
      "\"plan_ms\": %.3f, "
      "\"first_run_ms\": %.3f, \"context_to_launch_ms\": %.3f, \"asked_ms\": 4, \"nvrtc_mapped\": %s, "
      "\"lookup_us\": %.3f, "
      "\"asked_us\": 1}\n",
      text.c_str(), kernel.c_str(), emulated != 0 ? "true" : "false", starts, median(stages[0]),
      median(stages[1]), median(stages[2]), median(stages[3]), mapped != 0 ? "true" : "false",
      median(stages[4]) * 1e3);
  return mapped != 0 ? 1 : 0;
}

int measure_list(const std::string& self, const std::string& spec, const std::string& path, int starts,
                 bool make_plans) {
  std::vector<double> took[2], took_cpu[2];  // finds, plans
  int mapped = 0, emulated = 0, problems = 0;
  for (int i = 0; i < starts + 1; ++i)  // the first warms the page cache
    for (const int plans : {0, 1}) {
      if (plans == 1 && !make_plans) continue;
      const std::string mode = plans == 1 ? "--one-list" : "--one-find";
      std::FILE* child = ::popen(("'" + self + "' " + mode + " '" + spec + "' '" + path + "'").c_str(), "r");
      if (child == nullptr) return fail("popen failed");
      double ms = 0, cpu = 0;
      const int got = std::fscanf(child, "%lf %lf %d %d %d", &ms, &cpu, &mapped, &emulated, &problems);
      if (::pclose(child) != 0 || got != 5) return fail("a start failed");
      if (i == 0) continue;
      took[plans].push_back(ms);
      took_cpu[plans].push_back(cpu);
    }
  std::printf(
      "{\"list\": \"%s\", \"problems\": %d, \"emulated\": %s, \"starts\": %d, \"find_ms\": %.3f, "
      "\"find_cpu_ms\": %.3f, \"plans_ms\": %.3f, \"plans_cpu_ms\": %.3f, \"asked_ms\": 50, "
      "\"nvrtc_mapped\": "
      "%s}\n",
      path.c_str(), problems, emulated != 0 ? "true" : "false", starts, median(took[0]), median(took_cpu[0]),
      make_plans ? median(took[1]) : 0, make_plans ? median(took_cpu[1]) : 0, mapped != 0 ? "true" : "false");
  return mapped != 0 ? 1 : 0;
}

}  // namespace
}  // namespace trigen

int main(int argc, char** argv) {
  std::string spec;
  std::string problem = "forward,dtype=bf16,B=32,T=512,D=1024";
  int starts = 9;
  std::string list;
  bool make_plans = true, calls = false, floor = false;
  int threads = 1;
  if (argc == 4 && std::strcmp(argv[1], "--one") == 0) return trigen::start(argv[2], argv[3]);
  if (argc == 4 && std::strcmp(argv[1], "--one-list") == 0) return trigen::start_list(argv[2], argv[3], true);
  if (argc == 4 && std::strcmp(argv[1], "--one-find") == 0)
    return trigen::start_list(argv[2], argv[3], false);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--starts" && i + 1 < argc)
      starts = std::max(1, std::atoi(argv[++i]));
    else if (word == "--device" && i + 1 < argc)
      spec = argv[++i];
    else if (word == "--list" && i + 1 < argc)
      list = argv[++i];
    else if (word == "--threads" && i + 1 < argc)
      threads = std::max(1, std::atoi(argv[++i]));
    else if (word == "--calls")
      calls = true;
    else if (word == "--floor")
      floor = true;
    else if (word == "--find")
      make_plans = false;
    else if (!word.empty() && word[0] != '-')
      problem = word;
    else
      return trigen::fail("unknown option " + word +
                          "; allowed are --starts N, --device SPEC, --list FILE, --find, --calls, --floor, "
                          "--threads N and a problem");
  }
  if (floor && list.empty()) return trigen::fail("--floor takes its kernels from a list; add --list FILE");
  if (floor) return trigen::measure_floor(spec, list, static_cast<size_t>(threads));
  if (calls && !list.empty()) return trigen::measure_list_calls(spec, list);
  if (calls) return trigen::measure_calls(spec, problem);
  if (!list.empty()) return trigen::measure_list(argv[0], spec, list, starts, make_plans);
  return trigen::measure(argv[0], spec, problem, starts);
}
