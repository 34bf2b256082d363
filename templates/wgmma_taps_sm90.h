// Sizes of the wgmma_taps_sm90 kernels that host and kernel agree on. Plain C++, like config.h. An output
// tile is tile_m tokens by tile_n features; the product is transposed (wgmma_taps_sm90.cuh).
#pragma once

#include "config.h"
#include "persistent/k_range.h"
#include "persistent/row_slices.h"
#include "persistent/sizes.h"
#include "persistent/tile_scheduler.h"

namespace trigen::wgmma_taps_sm90 {

using persistent::kPanel;
using persistent::kPanelBytes;
using persistent::kSharedLimit;
using persistent::sent_bytes;
using persistent::slices;

inline constexpr int kBarrierBytes = 512;  // at the end of shared memory

// Warpgroups that multiply: 64 features each.
TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) { return c.tile_n / 64; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (consumers(c) + 1); }
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c) { return c.tile_m / kPanel; }
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Config& c) { return panels(c) * kPanelBytes; }

// Halo: features that the taps read to the left of an output's own.
TRIGEN_HOST_DEVICE constexpr int left_halo(const Shape& s) {
  return s.op == Op::kGradInput ? s.K - 1 - s.pad : s.pad;
}
// Layout bdt, read in place: a block of the input is loaded as the product reads it, a feature a row of 64
// tokens with the 128-byte swizzle.
TRIGEN_HOST_DEVICE constexpr bool contiguous_tokens(const Shape& s, const Config& c) {
  return s.layout == Layout::kBDT && c.activations == Access::kDirect;
}
// Loads along contiguous features start at a multiple of 8: those to the left of the first tap's.
TRIGEN_HOST_DEVICE constexpr int extra_left(const Shape& s, const Config& c) {
  return contiguous_tokens(s, c) ? 0 : (8 - left_halo(s) % 8) % 8;
}
// Features of the input that a tile needs, in vectors of 8.
TRIGEN_HOST_DEVICE constexpr int features(const Shape& s, const Config& c) {
  return schedule::ceil_div(c.tile_n + extra_left(s, c) + s.K - 1, 8) * 8;
}
// Tokens of a block of the input: half as many where a context has no more.
TRIGEN_HOST_DEVICE constexpr int block_tokens(const Shape& s, const Config& c) {
  return s.T <= kPanel / 2 && !contiguous_tokens(s, c) ? kPanel / 2 : kPanel;
}
// Of a block: panels as it is loaded, bytes of one, and bytes as the product reads it, transposed to
// [8 tokens][feature][token].
TRIGEN_HOST_DEVICE constexpr int input_panels(const Shape& s, const Config& c) {
  return contiguous_tokens(s, c) ? 0 : schedule::ceil_div(features(s, c), kPanel);
}
TRIGEN_HOST_DEVICE constexpr int input_panel_bytes(const Shape& s, const Config& c) {
  return 2 * kPanel * block_tokens(s, c);
}
TRIGEN_HOST_DEVICE constexpr int transposed_bytes(const Shape& s, const Config& c) {
  return 2 * block_tokens(s, c) * features(s, c);
}
// Contexts of one block: of 16 tokens along k as many as it has are multiplied, and columns likewise.
TRIGEN_HOST_DEVICE constexpr int token_pieces(const Shape& s) {
  return s.T <= kPanel ? schedule::ceil_div(s.T, 16) : kPanel / 16;
}
// Their W stays in the ring, a tap in each stage, where that has the stages.
TRIGEN_HOST_DEVICE constexpr bool keeps_weights(const Shape& s, const Config& c) {
  return s.T <= kPanel && s.H == 1 && c.tile_m == kPanel && c.cluster == 1 && s.K <= c.stages;
}
// Of small tiles a tap's products take less time than the addresses of the next one do where its stage may be any. Where steps begin at
// a multiple of K stages loops over taps are unrolled, and addresses are the step's and a constant.
inline constexpr int kUnrolledTaps = 16;
TRIGEN_HOST_DEVICE constexpr bool small(const Config& c) {
  return c.tile_m * c.tile_n <= 2 * kPanel * kPanel;
}
TRIGEN_HOST_DEVICE constexpr bool unrolls(const Shape& s, const Config& c) {
  return small(c) && s.K <= kUnrolledTaps && (keeps_weights(s, c) || c.stages % s.K == 0);
}
// An epilogue with other tensors of the output's shape: they pass through shared memory beside the output.
TRIGEN_HOST_DEVICE constexpr bool exchanges(const Shape& s) { return s.pre || s.gate || s.residual; }
// Of each multiplying warpgroup, for a panel of the output: residual and gate come into buffers, the output and
// pre leave from the same ones.
TRIGEN_HOST_DEVICE constexpr int store_bytes(const Shape& s) {
  return (s.pre || (s.gate && s.residual) ? 2 : 1) * kPanelBytes;
}
// Blocks of the input: those on their way, and those that the product reads or is about to.
struct InputBuffers {
  int loaded = 2, transposed = 2;
};
TRIGEN_HOST_DEVICE constexpr int input_bytes(const Shape& s, const Config& c, const InputBuffers& buffers) {
  return buffers.loaded * input_panels(s, c) * input_panel_bytes(s, c) +
         buffers.transposed * transposed_bytes(s, c);
}
// Beside the weights and the input.
TRIGEN_HOST_DEVICE constexpr int room(const Shape& s, const Config& c, const InputBuffers& buffers) {
  return kSharedLimit - kBarrierBytes - sent_bytes(c) - c.stages * stage_bytes(c) -
         input_bytes(s, c, buffers);
}
// Two of each where the weights and an output panel of each warpgroup leave the room, two panels where operands
// come into one while another one leaves; else the next block is loaded once the one before is transposed. Up
// to four of each where the whole output tile has its room beside them, and blocks of the launch that packs W:
// few taps take less time than a load.
TRIGEN_HOST_DEVICE constexpr InputBuffers input_buffers(const Shape& s, const Config& c) {
  constexpr int kMost = 4, kPacking = 12 << 10;
  const int panel = consumers(c) * store_bytes(s), tile = panels(c) * panel + kPacking;
  InputBuffers out;
  if (room(s, c, out) < panel * (exchanges(s) ? 2 : 1)) return {1, 2};
  while (input_panels(s, c) > 0 && out.loaded < kMost && room(s, c, {out.loaded + 1, 2}) >= tile)
    ++out.loaded;
  if (room(s, c, {out.loaded, kMost}) >= tile) out.transposed = kMost;
  return out;
}

