// The shared memory and the registers of a wgmma_resident_sm90 kernel, and the rules that its config obeys.
#pragma once

#include "config.h"
#include "persistent/roles.cuh"
#include "wgmma_resident_sm90.h"
#include "wgmma_sm90.h"

namespace trigen::wgmma_resident_sm90 {

using persistent::Ring;
using persistent::RingPosition;

template <Kernel C>
struct Geometry {
  static constexpr Config c = C.config;
  static constexpr int kRows = rows(C.shape), kUnits = units(C.shape);
  static constexpr int kTeam = team(c), kTeams = c.warps_n, kConsumers = multiplying(c);
  static constexpr int kLoadRegisters = wgmma_resident_sm90::kLoadRegisters, kSumRegisters = sum_registers(c);
  static constexpr int kReleasingWarps = 1;  // the leading thread of the team that has the stage
  static constexpr int kStages = c.stages, kStageBytes = stage_bytes(C.shape, c), kBytesA = 0;
  static constexpr int kPanels = panels(c), kBytesOfPanel = panel_bytes(C.shape);
  static constexpr int kResidual = kPanels * kBytesOfPanel;  // start of a stage's residual
  static constexpr int kSums = sums(C.shape, c);
  static constexpr int kItems = kPanels * kRows;  // of a stage: rows of blocks of its panels
  static constexpr int kCluster = 1;
  static constexpr bool kStagesWeights = stages_weights(C.shape, c);
  static constexpr int kWeights = weights_begin(C.shape, c);    // from the ring's begin
  static constexpr int kUnderWeights = kWeights / kStageBytes;  // the first stage that lies there
  static constexpr bool kClaims = claims(c);
  static constexpr int kAllGroups = 1 + kConsumers;  // named barrier behind those of the warpgroups
  static constexpr bool kSquares = false;
  static constexpr int kSharedBytes = shared_bytes(C.shape, c);
  static constexpr int kBarrierBytes = wgmma_resident_sm90::kBarrierBytes;
  static constexpr bool kTokens = C.shape.layout == Layout::kBDT;  // contiguous, not the features
  static constexpr int kMajorB = kTokens ? 0 : 1;                  // 0 is K-major
  // Boxes of a panel, all lines of one behind those of another, and what 64 tokens take of a box.
  static constexpr int kBoxFeatures = box_features(c), kParts = kPanel / kBoxFeatures,
                       kPartBytes = kBytesOfPanel / kParts, kBlockBytes = kPanelBytes / kParts;
  static constexpr int kStepB =
      kTokens ? 32 >> 4 : 2 * kBoxFeatures;  // 16 elements of k, in units of the descriptor

  static_assert(C.shape.dtype != DType::kF32, "16-bit data");
  static_assert(C.shape.op == Op::kForward || C.shape.op == Op::kGradInput, "products with x or dy");
  static_assert(C.shape.K == 1 && C.shape.pad == 0, "one tap: TMA cannot shift by single elements");
  static_assert(C.shape.T > 0 && C.shape.T <= kMostTokens, "the triangle stays in registers");
  static_assert(!C.shape.pre && !C.shape.gate, "no tensor but a residual has the output's shape");
  static_assert(!C.shape.residual || wgmma_sm90::multiplies_residual(C.shape), "a residual begins the sums");
  static_assert(in_place(C.shape), "an output takes the place of x that no other row reads");
  static_assert(C.config.activations == Access::kDirect, "x and y as TMA takes them");
  static_assert(!kTokens || kParts == 1, "narrow boxes are of features");
  static_assert(c.tile_m == kPanel * kRows && c.tile_n % kPanel == 0 && c.tile_k == kPanel,
                "panels of all tokens and 64 features");
  static_assert(c.warps_m == 4 * team(C.shape) && c.warps_n >= 1,
                "a warpgroup is 4 warps along m, and has panels of its own or half of the rows of a team's");
  static_assert(c.cluster == 1 && c.blocks == 1, "registers and stages are one block's");
  static_assert(kUnits <= triangle_blocks(c), "W's blocks lie behind the ring or at its end");
  static_assert(held(C.shape, c, 0) <= held_blocks(c) && held(C.shape, c, 1) <= held_blocks(c), "registers");
  static_assert(!kClaims || C.shape.H == 1, "blocks of one head claim stages");
  static_assert(kTeam == 1 || !kStagesWeights, "TMA brings a team's W");
  static_assert(kStages % kTeams == 0, "a stage is always the same team's: none skips a phase of it");
  static_assert(kStages >= 2 * kTeams && kStages <= kMostStages,
                "a team releases a panel when it has sent its next one");
  static_assert(fits(C.shape, c), "shared memory");
  static_assert(holds_weights(C.shape, c), "registers");
};

}  // namespace trigen::wgmma_resident_sm90
