// grad_weight: dW[t, s, j] = sum over (b, d) of dy[b, t, d] x[b, s, d + j - pad], for (t, s) in the triangle,
// and grad_bias[t] = sum over (b, d) of dy[b, t, d]. Both operands are K-major, MN-major where tokens are
// contiguous. stream_k.h divides the work among the blocks; shift.cuh shifts dy by taps.
#pragma once

#include "matrices.cuh"
#include "params.h"
#include "persistent/diagonals.cuh"
#include "persistent/shift.cuh"
#include "persistent/stacked.cuh"
#include "persistent/weight_panels.cuh"
#include "persistent/weight_stream_k.cuh"
#include "persistent/whole_rows.cuh"
#include "ptx/wgmma_fitted.cuh"
#include "ptx/wgmma_tf32.cuh"

namespace trigen::persistent::weight {

// A block's place in its cluster's tile of kEdge rows, in units of 128: squares of 2 x 2 blocks, pairs below
// each other, triangles row by row (upper ones column by column).
template <Kernel C>
struct Place {
  int row, column;
  __device__ __forceinline__ explicit Place(int rank)
      : row(Geometry<C>::kSquares       ? rank / 2
            : Geometry<C>::kCluster > 1 ? rank
                                        : 0),
        column(Geometry<C>::kSquares ? rank % 2 : 0) {
    if constexpr (shares_triangle(C.config)) {
      constexpr bool kLower = C.shape.fill == Fill::kLower;
      const int longer = rank < 1 ? 0 : rank < 3 ? 1 : 2, shorter = rank - longer * (longer + 1) / 2;
      row = kLower ? longer : shorter;
      column = kLower ? shorter : longer;
    }
  }
};

// True if grad_bias is summed beside this work tile: the tile of its row at the diagonal, and the tap that does
// not shift dy.
template <Kernel C>
__device__ __forceinline__ bool sums_bias(const StreamK& stream_k, const WorkTile& work,
                                          const Place<C>& place, int tap) {
  return C.shape.bias && place.column == (Geometry<C>::kSquares ? place.row : 0) &&
         work.column == stream_k.bias_column(work.row) && (kTaps<C> == 1 || tap == C.shape.pad);
}

// Where box `part` of panel `panel` lies in an operand of kPanels panels. K-major, the rows of all panels' boxes of one
// part follow each other, so that a wide product runs on through them.
template <Kernel C>
constexpr int kBoxBytes = kPanelBytes / kParts<C>;
template <Kernel C, int kPanels>
__device__ __forceinline__ unsigned box_offset(int panel, int part) {
  return contiguous_tokens(C.shape, C.config) ? panel * kPanelBytes + part * kBoxBytes<C>
                                              : (part * kPanels + panel) * kBoxBytes<C>;
}
// Step i of a k block, in units of the descriptor, behind the first one of an operand of kPanels panels.
template <Kernel C, int kPanels>
__device__ __forceinline__ unsigned step_offset(int i) {
  constexpr int kSteps = block_steps() / kParts<C>;  // of a box
  if constexpr (contiguous_tokens(C.shape, C.config)) return i * (16 * 128 >> 4);
  return (i / kSteps * (kPanels * kBoxBytes<C>)+i % kSteps * 32) >> 4;
}
template <Kernel C>
__device__ __forceinline__ unsigned long long operand_descriptor(unsigned shared) {
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
  return ptx::descriptor < kTokens ? 128 : 128 / kParts < C >> (shared, kPanelBytes);
}

// The features of a k block: boxes in a row, of one batch after the other.
template <Kernel C>
struct BlockBoxes {
  int boxes, batch, feature;  // of a batch; of the first box
  __device__ __forceinline__ BlockBoxes(int features, int block)
      : boxes(schedule::ceil_div(features, kBox<C>)) {
    batch = block * kParts<C> / boxes;
    feature = (block * kParts<C> - batch * boxes) * kBox<C>;
  }
  // `step`: of as many blocks as this one was made with.
  __device__ __forceinline__ void advance(const BlockBoxes& step) {
    batch += step.batch;
    feature += step.feature;
    wrap();
  }
  __device__ __forceinline__ void next_box() {
    feature += kBox<C>;
    wrap();
  }
  __device__ __forceinline__ void wrap() {
    if (feature >= boxes * kBox<C>) {
      feature -= boxes * kBox<C>;
      ++batch;
    }
  }
};

// A matrix of an operand, in TMA's words: the batch is the box's.
template <Kernel C>
__device__ __forceinline__ int outermost(const MappedMatrix& of, const BlockBoxes<C>& at) {
  return C.shape.pointers ? of.c3 : at.batch;
}

// A panel's boxes of 64 tokens, into an operand of kPanels panels at `to`; the second loads for all that `blocks`
// names.
template <Kernel C, int kPanels>
__device__ __forceinline__ void load_panel(unsigned to, int panel, const TensorMap& map, unsigned barrier,
                                           BlockBoxes<C> at, int token, MappedMatrix of) {
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
#pragma unroll
  for (int i = 0; i < kParts<C>; ++i) {
    ptx::tma_load(to + box_offset<C, kPanels>(panel, i), map, barrier, kTokens ? token : at.feature,
                  kTokens ? at.feature : token, of.c2, outermost<C>(of, at));
    at.next_box();
  }
}
template <Kernel C, int kPanels>
__device__ __forceinline__ void load_panel_multicast(unsigned to, int panel, const TensorMap& map,
                                                     unsigned barrier, unsigned short blocks,
                                                     BlockBoxes<C> at, int token, MappedMatrix of) {
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
#pragma unroll
  for (int i = 0; i < kParts<C>; ++i) {
    ptx::tma_load_multicast(to + box_offset<C, kPanels>(panel, i), map, barrier, blocks,
                            kTokens ? token : at.feature, kTokens ? at.feature : token, of.c2,
                            outermost<C>(of, at));
    at.next_box();
  }
}

// gram's tiles around the diagonal have rows of A that are among B's. Where B is A, one operand is loaded and multiplied
// with itself.
template <Kernel C>
inline constexpr bool kFindsRows = C.shape.op == Op::kGram && !stacks(C.config) &&
                                   (C.config.cluster == 1 || slices(C.config) || shares_triangle(C.config));
template <Kernel C>
__device__ __forceinline__ bool multiplies_itself(const Params& p) {
  return kFindsRows<C> && p.x.data == p.y.data && p.x.batch == p.y.batch && p.x.head == p.y.head &&
         p.x.row == p.y.row;
}
// Where A's panels begin among B's `panels` in the tile from (row, column) on, or -1: both are loaded. kOwnRows: B's are A's
// (triangle_cluster.cuh).
inline constexpr int kOwnRows = -2;
template <Kernel C>
__device__ __forceinline__ int own_panel(bool itself, int row, int column, int panels) {
  const int own = (row - column) / kPanel;
  return kFindsRows<C> && itself && row >= column && own + consumers(C.config) <= panels ? own : -1;
}
template <Kernel C>
__device__ __forceinline__ int own_panel(bool itself, const WorkTile& work) {
  return own_panel<C>(itself, kEdge<C> * work.row, kEdge<C> * work.column,
                      work.narrow ? 2 : panels(C.config));
}
// A's panel `i` in a stage.
template <Kernel C, class G>
__device__ __forceinline__ unsigned panel_of_a(const Ring<G>& ring, int stage, int own, int i) {
  return own >= 0 ? ring.b(stage) + box_offset<C, panels(C.config)>(own + i, 0)
                  : ring.a(stage) + box_offset<C, row_panels(C.config)>(i, 0);
}

// A block on the diagonal of a cluster's triangle where B is A: the operand that its neighbours need it for (triangle_cluster.cuh).
template <Kernel C>
__device__ __forceinline__ int own_in_triangle(bool itself, const Place<C>& place) {
  if (!itself || place.row != place.column) return -1;
  return (place.row == 0) == (C.shape.fill == Fill::kLower) ? 0 : kOwnRows;
}

// A panel into the L2.
template <Kernel C>
__device__ __forceinline__ void prefetch_panel(const TensorMap& map, BlockBoxes<C> at, int token,
                                               MappedMatrix of) {
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
#pragma unroll
  for (int i = 0; i < kParts<C>; ++i) {
    ptx::tma_prefetch_box(map, kTokens ? token : at.feature, kTokens ? at.feature : token, of.c2,
                          outermost<C>(of, at));
    at.next_box();
  }
}
// k blocks that the loading thread of a slice alone, or of gram, asks for in the L2 ahead of griddepcontrol.wait: not by pointers,
// which a launch before may have written.
inline constexpr int kFirstBlocks = 4;

// The loading thread, there: the first tile's, where the block loads for itself alone. No value is read.
template <Kernel C>
__device__ __forceinline__ void prefetch_gram(const StreamK& stream_k, int features, bool itself,
                                              const TensorMap& map_dy, const TensorMap& map_x) {
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x));
  WorkTile work;
  if (!walk.next(work)) return;
  const int rows = own_panel<C>(itself, work) >= 0 ? 0 : 2, columns = work.narrow ? 2 : panels(C.config);
  BlockBoxes<C> from(features, work.origin + work.begin * work.step);
  const BlockBoxes<C> step(features, work.step);
