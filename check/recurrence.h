// Products with a W that is vectors (scan and its derivatives, generator/ops.def) as recurrences in double precision.
#pragma once

#include <cstdint>
#include <vector>

#include "check/tensors.h"
#include "generator/problem.h"

namespace trigen {

class Recurrences {
 public:
  Recurrences(const Problem& problem, const TensorList& list, const HostBuffers& inputs);
  // The T sums of head h's column b * D + d: scan's y without an epilogue, else dx.
  std::vector<double> column(int64_t h, int64_t column) const;
  // scan_grad_weight: the sums [h][t][vector, then grad_bias]. Multithreaded.
  std::vector<double> gradients() const;

 private:
  struct Data {
    const Tensor* tensor = nullptr;
    const std::byte* data = nullptr;
  };
  Data data(Role role) const;
  std::vector<double> elements(const Data& from, int64_t h, int64_t column) const;
  const double* vector(int64_t h, int i) const;

  const Problem& problem_;
  const TensorList& list_;
  const HostBuffers& inputs_;
  std::vector<double> vectors_;  // [h][i][t]
  std::vector<bool> clipped_;    // decays [h][t]
};

}  // namespace trigen
