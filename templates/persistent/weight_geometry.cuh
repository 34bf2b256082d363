// The shared memory of grad_weight's kernel and the rules that its config obeys.
#pragma once

#include "config.h"
#include "pack_activations.h"
#include "persistent/grad_weight.h"
#include "persistent/roles.cuh"

namespace trigen::persistent::weight {

template <Config c>
inline constexpr Warpgroups kWarpgroups{.consumers = kConsumers,
                                        .load_registers = load_registers(c),
                                        .sum_registers = sum_registers(c),
                                        .register_threads = register_threads(c)};
template <Config c>
struct BaseOf {
  using Type = persistent::Geometry<c, kWarpgroups<c>>;
};
template <Config c>
requires(loaders(c) == 2) struct BaseOf<c> {
  using Type = persistent::Geometry<c, TwoLoaders{kWarpgroups<c>}>;
};

template <Kernel C>
struct Geometry : BaseOf<C.config>::Type {
  static constexpr Config c = C.config;
  using Base = typename BaseOf<c>::Type;
  using Base::kCluster, Base::kStages;
  static constexpr int kReleasingWarps = takes_turns(c) ? 4 : Base::kReleasingWarps;
  static constexpr int kPanels = panels(c);
  static constexpr bool kSquares = squares(c);
  static constexpr bool kTokens = false;
  static constexpr int kBytesA = row_panels(c) * kPanelBytes;
  static constexpr int kStageBytes = stage_bytes(c);
  static constexpr int kStorePanels = store_panels(c);
  static constexpr int kSharedBytes = shared_bytes(c);
  static constexpr int kBarrierBytes = weight::kBarrierBytes;

  static_assert(makes_weights(C.shape.op), "sums dW");
  static_assert(C.shape.layout == Layout::kBTD || packing::packs_activations(C.shape, C.config) ||
                    (C.shape.dtype != DType::kF32 && C.shape.K <= 1),
                "features contiguous, or tokens of 16-bit data and one tap");
  static_assert(C.shape.dtype != DType::kF32 || (C.shape.math == Math::kTF32 && C.shape.K <= 1),
                "16-bit data; f32 of one tap, multiplied as tf32");
  static_assert((c.tile_m == 128 && ((c.tile_n == 256 && kCluster <= 2) ||
                                     (c.tile_n == 128 && (kCluster == 1 || kCluster == 4)))) ||
                    ((stacks(c) || holds_triangle(c)) && c.tile_n == c.tile_m && kCluster == 1) ||
                    (shares_triangle(c) && c.tile_n == 128 && kCluster == 6),
                "the tiles that StreamK counts");
  static_assert(!holds_triangle(c) ||
                    (C.shape.T > 0 && C.shape.T <= c.tile_m && C.shape.K <= 1 &&
                     C.shape.dtype != DType::kF32 && C.shape.w == WeightForm::kDense &&
                     (C.shape.fill == Fill::kLower ? C.shape.diag <= 0 : C.shape.diag >= 0)),
                "all of a triangle, of one tap");
  static_assert(!shares_triangle(c) ||
                    (C.shape.op == Op::kGram && C.shape.T > c.tile_m - 128 && C.shape.T <= c.tile_m &&
                     C.shape.dtype != DType::kF32 && c.split_k == 1),
                "all of gram's triangle, in one part");
  static_assert(!stacks(c) || (C.shape.T > 0 && C.shape.T <= kPanel && C.shape.K <= 1 &&
                               !packing::packs_activations(C.shape, c)),
                "whole batches in a panel");
  static_assert(!schedule::sums_diagonals(C.shape) || (!stacks(c) && !takes_turns(c)),
                "both warpgroups leave diagonals of their rows");
  static_assert(c.tile_k == (C.shape.dtype == DType::kF32 ? 32 : 64), "one 128-byte swizzled row");
  static_assert((takes_turns(c) || c.warps_m == 4 * weight::kConsumers) && c.warps_n == 1,
                "a warpgroup is 4 warps along m");
  static_assert(!takes_turns(c) || (C.shape.K <= 1 && C.shape.dtype != DType::kF32 && !C.shape.bias &&
                                    c.tile_n == 128 && c.split_k == 1),
                "whole tiles of one tap");
  static_assert(!brings_rows(c) ||
                    (C.shape.op == Op::kGradWeight && C.shape.layout == Layout::kBTD && C.shape.K <= 1 &&
                     C.shape.dtype != DType::kF32 && ((c.tile_m == 128 && c.tile_n == 128) || stacks(c)) &&
                     C.shape.w != WeightForm::kToeplitz && kCluster == 1 && c.box == 0 && !takes_turns(c)),
                "rows of 16-bit features, one tap, tiles of a block alone; a Toeplitz matrix's sums need "
                "zeros behind the tokens");
  static_assert(kStages <= 12, "the barriers fit");
  static_assert(c.split_k >= 1, "1: no tile is shared but the narrow ones");
  static_assert(kStorePanels >= 1, "no shared memory left to stage the output: fewer stages");
};

}  // namespace trigen::persistent::weight
