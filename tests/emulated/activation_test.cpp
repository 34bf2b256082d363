// The activations on every finite number of 16 bits, f32's of bf16's: W is the identity, so y is act(x) rounded once. On the emulated
// device, and (with TRIGEN_TEST_GPU=1) on this machine's GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "check/reference.h"
#include "check/workbench.h"
#include "generator/families/families.h"
#include "hopper_testing.h"
#include "numerics/numbers.h"
#include "runtime/compile.h"
#include "runtime/plan.h"

namespace trigen {
namespace {

struct Bounds {
  double half_unit;              // rounding to the type, relative to the result
  double relative;               // the approximation where v > -2, relative to the result
  double below_minus_2, beyond;  // absolute, for v in [-3, -2], and below -3
};
// GELU: from the polynomials' errors in double precision (templates/activation.cuh), and some units in
// the last place of f32 for the arithmetic. SiLU: the special-function unit's alone.
constexpr double kUnit = 0x1p-23;
Bounds bounds_of(DType type, Activation act) {
  const double half = type == DType::kBF16 ? 0x1p-8 : type == DType::kF16 ? 0x1p-11 : 0x1p-24;
  if (act == Activation::kSiLU)
    return type == DType::kF32 ? Bounds{half, 2 * kUnit, 5e-8, 4e-8}
                               : Bounds{half, 8 * kUnit, 0x1p-26, 0x1p-26};
  if (type == DType::kF32) return {half, 5 * kUnit, 6e-8, 1e-8};
  return type == DType::kBF16 ? Bounds{half, 0x1p-15, 2e-6, 1.5e-7} : Bounds{half, 0x1p-19, 3e-7, 2e-7};
}

class Activations : public trigen::testing::HopperTest<const char*> {};

TEST_P(Activations, AreWithinTheirBounds) {
  const Problem p = llvm::cantFail(parse_problem(GetParam()));
  const bool wide = p.dtype == DType::kF32;
  const Family& family = *llvm::cantFail(find_family(wide ? "simt" : "wgmma_sm90"));
  const Candidate candidate{p, &device_->target(), &family, family.configs(p, device_->target()).front(),
                            false};
  auto binary = compile(candidate, *nvrtc_, nullptr, code_for(*device_));
  ASSERT_TRUE(static_cast<bool>(binary)) << take_error(binary.takeError()).message;
  auto plan = Plan::of(candidate, *binary, *device_);
  ASSERT_TRUE(static_cast<bool>(plan)) << take_error(plan.takeError()).message;

  auto bench = llvm::cantFail(Workbench::create(*device_, p));
  const ContextScope scope(device_->api(), bench->context());
  const size_t bytes = wide ? 4 : 2;
  const auto put = [&](Role role, const std::vector<char>& values) {
    ASSERT_EQ(device_->api().cuMemcpyHtoD(reinterpret_cast<cuda::CUdeviceptr>(bench->data(0, role)),
                                          values.data(), values.size()),
              cuda::CUDA_SUCCESS);
  };
  constexpr int kNumbers = 1 << 16;
  ASSERT_EQ(p.B * p.T * p.D, kNumbers);
  std::vector<char> x(kNumbers * bytes), w(static_cast<size_t>(p.T * p.T) * bytes), y(kNumbers * bytes);
  for (int i = 0; i < kNumbers; ++i) {
    const auto pattern = static_cast<uint16_t>(i);
    const float v = load_element(wide ? DType::kBF16 : p.dtype, &pattern, 0);
    store_element(p.dtype, x.data(), i, std::isfinite(v) ? v : 0.0f);
  }
  for (int64_t t = 0; t < p.T; ++t)
    for (int64_t s = 0; s < p.T; ++s)
      store_element(p.dtype, w.data(), t * p.T + s, s > t ? NAN : s == t ? 1.0f : 0.0f);
  put(Role::kX, x);
  put(Role::kW, w);
  const trigen_args args = llvm::cantFail(bench->args(0, (*plan)->workspace_bytes()));
  auto error = (*plan)->run(args, bench->stream());
  ASSERT_FALSE(static_cast<bool>(error)) << take_error(std::move(error)).message;
  llvm::cantFail(bench->synchronize());
  ASSERT_EQ(device_->api().cuMemcpyDtoH(
                y.data(), reinterpret_cast<cuda::CUdeviceptr>(bench->data(0, Role::kY)), y.size()),
            cuda::CUDA_SUCCESS);

  const Bounds bounds = bounds_of(p.dtype, p.epilogue.act);
  const double least = p.dtype == DType::kF16 ? 0x1p-25 : 0x1p-126;  // half a subnormal; f32's flushed ones
  double worst = 0;
  int wrong = 0;
  for (int i = 0; i < kNumbers; ++i) {
    const double v = load_element(p.dtype, x.data(), i), expected = activate(p.epilogue.act, v);
    const double of_result = std::abs(expected) * (bounds.half_unit + bounds.relative);
    const double allowed = least + (v > -2 ? of_result
                                           : std::abs(expected) * bounds.half_unit +
                                                 (v >= -3 ? bounds.below_minus_2 : bounds.beyond));
    const double off = std::abs(load_element(p.dtype, y.data(), i) - expected);
    worst = std::max(worst, off / allowed);
    if (!(off <= allowed) && ++wrong <= 5)
      ADD_FAILURE() << "of " << v << ": " << load_element(p.dtype, y.data(), i) << " instead of " << expected
                    << ", off by " << off << ", allowed " << allowed;
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(worst, 0.5);  // the bounds mean something
}

INSTANTIATE_TEST_SUITE_P(Problems, Activations,
                         ::testing::Values("forward,dtype=bf16,B=16,T=64,D=64,epilogue=gelu",
                                           "forward,dtype=f16,B=16,T=64,D=64,epilogue=gelu",
                                           "forward,dtype=bf16,B=16,T=64,D=64,epilogue=silu",
                                           "forward,dtype=f16,B=16,T=64,D=64,epilogue=silu",
                                           "forward,dtype=f32,B=16,T=64,D=64,epilogue=gelu",
                                           "forward,dtype=f32,B=16,T=64,D=64,epilogue=silu"));

}  // namespace
}  // namespace trigen
