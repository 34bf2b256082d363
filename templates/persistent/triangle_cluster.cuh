// gram of 257 to 384 rows (grad_weight.h, shares_triangle): the six blocks of a cluster have the 128 x 128 tiles of one triangle. Rows that
// several of them need come once, by multicast.
#pragma once

#include "persistent/grad_weight.cuh"

namespace trigen::persistent::weight {

// A block's share of the cluster's loads: panels of 128 rows of one operand, and the blocks that get them.
struct TriangleLoad {
  bool longer;     // the operand of the tiles' rows in a lower triangle, of their columns in an upper one
  int rows;        // in units of 128
  int panel, end;  // of two
  unsigned short blocks;
  // Row n of a lower triangle's tiles are blocks n (n + 1) / 2 to n (n + 3) / 2, column n what is at and below its diagonal. Where B is
  // A, tiles on the diagonal find both operands in what their row brings, the first one in its column's: 4 loads of 128 rows for 6. No
  // block asks for more than 128 rows.
  __device__ __forceinline__ TriangleLoad(int rank, bool itself) {
    longer = (itself ? 0b011110 : 0b001011) >> rank & 1;
    rows = (itself ? 0x122110 : 0x202110) >> 4 * rank & 3;
    panel = itself && longer ? (rank - 1) % 2 : 0;
    end = itself && longer ? panel + 1 : 2;
    blocks = static_cast<unsigned short>(longer      ? (rows == 0   ? 0b000001
                                                        : rows == 1 ? 0b000110
                                                                    : 0b111000)
                                         : rows == 0 ? 0b001011
                                         : rows == 2 ? 0b100000
                                         : itself    ? 0b010000
                                                     : 0b010100);
  }
};

// The loading thread.
template <Kernel C>
__device__ __forceinline__ void load_triangle_cluster(const Params& p, const Ring<Geometry<C>>& ring,
                                                      const StreamK& stream_k, int features, int rank,
                                                      bool itself, const TensorMap& map_dy,
                                                      const TensorMap& map_x) {
  constexpr int kPanels = 2;
  const Place<C> place(rank);
  const TriangleLoad load(rank, itself);
  const bool of_a = load.longer == (C.shape.fill == Fill::kLower);
  const int operands = itself && place.row == place.column ? 1 : 2;  // that come
  RingPosition<C.config.stages> at;
  StreamKWalk walk(stream_k, static_cast<int>(blockIdx.x) / C.config.cluster);
  for (WorkTile work; walk.next(work);) {
    const MappedMatrix of = of_a ? mapped<C>(p.y, work.copy) : mapped<C>(p.x, work.copy);
    BlockBoxes<C> from(features, work.origin + work.begin * work.step);
    const BlockBoxes<C> step(features, work.step);
    for (int block = work.begin; block < work.end; ++block) {
      ptx::mbarrier_wait(ring.empty(at.stage), at.parity ^ 1);
      const unsigned full = ring.full(at.stage);
      ptx::mbarrier_arrive_expect(full, operands * kPanels * kPanelBytes);
#pragma unroll
      for (int i = 0; i < kPanels; ++i)
        if (i >= load.panel && i < load.end)
          load_panel_multicast<C, kPanels>(of_a ? ring.a(at.stage) : ring.b(at.stage), i,
                                           of_a ? map_dy : map_x, full, load.blocks, from,
                                           128 * load.rows + kPanel * i, of);
      at.advance();
      from.advance(step);
    }
  }
}

}  // namespace trigen::persistent::weight
