// The elementwise pass that stands for "cuBLAS and separate kernels": its numbers on the emulated device,
// since a peer that computes something else is no peer.
#include "peers/pass.h"

#include <gmock/gmock.h>

#include <cmath>

#include "check/reference.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

class Pass : public testing::TestWithParam<const char*> {};

TEST_P(Pass, AddsActivatesGatesAndAddsAgain) {
  auto driver = Driver::load_emulated("sm_90a");
  ASSERT_TRUE(static_cast<bool>(driver)) << take_error(driver.takeError()).message;
  const Device* device = llvm::cantFail(Device::open(**driver, 0));
  const Problem p = llvm::cantFail(parse_problem(GetParam()));
  auto bench = llvm::cantFail(Workbench::create(*device, p));
  auto pass = EpiloguePass::create(*bench, bench->problem().epilogue);
  ASSERT_TRUE(static_cast<bool>(pass)) << take_error(pass.takeError()).message;

  // y as a product would leave it
  const Role output = p.op == Op::kGradInput ? Role::kX : Role::kY;
  const Tensor& y = *bench->list().find(output);
  std::vector<std::byte> before(static_cast<size_t>(y.bytes()));
  for (int64_t i = 0; i < y.elements; ++i)
    store_element(p.dtype, before.data(), i, random_value(1, 2, static_cast<uint64_t>(i), 2));
  const ContextScope scope(device->api(), bench->context());
  ASSERT_EQ(device->api().cuMemcpyHtoD(reinterpret_cast<cuda::CUdeviceptr>(bench->data(0, output)),
                                       before.data(), before.size()),
            cuda::CUDA_SUCCESS);
  llvm::cantFail((*pass)->run(0, bench->stream()));
  llvm::cantFail(bench->synchronize());
  std::vector<std::byte> after(before.size());
  ASSERT_EQ(device->api().cuMemcpyDtoH(
                after.data(), reinterpret_cast<cuda::CUdeviceptr>(bench->data(0, output)), after.size()),
            cuda::CUDA_SUCCESS);

  const auto input = [&](Role role, int64_t i) {
    const Tensor& t = *bench->list().find(role);
    const auto at = static_cast<size_t>(&t - bench->list().tensors.data());
    return static_cast<double>(load_element(t.dtype, bench->inputs()[at].data() + t.offset_bytes, i));
  };
  for (int64_t i = 0; i < y.elements; ++i) {
    double z = load_element(p.dtype, before.data(), i);
    if (p.epilogue.bias) z += input(Role::kBias, i / p.D % p.H * p.T + i / (p.H * p.D) % p.T);
    z = activate(p.epilogue.act, z);
    if (p.epilogue.gate) z *= input(Role::kGate, i);
    if (p.epilogue.residual) z += input(Role::kResidual, i);
    // one rounding of the result, and tanh's approximation (2^-11 relative, PTX ISA tanh)
    EXPECT_NEAR(load_element(p.dtype, after.data(), i), z, 4e-3 * (std::abs(z) + 0.5)) << "element " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Problems, Pass,
    testing::Values("forward,dtype=bf16,B=2,T=48,D=24,epilogue=bias",
                    "forward,dtype=bf16,B=2,T=48,D=40,epilogue=bias+gelu+gate+residual",
                    "forward,dtype=f16,B=3,T=40,D=8,wdtype=f32,epilogue=bias+silu+residual",
                    "forward,dtype=f16,B=3,T=40,D=8,epilogue=bias+gate",
                    "forward,dtype=bf16,B=2,H=3,T=24,D=16,epilogue=bias+gelu",
                    "grad_input,dtype=bf16,B=2,H=3,T=24,D=16,epilogue=residual"));

TEST(PassScope, RefusesWhatItDoesNotServe) {
  const Device* device = llvm::cantFail(Device::open(*llvm::cantFail(Driver::load_emulated("sm_90a")), 0));
  for (const char* text : {"forward,dtype=f32,B=1,T=16,D=16,epilogue=bias",
                           "grad_input,dtype=f16,B=1,T=16,D=12,epilogue=residual",
                           "forward,dtype=f16,B=1,T=16,D=12,epilogue=bias",
                           "forward,dtype=f16,B=1,T=16,D=16,layout=bdt,epilogue=bias"}) {
    auto bench = llvm::cantFail(Workbench::create(*device, llvm::cantFail(parse_problem(text))));
    auto pass = EpiloguePass::create(*bench, bench->problem().epilogue);
    ASSERT_FALSE(static_cast<bool>(pass)) << text;
    EXPECT_THAT(take_error(pass.takeError()).message, testing::HasSubstr("no elementwise pass for"));
  }
}

}  // namespace
}  // namespace trigen
