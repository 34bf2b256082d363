// From accumulators to global memory: y = act(acc + bias) * gate + residual (forward), dx = acc + residual
// (grad_input), dW and grad_bias inside the triangle (grad_weight), or f32 partial sums into the workspace
// (split_k > 1, and of a Toeplitz matrix's diagonals).
//
// The accumulators pass through shared memory in slices of rows, so that every global access is a vector
// along the output's contiguous axis whatever the matrix instruction's register layout is.
#pragma once

#include "activation.cuh"
#include "gram.cuh"
#include "operand.cuh"
#include "ptx/memory.cuh"
#include "schedule.h"
#include "types.cuh"

namespace trigen {

// From shared memory. Eight floats are two reads of 16 bytes at a distance of 32 from lane to lane: of the 8
// lanes that share a pass, the last four begin with their second half, so that all banks are used once.
template <int kVec>
__device__ __forceinline__ void read_slice(float (&v)[kVec], const float* from, int thread) {
  if constexpr (kVec == 8) {
    const bool swap = thread & 4;
    const float4 a = reinterpret_cast<const float4*>(from)[swap],
                 b = reinterpret_cast<const float4*>(from)[!swap];
    v[0] = swap ? b.x : a.x, v[1] = swap ? b.y : a.y, v[2] = swap ? b.z : a.z, v[3] = swap ? b.w : a.w;
    v[4] = swap ? a.x : b.x, v[5] = swap ? a.y : b.y, v[6] = swap ? a.z : b.z, v[7] = swap ? a.w : b.w;
  } else {
    read_floats(v, from);
  }
}

// One vector of an output with x's shape: the epilogue's parts and the store. `at` gives a tensor's element of its first,
// `bias` a float for each.
template <Kernel C, int kVec, class At, class Bias>
__device__ __forceinline__ void store_outputs(const Params& p, const At& at, const Bias& bias,
                                              float (&v)[kVec]) {
  constexpr Shape s = C.shape;
  constexpr DType kD = s.dtype;
  constexpr int kSize = kVec * kBytes<kD>;
  if constexpr (makes_rows(s.op)) {
    if constexpr (s.bias) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) v[i] += bias(i);
    }
    if constexpr (s.pre) {
      Raw<kD, kVec> out;
      out.from_floats(v);
      ptx::store_global<kSize>(at(p.pre), out.w);
    }
#pragma unroll
    for (int i = 0; i < kVec; ++i) v[i] = activate<s.act, kD>(v[i]);
    if constexpr (s.gate) {
      Raw<kD, kVec> gate;
      ptx::load_global<kSize>(gate.w, at(p.gate));
#pragma unroll
      for (int i = 0; i < kVec; ++i) v[i] *= to_float<kD>(gate.get(i));
    }
  }
  if constexpr (s.residual) {
    Raw<kD, kVec> residual;
    ptx::load_global<kSize>(residual.w, at(p.residual));
#pragma unroll
    for (int i = 0; i < kVec; ++i) v[i] += to_float<kD>(residual.get(i));
  }
  Raw<kD, kVec> out;
  out.from_floats(v);
  ptx::store_global<kSize>(at(makes_rows(s.op) ? p.y : makes_vectors(s.op) ? p.pre : p.x), out.w);
}

// The epilogue's operands of a tile of forward or grad_input, from row and column (m, n) on, into the L2 while its products are made:
// at the tile's end a thread reads them one behind the other.
template <Kernel C>
__device__ __forceinline__ void prefetch_operands(const Params& p, const Sizes& z, int head, int first_row,
                                                  int first_column, int thread) {
  constexpr Shape s = C.shape;
  constexpr Config c = C.config;
  if constexpr (!makes_weights(s.op) && (s.gate || s.residual)) {
    constexpr bool kRows = schedule::rows_contiguous(s);
    constexpr int kLine = 128 / kBytes<s.dtype>, kAlong = kRows ? c.tile_m : c.tile_n,
                  kLines = (kAlong + kLine - 1) / kLine, kCount = (kRows ? c.tile_n : c.tile_m) * kLines,
                  kThreads = 32 * c.warps_m * c.warps_n;
    for (int id = thread; id < kCount; id += kThreads) {
      const int along = id % kLines * kLine, across = id / kLines;
      const int row = first_row + (kRows ? along : across), column = first_column + (kRows ? across : along);
      if (row >= z.T || column >= z.B * z.D) continue;
      const int b = column / z.D, d = column - b * z.D;
      const auto prefetch = [&](const Activations& t) {
        ptx::prefetch_l2(static_cast<const Storage<s.dtype>*>(t.data) +
                         (b * t.batch + head * t.head + (kRows ? d * t.row + row : row * t.row + d)));
      };
      if constexpr (s.gate) prefetch(p.gate);
      if constexpr (s.residual) prefetch(p.residual);
    }
  }
}

