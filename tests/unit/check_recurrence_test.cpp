// What the gate sees of a recurrence over 16384 tokens: a kernel's faults, made here in double precision.
#include "check/recurrence.h"

#include <gmock/gmock.h>

#include "check/reference.h"
#include "numerics/numbers.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

constexpr int64_t kT = 16384;

struct Fault {
  enum Kind {
    kNone,
    kLost,       // token `at` does not reach the state
    kDoubled,    // it reaches it twice
    kNoCarry,    // the state before token `at` is 0
    kSkipped,    // that before the `chunk` of tokens that token `at` follows
    kUndecayed,  // as without the decays of the chunk that begins at token `at`
    kShifted,    // tokens from `at` on have their neighbour's decay
    kMoved,      // outputs of the chunk that begins at token `at` see the state behind their token
  } kind = kNone;
  int64_t at = 0, chunk = kT;
};

// As a kernel walks: `i` counts tokens in the direction of time. Calls use(t, state before it) for each.
template <class Use>
void walk(bool backward, const Fault& fault, const double* decay, const std::vector<double>& writes,
          bool decays_own, const Use& use) {
  double state = 0, chunk_before = 0;
  for (int64_t i = 0; i < kT; ++i) {
    const int64_t t = backward ? kT - 1 - i : i;
    if (fault.kind == Fault::kSkipped && i == fault.at - fault.chunk) chunk_before = state;
    if (fault.kind == Fault::kSkipped && i == fault.at) state = chunk_before;
    if (fault.kind == Fault::kNoCarry && i == fault.at) state = 0;
    const double before = state;
    double keep = decay[t], write = writes[static_cast<size_t>(t)];
    const bool inside = i >= fault.at && i < fault.at + fault.chunk;
    if (fault.kind == Fault::kShifted && inside) keep = decay[std::max<int64_t>(1, t - 1)];
    if (fault.kind == Fault::kUndecayed && inside) keep = 1;
    if (fault.kind == Fault::kLost && i == fault.at) write = 0;
    if (fault.kind == Fault::kDoubled && i == fault.at) write *= 2;
    state = decays_own ? keep * (state + write) : keep * state + write;
    use(t, fault.kind == Fault::kMoved && inside ? state : before);
  }
}

// A problem's outputs as a kernel with a fault in one direction of time leaves them; beside vectors dx alone has it.
class Faulty {
 public:
  explicit Faulty(const std::string& text)
      : problem_(llvm::cantFail(parse_problem(text))),
        list_(tensors_of(problem_)),
        inputs_(make_inputs(problem_, list_, 7)) {}
  const Problem& problem() const { return problem_; }
  Reference reference(bool sample) const {
    ReferenceOptions options;
    options.sample = sample;
    return Reference(problem_, list_, inputs_, options);
  }

  HostBuffers outputs(const Fault& forward, const Fault& backward) const {
    HostBuffers out = inputs_;
    const Problem& p = problem_;
    std::vector<double> vectors;  // [i][t]
    const Tensor& w = *list_.find(Role::kW);
    for (int64_t i = 0; i < scan::kVectors; ++i)
      for (int64_t t = 0; t < kT; ++t)
        vectors.push_back(i == scan::kDecay && t == 0
                              ? 0
                              : vector_of(w.vectors, static_cast<scan::Vector>(i), [&](scan::Vector j) {
                                  return load_element(w.dtype, data_of(list_, w, inputs_),
                                                      vector_index(w, 0, j, t));
                                }));
    const auto vector = [&](scan::Vector i) { return &vectors[static_cast<size_t>(i * kT)]; };
    const double *source = vector(scan::kSource), *target = vector(scan::kTarget),
                 *decay = vector(scan::kDecay), *diagonal = vector(scan::kDiagonal);
    std::vector<double> sums(static_cast<size_t>(scan::kVectors * kT));
    for (int64_t column = 0; column < p.B * p.D; ++column) {
      std::vector<double> x, dy, before(kT), behind(kT), of_dx(kT);
      if (p.op != Op::kScanGradInput) x = elements(Role::kX, column);
      if (p.op != Op::kScan) dy = elements(Role::kY, column);
      const auto times = [&](const double* by, const std::vector<double>& values) {
        std::vector<double> product(values);
        for (int64_t t = 0; t < kT && !values.empty(); ++t) product[static_cast<size_t>(t)] *= by[t];
        return product;
      };
      if (!x.empty())
        walk(false, forward, decay, times(source, x), false,
             [&](int64_t t, double state) { before[static_cast<size_t>(t)] = state; });
      if (!dy.empty())
        walk(true, p.epilogue.grad_input ? Fault{} : backward, decay, times(target, dy), true,
             [&](int64_t t, double state) { behind[static_cast<size_t>(t)] = state; });
      if (p.epilogue.grad_input)
        walk(true, backward, decay, times(target, dy), true,
             [&](int64_t t, double state) { of_dx[static_cast<size_t>(t)] = state; });
      for (int64_t t = 0; t < kT; ++t) {
        const auto at = static_cast<size_t>(t);
        if (p.op == Op::kScan) {
          store(out, Role::kY, t, column, target[t] * decay[t] * before[at] + diagonal[t] * x[at]);
        } else if (p.op == Op::kScanGradInput) {
          store(out, Role::kX, t, column, source[t] * behind[at] + diagonal[t] * dy[at]);
        } else {
          sums[static_cast<size_t>(scan::kSource * kT) + at] += x[at] * behind[at];
          sums[static_cast<size_t>(scan::kTarget * kT) + at] += dy[at] * decay[t] * before[at];
          sums[static_cast<size_t>(scan::kDecay * kT) + at] += (behind[at] + target[t] * dy[at]) * before[at];
          sums[static_cast<size_t>(scan::kDiagonal * kT) + at] += dy[at] * x[at];
          if (p.epilogue.grad_input)
            store(out, Role::kPre, t, column, source[t] * of_dx[at] + diagonal[t] * dy[at]);
        }
      }
    }
    for (int64_t t = 0; t < kT && makes_vectors(p.op); ++t) {
      const auto sum = [&](int i) -> double& { return sums[static_cast<size_t>(i * kT + t)]; };
      if (!w.vectors.of[scan::kDiagonal].given) {
        sum(scan::kSource) += target[t] * sum(scan::kDiagonal);
        sum(scan::kTarget) += source[t] * sum(scan::kDiagonal);
      }
      if (t > 0 && w.vectors.is_clipped(load_element(w.dtype, data_of(list_, w, inputs_),
                                                     vector_index(w, 0, scan::kDecay, t))))
        sum(scan::kDecay) = 0;
    }
    if (makes_vectors(p.op))
      for (int64_t i = 0; i < scan::kVectors; ++i)
        for (int64_t t = 0; t < kT; ++t)
          store(out, list_.output().role, t, i, sums[static_cast<size_t>(i * kT + t)]);
    return out;
  }

