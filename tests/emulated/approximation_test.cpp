// Approximate instructions against double precision: the emulated device lies within the PTX ISA's bounds on
// a dense grid, and so near the exact value that a comparison with a GPU may add the two errors.
#include "approximations.h"

#include <bit>

#include "device.h"

namespace trigen::testing {
namespace {

constexpr size_t kGrid = 1 << 16;  // by bits, and as many by value

uint32_t bits(float value) { return std::bit_cast<uint32_t>(value); }
float real(uint32_t word) { return std::bit_cast<float>(word); }
double half_value(uint16_t word, bool bf16) {
  if (bf16) return real(static_cast<uint32_t>(word) << 16);
  const int exponent = word >> 10 & 31, mantissa = word & 0x3ff;
  double value = exponent == 31  ? (mantissa != 0 ? NAN : INFINITY)
                 : exponent == 0 ? std::ldexp(mantissa, -24)
                                 : std::ldexp(mantissa + 1024, exponent - 25);
  return (word & 0x8000) != 0 ? -value : value;
}

// One thread per element: a[i] in %r1, b[i] in %r2, the result in %r10.
std::vector<uint32_t> run(const std::string& target, const std::string& body, const std::vector<uint32_t>& a,
                          const std::vector<uint32_t>& b) {
  Device device(target);
  const CUdeviceptr out = device.allocate(4 * a.size());
  EXPECT_EQ(a.size() % 256, 0u);
  device.run(
      kernel_ptx(target, {"u64", "u64", "u64"},
                 "mov.u32 %r30, %ctaid.x;\nmov.u32 %r31, %tid.x;\nmad.lo.u32 %r30, %r30, 256, %r31;\n"
                 "mul.wide.u32 %d30, %r30, 4;\n"
                 "ld.param.u64 %d1, [p0];\nadd.u64 %d1, %d1, %d30;\nld.global.u32 %r1, [%d1];\n"
                 "ld.param.u64 %d2, [p1];\nadd.u64 %d2, %d2, %d30;\nld.global.u32 %r2, [%d2];\n" +
                     body + "\nld.param.u64 %d3, [p2];\nadd.u64 %d3, %d3, %d30;\nst.global.u32 [%d3], %r10;"),
      static_cast<unsigned>(a.size() / 256), 256, 0, device.put(a), device.put(b), out);
  return device.get<uint32_t>(out, a.size());
}

std::vector<uint32_t> run_f32(const std::string& target, const std::string& op,
                              const std::vector<uint32_t>& a) {
  return run(target, "mov.b32 %f1, %r1;\n" + op + " %f2, %f1;\nmov.b32 %r10, %f2;", a, a);
}

// Half of the points have bits that are as far apart as can be (all exponents), half lie evenly in [-16, 16].
std::vector<uint32_t> grid(const Approximation& a) {
  const uint32_t first = bits(static_cast<float>(std::fabs(a.low))), last = bits(static_cast<float>(a.high));
  std::vector<uint32_t> words;
  for (size_t i = 0; i < kGrid; ++i) {
    const auto word = static_cast<uint32_t>(first + i * static_cast<uint64_t>(last - first) / (kGrid - 1));
    words.push_back(a.low < 0 && i % 2 != 0 ? word | 0x80000000u : word);
  }
  for (size_t i = 0; i < kGrid; ++i) {
    const double low = a.low < 0 ? std::max(-a.high, -16.0) : a.low,
                 high = std::min(a.high, std::max(16.0, 2 * low));
    words.push_back(bits(static_cast<float>(low + (high - low) * (static_cast<double>(i) + 0.5) / kGrid)));
  }
  return words;
}

TEST(Approximation, LiesWithinTheBoundsOfTheIsa) {
  for (const Approximation& a : kApproximations) {
    const auto in = grid(a);
    const auto out = run_f32(a.target, a.op, in);
    double worst = 0, worst_ulp = 0;
    size_t wrong = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double exact = a.exact(real(in[i])), found = real(out[i]), error = std::fabs(found - exact);
      if (std::fabs(exact) > kMost)
        continue;  // ex2 just below 128 rounds to the largest number or to infinity
      worst = std::max(worst, error / a.bound(exact));
      if (!(error <= a.bound(exact)) && wrong++ == 0)
        ADD_FAILURE() << a.op << " of " << real(in[i]) << " is " << found << ", exactly " << exact;
      if (a.flushes && std::fabs(exact) < 0x1p-126) continue;
      const double ulp = std::ldexp(1.0, (exact == 0 ? -126 : std::max(std::ilogb(exact), -126)) - 23);
      worst_ulp = std::max(worst_ulp, error / ulp);
    }
    EXPECT_EQ(wrong, 0u) << a.op;
    EXPECT_LE(worst_ulp, 0.5001) << a.op
                                 << ": what a comparison with a GPU allows the emulated device (2^-24)";
    std::printf("%-20s operands from %9.3g to %9.3g: %6zu points, worst at %3.0f %% of the bound\n", a.op,
                a.low, a.high, in.size(), 100 * worst);
  }
}

TEST(Approximation, DividesWithinTheBoundsOfTheIsa) {
  for (const std::string op : {"div.full.f32", "div.approx.f32"}) {
    std::vector<uint32_t> a, b;
    for (uint32_t i = 0; i < kGrid; ++i) {
      a.push_back((0x3f800000u + i * 2654435761u % 0x800000u) | i << 31);  // 1 .. 2, both signs
      b.push_back(i * 40503u % 0x3f800000u + 0x00800000u);                 // 2^-126 .. 2
      a.push_back(bits(0x1p-20f) + i * 97u);
      b.push_back(0x3f800000u +
                  i * static_cast<uint32_t>((0x7f7fffffu - 0x3f800000u) / kGrid));  // 1 .. 2^128
    }
    const auto out = run(
        "sm_70", "mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\n" + op + " %f3, %f1, %f2;\nmov.b32 %r10, %f3;", a, b);
    size_t wrong = 0, beyond = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      const double divisor = real(b[i]), found = real(out[i]);
      const bool large = op == "div.approx.f32" && divisor > kLargestDivisor;
      const double exact = large ? 0 : real(a[i]) / divisor;
      if (std::fabs(exact) > kMost) continue;
      beyond += large ? 1 : 0;
      const int exponent = exact == 0 ? -126 : std::max(std::ilogb(exact), -126);
      const double bound = large ? 0 : kDivisionUlp * std::ldexp(1.0, exponent - 23);
      if (!(std::fabs(found - exact) <= bound) && wrong++ == 0)
        ADD_FAILURE() << op << " of " << real(a[i]) << " by " << divisor << " is " << found;
    }
    EXPECT_EQ(wrong, 0u) << op;
    EXPECT_EQ(beyond > 100, op == "div.approx.f32");
  }
}