// One vector of forward or grad_input. `row` and `column` are m and n of its first element.
template <Kernel C, int kVec>
__device__ __forceinline__ void store_activations(const Params& p, const Sizes& z, int head, int row,
                                                  int column, float (&v)[kVec]) {
  constexpr Shape s = C.shape;
  constexpr bool kRows = schedule::rows_contiguous(s);
  if (row >= z.T || column >= z.B * z.D) return;
  const int b = column / z.D, d = column - b * z.D;
  const auto* const bias =
      static_cast<const Storage<s.wdtype>*>(p.bias) + (static_cast<long long>(head) * z.T + row);
  store_outputs<C>(
      p,
      [&](const Activations& t) {
        const long long offset = b * t.batch + head * t.head + (kRows ? d * t.row + row : row * t.row + d);
        return static_cast<Storage<s.dtype>*>(t.data) + offset;
      },
      [&](int i) { return to_float<s.wdtype>(bias[kRows ? i : 0]); }, v);
}

// One vector of dW's row t, columns [column, column + kVec) of the flattened (s,j). Nothing outside the
// triangle is touched, or zeros are written there when the problem asks for them. gram: `v` becomes what is stored.
// Of a band nothing but its rows is there: outside are the elements left of token 0.
template <Kernel C, int kVec>
__device__ __forceinline__ void store_weights(const Params& p, const Sizes& z, int head, int t, int column,
                                              float (&v)[kVec]) {
  constexpr Shape s = C.shape;
  constexpr DType kW = s.wdtype;
  if (t >= z.T || column >= z.T * z.K) return;
  const Range r = schedule::weight_row(s.fill, z, t);
  const int begin = r.begin * z.K - column, end = r.end * z.K - column;  // inside, relative to the vector
  if constexpr (s.op == Op::kGram) {
#pragma unroll
    for (int i = 0; i < kVec; ++i)
      if (i >= begin && i < end) v[i] = gram::value<C>(p, head, t, column + i, v[i]);
  }
  auto* const to = static_cast<Storage<kW>*>(p.w) +
                   (head * p.w_head + t * p.w_row + column + (kBand<C> ? z.width - 1 - t : 0));
  static_assert(kDense<C> || kVec == 1, "elements of a band are stored one by one: vec_c is 1");
  if constexpr (kBand<C> && s.zero_outside) {
    if (column == 0)
      for (int i = 1; i < z.width - t; ++i) to[-i] = from_float<kW>(0.0f);
  }
  if (begin <= 0 && end >= kVec) {
    float sum[kVec];
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum[i] = v[i];
    if constexpr (s.accumulate) {
      Raw<kW, kVec> old;
      ptx::load_global<kVec * kBytes<kW>>(old.w, to);
#pragma unroll
      for (int i = 0; i < kVec; ++i) sum[i] += to_float<kW>(old.get(i));
    }
    Raw<kW, kVec> out;
    out.from_floats(sum);
    ptx::store_global<kVec * kBytes<kW>>(to, out.w);
  } else if (kDense<C> && (s.zero_outside || (begin < kVec && end > 0))) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const bool inside = i >= begin && i < end;
      if (inside)
        to[i] = from_float<kW>(v[i] + (s.accumulate ? to_float<kW>(to[i]) : 0.0f));
      else if (s.zero_outside)
        to[i] = from_float<kW>(0.0f);
    }
  }
}

template <Kernel C>
__device__ __forceinline__ void store_bias(const Params& p, const Sizes& z, int head, int t, float v) {
  constexpr DType kW = C.shape.wdtype;
  auto* const to = static_cast<Storage<kW>*>(p.bias) + (static_cast<long long>(head) * z.T + t);
  *to = from_float<kW>(v + (C.shape.accumulate ? to_float<kW>(*to) : 0.0f));
}

