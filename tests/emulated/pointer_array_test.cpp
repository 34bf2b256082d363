// Matrices anywhere in memory, by arrays of pointers: each in an allocation of its own, NaN around it and between its rows, as
// misaligned as the problem allows. The bits must be those of one tensor. On the emulated sm_90a, which reports an access outside
// an allocation, and (with TRIGEN_TEST_GPU=1) on this machine's GPU.
#include <gtest/gtest.h>

#include <bit>
#include <ostream>

#include "check/verify.h"
#include "generator/candidate.h"
#include "hopper_testing.h"
#include "runtime/arguments.h"
#include "runtime/compile.h"
#include "runtime/plan.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using cuda::CUdeviceptr;

struct Case {
  const char* candidate;
  const char* problem;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.candidate << " " << c.problem; }

// What each pointer names of a tensor, with its gaps, in memory of its own; and the array of pointers to it.
class Scattered {
 public:
  Scattered(const Device& device, const Workbench& bench, const Tensor& tensor)
      : device_(device), tensor_(tensor), count_(pointer_count(bench.problem())) {
    const Problem& p = bench.problem();
    distance_ = distance_of_pointers(p, tensor) * element_size(tensor.dtype);
    bytes_ = tensor.bytes() - (count_ - 1) * distance_;
    from_ = std::bit_cast<CUdeviceptr>(bench.data(0, tensor.role));
    const int64_t align = tensor.axes == Axes::kActivations ? p.align : p.walign;
    // The last one first, allocations of different sizes: no two are as far apart as the next two.
    for (int64_t i = count_ - 1; i >= 0; --i) {
      const int64_t front = kGuard * (1 + i % 3) + (align < 16 ? align : 0);
      owned_.push_back(allocate(front + bytes_ + kGuard));
      places_.push_back({i, owned_.back(), front});
    }
    std::vector<CUdeviceptr> pointers(static_cast<size_t>(count_));
    for (const Place& place : places_)
      pointers[static_cast<size_t>(place.index)] = place.begin + offset(place.front);
    array_ = allocate(8 * count_);
    owned_.push_back(array_);
    check(device_.api().cuMemcpyHtoD(array_, pointers.data(), 8 * pointers.size()));
  }
  ~Scattered() {
    for (const CUdeviceptr one : owned_) device_.api().cuMemFree(one);
  }
  Scattered(const Scattered&) = delete;
  Scattered& operator=(const Scattered&) = delete;

  bool is_written() const { return tensor_.written; }
  const char* name() const { return to_string(tensor_.role); }
  void give(trigen_args& args) const { set_pointers(args, tensor_, device_pointer(array_)); }
  // From the tensor, or back into it; around that NaN.
  void bring() const {
    for (const Place& place : places_) {
      check(device_.api().cuMemsetD8(place.begin, kPoison, offset(place.front + bytes_ + kGuard)));
      check(device_.api().cuMemcpyDtoD(place.begin + offset(place.front), tensor_at(place), offset(bytes_)));
    }
  }
  void take() const {
    for (const Place& place : places_) {
      check(device_.api().cuMemcpyDtoD(tensor_at(place), place.begin + offset(place.front), offset(bytes_)));
      std::vector<unsigned char> all(offset(place.front + bytes_ + kGuard));
      check(device_.api().cuMemcpyDtoH(all.data(), place.begin, all.size()));
      const auto front = all.begin() + place.front, back = front + bytes_;
      EXPECT_EQ(std::count(all.begin(), front, kPoison) + std::count(back, all.end(), kPoison),
                place.front + kGuard)
          << "something was written beside matrix " << place.index;
    }
  }

 private:
  static constexpr int64_t kGuard = 256;
  struct Place {
    int64_t index;
    CUdeviceptr begin;
    int64_t front;  // bytes of NaN
  };
  static cuda::size_type offset(int64_t bytes) { return static_cast<cuda::size_type>(bytes); }
  static void check(cuda::CUresult result) { ASSERT_EQ(result, cuda::CUDA_SUCCESS); }
  CUdeviceptr allocate(int64_t bytes) const {
    CUdeviceptr made = 0;
    check(device_.api().cuMemAlloc(&made, offset(bytes)));
    return made;
  }
  CUdeviceptr tensor_at(const Place& place) const { return from_ + offset(place.index * distance_); }

  const Device& device_;
  const Tensor& tensor_;
  int64_t count_ = 0, distance_ = 0, bytes_ = 0;
  CUdeviceptr from_ = 0, array_ = 0;
  std::vector<Place> places_;
  std::vector<CUdeviceptr> owned_;
};