#pragma unroll 1
  for (int block = work.begin; block < schedule::min(work.begin + kFirstBlocks, work.end); ++block) {
    const MappedMatrix of_head{work.copy, 0};
    for (int i = 0; i < rows; ++i) prefetch_panel<C>(map_dy, from, 128 * work.row + kPanel * i, of_head);
    for (int i = 0; i < columns; ++i) prefetch_panel<C>(map_x, from, 128 * work.column + kPanel * i, of_head);
    from.advance(step);
  }
}

// The loading thread. `itself`: of multiplies_itself.
template <Kernel C>
__device__ __forceinline__ void load_grad_weight(const Params& p, const Ring<Geometry<C>>& ring,
                                                 const StreamK& stream_k, int features, int rank, bool itself,
                                                 const TensorMap& map_dy, const TensorMap& map_x) {
  using G = Geometry<C>;
  constexpr int kCluster = G::kCluster, kRows = row_panels(C.config), kPanels = C.config.tile_n / kPanel;
  const Place<C> place(rank);
  RingPosition<C.config.stages> at;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x) / C.config.cluster);
  for (WorkTile work; walk.next(work);) {
    const int panels = work.narrow ? 2 : kPanels;
    const bool once = own_panel<C>(itself, work) >= 0;
    const int head = work.copy / kTaps<C>;
    const MappedMatrix dy = mapped<C>(p.y, head), x = mapped<C>(p.x, head);
    const Shift shift(kTaps<C> == 1 ? 0 : work.copy - head * kTaps<C> - C.shape.pad);
    BlockBoxes<C> from(features, work.origin + work.begin * work.step);
    const BlockBoxes<C> step(features, work.step);
    const auto load_dy = [&](int back) {
      BlockBoxes<C> shifted = from;
      shifted.feature -= back;
      const int row = kEdge<C> * work.row + 128 * place.row;
      if constexpr (G::kSquares) {  // each block loads its half of dy for both of its row
        load_panel_multicast<C, 2>(ring.a(at.stage), place.column, map_dy, ring.full(at.stage),
                                   static_cast<unsigned short>(3 << 2 * place.row), shifted,
                                   row + 64 * place.column, dy);
      } else {
#pragma unroll
        for (int i = 0; i < kRows; ++i)
          load_panel<C, kRows>(ring.a(at.stage), i, map_dy, ring.full(at.stage), shifted, row + 64 * i, dy);
      }
    };
    for (int block = work.begin; block < work.end; ++block) {
      if (kShifts<C> && shift.loads_before(block == work.begin, from.feature)) {
        ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
        ptx::mbarrier_arrive_expect(ring.full(at.stage), 2 * kPanelBytes);
        load_dy(shift.vectors + kPanel);
        at.advance();
      }
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      const unsigned full = ring.full(at.stage);
      if constexpr (stacks(C.config)) {
        constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
        ptx::mbarrier_arrive_expect(full, 2 * kConsumers * stack_bytes<C>);
#pragma unroll
        for (int i = 0; i < kConsumers; ++i) {
          const int first = (kConsumers * from.batch + i) * stacked(C.shape, C.config),
                    across = kTokens ? 0 : from.feature, down = kTokens ? from.feature : 0;
          ptx::tma_load(ring.a(at.stage) + i * kPanelBytes, map_dy, full, across, down, dy.c2, first);
          ptx::tma_load(ring.b(at.stage) + i * kPanelBytes, map_x, full, across, down, x.c2, first);
        }
      } else {
        ptx::mbarrier_arrive_expect(full, ((once ? 0 : kRows) + panels) * kPanelBytes);
        if (!once) load_dy(shift.vectors);
      }
      if constexpr (stacks(C.config)) {
      } else if constexpr (kCluster == 1) {
#pragma unroll
        for (int i = 0; i < kPanels; ++i)
          if (i < panels)
            load_panel<C, kPanels>(ring.b(at.stage), i, map_x, full, from, 128 * work.column + 64 * i, x);
      } else if constexpr (G::kSquares) {  // and its half of x for both of its column
        load_panel_multicast<C, kPanels>(ring.b(at.stage), place.row, map_x, full,
                                         static_cast<unsigned short>(5 << place.column), from,
                                         kEdge<C> * work.column + 128 * place.column + 64 * place.row, x);
      } else {  // each block loads its half of x for both
#pragma unroll
        for (int j = 0; j < kPanels / kCluster; ++j) {
          const int i = rank * (kPanels / kCluster) + j;
          load_panel_multicast<C, kPanels>(ring.b(at.stage), i, map_x, full, 3, from,
                                           kEdge<C> * work.column + 64 * i, x);
        }
      }
      at.advance();
      from.advance(step);
    }
  }
}

