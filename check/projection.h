// Signed sums: a check of every output of a big problem at a small part of the work.
//
// For random signs v, sum_c v_c out[row, c] over a segment of columns must equal the same sum of the
// reference, and the latter needs one product per segment instead of one per column, because the op is linear
// (Freivalds 1977). If every output is off by its own rounding error e_c, the two differ by sum v_c e_c,
// whose mean square is sum e_c^2: so the differences over all segments estimate ||out - ref|| itself, and one
// wrong output stands out in its segment's norm.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "check/tensors.h"
#include "generator/problem.h"

namespace trigen {

class Operands;

class Projection {
 public:
  // Epilogues that are linear in the sums: everything but an activation and a gate.
  static bool applies(const Problem& problem);

  Projection() = default;  // checks nothing
  Projection(const Problem& problem, const TensorList& list, const HostBuffers& inputs);

  bool empty() const { return expected_.empty(); }
  size_t count() const { return expected_.size(); }  // of the sums
  int64_t segment() const { return segment_; }

  struct Result {
    double error = 0;      // estimate of ||out - ref|| / ||out||
    double max_error = 0;  // the largest difference of a segment in units of its limit
    std::string where;     // of that one
  };
  Result check(const HostBuffers& after) const;

 private:
  // Adds columns [first, last) (tokens with all their taps, of grad_weight), times their signs, to
  // q[(k - k0) * stride] for k0 <= k < k1.
  using AddColumns =
      std::function<void(int64_t first, int64_t last, int64_t k0, int64_t k1, double* q, int64_t stride)>;
  // The signed sums of a head's segments of `columns` columns: [t][segment].
  std::vector<double> contract_segments(const Operands& operands, int64_t h, int64_t columns,
                                        const AddColumns& add) const;
  void each_segment(const std::function<void(int64_t row, int64_t segment, double& out)>& body);
  void compute_by_columns(const HostBuffers& inputs);
  void compute_by_tokens(const HostBuffers& inputs);
  // Of grad_weight, the segment of each row that the triangle's border cuts.
  void add_border_segments(const Operands& operands, int64_t h, const AddColumns& add);
  double sign(int64_t column) const;
  // Of one segment of a row of the main output.
  struct Sums {
    double sum = 0;  // signed
    double squares = 0;
    int64_t count = 0;  // elements (for grad_weight those inside the triangle)
  };
  Sums sum_row(const Tensor& tensor, const void* data, int64_t row, int64_t segment) const;

  Problem problem_;
  TensorList list_;
  int64_t segment_ =
      0;  // columns of one segment: of (b, d), or of s (each with all its taps) for grad_weight
  int64_t segments_ = 0;          // per row
  std::vector<double> expected_;  // [h * T + row][segment]
};

}  // namespace trigen