// Every operand of 16 bits, in both halves of a register.
TEST(Approximation, HalfFormatsLieWithinTheBoundsOfTheIsa) {
  std::vector<uint32_t> in;
  for (uint32_t i = 0; i < 1 << 16; ++i) in.push_back(i);
  for (const HalfApproximation& a : kHalfApproximations) {
    const auto out =
        run(a.target, std::string("cvt.u16.u32 %h1, %r1;\n") + a.op + " %h2, %h1;\ncvt.u32.u16 %r10, %h2;",
            in, in);
    const double largest = a.bf16 ? 0x1.fep127 : 65504;
    size_t wrong = 0, compared = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const double x = half_value(static_cast<uint16_t>(in[i]), a.bf16), exact = a.exact(x);
      const double found = half_value(static_cast<uint16_t>(out[i]), a.bf16);
      if (std::isnan(x)) {
        EXPECT_TRUE(std::isnan(found)) << a.op << " " << i;
        continue;
      }
      if (std::fabs(exact) > largest) continue;
      ++compared;
      if (!(std::fabs(found - exact) <= a.relative * std::fabs(exact) + a.absolute) && wrong++ == 0)
        ADD_FAILURE() << a.op << " of " << x << " is " << found << ", exactly " << exact;
    }
    EXPECT_EQ(wrong, 0u) << a.op;
    EXPECT_GT(compared, 30000u) << a.op;
  }
}

// The corner cases that the ISA tabulates with each instruction.
TEST(Approximation, CornersAreTheIsasTables) {
  const float inf = INFINITY;
  const struct {
    const char* op;
    float in, out;
  } corners[] = {
      {"ex2.approx.f32", -inf, 0},
      {"ex2.approx.f32", inf, inf},
      {"ex2.approx.f32", -0.0f, 1},
      {"ex2.approx.f32", 0x1p-140f, 1},
      {"ex2.approx.f32", NAN, NAN},
      {"lg2.approx.f32", -inf, NAN},
      {"lg2.approx.f32", -1, NAN},
      {"lg2.approx.f32", -0.0f, -inf},
      {"lg2.approx.f32", 0, -inf},
      {"lg2.approx.f32", inf, inf},
      {"lg2.approx.f32", NAN, NAN},
      {"lg2.approx.ftz.f32", 0x1p-140f, -inf},
      {"rcp.approx.f32", -inf, -0.0f},
      {"rcp.approx.f32", -0.0f, -inf},
      {"rcp.approx.f32", 0, inf},
      {"rcp.approx.f32", inf, 0},
      {"rcp.approx.f32", NAN, NAN},
      {"rcp.approx.ftz.f32", -0x1p-140f, -inf},
      {"sqrt.approx.f32", -inf, NAN},
      {"sqrt.approx.f32", -1, NAN},
      {"sqrt.approx.f32", -0.0f, -0.0f},
      {"sqrt.approx.f32", inf, inf},
      {"sqrt.approx.ftz.f32", -0x1p-140f, -0.0f},
      {"rsqrt.approx.f32", -inf, NAN},
      {"rsqrt.approx.f32", -1, NAN},
      {"rsqrt.approx.f32", -0.0f, -inf},
      {"rsqrt.approx.f32", 0, inf},
      {"rsqrt.approx.f32", inf, 0},
      {"tanh.approx.f32", -inf, -1},
      {"tanh.approx.f32", -0.0f, -0.0f},
      {"tanh.approx.f32", 0, 0},
      {"tanh.approx.f32", inf, 1},
      {"tanh.approx.f32", NAN, NAN},
  };
  for (const auto& corner : corners) {
    const std::vector<uint32_t> in(256, bits(corner.in));
    const uint32_t found = run_f32("sm_75", corner.op, in)[17];
    if (std::isnan(corner.out))
      EXPECT_TRUE(std::isnan(real(found))) << corner.op << " of " << corner.in;
    else
      EXPECT_EQ(found, bits(corner.out)) << corner.op << " of " << corner.in << " is " << real(found);
  }
  // An infinity by a divisor beyond 2^126.
  const std::vector<uint32_t> a(256, bits(inf)), b(256, bits(0x1p127f));
  const auto quotient =
      run("sm_70", "mov.b32 %f1, %r1;\nmov.b32 %f2, %r2;\ndiv.approx.f32 %f3, %f1, %f2;\nmov.b32 %r10, %f3;",
          a, b);
  EXPECT_TRUE(std::isnan(real(quotient[0])));
}

}  // namespace
}  // namespace trigen::testing
