// Inputs of small integers against the reference, and planted losses: in kernels' place by what they would
// write, at sizes that no reference here could compute.
#include "check/integers.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>

#include "check/reference.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

using testing::HasSubstr;

struct Made {
  Problem problem;
  TensorList list;
  Integers integers;
  explicit Made(const std::string& text)
      : problem(llvm::cantFail(parse_problem(text))), list(tensors_of(problem, 1)), integers(problem, list) {}
  Role role() const { return list.output().role; }
  int64_t columns() const { return output_columns(problem); }
  int64_t index(const Tensor& t, int64_t h, int64_t row, int64_t column) const {
    const Problem& p = problem;
    return t.role == Role::kW ? weight_index(p, t, h, row, column / p.K, column % p.K)
                              : activation_index(p, t, column / p.D, h, row, column % p.D);
  }
};

enum class Tf32 { kRounded, kCut };

// f32 data as a kernel reads them with math=tf32: 11 significant bits.
void shorten(const Made& m, HostBuffers& inputs, Tf32 how) {
  for (size_t i = 0; i < m.list.tensors.size(); ++i) {
    const Tensor& t = m.list.tensors[i];
    const bool operand = t.role == Role::kX || t.role == Role::kY || t.role == Role::kW;
    if (!t.read || t.written || !operand) continue;
    std::byte* data = inputs[i].data() + t.offset_bytes;
    for (int64_t at = 0; at < t.elements; ++at) {
      auto bits = std::bit_cast<uint32_t>(load_element(t.dtype, data, at));
      if ((bits & 0x7f800000u) == 0x7f800000u) continue;
      bits = (bits + (how == Tf32::kRounded ? 0x1000u : 0u)) & ~0x1fffu;
      store_element(t.dtype, data, at, std::bit_cast<float>(bits));
    }
  }
}

// A right kernel's outputs, by the double-precision reference.
HostBuffers outputs_of(const Made& m, HostBuffers inputs, Tf32 how = Tf32::kRounded) {
  if (m.problem.math == Math::kTF32) shorten(m, inputs, how);
  const Reference reference(m.problem, m.list, inputs, {.full = true});
  HostBuffers out = inputs;
  for (size_t i = 0; i < m.list.tensors.size(); ++i) {
    const Tensor& t = m.list.tensors[i];
    if (!t.written) continue;
    const auto& values = reference.expected(t.role);
    for (size_t v = 0; v < values.size(); ++v) {
      const size_t columns = t.role == Role::kBias ? 1 : reference.columns().size();
      const int64_t row = t.role == Role::kBias ? static_cast<int64_t>(v) : reference.rows()[v / columns];
      if (t.role == Role::kW &&
          !in_triangle(m.problem, row % m.problem.T, reference.columns()[v % columns] / m.problem.K))
        continue;
      const int64_t at = t.role == Role::kBias ? row
                                               : m.index(t, row / m.problem.T, row % m.problem.T,
                                                         reference.columns()[v % columns]);
      store_element(t.dtype, out[i].data() + t.offset_bytes, at, static_cast<float>(values[v]));
    }
  }
  return out;
}

std::vector<std::string> kinds() {
  std::vector<std::string> list;
  for (const char* sizes : {"B=2,H=1,T=5,D=7,K=1", "B=1,H=3,T=9,D=4,K=3,pad=2", "B=3,H=2,T=4,D=6,K=4",
                            "B=1,H=1,T=1,D=1,K=1", "B=2,H=2,T=150,D=5,K=2,pad=0", "B=5,H=1,T=3,D=150,K=1"}) {
    const std::string tail = std::string(",") + sizes + ",dtype=";
    for (const char* op : {"forward", "grad_input", "grad_weight"})
      for (const char* kind : {"f32", "bf16,layout=bdt", "f16,wdtype=f32", "f32,math=tf32", "f32,math=f16x3"})
        list.push_back(op + tail + kind);
    for (const char* op : {"forward", "grad_input", "grad_weight"})
      for (const char* kind :
           {"f16,fill=upper,diag=1", "f32,math=tf32,diag=-2,layout=bdt", "bf16,fill=upper,diag=-1"})
        if (tail.find("T=1,") == std::string::npos) list.push_back(op + tail + kind);
    list.push_back("forward" + tail + "f16,epilogue=bias+gelu+pre+gate+residual");
    list.push_back("forward" + tail + "f32,math=tf32,layout=bdt,epilogue=bias+silu");
    list.push_back("forward" + tail + "bf16,epilogue=residual");
    list.push_back("decode" + tail + "bf16,rows=1,epilogue=bias+gelu");
    list.push_back("grad_input" + tail + "bf16,epilogue=residual");
    list.push_back("grad_weight" + tail + "bf16,wdtype=f32,epilogue=bias+accumulate");
    list.push_back("grad_weight" + tail + "f32,math=tf32,epilogue=bias");
    if (tail.find(",K=1,") == std::string::npos) continue;
    for (const char* op : {"forward", "grad_input", "grad_weight"})
      for (const char* form : {"w=toeplitz", "w=band,width=1", "w=band,width=3"})
        for (const char* kind : {"f32", "bf16,layout=bdt", "f32,math=tf32"})
          if (tail.find("T=1,") == std::string::npos) list.push_back(op + tail + kind + "," + form);
    for (const char* kind :
         {"f32", "bf16,layout=bdt,epilogue=residual", "f16,wdtype=f32,epilogue=residual", "f16,fill=upper",
          "f32,math=tf32,epilogue=residual", "f32,math=f16x3,fill=upper,epilogue=residual"})
      list.push_back("gram" + tail + kind);
  }
  return list;
}

