// grad_weight's outputs through shared memory and TMA.
#pragma once

#include "persistent/output_panels.cuh"
#include "persistent/weight_geometry.cuh"
#include "persistent/weight_store.cuh"

namespace trigen::persistent::weight {

// Stages 32 columns of f32, whose 16 sums a thread begin at `sum`, and stores them. keep(row, column): false
// for an element that becomes zero. Odd rows store their groups of 8 columns in another order, so that 16
// lanes reach every bank once. (The sums are moved first: stored from where they are, ptxas runs the products
// one after the other, C7520.)
template <Kernel C, class Output, class Keep>
__device__ __forceinline__ void store_f32(Output& output, const float* sum, const TensorMap& map, int c0,
                                          int c1, int c3, const Keep& keep) {
  const unsigned lane = threadIdx.x % 32, row = threadIdx.x / 32 % 4 * 16 + lane / 4;
  const unsigned target = output.claim();
  const bool odd = row & 1;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const unsigned group = odd ? j ^ 2 : j;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      unsigned v[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        unsigned here, there;
        asm volatile("mov.b32 %0, %1;" : "=r"(here) : "f"(sum[4 * j + 2 * i + e]));
        asm volatile("mov.b32 %0, %1;" : "=r"(there) : "f"(sum[4 * (j ^ 2) + 2 * i + e]));
        const bool kept = keep(static_cast<int>(row) + 8 * i, static_cast<int>(8 * group + lane % 4 * 2) + e);
        v[e] = !kept ? 0u : odd ? there : here;
      }
      // 128-byte swizzle: 16-byte chunk ^ row % 8.
      const unsigned chunk = (2 * group + lane % 4 / 2) ^ (row & 7);
      ptx::store_shared<8>(target + (row + 8 * i) * 128 + (chunk << 4) + lane % 2 * 8, v);
    }
  }
  output.send(map, target, c0, c1, 0, c3);
}

// 64 rows and columns of dW from (row, column) on, whose 32 sums a thread begin at `sum`. A panel inside the
// triangle needs no mask, and one with zeros outside writes every element: they go out through shared memory
// and TMA.
template <Kernel C>
inline constexpr bool kStagedOutput = !C.shape.accumulate && kTaps<C> == 1 && C.config.vec_c == 8 &&
                                      (C.shape.op != Op::kGram || C.shape.wdtype != DType::kF32);
template <Kernel C, class Output>
__device__ __forceinline__ void store_panel(const Params& p, Output& output, const float* sum,
                                            const TensorMap& map, int head, int tap, int tokens, int diag,
                                            int row, int column) {
  constexpr Shape s = C.shape;
  constexpr bool kStaged = kStagedOutput<C>;
  const bool inside = s.fill == Fill::kLower ? column + 63 <= row + diag : column >= row + 63 + diag;
  const int lane = static_cast<int>(threadIdx.x % 32),
            own = static_cast<int>(threadIdx.x / 32 % 4 * 16) + lane / 4;
  const auto keeps = [&](int own_row, int own_column) {
    return !s.zero_outside || inside || in_triangle<C>(row + own_row, column + own_column, diag);
  };
  // gram's triangle begins at the diagonal: a panel lies inside, outside or around it.
  constexpr bool kSymmetric = kStaged && s.mirror && s.wdtype != DType::kF32;
  if (kSymmetric && !inside && row != column) return;
  if (kStaged && (inside || s.zero_outside || kSymmetric)) {
    if constexpr (s.wdtype == DType::kF32) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        store_f32<C>(output, sum + 16 * i, map, column + 32 * i, row, head,
                     [&](int r, int c) { return keeps(r, 32 * i + c); });
    } else if constexpr (s.op == Op::kGram) {
      const int first = column + lane % 4 * 2;  // the thread's first column
      const gram::PanelOfC<C> addend(p, head, row + own, first, tokens);
      const MappedMatrix to = mapped_output<C>(p, head);
      const auto finish = [&](const float* v, int c, unsigned(&r)[2]) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float v0 = v[2 * j], v1 = v[2 * j + 1];
          addend.values(p, row + own, first, c / 8, j, v0, v1);
          r[j] = pack<s.dtype>(v0, v1);
        }
      };
      if constexpr (!kSymmetric)
        output.store(sum, map, column, row, to.c2, to.c3, finish);
      else if (inside)
        output.store_mirrored(sum, map, column, row, to.c2, to.c3, finish);
      else
        output.template store_symmetric<s.fill == Fill::kLower>(sum, map, column, row, to.c2, to.c3, finish);
    } else {
      output.store(sum, map, column, row, 0, head, [&](const float* v, int c, unsigned(&r)[2]) {
#pragma unroll
        for (int j = 0; j < 2; ++j)
          r[j] = pack<s.dtype>(keeps(own + 8 * j, c) ? v[2 * j] : 0.0f,
                               keeps(own + 8 * j, c + 1) ? v[2 * j + 1] : 0.0f);
      });
    }
  } else {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int c = column + 8 * i + lane % 4 * 2;
      write_pair<C>(p, head, tap, tokens, diag, row + own, c, sum[4 * i], sum[4 * i + 1]);
      write_pair<C>(p, head, tap, tokens, diag, row + own + 8, c, sum[4 * i + 2], sum[4 * i + 3]);
    }
  }
}

}  // namespace trigen::persistent::weight
