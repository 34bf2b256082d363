// Single outputs in double precision against the reference of the checks, which computes them as panels of
// products: two ways to one number.
#include "numerics/expected.h"

#include <gtest/gtest.h>

#include <cmath>

#include "check/reference.h"
#include "generator/names.h"
#include "generator/random_problem.h"
#include "numerics/formula.h"
#include "numerics/numbers.h"
#include "numerics/tolerance.h"

namespace trigen {
namespace {

HostBuffers buffers_of(const TensorList& list, const PeriodicInputs& inputs) {
  HostBuffers buffers;
  for (const Tensor& t : list.tensors) {
    auto& buffer = buffers.emplace_back(static_cast<size_t>(t.buffer_bytes()), std::byte{kPoison});
    if (!t.read) continue;
    const auto& period = inputs.bytes(t.role);
    for (int64_t i = 0; i < t.bytes(); ++i)
      buffer[static_cast<size_t>(t.offset_bytes + i)] = period[static_cast<size_t>(i) % period.size()];
  }
  return buffers;
}

TEST(NumericsExpected, IsTheReferencesNumber) {
  RandomProblem random(31);
  int64_t compared = 0, ops[std::size(kOpNames)] = {};
  for (int i = 0; i < 90; ++i) {
    const Problem p = random.next_small();
    SCOPED_TRACE(to_string(p));
    const TensorList list = tensors_of(p);
    const PeriodicInputs inputs(p, list);
    const HostBuffers buffers = buffers_of(list, inputs);
    const Reference reference(p, list, buffers, {.full = true});
    const bool weight = makes_weights(p.op);
    ++ops[static_cast<int>(p.op)];
    for (const OutputPlace& o : sample_places(p, list, 24)) {
      const int64_t row = o.h * p.T + o.row, column = weight ? o.column : o.b * p.D + o.column;
      int64_t at = 0;
      while (reference.rows()[static_cast<size_t>(at)] != row) ++at;
      const OutputValues expected = expected_output(p, list, inputs, o);
      const auto near = [&](double found, double right) {
        EXPECT_NEAR(found, right, 1e-9 * (1 + std::fabs(right))) << to_string(p, o);
        ++compared;
      };
      for (const Tensor& t : list.tensors) {
        if (!t.written || o.beside != (makes_vectors(p.op) && t.role == Role::kPre)) continue;
        const auto columns = static_cast<int64_t>(reference.columns(t).size());
        near(expected[t.role],
             reference.expected(
                 t.role)[static_cast<size_t>(t.axes == Axes::kRows ? row : at * columns + column)]);
      }
    }
  }
  EXPECT_GT(compared, 1000);
  for (const int64_t count : ops) EXPECT_GT(count, 3);
}

// All outputs at once against each one by itself: other loops, other precision where integers are exact.
TEST(NumericsExpected, AllOutputsAreTheSingleOnes) {
  RandomProblem random(32);
  int64_t compared = 0, exact = 0, ops[std::size(kOpNames)] = {};
  for (int i = 0; i < 140; ++i) {
    const Problem p = random.next_small();
    SCOPED_TRACE(to_string(p));
    const TensorList list = tensors_of(p);
    const PeriodicInputs inputs(p, list);
    if (!ExpectedOutputs::takes(p, list)) continue;
    ++ops[static_cast<int>(p.op)];
    exact += inputs.exact() ? 1 : 0;
    int64_t places = 0;
    std::vector<OutputPlace> some;
    std::vector<OutputValues> of_all;
    ExpectedOutputs(p, list, inputs).each([&](const OutputPlace& o, const OutputValues& all) {
      if (++places % 7 == 0) some.push_back(o), of_all.push_back(all);
    });
    const std::vector<OutputValues> ones = expected_outputs(p, list, inputs, some);
    for (size_t i = 0; i < some.size(); ++i) {
      const OutputPlace& o = some[i];
      const OutputValues &all = of_all[i], &one = ones[i];
      ++compared;
      const auto near = [&](double found, double right) {
        EXPECT_NEAR(found, right, inputs.exact() ? 0 : 1e-9 * (1 + std::fabs(right))) << to_string(p, o);
      };
      for (const Tensor& t : list.tensors)
        if (t.written) near(all[t.role], one[t.role]);
    }
    if (makes_vectors(p.op)) {
      EXPECT_EQ(places, p.H * p.T * (4 + (p.epilogue.grad_input ? p.B * p.D : 0)));
    } else if (!makes_weights(p.op)) {
      EXPECT_EQ(places, p.B * p.H * p.D * list.rows.count);
    }
    if (p.op == Op::kGram) {
      EXPECT_EQ(places, p.H * p.T * (p.T + 1) / 2);
    }
  }
  EXPECT_GT(compared, 10000);
  EXPECT_GT(exact, 30);
  for (const int64_t count : ops) EXPECT_GT(count, 3);
}

// Sums need the one rounding, fit their format, and are exact in f32.
TEST(NumericsExpected, IntegersAreNeitherTooSmallNorTooLarge) {
  for (const char* text :
       {"forward,dtype=f16,B=2,T=160,D=64", "forward,dtype=bf16,B=2,T=160,D=64",
        "forward,dtype=f16,B=2,T=4096,D=4096,K=4", "grad_input,dtype=f16,B=2,T=16,D=8",
        "grad_weight,dtype=bf16,B=2,T=128,D=16", "forward,dtype=f32,B=2,T=512,D=8,math=tf32",
        "forward,dtype=f16,B=2,T=1024,D=64,epilogue=gelu"}) {
    SCOPED_TRACE(text);
    const Problem p = llvm::cantFail(parse_problem(text));
    const TensorList list = tensors_of(p);
    const PeriodicInputs inputs(p, list);
    ASSERT_TRUE(inputs.exact());
    double largest = 0;
    int64_t rounded = 0, count = 0;
    for (const OutputPlace& o : sample_places(p, list, 256)) {
      const Role role = p.epilogue.act == Activation::kNone ? list.output().role : Role::kPre;
      const double value = expected_output(p, list, inputs, o)[role];
      largest = std::max(largest, std::fabs(value));
      rounded += round_to(p.dtype, static_cast<float>(value)) != static_cast<float>(value) ? 1 : 0;
      ++count;
    }
    EXPECT_LT(largest, p.epilogue.act == Activation::kNone ? 32768 : 8);
    EXPECT_GT(largest, p.epilogue.act == Activation::kNone ? 64 : 1);
    if (p.dtype != DType::kF32 && p.T > 16) {
      EXPECT_GT(rounded, count / 16);
    }
  }
}

TEST(NumericsExpected, SlopesAreTheActivationsDifferences) {
  constexpr double kStep = 1e-5;  // off by its square, and by rounding over it
  for (const Activation act : {Activation::kNone, Activation::kGELU, Activation::kSiLU})
    for (double v = -12; v <= 12; v += 0.01) {
      const double difference = (activate(act, v + kStep) - activate(act, v - kStep)) / (2 * kStep);
      ASSERT_NEAR(activation_slope(act, v), difference, 1e-9) << static_cast<int>(act) << " at " << v;
    }
}

// Rows that tiles end in, the ends of both axes, and every stretch of rows: what a kernel may leave out.
// Of 16384 tokens, a kernel that forgets the state at the borders of its chunks is wrong at some of the 64 outputs.
TEST(NumericsExpected, TheSampleFeelsTheBordersOfChunks) {
  for (const char* text :
       {"scan,dtype=bf16,B=2,T=16384,D=40,wdtype=f32", "scan_grad_input,dtype=f16,B=2,T=16384,D=40"}) {
    const Problem p = llvm::cantFail(parse_problem(text));
    const TensorList list = tensors_of(p);
    const PeriodicInputs inputs(p, list);
    const Role in = p.op == Op::kScan ? Role::kX : Role::kY, out = list.output().role;
    const Tolerance tolerance = tolerance_of(p, p.dtype, sum_terms(p), 64);
    for (const int64_t chunk : {64, 128, 256, 512, 1024}) {
      int wrong = 0;
      for (const OutputPlace& o : sample_places(p, list, 64)) {
        const auto value = [&](bool forgets, Role role, const OutputPlace& at) -> double {
          if (forgets && role == in && at.row / chunk != o.row / chunk) return 0;
          const Tensor& t = *list.find(role);
          return inputs.value(role, t.axes == Axes::kActivations
                                        ? activation_index(p, t, at.b, at.h, at.row, at.column)
                                        : output_index(p, t, at.h * p.T + at.row, at.column));
        };
        const auto made = [&](bool forgets) {
          return evaluate(p, o,
                          [&](Role role, const OutputPlace& at) { return value(forgets, role, at); })[out];
        };
        const double right = made(false);
        EXPECT_DOUBLE_EQ(right, expected_output(p, list, inputs, o)[out]);
        wrong += std::fabs(made(true) - right) > 1.01 * tolerance.output_roundoff * std::fabs(right) + 0.01
                     ? 1
                     : 0;
      }
      EXPECT_GE(wrong, 2) << text << " in chunks of " << chunk;
    }
  }
}

TEST(NumericsExpected, TheSampleReachesEverywhere) {
  const Problem p = llvm::cantFail(parse_problem("forward,dtype=bf16,B=2,H=3,T=4096,D=64"));
  bool ends[2] = {}, heads[3] = {}, batches[2] = {};
  int stretches[16] = {};
  for (const OutputPlace& o : sample_places(p, tensors_of(p), 64)) {
    ends[0] |= o.row == 0, ends[1] |= o.row == p.T - 1;
    heads[o.h] = batches[o.b] = true;
    ++stretches[o.row / 256];
  }
  EXPECT_TRUE(ends[0] && ends[1] && heads[0] && heads[1] && heads[2] && batches[0] && batches[1]);
  for (const int count : stretches) EXPECT_GT(count, 0);
}

}  // namespace
}  // namespace trigen
