// Outputs with x's shape, from a thread's registers to memory.
#pragma once

#include "epilogue.cuh"
#include "scan/place.cuh"

namespace trigen::scan {

// Addresses of the row that is stored next, in every tensor of Params with outputs' shape. They step on, as the number of
// each row times the stride would be 8 instructions; those that the epilogue does not ask for are nothing. It holds no Place:
// with one NVRTC 12.9 puts the shuffles of States::join_lanes into both sides of a branch.
template <Kernel C>
class Rows {
 public:
  __device__ __forceinline__ Rows(const Place<C>& at, int t0, int first, int direction)
      : p_(at.p), direction_(direction) {
#pragma unroll
    for (int i = 0; i < kTensors; ++i) at_[i] = at.at((&p_.x)[i], t0, first);
  }
  __device__ __forceinline__ Storage<C.shape.dtype>* operator()(const Activations& a) const {
    return at_[&a - &p_.x];
  }
  __device__ __forceinline__ void step() {
#pragma unroll
    for (int i = 0; i < kTensors; ++i) at_[i] += direction_ * (&p_.x)[i].row;
  }

 private:
  static constexpr int kTensors = 5;  // x, y, pre, gate, residual
  const Params& p_;
  const int direction_;
  Storage<C.shape.dtype>* at_[kTensors];
};

// Row r of the thread's outputs, whose first token is t0, where there is one; `rows` steps on.
template <Kernel C>
__device__ __forceinline__ void store_row(const Place<C>& at, int t0, int r, Rows<C>& rows,
                                          float (&v)[C.config.vec_c]) {
  using G = Geometry<C>;
  constexpr Shape s = C.shape;
  const bool token = G::kWholeTokens ? G::kAllSteps || t0 < at.z.T : t0 + (G::kBTD ? r : 0) < at.z.T,
             feature = G::kWholeFeatures || at.feature + (G::kBTD ? 0 : r) < at.z.D;
  const auto* const bias =
      static_cast<const Storage<s.wdtype>*>(at.p.bias) + (static_cast<long long>(at.head) * at.z.T + t0);
  if (token && feature)
    store_outputs<C>(
        at.p, rows, [&](int i) { return to_float<s.wdtype>(bias[G::kBTD ? r : i]); }, v);
  rows.step();
}

// All of a thread's outputs of a step.
template <Kernel C, int kT, int kF>
__device__ __forceinline__ void store_elements(const Place<C>& at, int t0, float (&out)[kT][kF]) {
  Rows<C> rows(at, t0, 0, 1);
  if constexpr (Geometry<C>::kBTD) {
#pragma unroll
    for (int t = 0; t < kT; ++t) store_row(at, t0, t, rows, out[t]);
  } else {
#pragma unroll
    for (int f = 0; f < kF; ++f) {
      float v[kT];
#pragma unroll
      for (int t = 0; t < kT; ++t) v[t] = out[t][f];
      store_row(at, t0, f, rows, v);
    }
  }
}

}  // namespace trigen::scan
