// The sums on their way to memory, in panels of 64 tokens by a warpgroup's 64 features: y = act(sum + bias) * gate
// + residual. A panel's residual and gate come into its staging buffers while the tile is still multiplied, the
// warpgroup combines them in place with its sums, and the output and pre leave from the same buffers.
#pragma once

#include "activation.cuh"
#include "params.h"
#include "persistent/staging.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/stmatrix.cuh"
#include "types.cuh"
#include "wgmma_taps_sm90/pipeline.cuh"

namespace trigen::wgmma_taps_sm90 {

using persistent::OutputMaps;

// A multiplying warpgroup's part of an output tile.
template <Kernel C>
struct OutputTile {
  int row, head, batch, feature;
  int panels;  // 0: it has no features
  __device__ __forceinline__ OutputTile(const Work<C>& work, int r, int column, unsigned group) : row(r) {
    work.locate(column, head, batch, feature);
    feature += 64 * static_cast<int>(group);
    panels = feature < C.shape.D ? Work<C>::valid_panels(row) : 0;
  }
  __device__ __forceinline__ int token(int panel) const {
    return row * C.config.tile_m + kPanel * Work<C>::panel_at(row, panel);
  }
};

// move(map, c0, c1, c2, c3): where a panel lies in a tensor of the output's shape.
template <Kernel C, class Move>
__device__ __forceinline__ void with_place(const OutputTile<C>& tile, int panel, const Move& move) {
  const int token = tile.token(panel);
  move(Geometry<C>::kTokens ? token : tile.feature, Geometry<C>::kTokens ? tile.feature : token, tile.head,
       tile.batch);
}

// 16 tokens by a warp's 16 features of a staged panel, as the sums lie: word 2 * i + j has two tokens of the i-th 8
// and a feature of the j-th 8. Rows of 128 bytes, swizzled (16-byte chunk ^ row % 8); the panel's tokens run
// backwards where W's do.
template <Kernel C>
struct PanelWords {
  static constexpr bool kFlipped = Work<C>::kFlipped;
  unsigned panel, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  __device__ __forceinline__ explicit PanelWords(unsigned address) : panel(address) {}

  // Contiguous features: 8 x 8 matrices whose rows are tokens.
  __device__ __forceinline__ unsigned matrix(int part) const {
    const unsigned own = 16 * part + lane / 16 * 8 + lane % 8, line = kFlipped ? 63 - own : own;
    return panel + line * 128 + (((2 * warp + lane / 8 % 2) ^ (line & 7)) << 4);
  }
  // Contiguous tokens: every word on its own; a warp's lie in all banks.
  __device__ __forceinline__ unsigned word(int part, int i) const {
    const unsigned line = 16 * warp + lane / 4 + i % 2 * 8, own = 2 * part + i / 2,
                   chunk = kFlipped ? 7 - own : own, within = kFlipped ? 3 - lane % 4 : lane % 4;
    return panel + line * 128 + ((chunk ^ (line & 7)) << 4) + within * 4;
  }
  static __device__ __forceinline__ unsigned in_order(unsigned tokens) {
    return kFlipped ? __byte_perm(tokens, 0, 0x1032) : tokens;
  }

  __device__ __forceinline__ void load(unsigned (&words)[4], int part, int bytes) const {
    if constexpr (!Geometry<C>::kTokens) {
      ptx::ldmatrix_x4_trans(words, matrix(part) + bytes);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        ptx::load_shared<4>(&words[i], word(part, i) + bytes);
        words[i] = in_order(words[i]);
      }
    }
  }
  __device__ __forceinline__ void store(const unsigned (&words)[4], int part, int bytes) const {
    if constexpr (!Geometry<C>::kTokens) {
      ptx::stmatrix_x4_trans(matrix(part) + bytes, words[0], words[1], words[2], words[3]);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned own = in_order(words[i]);
        ptx::store_shared<4>(word(part, i) + bytes, &own);
      }
    }
  }
};

// Epilogue of a thread's sums of a panel.
template <Kernel C>
struct PanelEpilogue {
  static constexpr Shape s = C.shape;
  const void* bias;  // of the head
  int first;         // token
  bool any;          // false: no weight in these tokens, the sum is zero

  __device__ __forceinline__ PanelEpilogue(const Params& p, const OutputTile<C>& tile, int panel)
      : first(tile.token(panel)) {
    any = !Work<C>::kEmptyRows || Work<C>::panel_steps(tile.row, panel) > 0;
    if constexpr (s.bias)
      bias = static_cast<const Storage<s.wdtype>*>(p.bias) + static_cast<long long>(tile.head) * s.T;
  }

  // 16 tokens: eight sums, and words as PanelWords has them: the operands, the output, the value before the
  // activation. What the problem does not have is not touched.
  __device__ __forceinline__ void operator()(const float* sum, int part, const unsigned* residual,
                                             const unsigned* gate, unsigned* out, unsigned* pre) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int own = 16 * part + i / 2 * 8 + static_cast<int>(threadIdx.x % 4 * 2);
      float v[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        v[e] = any ? sum[2 * i + e] : 0.0f;
        if constexpr (s.bias) {
          const int token = first + (Work<C>::kFlipped ? 63 - own - e : own + e);
          if (token < s.T) v[e] += to_float<s.wdtype>(static_cast<const Storage<s.wdtype>*>(bias)[token]);
        }
      }
      if constexpr (s.pre) pre[i] = pack<s.dtype>(v[0], v[1]);
      activate_pair<s.act, s.dtype>(v[0], v[1]);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        if constexpr (s.gate) v[e] *= to_float<s.dtype>(static_cast<unsigned short>(gate[i] >> 16 * e));
        if constexpr (s.residual)
          v[e] += to_float<s.dtype>(static_cast<unsigned short>(residual[i] >> 16 * e));
      }
      out[i] = pack<s.dtype>(v[0], v[1]);
    }
  }
};

