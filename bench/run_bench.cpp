// Host time of a run, for a kernel without tensor maps, one with three of them (wgmma_sm90), and one
// with two launches. `bind`: the argument checks alone. The others need a device and are skipped elsewhere,
// with the reason: `run` is trigen_plan_run's path, with and without the ownership checks of pointers;
// `launch` the executable's launch with arguments that are bound already; `bare` a cuLaunchKernel of an empty
// kernel with one argument block of the same size, which 1.3x are asked of.
//
// TRIGEN_BENCH_DEVICE names the device ("emulated:sm_90a" to see that it works; its times are this host's
// alone).
#include <benchmark/benchmark.h>

#include <cstdlib>

#include "generator/candidate.h"
#include "runtime/plan.h"

namespace trigen {
namespace {

struct Kind {
  const char* problem;
  const char* family;  // "" = the plan's own choice
};
constexpr Kind kKinds[] = {{"forward,dtype=bf16,B=1,T=64,D=64,epilogue=bias+residual", ""},
                           {"forward,dtype=bf16,B=4,T=256,D=64", "wgmma_sm90"},
                           {"grad_weight,dtype=bf16,B=64,T=128,D=64", ""}};

constexpr const char* kEmpty = R"(.version 7.0
.target sm_52
.address_size 64
.visible .entry empty(.param .align 8 .b8 p[%zu]) { ret; }
)";

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

void bind(benchmark::State& state) {
  const Problem problem = llvm::cantFail(parse_problem(kKinds[0].problem));
  trigen_args args = TRIGEN_ARGS_INIT;
  args.x.data = at(0x10000000);
  args.y.data = at(0x20000000);
  args.w = at(0x30000000);
  args.bias = at(0x40000000);
  args.residual.data = at(0x50000000);
  Params params;
  for (auto _ : state) {
    if (bind_arguments(problem, 0, args, params)) state.SkipWithError("refused");
    benchmark::DoNotOptimize(params);
  }
}
BENCHMARK(bind);

// A plan of each kind, its tensors, and the empty kernel, on one device.
struct Bench {
  struct Arm {
    std::shared_ptr<const Plan> checked, unchecked;
    trigen_args args = TRIGEN_ARGS_INIT;
    std::string reason;  // why there is none
  };
  const Device* device = nullptr;
  cuda::CUcontext context = nullptr;
  cuda::CUfunction empty = nullptr;
  Arm arms[std::size(kKinds)];
  std::string reason;

  static Bench& get() {
    static Bench* const bench = new Bench;
    return *bench;
  }

  Bench() {
    const char* spec = std::getenv("TRIGEN_BENCH_DEVICE");
    if (auto error = open(spec != nullptr ? spec : "")) {
      reason = take_error(std::move(error)).message;
      return;
    }
    auto store = Store::open({});
    for (size_t i = 0; i < std::size(kKinds); ++i)
      if (auto error = make(kKinds[i], *store, arms[i]))
        arms[i].reason = take_error(std::move(error)).message;
  }

  llvm::Error open(const char* spec) {
    auto opened = Device::open(spec);
    if (!opened) return opened.takeError();
    device = *opened;
    auto made = device->context();
    if (!made) return made.takeError();
    context = *made;
    const DriverApi& api = device->api();
    const ContextScope scope(api, context);
    char text[256];
    std::snprintf(text, sizeof text, kEmpty, sizeof(Params));
    cuda::CUmodule module = nullptr;
    if (auto error =
            device->driver().check(api.cuModuleLoadDataEx(&module, text, 0, nullptr, nullptr), "loading PTX"))
      return error;
    return device->driver().check(api.cuModuleGetFunction(&empty, module, "empty"), "cuModuleGetFunction");
  }

  llvm::Expected<std::shared_ptr<const Plan>> plan(const Kind& kind, Store& store,
                                                   const PlanOptions& options) const {
    const Problem problem = llvm::cantFail(parse_problem(kind.problem));
    if (*kind.family == '\0') return Plan::create(problem, *device, store, options);
    auto family = find_family(kind.family);
    if (!family) return family.takeError();
    auto list = list_candidates(problem, device->target(), *family);
    if (!list) return list.takeError();
    BuildOptions build_options;
    build_options.no_jit = options.no_jit;
    auto built = build(list->front(), store, build_options);
    if (!built) return built.takeError();
    return Plan::of(list->front(), std::move(built->binary), *device, LoadFrom::kAuto, options);
  }

