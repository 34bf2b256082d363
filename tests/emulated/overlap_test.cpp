// Plans one behind the other in a stream, each of which reads what those before it wrote and overwrites what
// they read: their launches may start early (Launch::early), their results may not change. With copies,
// events, a second stream and another library's kernel in between, and captured into a graph. On the emulated sm_90a, which reports an
// access that does not wait, and (with TRIGEN_TEST_GPU=1) on this machine's GPU.
#include <gmock/gmock.h>

#include <random>

#include "../unit/runtime_testing.h"
#include "generator/candidate.h"
#include "llvm/ADT/STLExtras.h"
#include "runtime/compile.h"
#include "runtime/plan.h"
#include "test_driver.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using trigen::testing::kOnGpu;
using trigen::testing::load_test_driver;

const int kB = kOnGpu ? 32 : 3, kT = kOnGpu ? 512 : 136, kD = kOnGpu ? 1024 : 72, kTurns = kOnGpu ? 8 : 1;

const Driver* find_driver() {
  static const Driver* const driver = load_test_driver("sm_90a");
  return driver;
}

#define ASSERT_CUDA(call) ASSERT_EQ((call), cuda::CUDA_SUCCESS)

// The work between two plans of a stream.
enum class Between { kWait, kNothing, kCopy, kOtherStream, kForeign };
constexpr Between kAllBetween[] = {Between::kNothing, Between::kCopy, Between::kOtherStream,
                                   Between::kForeign};

// An ordinary kernel that knows nothing of launches that overlap: to[i] = from[i], by one block of 128.
constexpr char kForeign[] = R"(.version 7.0
.target sm_70
.address_size 64
.visible .entry foreign(.param .u64 to, .param .u64 from, .param .u32 words)
{
  .reg .pred %p<2>;
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  ld.param.u64 %rd1, [to];
  ld.param.u64 %rd2, [from];
  ld.param.u32 %r1, [words];
  mov.u32 %r2, %tid.x;
next:
  setp.ge.u32 %p1, %r2, %r1;
  @%p1 bra done;
  mul.wide.u32 %rd3, %r2, 4;
  add.s64 %rd4, %rd2, %rd3;
  ld.global.u32 %r3, [%rd4];
  add.s64 %rd5, %rd1, %rd3;
  st.global.u32 [%rd5], %r3;
  add.u32 %r2, %r2, 128;
  bra next;
done:
  ret;
}
)";

// Properties that the plans of forward and grad_input must have, so that a case is what its name says.
struct Kind {
  const char* name;
  const char* text;  // of the problems
  Access weights = Access::kDirect, activations = Access::kDirect;
  int launches[2];  // of forward and grad_input
  bool early_pack = false;
};
void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

// y = W x; x = W^T y; W2 = the gradient of W from both; z = W2 x: the order of a training step.
class Step {
 public:
  explicit Step(const Kind& kind) : kind_(kind) {}
  const DriverApi& api() const { return find_driver()->api(); }
  cuda::CUstream stream() const { return stream_; }

