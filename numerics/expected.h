// One output of a problem at a time, in double precision, from inputs that repeat: what a few outputs of a
// problem of any size must be, without memory or time of its size.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "numerics/tensors.h"

namespace trigen {

// Random inputs whose elements repeat with a period: element i of a tensor's buffer, gaps and the weights'
// other triangle included, is value(role, i % period). The periods are primes, so that neither a row nor a
// head of usual sizes begins where another one does.
class PeriodicInputs {
 public:
  PeriodicInputs(const Problem& problem, const TensorList& list);
  int64_t period(Role role) const { return static_cast<int64_t>(values_[at(role)].size()); }
  double value(Role role, int64_t index) const {
    return values_[at(role)][static_cast<size_t>(index % period(role))];
  }
  const std::vector<double>& values(Role role) const { return values_[at(role)]; }  // one period
  // One period as it is stored.
  const std::vector<std::byte>& bytes(Role role) const { return bytes_[at(role)]; }

 private:
  static constexpr size_t kRoles = 7;
  static size_t at(Role role) { return static_cast<size_t>(role); }
  std::vector<double> values_[kRoles];
  std::vector<std::byte> bytes_[kRoles];
};

// An output: forward, decode, grad_input, grad_epilogue (b, h, row, column d), grad_weight (h, row t, column s * K + j).
struct OutputPlace {
  int64_t b = 0, h = 0, row = 0, column = 0;
};
std::string to_string(const Problem& problem, const OutputPlace& place);

struct ExpectedOutput {
  double value = 0;  // y, dx, dW or dz
  double pre = 0;    // before the activation
  double bias = 0;   // grad_weight: grad_bias of the row
  double gate = 0;   // grad_epilogue: grad_gate
};
ExpectedOutput expected_output(const Problem& problem, const TensorList& list, const PeriodicInputs& inputs,
                               const OutputPlace& place);

// Up to `count` places inside the triangle: both ends of every axis, both sides of tiles' borders, the rest
// spread over all; the same on every call.
std::vector<OutputPlace> sample_places(const Problem& problem, const TensorList& list, int count);

}  // namespace trigen
