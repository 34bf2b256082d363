// Shared-memory tiles whose rows are 16 bytes longer than what they hold, so that every place is one address
// of the thread and a constant: no XOR, no address of its own for each place.
//
// Of 16-bit elements, a row being 64, 128, 256 ... bytes of the operand's contiguous axis. Successive rows
// begin 4 banks further (20 where they hold 64 bytes), so that these fall on different banks:
//   8 successive rows, 8 or 16 bytes of each at one column: fragments that lie along a row;
//   4 successive rows, 16 bytes of each: fragments that lie across rows.
// Writers fill whole rows. Of rows of 64 bytes two share a pass: they lie 4 rows apart (write_row).
//
// Read by the kernels and by the generator, which asks for the bytes.
#pragma once

#include "schedule.h"

namespace trigen::padded {

inline constexpr int kPad = 16;  // bytes
TRIGEN_HOST_DEVICE constexpr int pitch(int contiguous) { return 2 * contiguous + kPad; }

// Does k run along the contiguous axis of A, of B? (operand.cuh)
TRIGEN_HOST_DEVICE constexpr bool along_k_a(const Shape& s) {
  return s.op == Op::kForward || (makes_weights(s.op) && s.layout == Layout::kBTD);
}
TRIGEN_HOST_DEVICE constexpr bool along_k_b(const Shape& s) {
  return (!makes_weights(s.op)) == (s.layout == Layout::kBDT);
}
TRIGEN_HOST_DEVICE constexpr int tile_bytes(int mn, int depth, bool along_k) {
  return along_k ? mn * pitch(depth) : depth * pitch(mn);
}
TRIGEN_HOST_DEVICE constexpr schedule::Footprint footprint(const Shape& s, const Config& c) {
  return schedule::footprint(s, c, 16,
                             c.stages * (tile_bytes(c.tile_m, c.tile_k, along_k_a(s)) +
                                         tile_bytes(c.tile_n, c.tile_k, along_k_b(s))));
}

template <int kRows, int kColumns>
struct Layout {
  static constexpr int kPitch = pitch(kColumns);  // bytes
  static constexpr int kBytes = kRows * kPitch;
  static constexpr bool kVectors = true;
  static TRIGEN_HOST_DEVICE constexpr unsigned byte(int row, int column) {
    return static_cast<unsigned>(row * kPitch + column * 2);
  }
  // The row that the n-th writer takes.
  static TRIGEN_HOST_DEVICE constexpr int write_row(int n) {
    return kColumns == 32 ? (n & ~7) + (n & 1) * 4 + (n >> 1 & 3) : n;
  }
};

}  // namespace trigen::padded
