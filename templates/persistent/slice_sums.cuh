// Sums of slices (slices.cuh) on their way through shared memory: each row to the block that owns it, which adds and writes it.
#pragma once

#include "persistent/slice_geometry.cuh"

namespace trigen::persistent::weight {

// The same shared-memory address in another block of the cluster. A block's own addresses are some of the
// cluster's.
template <Kernel C>
__device__ __forceinline__ unsigned address_in(unsigned address, unsigned rank) {
  if constexpr (C.config.cluster == 1) return address;
  return ptx::cluster_address(address, rank);
}

// Where the block that owns an eight has the first block's sums of it; the others' lie behind them.
template <Kernel C>
__device__ __forceinline__ unsigned sent_offset(unsigned eight) {
  return SliceGeometry<C>::kExchange + eight / C.config.cluster * C.config.cluster * eight_bytes(C.config);
}

// Each row to the block that owns it.
template <Kernel C>
__device__ __forceinline__ void send_sums(unsigned shared, const float* sum, int panels, unsigned rank) {
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned eight = 2 * warp + half;
    const unsigned to = address_in<C>(
        shared + sent_offset<C>(eight) + rank * eight_bytes(C.config) + 16 * lane, eight % C.config.cluster);
#pragma unroll
    for (unsigned i = 0; i < C.config.tile_n / 16; ++i) {
      if (i >= 4 && static_cast<int>(i / 4) >= panels) break;
      const float* const own = sum + 8 * i + 2 * half;
      ptx::store_cluster(to + i * kSentBytes, own[0], own[1], own[4], own[5]);
    }
  }
}
// Those of grad_bias.
template <Kernel C>
__device__ __forceinline__ void send_bias(unsigned shared, const float* bias, unsigned rank) {
  using G = SliceGeometry<C>;
  constexpr unsigned kSlices = C.config.cluster;
  const unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (unsigned half = 0; half < 2; ++half) {
    const unsigned eight = 2 * warp + half, slot = eight / kSlices, owner = eight % kSlices;
    if (lane % 4 == 0)
      ptx::store_cluster(
          address_in<C>(shared + G::kBiasExchange + rank * G::kBiasBytes + slot * (kSentRows * 4) + lane,
                        owner),
          bias[2 * half]);
  }
}

// This block's rows of both triangles, where rows of D are whole pieces of 16 bytes: a warp adds 8 rows and 16 columns at a
// time, and writes each square of 8 x 8 a second time transposed.
template <Kernel C>
__device__ __forceinline__ void add_mirrored(const Params& p, unsigned shared, const SlicedTile& tile,
                                             int tokens, unsigned rank) {
  constexpr unsigned kSlices = C.config.cluster, kWarps = 4 * consumers(C.config),
                     kAtOnce = kSlices > 4   ? 1
                               : kSlices > 2 ? 2
                                             : 4;
  constexpr bool kLower = C.shape.fill == Fill::kLower, kReadsC = C.shape.residual;
  constexpr DType kW = C.shape.wdtype;
  const unsigned warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int line = static_cast<int>(lane / 4), pair = static_cast<int>(lane % 4 * 2);
#pragma unroll 1
  for (unsigned chunk = warp; chunk < C.config.tile_n / 16; chunk += kWarps) {
#pragma unroll 1
    for (unsigned first = rank; first < C.config.tile_m / kSentRows; first += kAtOnce * kSlices) {
      // A unit: eight `first` + i * kSlices. Its squares begin at (row, column) and (row, column + 8).
      int row[kAtOnce], column[kAtOnce];
      unsigned words[kAtOnce][kSlices][4], c[kAtOnce][2];
      bool any[kAtOnce];
      const auto inside = [&](bool unit, int first_row, int at) {  // and not above the diagonal
        return unit && at < tokens && (kLower ? at <= first_row : at >= first_row);
      };
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        const unsigned eight = first + i * kSlices;
        row[i] = tile.row + static_cast<int>(eight * kSentRows);
        column[i] = tile.column + static_cast<int>(16 * chunk);
        any[i] = eight < C.config.tile_m / kSentRows && row[i] < tokens &&
                 static_cast<int>(chunk / (kPanel / 16)) < tile.panels;
#pragma unroll
        for (int j = 0; j < 2; ++j)
          if constexpr (kReadsC)
            c[i][j] = ptx::load_global_if(static_cast<const Storage<kW>*>(
                                              matrix_origin<C>(p.residual.data, p.residual.head, tile.head)) +
                                              (matrix_offset<C>(p.residual.head, tile.head) +
                                               (row[i] + line) * p.residual.row + column[i] + 8 * j + pair),
                                          p.beta != 0 && inside(any[i], row[i], column[i] + 8 * j));
          else
            c[i][j] = 0;
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i) {
        if (!any[i]) continue;
        const unsigned from = shared + sent_offset<C>(first + i * kSlices) + chunk * kSentBytes + 16 * lane;
#pragma unroll
        for (unsigned r = 0; r < kSlices; ++r)
          ptx::load_shared<16>(words[i][r], from + r * eight_bytes(C.config));
      }
#pragma unroll
      for (unsigned i = 0; i < kAtOnce; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          if (!inside(any[i], row[i], column[i] + 8 * j)) continue;
          float v[2];
#pragma unroll
          for (int e = 0; e < 2; ++e) {
            v[e] = __uint_as_float(words[i][0][2 * j + e]);
#pragma unroll
            for (unsigned r = 1; r < kSlices; ++r) v[e] += __uint_as_float(words[i][r][2 * j + e]);
          }
          const int at = column[i] + 8 * j;
          gram::pair_values<C>(p, row[i] + line - (at + pair), c[i][j], v[0], v[1]);
          unsigned own = pack<kW>(v[0], v[1]);
          if (at == row[i])
            own = symmetric_square<kLower>(own, lane);
          else
            *reinterpret_cast<unsigned*>(gram::element<C>(p, tile.head, at + line, row[i] + pair)) =
                ptx::movmatrix_trans(own);
          *reinterpret_cast<unsigned*>(gram::element<C>(p, tile.head, row[i] + line, at + pair)) = own;
        }
    }
  }
}

