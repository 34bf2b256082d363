// Sizes of grad_weight by tiles of 64 or 128 t by 64 to 256 s (grad_weight.cuh), which families of 16-bit and of
// f32 data have in common. Plain C++, like config.h; stream_k.h divides the work.
#pragma once

#include "config.h"
#include "pack_activations.h"
#include "persistent/stream_k.h"

#include "persistent/sizes.h"
#include "schedule.h"

namespace trigen::persistent::weight {

inline constexpr int kBarrierBytes = 512;  // at the end of shared memory: barriers, then kOnesBytes
inline constexpr int kOnesBytes = 256;     // grad_bias: a 16 x 8 tile of ones, the last of them

inline constexpr int kConsumers = 2;  // warpgroups that multiply, 64 rows each
// layout bdt as it lies: operands of 16-bit data whose rows are features, MN-major.
TRIGEN_HOST_DEVICE constexpr bool contiguous_tokens(const Shape& s, const Config& c) {
  return s.layout == Layout::kBDT && c.activations == Access::kDirect;
}
// The multiplying warpgroups take turns: each has a whole tile of 128 x 128, every other one of the block's, and stores it while the
// other one multiplies. Else each has 64 rows of every tile.
TRIGEN_HOST_DEVICE constexpr bool takes_turns(const Config& c) { return c.tile_m == 128 && c.warps_m == 4; }
// Elements of k in a block: a 128-byte swizzled row, which so many steps of wgmma multiply.
TRIGEN_HOST_DEVICE constexpr int block_depth(DType dtype) { return 128 / packing::size_of(dtype); }
TRIGEN_HOST_DEVICE constexpr int block_steps() { return 4; }
// Boxes of a panel: a k block of narrow boxes holds features of several batches.
TRIGEN_HOST_DEVICE constexpr int parts(const Config& c) { return kPanel / box_features(c); }
// The steps of a batch's last block that have features: TMA wrote zeros where the others are. Taps, joined batches, narrow
// boxes and kernels of any size take all.
TRIGEN_HOST_DEVICE constexpr int last_steps(const Shape& s, const Config& c) {
  const int depth = block_depth(s.dtype), rest = s.D % depth;
  return rest == 0 || s.K > 1 || c.box > 0 || packing::packs_activations(s, c)
             ? block_steps()
             : schedule::ceil_div(rest, depth / block_steps());
}
// Clusters whose blocks are slices: each takes every cluster-th k block of one tile of 64 x 64 or 128 x 128, and they add
// their sums through distributed shared memory (slices.cuh). A tile of 64 x 64 or 64 x 128 with one warpgroup, or of 192
// columns, is a cluster of size 1: nothing is exchanged. Blocks of other clusters load for each other, see below.
// Columns of the tiles that three_panels.h counts, as it does those of fitted ones.
inline constexpr int kThreePanels = 3 * kPanel;
// gram's tiles of any multiple of 16 columns, one for a block: as narrow as the SMs are enough for (fitted_store.cuh).
TRIGEN_HOST_DEVICE constexpr bool fitted(const Config& c) { return c.tile_n % kPanel != 0; }
TRIGEN_HOST_DEVICE constexpr bool one_tile(const Config& c) {
  return (c.tile_n == kThreePanels && c.tile_m < kThreePanels) || fitted(c);
}
TRIGEN_HOST_DEVICE constexpr bool slices(const Config& c) {
  if (one_tile(c)) return true;
  return c.tile_m == 64 ? c.tile_n == 128 || c.cluster > 1 || c.warps_m == 4
                        : c.tile_m == 128 && c.tile_n == 128 && c.cluster > 1 && c.cluster != 4;
}
TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) { return slices(c) ? c.tile_m / 64 : kConsumers; }
// tile_m = tile_n = 192, for as many tokens: a block sums a whole triangle, so that x and dy enter one SM each
// (whole_triangle.cuh).
TRIGEN_HOST_DEVICE constexpr bool holds_triangle(const Config& c) { return c.tile_m == kThreePanels; }
// tile_m = 384, tile_n = 128: gram's clusters of six blocks, each with one 128 x 128 tile of a whole triangle of so many rows, which share
// loads (triangle_cluster.cuh).
TRIGEN_HOST_DEVICE constexpr bool shares_triangle(const Config& c) { return c.tile_m == 3 * 128; }
// gram's whole triangles in parts: a warp adds 16 rows and 8 columns (triangle_parts.cuh).
TRIGEN_HOST_DEVICE constexpr bool adds_triangles(const Shape& s, const Config& c) {
  return s.op == Op::kGram && holds_triangle(c);
}
// Panels of dy in a stage.
TRIGEN_HOST_DEVICE constexpr int row_panels(const Config& c) {
  return holds_triangle(c) ? c.tile_m / kPanel : consumers(c);
}
// btd as it lies, in rows that TMA cannot take: threads bring them (weight_rows.cuh). Nine pieces of 16 bytes have a row of a k
// block that begins inside one.
TRIGEN_HOST_DEVICE constexpr bool brings_rows(const Config& c) {
  return c.activations == Access::kDirect && c.vec_b == 1;
}
TRIGEN_HOST_DEVICE constexpr int piece_bytes() { return 16; }
TRIGEN_HOST_DEVICE constexpr int row_pieces() { return 9; }
// Warpgroups that load: one that brings rows and one that shifts them.
TRIGEN_HOST_DEVICE constexpr int loaders(const Config& c) { return brings_rows(c) ? 2 : 1; }
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (consumers(c) + loaders(c)); }
// tile_m = 64, for T <= 64: each multiplying warpgroup has 64 rows of dy and of x of its own, as many batches one
// below the other as fit, one where tokens are contiguous, and sums 64 x 64, of which the T x T blocks on the diagonal count
// (stacked.cuh).
TRIGEN_HOST_DEVICE constexpr bool stacks(const Config& c) { return c.tile_m == kPanel && !slices(c); }
// Rows of a panel from batch to batch: threads bring them by groups of 32.
TRIGEN_HOST_DEVICE constexpr int stack_rows(const Shape& s, const Config& c) {
  return contiguous_tokens(s, c) ? kPanel
         : brings_rows(c)        ? (s.T <= 32 ? 32 : kPanel)
                                 : schedule::max(s.T, 1);
}
TRIGEN_HOST_DEVICE constexpr int stacked(const Shape& s, const Config& c) {
  return kPanel / stack_rows(s, c);
}
// Panels of x in a stage.
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c) {
  return stacks(c) ? kConsumers : c.tile_n / kPanel;
}
TRIGEN_HOST_DEVICE constexpr int stage_bytes(const Config& c) {
  if (fitted(c)) return (c.tile_m + c.tile_n) * 128;
  return (row_panels(c) + panels(c)) * (kPanelBytes + (brings_rows(c) ? kPanel * piece_bytes() : 0));
}
// Exchange of slices: rows by eights, owned by the slices of a tile in turn. 8 rows of 16 columns are 512
// bytes, and 64 to keep their readers' banks apart.
inline constexpr int kSentRows = 8, kSentBytes = 576;
TRIGEN_HOST_DEVICE constexpr int owned_eights(const Config& c) {
  return schedule::ceil_div(c.tile_m / kSentRows, c.cluster);
}
TRIGEN_HOST_DEVICE constexpr int eight_bytes(const Config& c) { return c.tile_n / 16 * kSentBytes; }
TRIGEN_HOST_DEVICE constexpr int exchange_bytes(const Config& c) {  // and grad_bias
  return owned_eights(c) * c.cluster * (eight_bytes(c) + kSentRows * 4);
}
// Sums of 128 columns and more come into the ring, once all of the cluster's products are done: stages count more.
TRIGEN_HOST_DEVICE constexpr bool reuses_ring(const Config& c) { return c.tile_n >= 128; }
// Tiles that a block makes alone leave as panels that are staged in the ring, once all of its products are done, where TMA
// can store them (kStagedOutput): gram's mirrored, too, or 32 columns of f32 in each.
TRIGEN_HOST_DEVICE constexpr int ring_panels(const Config& c) { return 2 * panels(c); }
// Of a fitted tile: 16 bytes behind each row keep the banks of eight rows apart.
TRIGEN_HOST_DEVICE constexpr int fitted_pitch(int columns) { return 2 * columns + 16; }
TRIGEN_HOST_DEVICE constexpr int fitted_bytes(const Config& c) {  // both triangles
  return c.tile_m * fitted_pitch(c.tile_n) + c.tile_n * fitted_pitch(c.tile_m);
}
TRIGEN_HOST_DEVICE constexpr int slices_bytes(const Config& c) {
  const int ring = c.stages * stage_bytes(c);
  if (fitted(c)) return schedule::max(ring, (fitted_bytes(c) + 1023) / 1024 * 1024);
  return reuses_ring(c) ? schedule::max(ring, exchange_bytes(c)) : ring + exchange_bytes(c);
}
// Tiles of 128 x 128 in parts: the product leaves room on its SM for a block of the reduction, which is
// ready to begin when the last part is written: registers for 512 threads and 5 KB of shared memory.
TRIGEN_HOST_DEVICE constexpr bool admits_reduction(const Config& c) {
  return stacks(c) || holds_triangle(c) || (c.split_k > 1 && c.tile_n == 128 && !slices(c));
}
// The launch behind the product may begin before it ends: the reduction beside it, that of diagonals where blocks have ended, and
// what follows gram.
TRIGEN_HOST_DEVICE constexpr bool lets_next_start(const Shape& s, const Config& c) {
  return admits_reduction(c) || schedule::sums_diagonals(s) || s.op == Op::kGram;
}
TRIGEN_HOST_DEVICE constexpr int register_threads(const Config& c) {
  return admits_reduction(c) ? threads(c) + 128 : threads(c);
}
// Output panels that each multiplying warpgroup can stage: in the memory that the ring leaves, at most its
// tile. 0: too many stages.
TRIGEN_HOST_DEVICE constexpr int store_panels(const Config& c) {
  const int room = kSharedLimit - kBarrierBytes - c.stages * stage_bytes(c);
  return room < 0 ? 0 : schedule::min(admits_reduction(c) ? 1 : panels(c), room / (kConsumers * kPanelBytes));
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Config& c) {
  return kBarrierBytes + (slices(c) ? slices_bytes(c)
                                    : c.stages * stage_bytes(c) + kConsumers * store_panels(c) * kPanelBytes);
}
// Clusters. tile_n = 256: two blocks work on 256 rows and share x. tile_n = 128: four work on 256 x 256, two
// share dy and two x.
TRIGEN_HOST_DEVICE constexpr bool squares(const Config& c) { return c.cluster == 4 && !slices(c); }
// Rows, and columns of a square, that the blocks of one cluster work on.
TRIGEN_HOST_DEVICE constexpr int edge_of(const Config& c) {
  return slices(c) || shares_triangle(c) ? c.tile_m : c.cluster > 1 || holds_triangle(c) ? 256 : 128;
}
// Columns of a part's sums, by rows of 128.
TRIGEN_HOST_DEVICE constexpr int part_columns(const Config& c) {
  return squares(c) || holds_triangle(c) ? 256 : c.tile_n;
}
// Every tile is in parts, if only one.
TRIGEN_HOST_DEVICE constexpr bool parts_alone(const Config& c) { return stacks(c) || holds_triangle(c); }
// StreamK counts edges of 128 at least: tiles of 64 are divided like those of a matrix twice as large.
TRIGEN_HOST_DEVICE constexpr int stream_k_scale(const Config& c) { return edge_of(c) == 64 ? 2 : 1; }
// And their columns in whole edges: of tiles of 192 it counts the rows' spans.
TRIGEN_HOST_DEVICE constexpr int stream_k_columns(const Config& c) {
  return stream_k_scale(c) * (one_tile(c) || holds_triangle(c) || shares_triangle(c) ? edge_of(c) : c.tile_n);
}
// Zeros between a triangle and the rest of its matrix; those of a band lie in its rows (write_zeros), a Toeplitz matrix has none.
TRIGEN_HOST_DEVICE constexpr bool fills_outside(const Shape& s) {
  return s.zero_outside && s.w == WeightForm::kDense;
}
// Of a Toeplitz matrix (diagonals.cuh) a multiplying warpgroup leaves its sums along the diagonals of 64 rows, by t - s from the
// upper right corner on, and one more that no element has.
TRIGEN_HOST_DEVICE constexpr int group_diagonals(const Config& c) { return kPanel + c.tile_n; }
TRIGEN_HOST_DEVICE constexpr int work_diagonals(const Shape& s, const Config& c) {
  return schedule::sums_diagonals(s) ? c.cluster * kConsumers * group_diagonals(c) : 0;
}
// A band's width as StreamK counts it.
TRIGEN_HOST_DEVICE constexpr int stream_k_width(const Config& c, int width) {
  return width > 0 ? stream_k_scale(c) * (width - 1) + 1 : 0;
}
// setmaxnreg, in units of 8.
inline constexpr int kLoadRegisters = 40;
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config& c) {
  return !brings_rows(c) ? kLoadRegisters : admits_reduction(c) ? 80 : 88;
}
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) {
  if (brings_rows(c)) return admits_reduction(c) ? 112 : 168;
  return admits_reduction(c) ? 168 : 232;
}

