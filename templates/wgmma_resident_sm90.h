// Sizes of the wgmma_resident_sm90 kernels that host and kernel agree on. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "pack.h"
#include "persistent/k_range.h"
#include "persistent/sizes.h"
#include "schedule.h"

namespace trigen::wgmma_resident_sm90 {

using persistent::box_features;
using persistent::kPanel;
using persistent::kPanelBytes;

// Registers hold W's triangle, 16 for each of its 64 x 64 blocks: 96 for three rows of them, 80 of each warpgroup of a team
// of two for four.
inline constexpr int kMostTokens = 256;
// Threads take 30 us to bring W of more: loads that wait for each other (docs/experiments/wgmma_resident_sm90.md).
inline constexpr int kMostBrought = 192;
inline constexpr int kBarrierBytes = 512;     // at the end of shared memory
inline constexpr int kMostStages = 16;        // two barriers each, and W's two
inline constexpr int kRegistersOfSM = 65536;  // CUDA C++ Programming Guide, "Compute Capabilities"

// Rows of blocks of 64 tokens.
TRIGEN_HOST_DEVICE constexpr int rows(const Shape& s) { return schedule::ceil_div(s.T, kPanel); }
// A panel is 64 features of one (batch, head) and all tokens. Its lines hold 128 bytes: a token each, up to
// whole steps of 16 along k, or, where tokens are contiguous, a feature of a block of 64 tokens.
inline constexpr int kStep = 16;
TRIGEN_HOST_DEVICE constexpr int lines(const Shape& s) {
  return s.layout == Layout::kBTD ? schedule::ceil_div(s.T, kStep) * kStep : kPanel * rows(s);
}
TRIGEN_HOST_DEVICE constexpr int panel_bytes(const Shape& s) { return 128 * lines(s); }
// Of the block of 64 tokens: lines that it has, and steps of 16 along k.
TRIGEN_HOST_DEVICE constexpr int lines_of_block(const Shape& s, int block) {
  return schedule::min(kPanel, lines(s) - kPanel * block);
}
TRIGEN_HOST_DEVICE constexpr int steps_of_block(const Shape& s, int block) {
  return lines_of_block(s, block) / kStep;
}
// A stage of the ring is panels that lie side by side, and behind them the residual's. The output takes x's
// place.
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c) { return c.tile_n / kPanel; }
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Shape& s, const Config& c) {
  return panels(c) * panel_bytes(s) * (s.residual ? 2 : 1);
}
// Warpgroups that share a panel's rows and W's triangle: a team, two for more rows than one's registers hold W of. There are
// warps_n of them.
TRIGEN_HOST_DEVICE constexpr int team(const Shape& s) { return rows(s) > 3 ? 2 : 1; }
TRIGEN_HOST_DEVICE constexpr int team(const Config& c) { return c.warps_m / 4; }
// 64 x 64 blocks of W's triangle, of the usual one at most, and of them those that a warpgroup's registers hold.
TRIGEN_HOST_DEVICE constexpr int triangle_blocks(const Config& c) {
  const int edge = c.tile_m / kPanel;
  return edge * (edge + 1) / 2;
}
TRIGEN_HOST_DEVICE constexpr int held_blocks(const Config& c) {
  return schedule::ceil_div(triangle_blocks(c), team(c));
}
// One head's W lies behind the ring, or, of a team, in the ring's last stages until registers have it. Its blocks begin at
// whole kilobytes, as panels do.
TRIGEN_HOST_DEVICE constexpr int ring_bytes(const Shape& s, const Config& c) {
  return c.stages * stage_bytes(s, c);
}
TRIGEN_HOST_DEVICE constexpr int weights_begin(const Shape& s, const Config& c) {
  const int ring = ring_bytes(s, c);
  return team(c) == 1 ? ring : schedule::max(0, ring - triangle_blocks(c) * kPanelBytes);
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Shape& s, const Config& c) {
  return schedule::max(ring_bytes(s, c), weights_begin(s, c) + triangle_blocks(c) * kPanelBytes) +
         kBarrierBytes;
}
TRIGEN_HOST_DEVICE constexpr bool fits(const Shape& s, const Config& c) {
  return shared_bytes(s, c) <= persistent::kSharedLimit;
}
// Warpgroups that multiply, each team panels of its own, and one that loads.
TRIGEN_HOST_DEVICE constexpr int multiplying(const Config& c) { return team(c) * c.warps_n; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (multiplying(c) + 1); }
// setmaxnreg: the registers that the loading warpgroup keeps and that each multiplying one gets, in units
// of 8, of those that the block begins with.
inline constexpr int kLoadRegisters = 40;
TRIGEN_HOST_DEVICE constexpr int first_registers(const Config& c) {
  return schedule::min(kRegistersOfSM / threads(c) / 8 * 8, 240);
}
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) {
  return schedule::min(((multiplying(c) + 1) * first_registers(c) - kLoadRegisters) / multiplying(c) / 8 * 8,
                       240);
}
// Registers of a thread that multiplies: W, the sums of so many blocks of 64 rows, the identity of a
// residual, and the rest by what NVRTC 12.9 does not spill.
TRIGEN_HOST_DEVICE constexpr int needed_registers(const Shape& s, const Config& c, int sums) {
  const int edge = c.tile_m / kPanel;
  return 16 * held_blocks(c) + 32 * sums + (s.residual ? 20 : 0) + 28 + 12 * edge / team(c);
}
// Blocks of sums in turn: one's products run while another becomes output, where registers hold two. Of a team: those of
// all of a warpgroup's rows.
TRIGEN_HOST_DEVICE constexpr int sums(const Shape& s, const Config& c) {
  if (team(c) > 1) return schedule::ceil_div(rows(s), team(c));
  return rows(s) * panels(c) > 1 && needed_registers(s, c, 2) <= sum_registers(c) ? 2 : 1;
}
TRIGEN_HOST_DEVICE constexpr bool holds_weights(const Shape& s, const Config& c) {
  return needed_registers(s, c, team(c) == 1 ? 1 : sums(s, c)) <= sum_registers(c);
}