TEST(Integers, ARightKernelPassesAndOneWrongElementAnywhereFails) {
  for (const std::string& text : kinds()) {
    const Made m(text);
    ASSERT_GE(m.integers.runs(), 1) << text;
    for (int run = 0; run < m.integers.runs(); ++run) {
      const HostBuffers right = outputs_of(m, m.integers.inputs(run));
      CheckResult result{.ok = true, .outputs = 7};
      m.integers.check(run, right, result);
      ASSERT_TRUE(result.ok) << text << ", run " << run << ": " << result.failure;
      EXPECT_EQ(result.exact, 7);
      for (size_t i = 0; i < m.list.tensors.size(); ++i) {
        const Tensor& t = m.list.tensors[i];
        if (!t.written) continue;
        for (int64_t at = 0; at < t.elements; at += 1 + t.elements / 97) {
          HostBuffers wrong = right;
          std::byte* data = wrong[i].data() + t.offset_bytes;
          const float old = load_element(t.dtype, data, at);
          if (std::isnan(old)) continue;  // a gap, or outside the triangle
          store_element(t.dtype, data, at, old + 1);
          CheckResult found{.ok = true};
          m.integers.check(run, wrong, found);
          const bool inside =
              t.role != Role::kW || found.failure.find("on inputs of small integers 1 outputs") == 0;
          EXPECT_TRUE(!found.ok && inside)
              << text << ", run " << run << ": " << to_string(t.role) << " " << at;
        }
      }
    }
  }
}

// The sums that the check takes from a formula are those of the products that a kernel sums.
TEST(Integers, SumsAreThoseOfTheProducts) {
  for (const std::string& text : kinds()) {
    const Made m(text);
    const Problem& p = m.problem;
    for (int run = 0; run < m.integers.runs(); ++run)
      for (int64_t row = m.list.rows.first; row < m.list.rows.first + m.list.rows.count; row += 1 + p.T / 11)
        for (int64_t column = 0; column < m.columns(); column += 1 + m.columns() / 13) {
          if (makes_weights(p.op) && !in_triangle(p, row, column / p.K)) continue;
          const auto [first, last] = tokens_of_row(p, row);
          double sum = 0;
          const bool weight = makes_weights(p.op);
          if (weight && p.w == WeightForm::kToeplitz) {  // all elements of a diagonal
            for (int64_t s = 0; s < p.T - row; ++s)
              for (int64_t k = 0; k < p.B * p.D; ++k) sum += m.integers.product(run, p.H - 1, row + s, s, k);
          } else {
            for (int64_t k = weight ? 0 : first * p.K; k < (weight ? p.B * p.D : last * p.K); ++k)
              sum += m.integers.product(run, p.H - 1, row, column, k);
          }
          ASSERT_DOUBLE_EQ(m.integers.sum(run, p.H - 1, row, column), sum)
              << text << " " << row << " " << column;
        }
  }
}