 private:
  std::vector<double> elements(Role role, int64_t column) const {
    const Tensor& tensor = *list_.find(role);
    std::vector<double> out;
    for (int64_t t = 0; t < kT; ++t)
      out.push_back(
          load_element(tensor.dtype, data_of(list_, tensor, inputs_),
                       activation_index(problem_, tensor, column / problem_.D, 0, t, column % problem_.D)));
    return out;
  }
  void store(HostBuffers& out, Role role, int64_t row, int64_t column, double value) const {
    const Tensor& tensor = *list_.find(role);
    std::byte* data = out[static_cast<size_t>(&tensor - list_.tensors.data())].data() + tensor.offset_bytes;
    store_element(tensor.dtype, data, output_index(problem_, tensor, row, column), static_cast<float>(value));
  }

  Problem problem_;
  TensorList list_;
  HostBuffers inputs_;
};

// Every kind of fault, at tokens on both sides of a chunk's border, near both ends and in between.
std::vector<Fault> faults() {
  std::vector<Fault> all;
  for (const Fault::Kind kind : {Fault::kLost, Fault::kDoubled})
    for (const int64_t at : {0L, 1L, 63L, 64L, 4095L, 8191L, 8192L, 12345L, 16127L, 16128L, kT - 3})
      all.push_back({kind, at});
  for (const Fault::Kind kind : {Fault::kNoCarry, Fault::kSkipped, Fault::kUndecayed, Fault::kShifted})
    for (const int64_t chunk : {8L, 64L, 256L, 1024L})
      for (const int64_t place : {int64_t{1}, kT / chunk / 2, kT / chunk - 1})
        all.push_back({kind, place * chunk, chunk});
  all.push_back({Fault::kShifted, 0});
  all.push_back({Fault::kMoved, 0});
  return all;
}
std::string name(const Fault& f, bool backward) {
  constexpr const char* kNames[] = {"none",    "lost token",      "doubled token",  "no carry",
                                    "skipped", "undecayed chunk", "shifted decays", "moved outputs"};
  return std::string(kNames[f.kind]) + " at " + std::to_string(f.at) + " of " + std::to_string(f.chunk) +
         (backward ? ", backward" : ", forward");
}

class Gate : public testing::TestWithParam<std::string> {};

TEST_P(Gate, SeesOneFaultOfTheStateAnywhere) {
  TAKES_ONE_OF(2);
  const Faulty kernel(GetParam());
  const Op op = kernel.problem().op;
  const HostBuffers right = kernel.outputs({}, {});
  for (const bool sample : {false, true}) {
    if (sample && makes_vectors(op)) continue;  // always checked in full
    const Reference reference = kernel.reference(sample);
    ASSERT_EQ(reference.full(), !sample);
    const CheckResult good = reference.check(right);
    EXPECT_TRUE(good.ok) << good.failure;
    for (const bool backward : {false, true}) {
      const bool dx = op == Op::kScanGradInput || kernel.problem().epilogue.grad_input;
      if (backward ? op == Op::kScan : dx) continue;
      for (const Fault& fault : faults()) {
        const CheckResult bad =
            reference.check(backward ? kernel.outputs({}, fault) : kernel.outputs(fault, {}));
        EXPECT_FALSE(bad.ok) << name(fault, backward) << (sample ? ", sampled" : "") << ": worst "
                             << bad.max_error;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Recurrence, Gate,
                         testing::Values("scan,dtype=bf16,B=1,T=16384,D=6,wdtype=f32",
                                         "scan,dtype=f16,B=2,T=16384,D=3",
                                         "scan_grad_input,dtype=bf16,B=1,T=16384,D=6,wdtype=f32",
                                         "scan_grad_weight,dtype=bf16,B=1,T=16384,D=6,wdtype=f32",
                                         "scan_grad_weight,dtype=f16,B=2,T=16384,D=3",
                                         "scan_grad_weight,dtype=bf16,B=1,T=16384,D=6,wdtype=f32,"
                                         "epilogue=grad_input"),
                         [](const auto& info) { return std::to_string(info.index); });

}  // namespace
}  // namespace trigen
