// The operation in double precision on the CPU: the judge of every kernel.
//
// Small problems are checked in full. Big ones (more than kFullWork multiply-adds) are checked twice over: a
// sample of outputs (first and last rows, both sides of tile borders, first and last columns, random ones;
// fixed seed) element by element, and all outputs at once by random signed sums (check/projection.h) where
// the epilogue is linear. Gradients of vectors and of Toeplitz matrices, which are few, are checked in full always.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "check/projection.h"
#include "check/tensors.h"
#include "generator/problem.h"
#include "numerics/tolerance.h"

namespace trigen {

class Recurrences;

inline constexpr double kFullWork = 1.0e9;  // multiply-adds: about half a second of one core

// The result of a check. Errors are relative; limit and error say which gate was the worst.
struct CheckResult {
  bool ok = false;
  double error = 0;        // ||out - ref|| / ||ref||, the worst of the output tensors
  double tolerance = 0;    // its limit
  double max_error = 0;    // the largest |out - ref| in units of its own limit: over 1 fails
  int64_t checked = 0;     // elements compared one by one
  int64_t outputs = 0;     // elements that the problem writes
  int64_t exact = 0;       // elements compared on inputs of small integers (check/integers.h)
  bool projected = false;  // signed sums over all outputs were compared, too
  std::string failure;     // the first thing that is wrong, with its place; empty when ok
};

struct ReferenceOptions {
  bool full = false;    // element by element whatever it costs
  bool sample = false;  // sample even a small problem
};

class Reference {
 public:
  // Computes the expected values from the inputs, which must outlive the reference. Multithreaded.
  Reference(const Problem& problem, const TensorList& list, const HostBuffers& inputs,
            const ReferenceOptions& options = {});

  // Compares the outputs of one run that started from `inputs` (outputs poisoned): values inside, poison or
  // zeros outside the triangle of dW, poison in gaps between rows.
  CheckResult check(const HostBuffers& after) const;

  // The expected value of sampled element i of a role, for tests: order rows x columns, see rows() and
  // columns().
  const std::vector<double>& expected(Role role) const { return expected_[static_cast<size_t>(role)]; }
  const std::vector<int64_t>& rows() const { return rows_; }  // h * T + t (forward, grad_weight) or h * T + s
  // b * D + d, s * K + j (grad_weight) or a vector; of dx beside vectors b * D + d.
  const std::vector<int64_t>& columns() const { return columns_; }
  const std::vector<int64_t>& columns(const Tensor& output) const;
  bool full() const { return full_; }

 private:
  void choose_samples(const ReferenceOptions& options);
  void compute();
  void multiply();
  void sum_diagonals();
  void evaluate_formula();
  void iterate();
  void recur();
  void recur_columns(const Recurrences& recurrences, const Tensor& output);
  void apply_epilogue();
  void scale();
  void accumulate();
  bool is_output(const Tensor& tensor, int64_t row, int64_t column) const;
  std::vector<double>& values(Role role) { return expected_[static_cast<size_t>(role)]; }

  Problem problem_;
  TensorList list_;
  const HostBuffers* inputs_;
  bool full_ = true;
  std::vector<int64_t> rows_, columns_, columns_beside_;
  std::array<std::vector<double>, kRoles> expected_;  // grad_bias: all h * T + t
  Projection projection_;
};

}  // namespace trigen