// The first kSteps steps of a k block: 64 rows by kN columns, and the sums of dy's rows (eight equal columns, of
// which a thread has two) through a tile of ones. A group of products whole in one branch: ptxas runs those that a
// branch cuts one after the other (C7520).
template <Kernel C, int kN, bool kBias, int kSteps>
__device__ __forceinline__ void multiply_steps(float (&sum)[kN / 2], float (&bias)[4], unsigned long long a,
                                               unsigned long long b, unsigned long long ones, int block) {
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
  constexpr int kRows = row_panels(C.config), kColumns = panels(C.config);  // in panels
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i) {
    if constexpr (C.shape.dtype == DType::kF32) {
      ptx::wgmma_tf32_ss<kN>(sum, a + 2 * i, b + 2 * i, block | i);
      if constexpr (kBias) ptx::wgmma_tf32_ss_n8(bias, a + 2 * i, ones, block | i);
    } else if constexpr (kN % kPanel != 0) {
      ptx::wgmma_ss_fitted<C.shape.dtype, kN>(sum, a + 2 * i, b + 2 * i, block | i);
    } else {
      const unsigned long long own = a + step_offset<C, kRows>(i);
      ptx::wgmma_ss<C.shape.dtype, kN, kTokens, kTokens>(sum, own, b + step_offset<C, kColumns>(i),
                                                         block | i);
      if constexpr (kBias) ptx::wgmma_ss_n8<C.shape.dtype, kTokens>(bias, own, ones, block | i);
    }
  }
  ptx::wgmma_commit();
}