// Sums too long for any tolerance of rounding: one product of one output is left out.
TEST(Integers, OneLostProductOfALongSumIsSeen) {
  for (const char* text :
       {"forward,dtype=bf16,B=1,T=8192,D=64", "forward,dtype=bf16,B=2,T=65536,D=8,epilogue=bias",
        "forward,dtype=f16,B=1,T=1048576,D=1", "grad_input,dtype=bf16,B=1,T=65536,D=8,fill=upper",
        "grad_weight,dtype=bf16,B=512,T=64,D=1024,epilogue=bias",
        "grad_weight,dtype=f16,B=65536,H=2,T=64,D=8", "gram,dtype=bf16,B=1,H=2,T=64,D=65536",
        "forward,dtype=bf16,B=1,T=16384,D=64,K=4,pad=3", "grad_weight,dtype=bf16,B=64,T=64,D=1024,K=8,pad=4",
        "forward,dtype=f32,B=1,T=65536,D=8,math=f16x3", "forward,dtype=f32,B=1,T=4096,D=8,math=tf32"}) {
    const Made m(text);
    const Problem& p = m.problem;
    const DType dtype = m.list.find(m.role())->dtype;
    int tried = 0, seen = 0;
    for (uint64_t i = 0; tried < 4000; ++i) {
      const auto pick = [&](uint64_t stream, int64_t size) {
        return static_cast<int64_t>(random_bits(99, stream, i) % static_cast<uint64_t>(size));
      };
      const int64_t h = pick(0, p.H), row = pick(1, p.T), column = pick(2, m.columns()),
                    k = pick(3, makes_weights(p.op) ? p.B * p.D : p.T * p.K);
      if (makes_weights(p.op) && !in_triangle(p, row, column / p.K)) continue;
      const auto [first, last] = tokens_of_row(p, row);
      if (!makes_weights(p.op) && (k / p.K < first || k / p.K >= last)) continue;
      const double product = m.integers.product(0, h, row, column, k),
                   sum = m.integers.sum(0, h, row, column);
      if (product == 0) continue;  // a tap over the border
      ++tried;
      EXPECT_LE(std::fabs(sum), 256) << text;
      const auto stored = [&](double value) { return round_to(dtype, static_cast<float>(value)); };
      seen += stored(sum) != stored(sum - product) ? 1 : 0;
    }
    EXPECT_EQ(seen, tried) << text;
  }
}

// A whole step along k that every output lacks: of 1 to 128 elements, anywhere.
TEST(Integers, AnyLostStepAlongKIsSeen) {
  for (const char* text :
       {"grad_weight,dtype=bf16,B=512,T=2,D=1024", "grad_weight,dtype=bf16,B=4096,T=2,D=128",
        "grad_weight,dtype=bf16,B=16384,T=2,D=32", "gram,dtype=bf16,B=1,T=2,D=65536",
        "forward,dtype=bf16,B=1,T=65536,D=2", "grad_input,dtype=bf16,B=1,T=65536,D=2,fill=upper"}) {
    const Made m(text);
    const Problem& p = m.problem;
    const bool weight = makes_weights(p.op);
    const int64_t depth = weight ? p.B * p.D : p.T, row = p.T - 1;
    for (int64_t step = 1; step <= 128; step *= 2)
      for (int64_t k = 0; k < depth; k += step) {
        double lost = 0;
        for (int64_t i = k; i < k + step; ++i) lost += m.integers.product(0, 0, row, 0, i);
        ASSERT_NE(lost, 0) << text << ": " << step << " from " << k;
      }
  }
}

// Operands cut off to tf32 are 2^-10 too small, which the tolerance of random inputs allows.
TEST(Integers, TellsTf32RoundedFromCutOff) {
  for (const char* text :
       {"forward,dtype=f32,B=1,T=200,D=9,math=tf32", "grad_input,dtype=f32,B=1,T=200,D=9,math=tf32",
        "grad_weight,dtype=f32,B=2,T=20,D=100,math=tf32",
        "forward,dtype=f32,B=1,T=4000,D=2,math=tf32,epilogue=bias+gelu"}) {
    const Made m(text);
    ASSERT_EQ(m.integers.runs(), 2) << text;
    for (int run = 0; run < 2; ++run) {
      CheckResult rounded{.ok = true}, cut{.ok = true};
      m.integers.check(run, outputs_of(m, m.integers.inputs(run)), rounded);
      EXPECT_TRUE(rounded.ok) << text << ": " << rounded.failure;
      m.integers.check(run, outputs_of(m, m.integers.inputs(run), Tf32::kCut), cut);
      EXPECT_FALSE(cut.ok) << text << ", run " << run;
      EXPECT_THAT(cut.failure, HasSubstr("on inputs of small integers "));
    }
    // In one run the one operand shows it, in the other run the other.
    const HostBuffers first = m.integers.inputs(0), second = m.integers.inputs(1);
    EXPECT_NE(first, second) << text;
  }
}

TEST(Integers, SumsThatAreNotExactAreNotChecked) {
  EXPECT_EQ(Made("grad_weight,dtype=bf16,B=8388608,T=1,D=2").integers.runs(), 0);
}

}  // namespace
}  // namespace trigen