  void prepare(Store& store) {
    device_ = llvm::cantFail(Device::open(*find_driver(), 0));
    context_ = llvm::cantFail(device_->context());
    scope_ = std::make_unique<ContextScope>(api(), context_);
    ASSERT_CUDA(api().cuStreamCreate(&stream_, cuda::CU_STREAM_NON_BLOCKING));
    ASSERT_CUDA(api().cuStreamCreate(&other_, cuda::CU_STREAM_NON_BLOCKING));
    ASSERT_CUDA(api().cuEventCreate(&event_, 0));
    ASSERT_CUDA(api().cuEventCreate(&back_, 0));
    ASSERT_CUDA(api().cuModuleLoadData(&module_, kForeign));
    ASSERT_CUDA(api().cuModuleGetFunction(&foreign_, module_, "foreign"));
    for (const char* op : {"forward", "grad_input", "grad_weight"}) {
      auto problem = parse_problem(std::string(op) + kind_.text + ",B=" + std::to_string(kB) +
                                   ",T=" + std::to_string(kT) + ",D=" + std::to_string(kD));
      ASSERT_TRUE(static_cast<bool>(problem)) << take_error(problem.takeError()).message;
      std::vector<Candidate> candidates;
      for (const char* name : {"wgmma_sm90", "wgmma_taps_sm90", "wgmma_tf32_sm90"}) {
        auto listed = list_candidates(*problem, device_->target(), llvm::cantFail(find_family(name)));
        if (listed)
          candidates.insert(candidates.end(), listed->begin(), listed->end());
        else
          llvm::consumeError(listed.takeError());
      }
      // The model's first choice among those that pack what this case packs.
      llvm::erase_if(candidates, [&](const Candidate& c) {
        return (problem->op != Op::kGradWeight && c.config.weights != kind_.weights) ||
               c.config.activations != kind_.activations;
      });
      ASSERT_FALSE(candidates.empty()) << to_string(*problem);
      const LaunchPlan launches =
          candidates.front().family->launch_plan(*problem, device_->target(), candidates.front().config);
      if (problem->op != Op::kGradWeight) {
        ASSERT_EQ(launches.launches.size(), static_cast<size_t>(kind_.launches[plans_.size()]))
            << describe(candidates.front());
      }
      if (kind_.early_pack && problem->op == Op::kGradInput) {
        EXPECT_EQ(launches.launches[0].entry, kPackEntry);
        EXPECT_TRUE(launches.launches[0].early);
      }
      BuildOptions options;
      options.code = code_for(*device_);
      auto built = build(candidates.front(), store, options);
      ASSERT_TRUE(static_cast<bool>(built)) << take_error(built.takeError()).message;
      auto plan = Plan::of(candidates.front(), built->binary, *device_);
      ASSERT_TRUE(static_cast<bool>(plan)) << take_error(plan.takeError()).message;
      plans_.push_back(*plan);
    }
    problem_ = plans_[0]->problem();
    const size_t weights = static_cast<size_t>(kT) * kT * static_cast<size_t>(problem_.K);
    const size_t element = static_cast<size_t>(element_size(problem_.dtype)),
                 weight = static_cast<size_t>(element_size(problem_.wdtype));
    sizes_ = {element * kB * kT * kD, element * kB * kT * kD, element * kB * kT * kD, weights * weight,
              weights * weight};
    int64_t workspace = 256;
    for (const auto& plan : plans_) workspace = std::max(workspace, plan->workspace_bytes());
    workspace_bytes_ = static_cast<size_t>(workspace);
    sizes_.push_back(workspace_bytes_);
    ASSERT_CUDA(api().cuMemAlloc(&scratch_, *std::max_element(sizes_.begin(), sizes_.end())));
    std::mt19937 random(7);
    for (const size_t size : sizes_) {
      const size_t which = memory_.size();
      ASSERT_CUDA(api().cuMemAlloc(&memory_.emplace_back(), size));
      ASSERT_CUDA(api().cuMemAlloc(&first_.emplace_back(), size));
      // Small integers for x, eighths for W: 0x3f80 is 1 in bf16, 0x3e00 an eighth.
      std::vector<uint16_t> values(size / 2, 0);
      const bool is_w = which == kW;
      for (size_t i = 0; i < values.size(); ++i) {
        const bool wide = (is_w ? weight : element) == 4;
        if ((which != kX && !is_w) || (wide && i % 2 == 0)) continue;  // the low half of an f32
        const unsigned pick = random() % 3;
        values[i] =
            static_cast<uint16_t>(pick == 0 ? 0 : (is_w ? 0x3e00 : 0x3f80) | (pick == 1 ? 0x8000 : 0));
      }
      ASSERT_CUDA(api().cuMemcpyHtoD(first_.back(), values.data(), size));
    }
  }
  ~Step() {
    if (device_ == nullptr) return;
    api().cuStreamSynchronize(stream_);
    for (const auto& list : {memory_, first_})
      for (const cuda::CUdeviceptr pointer : list) api().cuMemFree(pointer);
    api().cuMemFree(scratch_);
    api().cuModuleUnload(module_);
    api().cuEventDestroy(event_);
    api().cuEventDestroy(back_);
    api().cuStreamDestroy(stream_);
    api().cuStreamDestroy(other_);
  }