// Products of a work tile's `count` k blocks; `ends` marks the last blocks of batches among them. `own`: of own_panel.
template <Kernel C, int kN, bool kBias, class G>
__device__ __forceinline__ void multiply_work(float (&sum)[kN / 2], float (&bias)[4], const Ring<G>& ring,
                                              RingPosition<C.config.stages>& at, int count, BatchEnds<C> ends,
                                              int own, unsigned group, unsigned lane) {
  const unsigned long long ones =
      ptx::descriptor_plain(ring.barriers + kBarrierBytes - kOnesBytes, kOnesBytes / 2);
  int in_flight = -1;
  for (int block = 0; block < count; ++block) {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    const unsigned long long a =
        operand_descriptor<C>(panel_of_a<C>(ring, at.stage, own, static_cast<int>(group)));
    const unsigned long long b = operand_descriptor<C>(
        (shares_triangle(C.config) && own == kOwnRows ? ring.a(at.stage) : ring.b(at.stage)) +
        (stacks(C.config) ? group * kPanelBytes : 0));
    if (ends.here())
      multiply_steps<C, kN, kBias, kLastSteps<C>>(sum, bias, a, b, ones, block);
    else
      multiply_steps<C, kN, kBias, block_steps()>(sum, bias, a, b, ones, block);
    ptx::wgmma_wait<1>();
    if (in_flight >= 0) ring.release(in_flight, lane);
    in_flight = at.stage;
    at.advance();
    ends.advance();
  }
  ptx::wgmma_wait<0>();
  ptx::pin(sum);
  if constexpr (kBias) ptx::pin(bias);
  if (in_flight >= 0) ring.release(in_flight, lane);
}