  llvm::Error make(const Kind& kind, Store& store, Arm& arm) const {
    PlanOptions options = plan_options_from_environment();
    auto checked = plan(kind, store, options);
    if (!checked) return checked.takeError();
    options.check_pointers = false;
    auto unchecked = plan(kind, store, options);
    if (!unchecked) return unchecked.takeError();
    arm.checked = *checked;
    arm.unchecked = *unchecked;
    const DriverApi& api = device->api();
    const ContextScope scope(api, context);
    constexpr size_t kBytes = 2 << 20;  // more than any tensor of the problems above
    const auto workspace = static_cast<size_t>(arm.checked->workspace_bytes());
    cuda::CUdeviceptr memory = 0;
    if (auto error = device->driver().check(api.cuMemAlloc(&memory, 5 * kBytes + workspace), "cuMemAlloc"))
      return error;  // kept for the process's life
    api.cuMemsetD8(memory, 0, 5 * kBytes + workspace);
    const auto part = [&](uintptr_t i) { return at(static_cast<uintptr_t>(memory) + i * kBytes); };
    const Epilogue& epilogue = arm.checked->problem().epilogue;
    arm.args.x.data = part(0);
    arm.args.y.data = part(1);
    arm.args.w = part(2);
    if (epilogue.bias) arm.args.bias = part(3);
    if (epilogue.residual) arm.args.residual.data = part(4);
    if (workspace > 0) {
      arm.args.workspace = part(5);
      arm.args.workspace_size = workspace;
    }
    return llvm::Error::success();
  }
};

// Waits outside the timing, before the launch queue fills up and the host is made to wait.
template <typename Body>
void timed(benchmark::State& state, const std::string& reason, const Body& body) {
  Bench& bench = Bench::get();
  if (!bench.reason.empty() || !reason.empty()) {
    state.SkipWithError((bench.reason.empty() ? reason : bench.reason).c_str());
    return;
  }
  const DriverApi& api = bench.device->api();
  const ContextScope scope(api, bench.context);
  int queued = 0;
  for (auto _ : state) {
    if (!body(bench)) state.SkipWithError("refused");
    if (++queued < 256) continue;
    queued = 0;
    state.PauseTiming();
    api.cuCtxSynchronize();
    state.ResumeTiming();
  }
  api.cuCtxSynchronize();
}

Bench::Arm& arm_of(benchmark::State& state) {
  Bench::Arm& arm = Bench::get().arms[state.range(0)];
  if (arm.checked)
    state.SetLabel(kKinds[state.range(0)].problem + std::string("; ") +
                   describe(arm.checked->resolution().candidate));
  return arm;
}

void run(benchmark::State& state) {
  const Bench::Arm& arm = arm_of(state);
  timed(state, arm.reason, [&](Bench&) { return !arm.checked->run(arm.args, nullptr); });
}
BENCHMARK(run)->DenseRange(0, static_cast<int>(std::size(kKinds)) - 1);

void run_without_pointer_checks(benchmark::State& state) {
  const Bench::Arm& arm = arm_of(state);
  timed(state, arm.reason, [&](Bench&) { return !arm.unchecked->run(arm.args, nullptr); });
}
BENCHMARK(run_without_pointer_checks)->DenseRange(0, static_cast<int>(std::size(kKinds)) - 1);

void launch(benchmark::State& state) {
  const Bench::Arm& arm = arm_of(state);
  Params params{};
  if (arm.checked)
    llvm::cantFail(bind_arguments(arm.checked->problem(), arm.checked->workspace_bytes(), arm.args, params));
  timed(state, arm.reason,
        [&](Bench&) { return arm.checked->executable().launch(params, nullptr) == cuda::CUDA_SUCCESS; });
}
BENCHMARK(launch)->DenseRange(0, static_cast<int>(std::size(kKinds)) - 1);

void bare(benchmark::State& state) {
  Params params{};
  void* arguments[] = {&params};
  timed(state, "", [&](Bench& bench) {
    return bench.device->api().cuLaunchKernel(bench.empty, 1, 1, 1, 128, 1, 1, 0, nullptr, arguments,
                                              nullptr) == cuda::CUDA_SUCCESS;
  });
}
BENCHMARK(bare);

}  // namespace
}  // namespace trigen

BENCHMARK_MAIN();
