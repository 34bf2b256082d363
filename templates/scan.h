// Sizes and places of family scan, shared by the kernel (NVRTC) and the host side (generator/families/scan.cpp).
//
// W[t,s] = target[t] decay[t] decay[t-1] ... decay[s+1] source[s] for s < t, W[t,t] = diagonal[t]: a product with it is a
// first-order recurrence along the tokens (templates/scan.cuh). A block walks its tokens in steps, whose inputs a ring in
// shared memory takes ahead. A thread has `features` x `tokens` neighbouring elements of a step; the lanes of a warp lie
// side by side along the features and then along the tokens, the warps of a block along the tokens.
//
// Fields of Config, as this family uses them:
//
//   tile_m   tokens of a step: of all warps
//   tile_n   features of a block, of one head
//   tile_k   tokens (btd) or features (bdt) of a thread, across its vectors
//   warps_m  warps of a block; warps_n is 1
//   stages   steps in the ring
//   split_k  parts of the tokens, each with blocks of its own, whose states a launch ahead leaves in the workspace
//   cluster  blocks that take as many steps in a row at a time and tell each other what these do to the state; 0 = a
//            block takes its steps alone
//   vec_a    1: vectors of W are read singly
//   vec_b    elements of one copy into the ring
//   vec_c    elements of a thread's vectors: features (btd) or tokens (bdt); of one store
#pragma once

#include "schedule.h"

namespace trigen::scan {

using schedule::ceil_div;

inline constexpr int kSumThreads = 256;  // of a block that adds parts

TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 32 * c.warps_m; }
// Blocks that walk the same tokens together.
TRIGEN_HOST_DEVICE constexpr int blocks(const Config& c) { return schedule::max(1, c.cluster); }
// Of a thread. A config that says nothing has 1 of each, so that its refusal can be worded.
TRIGEN_HOST_DEVICE constexpr int features(Layout layout, const Config& c) {
  return schedule::max(1, layout == Layout::kBTD ? c.vec_c : c.tile_k);
}
TRIGEN_HOST_DEVICE constexpr int tokens(Layout layout, const Config& c) {
  return schedule::max(1, layout == Layout::kBTD ? c.tile_k : c.vec_c);
}
// Lanes of a warp along the features, and along the tokens.
TRIGEN_HOST_DEVICE constexpr int feature_lanes(Layout layout, const Config& c) {
  return schedule::min(32, schedule::max(1, c.tile_n / features(layout, c)));
}
TRIGEN_HOST_DEVICE constexpr int token_lanes(Layout layout, const Config& c) {
  return 32 / feature_lanes(layout, c);
}
TRIGEN_HOST_DEVICE constexpr int step_tokens(Layout layout, const Config& c) {
  return c.warps_m * token_lanes(layout, c) * tokens(layout, c);
}

// Steps of a part of split_k; the last part may have fewer, or none.
TRIGEN_HOST_DEVICE constexpr int part_steps(const Config& c, int T) {
  return ceil_div(ceil_div(T, c.tile_m), c.split_k);
}
// Blocks of one batch and head.
TRIGEN_HOST_DEVICE constexpr int slabs(const Config& c, int D) { return ceil_div(D, c.tile_n); }

// Sums of a token that scan_grad_weight makes.
TRIGEN_HOST_DEVICE constexpr int sums(const Shape& s) { return kVectors + s.bias; }

// A step of one input in the ring, in bytes. btd: rows of a token, and behind a thread's tokens as much as sets the lanes
// of the next ones apart. bdt: rows of a feature that an odd number of 16 bytes sets apart.
TRIGEN_HOST_DEVICE constexpr int row_bytes(Layout layout, const Config& c, int element) {
  return layout == Layout::kBTD ? c.tile_n * element : (c.tile_m * element + 31) / 32 * 32 + 16;
}
TRIGEN_HOST_DEVICE constexpr int chunk_gap(Layout layout, const Config& c, int element) {
  return layout == Layout::kBTD && token_lanes(layout, c) > 1 && row_bytes(layout, c, element) % 128 != 0
             ? (row_bytes(layout, c, element) + 15) / 16 * 16
             : 0;
}
TRIGEN_HOST_DEVICE constexpr int stage_bytes(Layout layout, const Config& c, int element) {
  const int rows = layout == Layout::kBTD ? c.tile_m : c.tile_n;
  const int gaps = ceil_div(c.tile_m, tokens(layout, c)) * chunk_gap(layout, c, element);
  return (rows * row_bytes(layout, c, element) + gaps + 15) / 16 * 16;
}

// Shared memory: the ring, of scan_grad_weight of both inputs; the gains of the tokens of two steps; what the warps hand to
// each other, twice, as a step's readers may still be there when the next one's writers are: the state that a warp's tokens
// leave of a feature, and the product of their decays, in each direction; behind it what the blocks of a cluster do, and an
// mbarrier for each of the two.
TRIGEN_HOST_DEVICE constexpr int inputs(Op op) { return makes_vectors(op) ? 2 : 1; }
TRIGEN_HOST_DEVICE constexpr int ring_bytes(Op op, Layout layout, const Config& c, int element) {
  return c.stages * inputs(op) * stage_bytes(layout, c, element);
}
TRIGEN_HOST_DEVICE constexpr int gains(Layout layout, const Config& c) {
  return c.tile_m + c.tile_m / tokens(layout, c);
}
TRIGEN_HOST_DEVICE constexpr int pitch(const Config& c) {
  return c.tile_n + 4;
}  // of one map: states, product
TRIGEN_HOST_DEVICE constexpr int exchange_floats(const Config& c) { return c.warps_m * pitch(c); }
TRIGEN_HOST_DEVICE constexpr int exchange_begin(Op op, Layout layout, const Config& c, int element) {
  return ring_bytes(op, layout, c, element) + 2 * 16 * gains(layout, c);
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(Op op, Layout layout, const Config& c, int element) {
  return exchange_begin(op, layout, c, element) +
         4 * 2 * (inputs(op) * exchange_floats(c) + c.cluster * pitch(c)) + (c.cluster > 0 ? 16 : 0);
}

// Workspace in floats. Of split_k > 1: for each direction and part the products of its decays [h] and the states that
// its tokens leave [b][h][d]. Of scan_grad_weight then the states before each step [step][b][h][d], and the sums of each
// block [h][b][slab][sum][t].
TRIGEN_HOST_DEVICE constexpr long long columns(const schedule::Sizes& z) {
  return static_cast<long long>(z.B) * z.H * z.D;
}
TRIGEN_HOST_DEVICE constexpr long long state_floats(const schedule::Sizes& z) { return z.H + columns(z); }
TRIGEN_HOST_DEVICE constexpr long long carry_floats(Op op, const Config& c, const schedule::Sizes& z) {
  return c.split_k == 1 ? 0 : inputs(op) * c.split_k * state_floats(z);
}
TRIGEN_HOST_DEVICE constexpr long long step_floats(const Config& c, const schedule::Sizes& z) {
  return ceil_div(ceil_div(z.T, c.tile_m), blocks(c)) * blocks(c) * columns(z);
}
TRIGEN_HOST_DEVICE constexpr long long workspace_floats(const Shape& s, const Config& c,
                                                        const schedule::Sizes& z) {
  return carry_floats(s.op, c, z) +
         (makes_vectors(s.op)
              ? step_floats(c, z) + static_cast<long long>(z.H) * z.B * slabs(c, z.D) * sums(s) * z.T
              : 0);
}

}  // namespace trigen::scan
