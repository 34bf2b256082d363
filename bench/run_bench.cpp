// What a run costs the host. `bind`: the argument checks alone. The others need a device and are
// skipped elsewhere: the path of trigen_plan_run with and without the ownership checks of pointers, and the
// bare launch.
#include <benchmark/benchmark.h>

#include "runtime/plan.h"

namespace trigen {
namespace {

constexpr const char* kProblem = "forward,dtype=bf16,B=1,T=64,D=64,epilogue=bias+residual";

void* at(uintptr_t address) { return reinterpret_cast<void*>(address); }

void bind(benchmark::State& state) {
  const Problem problem = llvm::cantFail(parse_problem(kProblem));
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

// One plan and its tensors on the current device; null with a reason where there is none.
struct Bench {
  std::shared_ptr<const Plan> checked, unchecked;
  trigen_args args = TRIGEN_ARGS_INIT;
  std::string reason;

  Bench() {
    auto device = Device::open("");
    if (!device) {
      reason = take_error(device.takeError()).message;
      return;
    }
    auto store = Store::open({});
    PlanOptions options = plan_options_from_environment();
    const Problem problem = llvm::cantFail(parse_problem(kProblem));
    auto plan = Plan::create(problem, **device, *store, options);
    options.check_pointers = false;
    auto second = Plan::create(problem, **device, *store, options);
    if (!plan || !second) {
      reason = take_error(llvm::joinErrors(plan.takeError(), second.takeError())).message;
      return;
    }
    checked = *plan;
    unchecked = *second;
    const DriverApi& api = (*device)->api();
    const ContextScope scope(api, checked->executable().context());
    cuda::CUdeviceptr memory = 0;
    api.cuMemAlloc(&memory, 5 << 16);  // kept for the process's life
    api.cuMemsetD8(memory, 0, 5 << 16);
    void** const tensors[] = {&args.x.data, &args.y.data, &args.w, &args.bias, &args.residual.data};
    for (int i = 0; i < 5; ++i) *tensors[i] = at(memory + (static_cast<uintptr_t>(i) << 16));
  }
  static Bench& get() {
    static Bench* const bench = new Bench;
    return *bench;
  }
};

// Waits outside the timing, before the launch queue fills up and the host is made to wait.
template <typename Body>
void timed(benchmark::State& state, const Body& body) {
  Bench& bench = Bench::get();
  if (!bench.reason.empty()) {
    state.SkipWithError(bench.reason.c_str());
    return;
  }
  const DriverApi& api = bench.checked->executable().device().api();
  const ContextScope scope(api, bench.checked->executable().context());
  int queued = 0;
  for (auto _ : state) {
    body(bench);
    if (++queued < 256) continue;
    queued = 0;
    state.PauseTiming();
    api.cuCtxSynchronize();
    state.ResumeTiming();
  }
  api.cuCtxSynchronize();
}

void run(benchmark::State& state) {
  timed(state, [&](Bench& bench) {
    if (bench.checked->run(bench.args, nullptr)) state.SkipWithError("refused");
  });
}
BENCHMARK(run);

void run_without_pointer_checks(benchmark::State& state) {
  timed(state, [&](Bench& bench) {
    if (bench.unchecked->run(bench.args, nullptr)) state.SkipWithError("refused");
  });
}
BENCHMARK(run_without_pointer_checks);

// Bound once: the launch alone.
void bare_launch(benchmark::State& state) {
  Params params{};
  bool bound = false;
  timed(state, [&](Bench& bench) {
    if (!bound) llvm::cantFail(bind_arguments(bench.checked->problem(), 0, bench.args, params));
    bound = true;
    if (bench.checked->executable().launch(params, nullptr) != cuda::CUDA_SUCCESS)
      state.SkipWithError("the launch failed");
  });
}
BENCHMARK(bare_launch);

}  // namespace
}  // namespace trigen

BENCHMARK_MAIN();
