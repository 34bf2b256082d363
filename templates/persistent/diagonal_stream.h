// Schedule of grad_weight of a Toeplitz matrix by tile diagonals (slide.cuh). Plain C++, like config.h.
#pragma once

#include "config.h"
#include "schedule.h"

namespace trigen::persistent {

// Tiles of 128 x 128 with the same difference of row and column add to the same diagonals, so all of them are one sum. Pair m has
// the tile diagonals 2 m and 2 m + 1: a step is a row tile's k block, and of a k block the rows of tiles from 2 m on follow each
// other. The first of them meets one tile of the pair, the others two. The pairs' products, head by head, are laid end to end, and
// every block takes the steps that begin in an equal run of them.
struct DiagonalStream {
  int rows = 0;    // of tiles
  int depth = 0;   // k blocks
  int copies = 1;  // heads
  int blocks = 1;  // that have a step

  TRIGEN_HOST_DEVICE constexpr DiagonalStream(int T, int depth, int copies, int grid)
      : rows(schedule::ceil_div(T, 128)), depth(depth), copies(copies), blocks(grid) {
    const long long most = length() / 2;  // in each run of two products a step begins
    if (most < blocks) blocks = most > 0 ? static_cast<int>(most) : 1;
  }
  TRIGEN_HOST_DEVICE constexpr int pairs() const { return (rows + 1) / 2; }
  TRIGEN_HOST_DEVICE constexpr int pair_rows(int pair) const { return rows - 2 * pair; }
  // Products of a head's pairs before `pair`.
  TRIGEN_HOST_DEVICE constexpr long long before(int pair) const {
    return static_cast<long long>(pair) * (2 * (rows - pair) + 1) * depth;
  }
  TRIGEN_HOST_DEVICE constexpr long long length() const { return before(pairs()) * copies; }
  // Steps of a pair that begin before its product `at`.
  TRIGEN_HOST_DEVICE constexpr long long steps(int pair, long long at) const {
    const int each = 2 * pair_rows(pair) - 1;  // of a k block
    const long long k = at / each, rest = at - k * each;
    return k * pair_rows(pair) + (rest == 0 ? 0 : (rest + 2) / 2);
  }
  // The first product of block b's run; the block whose run has product `at`.
  TRIGEN_HOST_DEVICE constexpr long long bound(int b) const { return length() * b / blocks; }
  TRIGEN_HOST_DEVICE constexpr int owner(long long at) const {
    return static_cast<int>(((at + 1) * blocks - 1) / length());
  }
  // What block b has of pair `pair` of all heads is number b + pair. Of a head's pair the blocks follow each other, from the one
  // that has its first step to the one that has its last.
  TRIGEN_HOST_DEVICE constexpr long long numbers() const {
    return static_cast<long long>(blocks) + static_cast<long long>(copies) * pairs();
  }
  TRIGEN_HOST_DEVICE constexpr int first_owner(int copy, int pair) const {
    return owner(copy * before(pairs()) + before(pair));
  }
  TRIGEN_HOST_DEVICE constexpr int last_owner(int copy, int pair) const {
    return owner(copy * before(pairs()) + before(pair + 1) - (pair_rows(pair) > 1 ? 2 : 1));
  }
};

// Steps [begin, end) of a pair.
struct DiagonalRun {
  int copy = 0, pair = 0;
  long long begin = 0, end = 0, number = 0;
};

// The runs of a block, in order.
struct DiagonalWalk {
  const DiagonalStream& stream;
  int block;
  long long at, stop;
  TRIGEN_HOST_DEVICE constexpr DiagonalWalk(const DiagonalStream& s, int b)
      : stream(s), block(b), at(s.bound(b)), stop(s.bound(b + 1)) {}
  TRIGEN_HOST_DEVICE constexpr bool next(DiagonalRun& run) {
    while (at < stop) {
      const long long head = stream.before(stream.pairs());
      run.copy = static_cast<int>(at / head);
      const long long own = at - run.copy * head;
      int low = 0, high = stream.pairs();  // before(low) <= own < before(high)
      while (high - low > 1) {
        const int middle = (low + high) / 2;
        (stream.before(middle) <= own ? low : high) = middle;
      }
      const long long first = stream.before(low), end = stream.before(low + 1) - own, left = stop - at,
                      taken = left < end ? left : end;
      run.pair = low;
      run.begin = stream.steps(low, own - first);
      run.end = stream.steps(low, own - first + taken);
      run.number = block + static_cast<long long>(run.copy) * stream.pairs() + low;
      at += taken;
      if (run.begin < run.end) return true;  // else the rest of a step that the block before has
    }
    return false;
  }
};

}  // namespace trigen::persistent