// multiply_work with grad_bias, of `needed` panels of x, and zeros for the others: the sums of 64 rows take the tensor cores as
// long as 32 columns of dW, so the warpgroup leaves out what lies beyond the diagonal. (Slices do not: ptxas runs their
// products one after the other then, C7511.)
template <Kernel C, int kPanels, int kLeft, class G, int kSums>
__device__ __forceinline__ void multiply_and_sum(float (&sum)[kSums], float (&bias)[4], const Ring<G>& ring,
                                                 RingPosition<C.config.stages>& at, int count,
                                                 BatchEnds<C> ends, int needed, unsigned group,
                                                 unsigned lane) {
  constexpr int kN = kPanel * kPanels;
  if constexpr (kPanels > 1) {
    if (needed < kPanels) {
      multiply_and_sum<C, kPanels - 1, kLeft + 1>(sum, bias, ring, at, count, ends, needed, group, lane);
      return;
    }
  }
  multiply_work<C, kN, true>(reinterpret_cast<float(&)[kN / 2]>(sum), bias, ring, at, count, ends, -1, group,
                             lane);
#pragma unroll
  for (int i = 0; i < kLeft * kPanel / 2; ++i) sum[kN / 2 + i] = 0;
}
// Of kPanels panels from column `column` on those up to the last one that has elements of the triangle in 64 rows from `row` on. (Of
// an upper one all: there the first ones may have none.)
template <Kernel C, int kPanels>
__device__ __forceinline__ int panels_needed(int row, int column, int diag) {
  if constexpr (C.shape.fill != Fill::kLower) return kPanels;
  return schedule::clamp((row + kPanel - 1 + diag - column) / kPanel + 1, 1, kPanels);
}

// Waits for and releases the stages of a work tile that this warpgroup does not multiply.
template <Kernel C>
__device__ __forceinline__ void drop_work(const Ring<Geometry<C>>& ring, RingPosition<C.config.stages>& at,
                                          const WorkTile& work, int features, int tap, unsigned lane) {
  const int batch_blocks = (features + kPanel - 1) / kPanel;
  const Shift shift(kTaps<C> == 1 ? 0 : tap - C.shape.pad);
  int feature = work.begin % batch_blocks * kPanel;
  for (int block = work.begin; block < work.end; ++block) {
    for (int i = kShifts<C> && shift.loads_before(block == work.begin, feature) ? 0 : 1; i < 2; ++i) {
      ptx::mbarrier_wait(ring.full(at.stage), at.parity);
      __syncwarp();  // the ring may turn once some lanes have let go: none may still wait
      ring.release(at.stage, lane);
      at.advance();
    }
    feature += kPanel;
    if (feature >= features) feature = 0;
  }
}

