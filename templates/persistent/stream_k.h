// Stream-K schedule of grad_weight. Plain C++, like config.h.
#pragma once

#include "config.h"
#include "schedule.h"

namespace trigen::persistent {

inline constexpr int kNarrowSums = 128 * 128;  // f32 values of a narrow part of grad_weight in the workspace
// Arguments of the schedule.
struct StreamKArguments {
  int T, diag;
  bool lower;
  int depth;       // k blocks of a tile
  int split;       // parts of a tile, at most
  int blocks;      // of the launch: clusters, "block" below means all blocks of a cluster
  int tile_n;      // of a block: 128 or 256
  int edge;        // edge_of, in elements
  int copies;      // triangles: heads * taps, the taps of a head in a row
  bool every_row;  // row tiles that no triangle touches get one column of 128: grad_bias is summed beside it
  bool interleaves = false;  // parts take every split-th k block, not consecutive ones
  bool parts_alone =
      false;  // no tile is written by the block that sums it, not even if it has no other parts
  int taps = 1;
  int width = 0;  // of a band: row t's tokens are (t - width, t]; 0: the triangle's
  // f32 values of a Toeplitz matrix's diagonals that every work tile has in the workspace in place of its sums; 0: another W
  int diagonals = 0;
};

// Division of grad_weight's tiles among blocks: data-parallel rounds, then stream-K. Row tiles have 128 t;
// each row's span of columns, a band's that of the tiles that meet it, is cut into wide tiles of tile_n = 256 s and,
// where 128 are left over, a narrow one of 128. (With tile_n = 128 no tile is narrow: every one has as many parts, which suits few tokens.)
// Tiles of all heads and taps are counted together: those of a head follow each other, so that blocks that work at
// the same time read the same rows and write neighbouring ones; taps, which read the same rows, come in a row for each
// place. Where no block has two tiles, those of all heads do: 24 us for 25 (H200, grad_weight 32,512,8x128, 2026-11-27).
// (Clusters have row tiles of 256 and square tiles of 256 only.) They are few and deep (k = B * D), so:
//   - whole rounds of wide tiles go one to a block;
//   - the wide tiles that are left are split into split_k equal parts of k, one part to a block: blocks that
//     work at the same time then read the same k, which keeps x and dy in L2; a part takes every split_k-th k
//     block, so that the parts together read whole rows of memory at a time;
//   - the narrow tiles' k blocks are laid end to end and every block takes an equal run of them.
// Incomplete sums go to the workspace in f32; a second kernel adds them in a fixed order: the same bits every
// run.
struct StreamK {
  int edge = 128;  // 128, or 256 for pairs of blocks
  int rows = 0;    // row tiles; as many columns of `edge`
  int most = 0;    // columns of a span, at most
  int diag = 0;
  bool lower = true, every_row = false, interleaves = false, unused = false;  // four: no gap (reduce.cuh)
  int depth = 0;                                                              // k blocks of a tile
  int unit = 2;                // columns of `edge` in a wide tile: 2, or 1
  int copies = 1, beside = 1;  // triangles; those whose tiles of one place come in a row
  int wide = 0, narrow = 0;    // tiles of all copies
  int whole_tiles = 0;         // wide tiles of one block each: a multiple of `blocks`, or all when split is 1
  int split = 1;               // parts of the others, none of them empty
  int blocks = 1;
  int diagonals = 0;

