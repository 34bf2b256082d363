// Matrices anywhere in memory, by arrays of pointers: each in an allocation of its own, NaN around it and between its rows, as
// misaligned as the problem allows. The bits must be those of one tensor. On the emulated sm_90a, which reports an access outside
// an allocation, and (with TRIGEN_TEST_GPU) on this machine's GPU.
#include <gtest/gtest.h>

#include <bit>

#include "check/verify.h"
#include "generator/candidate.h"
#include "hopper_testing.h"
#include "runtime/arguments.h"
#include "runtime/compile.h"
#include "runtime/plan.h"

namespace trigen {
namespace {

using cuda::CUdeviceptr;

struct Case {
  const char* candidate;
  const char* problem;
};

// What each b has of a tensor, with its gaps, in memory of its own; and the array of pointers to it.
class Scattered {
 public:
  Scattered(const Device& device, const Workbench& bench, Role role)
      : device_(device), tensor_(*bench.list().find(role)) {
    const Problem& p = bench.problem();
    const int64_t element = element_size(tensor_.dtype);
    bytes_ = (tensor_.elements - (p.B - 1) * tensor_.batch) * element;
    from_ = std::bit_cast<CUdeviceptr>(bench.data(0, role));
    // The last b first, allocations of different sizes: no two are as far apart as the next two.
    for (int64_t b = p.B - 1; b >= 0; --b) {
      const int64_t front = kGuard * (1 + b % 3) + (p.align < 16 ? p.align : 0);
      owned_.push_back(allocate(front + bytes_ + kGuard));
      places_.push_back({b, owned_.back(), front});
    }
    std::vector<CUdeviceptr> pointers(static_cast<size_t>(p.B));
    for (const Place& place : places_)
      pointers[static_cast<size_t>(place.b)] = place.begin + offset(place.front);
    array_ = allocate(8 * p.B);
    owned_.push_back(array_);
    check(device_.api().cuMemcpyHtoD(array_, pointers.data(), 8 * pointers.size()));
  }
  ~Scattered() {
    for (const CUdeviceptr one : owned_) device_.api().cuMemFree(one);
  }
  Scattered(const Scattered&) = delete;
  Scattered& operator=(const Scattered&) = delete;

  void give(trigen_args& args) const {
    Tensor array = tensor_;
    array.batch = TRIGEN_POINTER_ARRAY;
    set_argument(args, array, device_pointer(array_));
  }
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
          << "something was written beside matrix " << place.b;
    }
  }

 private:
  static constexpr int64_t kGuard = 256;
  struct Place {
    int64_t b;
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
  CUdeviceptr tensor_at(const Place& place) const {
    return from_ + offset(place.b * tensor_.batch * element_size(tensor_.dtype));
  }

  const Device& device_;
  const Tensor& tensor_;
  int64_t bytes_ = 0;
  CUdeviceptr from_ = 0, array_ = 0;
  std::vector<Place> places_;
  std::vector<CUdeviceptr> owned_;
};

class PointerArrays : public trigen::testing::HopperTest<Case> {};

TEST_P(PointerArrays, MatricesAnywhereGiveTheBitsOfOneTensor) {
  const Problem p = llvm::cantFail(parse_problem(GetParam().problem));
  auto candidate = parse_candidate(p, device_->target(), GetParam().candidate);
  ASSERT_TRUE(bool(candidate)) << take_error(candidate.takeError()).message;
  auto plan = llvm::cantFail(Plan::of(
      *candidate, llvm::cantFail(compile(*candidate, *nvrtc_, nullptr, code_for(*device_))), *device_));
  WorkbenchOptions options;
  options.gap = 1;
  auto bench = llvm::cantFail(Workbench::create(*device_, p, options));
  const Reference reference(p, bench->list(), bench->inputs(), {});
  const trigen_args strides = llvm::cantFail(bench->args(0, plan->workspace_bytes()));
  auto result = verify_launch(
      *bench, reference, [&]() -> llvm::Error { return plan->run(strides, bench->stream()); }, false);
  ASSERT_TRUE(bool(result)) << take_error(result.takeError()).message;
  ASSERT_TRUE(result->ok) << result->failure;
  const HostBuffers wanted = llvm::cantFail(bench->download());

  const ContextScope scope(device_->api(), bench->context());
  const Scattered x(*device_, *bench, Role::kX), y(*device_, *bench, Role::kY);
  for (const auto& [of_x, of_y] : {std::pair(true, true), std::pair(true, false), std::pair(false, true)}) {
    SCOPED_TRACE(::testing::Message() << "pointers of " << (of_x ? "x " : "") << (of_y ? "y" : ""));
    ASSERT_FALSE(bool(bench->poison()));
    trigen_args args = strides;
    if (of_x) x.bring(), x.give(args);
    if (of_y) y.bring(), y.give(args);
    ASSERT_EQ(device_->api().cuCtxSynchronize(),
              cuda::CUDA_SUCCESS);  // the bench's stream waits for no other
    llvm::Error error = plan->run(args, bench->stream());
    ASSERT_FALSE(bool(error)) << take_error(std::move(error)).message;
    ASSERT_FALSE(bool(bench->synchronize()));
    if (of_y) y.take();
    EXPECT_EQ(llvm::cantFail(bench->download()), wanted);
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
             "newton_schulz,dtype=bf16,B=2,H=2,T=131,D=147,K=3,align=2"},
        Case{"newton_schulz_sm90:tile=256x64x16,warps=8x1,stages=2,splitk=1,vec=1x2x2",
             "newton_schulz,dtype=f32,B=2,T=194,D=70,K=3,align=8,layout=bdt"}));

}  // namespace
}  // namespace trigen
