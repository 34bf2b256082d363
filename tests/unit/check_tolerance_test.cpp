// Errors that the tolerance must let pass, and errors that it must not.
#include "numerics/tolerance.h"

#include <gtest/gtest.h>

#include <cmath>

#include "check/memory.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

Problem problem(const std::string& text) { return llvm::cantFail(parse_problem(text)); }
constexpr int64_t kMany = 1 << 20;

TEST(Tolerance, OneProductLeftOutShows) {
  // A sum of n products of random sign without one of them is off by sqrt(1 / n): check/tolerance.h.
  const Problem p = problem("forward,dtype=bf16,B=8,T=512,D=512");
  for (const int64_t terms : {16, 512, 8192, 70000})
    EXPECT_LT(tolerance_of(p, DType::kBF16, terms, kMany).relative,
              std::sqrt(1.0 / static_cast<double>(terms)))
        << terms;
}

TEST(Tolerance, OneRoundingOfTheOutputPasses) {
  for (const DType dtype : {DType::kF16, DType::kBF16, DType::kF32}) {
    const std::string text = "forward,dtype=" + to_string(dtype).str() + ",B=2,T=64,D=64";
    const Tolerance t = tolerance_of(problem(text), dtype, 64, kMany);
    double squares = 0, all = 0;
    for (uint64_t i = 0; i < 20000; ++i) {
      const double value = 1 + random_value(3, 0, i, 0.5F) + 1e-3 * random_value(3, 1, i, 0.5F);
      const double error = round_to(dtype, static_cast<float>(value)) - static_cast<float>(value);
      squares += error * error;
      all += value * value;
      ASSERT_LE(std::fabs(error), 1.01 * t.output_roundoff * value + t.floor);
    }
    EXPECT_LE(std::sqrt(squares / all), t.relative) << to_string(dtype).str();
  }
}

TEST(Tolerance, GrowsWithWhatAddsErrors) {
  const Problem simt = problem("forward,dtype=f32,B=2,T=64,D=64,math=simt"),
                tf32 = problem("forward,dtype=f32,B=2,T=64,D=64,math=tf32"),
                split = problem("forward,dtype=f32,B=2,T=64,D=64,math=f16x3"),
                gelu = problem("forward,dtype=f32,B=2,T=64,D=64,math=simt,epilogue=gelu");
  const auto relative = [](const Problem& p, int64_t terms, int64_t outputs = kMany) {
    return tolerance_of(p, p.dtype, terms, outputs).relative;
  };
  EXPECT_LT(relative(simt, 100), relative(simt, 10000));
  EXPECT_LT(relative(simt, 100), relative(gelu, 100));
  const Problem bf16 = problem("forward,dtype=bf16,B=2,T=64,D=64,epilogue=gelu"),
                f16 = problem("forward,dtype=f16,B=2,T=64,D=64,epilogue=gelu");
  EXPECT_GT(tolerance_of(bf16, bf16.dtype, 64, kMany).sum_error,
            tolerance_of(f16, f16.dtype, 64, kMany).sum_error + 5e-6);
  EXPECT_GT(relative(tf32, 100), 0x1p-10);
  EXPECT_EQ(relative(split, 100), relative(simt, 100)) << "f16x3 is held to f32's bound";
  EXPECT_LT(relative(simt, 100), relative(simt, 100, 255)) << "few outputs have not settled";
  EXPECT_EQ(tolerance_of(simt, DType::kF16, 1, kMany).floor, 0x1p-25);
  EXPECT_EQ(tolerance_of(simt, DType::kF32, 1, kMany).floor, 0);
}

TEST(EmulatedMemory, CountsTensorsWorkspaceAndWhatIsComputed) {
  const Problem p = problem("forward,dtype=f32,B=4,T=256,D=1024");
  const double bytes = emulated_bytes(p, 0, 0, false);
  const double tensors = 4.0 * (2 * 4 * 256 * 1024 + 256 * 256);
  EXPECT_GT(bytes, 19 * tensors) << "16 bytes for one of the device, three copies here";
  EXPECT_LT(bytes, 19.1 * tensors + 24.0 * 4 * 256 * 1024);
  EXPECT_EQ(emulated_bytes(p, 1 << 20, 0, false) - bytes, 16.0 * (1 << 20));
  EXPECT_GT(emulated_bytes(p, 0, 3, false), bytes) << "gaps are memory";
  const Problem big = problem("forward,dtype=bf16,B=64,T=4096,D=1024");
  EXPECT_GT(emulated_bytes(big, 0, 0, true), emulated_bytes(big, 0, 0, false)) << "sampled, unless in full";
  EXPECT_GT(available_memory(), 0x1p24);
}

}  // namespace
}  // namespace trigen
