// Outputs of a problem from inputs that repeat: a few ones of a problem of any size, without memory or time of its
// size, or all of a small one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "numerics/formula.h"

namespace trigen {

// Random inputs whose elements repeat with a period: element i of a tensor's buffer, gaps and the weights'
// other triangle included, is value(role, i % period). The periods are primes, so that neither a row nor a
// head of usual sizes begins where another one does.
//
// Inputs. Of 16 bits or rounded to tf32 they are integers times one power of two, so small that sums are
// exact in f32 in any order, and so large that most outputs need the one rounding to their format.
class PeriodicInputs {
 public:
  PeriodicInputs(const Problem& problem, const TensorList& list);
  bool exact() const { return exact_; }
  int64_t period(Role role) const { return static_cast<int64_t>(values_[at(role)].size()); }
  double value(Role role, int64_t index) const {
    return values_[at(role)][static_cast<size_t>(index % period(role))];
  }
  const std::vector<double>& values(Role role) const { return values_[at(role)]; }  // one period
  // One period as it is stored.
  const std::vector<std::byte>& bytes(Role role) const { return bytes_[at(role)]; }

 private:
  static size_t at(Role role) { return static_cast<size_t>(role); }
  bool exact_;
  std::vector<double> values_[kRoles];
  std::vector<std::byte> bytes_[kRoles];
};

std::string to_string(const Problem& problem, const OutputPlace& place);

OutputValues expected_output(const Problem& problem, const TensorList& list, const PeriodicInputs& inputs,
                             const OutputPlace& place);

// Of several places: newton_schulz makes each matrix once.
std::vector<OutputValues> expected_outputs(const Problem& problem, const TensorList& list,
                                           const PeriodicInputs& inputs, llvm::ArrayRef<OutputPlace> places);

// All outputs, where these are few enough: a row at a time, with loops along memory. 2^27 products of integers take
// 10 to 20 ms.
class ExpectedOutputs {
 public:
  static bool takes(const Problem& problem, const TensorList& list);
  ExpectedOutputs(const Problem& problem, const TensorList& list, const PeriodicInputs& inputs);
  // Calls `use` for every output inside the triangle.
  void each(llvm::function_ref<void(const OutputPlace&, const OutputValues&)> use) const;
  // grad_bias of a row, which has one even where no element of dW is in the triangle.
  double bias(int64_t h, int64_t t) const;

 private:
  template <class Real>
  void add_up();

  const Problem& problem_;
  const TensorList& list_;
  const PeriodicInputs& inputs_;
  int64_t columns_ = 0;              // output_columns
  std::vector<double> sums_, bias_;  // [h][row of list.rows][column]; [h][row]
};

// Up to `count` places inside the triangle: both ends of every axis, both sides of tiles' borders, the rest
// spread over all; the same on every call.
std::vector<OutputPlace> sample_places(const Problem& problem, const TensorList& list, int count);

}  // namespace trigen