  // Copies everything's first values and runs the step, without waiting for the end.
  void enqueue(Between between) {
    for (size_t i = 0; i < memory_.size(); ++i)
      ASSERT_CUDA(api().cuMemcpyDtoDAsync(memory_[i], first_[i], sizes_[i], stream_));
    run(0, kX, kW, kY, between);
    run(1, kX, kW, kY, between);
    run(2, kX, kW2, kY, between);
    run(0, kX, kW2, kZ, between);
  }
  std::vector<std::vector<std::byte>> results() {
    EXPECT_EQ(api().cuStreamSynchronize(stream_), cuda::CUDA_SUCCESS);
    std::vector<std::vector<std::byte>> out;
    for (size_t i = 0; i < kWorkspace; ++i) {
      out.emplace_back(sizes_[i]);
      EXPECT_EQ(api().cuMemcpyDtoH(out[i].data(), memory_[i], sizes_[i]), cuda::CUDA_SUCCESS);
    }
    return out;
  }

 private:
  enum { kX, kY, kZ, kW, kW2, kWorkspace };

  void run(size_t plan, int x, int w, int y, Between between) {
    trigen_args args = TRIGEN_ARGS_INIT;
    const auto at = [&](int i) { return std::bit_cast<void*>(memory_[static_cast<size_t>(i)]); };
    args.x.data = at(x);
    args.y.data = at(y);
    args.w = at(w);
    args.workspace = at(kWorkspace);
    args.workspace_size = workspace_bytes_;
    llvm::Error error = plans_[plan]->run(args, stream_);
    ASSERT_FALSE(static_cast<bool>(error)) << take_error(std::move(error)).message;
    const cuda::CUdeviceptr made = memory_[static_cast<size_t>(plan == 0 ? y : plan == 1 ? x : w)];
    const size_t bytes = plan == 2 ? sizes_[kW] : sizes_[kX];
    switch (between) {
      case Between::kWait:
        ASSERT_CUDA(api().cuStreamSynchronize(stream_));
        break;
      case Between::kNothing:
        break;
      case Between::kCopy:  // out of the result and back into it
        ASSERT_CUDA(api().cuMemcpyDtoDAsync(scratch_, made, bytes, stream_));
        ASSERT_CUDA(api().cuMemsetD8Async(made, 0xff, bytes, stream_));
        ASSERT_CUDA(api().cuMemcpyDtoDAsync(made, scratch_, bytes, stream_));
        break;
      case Between::kOtherStream:
        ASSERT_CUDA(api().cuEventRecord(event_, stream_));
        ASSERT_CUDA(api().cuStreamWaitEvent(other_, event_, 0));
        ASSERT_CUDA(api().cuMemcpyDtoDAsync(scratch_, made, bytes, other_));
        ASSERT_CUDA(api().cuMemsetD8Async(made, 0xff, bytes, other_));
        ASSERT_CUDA(api().cuMemcpyDtoDAsync(made, scratch_, bytes, other_));
        ASSERT_CUDA(api().cuEventRecord(back_, other_));
        ASSERT_CUDA(api().cuStreamWaitEvent(stream_, back_, 0));
        break;
      case Between::kForeign:
        copy(scratch_, made, bytes);
        ASSERT_CUDA(api().cuMemsetD8Async(made, 0xff, bytes, stream_));
        copy(made, scratch_, bytes);
        break;
    }
  }
  void copy(cuda::CUdeviceptr to, cuda::CUdeviceptr from, size_t bytes) {
    auto words = static_cast<uint32_t>(bytes / 4);
    void* arguments[] = {&to, &from, &words};
    ASSERT_CUDA(api().cuLaunchKernel(foreign_, 1, 1, 1, 128, 1, 1, 0, stream_, arguments, nullptr));
  }

