// Storage types of the dtypes, and raw words as they travel between global memory, registers and shared
// memory; and which form W has.
#pragma once

#include "config.h"
#include "ptx/convert.cuh"

namespace trigen {

template <Kernel C>
inline constexpr bool kDense = C.shape.w == WeightForm::kDense;
template <Kernel C>
inline constexpr bool kBand = C.shape.w == WeightForm::kBand;

template <DType D>
struct StorageOf {
  using type = unsigned short;
};
template <>
struct StorageOf<DType::kF32> {
  using type = float;
};
template <DType D>
using Storage = typename StorageOf<D>::type;
template <DType D>
inline constexpr int kBytes = static_cast<int>(sizeof(Storage<D>));

template <DType D>
__device__ __forceinline__ float to_float(Storage<D> v) {
  if constexpr (D == DType::kF16) return ptx::f16_to_f32(v);
  if constexpr (D == DType::kBF16) return ptx::bf16_to_f32(v);
  if constexpr (D == DType::kF32) return v;
}
template <DType D>
__device__ __forceinline__ Storage<D> from_float(float v) {
  if constexpr (D == DType::kF16) return ptx::f32_to_f16(v);
  if constexpr (D == DType::kBF16) return ptx::f32_to_bf16(v);
  if constexpr (D == DType::kF32) return v;
}

// Two values as one word of 16-bit elements.
template <DType kType>
__device__ __forceinline__ unsigned pack(float low, float high) {
  return kType == DType::kBF16 ? ptx::f32x2_to_bf16x2(low, high) : ptx::f32x2_to_f16x2(low, high);
}

// N elements of one dtype as 32-bit words (a lone 16-bit element sits in the low half of one).
template <DType D, int N>
struct Raw {
  static constexpr int kSize = N * kBytes<D>;
  static constexpr int kWords = kSize < 4 ? 1 : kSize / 4;
  unsigned w[kWords];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kWords; ++i) w[i] = 0;
  }
  __device__ __forceinline__ Storage<D> get(int i) const {
    if constexpr (D == DType::kF32)
      return __uint_as_float(w[i]);
    else
      return static_cast<unsigned short>(w[i / 2] >> (16 * (i & 1)));
  }
  __device__ __forceinline__ void set(int i, Storage<D> v) {
    if constexpr (D == DType::kF32)
      w[i] = __float_as_uint(v);
    else if (i & 1)
      w[i / 2] = (w[i / 2] & 0xffffu) | (static_cast<unsigned>(v) << 16);
    else
      w[i / 2] = (w[i / 2] & 0xffff0000u) | v;
  }
  // Zeroes the elements outside [begin, end).
  __device__ __forceinline__ void keep(int begin, int end) {
#pragma unroll
    for (int i = 0; i < N; ++i)
      if (i < begin || i >= end) set(i, Storage<D>{});
  }
  __device__ __forceinline__ void from_floats(const float (&v)[N]) {
    if constexpr (D != DType::kF32 && N % 2 == 0) {
#pragma unroll
      for (int i = 0; i < N / 2; ++i)
        w[i] = D == DType::kF16 ? ptx::f32x2_to_f16x2(v[2 * i], v[2 * i + 1])
                                : ptx::f32x2_to_bf16x2(v[2 * i], v[2 * i + 1]);
    } else {
      clear();
#pragma unroll
      for (int i = 0; i < N; ++i) set(i, from_float<D>(v[i]));
    }
  }
};

// In loads of 16 bytes where these are whole ones.
template <int kVec>
__device__ __forceinline__ void read_floats(float (&v)[kVec], const float* from) {
  if constexpr (kVec % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kVec / 4; ++i) {
      const float4 w = reinterpret_cast<const float4*>(from)[i];
      v[4 * i] = w.x, v[4 * i + 1] = w.y, v[4 * i + 2] = w.z, v[4 * i + 3] = w.w;
    }
  } else {
#pragma unroll
    for (int i = 0; i < kVec; ++i) v[i] = from[i];
  }
}

}  // namespace trigen