class PointerArrays : public trigen::testing::HopperTest<Case> {
 protected:
  // A plan of the candidate, a bench, and the tensors in memory of their own.
  void make(const Case& given) {
    const Problem p = llvm::cantFail(parse_problem(given.problem));
    auto candidate = parse_candidate(p, device_->target(), given.candidate);
    ASSERT_TRUE(bool(candidate)) << take_error(candidate.takeError()).message;
    plan_ = llvm::cantFail(Plan::of(
        *candidate, llvm::cantFail(compile(*candidate, *nvrtc_, nullptr, code_for(*device_))), *device_));
    WorkbenchOptions options;
    options.gap = 1;
    bench_ = llvm::cantFail(Workbench::create(*device_, p, options));
    strides_ = llvm::cantFail(bench_->args(0, plan_->workspace_bytes()));
    const ContextScope scope(device_->api(), bench_->context());
    for (const Tensor& t : bench_->list().tensors)
      if (takes_pointers(p, *tensor_of(p.op, t.role)))
        scattered_.push_back(std::make_unique<Scattered>(*device_, *bench_, t));
  }
  void TearDown() override {
    if (bench_) {
      const ContextScope scope(device_->api(), bench_->context());
      scattered_.clear();
    }
    HopperTest::TearDown();
  }
  // A run with those of scattered_ by pointers that `mask` names; the bench's tensors have its answer.
  void run(unsigned mask) {
    const ContextScope scope(device_->api(), bench_->context());
    ASSERT_FALSE(bool(bench_->poison()));
    trigen_args args = strides_;
    for (size_t i = 0; i < scattered_.size(); ++i)
      if ((mask >> i & 1) != 0) scattered_[i]->bring(), scattered_[i]->give(args);
    // The bench's stream waits for no other.
    ASSERT_EQ(device_->api().cuCtxSynchronize(), cuda::CUDA_SUCCESS);
    llvm::Error error = plan_->run(args, bench_->stream());
    ASSERT_FALSE(bool(error)) << take_error(std::move(error)).message;
    ASSERT_FALSE(bool(bench_->synchronize()));
    for (size_t i = 0; i < scattered_.size(); ++i)
      if ((mask >> i & 1) != 0 && scattered_[i]->is_written()) scattered_[i]->take();
  }

  std::shared_ptr<const Plan> plan_;
  std::unique_ptr<Workbench> bench_;
  trigen_args strides_ = TRIGEN_ARGS_INIT;
  std::vector<std::unique_ptr<Scattered>> scattered_;
};

TEST_P(PointerArrays, MatricesAnywhereGiveTheBitsOfOneTensor) {
  TAKES_ONE_OF(2);
  make(GetParam());
  if (HasFatalFailure()) return;
  const Reference reference(bench_->problem(), bench_->list(), bench_->inputs(), {});
  auto result = verify_launch(
      *bench_, reference, [&]() -> llvm::Error { return plan_->run(strides_, bench_->stream()); }, false);
  ASSERT_TRUE(bool(result)) << take_error(result.takeError()).message;
  ASSERT_TRUE(result->ok) << result->failure;
  const HostBuffers wanted = llvm::cantFail(bench_->download());
  // All of them, and each by itself.
  for (size_t i = 0; i <= scattered_.size(); ++i) {
    SCOPED_TRACE(::testing::Message() << "pointers of " << (i == 0 ? "all" : scattered_[i - 1]->name()));
    run(i == 0 ? ~0u : 1u << (i - 1));
    EXPECT_EQ(llvm::cantFail(bench_->download()), wanted);
  }
}

// A block alone and clusters, panels that stay and that pass with a workspace, both layouts, several heads of each pointer,
// an element's alignment.
INSTANTIATE_TEST_SUITE_P(
    Configs, PointerArrays,
    ::testing::Values(
        Case{"newton_schulz_sm80:tile=48x32x16,warps=1x1,stages=1,splitk=1,vec=1x8x2",
             "newton_schulz,dtype=bf16,B=5,T=40,D=104,K=5"},
        Case{"newton_schulz_sm80:tile=64x32x16,warps=2x2,stages=2,splitk=1,vec=1x1x1",
             "newton_schulz,dtype=bf16,B=3,H=2,T=33,D=131,K=7,align=2"},
        Case{"newton_schulz_sm80:tile=32x32x16,warps=2x1,stages=1,splitk=1,vec=1x4x1",
             "newton_schulz,dtype=f32,B=4,H=2,T=24,D=33,K=2,layout=bdt"},
        Case{"newton_schulz_sm80:tile=32x32x16,warps=1x2,stages=1,splitk=1,vec=1x2x2,cluster=2",
             "newton_schulz,dtype=f16,B=3,T=18,D=70,K=5,align=4"},
        Case{"newton_schulz_sm80:tile=32x32x16,warps=2x2,stages=2,splitk=1,vec=1x1x1,cluster=8",
             "newton_schulz,dtype=bf16,B=1,H=3,T=29,D=485,K=8,align=2,layout=bdt"},
        Case{"newton_schulz_sm80:tile=32x32x16,warps=2x2,stages=2,splitk=1,vec=1x1x1,cluster=4",
             "newton_schulz,dtype=f32,B=4,T=29,D=200,K=4"},
        Case{"newton_schulz_sm90:tile=192x64x16,warps=12x1,stages=1,splitk=1,vec=1x1x1,cluster=2",
             "newton_schulz,dtype=bf16,B=2,H=2,T=131,D=147,K=2,align=2"},
        Case{"newton_schulz_sm90:tile=256x64x16,warps=8x1,stages=2,splitk=1,vec=1x2x2",
             "newton_schulz,dtype=f32,B=2,T=194,D=70,K=2,align=8,layout=bdt"}));

