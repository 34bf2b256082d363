// Running plans through libtrigen.so: numbers, refusals, streams, capture, threads.
#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "plan_testing.h"
#include "runtime/compile.h"
#include "runtime/plan.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StrEq;
using namespace trigen::testing;

class RunTest : public PlanTest {};

TEST_F(RunTest, RunsAndAgreesToTheBit) {
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  ASSERT_NE(made, nullptr);
  const trigen_args args = forward.args();
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(forward.dy.take(), forward.expected);
  const trigen_plan_info described = info(made);
  EXPECT_THAT(described.problem, StrEq("forward,dtype=f32,B=2,H=1,T=20,D=12,K=1,pad=0"));
  EXPECT_EQ(described.target, own_target().name);
  EXPECT_THAT(described.provenance, StrEq("predicted"));
  EXPECT_THAT(described.match, StrEq("none"));
  EXPECT_THAT(described.binary_from, StrEq("compiled"));
  EXPECT_EQ(described.loaded_ptx, kOnGpu ? 0 : 1) << "an emulated device reads PTX";
  EXPECT_GT(described.expected_us, 0);
}

TEST_F(RunTest, TheCallersContextIsLeftAlone) {
  cuda::CUcontext before = nullptr, after = nullptr;
  ASSERT_CUDA(api().cuCtxGetCurrent(&before));
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  const trigen_args args = forward.args();
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  ASSERT_CUDA(api().cuCtxGetCurrent(&after));
  EXPECT_EQ(before, after);
}

TEST_F(RunTest, TwoDevices) {
  if (driver().device_count() < 2) GTEST_SKIP() << "[SKIP] one device only";
  trigen_runtime* shared = runtime(options());
  Forward zero(0), one(1);
  trigen_plan *on_zero = plan(shared, kForward, 0), *on_one = plan(shared, kForward, 1);
  const trigen_args args_zero = zero.args(), args_one = one.args();
  ASSERT_EQ(trigen_plan_run(on_one, &args_one, nullptr), TRIGEN_OK) << trigen_last_error();
  ASSERT_EQ(trigen_plan_run(on_zero, &args_zero, nullptr), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(one.dy.take(), one.expected);
  EXPECT_EQ(zero.dy.take(), zero.expected);
  EXPECT_EQ(info(on_one).device_ordinal, 1);

  trigen_args mixed = args_zero;
  mixed.x.data = one.dx.get();
  EXPECT_THAT(refusal(on_zero, mixed),
              AllOf(HasSubstr("x ("), HasSubstr("is memory of device 1, the plan is for device 0")));

  cuda::CUstream stream = nullptr;
  {
    const ContextScope scope(api(), llvm::cantFail(llvm::cantFail(Device::open(driver(), 1))->context()));
    ASSERT_CUDA(api().cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING));
  }
  EXPECT_THAT(refusal(on_zero, args_zero, stream),
              HasSubstr("the stream is of device 1, the plan is for device 0"));
  EXPECT_EQ(trigen_plan_run(on_one, &args_one, stream), TRIGEN_OK) << trigen_last_error();
  trigen_plan* none = nullptr;
  EXPECT_EQ(try_plan(shared, kForward, driver().device_count(), &none), TRIGEN_BAD_REQUEST);
  EXPECT_THAT(trigen_last_error(), HasSubstr("does not exist: this driver shows devices 0 to "));
}

TEST_F(RunTest, HostPointersAreRefusedByName) {
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  alignas(16) static float host[1024];
  trigen_args args = forward.args();
  args.w = host;
  EXPECT_THAT(refusal(made, args), AllOf(HasSubstr("w ("), HasSubstr("it is a host pointer")));
  void* pinned = nullptr;
  {
    const ContextScope scope(api(), llvm::cantFail(llvm::cantFail(Device::open(driver(), 0))->context()));
    ASSERT_CUDA(api().cuMemAllocHost(&pinned, 8192));
  }
  args.w = pinned;
  EXPECT_THAT(refusal(made, args), HasSubstr("is page-locked host memory"));
  api().cuMemFreeHost(pinned);
}

TEST_F(RunTest, AllocationsThatAreTooShortAreRefusedByName) {
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  const ContextScope scope(api(), llvm::cantFail(llvm::cantFail(Device::open(driver(), 0))->context()));
  cuda::CUdeviceptr small = 0;
  ASSERT_CUDA(api().cuMemAlloc(&small, 4096));
  trigen_args args = forward.args();
  args.w = reinterpret_cast<void*>(small + 4096 - 64);  // NOLINT(performance-no-int-to-ptr)
  EXPECT_THAT(refusal(made, args),
              AllOf(HasSubstr("w ("), HasSubstr("its allocation ends after 64; pass memory")));
  EXPECT_EQ(trigen_plan_run(made, &(args = forward.args()), nullptr), TRIGEN_OK) << trigen_last_error();
  ASSERT_CUDA(api().cuMemFree(small));
}

