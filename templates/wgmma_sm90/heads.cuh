// Heads that begin inside a piece of 16 bytes (persistent/heads.h): rows that no map has come by the loading warpgroup's
// threads, and output leaves by the threads that multiplied it, without the columns around a head.
#pragma once

#include "params.h"
#include "persistent/heads.h"
#include "persistent/panels.cuh"
#include "persistent/staging.cuh"
#include "ptx/stmatrix.cuh"
#include "wgmma_sm90/pipeline.cuh"

namespace trigen::wgmma_sm90 {

using persistent::HeadPlaces;
using persistent::Panels;

template <Kernel C>
inline constexpr bool kHeads = persistent::reads_heads(C.shape, C.config);

// The input, x or dy.
template <Kernel C>
__device__ __forceinline__ const Activations& input_of(const Params& p) {
  return C.shape.op == Op::kGradInput ? p.y : p.x;
}

inline constexpr int kLoaders = 128, kLoadersMeet = 8;  // threads; their named barrier

// Panels from box `panel` on of 64 tokens from `k` on, features from the head's first one on, zeros outside: rows of any stride,
// element by element. All loading threads; the stage is theirs.
template <Kernel C>
__device__ __forceinline__ void bring_panels(const Activations& from, const Panels& panels, int panel,
                                             int head, int B, int k, int tokens, unsigned to, int thread) {
  using G = Geometry<C>;
  constexpr int kLines = kLoaders / kPanel;  // at a time
  const int column = thread % kPanel, line = thread / kPanel;
  const auto chunk = static_cast<unsigned>(column / 8);
#pragma unroll 1
  for (int i = 0; i < G::kPanels; ++i) {
    int batch, feature;
    panels.locate<G::kBoxFeatures>(panel + i * G::kParts + column / G::kBoxFeatures, batch, feature);
    feature += column % G::kBoxFeatures;
    const bool there = batch < B && feature < C.shape.D;
    const auto* source = static_cast<const unsigned short*>(from.data) +
                         (there ? batch * from.batch + head * from.head + feature : 0);
#pragma unroll 4
    for (int j = line; j < kPanel; j += kLines) {
      unsigned value = 0;
      if (there && k + j < tokens) ptx::load_global<2>(&value, source + (k + j) * from.row);
      ptx::store_shared<2>(to + i * kPanelBytes +
                               persistent::panel_offset<G::kParts>(static_cast<unsigned>(j), chunk) +
                               column % 8 * 2,
                           &value);
    }
  }
  ptx::fence_async_shared();
  ptx::named_barrier(kLoadersMeet, kLoaders);
}

// A multiplying warp's 16 rows of a panel, from registers through shared memory of its own.
template <Kernel C>
struct HeadOutput {
  using G = Geometry<C>;
  static constexpr int kRows = 16, kLinesAtOnce = 4;
  const Activations& to;
  const HeadPlaces places;
  int batches, tokens;
  unsigned lines, lane = threadIdx.x % 32;

  __device__ __forceinline__ HeadOutput(const Ring<G>& ring, const Activations& tensor, int B, int H,
                                        int tokens, unsigned group)
      : to(tensor),
        places(tensor, H, C.shape.D),
        batches(B),
        tokens(tokens),
        lines(ring.base + G::kStages * G::kStageBytes + group * G::kStorePanels * kPanelBytes +
              threadIdx.x / 32 % 4 * kRows * 128) {}