  StreamK() = default;
  TRIGEN_HOST_DEVICE constexpr explicit StreamK(const StreamKArguments& c)
      : edge(c.edge),
        rows(schedule::ceil_div(c.T, edge)),
        most(c.width > 0 ? schedule::min(rows, schedule::ceil_div(c.width - 1, edge) + 1) : rows),
        diag(c.diag),
        lower(c.lower),
        every_row(c.every_row),
        interleaves(c.interleaves),
        depth(c.depth),
        unit(schedule::max(c.tile_n / edge, 1)),
        copies(c.copies),
        split(schedule::min(c.split, c.depth)),
        blocks(c.blocks),
        diagonals(c.diagonals) {
    wide = before(false, rows) * copies;
    narrow = before(true, rows) * copies;
    beside = wide <= blocks ? copies : c.taps;
    whole_tiles = c.parts_alone ? 0 : split == 1 ? wide : wide / blocks * blocks;
  }
  // `diag` in whole edges: rounded down, and that of a tile's last row.
  TRIGEN_HOST_DEVICE constexpr int shift() const { return edge == 128 ? 7 : 8; }
  TRIGEN_HOST_DEVICE constexpr int low_edge() const { return diag >> shift(); }
  TRIGEN_HOST_DEVICE constexpr int high_edge() const { return (edge - 1 + diag) >> shift(); }
  // The span of row tile `row`, in columns of `edge`: [first, first + span). Lower spans begin at column 0, a band's at its
  // first token; upper ones end at the last column.
  TRIGEN_HOST_DEVICE constexpr int span(int row) const {
    const int open = lower ? row + 1 + high_edge() : rows - row - low_edge();
    return schedule::min(schedule::max(open, every_row ? 1 : 0), most);
  }
  TRIGEN_HOST_DEVICE constexpr int first(int row) const {
    return lower ? schedule::max(row + 1 - most, 0) : rows - span(row);
  }
  // The tile of a row beside which grad_bias is summed: the one at the diagonal, of which the first or the last 64 rows need half of
  // the columns. Its column, its kind, and its place among the tiles of that kind of a copy.
  TRIGEN_HOST_DEVICE constexpr int bias_column(int row) const {
    return first(row) + (lower ? (span(row) - 1) / unit * unit : 0);
  }
  TRIGEN_HOST_DEVICE constexpr bool bias_is_narrow(int row) const {
    return lower ? span(row) % unit != 0 : span(row) < unit;
  }
  TRIGEN_HOST_DEVICE constexpr int bias_place(int row) const {
    const bool is_narrow = bias_is_narrow(row);
    return before(is_narrow, row) + (lower && !is_narrow ? span(row) / unit - 1 : 0);
  }
  // Wide (narrow) tiles of all rows before `row`, of one copy. Spans are consecutive numbers, limited to 0
  // (1) to `most`.
  TRIGEN_HOST_DEVICE constexpr int before(bool is_narrow, int row) const {
    const int begin = lower ? 1 + high_edge() : rows - low_edge() - row + 1, end = begin + row;
    // Tiles of spans 0 to n - 1.
    const auto up_to = [&](int n) {
      return unit == 1 ? (is_narrow ? 0 : n * (n - 1) / 2) : is_narrow ? n / 2 : (n - 1) * (n - 1) / 4;
    };
    const int low = schedule::min(schedule::max(begin, 0), most + 1),
              high = schedule::min(schedule::max(end, 0), most + 1);
    const int full =
        schedule::max(end, most + 1) - schedule::max(begin, most + 1);  // spans limited to `most`
    const int raised = every_row ? schedule::min(end, 1) - schedule::min(begin, 1) : 0;  // from 0 to 1
    return up_to(schedule::max(high, 1)) - up_to(schedule::max(low, 1)) +
           full * (is_narrow ? most % unit : most / unit) + (is_narrow == (unit == 2) ? raised : 0);
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
  // Wide (narrow) tile `index` of all copies: its copy, and its index in that one. And back.
  TRIGEN_HOST_DEVICE constexpr int copy_of(bool is_narrow, int index, int& place) const {
    const int tiles = (is_narrow ? narrow : wide) / copies * beside, group = index / tiles,
              rest = index - group * tiles;
    place = rest / beside;
    return group * beside + (rest - place * beside);
  }
  TRIGEN_HOST_DEVICE constexpr int index_of(bool is_narrow, int place, int copy) const {
    const int group = copy / beside;
    return (group * ((is_narrow ? narrow : wide) / copies) + place) * beside + (copy - group * beside);
  }
  TRIGEN_HOST_DEVICE constexpr int wide_sums() const {
    return unit * edge * edge;
  }  // f32 values of a wide part
  TRIGEN_HOST_DEVICE constexpr int parts() const { return (wide - whole_tiles) * split; }
  TRIGEN_HOST_DEVICE constexpr int part_begin(int part) const {
    return static_cast<int>(static_cast<long long>(depth) * part / split);
  }
  // The narrow tiles' k blocks, end to end: their number; blocks that take a run of them; the first position
  // of block b's run; the block whose run has position `at`.
  TRIGEN_HOST_DEVICE constexpr int length() const { return narrow * depth; }
  TRIGEN_HOST_DEVICE constexpr int sharers() const { return schedule::min(blocks, length()); }
  TRIGEN_HOST_DEVICE constexpr int bound(int b) const {
    return b >= sharers() ? length() : static_cast<int>(static_cast<long long>(length()) * b / sharers());
  }
  TRIGEN_HOST_DEVICE constexpr int owner(int at) const {
    return static_cast<int>(((at + 1ll) * sharers() - 1) / length());
  }
  // Incomplete sums are numbered: the parts, then two narrow ones for each block (a run that began in an
  // earlier block, one that a later block ends); whole tiles behind them, where diagonals are what tiles have in the
  // workspace. slot: the offset of sum `number` there, in f32 values; bias_slot: that of its part of grad_bias;
  // workspace: the end.
  TRIGEN_HOST_DEVICE constexpr int narrow_number(int b, bool from_start) const {
    return parts() + 2 * b + (from_start ? 1 : 0);
  }
  TRIGEN_HOST_DEVICE constexpr int incomplete() const { return parts() + 2 * blocks; }
  TRIGEN_HOST_DEVICE constexpr int whole_number(bool is_narrow, int index) const {
    return incomplete() + (is_narrow ? whole_tiles : 0) + index;
  }
  TRIGEN_HOST_DEVICE constexpr int numbers() const {
    return diagonals > 0 ? whole_number(true, narrow) : incomplete();
  }
  TRIGEN_HOST_DEVICE constexpr long long slot(int number) const {
    if (diagonals > 0) return static_cast<long long>(number) * diagonals;
    return static_cast<long long>(schedule::min(number, parts())) * wide_sums() +
           static_cast<long long>(schedule::max(number - parts(), 0)) * kNarrowSums;
  }
  TRIGEN_HOST_DEVICE constexpr long long bias_slot(int number) const {
    return slot(numbers()) + static_cast<long long>(number) * edge;
  }
  TRIGEN_HOST_DEVICE constexpr long long workspace() const {
    return every_row ? bias_slot(incomplete()) : slot(numbers());
  }
};

// A work tile: k blocks [begin, end) of a tile of one copy. number < 0: the whole sum, written to dW; else it
// goes to the workspace.
struct WorkTile {
  int index = 0;  // of the tile, among the wide or the narrow ones
  int copy = 0, row = 0, column = 0, begin = 0, end = 0, number = -1;
  bool narrow = false;
  int origin = 0, step = 1;  // k block i of the work tile is k block origin + i * step of the tile
};

// The work tiles of block `block`, in order.
struct StreamKWalk {
  const StreamK& stream_k;
  int block, part, at, stop, tile;
  TRIGEN_HOST_DEVICE constexpr StreamKWalk(const StreamK& s, int b)
      : stream_k(s), block(b), part(b), at(s.bound(b)), stop(s.bound(b + 1)), tile(b) {}
  TRIGEN_HOST_DEVICE constexpr bool next(WorkTile& work) {
    int index = 0;
    work.narrow = false;
    work.origin = 0;
    work.step = 1;
    work.begin = 0;
    work.end = stream_k.depth;
    work.number = -1;
    if (part < stream_k.parts()) {
      const int rest = part / stream_k.split, which = part - rest * stream_k.split;
      index = stream_k.whole_tiles + rest;
      if (stream_k.interleaves) {
        work.origin = which;
        work.step = stream_k.split;
        work.end = schedule::ceil_div(stream_k.depth - which, stream_k.split);
      } else {
        work.begin = stream_k.part_begin(which);
        work.end = stream_k.part_begin(which + 1);
      }
      work.number = part;
      part += stream_k.blocks;
    } else if (at < stop) {
      index = at / stream_k.depth;
      const int start = index * stream_k.depth, until = schedule::min(stop, start + stream_k.depth);
      work.narrow = true;
      work.begin = at - start;
      work.end = until - start;
      // At most two runs of a block are incomplete: one that began in an earlier block, one that a later
      // block ends.
      if (at != start || until != start + stream_k.depth)
        work.number = stream_k.narrow_number(block, at == start);
      at = until;
    } else if (tile < stream_k.whole_tiles) {
      index = tile;
      tile += stream_k.blocks;
    } else {
      return false;
    }
    work.index = index;
    int place = 0;
    work.copy = stream_k.copy_of(work.narrow, index, place);
    stream_k.locate(work.narrow, place, work.row, work.column);
    return true;
  }
};

}  // namespace trigen::persistent
