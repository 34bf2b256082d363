// Inputs of small integers: a check of every output of a problem of any size that sees one lost product.
//
// Tolerances for random inputs grow with the length of a sum, so that in a long one a lost product hides
// (numerics/tolerance.h). Here every product is 1, 2, -1 or -2, every sum and every order of summing it is
// exact in f32, and the sums stay so small that 16-bit formats hold them: an output is right in all bits, or
// wrong by the product that it lacks.
//
// The inputs have rank one, so that an output costs a few operations whatever its sum's length:
//   W[h,t,s,j] = r[t] a[s] w[j],  x[b,h,s,d] = p[s] a[s] q[b,d]:
//   y[b,h,t,d] = r[t] (p[0] + ... + p[t]) (sum over j of w[j] q[b,d+j-pad])
// with random signs r, a, q, and likewise for the other ops. p goes up for 128 tokens and down for 128, by
// 1, 1, 1 and -2 in every four: any aligned block of 1 to 128 tokens has a sum that is not 0, so that one left
// out, or added twice, is seen as well. What rank one cannot see, a row taken for another of the same sign, the
// random inputs do.
//
// math=tf32: one operand is 1 + 3 * 2^-12 times as large, the other one in a second run. Rounded to nearest it
// is 1 + 2^-10, cut off it is 1.
// Activations hide what is lost of negative sums: a second run has the other signs, and what is not exact
// after the activation is compared within its approximation.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "check/tensors.h"
#include "generator/problem.h"

namespace trigen {

struct CheckResult;  // check/reference.h

class Integers {
 public:
  Integers(const Problem& problem, const TensorList& list);

  // Runs that check the whole problem, each with inputs of its own. 0: sums of so many products are not exact.
  int runs() const { return runs_; }
  // Those of a run; what no kernel may read is poisoned.
  HostBuffers inputs(int run) const;
  // Compares all outputs, and adds what it finds to `result`.
  void check(int run, const HostBuffers& after, CheckResult& result) const;

  // For tests: the sum that an output is made of (row and column as in Operands), and its product at k.
  double sum(int run, int64_t h, int64_t row, int64_t column) const;
  double product(int run, int64_t h, int64_t row, int64_t column, int64_t k) const;

 private:
  void make_tokens();
  void make_features();
  void make_correlations();
  double weight(int run, int64_t h, int64_t t, int64_t s, int64_t j) const;
  double activation(int run, Role role, int64_t b, int64_t h, int64_t token, int64_t feature) const;
  double added(Role role, int64_t index) const;  // of bias, residual, gate, and what dW is added to
  double flip(int run) const;
  double longer(int run, bool first_operand) const;
  void check_bias(const Tensor& bias, const std::byte* data, CheckResult& result) const;

  Problem problem_;
  TensorList list_;
  int runs_ = 1;
  bool rounds_ = false;                          // tf32: operands need rounding
  std::vector<int8_t> row_, other_;              // r and a: signs [h * T + t]
  std::vector<int8_t> step_;                     // p [h * T + t]
  std::vector<int32_t> prefix_;                  // its sums [h * (T + 1) + t]
  std::vector<int8_t> tap_;                      // w
  std::vector<int8_t> feature_, other_feature_;  // q; grad_weight: dy's, x's [h * B * D + b * D + d]
  std::vector<int32_t> wide_;                    // q's sums over taps
  std::vector<int64_t> correlation_;             // sums of grad_weight [h * K + j]
  std::vector<int64_t> bias_;                    // sums of dy [h]
};

}  // namespace trigen
