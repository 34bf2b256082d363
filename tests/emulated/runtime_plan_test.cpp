// Plans through libtrigen.so: numbers, refusals, capture, the cache and the policies. On two emulated devices
// of sm_70, and (with TRIGEN_TEST_GPU) on this machine's GPUs.
#include <gmock/gmock.h>
#include <trigen/trigen.h>

#include <atomic>
#include <cmath>
#include <thread>

#include "../unit/runtime_testing.h"
#include "cache/store.h"
#include "runtime/compile.h"
#include "runtime/device.h"
#include "runtime/plan.h"
#include "test_driver.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StrEq;
using trigen::testing::Folder;
using trigen::testing::Variable;

constexpr const char* kForward = "forward,dtype=f32,B=2,T=20,D=12";

using trigen::testing::kOnGpu;
using trigen::testing::load_test_driver;

// The driver that libtrigen.so uses too: one library in the process. Null on a machine without a GPU.
const Driver* find_driver() {
  static const Driver* const driver = [] {
    if (!kOnGpu) ::setenv("TRIGEN_EMULATED_DEVICES", "2", 1);
    return load_test_driver("sm_70");
  }();
  return driver;
}
const Driver& driver() { return *find_driver(); }
const Target& own_target() { return llvm::cantFail(Device::open(driver(), 0))->target(); }
const DriverApi& api() { return driver().api(); }

#define ASSERT_CUDA(call) ASSERT_EQ((call), cuda::CUDA_SUCCESS)

class Memory {
 public:
  Memory(int ordinal, size_t bytes)
      : context_(llvm::cantFail(llvm::cantFail(Device::open(driver(), ordinal))->context())), bytes_(bytes) {
    const ContextScope scope(api(), context_);
    EXPECT_EQ(api().cuMemAlloc(&pointer_, bytes), cuda::CUDA_SUCCESS);
  }
  ~Memory() {
    const ContextScope scope(api(), context_);
    api().cuMemFree(pointer_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return reinterpret_cast<void*>(pointer_); }
  void put(const std::vector<float>& values) {
    const ContextScope scope(api(), context_);
    EXPECT_EQ(api().cuMemcpyHtoD(pointer_, values.data(), values.size() * 4), cuda::CUDA_SUCCESS);
  }
  std::vector<float> take() {
    const ContextScope scope(api(), context_);
    std::vector<float> values(bytes_ / 4);
    EXPECT_EQ(api().cuCtxSynchronize(), cuda::CUDA_SUCCESS);
    EXPECT_EQ(api().cuMemcpyDtoH(values.data(), pointer_, bytes_), cuda::CUDA_SUCCESS);
    return values;
  }

 private:
  cuda::CUcontext context_;
  size_t bytes_;
  cuda::CUdeviceptr pointer_ = 0;
};

// forward,dtype=f32,B=2,T=20,D=12 with small integers, whose sums are exact.
struct Forward {
  static constexpr int B = 2, T = 20, D = 12;
  std::vector<float> x, w, expected;
  Memory dx, dw, dy;
  explicit Forward(int ordinal = 0)
      : x(B * T * D),
        w(T * T, NAN),
        expected(B * T * D),
        dx(ordinal, x.size() * 4),
        dw(ordinal, w.size() * 4),
        dy(ordinal, x.size() * 4) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    for (int t = 0; t < T; ++t)
      for (int s = 0; s <= t; ++s) w[t * T + s] = static_cast<float>((t * 3 + s * 5) % 9 - 4);
    for (int b = 0; b < B; ++b)
      for (int t = 0; t < T; ++t)
        for (int s = 0; s <= t; ++s)
          for (int d = 0; d < D; ++d) expected[(b * T + t) * D + d] += w[t * T + s] * x[(b * T + s) * D + d];
    dx.put(x);
    dw.put(w);
    dy.put(std::vector<float>(x.size(), NAN));
  }
  trigen_args args() const {
    trigen_args args = TRIGEN_ARGS_INIT;
    args.x.data = dx.get();
    args.w = dw.get();
    args.y.data = dy.get();
    return args;
  }
};

class PlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_driver() == nullptr)
      GTEST_SKIP() << "[SKIP] " << probe_driver(kOnGpu ? "" : "emulated:sm_70").text;
    if (trigen::testing::real_nvrtc(own_target().name.data()) == nullptr)
      GTEST_SKIP() << "[SKIP] no NVRTC that makes " << own_target().name.str() << "; set TRIGEN_NVRTC";
  }
  void TearDown() override {
    for (trigen_plan* plan : plans_) trigen_plan_destroy(plan);
    for (trigen_runtime* runtime : runtimes_) trigen_runtime_destroy(runtime);
  }

  trigen_runtime_options options() {
    trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
    cache_ = folder_ / "cache.db";
    layer_ = cache_.c_str();
    options.layers = &layer_;
    options.layer_count = 1;
    options.driver = driver().path().c_str();
    return options;
  }
  trigen_runtime* runtime(const trigen_runtime_options& given) {
    trigen_runtime* made = nullptr;
    EXPECT_EQ(trigen_runtime_create(&given, &made), TRIGEN_OK) << trigen_last_error();
    runtimes_.push_back(made);
    return made;
  }
  trigen_status try_plan(trigen_runtime* runtime, const char* text, int device, trigen_plan** plan) {
    trigen_problem problem;
    problem.struct_size = sizeof problem;
    EXPECT_EQ(trigen_problem_parse(text, &problem), TRIGEN_OK) << trigen_last_error();
    const trigen_status status = trigen_plan_create(runtime, &problem, device, plan);
    if (*plan != nullptr) plans_.push_back(*plan);
    return status;
  }
  trigen_plan* plan(trigen_runtime* runtime, const char* text, int device = 0) {
    trigen_plan* made = nullptr;
    EXPECT_EQ(try_plan(runtime, text, device, &made), TRIGEN_OK) << trigen_last_error();
    return made;
  }
  trigen_plan_info info(const trigen_plan* plan) {
    trigen_plan_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(trigen_plan_describe(plan, &info), TRIGEN_OK);
    return info;
  }
  std::string refusal(const trigen_plan* plan, const trigen_args& args, void* stream = nullptr,
                      trigen_status status = TRIGEN_BAD_REQUEST) {
    EXPECT_EQ(trigen_plan_run(plan, &args, stream), status);
    return trigen_last_error();
  }
  std::unique_ptr<Store> store() {
    Store::Options options;
    options.layers = {folder_ / "cache.db"};
    return Store::open(options);
  }

  Folder folder_;
  std::string cache_;
  const char* layer_ = nullptr;
  std::vector<trigen_plan*> plans_;
  std::vector<trigen_runtime*> runtimes_;
};