// Blocks of the reduction for each block of the product. Where one of them fits beside the product's, they
// are to begin at once when it ends, and to leave room for the launch after them. Fewer where a tile's parts are many, on as many
// SMs, H200, 2026-11-29: one for each, all of them there when the product ends, of batches of at most 64 tokens (64,64,936 8.3 us with
// one, 8.7 with four; of 8 heads in 16 parts each four are faster, 126 and 132 us), two where tiles are 128 x 128 (128,128,768 in 66
// parts 18.4 with two, 21.2 with four; 63,256,768 in 44 parts 20.8 and 20.1).
TRIGEN_HOST_DEVICE constexpr int reduce_blocks(const Config& c) {
  if (!admits_reduction(c)) return 8;
  if (stacks(c)) return c.split_k > 32 ? 1 : 4;
  return c.cluster == 1 && !holds_triangle(c) && c.split_k > 60 ? 2 : 4;
}
inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceSharedBytes = 4608;
// Loads of a tile's parts that a thread has under way where eight share a quadruple of sums: whole rounds of at most 9.
TRIGEN_HOST_DEVICE constexpr int wide_loads(const Config& c) {
  const int each = schedule::ceil_div(c.split_k, 8);
  return schedule::ceil_div(each, schedule::ceil_div(each, 9));
}
// Where parts hold whole batches (stacked.cuh): threads of such a block that have neighbours, runs of what is added, and loads that
// a thread has under way: whole rounds of at most 10, or 20 of single elements.
inline constexpr int kStackedLanes = 8, kStackedRuns = kReduceThreads / kStackedLanes;
TRIGEN_HOST_DEVICE constexpr int stacked_vec(int tokens) {
  return tokens > 32 ? 4 : 1;
}  // neighbours of a thread
TRIGEN_HOST_DEVICE constexpr int stacked_loads(const Config& c, int batches) {
  const int each = schedule::ceil_div(c.split_k * kConsumers * batches, kStackedRuns);
  return schedule::ceil_div(each, schedule::ceil_div(each, batches > 1 ? 20 : 10));
}

}  // namespace trigen::persistent::weight