// Elements of W that such a thread has under way.
inline constexpr int kLoadsOfWeights = 48;
// Do the threads that multiply bring W to shared memory? TMA can in rows of 16 bytes of x's type, as W lies or as a launch
// ahead has packed it.
TRIGEN_HOST_DEVICE constexpr bool stages_weights(const Shape& s, const Config& c) {
  return c.weights == Access::kDirect && (s.wdtype != s.dtype || c.vec_a < 8);
}

// The triangle as the product's rows see it.
TRIGEN_HOST_DEVICE constexpr int product_diag(const Shape& s) {
  return s.op == Op::kGradInput ? -s.diag : s.diag;
}
TRIGEN_HOST_DEVICE constexpr persistent::KRange k_range(const Shape& s, int row) {
  return {persistent::product_fill(s), kPanel * row, product_diag(s), rows(s)};
}
// W's blocks in the k ranges of rows, row by row: the number of those before `row`, and the block of k of the
// n-th of a row.
TRIGEN_HOST_DEVICE constexpr int first_unit(const Shape& s, int row) {
  int count = 0;
  for (int r = 0; r < row; ++r) count += k_range(s, r).blocks;
  return count;
}
TRIGEN_HOST_DEVICE constexpr int units(const Shape& s) { return first_unit(s, rows(s)); }
TRIGEN_HOST_DEVICE constexpr int block_of_k(const Shape& s, int n) {
  return persistent::product_fill(s) == Fill::kLower ? n : rows(s) - 1 - n;
}
// Rows are multiplied longest first, so that the others do not read the block of x that a row's output
// overwrites.
TRIGEN_HOST_DEVICE constexpr int nth_row(const Shape& s, int n) {
  return persistent::product_fill(s) == Fill::kLower ? rows(s) - 1 - n : n;
}
// The warpgroup of a team that multiplies the n-th row: of four the first has the longest and the shortest, five of a
// triangle's ten blocks as the other.
TRIGEN_HOST_DEVICE constexpr int member(const Config& c, int n) {
  return team(c) == 1 ? 0 : (n ^ n >> 1) & 1;
}
// Of the blocks that such a warpgroup holds: the first one of `row`.
TRIGEN_HOST_DEVICE constexpr int first_held(const Shape& s, const Config& c, int row) {
  int count = 0;
  for (int r = 0; r < row; ++r)
    if (member(c, nth_row(s, r)) == member(c, nth_row(s, row))) count += k_range(s, r).blocks;
  return count;
}
TRIGEN_HOST_DEVICE constexpr int held(const Shape& s, const Config& c, int of) {
  int count = 0;
  for (int r = 0; r < rows(s); ++r)
    if (member(c, nth_row(s, r)) == of) count += k_range(s, r).blocks;
  return count;
}
TRIGEN_HOST_DEVICE constexpr bool in_place(const Shape& s) {
  for (int n = 0; n < rows(s); ++n)
    for (int later = n + 1; later < rows(s); ++later)
      for (int block = 0; block < k_range(s, nth_row(s, later)).blocks; ++block)
        if (block_of_k(s, block) == nth_row(s, n)) return false;
  return true;
}

