// The engine of the families whose fragments are those of m16n8: A as 16x16 (16-bit) or 16x8 (tf32), B as two
// columns of 8. Used by mma_sm75 (m16n8k8, copies through registers) and mma_sm80 (m16n8k16, tf32 m16n8k8,
// cp.async).
//
// Fragments come by ldmatrix, transposed where the operand's contiguous axis is not k. A tf32 element is two
// 16-bit pieces to ldmatrix, so tf32 with k contiguous uses the same addresses as 16-bit data of twice the
// depth; with m or n contiguous it is read word by word.
#pragma once

#include "gemm.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/mma_sm75.cuh"
#include "ptx/mma_sm80.cuh"
#include "reduce.cuh"
#include "swizzle.cuh"

namespace trigen {

template <Kernel C, bool kSm80>
class LdmatrixEngine {
  static constexpr Config c = C.config;
  static constexpr bool kTF32 = C.shape.dtype == DType::kF32;
  static constexpr int kElement = kBytes<C.shape.dtype>;
  static constexpr int kStepK = 32 / kElement;  // depth of one fragment step
  static constexpr int kWarpM = c.tile_m / c.warps_m, kWarpN = c.tile_n / c.warps_n;
  static constexpr int kFragmentsM = kWarpM / 16, kFragmentsN = kWarpN / 8;
  static constexpr bool kAlongKA = OperandA<C>::kContiguousIsK, kAlongKB = OperandB<C>::kContiguousIsK;
  static_assert(kSm80 || C.shape.dtype == DType::kF16, "sm_75 multiplies f16 only");
  static_assert(!kTF32 || C.shape.math == Math::kTF32, "f32 data goes to tensor cores as tf32 only");
  static_assert(c.tile_m % (16 * c.warps_m) == 0, "a warp's rows are a multiple of 16");
  static_assert(c.tile_n % (16 * c.warps_n) == 0,
                "a warp's columns are a multiple of 16: ldmatrix fetches two pairs of 8");
  static_assert(c.tile_k % (2 * kStepK) == 0, "tile_k is an even number of fragment steps");

  template <class Operand>
  static constexpr bool kCopies = (kSm80) && (Operand::kDType == C.shape.dtype) &&
                                  (kElement * Operand::kVec >= 4) && (!Operand::kCutsVectors) &&
                                  (Operand::kTapsTogether == 1);

 public:
  static constexpr DType kSharedDType = C.shape.dtype;
  static constexpr bool kAsyncA = kCopies<OperandA<C>>, kAsyncB = kCopies<OperandB<C>>;
  static constexpr int kSteps = c.tile_k / kStepK;
  using LayoutA = Swizzle<kAlongKA ? c.tile_m : c.tile_k, kAlongKA ? c.tile_k : c.tile_m, kElement, kAlongKA>;
  using LayoutB = Swizzle<kAlongKB ? c.tile_n : c.tile_k, kAlongKB ? c.tile_k : c.tile_n, kElement, kAlongKB>;
  static constexpr schedule::Footprint kFootprint = schedule::mma_footprint(C.shape, c);
  static constexpr int kSliceRows = kFootprint.slice_rows;

  struct Fragment {
    unsigned a[kFragmentsM][4];
    unsigned b[kFragmentsN][2];
  };
  struct Accumulator {
    float v[kFragmentsM][kFragmentsN][4];
    float rows[kFragmentsM][4];  // sums of A's rows, the same in all 8 columns
    __device__ __forceinline__ void clear() {
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          rows[i][e] = 0.0f;
#pragma unroll
          for (int j = 0; j < kFragmentsN; ++j) v[i][j][e] = 0.0f;
        }
    }
  };