// A work tile, wide or narrow. With kBias its tap does not shift.
template <Kernel C, bool kBias>
__device__ __forceinline__ void multiply_tile(float (&sum)[C.config.tile_n / 2], float (&bias)[4],
                                              const Ring<Geometry<C>>& ring,
                                              RingPosition<C.config.stages>& at, const WorkTile& work,
                                              int features, int tap, int diag, bool itself,
                                              const Place<C>& place, unsigned group, unsigned lane) {
  constexpr int kN = C.config.tile_n;
  auto& half = reinterpret_cast<float(&)[64]>(sum);
  const bool narrow = kN == 256 && work.narrow;
  if constexpr (kShifts<C> && !kBias) {
    const Shift shift(tap - C.shape.pad);
    if (narrow)
      multiply_shifted<C, 128>(half, ring, at, work, features, shift, group, lane);
    else
      multiply_shifted<C, kN>(sum, ring, at, work, features, shift, group, lane);
  } else {
    const int count = work.end - work.begin;
    const BatchEnds<C> ends(work.origin + work.begin * work.step, work.step);
    const int own =
        shares_triangle(C.config) ? own_in_triangle<C>(itself, place) : own_panel<C>(itself, work);
    if constexpr (kBias && !stacks(C.config)) {
      const int row = kEdge<C> * work.row + 128 * place.row + kPanel * static_cast<int>(group),
                column = kEdge<C> * work.column + 128 * place.column;
      if (narrow)
        multiply_and_sum<C, 2, 0>(half, bias, ring, at, count, ends, panels_needed<C, 2>(row, column, diag),
                                  group, lane);
      else
        multiply_and_sum<C, kN / kPanel, 0>(sum, bias, ring, at, count, ends,
                                            panels_needed<C, kN / kPanel>(row, column, diag), group, lane);
    } else if (narrow) {
      multiply_work<C, 128, kBias>(half, bias, ring, at, count, ends, own, group, lane);
    } else {
      multiply_work<C, kN, kBias>(sum, bias, ring, at, count, ends, own, group, lane);
    }
  }
}

// Does a part hold a thread's four sums, of rows `row` and `row` + 8 and columns `column` and `column` + 1? Those alone of which the
// matrix has one: at T = 128 half of a tile, and there are hundreds of parts. Of tiles of 256 rows or columns, of which a small share
// lies on the diagonal, whole quarters (32,512,1024 takes 1 % longer else, H200, 2026-11-29; 256 columns of tf32 spill).
template <Kernel C>
__device__ __forceinline__ bool is_held(const Params& p, int row, int column, int tokens, int diag) {
  constexpr bool kWhole = holds_triangle(C.config) ? false : kEdge<C> != 128 || C.config.tile_n != 128;
  return kWhole || (row < tokens && column < tokens &&
                    (C.shape.fill == Fill::kLower ? column <= row + 8 + diag : column + 1 >= row + diag) &&
                    (!kBand<C> || row - (column + 1) < band_width<C>(p)));
}

