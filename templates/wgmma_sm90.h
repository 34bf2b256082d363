// Sizes of the wgmma_sm90 kernels that host and kernel agree on: forward and grad_input. grad_weight has
// those of persistent/grad_weight.h. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "persistent/heads.h"
#include "persistent/row_slices.h"
#include "persistent/sizes.h"
#include "persistent/tile_scheduler.h"
#include "schedule.h"

namespace trigen::wgmma_sm90 {

using persistent::box_features;
using persistent::kPanel;
using persistent::kPanelBytes;
using persistent::kSharedLimit;
using persistent::RowPair;
using persistent::RowWorkTile;
using persistent::sent_bytes;
using persistent::sharers;
using persistent::slices;

inline constexpr int kBarrierBytes = 512;  // at the end of shared memory

TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) {
  return c.tile_m / 64;
}  // warpgroups that multiply
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (consumers(c) + 1); }
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c) { return c.tile_n / kPanel; }
// A launch before the product packs W (pack.h), vec_a elements at a time, or writes strips of what stands for it
// (strips.h); or TMA reads W itself (vec_a = 8), 16-bit or f32, or the product a Toeplitz matrix's numbers. f32 weights become
// 16-bit ones in the kernel (weights_f32.cuh).
TRIGEN_HOST_DEVICE constexpr bool packs(const Shape& s, const Config& c) {
  return !makes_weights(s.op) && c.weights == Access::kPacked;
}
TRIGEN_HOST_DEVICE constexpr bool reads_f32_weights(const Shape& s, const Config& c) {
  return !makes_weights(s.op) && s.dtype != DType::kF32 && s.wdtype == DType::kF32 && !packs(s, c) &&
         s.w == WeightForm::kDense;
}
// A Toeplitz matrix that no launch writes strips of: its numbers stay in shared memory (wgmma_sm90/toeplitz.cuh), of each head
// twice those of all distances that a row tile meets and 64 zeros.
TRIGEN_HOST_DEVICE constexpr bool keeps_numbers(const Shape& s, const Config& c) {
  return !makes_weights(s.op) && s.w == WeightForm::kToeplitz && !packs(s, c);
}
TRIGEN_HOST_DEVICE constexpr int reached_rows(const Shape& s, const Config& c) {
  return schedule::ceil_div(s.T, c.tile_m) * c.tile_m;
}
TRIGEN_HOST_DEVICE constexpr int head_numbers_bytes(const Shape& s, const Config& c) {
  return 4 * (reached_rows(s, c) + kPanel) + 64;
}
TRIGEN_HOST_DEVICE constexpr int numbers_bytes(const Shape& s, const Config& c) {
  if (!keeps_numbers(s, c)) return 0;
  const long long all = static_cast<long long>(s.H) * head_numbers_bytes(s, c);
  return all < kSharedLimit ? static_cast<int>(all) : kSharedLimit;  // more than there is
}
// Layout bdt, read in place: K-major as the product's B; staged output is transposed.
TRIGEN_HOST_DEVICE constexpr bool contiguous_tokens(const Shape& s, const Config& c) {
  return s.layout == Layout::kBDT && c.activations == Access::kDirect;
}
TRIGEN_HOST_DEVICE constexpr int rows_bytes(const Shape& s, const Config& c) {  // A's in a stage
  return keeps_numbers(s, c) ? 0 : consumers(c) * (reads_f32_weights(s, c) ? 2 : 1) * kPanelBytes;
}
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Shape& s, const Config& c) {
  return rows_bytes(s, c) + panels(c) * kPanelBytes;
}
// A residual that nothing but bias comes before is a part of the product: one more block of k, whose A is the
// identity.
TRIGEN_HOST_DEVICE constexpr bool multiplies_residual(const Shape& s) {
  return s.dtype != DType::kF32 && s.residual && s.act == Activation::kNone && !s.pre && !s.gate;
}
// An epilogue with other tensors of the output's shape: they pass through shared memory beside the output.
TRIGEN_HOST_DEVICE constexpr bool exchanges(const Shape& s) {
  return s.pre || s.gate || (s.residual && !multiplies_residual(s));
}
// Buffers of kPanelBytes for each output panel: residual and gate come into them, the output and pre leave
// from the same ones.
TRIGEN_HOST_DEVICE constexpr int panel_buffers(const Shape& s) {
  return s.pre || (s.gate && s.residual) ? 2 : 1;
}
// Output panels that each multiplying warpgroup can stage: in the memory that the ring leaves, at most its
// tile. 0: too many stages.
TRIGEN_HOST_DEVICE constexpr int store_panels(const Shape& s, const Config& c) {
  const int room =
      kSharedLimit - kBarrierBytes - sent_bytes(c) - numbers_bytes(s, c) - c.stages * stage_bytes(s, c);
  return room < 0 ? 0 : schedule::min(panels(c), room / (consumers(c) * panel_buffers(s) * kPanelBytes));
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Shape& s, const Config& c) {
  return c.stages * stage_bytes(s, c) + consumers(c) * store_panels(s, c) * panel_buffers(s) * kPanelBytes +
         sent_bytes(c) + numbers_bytes(s, c) + kBarrierBytes;
}
// Numbers of k blocks of a product's row tiles, in stages of the ring.
struct TileStages {
  // Bit n, n < 32. lengths: set if some row tile has n stages; shared_in_part: if the last stage of some such
  // tile is read by only one warpgroup.
  unsigned lengths = 0, shared_in_part = 0;
  bool in_flight = true;  // that warpgroup has not yet released the stage before, in every such tile
};
TRIGEN_HOST_DEVICE constexpr TileStages tile_stages(const Shape& s, const Config& c) {
  TileStages found;
  const Fill fill = persistent::product_fill(s);
  const int blocks = schedule::ceil_div(s.T, kPanel), diag = s.op == Op::kGradInput ? -s.diag : s.diag;
  for (int row = 0; row < s.T; row += 2 * kPanel) {
    const persistent::KRange first(fill, row, diag, blocks), second(fill, row + kPanel, diag, blocks);
    const persistent::KRange& longest = fill == Fill::kLower ? second : first;
    const int length = longest.blocks + (multiplies_residual(s) ? 2 : 0);
    const unsigned bit = length < 32 ? 1u << length : 0;
    found.lengths |= bit;
    if (first.blocks == second.blocks) continue;
    found.shared_in_part |= bit;
    found.in_flight &= longest.blocks >= 2 && (reads_f32_weights(s, c) || keeps_numbers(s, c) ||
                                               longest.unmasked_blocks >= longest.blocks - 1);
  }
  return found;
}
// True if a warpgroup may leave out a stage that only the other one reads, without a wait. Barriers tell two
// phases apart (PTX ISA, mbarrier.test_wait.parity), so the warpgroup must know that the skipped block has
// landed before it next waits at that stage, and nothing orders bulk copies. It knows of the block `stages -
// 1` later, if it reads that one: the loading thread asks for that block after the other warpgroup has
// released the stage before the skipped one. The other warpgroup does so after its wait for the skipped one,
// if both are of one tile and the stage before is still in flight (unmasked blocks, f32 weights, numbers).
TRIGEN_HOST_DEVICE constexpr bool skips_blocks(const Shape& s, const Config& c) {
  if (s.w == WeightForm::kBand) return false;  // its tiles have other numbers of blocks
  if (c.cluster > 1 || consumers(c) == 1 || s.T == 0 || s.T > 65536) return false;
  const TileStages tiles = tile_stages(s, c);
  unsigned sums = 1;  // bit n: n stages are a number of whole tiles
  for (int n = 1; n < c.stages; ++n)
    for (int length = 1; length <= n; ++length)
      if ((tiles.lengths >> length & 1) != 0 && (sums >> (n - length) & 1) != 0) sums |= 1u << n;
  for (int length = 1; length < c.stages; ++length)  // of the tile whose last block is stages - 1 later
    if ((tiles.shared_in_part >> length & 1) != 0 && (sums >> (c.stages - 1 - length) & 1) != 0) return false;
  return tiles.in_flight;
}
// setmaxnreg: the registers that the loading warpgroup keeps and that each multiplying one gets, in units
// of 8.
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config&) { return 40; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) { return consumers(c) == 1 ? 240 : 232; }

// Slices: blocks of k that take as long as sums need on their way, those of all blocks that send, since one block adds them one after
// the other. A prediction: an SM sends a byte in the time in which it takes in three.
TRIGEN_HOST_DEVICE constexpr int sending(const Shape& s, const Config& c) {
  return schedule::ceil_div(3 * sent_bytes(c), stage_bytes(s, c));
}
// Column tiles of one head.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  const int features = box_features(c);
  return persistent::panel_units(panels(c) * (kPanel / features) * sharers(c), B,
                                 persistent::reached_features(c, D), features);
}

}  // namespace trigen::wgmma_sm90