// Output panels that each multiplying warpgroup can stage. 0: too many stages.
TRIGEN_HOST_DEVICE constexpr int store_panels(const Shape& s, const Config& c) {
  const int left = room(s, c, input_buffers(s, c));
  return left < 0 ? 0 : schedule::min(panels(c), left / (consumers(c) * store_bytes(s)));
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Shape& s, const Config& c) {
  return c.stages * stage_bytes(c) + input_bytes(s, c, input_buffers(s, c)) +
         consumers(c) * store_panels(s, c) * store_bytes(s) + sent_bytes(c) + kBarrierBytes;
}
// setmaxnreg; the warps that transpose need more than those that only load. Tiles of 64 tokens take no more than
// they need: their blocks start, and transpose the first input, beside those of the launch that packs W.
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config&) { return 56; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) {
  return c.tile_m == 64 ? 128 : consumers(c) == 1 ? 240 : 224;
}

// Column tiles of one head, in units of a cluster.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  return schedule::ceil_div(B * schedule::ceil_div(D, c.tile_n), persistent::sharers(c));
}

// grad_weight: a block of tile_m t by 64 s, or 128 s of two taps in f32, and a group of taps, by two warpgroups. Up to four taps are
// a group of 128 t, 64 rows to a warpgroup; more are groups of eight of 64 t, four taps to a warpgroup. A step along k is a
// swizzled row of 128 bytes, 64 features or 32 of f32.
namespace weight {

inline constexpr int kFewTaps = 4;   // of a group that has all taps: rows of dW are stored whole
inline constexpr int kManyTaps = 8;  // of a group that has some of them
inline constexpr int kConsumers = 2;
inline constexpr int kSumWarps = 4 * kConsumers;
inline constexpr int kThreads = 128 * (kConsumers + 1);
// Features of x that the taps of a group read for 64 of dy, from a multiple of 8 on.
inline constexpr int kFeatures = 64 + 16;
inline constexpr int kTransposed = 3;  // buffers of x
inline constexpr int kTransposedBytes = 128 * kFeatures;
inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceWarps = kReduceThreads / 32;
inline constexpr int kReduceBlocks = 2;  // of the reduction for each block of the product
inline constexpr int kSlices = 8;  // 64 columns in units of 8: 16 rows of one are a warp's in the reduction
inline constexpr int kStoreColumns = 32;  // that a warp stages at once of few taps
// Steps of a shared item that a thread block takes, at least: each of its parts costs the reduction a read.
inline constexpr int kLeastShare = 4;

TRIGEN_HOST_DEVICE constexpr bool few(int taps) { return taps <= kFewTaps; }
TRIGEN_HOST_DEVICE constexpr int group_taps(int taps) { return few(taps) ? taps : kManyTaps; }
TRIGEN_HOST_DEVICE constexpr int warpgroup_taps(int taps) {
  return few(taps) ? taps : kManyTaps / kConsumers;
}
TRIGEN_HOST_DEVICE constexpr int row_panels(const Config& c) { return c.tile_m / kPanel; }
TRIGEN_HOST_DEVICE constexpr int column_panels(const Config& c, int taps) {
  return c.tile_n / (kPanel * group_taps(taps));
}
// f32 data goes another way (weight_tf32.cuh): x is read as it lies, and threads shift dy.
TRIGEN_HOST_DEVICE constexpr bool shifts_dy(DType dtype) { return dtype == DType::kF32; }
// setmaxnreg. Sums of four taps are 128 registers; what is left of 16-bit data's is the transposing warps', of f32 the loading thread's.
TRIGEN_HOST_DEVICE constexpr int load_registers(DType dtype) { return shifts_dy(dtype) ? 40 : 56; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(DType dtype) { return shifts_dy(dtype) ? 232 : 224; }
// Features of a step.
TRIGEN_HOST_DEVICE constexpr int step_features(DType dtype) {
  return dtype == DType::kF32 ? kPanel / 2 : kPanel;
}
// f32 values of a part in the workspace.
TRIGEN_HOST_DEVICE constexpr int sums(const Config& c) { return c.tile_m * c.tile_n; }
// A row of f32 sums on its way to dW: the rows that a quarter or a half of a warp's stores reach (of 16 bytes, of 8
// for 3 taps) lie in different banks.
TRIGEN_HOST_DEVICE constexpr int store_pitch(int taps, int columns) {
  const int bytes = 4 * columns * taps, apart = taps == 2 ? 64 : taps == 3 ? 32 : 16;
  return bytes + (apart + 128 - bytes % 128) % 128;
}
// The reduction's, of 16 rows by 8 columns for each warp: rows on their way to dW; behind them what the warps of a block added
// together, and of grad_bias.
TRIGEN_HOST_DEVICE constexpr int reduce_store_bytes(int taps) {
  return few(taps) ? 16 * store_pitch(taps, 8) : 0;
}
TRIGEN_HOST_DEVICE constexpr int reduce_bytes(int taps) {
  return kReduceWarps * (reduce_store_bytes(taps) + 512 * warpgroup_taps(taps) + 64);
}
// Does a unit of 16 rows by 8 columns, from (row, column) on, hold an element of the triangle? Parts have no others.
TRIGEN_HOST_DEVICE constexpr bool reaches(const Shape& s, int row, int column) {
  if (row >= s.T || column >= s.T) return false;
  return s.fill == Fill::kLower ? column <= row + 15 + s.diag : column + 7 >= row + s.diag;
}
// 16 rows for each warp, of few taps.
TRIGEN_HOST_DEVICE constexpr int store_bytes(int taps) {
  return few(taps) ? kSumWarps * 16 * store_pitch(taps, kStoreColumns) : 0;
}
// A stage holds panels of dy and of x.
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Shape& s, const Config& c) {
  return (row_panels(c) + column_panels(c, s.K)) * kPanelBytes;
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Shape& s, const Config& c) {
  return c.stages * stage_bytes(s, c) + (shifts_dy(s.dtype) ? 0 : kTransposed * kTransposedBytes) +
         store_bytes(s.K) + kBarrierBytes;
}

// Stream-K schedule of the triangle's blocks. Items are counted by place in the triangle, a place's groups of
// taps in a row. Whole rounds of items go one to a thread block, or with `raster` all of them; the k steps (features of
// one batch element) of the rest are laid end to end, and every thread block takes an equal run. Incomplete sums go to
// the workspace in f32, a second kernel adds them in a fixed order.
struct StreamK {
  Fill fill;
  int diag;
  int panels, width;  // of an item: 64 rows each, 64 columns each
  int columns, rows;  // columns of 64, rows of items
  int taps;           // groups of taps
  int bias_group;     // beside which grad_bias is summed
  int sums;           // f32 values of a part
  int depth;          // k steps of an item
  int blocks;         // thread blocks
  int places = 0;     // of one head
  int items = 0, whole_items = 0;