  Kind kind_;
  Problem problem_;
  const Device* device_ = nullptr;
  cuda::CUcontext context_ = nullptr;
  std::unique_ptr<ContextScope> scope_;
  cuda::CUstream stream_ = nullptr, other_ = nullptr;
  cuda::CUevent event_ = nullptr, back_ = nullptr;
  cuda::CUmodule module_ = nullptr;
  cuda::CUfunction foreign_ = nullptr;
  std::vector<std::shared_ptr<const Plan>> plans_;
  std::vector<size_t> sizes_;
  size_t workspace_bytes_ = 0;
  cuda::CUdeviceptr scratch_ = 0;
  std::vector<cuda::CUdeviceptr> memory_, first_;
};

class Overlap : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (find_driver() == nullptr)
      GTEST_SKIP() << "[SKIP] " << probe_driver(kOnGpu ? "" : "emulated:sm_90a").text;
    const Device& device = *llvm::cantFail(Device::open(*find_driver(), 0));
    if (device.target().name != "sm_90a" && device.target().name != "sm_90")
      GTEST_SKIP() << "[SKIP] " << device.info().name << " is no Hopper";
    if (trigen::testing::real_nvrtc("sm_90a") == nullptr)
      GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_90a; set TRIGEN_NVRTC";
  }
};

TEST_P(Overlap, ChangesNoResult) {
  TAKES_ONE_OF(2);
  auto store = Store::open({});
  Step step(GetParam());
  ASSERT_NO_FATAL_FAILURE(step.prepare(*store));
  ASSERT_NO_FATAL_FAILURE(step.enqueue(Between::kWait));
  const auto expected = step.results();
  for (const Between between : kAllBetween) {
    for (int turn = 0; turn < kTurns; ++turn) ASSERT_NO_FATAL_FAILURE(step.enqueue(between));
    EXPECT_TRUE(step.results() == expected) << static_cast<int>(between);
  }
  for (const Between between : kAllBetween) {
    cuda::CUgraph graph = nullptr;
    cuda::CUgraphExec executable = nullptr;
    ASSERT_CUDA(step.api().cuStreamBeginCapture(step.stream(), cuda::CU_STREAM_CAPTURE_MODE_GLOBAL));
    for (int turn = 0; turn < kTurns; ++turn) ASSERT_NO_FATAL_FAILURE(step.enqueue(between));
    ASSERT_CUDA(step.api().cuStreamEndCapture(step.stream(), &graph));
    ASSERT_CUDA(step.api().cuGraphInstantiateWithFlags(&executable, graph, 0));
    for (int replay = 0; replay < 2; ++replay)
      ASSERT_CUDA(step.api().cuGraphLaunch(executable, step.stream()));
    EXPECT_TRUE(step.results() == expected) << "captured, " << static_cast<int>(between);
    step.api().cuGraphExecDestroy(executable);
    step.api().cuGraphDestroy(graph);
  }
}

// align=2: TMA takes neither x nor y, so that a launch packs the input, and one copies the output back.
INSTANTIATE_TEST_SUITE_P(
    Hopper, Overlap,
    ::testing::Values(
        Kind{.name = "AsTheyLie", .text = ",dtype=bf16", .launches = {1, 1}},
        Kind{.name = "F32WeightsAsTheyLie", .text = ",dtype=bf16,wdtype=f32", .launches = {1, 1}},
        Kind{.name = "Packed",
             .text = ",dtype=bf16,wdtype=f32",
             .weights = Access::kPacked,
             .launches = {2, 2}},
        Kind{.name = "PackedActivations",
             .text = ",dtype=bf16,align=2",
             .activations = Access::kPacked,
             .launches = {3, 3}},
        Kind{.name = "Tf32", .text = ",dtype=f32,math=tf32", .launches = {1, 2}, .early_pack = true},
        Kind{.name = "Taps", .text = ",dtype=bf16,K=3,pad=1", .launches = {2, 2}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace trigen