// One vector of the tile, to wherever this kernel's sums go.
template <Kernel C, int kVec>
__device__ __forceinline__ void store_vector(const Params& p, const Sizes& z, int head, int row, int column,
                                             float (&v)[kVec]) {
  if constexpr (!makes_weights(C.shape.op)) {
    store_activations<C>(p, z, head, row, column, v);
  } else if constexpr (C.config.split_k > 1) {
    const int pitch = schedule::workspace_pitch(z);
    if (row >= z.T || column >= (kBand<C> ? z.T : pitch)) return;
    auto* to = static_cast<float*>(p.workspace) +
               ((static_cast<long long>(blockIdx.z) * z.H + head) * z.T + row) * pitch + column;
    if constexpr (kBand<C>) {
      const Range r = schedule::weight_row(C.shape.fill, z, row);
#pragma unroll
      for (int i = 0; i < kVec; ++i)
        if (column + i >= r.begin && column + i < r.end) to[i + z.width - 1 - row] = v[i];
      return;
    }
#pragma unroll
    for (int i = 0; i < kVec; i += 4) {
      // By instruction: NVRTC 12.9 and 13.0 split every other assignment of a float4 into four stores.
      const unsigned w[4] = {__float_as_uint(v[i]), __float_as_uint(v[i + 1]), __float_as_uint(v[i + 2]),
                             __float_as_uint(v[i + 3])};
      ptx::store_global<16>(to + i, w);
    }
  } else {
    store_weights<C>(p, z, head, row, column, v);
  }
}

// gram: the mirrored elements of a slice, whose columns are rows of D there. `rows` maps a slice's row to the tile's.
template <Kernel C, int kVec, int kSliceRows, int kPitch, class Rows>
__device__ __forceinline__ void store_mirrored(const Params& p, const Sizes& z, int head, int first_row,
                                               int first_column, const float* slice, int thread,
                                               const Rows& rows) {
  constexpr Config c = C.config;
  constexpr DType kW = C.shape.wdtype;
  constexpr int kThreads = 32 * c.warps_m * c.warps_n, kVectors = kSliceRows / kVec;
  for (int id = thread; id < kVectors * c.tile_n; id += kThreads) {
    const int r = id % kVectors * kVec, q = id / kVectors;
    const int row = first_row + rows(r), column = first_column + q;
    if (row >= z.T || column >= z.T) continue;
    float v[kVec];
#pragma unroll
    for (int i = 0; i < kVec; ++i) v[i] = slice[(r + i) * kPitch + q];
    if (gram::is_mirrored<C>(row, column) && gram::is_mirrored<C>(row + kVec - 1, column)) {
      Raw<kW, kVec> out;
      out.from_floats(v);
      ptx::store_global<kVec * kBytes<kW>>(gram::element<C>(p, head, column, row), out.w);
    } else {
#pragma unroll
      for (int i = 0; i < kVec; ++i) gram::mirror<C>(p, head, row + i, column, v[i]);
    }
  }
}

// grad_weight of a Toeplitz matrix: sums along the tile's diagonals, each by one thread from the first row on, so that
// the bits are those of every run. What reduce.cuh adds.
template <Kernel C, class Engine, class Accumulator>
__device__ __forceinline__ void store_diagonals(const Params& p, const Sizes& z, const Engine& engine,
                                                const Accumulator& acc, const schedule::Tile& tile, int head,
                                                float* slice, int thread) {
  constexpr Config c = C.config;
  constexpr int kThreads = 32 * c.warps_m * c.warps_n, kSliceRows = Engine::kSliceRows;
  constexpr int kPitch = c.tile_n + schedule::kSlicePadColumns;
  constexpr int kDiagonals = schedule::tile_diagonals(c), kOwn = (kDiagonals + kThreads - 1) / kThreads;
  float sum[kOwn];
#pragma unroll
  for (int i = 0; i < kOwn; ++i) sum[i] = 0.0f;
#pragma unroll
  for (int s = 0; s < c.tile_m / kSliceRows; ++s) {
    __syncthreads();
    engine.stage(acc, s, slice, kPitch, 1);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
#pragma unroll 8
      for (int r = 0; r < kSliceRows; ++r) {
        const int column = Engine::tile_row(s, r) + c.tile_n - 1 - (thread + i * kThreads);
        if (column >= 0 && column < c.tile_n) sum[i] += slice[r * kPitch + column];
      }
    }
  }
  const long long tiles = schedule::tiles_before(c, schedule::ceil_div(z.T, c.tile_m));
  auto* const to =
      static_cast<float*>(p.workspace) + ((static_cast<long long>(blockIdx.z) * z.H + head) * tiles +
                                          schedule::tiles_before(c, tile.row) + tile.column) *
                                             kDiagonals;