TEST_F(RunTest, ArgumentsAreCheckedBeforeTheLaunch) {
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  trigen_args args = forward.args();
  args.y = args.x;
  EXPECT_THAT(refusal(made, args), HasSubstr("y overlaps x"));
  EXPECT_EQ(forward.dx.take(), forward.x) << "nothing was written";
  args = TRIGEN_ARGS_INIT;
  EXPECT_THAT(refusal(made, args), HasSubstr("x is null"));
}

TEST_F(RunTest, AWorkspaceThatIsTooSmall) {
  // A candidate with split_k, put into the cache as a measured record.
  const Problem problem = llvm::cantFail(parse_problem("grad_weight,dtype=f32,B=64,T=32,D=32"));
  const Target& target = own_target();
  const auto candidates = llvm::cantFail(list_candidates(problem, target));
  const Candidate* split = nullptr;
  for (const Candidate& candidate : candidates)
    if (candidate.config.split_k > 1) split = &candidate;
  if (split == nullptr) GTEST_SKIP() << "[SKIP] no candidate splits this sum";
  auto cache = store();
  const BuiltBinary built = llvm::cantFail(build(*split, *cache));
  Record record;
  record.problem = to_string(problem);
  record.arch = target.name.str();
  record.candidate = describe(*split);
  record.provenance = Provenance::kMeasured;  // a prediction of no version would be chosen anew
  record.binary = built.binary.key;
  ASSERT_EQ(trigen::testing::error_of(cache->put_record(record)), "");

  trigen_plan* made = plan(runtime(options()), "grad_weight,dtype=f32,B=64,T=32,D=32");
  EXPECT_THAT(info(made).candidate, StrEq(describe(*split)));
  const size_t needed = trigen_plan_workspace_size(made);
  ASSERT_GT(needed, 0u);
  Memory x(0, 64 * 32 * 32 * 4), dy(0, 64 * 32 * 32 * 4), dw(0, 32 * 32 * 4), space(0, needed);
  trigen_args args = TRIGEN_ARGS_INIT;
  args.x.data = x.get();
  args.y.data = dy.get();
  args.w = dw.get();
  EXPECT_THAT(refusal(made, args), HasSubstr("workspace is null, the plan needs " + std::to_string(needed)));
  args.workspace = space.get();
  args.workspace_size = needed - 1;
  EXPECT_THAT(refusal(made, args), HasSubstr("workspace has " + std::to_string(needed - 1) + " bytes"));
  x.put(std::vector<float>(64 * 32 * 32, 1));
  dy.put(std::vector<float>(64 * 32 * 32, 2));
  dw.put(std::vector<float>(32 * 32, -1));
  args.workspace_size = needed;
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  const std::vector<float> result = dw.take();
  for (int t = 0; t < 32; ++t)
    for (int s = 0; s < 32; ++s) ASSERT_EQ(result[t * 32 + s], s <= t ? 64 * 32 * 2 : -1) << t << "," << s;
}

TEST_F(RunTest, StreamCaptureAndReplay) {
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  const ContextScope scope(api(), llvm::cantFail(llvm::cantFail(Device::open(driver(), 0))->context()));
  cuda::CUstream stream = nullptr;
  ASSERT_CUDA(api().cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING));
  ASSERT_CUDA(api().cuStreamBeginCapture(stream, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL));
  const trigen_args args = forward.args();
  ASSERT_EQ(trigen_plan_run(made, &args, stream), TRIGEN_OK) << trigen_last_error();
  cuda::CUgraph graph = nullptr;
  ASSERT_CUDA(api().cuStreamEndCapture(stream, &graph));
  EXPECT_TRUE(std::isnan(forward.dy.take()[0])) << "captured, not run";
  cuda::CUgraphExec executable = nullptr;
  ASSERT_CUDA(api().cuGraphInstantiateWithFlags(&executable, graph, 0));
  for (int replay = 0; replay < 2; ++replay) {
    forward.dy.put(std::vector<float>(forward.x.size(), NAN));
    ASSERT_CUDA(api().cuGraphLaunch(executable, stream));
    EXPECT_EQ(forward.dy.take(), forward.expected);
  }
  api().cuGraphExecDestroy(executable);
  api().cuGraphDestroy(graph);
  api().cuStreamDestroy(stream);
}

TEST_F(RunTest, ManyThreadsRunOnePlan) {
  trigen_plan* made = plan(runtime(options()), kForward);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      Forward forward;
      const trigen_args args = forward.args();
      right += trigen_plan_run(made, &args, cuda::kStreamPerThread) == TRIGEN_OK &&
               forward.dy.take() == forward.expected;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 4);
}

TEST_F(RunTest, LaunchBlockingWaits) {
  const Variable blocking("CUDA_LAUNCH_BLOCKING", "1");
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  const trigen_args args = forward.args();
  cuda::CUstream stream = nullptr;
  const ContextScope scope(api(), llvm::cantFail(llvm::cantFail(Device::open(driver(), 0))->context()));
  ASSERT_CUDA(api().cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING));
  ASSERT_EQ(trigen_plan_run(made, &args, stream), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(api().cuStreamQuery(stream), cuda::CUDA_SUCCESS);
  api().cuStreamDestroy(stream);
}

}  // namespace
}  // namespace trigen