// gram: tiles of a block, pairs and squares of a cluster; slices alone and of three blocks; warpgroups that take turns; sums that a
// second launch adds; operands as they lie in both layouts, and packed; stores by TMA, in pairs and by elements; D of f32; every
// family that makes it here (the others: problems_gram.txt).
INSTANTIATE_TEST_SUITE_P(
    Gram, PointerArrays,
    ::testing::Values(
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=3,splitk=1,vec=8x8x8,cluster=1,blocks=1",
             "gram,dtype=bf16,B=1,H=5,T=72,D=136,pointers=1,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=64x128x64,warps=4x1,stages=3,splitk=1,vec=8x8x2,cluster=1,blocks=1",
             "gram,dtype=f16,B=1,H=2,T=130,D=96,fill=upper,pointers=1,epilogue=mirror"},
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=2,splitk=3,vec=8x8x8,cluster=3,blocks=1",
             "gram,dtype=bf16,B=1,H=3,T=136,D=200,pointers=1,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=128x128x64,warps=8x1,stages=3,splitk=1,vec=8x8x8,cluster=1,blocks=1",
             "gram,dtype=bf16,B=1,H=1,T=200,D=136,layout=bdt,pointers=1,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=128x128x64,warps=8x1,stages=3,splitk=2,vec=8x8x8,cluster=4,blocks=1",
             "gram,dtype=f16,B=1,H=2,T=264,D=136,pointers=1,epilogue=residual"},
        Case{"wgmma_sm90:tile=128x256x64,warps=8x1,stages=3,splitk=2,vec=8x8x2,cluster=2,blocks=1",
             "gram,dtype=bf16,B=1,H=2,T=330,D=264,wdtype=f32,walign=8,pointers=1,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=128x128x64,warps=4x1,stages=4,splitk=1,vec=8x8x8,cluster=1,blocks=1",
             "gram,dtype=bf16,B=1,H=5,T=264,D=72,fill=upper,pointers=1,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=3,splitk=1,vec=1x1x1,cluster=1,blocks=1,activations="
             "packed",
             "gram,dtype=bf16,B=1,H=5,T=67,D=33,align=2,walign=2,pointers=1,epilogue=residual+mirror"},
        Case{"wgmma_sm90:tile=64x64x64,warps=4x1,stages=3,splitk=1,vec=1x1x1,cluster=1,blocks=1,activations="
             "packed",
             "gram,dtype=f16,B=1,H=3,T=77,D=66,align=4,layout=bdt,pointers=1,epilogue=mirror"},
        Case{"wgmma_tf32_sm90:tile=128x128x32,warps=8x1,stages=3,splitk=1,vec=4x4x8,cluster=1,blocks=1",
             "gram,dtype=f32,B=1,H=3,T=136,D=68,math=tf32,pointers=1,epilogue=residual+mirror"},
        Case{"wgmma_tf32_sm90:tile=128x128x32,warps=8x1,stages=3,splitk=2,vec=1x1x1,cluster=1,blocks=1,"
             "activations=packed",
             "gram,dtype=f32,B=1,H=2,T=37,D=131,math=tf32,align=4,walign=4,pointers=1,epilogue=residual"},
        Case{"wgmma_split_sm90:tile=128x128x64,warps=8x1,stages=2,splitk=1,vec=1x1x1,cluster=1,blocks=1",
             "gram,dtype=f32,B=1,H=3,T=45,D=67,math=f16x3,align=4,walign=4,pointers=1,epilogue=residual+"
             "mirror"},
        Case{"mma_sm80:tile=64x64x32,warps=2x2,stages=3,splitk=1,raster=8,vec=1x1x1,blocks=4",
             "gram,dtype=bf16,B=1,H=5,T=67,D=33,align=2,walign=2,pointers=1,epilogue=residual+mirror"},
        Case{"mma_sm80:tile=64x64x32,warps=2x2,stages=3,splitk=2,raster=8,vec=8x8x8,blocks=4",
             "gram,dtype=f16,B=1,H=2,T=72,D=136,fill=upper,layout=bdt,pointers=1,epilogue=residual+mirror"},
        Case{"simt:tile=64x32x16,warps=2x2,stages=2,splitk=1,raster=8,vec=1x1x1,blocks=4",
             "gram,dtype=f32,B=1,H=2,T=37,D=11,fill=upper,pointers=1,epilogue=residual"}));

}  // namespace
}  // namespace trigen