// This block's rows.
template <Kernel C>
__device__ __forceinline__ void add_sent(const Params& p, unsigned shared, const SlicedTile& tile, int tokens,
                                         int diag, unsigned rank) {
  using G = SliceGeometry<C>;
  if constexpr (C.shape.mirror && kStagedOutput<C>) return add_mirrored<C>(p, shared, tile, tokens, rank);
  constexpr unsigned kSlices = C.config.cluster, kPairs = C.config.tile_n / 2,
                     kAtOnce = kSentRows * kPairs / (128 * G::kConsumers);
  const unsigned thread = threadIdx.x;
  // Neighbours have one row; where columns become rows, too, they have the eight rows of one pair.
  const auto line_of = [](unsigned at) { return C.shape.mirror ? at % kSentRows : at / kPairs; };
  const auto pair_of = [](unsigned at) { return C.shape.mirror ? at / kSentRows : at % kPairs; };
  const unsigned pairs = static_cast<unsigned>(tile.panels) * (kPanel / 2);
#pragma unroll 1
  for (unsigned eight = rank; eight < C.config.tile_m / kSentRows; eight += kSlices) {
    const unsigned from = shared + sent_offset<C>(eight);
    unsigned words[kAtOnce][kSlices][2];
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned at = thread + i * (128 * G::kConsumers), line = line_of(at), pair = pair_of(at);
      if (pair >= pairs) continue;
      // In the order of send_sums's lanes: columns 16 k + 2 l and + 1, then 16 k + 8 + 2 l and + 1.
      const unsigned own = from + pair / 8 * kSentBytes + (4 * line + pair % 4) * 16 + pair / 4 % 2 * 8;
#pragma unroll
      for (unsigned r = 0; r < kSlices; ++r)
        ptx::load_shared<8>(words[i][r], own + r * eight_bytes(C.config));
    }
#pragma unroll
    for (unsigned i = 0; i < kAtOnce; ++i) {
      const unsigned at = thread + i * (128 * G::kConsumers);
      if (pair_of(at) >= pairs) continue;
      float v[2] = {__uint_as_float(words[i][0][0]), __uint_as_float(words[i][0][1])};
#pragma unroll
      for (unsigned r = 1; r < kSlices; ++r) {
        v[0] += __uint_as_float(words[i][r][0]);
        v[1] += __uint_as_float(words[i][r][1]);
      }
      write_pair<C>(p, tile.head, 0, tokens, diag,
                    tile.row + static_cast<int>(eight * kSentRows + line_of(at)),
                    tile.column + static_cast<int>(pair_of(at) * 2), v[0], v[1]);
    }
  }
  const unsigned eight = thread / kSentRows * kSlices + rank;
  if (C.shape.bias && tile.sums_bias && eight < C.config.tile_m / kSentRows) {
    float v = 0;
#pragma unroll
    for (unsigned r = 0; r < kSlices; ++r) {
      unsigned word;
      ptx::load_shared<4>(&word, shared + G::kBiasExchange + r * G::kBiasBytes + thread * 4);
      v = r == 0 ? __uint_as_float(word) : v + __uint_as_float(word);
    }
    write_bias<C>(p, tile.head, tokens, tile.row + static_cast<int>(eight * kSentRows + thread % kSentRows),
                  v);
  }
}

}  // namespace trigen::persistent::weight