TEST_F(PlanTest, RunsAndAgreesToTheBit) {
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

TEST_F(PlanTest, TheCallersContextIsLeftAlone) {
  cuda::CUcontext before = nullptr, after = nullptr;
  ASSERT_CUDA(api().cuCtxGetCurrent(&before));
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  const trigen_args args = forward.args();
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  ASSERT_CUDA(api().cuCtxGetCurrent(&after));
  EXPECT_EQ(before, after);
}

TEST_F(PlanTest, ASecondPlanIsALookUp) {
  trigen_runtime* shared = runtime(options());
  trigen_plan* first = plan(shared, kForward);
  trigen_plan* second = plan(shared, kForward);
  EXPECT_THAT(info(first).candidate, StrEq(info(second).candidate));
  EXPECT_THAT(info(second).binary_from, StrEq("compiled"))
      << "the same plan, not another look into the cache";
  trigen_plan* other = plan(runtime(options()), kForward);
  EXPECT_THAT(info(other).binary_from, StrEq("cache"));
  EXPECT_THAT(info(other).match, StrEq("near")) << "the model's choice was stored as a prediction";
  EXPECT_THAT(info(other).provenance, StrEq("predicted"));
}

// Plans that differ in the batch size share one module: 10 000 of them kept 2 GB of cubin and PTX.
TEST_F(PlanTest, ALoadedPlanKeepsNoBlob) {
  const auto problem = llvm::cantFail(parse_problem(kForward));
  const auto own = store();
  const auto made = llvm::cantFail(Plan::create(problem, *llvm::cantFail(Device::open(driver(), 0)), *own));
  const Binary& binary = made->resolution().binary;
  for (const std::string* blob : {&binary.cubin, &binary.ptx, &binary.source, &binary.log})
    EXPECT_LT(blob->capacity(), 64u);
  EXPECT_FALSE(binary.key.compiler.empty());
  EXPECT_FALSE(own->find_binary(binary.key)->ptx.empty()) << "the cache has them";
}

TEST_F(PlanTest, TwoDevices) {
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

// Requests that were answered before are found by their fields, not by their text: each field must tell them
// apart.
TEST_F(PlanTest, ARepeatedRequestIsFoundByEveryField) {
  trigen_runtime* shared = runtime(options());
  const char* texts[] = {kForward,
                         "forward,dtype=f32,B=3,T=20,D=12",
                         "forward,dtype=f32,B=2,T=20,D=12,align=4",
                         "forward,dtype=f32,B=2,T=20,D=12,diag=1",
                         "forward,dtype=f32,B=2,T=20,D=12,epilogue=bias",
                         "grad_input,dtype=f32,B=2,T=20,D=12",
                         "decode,dtype=f32,B=2,T=20,D=12",
                         "decode,dtype=f32,B=2,T=20,D=12,rows=3"};
  for (int round = 0; round < 3; ++round) {
    for (const char* text : texts) {
      trigen_problem problem;
      problem.struct_size = sizeof problem;
      ASSERT_EQ(trigen_problem_parse(text, &problem), TRIGEN_OK);
      char canonical[256];
      ASSERT_EQ(trigen_problem_format(&problem, canonical, sizeof canonical, nullptr), TRIGEN_OK);
      EXPECT_THAT(info(plan(shared, text)).problem, StrEq(canonical)) << "round " << round;
    }
  }
  // a bad field is refused, however often a good one was answered
  trigen_problem problem;
  problem.struct_size = sizeof problem;
  ASSERT_EQ(trigen_problem_parse(kForward, &problem), TRIGEN_OK);
  for (int round = 0; round < 2; ++round) {
    trigen_problem bad = problem;
    bad.op = 99;
    trigen_plan* none = nullptr;
    EXPECT_EQ(trigen_plan_create(shared, &bad, 0, &none), TRIGEN_BAD_REQUEST);
    bad = problem;
    bad.struct_size = 8;
    EXPECT_EQ(trigen_plan_create(shared, &bad, 0, &none), TRIGEN_BAD_REQUEST);
    EXPECT_EQ(none, nullptr);
  }
}

TEST_F(PlanTest, ARepeatedRequestFollowsTheCurrentContext) {
  if (driver().device_count() < 2) GTEST_SKIP() << "[SKIP] one device only";
  trigen_runtime* shared = runtime(options());
  for (int round = 0; round < 2; ++round) {
    for (int ordinal = 0; ordinal < 2; ++ordinal) {
      const ContextScope scope(api(),
                               llvm::cantFail(llvm::cantFail(Device::open(driver(), ordinal))->context()));
      EXPECT_EQ(info(plan(shared, kForward, TRIGEN_CURRENT_DEVICE)).device_ordinal, ordinal);
      EXPECT_EQ(info(plan(shared, kForward, 1 - ordinal)).device_ordinal, 1 - ordinal);
    }
  }
}

TEST_F(PlanTest, ManyThreadsAskAtOnce) {
  trigen_runtime* shared = runtime(options());
  const char* texts[] = {kForward, "forward,dtype=f32,B=5,T=20,D=12", "forward,dtype=f32,B=6,T=20,D=12"};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 300; ++i) {
        const int which = (i + thread) % 3;
        trigen_problem problem;
        problem.struct_size = sizeof problem;
        trigen_plan* made = nullptr;
        if (trigen_problem_parse(texts[which], &problem) != TRIGEN_OK ||
            trigen_plan_create(shared, &problem, 0, &made) != TRIGEN_OK) {
          ++wrong;
          continue;
        }
        trigen_plan_info described{};
        described.struct_size = sizeof described;
        trigen_plan_describe(made, &described);
        const std::string batch = "B=" + std::to_string(which == 0 ? 2 : 4 + which) + ",";
        if (std::string(described.problem).find(batch) == std::string::npos) ++wrong;
        trigen_plan_destroy(made);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(PlanTest, HostPointersAreRefusedByName) {
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

TEST_F(PlanTest, ArgumentsAreCheckedBeforeTheLaunch) {
  Forward forward;
  trigen_plan* made = plan(runtime(options()), kForward);
  trigen_args args = forward.args();
  args.y = args.x;
  EXPECT_THAT(refusal(made, args), HasSubstr("y overlaps x"));
  EXPECT_EQ(forward.dx.take(), forward.x) << "nothing was written";
  args = TRIGEN_ARGS_INIT;
  EXPECT_THAT(refusal(made, args), HasSubstr("x is null"));
}

TEST_F(PlanTest, AWorkspaceThatIsTooSmall) {
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

TEST_F(PlanTest, StreamCaptureAndReplay) {
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

TEST_F(PlanTest, ManyThreadsRunOnePlan) {
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

TEST_F(PlanTest, WithoutJitTheCacheDecides) {
  const Variable no_jit("TRIGEN_NO_JIT", "1");
  trigen_plan* made = nullptr;
  EXPECT_EQ(try_plan(runtime(options()), kForward, 0, &made), TRIGEN_CACHE_ERROR);
  EXPECT_THAT(trigen_last_error(),
              AllOf(HasSubstr("forward,dtype=f32,B=2,H=1,T=20,D=12"), HasSubstr("TRIGEN_NO_JIT"),
                    HasSubstr("trigen tune --arch " + own_target().name.str())));
  {
    const Variable allowed("TRIGEN_NO_JIT", nullptr);
    plan(runtime(options()), kForward);
  }
  Forward forward;
  const trigen_args args = forward.args();
  made = plan(runtime(options()), kForward);
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(forward.dy.take(), forward.expected);
  EXPECT_THAT(info(made).binary_from, StrEq("cache"));
}

TEST_F(PlanTest, ThePolicyForAMiss) {
  trigen_runtime_options given = options();
  given.miss = TRIGEN_MISS_ERROR;
  trigen_plan* made = nullptr;
  EXPECT_EQ(try_plan(runtime(given), kForward, 0, &made), TRIGEN_CACHE_ERROR);
  EXPECT_THAT(trigen_last_error(), AllOf(HasSubstr("no record for forward"),
                                         HasSubstr("trigen tune --arch " + own_target().name.str())));
  given.miss = TRIGEN_MISS_GENERIC;
  made = plan(runtime(given), kForward);
  EXPECT_THAT(info(made).candidate, HasSubstr(",generic"));
  Forward forward;
  const trigen_args args = forward.args();
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(forward.dy.take(), forward.expected);
  // Another shape of the same kind needs no compile.
  made = plan(runtime(given), "forward,dtype=f32,B=3,T=40,D=24");
  EXPECT_THAT(info(made).binary_from, StrEq("cache"));
}

TEST_F(PlanTest, AMeasuredRecordIsTaken) {
  const Problem problem = llvm::cantFail(parse_problem(kForward));
  const Device& device = *llvm::cantFail(Device::open(driver(), 0));
  const auto candidates = llvm::cantFail(list_candidates(problem, device.target()));
  ASSERT_GT(candidates.size(), 1u);
  const Candidate& last = candidates.back();
  auto cache = store();
  Record record;
  record.problem = to_string(problem);
  record.arch = device.target().name.str();
  record.device = device.info().name;
  record.sms = device.info().sms;
  record.driver = device.info().driver;
  record.candidate = describe(last);
  record.binary = llvm::cantFail(build(last, *cache)).binary.key;
  record.provenance = Provenance::kMeasured;
  record.median_us = 12.5;
  ASSERT_EQ(trigen::testing::error_of(cache->put_record(record)), "");
  const trigen_plan_info described = info(plan(runtime(options()), kForward));
  EXPECT_THAT(described.candidate, StrEq(describe(last)));
  EXPECT_THAT(described.provenance, StrEq("measured"));
  EXPECT_THAT(described.match, StrEq("exact"));
  EXPECT_THAT(described.layer, StrEq(cache_));
  EXPECT_EQ(described.expected_us, 12.5);
}

TEST_F(PlanTest, TargetsThatTheDeviceCannotRun) {
  const Target* newer = nullptr;
  for (const Target& target : targets())
    if (target.compute_capability > own_target().compute_capability) newer = &target;
  if (newer == nullptr) GTEST_SKIP() << "[SKIP] no newer target than this device's";
  trigen_runtime_options given = options();
  given.target = newer->name.data();
  trigen_plan* made = nullptr;
  EXPECT_EQ(try_plan(runtime(given), kForward, 0, &made), TRIGEN_UNSUPPORTED);
  EXPECT_THAT(trigen_last_error(), AllOf(HasSubstr("kernels of " + newer->name.str() + " do not run on "),
                                         HasSubstr(own_target().name.str())));
}

// What TRIGEN_TARGET=sm_70 does on a newer device: kernels of an older target, made from its PTX by the
// driver.
TEST_F(PlanTest, AnOlderTargetRunsFromItsPtx) {
  if (trigen::testing::real_nvrtc("sm_70") == nullptr)
    GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_70; set TRIGEN_NVRTC";
  trigen_runtime_options given = options();
  given.target = "sm_70";
  plan(runtime(given), kForward);  // fills the cache
  const Variable no_jit("TRIGEN_NO_JIT", "1");
  Forward forward;
  trigen_plan* made = plan(runtime(given), kForward);
  ASSERT_NE(made, nullptr);
  const trigen_args args = forward.args();
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(forward.dy.take(), forward.expected);
  EXPECT_THAT(info(made).target, StrEq("sm_70"));
  EXPECT_THAT(info(made).binary_from, StrEq("cache"));
  EXPECT_EQ(info(made).loaded_ptx, own_target().compute_capability < 80 && kOnGpu ? 0 : 1);
}

TEST_F(PlanTest, LaunchBlockingWaits) {
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

TEST_F(PlanTest, OneEmulatedTargetPerProcess) {
  if (kOnGpu) GTEST_SKIP() << "[SKIP] on a GPU";
  const std::string text = trigen::testing::error_of(Driver::load_emulated("sm_80"));
  EXPECT_THAT(text, HasSubstr("holds one emulated target only"));
}

}  // namespace
}  // namespace trigen