// The stages of a thread block, head by head, batch by batch: groups of `group` that lie next to each other, `step` from
// one to the next.
struct StageWalk {
  int of_head;  // stages of a head
  int first, last, step, group = 1;
  // The n-th of them; the block has it where it lies before `last`.
  TRIGEN_HOST_DEVICE constexpr int stage(int n) const { return first + n / group * step + n % group; }
};
TRIGEN_HOST_DEVICE constexpr int first_stage(int all, int blocks, int block) {
  return static_cast<int>(static_cast<long long>(all) * block / blocks);
}
// A stage's panels are of one batch, or, where boxes are narrow, boxes in a row, of one batch after the other.
TRIGEN_HOST_DEVICE constexpr int stages_of_head(int B, int D, const Config& c) {
  const int features = box_features(c);
  return c.box > 0 ? schedule::ceil_div(B * schedule::ceil_div(D, features), c.tile_n / features)
                   : B * schedule::ceil_div(D, c.tile_n);
}

// raster 2, one head: blocks claim what comes behind the stages that fill their rings first. SMs move unequal shares of
// the memory's bytes, and reads and writes that stay close together cost it less
// (docs/experiments/wgmma_resident_sm90.md). A launch ahead makes the count of claims 0: a word of the workspace, behind packed W.
TRIGEN_HOST_DEVICE constexpr bool claims(const Config& c) { return c.raster == 2; }
TRIGEN_HOST_DEVICE constexpr long long claims_at(const Shape& s, const Config& c) {
  return c.weights == Access::kPacked ? 2LL * packing::pitch(s.T) * packing::pitch(s.T) : 0;
}
// A claim takes stages of so many bytes: by half of them one count has as many claims as it can serve.
inline constexpr int kClaimBytes = 16 << 10;
TRIGEN_HOST_DEVICE constexpr int claim_stages(const Shape& s, const Config& c) {
  return claims(c) ? schedule::max(1, kClaimBytes / stage_bytes(s, c)) : 1;
}
// Stages of a block that it need not claim: those that fill its ring, whole groups.
TRIGEN_HOST_DEVICE constexpr int unclaimed_stages(const Shape& s, const Config& c) {
  return schedule::max(1, c.stages / claim_stages(s, c)) * claim_stages(s, c);
}
// The first stage of the n-th claim.
TRIGEN_HOST_DEVICE constexpr int claimed_stage(const Shape& s, const Config& c, int blocks, int n) {
  return blocks * unclaimed_stages(s, c) + n * claim_stages(s, c);
}

// raster 1: stages of one head in turn with the other blocks of it, so that blocks work side by side in memory;
// 0, and where there are fewer blocks than heads: a run of all stages; 2: what a block need not claim, in turns of groups.
TRIGEN_HOST_DEVICE constexpr StageWalk walk_of_block(const Shape& s, const Config& c, int B, int D,
                                                     int blocks, int block) {
  const int of_head = stages_of_head(B, D, c);
  if (claims(c)) {
    const int group = claim_stages(s, c);
    return {of_head, group * block, of_head, group * blocks, group};
  }
  if (c.raster == 0 || blocks < s.H)
    return {of_head, first_stage(s.H * of_head, blocks, block), first_stage(s.H * of_head, blocks, block + 1),
            1};
  const int head = block % s.H, peers = (blocks - head + s.H - 1) / s.H;
  return {of_head, head * of_head + block / s.H, (head + 1) * of_head, peers};
}

}  // namespace trigen::wgmma_resident_sm90