  // 64 columns from box `panel` on, whose 32 sums a thread begin at `sum`; the head is `skew` columns behind its first box's
  // begin. `first`: the warp's first token. finish: as OutputPanels::store.
  template <class Finish>
  __device__ __forceinline__ void store(const float* sum, const Finish& finish, const Panels& panels,
                                        int panel, int head, int skew, int first) const {
    __syncwarp();  // the panel before has been read
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      unsigned left[2], right[2];
      const int column = 16 * j + static_cast<int>(lane % 4 * 2);
      finish_own(sum + 8 * j, column, panels, panel, skew, left, finish);
      finish_own(sum + 8 * j + 4, column + 8, panels, panel, skew, right, finish);
      ptx::stmatrix_x4(lines + lane % 16 * 128 + (((2 * j + lane / 16) ^ (lane & 7)) << 4), left[0], left[1],
                       right[0], right[1]);
    }
    __syncwarp();
    constexpr int kChunks = G::kBoxFeatures / kChunk;
    const auto chunk = static_cast<int>(lane % 8), line = static_cast<int>(lane / 8);
    int batch, feature;
    panels.locate<G::kBoxFeatures>(panel + chunk / kChunks, batch, feature);
    feature += chunk % kChunks * kChunk - skew;
    // Elements of the chunk that are the head's: its last ones, its first ones or all.
    const bool last = feature < 0;
    int count = last ? kChunk + feature : schedule::max(0, schedule::min(kChunk, C.shape.D - feature));
    if (batch >= batches) count = 0;
    auto* at = static_cast<unsigned short*>(to.data) + batch * to.batch + head * to.head +
               (first + line) * to.row + feature;
    const bool whole = places.alike && places.skew(head) == skew;  // chunks are pieces of memory
#pragma unroll
    for (int i = 0; i < kRows; i += kLinesAtOnce) {
      const unsigned from = lines + (i + line) * 128 + ((chunk ^ ((i + line) & 7)) << 4);
      if (first + line + i < tokens) {
        if (whole)
          store_pieces(at, from, count, last);
        else
          store_elements(at, from, count, last);
      }
      at += kLinesAtOnce * to.row;
    }
  }

 private:
  static constexpr int kChunk = persistent::kPiece;
  // Two columns may be two heads', and an activation of a NaN is one of both (activate_pair).
  static constexpr bool kClears = C.shape.act != Activation::kNone && C.config.vec_c == 1;
  template <class Finish>
  __device__ __forceinline__ static void finish_own(const float* sum, int column, const Panels& panels,
                                                    int panel, int skew, unsigned (&words)[2],
                                                    const Finish& finish) {
    if constexpr (kClears) {
      int batch, feature;
      panels.locate<G::kBoxFeatures>(panel + column / G::kBoxFeatures, batch, feature);
      feature += column % G::kBoxFeatures - skew;
      const bool low = feature >= 0 && feature < C.shape.D, high = feature >= -1 && feature + 1 < C.shape.D;
      const float own[4] = {low ? sum[0] : 0.0f, high ? sum[1] : 0.0f, low ? sum[2] : 0.0f,
                            high ? sum[3] : 0.0f};
      finish(own, words);
    } else {
      finish(sum, words);
    }
  }
  __device__ __forceinline__ static void store_pieces(unsigned short* to, unsigned from, int count,
                                                      bool last) {
#pragma unroll
    for (int size = kChunk; size >= C.config.vec_c; size /= 2) {
      if ((count & size) == 0) continue;
      const int longer = count & ~(2 * size - 1), begin = last ? kChunk - longer - size : longer;
      store_piece(to + begin, from + 2 * begin, size);
    }
  }
  __device__ __forceinline__ static void store_piece(unsigned short* to, unsigned from, int size) {
    unsigned words[4];
    switch (size) {
      case 8:
        ptx::load_shared<16>(words, from);
        return ptx::store_global<16>(to, words);
      case 4:
        ptx::load_shared<8>(words, from);
        return ptx::store_global<8>(to, words);
      case 2:
        ptx::load_shared<4>(words, from);
        return ptx::store_global<4>(to, words);
      default:
        ptx::load_shared<2>(words, from);
        return ptx::store_global<2>(to, words);
    }
  }
  __device__ __forceinline__ static void store_elements(unsigned short* to, unsigned from, int count,
                                                        bool last) {
    const int begin = last ? kChunk - count : 0;
#pragma unroll 1
    for (int i = begin; i < begin + count; ++i) store_piece(to + i, from + 2 * i, 1);
  }
};

}  // namespace trigen::wgmma_sm90