// One multiplying warpgroup.
template <Kernel C>
__device__ __forceinline__ void multiply_grad_weight(const Params& p, const Ring<Geometry<C>>& ring,
                                                     const StreamK& stream_k, int tokens, int features,
                                                     int diag, int rank, bool itself, unsigned group,
                                                     const TensorMap& map_dw) {
  using G = Geometry<C>;
  constexpr Shape s = C.shape;
  const unsigned warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  const int line = static_cast<int>(64 * group + 16 * warp + lane / 4);  // of the tile
  RingPosition<C.config.stages> at;
  OutputPanels<G> output(ring, group);
  constexpr int kN = C.config.tile_n;
  float sum[kN / 2];
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x) / C.config.cluster);
  const Place<C> place(rank);
  for (WorkTile work; walk.next(work);) {
    const int head = work.copy / kTaps<C>, tap = work.copy - head * kTaps<C>;
    const bool with_bias = sums_bias<C>(stream_k, work, place, tap);
    float bias[4];
    const int first_row = kEdge<C> * work.row + 128 * place.row,
              first_column = kEdge<C> * work.column + 128 * place.column;
    const auto is_touched = [&](int column) {
      return kEdge<C> == 128 || touched<C>(p, first_row, column, tokens, diag);
    };
    if (G::kSquares && !with_bias && !is_touched(first_column) && (work.number >= 0 || !fills_outside(s))) {
      drop_work<C>(ring, at, work, features, tap, lane);
      continue;
    }
    if (s.bias && with_bias)
      multiply_tile<C, s.bias>(sum, bias, ring, at, work, features, tap, diag, itself, place, group, lane);
    else
      multiply_tile<C, false>(sum, bias, ring, at, work, features, tap, diag, itself, place, group, lane);
    if (s.bias && with_bias && lane % 4 == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i)
        if (work.number >= 0)
          static_cast<float*>(p.workspace)[stream_k.bias_slot(work.number) + 128 * place.row + line + 8 * i] =
              bias[2 * i];
        else
          write_bias<C>(p, head, tokens, first_row + line + 8 * i, bias[2 * i]);
    }

    constexpr int kWidth = part_columns(C.config);
    if constexpr (schedule::sums_diagonals(s)) {
      const int number = work.number >= 0 ? work.number : stream_k.whole_number(work.narrow, work.index);
      float* const to = static_cast<float*>(p.workspace) + stream_k.slot(number) +
                        (rank * kConsumers + static_cast<int>(group)) * group_diagonals(C.config);
      if (kN == 256 && work.narrow)
        store_diagonals<C, 128>(ring, to, sum, group);
      else
        store_diagonals<C, kN>(ring, to, sum, group);
    } else if constexpr (stacks(C.config)) {
      store_stack<C>(static_cast<float*>(p.workspace) + stream_k.slot(work.number), sum, group, diag);
    } else if (work.number >= 0) {
      // 16 bytes a thread, one thread after the other, as reduce.cuh reads them.
      float4* to = reinterpret_cast<float4*>(static_cast<float*>(p.workspace) + stream_k.slot(work.number)) +
                   place.row * (32 * kWidth) + place.column * (32 * 128) + threadIdx.x;
      const int column = first_column + static_cast<int>(lane) % 4 * 2;
#pragma unroll
      for (int i = 0; i < kN / 8; ++i) {
        if ((i < 16 || !work.narrow) && is_touched(first_column + i / 16 * 128) &&
            is_held<C>(p, first_row + line, column + 8 * i, tokens, diag))
          to[i * 256] = make_float4(sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]);
      }
    } else {
      // Panels of 64 columns.
#pragma unroll
      for (int i = 0; i < kN / 64; ++i) {
        if (i >= 2 && work.narrow) continue;
        store_panel<C>(p, output, sum + 32 * i, map_dw, head, tap, tokens, diag,
                       first_row + 64 * static_cast<int>(group), first_column + 64 * i);
      }
    }
  }
  output.finish();
}

// As multiply_steps, 128 rows.
template <Kernel C, int kSteps>
__device__ __forceinline__ void multiply_whole_steps(float (&sum)[2][C.config.tile_n / 2],
                                                     const unsigned long long (&a)[2], unsigned long long b,
                                                     int block) {
  constexpr bool kTokens = contiguous_tokens(C.shape, C.config);
  constexpr int kRows = consumers(C.config), kColumns = panels(C.config);  // in panels
  ptx::wgmma_fence();
#pragma unroll
  for (int i = 0; i < kSteps; ++i)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      ptx::wgmma_ss<C.shape.dtype, C.config.tile_n, kTokens, kTokens>(
          sum[half], a[half] + step_offset<C, kRows>(i), b + step_offset<C, kColumns>(i), block | i);
  ptx::wgmma_commit();
}