#pragma unroll
  for (int i = 0; i < kOwn; ++i)
    if (thread + i * kThreads < kDiagonals) to[thread + i * kThreads] = sum[i];
}

template <Kernel C, class Engine, class Accumulator>
__device__ __forceinline__ void store_tile(const Params& p, const Sizes& z, const Engine& engine,
                                           const Accumulator& acc, const schedule::Tile& tile, int head,
                                           float* slice, int thread) {
  constexpr Config c = C.config;
  constexpr bool kRows = schedule::rows_contiguous(C.shape);
  constexpr bool kSplit = makes_weights(C.shape.op) && c.split_k > 1, kMirrors = C.shape.mirror && !kSplit;
  constexpr int kVec = kSplit ? 4 : c.vec_c;
  constexpr int kThreads = 32 * c.warps_m * c.warps_n;
  constexpr int kSliceRows = Engine::kSliceRows;
  constexpr int kRowPitch = kRows ? 1 : c.tile_n + schedule::kSlicePadColumns;
  constexpr int kColumnPitch = kRows ? kSliceRows + schedule::kSlicePadRows : 1;
  constexpr int kChunks = (kRows ? kSliceRows : c.tile_n) / kVec;  // vectors along the contiguous axis
  constexpr int kCount = kSliceRows * c.tile_n / kVec;
  static_assert(kSliceRows % kVec == 0 && c.tile_n % kVec == 0,
                "a slice holds whole vectors: vec_c divides it");
  const int first_row = tile.row * c.tile_m, first_column = tile.column * c.tile_n;

  if constexpr (schedule::sums_diagonals(C.shape)) {
    store_diagonals<C>(p, z, engine, acc, tile, head, slice, thread);
  } else if constexpr (Engine::kDirect) {
    engine.each_vector(acc, [&](int row, int column, float(&v)[8]) {
      store_vector<C>(p, z, head, first_row + row, first_column + column, v);
    });
  } else {
#pragma unroll
    for (int s = 0; s < c.tile_m / kSliceRows; ++s) {
      __syncthreads();
      engine.stage(acc, s, slice, kRowPitch, kColumnPitch);
      __syncthreads();
#pragma unroll 4
      for (int id = thread; id < kCount; id += kThreads) {
        const int along = id % kChunks * kVec, across = id / kChunks;
        const int r = kRows ? along : across, q = kRows ? across : along;
        float v[kVec];
        read_slice(v, slice + r * kRowPitch + q * kColumnPitch, thread);
        store_vector<C>(p, z, head, first_row + Engine::tile_row(s, r), first_column + q, v);
        if constexpr (kMirrors) {
#pragma unroll
          for (int i = 0; i < kVec; ++i) slice[r * kRowPitch + q + i] = v[i];
        }
      }
      if constexpr (kMirrors) {
        __syncthreads();
        store_mirrored<C, kVec, kSliceRows, kRowPitch>(p, z, head, first_row, first_column, slice, thread,
                                                       [&](int r) { return Engine::tile_row(s, r); });
      }
    }
  }

  if constexpr (makes_weights(C.shape.op) && C.shape.bias) {
    if (tile.first) {
      __syncthreads();
      engine.stage_row_sums(acc, slice);
      __syncthreads();
      for (int r = thread; r < c.tile_m; r += kThreads) {
        const int t = tile.row * c.tile_m + r;
        if (t < z.T) {
          if constexpr (kSplit)
            static_cast<float*>(p.workspace)[schedule::workspace_bias(C.shape, c, z) +
                                             (static_cast<long long>(blockIdx.z) * z.H + head) * z.T + t] =
                slice[r];
          else
            store_bias<C>(p, z, head, t, slice[r]);
        }
      }
    }
  }
}

}  // namespace trigen