  // One address per operand. Fragments that lie across the XORed chunks are reached by flipping bits: i
  // fragments further is 32 * i bytes further along a row, and those bits are zero in everything that is
  // added to them (a warp's first row or column is a multiple of its extent, stages begin at multiples of 128
  // bytes). The other direction is a constant distance.
  __device__ __forceinline__ explicit LdmatrixEngine(int thread)
      : lane_(thread % 32), warp_m_(thread / 32 / c.warps_n), warp_n_(thread / 32 % c.warps_n) {
    const int m = warp_m_ * kWarpM, n = warp_n_ * kWarpN;
    const int low = lane_ % 8, bit3 = lane_ / 8 % 2, bit4 = lane_ / 16;
    if constexpr (kAlongKA)
      at_a_ = LayoutA::byte(m + low + 8 * bit3, bit4 * 16 / kElement);
    else if constexpr (kTF32)
      at_a_ = LayoutA::byte(lane_ % 4, m + lane_ / 4);
    else
      at_a_ = LayoutA::byte(low + 8 * bit4, m + 8 * bit3);
    if constexpr (kAlongKB)
      at_b_ = LayoutB::byte(n + low + 8 * bit4, bit3 * 16 / kElement);
    else if constexpr (kTF32)
      at_b_ = LayoutB::byte(lane_ % 4, n + lane_ / 4);
    else
      at_b_ = LayoutB::byte(low + 8 * bit3, n + 8 * bit4);
  }