// The products of a whole tile by one warpgroup.
template <Kernel C, class G>
__device__ __forceinline__ void multiply_whole(float (&sum)[2][C.config.tile_n / 2], const Ring<G>& ring,
                                               RingPosition<C.config.stages>& at, int count,
                                               BatchEnds<C> ends, int own, unsigned lane) {
  int in_flight = -1;
  for (int block = 0; block < count; ++block) {
    ptx::mbarrier_wait(ring.full(at.stage), at.parity);
    const unsigned long long a[2] = {operand_descriptor<C>(panel_of_a<C>(ring, at.stage, own, 0)),
                                     operand_descriptor<C>(panel_of_a<C>(ring, at.stage, own, 1))};
    const unsigned long long b = operand_descriptor<C>(ring.b(at.stage));
    if (ends.here())
      multiply_whole_steps<C, kLastSteps<C>>(sum, a, b, block);
    else
      multiply_whole_steps<C, block_steps()>(sum, a, b, block);
    ptx::wgmma_wait<1>();
    if (in_flight >= 0) ring.release(in_flight, lane);
    in_flight = at.stage;
    at.advance();
    ends.advance();
  }
  ptx::wgmma_wait<0>();
  ptx::pin(sum[0]);
  ptx::pin(sum[1]);
  if (in_flight >= 0) ring.release(in_flight, lane);
}

// One of two multiplying warpgroups that take turns. The one whose tile comes next waits until the other one has seen the last
// stage before it: a stage's barrier tells one turn of the ring from the next, but not from the one after that.
template <Kernel C>
__device__ __forceinline__ void multiply_in_turn(const Params& p, const Ring<Geometry<C>>& ring,
                                                 const StreamK& stream_k, int tokens, int features, int diag,
                                                 int rank, bool itself, unsigned group,
                                                 const TensorMap& map_dw) {
  constexpr int kTurn =
      1 + kConsumers;  // named barriers: `group` may begin; those before it are OutputPanels'
  const unsigned lane = threadIdx.x % 32;
  RingPosition<C.config.stages> at;
  OutputPanels<Geometry<C>> output(ring, group);
  float sum[2][C.config.tile_n / 2];
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x) / C.config.cluster);
  const Place<C> place(rank);
  WorkTile work, next;
  bool more = walk.next(work);
  for (int tile = 0; more; ++tile, work = next) {
    more = walk.next(next);
    if (static_cast<unsigned>(tile % 2) != group) {
      at.advance(work.end - work.begin);
      continue;
    }
    const int first_row = kEdge<C> * work.row + 128 * place.row,
              first_column = kEdge<C> * work.column + 128 * place.column;
    const bool dropped = Geometry<C>::kSquares && !fills_outside(C.shape) &&
                         !touched<C>(p, first_row, first_column, tokens, diag);
    if (tile > 0) ptx::named_barrier(kTurn + static_cast<int>(group), 256);
    if (dropped)
      drop_work<C>(ring, at, work, features, 0, lane);
    else
      multiply_whole<C>(sum, ring, at, work.end - work.begin, BatchEnds<C>(work.begin, 1),
                        own_panel<C>(itself, work), lane);
    if (more) ptx::named_barrier_arrive(kTurn + 1 - static_cast<int>(group), 256);
    if (dropped) continue;
    if constexpr (kStoresRows<C>) {
      store_whole_tile<C>(p, output.base, 1 + group, sum, work.copy, first_row, first_column, tokens);
      continue;
    }
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int i = 0; i < C.config.tile_n / 64; ++i)
        store_panel<C>(p, output, sum[half] + 32 * i, map_dw, work.copy, 0, tokens, diag,
                       first_row + 64 * half, first_column + 64 * i);
  }
  output.finish();
}

// The tile of ones that sums dy's rows, by the block's first threads.
template <Kernel C, typename G>
__device__ __forceinline__ void write_ones() {
  if (threadIdx.x < kOnesBytes / 4)
    reinterpret_cast<unsigned*>(shared_memory() + G::kSharedBytes - kOnesBytes)[threadIdx.x] =
        C.shape.dtype == DType::kF32 ? __float_as_uint(1.0f) : pack<C.shape.dtype>(1.0f, 1.0f);
  ptx::fence_async_shared();
}

}  // namespace trigen::persistent::weight
