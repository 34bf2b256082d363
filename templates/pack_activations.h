// Activations packed for TMA: sizes that host and kernel agree on. Plain C++, like config.h.
//
// Two launches copy x, y and tensors of their shape, where these are not rows of 16-byte pieces along the
// features (odd D, pointers or strides that are not aligned, layout bdt): one before the product into the
// workspace, one behind it back. In between the product works on slots at the start of the workspace, one for
// each tensor, btd whatever the problem's layout: [B][H][T][pitch]. grad_weight of one tap sums over batches
// and features alike: there a row has the features of all batches, [H][T][pitch], so that a batch of few
// features does not fill up a block of k with zeros.
#pragma once

#include "config.h"
#include "params.h"
#include "schedule.h"

namespace trigen::packing {

inline constexpr int kLineBytes = 128;    // rows of a slot begin at multiples of it
inline constexpr int kCopyThreads = 256;  // of both launches
inline constexpr int kCopyWarps = kCopyThreads / 32;
inline constexpr int kTileEdge = 64;  // bdt: rows and columns that a block transposes
inline constexpr int kMostOfThread =
    32;  // btd: bytes that a thread copies; half of them where blocks are few

TRIGEN_HOST_DEVICE constexpr int size_of(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
TRIGEN_HOST_DEVICE constexpr bool packs_activations(const Shape&, const Config& c) {
  return c.activations == Access::kPacked;
}
// Is a slot's row one token's features of all batches? (A generic kernel, K = 0, has one tap.)
TRIGEN_HOST_DEVICE constexpr bool joins_batches(Op op, int K) { return makes_weights(op) && K <= 1; }
// Batches, and features of each, as the product sees them.
struct Rows {
  int batches, features;
  TRIGEN_HOST_DEVICE constexpr Rows(bool joined, int B, int D)
      : batches(joined ? 1 : B), features(joined ? B * D : D) {}
};
// Does the product write activations?
TRIGEN_HOST_DEVICE constexpr bool unpacks(const Shape& s) { return !makes_weights(s.op); }

// The number of each tensor's slot; -1: the problem has no such tensor.
struct Slots {
  int x = 0, y = 1, pre = -1, gate = -1, residual = -1, count = 2;
  TRIGEN_HOST_DEVICE constexpr explicit Slots(const Shape& s) {
    if (s.pre) pre = count++;
    if (s.gate) gate = count++;
    if (s.residual && unpacks(s)) residual = count++;  // gram's C is a matrix
  }
};

TRIGEN_HOST_DEVICE constexpr long long row_pitch(int D, DType dtype) {
  const int line = kLineBytes / size_of(dtype);
  return static_cast<long long>(schedule::ceil_div(D, line)) * line;
}
TRIGEN_HOST_DEVICE constexpr long long slot_bytes(const Rows& rows, int H, int T, DType dtype) {
  return static_cast<long long>(rows.batches) * H * T * row_pitch(rows.features, dtype) * size_of(dtype);
}

TRIGEN_HOST_DEVICE inline Activations slot_of(const Params& p, int slot, DType dtype, bool joined) {
  const Rows rows(joined, p.B, p.D);
  const long long pitch = row_pitch(rows.features, dtype);
  return {static_cast<char*>(p.workspace) + slot * slot_bytes(rows, p.H, p.T, dtype),
          joined ? p.D : pitch * p.T * p.H, pitch * p.T, pitch};
}
// Params of the launches between the two copies: the slots, and the workspace behind them.
TRIGEN_HOST_DEVICE inline Params packed_params(const Params& p, const Slots& slots, DType dtype,
                                               bool joined) {
  Params packed = p;
  packed.x = slot_of(p, slots.x, dtype, joined);
  packed.y = slot_of(p, slots.y, dtype, joined);
  if (slots.pre >= 0) packed.pre = slot_of(p, slots.pre, dtype, joined);
  if (slots.gate >= 0) packed.gate = slot_of(p, slots.gate, dtype, joined);
  if (slots.residual >= 0) packed.residual = slot_of(p, slots.residual, dtype, joined);
  packed.workspace =
      static_cast<char*>(p.workspace) + slots.count * slot_bytes(Rows(joined, p.B, p.D), p.H, p.T, dtype);
  return packed;
}

// btd: the pieces of memory that a tensor's copy writes. A head's lie behind each other, row by row; a block has `steps` for each of
// its threads: kMostSteps or half of them.
template <bool kInto>
struct CopyPieces {
  static constexpr int kBytes = kInto ? 8 : 4;  // rows of a slot begin with a piece, others at any element
  static constexpr int kMostSteps = kMostOfThread / kBytes;
  int length;         // elements of a row
  int row;            // pieces that it touches
  long long of_head;  // of a head and batch
  TRIGEN_HOST_DEVICE constexpr CopyPieces(int length, int T, DType dtype)
      : length(length),
        row(kInto                 ? schedule::ceil_div(length, kBytes / size_of(dtype))
            : size_of(dtype) == 2 ? length / 2 + 1
                                  : length),
        of_head(static_cast<long long>(T) * row) {}
  // Of a head and batch.
  TRIGEN_HOST_DEVICE constexpr long long blocks(int steps) const {
    const int each = kCopyThreads * steps;
    return (of_head + each - 1) / each;
  }
};
// bdt: tiles of a tensor, a block each.
TRIGEN_HOST_DEVICE constexpr long long copy_tiles(int B, int H, int T, int D) {
  return static_cast<long long>(B) * H * schedule::ceil_div(T, kTileEdge) * schedule::ceil_div(D, kTileEdge);
}
// The transposed tile in words; one more in a row keeps its columns off each other's banks.
TRIGEN_HOST_DEVICE constexpr int copy_shared_bytes(const Shape& s) {
  return s.layout == Layout::kBDT ? kTileEdge * (kTileEdge * size_of(s.dtype) / 4 + 1) * 4 : 0;
}

}  // namespace trigen::packing
