#include "lab/foreign.h"

#include "check/text.h"

namespace trigen {
namespace {

constexpr uint32_t kForeignThreads = 256, kForeignBytes = 16;  // a thread writes
constexpr uint32_t kForeignBlocksOfSm = 8;                     // one full wave of 2048 threads an SM

// An ordinary kernel: no griddepcontrol, launched without attributes.
constexpr const char* kForeignPtx =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry trigen_foreign(.param .u64 memory)\n{\n"
    "  .reg .b32 %i, %n, %t;\n  .reg .b64 %p, %o;\n"
    "  mov.u32 %i, %ctaid.x;\n  mov.u32 %n, %ntid.x;\n  mov.u32 %t, %tid.x;\n  mad.lo.u32 %i, %i, %n, %t;\n"
    "  mul.wide.u32 %o, %i, 16;\n  ld.param.u64 %p, [memory];\n  add.u64 %p, %p, %o;\n"
    "  st.global.v4.b32 [%p], {%i, %i, %i, %i};\n  ret;\n}\n";

}  // namespace

llvm::Expected<std::unique_ptr<ForeignKernel>> ForeignKernel::create(Workbench& bench) {
  std::unique_ptr<ForeignKernel> made(new ForeignKernel(bench));
  const Driver& driver = bench.device().driver();
  const DriverApi& api = driver.api();
  const ContextScope scope(api, bench.context());
  const int sms = bench.device().info().sms;
  made->blocks_ = kForeignBlocksOfSm * static_cast<uint32_t>(sms > 0 ? sms : 1);
  if (auto error = driver.check(
          api.cuMemAlloc(&made->memory_, cuda::size_type{made->blocks_} * kForeignThreads * kForeignBytes),
          "cuMemAlloc", "the foreign kernel"))
    return error;
  auto kernel = PtxKernel::load(bench, kForeignPtx, "trigen_foreign", "the foreign kernel");
  if (!kernel) return kernel.takeError();
  made->kernel_ = std::move(*kernel);
  return made;
}

ForeignKernel::~ForeignKernel() {
  const DriverApi& api = bench_.device().api();
  const ContextScope scope(api, bench_.context());
  if (memory_ != 0) api.cuMemFree(memory_);
}

llvm::Error ForeignKernel::run(cuda::CUstream stream) const {
  cuda::CUdeviceptr memory = memory_;
  void* arguments[] = {&memory};
  return kernel_->launch({blocks_, 1}, {kForeignThreads, 1}, stream, arguments);
}

LaunchOn ForeignKernel::alone() const {
  return [this](int /*set*/, cuda::CUstream stream) { return run(stream); };
}

LaunchOn ForeignKernel::ahead_of(LaunchOn launch) const {
  return [this, launch = std::move(launch)](int set, cuda::CUstream stream) -> llvm::Error {
    if (auto error = run(stream)) return error;
    return launch(set, stream);
  };
}

llvm::Expected<Behind> time_behind(Workbench& bench, const LaunchOn& own, const LaunchOn& peer, int rounds) {
  auto foreign = ForeignKernel::create(bench);
  if (!foreign) return foreign.takeError();
  std::vector<std::unique_ptr<TimedGraph>> graphs;
  std::vector<TimedGraph*> pointers;
  for (const LaunchOn& launch :
       {(*foreign)->alone(), (*foreign)->ahead_of(own), (*foreign)->ahead_of(peer)}) {
    auto timing = time_alone(bench, launch, {.samples = 1});
    if (!timing) return timing.takeError();
    graphs.push_back(std::move(timing->graph));
    pointers.push_back(graphs.back().get());
  }
  auto finals = time_in_turn(pointers, rounds);
  if (!finals) return finals.takeError();
  const auto& samples = finals->samples;
  std::vector<double> ours, theirs, ratios;
  for (size_t r = 0; r < samples[0].size(); ++r) {
    ours.push_back(samples[1][r] - samples[0][r]);
    theirs.push_back(samples[2][r] - samples[0][r]);
    ratios.push_back(theirs.back() / ours.back());
  }
  return Behind{summarize(ours).median, summarize(theirs).median, summarize(ratios).median};
}

}  // namespace trigen
