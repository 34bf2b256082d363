// Family grad_epilogue: the step of a backward pass from dy to the operand of its products. dz = dy * gate *
// act'(pre) and grad_gate = dy * act(pre), in f32, each rounded once; every tensor passes memory once. Every
// target, every dtype.
//
// A NaN or an infinity of dy, gate or pre reaches the outputs of its own element alone. act'(+-inf) is NaN, as
// in PyTorch: v times the density, or v times (1 - sigmoid), is inf * 0.
#pragma once

#include "grad_epilogue.h"
#include "operand.cuh"
#include "ptx/approximate.cuh"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "types.cuh"

namespace trigen::grad_epilogue {

struct Activated {
  float value, slope;  // act(v), act'(v)
};

// Both share their exponential. GELU (erf form): Phi(v) by Abramowitz and Stegun 7.1.26 on the side where
// erfc is small: act' = Phi + v * density. Errors are around f32's last bits
// of 1 (tests/python/test_cuda_path.py), absolute: act' crosses zero.
template <Activation A>
__device__ __forceinline__ Activated activated(float v) {
  constexpr float kLog2E = 1.4426950408889634f;
  if constexpr (A == Activation::kGELU) {
    const float t = ptx::reciprocal_approx(fmaf(0.23164190f, fabsf(v), 1.0f));  // 0.3275911 / sqrt(2)
    const float bell = ptx::exp2_approx(-0.5f * kLog2E * v * v);
    float tail = fmaf(1.061405429f, t, -1.453152027f);
    tail = fmaf(tail, t, 1.421413741f);
    tail = fmaf(tail, t, -0.284496736f);
    tail = fmaf(tail, t, 0.254829592f);
    tail *= 0.5f * t * bell;
    const float below = v < 0.0f ? tail : 1.0f - tail;  // Phi(v)
    return {v * below, fmaf(0.39894228040143268f * v, bell, below)};
  } else if constexpr (A == Activation::kSiLU) {
    const float sigmoid = ptx::reciprocal_approx(1.0f + ptx::exp2_approx(-kLog2E * v));
    return {v * sigmoid, sigmoid * fmaf(v, 1.0f - sigmoid, 1.0f)};
  } else {
    return {v, 1.0f};
  }
}

// A vector's offset in each tensor.
struct Place {
  long long batch, head, row, column;
  template <DType kType>
  __device__ __forceinline__ Storage<kType>* in(const Activations& t) const {
    return static_cast<Storage<kType>*>(t.data) + (batch * t.batch + head * t.head + row * t.row + column);
  }
};

template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  constexpr Shape s = C.shape;
  constexpr Config c = C.config;
  constexpr DType kD = s.dtype;
  constexpr int kVec = c.vec_b, kSize = kVec * kBytes<kD>, kThreads = threads(c), kEach = c.stages;
  static_assert(s.op == Op::kGradEpilogue, "this family makes grad_epilogue only");
  static_assert(c.vec_c == kVec, "a thread writes what it has read");
#if __CUDA_ARCH__ >= 900
  ptx::wait_for_launches_before();
  ptx::let_next_launch_start();
#endif
  const Sizes z = sizes_of<C>(p);
  const int row_count = rows(s.layout, z), across = row_vectors(s.layout, c, z),
            each = static_cast<int>(blocks(s.layout, c, z)), both = static_cast<int>(blockIdx.x) / each;
  const long long first =
                      static_cast<long long>(static_cast<int>(blockIdx.x) - both * each) * block_vectors(c),
                  first_row = first / across;
  const int begin = static_cast<int>(first - first_row * across) + static_cast<int>(threadIdx.x);
  Place place[kEach];
  Raw<kD, kVec> dy[kEach], pre[kEach], gate[kEach];
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int at = begin + i * kThreads, down = at / across;
    place[i] = {both / z.H, both % z.H, first_row + down, static_cast<long long>(at - down * across) * kVec};
    if (place[i].row >= row_count) continue;
    ptx::load_global<kSize>(dy[i].w, place[i].template in<kD>(p.y));
    ptx::load_global<kSize>(pre[i].w, place[i].template in<kD>(p.pre));
    if constexpr (s.gate) ptx::load_global<kSize>(gate[i].w, place[i].template in<kD>(p.gate));
  }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (place[i].row >= row_count) continue;
    float dz[kVec], grad_gate[kVec];
#pragma unroll
    for (int j = 0; j < kVec; ++j) {
      const float outer = to_float<kD>(dy[i].get(j));
      const Activated a = activated<s.act>(to_float<kD>(pre[i].get(j)));
      dz[j] = outer * a.slope;
      if constexpr (s.gate) dz[j] *= to_float<kD>(gate[i].get(j));
      grad_gate[j] = outer * a.value;
    }
    Raw<kD, kVec> out;
    out.from_floats(dz);
    ptx::store_global<kSize>(place[i].template in<kD>(p.x), out.w);
    if constexpr (s.gate) {
      out.from_floats(grad_gate);
      ptx::store_global<kSize>(place[i].template in<kD>(p.residual), out.w);
    }
  }
}

}  // namespace trigen::grad_epilogue
