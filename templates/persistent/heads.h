// Heads that begin inside a piece of 16 bytes, in rows that lie whole pieces apart: what host and kernel agree on. Plain C++,
// like config.h.
#pragma once

#include "config.h"
#include "params.h"

namespace trigen::persistent {

inline constexpr int kPiece = 8;  // elements of 16 bits in 16 bytes

// forward and grad_input that read and write such heads as they lie: boxes begin at the piece ahead of a head, so that their
// first columns are the head's before, whose products are not stored; threads store the rest. vec_b: elements that the problem
// promises heads' begins to be multiples of.
TRIGEN_HOST_DEVICE constexpr bool reads_heads(const Shape& s, const Config& c) {
  return !makes_weights(s.op) && s.layout == Layout::kBTD && s.D > 0 && c.activations == Access::kDirect &&
         (s.D % kPiece != 0 || c.vec_b < kPiece);
}
// Columns that the boxes of a head need: its features and what may be ahead of them.
TRIGEN_HOST_DEVICE constexpr int reached_features(const Config& c, int D) {
  const bool inside = c.activations == Access::kDirect && c.vec_b > 0 && c.vec_b < kPiece;
  return D + (inside ? kPiece - c.vec_b : 0);
}

// Where a tensor's heads lie in its map, which begins at the piece ahead of the first one.
struct HeadPlaces {
  bool alike;         // one map has them; else none has
  bool side_by_side;  // along the rows of the map; else along an axis of heads
  int inside;         // elements from the map's begin to the first head
  long long stride;   // from head to head

  TRIGEN_HOST_DEVICE HeadPlaces(const Activations& t, int H, int D)
      : side_by_side(t.head % kPiece != 0),
        inside(static_cast<int>(reinterpret_cast<unsigned long long>(t.data) % (2 * kPiece) / 2)),
        stride(t.head) {
    constexpr long long kLongest = 1 << 30;  // coordinates are int
    alike = t.row % kPiece == 0 && t.batch % kPiece == 0 &&
            (!side_by_side || ((H - 1) * t.head + D <= t.row && t.row < kLongest));
  }
  // Columns of the map: those of its first box of a head, and elements from there to the head.
  TRIGEN_HOST_DEVICE int column(int head) const { return place(head) / kPiece * kPiece; }
  TRIGEN_HOST_DEVICE int skew(int head) const { return alike ? place(head) % kPiece : 0; }
  TRIGEN_HOST_DEVICE int axis(int head) const { return side_by_side ? 0 : head; }  // of the map
  TRIGEN_HOST_DEVICE long long columns(int H, int D) const {
    return inside + (side_by_side ? (H - 1) * stride : 0) + D;
  }

 private:
  TRIGEN_HOST_DEVICE int place(int head) const {
    return inside + (side_by_side ? head * static_cast<int>(stride) : 0);
  }
};

}  // namespace trigen::persistent