  TRIGEN_HOST_DEVICE constexpr StreamK(const Shape& s, const Config& c, int B, int blocks)
      : fill(s.fill),
        diag(s.diag),
        panels(row_panels(c)),
        width(column_panels(c, s.K)),
        columns(schedule::ceil_div(s.T, kPanel)),
        rows(schedule::ceil_div(columns, panels)),
        taps(schedule::ceil_div(s.K, group_taps(s.K))),
        bias_group(shifts_dy(s.dtype) ? s.pad / group_taps(s.K) : 0),
        sums(weight::sums(c)),
        depth(B * schedule::ceil_div(s.D, step_features(s.dtype))),
        blocks(blocks) {
    for (int row = 0; row < rows; ++row) places += span(row);
    items = places * taps * s.H;
    whole_items = c.raster > 0 ? items : items / blocks * blocks;
  }
  // Columns of items that a row has, and their first one.
  TRIGEN_HOST_DEVICE constexpr int span(int row) const {
    return schedule::ceil_div(fill == Fill::kLower ? blocks_of(row) : columns, width) - first(row);
  }
  TRIGEN_HOST_DEVICE constexpr int first(int row) const {
    if (fill == Fill::kLower) return 0;
    const int blocks = blocks_of(row);
    return blocks == 0 ? schedule::ceil_div(columns, width) : (columns - blocks) / width;
  }
  // Columns of 64 that a row of items reaches.
  TRIGEN_HOST_DEVICE constexpr int blocks_of(int row) const {
    const int longest = fill == Fill::kLower ? schedule::min(panels * (row + 1), columns) - 1 : panels * row;
    return persistent::KRange(fill, kPanel * longest, diag, columns).blocks;
  }
  TRIGEN_HOST_DEVICE constexpr int rest() const { return items - whole_items; }
  TRIGEN_HOST_DEVICE constexpr int length() const { return rest() * depth; }
  TRIGEN_HOST_DEVICE constexpr int sharers() const {
    return schedule::min(blocks, schedule::ceil_div(length(), kLeastShare));
  }
  TRIGEN_HOST_DEVICE constexpr int bound(int b) const {
    return b >= sharers() ? length() : static_cast<int>(static_cast<long long>(length()) * b / sharers());
  }
  TRIGEN_HOST_DEVICE constexpr int owner(int at) const {
    return static_cast<int>(((at + 1ll) * sharers() - 1) / length());
  }
  // Parts of a shared item, about.
  TRIGEN_HOST_DEVICE constexpr int parts() const { return schedule::ceil_div(sharers(), rest()); }
  // Do all warps of a block of the reduction add a unit's parts? Where that is fewer latencies: four parts are one and a unit another;
  // for a block four of each warp, and a meeting.
  TRIGEN_HOST_DEVICE constexpr bool adds_together() const {
    const int units = rest() * width * kSlices * kSumWarps, adders = kReduceBlocks * blocks;
    return schedule::ceil_div(units, adders) * (parts() + 8 * kReduceWarps) <
           schedule::ceil_div(units, kReduceWarps * adders) * kReduceWarps * (parts() + 4);
  }
  // Offset of a thread block's incomplete sum in the workspace: of the item that it ends or of the item that
  // it begins.
  TRIGEN_HOST_DEVICE constexpr long long slot(int block, bool begins) const {
    return (2ll * block + (begins ? 1 : 0)) * sums;
  }
  // Offset of its part of grad_bias.
  TRIGEN_HOST_DEVICE constexpr long long bias_slot(int block, bool begins) const {
    return slot(blocks, false) + (2ll * block + (begins ? 1 : 0)) * panels * kPanel;
  }
  TRIGEN_HOST_DEVICE constexpr long long workspace_bytes() const {
    return rest() == 0 ? 0 : 4 * bias_slot(blocks, false);
  }
  // True if grad_bias of a row is summed beside this block: the row's first one.
  TRIGEN_HOST_DEVICE constexpr bool sums_bias(int row, int column, int group) const {
    return group == bias_group && column == first(row);
  }
  TRIGEN_HOST_DEVICE constexpr void locate(int item, int& head, int& row, int& column, int& group) const {
    group = item % taps;
    item /= taps;
    head = item / places;
    item -= head * places;
    row = 0;
    for (int width = span(0); item >= width; width = span(++row)) item -= width;
    column = first(row) + item;
  }
};

// A work tile: k steps [begin, end) of an item.
struct WorkTile {
  int item = 0, begin = 0, end = 0;
};

// The work tiles of thread block `block`, in order.
struct StreamKWalk {
  const StreamK& stream_k;
  int tile, at, stop;
  TRIGEN_HOST_DEVICE constexpr StreamKWalk(const StreamK& s, int block)
      : stream_k(s), tile(block), at(s.bound(block)), stop(s.bound(block + 1)) {}
  TRIGEN_HOST_DEVICE constexpr bool next(WorkTile& work) {
    if (tile < stream_k.whole_items) {
      work = {tile, 0, stream_k.depth};
      tile += stream_k.blocks;
      return true;
    }
    if (at >= stop) return false;
    const int index = at / stream_k.depth, start = index * stream_k.depth;
    const int until = schedule::min(stop, start + stream_k.depth);
    work = {stream_k.whole_items + index, at - start, until - start};
    at = until;
    return true;
  }
};

}  // namespace weight

}  // namespace trigen::wgmma_taps_sm90