// The output alone.
template <Kernel C>
struct OutputPanels {
  using G = Geometry<C>;
  const OutputMaps& maps;
  persistent::Staging<G::kStorePanels, 128> staging;

  __device__ __forceinline__ OutputPanels(const Shared<C>& shared, const OutputMaps& m, unsigned group)
      : maps(m), staging(shared.staging(group, 0), 1 + group) {}
  __device__ __forceinline__ void begin(const OutputTile<C>&) const {}
  __device__ __forceinline__ void store(const float (&sum)[32], const OutputTile<C>& tile, int panel,
                                        const PanelEpilogue<C>& finish) {
    unsigned words[4][4];
#pragma unroll
    for (int part = 0; part < 4; ++part) finish(sum + 8 * part, part, nullptr, nullptr, words[part], nullptr);
    const unsigned target = staging.claim();
    const PanelWords<C> place(target);
#pragma unroll
    for (int part = 0; part < 4; ++part) place.store(words[part], part, 0);
    with_place(tile, panel,
               [&](int c0, int c1, int c2, int c3) { staging.send(*maps.output, target, c0, c1, c2, c3); });
  }
  __device__ __forceinline__ void finish() const { staging.finish(); }
};

// The output beside other tensors of its shape. The warpgroup's leading thread moves the panels.
template <Kernel C>
struct ExchangedPanels {
  using G = Geometry<C>;
  static constexpr Shape s = C.shape;
  static constexpr int kSlots = G::kStorePanels, kOperands = s.residual + s.gate;
  static constexpr int kGate = s.residual ? kPanelBytes : 0,
                       kPre = kPanelBytes;  // behind residual and output
  const Shared<C>& shared;
  const OutputMaps& maps;
  unsigned group;
  persistent::RingPosition<kSlots> at;
  int incoming = 0;  // the slot that is fetched into next

  __device__ __forceinline__ ExchangedPanels(const Shared<C>& all, const OutputMaps& m, unsigned g)
      : shared(all), maps(m), group(g) {}
  __device__ __forceinline__ static bool leads() { return threadIdx.x % 128 == 0; }
  __device__ __forceinline__ void meet() const { ptx::named_barrier(1 + group, 128); }

  // The leading thread, once the slot has been read.
  __device__ __forceinline__ void fetch(const OutputTile<C>& tile, int panel) {
    const unsigned to = shared.staging(group, incoming), fetched = shared.fetched(group, incoming);
    ptx::mbarrier_arrive_expect(fetched, kOperands * kPanelBytes);
    with_place(tile, panel, [&](int c0, int c1, int c2, int c3) {
      if constexpr (s.residual) ptx::tma_load(to, *maps.residual, fetched, c0, c1, c2, c3);
      if constexpr (s.gate) ptx::tma_load(to + kGate, *maps.gate, fetched, c0, c1, c2, c3);
    });
    incoming = incoming + 1 == kSlots ? 0 : incoming + 1;
  }
  // The first panels' operands, the others' into the L2.
  __device__ __forceinline__ void begin(const OutputTile<C>& tile) {
    if (kOperands == 0 || !leads()) return;
    ptx::tma_store_wait_read<0>();
#pragma unroll 1
    for (int panel = 0; panel < tile.panels; ++panel) {
      if (panel < kSlots) {
        fetch(tile, panel);
      } else {
        with_place(tile, panel, [&](int c0, int c1, int c2, int c3) {
          if constexpr (s.residual) ptx::tma_prefetch_box(*maps.residual, c0, c1, c2, c3);
          if constexpr (s.gate) ptx::tma_prefetch_box(*maps.gate, c0, c1, c2, c3);
        });
      }
    }
  }
  __device__ __forceinline__ void store(const float (&sum)[32], const OutputTile<C>& tile, int panel,
                                        const PanelEpilogue<C>& finish) {
    const unsigned buffer = shared.staging(group, at.stage);
    if constexpr (kOperands > 0) {
      ptx::mbarrier_wait(shared.fetched(group, at.stage), at.parity);
    } else {
      if (leads()) ptx::tma_store_wait_read<kSlots - 1>();
      meet();
    }
    const PanelWords<C> place(buffer);
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      unsigned residual[4], gate[4], out[4], pre[4];
      if constexpr (s.residual) place.load(residual, part, 0);
      if constexpr (s.gate) place.load(gate, part, kGate);
      finish(sum + 8 * part, part, residual, gate, out, pre);
      place.store(out, part, 0);
      if constexpr (s.pre) place.store(pre, part, kPre);
    }
    at.advance();
    ptx::fence_async_shared();
    meet();
    if (!leads()) return;
    with_place(tile, panel, [&](int c0, int c1, int c2, int c3) {
      ptx::tma_store(*maps.output, buffer, c0, c1, c2, c3);
      if constexpr (s.pre) ptx::tma_store(*maps.pre, buffer + kPre, c0, c1, c2, c3);
    });
    ptx::tma_store_commit();
    if (kOperands > 0 && panel + kSlots < tile.panels) {
      ptx::tma_store_wait_read<0>();
      fetch(tile, panel + kSlots);
    }
  }
  __device__ __forceinline__ void finish() const {
    if (leads()) ptx::tma_store_wait();
  }
};

}  // namespace trigen::wgmma_taps_sm90
