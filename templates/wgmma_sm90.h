// Sizes of the wgmma_sm90 kernels that host and kernel agree on. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "schedule.h"

namespace trigen::wgmma_sm90 {

inline constexpr int kPanel = 64;             // elements of one 128-byte swizzled row, 16-bit types
inline constexpr int kPanelBytes = 64 * 128;  // 64 rows of 128 bytes: a box of the copy engine
inline constexpr int kSharedLimit = 232448;   // bytes a block may use on sm_90
inline constexpr int kBarrierBytes = 512;     // at the end of shared memory: barriers, then kOnesBytes
inline constexpr int kOnesBytes = 256;        // grad_weight with grad_bias: a 16 x 8 tile of ones

TRIGEN_HOST_DEVICE constexpr int consumers(const Config& c) {
  return c.tile_m / 64;
}  // warpgroups that multiply
TRIGEN_HOST_DEVICE constexpr int threads(const Config& c) { return 128 * (consumers(c) + 1); }
TRIGEN_HOST_DEVICE constexpr int panels(const Config& c) { return c.tile_n / kPanel; }
// forward and grad_input: a launch before the product packs W (pack.h) and reads vec_a elements at a time, or
// (vec_a = 8) the copy engine reads W itself, 16-bit or f32. f32 weights become 16-bit ones in the kernel
// (weights_f32.cuh).
TRIGEN_HOST_DEVICE constexpr bool packs(const Shape& s, const Config& c) {
  return s.op != Op::kGradWeight && c.vec_a < 8;
}
TRIGEN_HOST_DEVICE constexpr bool reads_f32_weights(const Shape& s, const Config& c) {
  return s.op != Op::kGradWeight && s.dtype != DType::kF32 && s.wdtype == DType::kF32 && !packs(s, c);
}
// layout bdt as it lies, K-major as the product's B; what is staged of the output is transposed.
TRIGEN_HOST_DEVICE constexpr bool contiguous_tokens(const Shape& s, const Config& c) {
  return s.layout == Layout::kBDT && c.vec_b == 8;
}
TRIGEN_HOST_DEVICE constexpr int rows_bytes(const Shape& s, const Config& c) {  // A's in a stage
  return consumers(c) * (reads_f32_weights(s, c) ? 2 : 1) * kPanelBytes;
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
// grad_weight by tiles of 128 x 128 in parts leaves room on its SM for a block of the reduction, which is
// ready to begin when the last part is written: registers for 512 threads and 5 KB of shared memory.
TRIGEN_HOST_DEVICE constexpr bool admits_reduction(const Config& c) {
  return c.split_k > 1 && c.tile_n == 128;
}
TRIGEN_HOST_DEVICE constexpr int register_threads(const Config& c) {
  return admits_reduction(c) ? 512 : threads(c);
}
// Output panels that each multiplying warpgroup can stage: what the ring leaves, at most its whole tile. 0:
// too many stages.
TRIGEN_HOST_DEVICE constexpr int store_panels(const Shape& s, const Config& c) {
  const int room = kSharedLimit - kBarrierBytes - c.stages * stage_bytes(s, c);
  return room < 0 ? 0
                  : schedule::min(admits_reduction(c) ? 1 : panels(c),
                                  room / (consumers(c) * panel_buffers(s) * kPanelBytes));
}
TRIGEN_HOST_DEVICE constexpr int shared_bytes(const Shape& s, const Config& c) {
  return c.stages * stage_bytes(s, c) + consumers(c) * store_panels(s, c) * panel_buffers(s) * kPanelBytes +
         kBarrierBytes;
}
// grad_weight with clusters. tile_n = 256: two blocks work on 256 rows and share x. tile_n = 128: four work
// on 256 x 256, two share dy and two x.
TRIGEN_HOST_DEVICE constexpr bool squares(Op op, const Config& c) {
  return op == Op::kGradWeight && c.cluster == 4;
}
// Rows, and columns of a square, that the blocks of one cluster work on.
TRIGEN_HOST_DEVICE constexpr int edge_of(Op op, const Config& c) {
  return op == Op::kGradWeight && c.cluster > 1 ? 256 : 128;
}
// setmaxnreg: the registers that the loading warpgroup keeps and that each multiplying one gets, in units
// of 8.
TRIGEN_HOST_DEVICE constexpr int load_registers(const Config&) { return 40; }
TRIGEN_HOST_DEVICE constexpr int sum_registers(const Config& c) {
  return admits_reduction(c) ? 168 : consumers(c) == 1 ? 240 : 232;
}

// Column tiles of one head, in units of a cluster: panels of 64 features, those of all batches in a row.
TRIGEN_HOST_DEVICE constexpr int column_units(const Config& c, int B, int D) {
  return schedule::ceil_div(B * schedule::ceil_div(D, kPanel), panels(c) * c.cluster);
}
TRIGEN_HOST_DEVICE constexpr int row_tiles(const Config& c, int T) { return schedule::ceil_div(T, c.tile_m); }

// The triangle as the rows of the product see it: grad_input multiplies by W's transpose.
TRIGEN_HOST_DEVICE constexpr Fill product_fill(const Shape& s) {
  return (s.fill == Fill::kLower) == (s.op != Op::kGradInput) ? Fill::kLower : Fill::kUpper;
}

// What of k belongs to rows [first, first + 64): `active` blocks of 64, of which the last active - whole ones
// cross the diagonal. Lower counts blocks from k = 0 up, upper from the last block down.
struct Reach {
  int whole = 0, active = 0;
  TRIGEN_HOST_DEVICE constexpr Reach(Fill fill, int first, int diag, int blocks) {
    if (fill == Fill::kLower) {  // kept: k <= row + diag
      active = schedule::min(schedule::max(((first + 63 + diag) >> 6) + 1, 0), blocks);
      whole = schedule::min(schedule::max(((first + diag - 63) >> 6) + 1, 0), active);
    } else {  // kept: k >= row + diag
      active = schedule::min(schedule::max(blocks - ((first + diag) >> 6), 0), blocks);
      whole = schedule::min(schedule::max(blocks - ((first + 63 + diag + 63) >> 6), 0), active);
    }
  }
};

// The tile order, the same for loader and consumers: sections of columns that fit L2; inside a section the
// longest rows come first and are dealt to the clusters forwards and backwards in turn, so that each gets
// long and short ones. Every section is dealt afresh: a deal that ran on across sections gave some clusters
// the long rows of all (up to 1.9x the ideal time).
struct Deal {
  int rows, columns, section;  // row tiles; column units of all heads; column units in a section
  int clusters, cluster;       // how many there are, which one this is
  bool longest_last;           // the last row is the longest one
  int start = 0, round = 0, backwards = 1;

  // The next tile of this cluster; false at the end.
  TRIGEN_HOST_DEVICE constexpr bool next(int& row, int& column) {
    while (start < columns) {
      const int width = schedule::min(section, columns - start);
      while (round < width * rows) {
        backwards ^= 1;
        const int unit = round + (backwards ? clusters - 1 - cluster : cluster);
        round += clusters;
        if (unit < width * rows) {
          const int r = unit / width;
          column = start + unit - r * width;
          row = longest_last ? rows - 1 - r : r;
          return true;
        }
      }
      start += section;
      round = 0;
    }
    return false;
  }
};

// Column units in a section: what the config says, but work for (nearly) every cluster. One column more than
// a round holds would cost a second round for a few tiles.
TRIGEN_HOST_DEVICE constexpr int section_columns(const Config& c, int rows, int columns, int clusters) {
  const int section = c.raster > 0 ? schedule::max(c.raster, schedule::max(clusters / rows, 1)) : columns;
  return schedule::min(section, columns);
}

inline constexpr int kNarrowSums = 128 * 128;  // f32 values of a narrow part of grad_weight in the workspace
// Blocks of the reduction for each block of the product. Where one of them fits beside the product's, they
// are to begin at once when it ends, and to leave room for the launch after them.
TRIGEN_HOST_DEVICE constexpr int reduce_blocks(const Config& c) { return admits_reduction(c) ? 4 : 8; }
inline constexpr int kReduceThreads = 256;
inline constexpr int kReduceSharedBytes = 4608;

// What grad_weight's tiles are cut from.
struct Cut {
  int T, diag;
  bool lower;
  int depth;       // k blocks of a tile
  int split;       // parts of a tile, at most
  int blocks;      // that share the work: clusters, "block" below means all blocks of one
  int tile_n;      // of a block: 128 or 256
  int edge;        // edge_of
  int copies;      // triangles: heads * taps, the taps of a head in a row
  bool every_row;  // row tiles that no triangle touches get one column of 128: grad_bias is summed beside it
  bool interleaves = false;  // parts take every split-th k block, not consecutive ones
};

// How the blocks of grad_weight share its tiles. Row tiles of 128 t; each row's span of columns is cut into
// wide tiles of tile_n = 256 s and, where 128 are left over, a narrow one of 128. (With tile_n = 128 no tile
// is narrow: every one has as many parts, which suits few tokens.) Tiles of all heads and taps are counted
// together, those of one place in a row. (Clusters have row tiles of 256 and square tiles of 256 only.) They
// are few and deep (k = B * D), so:
//   - whole rounds of wide tiles go one to a block;
//   - the wide tiles that are left are cut into split_k equal parts of k, one part to a block: blocks that
//   work at the same time then read the same k, which keeps x and dy in L2; a part takes every split_k-th k
//   block, so that the parts together read whole rows of memory at a time;
//   - the narrow tiles' k blocks are laid end to end and every block takes an equal share of them.
// Incomplete sums go to the workspace in f32; a second kernel adds them in a fixed order: the same bits every
// run.
struct Shares {
  int edge = 128;  // 128, or 256 for pairs of blocks
  int rows = 0;    // row tiles; as many columns of `edge`
  int diag = 0;
  bool lower = true, every_row = false, interleaves = false, unused = false;  // four: no gap (reduce.cuh)
  int depth = 0;                                                              // k blocks of a tile
  int unit = 2;              // columns of `edge` in a wide tile: 2, or 1
  int copies = 1;            // triangles
  int wide = 0, narrow = 0;  // tiles of all copies
  int whole = 0;             // wide tiles that no one shares: a multiple of `blocks`, or all when split is 1
  int split = 1;             // parts of the others, none of them empty
  int blocks = 1;

  Shares() = default;
  TRIGEN_HOST_DEVICE constexpr explicit Shares(const Cut& c)
      : edge(c.edge),
        rows(schedule::ceil_div(c.T, edge)),
        diag(c.diag),
        lower(c.lower),
        every_row(c.every_row),
        interleaves(c.interleaves),
        depth(c.depth),
        unit(schedule::max(c.tile_n / edge, 1)),
        copies(c.copies),
        split(schedule::min(c.split, c.depth)),
        blocks(c.blocks) {
    wide = before(false, rows) * copies;
    narrow = before(true, rows) * copies;
    whole = split == 1 ? wide : wide / blocks * blocks;
  }
  // `diag` in whole edges: rounded down, and that of a tile's last row.
  TRIGEN_HOST_DEVICE constexpr int shift() const { return edge == 128 ? 7 : 8; }
  TRIGEN_HOST_DEVICE constexpr int low_edge() const { return diag >> shift(); }
  TRIGEN_HOST_DEVICE constexpr int high_edge() const { return (edge - 1 + diag) >> shift(); }
  // The span of row tile `row`, in columns of `edge`: [first, first + span). Lower spans begin at column 0,
  // upper ones end at the last column.
  TRIGEN_HOST_DEVICE constexpr int span(int row) const {
    const int open = lower ? row + 1 + high_edge() : rows - row - low_edge();
    return schedule::min(schedule::max(open, every_row ? 1 : 0), rows);
  }
  TRIGEN_HOST_DEVICE constexpr int first(int row) const { return lower ? 0 : rows - span(row); }
  // Wide (narrow) tiles of all rows before `row`, of one copy. Spans are consecutive numbers, held between 0
  // (1) and `rows`.
  TRIGEN_HOST_DEVICE constexpr int before(bool is_narrow, int row) const {
    const int begin = lower ? 1 + high_edge() : rows - low_edge() - row + 1, end = begin + row;
    // Tiles of spans 0 to n - 1.
    const auto up_to = [&](int n) {
      return unit == 1 ? (is_narrow ? 0 : n * (n - 1) / 2) : is_narrow ? n / 2 : (n - 1) * (n - 1) / 4;
    };
    const int low = schedule::min(schedule::max(begin, 0), rows + 1),
              high = schedule::min(schedule::max(end, 0), rows + 1);
    const int full =
        schedule::max(end, rows + 1) - schedule::max(begin, rows + 1);  // spans that were cut to `rows`
    const int raised = every_row ? schedule::min(end, 1) - schedule::min(begin, 1) : 0;  // from 0 to 1
    return up_to(schedule::max(high, 1)) - up_to(schedule::max(low, 1)) +
           full * (is_narrow ? rows % unit : rows / unit) + (is_narrow == (unit == 2) ? raised : 0);
  }
  // Wide tile `index` of a copy in row order, or narrow tile `index`. `column` counts edges.
  TRIGEN_HOST_DEVICE constexpr void locate(bool is_narrow, int index, int& row, int& column) const {
    int low = 0, high = rows;  // before(low) <= index < before(high)
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (before(is_narrow, middle) <= index ? low : high) = middle;
    }
    row = low;
    column = first(row) + (is_narrow ? span(row) - 1 : unit * (index - before(false, row)));
  }
  TRIGEN_HOST_DEVICE constexpr int wide_sums() const {
    return unit * edge * edge;
  }  // f32 values of a wide part
  TRIGEN_HOST_DEVICE constexpr int parts() const { return (wide - whole) * split; }
  TRIGEN_HOST_DEVICE constexpr int part_begin(int part) const {
    return static_cast<int>(static_cast<long long>(depth) * part / split);
  }
  // The narrow tiles' k blocks, end to end; blocks that have a share of them; where share b begins; who has
  // position `at`.
  TRIGEN_HOST_DEVICE constexpr int length() const { return narrow * depth; }
  TRIGEN_HOST_DEVICE constexpr int sharers() const { return schedule::min(blocks, length()); }
  TRIGEN_HOST_DEVICE constexpr int bound(int b) const {
    return b >= sharers() ? length() : static_cast<int>(static_cast<long long>(length()) * b / sharers());
  }
  TRIGEN_HOST_DEVICE constexpr int owner(int at) const {
    return static_cast<int>(((at + 1ll) * sharers() - 1) / length());
  }
  // Incomplete sums are numbered: the parts, then two narrow ones for each block (a share that began in an
  // earlier block, one that a later block ends). Where sum `number` lies in the workspace, in f32 values, its
  // part of grad_bias, and the end.
  TRIGEN_HOST_DEVICE constexpr int narrow_number(int b, bool from_start) const {
    return parts() + 2 * b + (from_start ? 1 : 0);
  }
  TRIGEN_HOST_DEVICE constexpr long long slot(int number) const {
    return static_cast<long long>(schedule::min(number, parts())) * wide_sums() +
           static_cast<long long>(schedule::max(number - parts(), 0)) * kNarrowSums;
  }
  TRIGEN_HOST_DEVICE constexpr long long bias_slot(int number) const {
    return slot(parts() + 2 * blocks) + static_cast<long long>(number) * edge;
  }
  TRIGEN_HOST_DEVICE constexpr long long workspace() const {
    return every_row ? bias_slot(parts() + 2 * blocks) : slot(parts() + 2 * blocks);
  }
};

// One piece of work: k blocks [begin, end) of a tile of one copy. number < 0: the whole sum, written to dW;
// else it goes to the workspace.
struct Piece {
  int copy = 0, row = 0, column = 0, begin = 0, end = 0, number = -1;
  bool narrow = false;
  int origin = 0, step = 1;  // k block i of the piece is k block origin + i * step of the tile
};

// What block `block` does, in order.
struct Pieces {
  const Shares& shares;
  int block, part, at, stop, tile;
  TRIGEN_HOST_DEVICE constexpr Pieces(const Shares& s, int b)
      : shares(s), block(b), part(b), at(s.bound(b)), stop(s.bound(b + 1)), tile(b) {}
  TRIGEN_HOST_DEVICE constexpr bool next(Piece& piece) {
    int index = 0;
    piece.narrow = false;
    piece.origin = 0;
    piece.step = 1;
    piece.begin = 0;
    piece.end = shares.depth;
    piece.number = -1;
    if (part < shares.parts()) {
      const int rest = part / shares.split, which = part - rest * shares.split;
      index = shares.whole + rest;
      if (shares.interleaves) {
        piece.origin = which;
        piece.step = shares.split;
        piece.end = schedule::ceil_div(shares.depth - which, shares.split);
      } else {
        piece.begin = shares.part_begin(which);
        piece.end = shares.part_begin(which + 1);
      }
      piece.number = part;
      part += shares.blocks;
    } else if (at < stop) {
      index = at / shares.depth;
      const int start = index * shares.depth, until = schedule::min(stop, start + shares.depth);
      piece.narrow = true;
      piece.begin = at - start;
      piece.end = until - start;
      // At most two shares of a block are incomplete: one that began in an earlier block, one that a later
      // block ends.
      if (at != start || until != start + shares.depth)
        piece.number = shares.narrow_number(block, at == start);
      at = until;
    } else if (tile < shares.whole) {
      index = tile;
      tile += shares.blocks;
    } else {
      return false;
    }
    const int place = index / shares.copies;
    piece.copy = index - place * shares.copies;
    shares.locate(piece.narrow, place, piece.row, piece.column);
    return true;
  }
};

}  // namespace trigen::wgmma_sm90