  __device__ __forceinline__ void load(Fragment& f, unsigned a, unsigned b, int step) const {
    a += at_a_;
    b += at_b_;
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
      if constexpr (kAlongKA) {
        ptx::ldmatrix_x4(f.a[i], (a ^ (step * 32)) + i * 16 * LayoutA::kPitch);
      } else if constexpr (kTF32) {
#pragma unroll
        for (int e = 0; e < 4; ++e)  // rows g, g + 8, and the same four deeper
          ptx::load_shared<4>(&f.a[i][e],
                              (a ^ ((2 * i + e % 2) * 32)) + (step * 8 + e / 2 * 4) * LayoutA::kPitch);
      } else {
        ptx::ldmatrix_x4_trans(f.a[i], (a ^ (i * 32)) + step * 16 * LayoutA::kPitch);
      }
    }
#pragma unroll
    for (int j = 0; j < kFragmentsN / 2; ++j) {
      if constexpr (!kAlongKB && kTF32) {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          ptx::load_shared<4>(&f.b[2 * j + e / 2][e % 2],
                              (b ^ ((2 * j + e / 2) * 32)) + (step * 8 + e % 2 * 4) * LayoutB::kPitch);
      } else {
        unsigned w[4];
        if constexpr (kAlongKB)
          ptx::ldmatrix_x4(w, (b ^ (step * 32)) + j * 16 * LayoutB::kPitch);
        else
          ptx::ldmatrix_x4_trans(w, (b ^ (j * 32)) + step * 16 * LayoutB::kPitch);
#pragma unroll
        for (int e = 0; e < 4; ++e) f.b[2 * j + e / 2][e % 2] = w[e];
      }
    }
  }

  __device__ __forceinline__ void multiply(Accumulator& acc, Fragment& f) const {
    if constexpr (kTF32) {
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
        for (int e = 0; e < 4; ++e) f.a[i][e] = ptx::f32_to_tf32(f.a[i][e]);
#pragma unroll
      for (int j = 0; j < kFragmentsN; ++j)
#pragma unroll
        for (int e = 0; e < 2; ++e) f.b[j][e] = ptx::f32_to_tf32(f.b[j][e]);
    }
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
      for (int j = 0; j < kFragmentsN; ++j) mma(acc.v[i][j], f.a[i], f.b[j][0], f.b[j][1]);
  }

  // A times a column of ones, by the warps of the first column only.
  __device__ __forceinline__ void sum_rows(Accumulator& acc, const Fragment& f) const {
    if (warp_n_ != 0) return;
    constexpr unsigned kOne = kTF32 ? 0x3f800000u : C.shape.dtype == DType::kF16 ? 0x3c003c00u : 0x3f803f80u;
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) mma(acc.rows[i], f.a[i], kOne, kOne);
  }

  // Vectors of 8 columns straight from the registers, where the output's columns are contiguous and come in
  // eights. The four lanes of a row hold two columns each of four fragments; two rounds of exchange (a 4x4
  // transposition) leave each with all eight columns of one fragment, so that a store writes 64 contiguous
  // bytes (16-bit) of 8 rows.
  static constexpr bool kDirect = !kGeneric<C> && !schedule::rows_contiguous(C.shape) && !C.shape.mirror &&
                                          kFragmentsN % 4 == 0 && c.vec_c * kBytes < makes_weights(C.shape.op)
                                      ? C.shape.wdtype
                                      : C.shape.dtype > == 16 &&
                                            (makes_weights(C.shape.op) ? C.shape.T * C.shape.K : C.shape.D) %
                                                    8 ==
                                                0;
  // Calls f(row, column, values) with the place in the tile.
  template <class F>
  __device__ __forceinline__ void each_vector(const Accumulator& acc, F&& f) const {
    const int quad = lane_ % 4;
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kFragmentsN; j += 4) {
          float v[8];  // pairs: first by fragment, then by lane
#pragma unroll
          for (int e = 0; e < 8; ++e) v[e] = acc.v[i][j + e / 2][2 * half + e % 2];
#pragma unroll
          for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
            for (int e = 0; e < 8; ++e) {
              if (e / 2 & bit) continue;
              const float given = quad & bit ? v[e] : v[e + 2 * bit];
              const float got = __shfl_xor_sync(0xffffffffu, given, bit);
              if (quad & bit)
                v[e] = got;
              else
                v[e + 2 * bit] = got;
            }
          f(warp_m_ * kWarpM + i * 16 + half * 8 + lane_ / 4, warp_n_ * kWarpN + (j + quad) * 8, v);
        }
  }

  // A slice is the same fragments of every warp row.
  static constexpr int kRun = kSliceRows / c.warps_m;
  static __device__ __forceinline__ int tile_row(int slice, int row) {
    return row / kRun * kWarpM + slice * kRun + row % kRun;
  }
  __device__ __forceinline__ void stage(const Accumulator& acc, int slice, float* to, int row_pitch,
                                        int column_pitch) const {
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
      if (i / (kRun / 16) != slice) continue;
#pragma unroll
      for (int j = 0; j < kFragmentsN; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int row = warp_m_ * kRun + i % (kRun / 16) * 16 + half * 8 + lane_ / 4;
          const int column = warp_n_ * kWarpN + j * 8 + lane_ % 4 * 2;
          float* const at = to + row * row_pitch + column * column_pitch;
          if (column_pitch == 1) {
            *reinterpret_cast<float2*>(at) = make_float2(acc.v[i][j][2 * half], acc.v[i][j][2 * half + 1]);
          } else {
            at[0] = acc.v[i][j][2 * half];
            at[column_pitch] = acc.v[i][j][2 * half + 1];
          }
        }
    }
  }
  __device__ __forceinline__ void stage_row_sums(const Accumulator& acc, float* to) const {
    if (warp_n_ != 0 || lane_ % 4 != 0) return;
#pragma unroll
    for (int i = 0; i < kFragmentsM; ++i) {
      to[warp_m_ * kWarpM + i * 16 + lane_ / 4] = acc.rows[i][0];
      to[warp_m_ * kWarpM + i * 16 + 8 + lane_ / 4] = acc.rows[i][2];
    }
  }

 private:
  static __device__ __forceinline__ void mma(float (&sum)[4], const unsigned (&a)[4], unsigned b0,
                                             unsigned b1) {
    if constexpr (!kSm80) {
      ptx::mma_m16n8k8_f16(sum, a[0], a[1], b0);
      ptx::mma_m16n8k8_f16(sum, a[2], a[3], b1);
    } else if constexpr (kTF32) {
      ptx::mma_m16n8k8_tf32(sum, a, b0, b1);
    } else if constexpr (C.shape.dtype == DType::kF16) {
      ptx::mma_m16n8k16_f16(sum, a, b0, b1);
    } else {
      ptx::mma_m16n8k16_bf16(sum, a, b0, b1);
    }
  }

  int lane_, warp_m_, warp_n_;
  unsigned at_a_, at_b_;  // bytes from the start of an operand's stage
};

}  // namespace trigen
