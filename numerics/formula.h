// Ops that are no product with a matrix, by their formula (generator/ops.def): one output at a time, in double precision.
// newton_schulz makes a matrix at a time (numerics/newton_schulz.h).
// An input's place is that of the element: (b, h, token, d), of a bias (h, token), of vectors (h, token, which).
#pragma once

#include <array>

#include "llvm/ADT/STLFunctionalExtras.h"
#include "numerics/tensors.h"

namespace trigen {

// An output: (b, h, row, column d), of dW (h, row t, column s * K + j), of vectors (h, row t, column: which one).
struct OutputPlace {
  int64_t b = 0, h = 0, row = 0, column = 0;
  bool beside = false;  // of dx beside vectors
};

// The values that belong to one place, by the role of the tensor that they are written to.
struct OutputValues {
  std::array<double, kRoles> by_role = {};
  double& operator[](Role role) { return by_role[static_cast<size_t>(role)]; }
  double operator[](Role role) const { return by_role[static_cast<size_t>(role)]; }
};

using InputReader = llvm::function_ref<double(Role role, const OutputPlace& place)>;
OutputValues evaluate(const Problem& problem, const OutputPlace& place, InputReader read);

}  // namespace trigen
