// Offsets of the elements of A and B. An operand is seen as a matrix with a contiguous axis (stride 1 in
// memory wherever vector accesses are asked for) and a strided one; one of the two is k. Both axes decode
// independently: an index becomes an element offset, and the offset of an element is the sum of the two.
//
// An element takes part when its contiguous index lies in the strided coordinate's [low, high) (this carries
// the triangle, the matrix bounds and the tile's depth) and, where taps shift the features, when the two
// feature parts add up to a feature inside [0, D). Everything else is zero and is not read.
#pragma once

#include "matrices.cuh"
#include "params.h"
#include "schedule.h"
#include "types.cuh"

namespace trigen {

using schedule::Range;
using schedule::Sizes;

// A kernel whose sizes come at run time.
template <Kernel C>
inline constexpr bool kGeneric = C.shape.T == 0;
// Vector accesses along features or tokens exclude taps, so a generic kernel that has them serves K = 1 only. A W of
// another form has none.
template <Kernel C>
inline constexpr bool kOneTap =
    !kDense<C> || (kGeneric<C> ? C.config.vec_b > 1 || (C.shape.op == Op::kGradInput && C.config.vec_a > 1)
                               : C.shape.K == 1);
// No shift of the features at all.
template <Kernel C>
inline constexpr bool kUnshifted =
    !kDense<C> || (kGeneric<C> ? C.config.vec_b > 1 : C.shape.K == 1 && C.shape.pad == 0);

template <Kernel C>
__device__ __forceinline__ Sizes sizes_of(const Params& p) {
  if constexpr (kGeneric<C>)
    return {
        p.B, p.H, p.T, p.D, kOneTap<C> ? 1 : p.K, kUnshifted<C> ? 0 : p.pad, p.diag, kBand<C> ? p.width : 0};
  else
    return {p.B, C.shape.H, C.shape.T, C.shape.D, C.shape.K, C.shape.pad, C.shape.diag, C.shape.width};
}

struct Strided {
  long long offset;
  int low, high;
  int feature;
};
struct Contiguous {
  long long offset;
  int index;
  int feature;
};

// W as operand A: forward has rows t and contiguous (s,j) = k; grad_input has rows (t,j) = k and, for one
// tap, contiguous s = m. Both walk W's own rows, so the triangle is a prefix (lower) or a suffix (upper) of
// the contiguous axis. Numbers that stand for a W lie where a matrix of other strides has them: those of a band,
// t * w_row + (s - t + width - 1), as rows that are one element shorter, those of a Toeplitz matrix, t - s, as rows
// one element long that run backwards. No two rows have the same alignment then.
template <Kernel C>
struct WeightOperand {
  static constexpr DType kDType = C.shape.wdtype;
  static constexpr bool kContiguousIsK = C.shape.op == Op::kForward;
  static constexpr int kVec = C.config.vec_a;
  static constexpr bool kPartial = true;                                     // the triangle cuts vectors
  static constexpr bool kHasLow = C.shape.fill == Fill::kUpper || kBand<C>;  // ... at their front
  static constexpr bool kMatrix = kDense<C>;                                 // rows of vectors
  static_assert(kMatrix || kVec == 1, "numbers that stand for W are read one by one: vec_a is 1");
  static constexpr bool kShifted = false, kCutsVectors = false;
  // grad_input with taps: vectors along W's own row (s,j), whose elements are spread over the k of their taps
  // (loader.cuh). The contiguous index is then (s,j), a strided step one token.
  static constexpr int kTapsTogether =
      C.shape.op == Op::kGradInput && !kGeneric<C> && C.shape.K > 1 && kVec > 1 ? C.shape.K : 1;
  static_assert(
      C.config.tile_k % kTapsTogether == 0,
      "vectors of W in grad_input hold all taps of a token: tile_k is a multiple of K, or vec_a is 1");

  const Storage<kDType>* base;
  long long row;
  Sizes z;

  __device__ __forceinline__ WeightOperand(const Params& p, const Sizes& z, int head, Range)
      : base(static_cast<const Storage<kDType>*>(p.w) + head * p.w_head), row(p.w_row), z(z) {
    if constexpr (kBand<C>) base += z.width - 1, row -= 1;
    if constexpr (C.shape.w == WeightForm::kToeplitz) row = 1;
  }

  // Tiles that divide the tokens: no row needs a check.
  static constexpr bool kWhole =
      !kGeneric<C> && C.shape.T % (C.shape.op == Op::kForward ? C.config.tile_m : C.config.tile_k) == 0;
  // Equal steps along the strided axis are equal distances in memory.
  static constexpr bool kLinear = kContiguousIsK || kOneTap<C>;
  __device__ __forceinline__ long long pitch() const { return row; }
  __device__ __forceinline__ Strided strided(int i) const {
    const int t = kLinear ? i : i / z.K;
    Range r = schedule::weight_row(C.shape.fill, z, t);
    if (!kWhole && t >= z.T) r = {0, 0};
    const long long offset = t * row + (kLinear ? 0 : i - t * z.K);
    const int unit = kContiguousIsK ? z.K : kTapsTogether;  // contiguous indices of one token
    return {offset, kHasLow ? r.begin * unit : 0, r.end * unit, 0};
  }
  __device__ __forceinline__ Contiguous contiguous(int i) const {
    if constexpr (C.shape.w == WeightForm::kToeplitz) return {-static_cast<long long>(i), i, 0};
    return {kContiguousIsK || kTapsTogether > 1 ? i : static_cast<long long>(i) * z.K, i, 0};
  }
  __device__ __forceinline__ bool inside(const Strided&, const Contiguous&) const { return true; }
};

enum class Side { kA, kB };

// x or dy. Token coordinates are (token, tap), feature coordinates are (batch, feature); the contiguous axis
// holds the features for btd and the tokens for bdt.
template <Kernel C, Side S>
struct ActivationOperand {
  static constexpr DType kDType = C.shape.dtype;
  static constexpr bool kTokensAreK = !makes_weights(C.shape.op);
  static constexpr bool kTokensContiguous = C.shape.layout == Layout::kBDT;
  static constexpr bool kMatrix = true;
  static constexpr bool kContiguousIsK = kTokensAreK == kTokensContiguous;
  static constexpr int kVec = S == Side::kA ? C.config.vec_a : C.config.vec_b;
  static constexpr bool kTaps = S == Side::kB && !kOneTap<C>;
  static constexpr bool kShifted = S == Side::kB && !kUnshifted<C>;
  // The depth of a row tile may begin and end inside a vector when k runs along it; the rest of that vector
  // is loaded too and meets weights of zero. All other bounds are multiples of the vector.
  static constexpr bool kPartial = false;
  static constexpr bool kHasLow =
      kTokensAreK && kContiguousIsK && (kBand<C> || !schedule::long_rows_last(C.shape.op, C.shape.fill));
  // Vectors of shifted features are cut out of two aligned ones (loader.cuh).
  static constexpr bool kCutsVectors = kShifted && kVec > 1;
  static constexpr int kTapsTogether = 1;
  static_assert(
      !kCutsVectors || (!kTokensContiguous && !kGeneric<C> && kVec * kBytes<kDType> == 16 &&
                        C.shape.D % (kGeneric<C> ? 1 : kVec) == 0),
      "features shifted by taps or padding come in vectors of 16 bytes where they are contiguous and D is a "
      "multiple of them, else one by one: vec_b must be 1");

  const Storage<kDType>* base;
  long long batch, row;
  Sizes z;
  Range depth;

  __device__ __forceinline__ ActivationOperand(const Params& p, const Sizes& z, int head, Range depth)
      : z(z), depth(depth) {
    const bool reads_y = C.shape.op == Op::kGradInput || S == Side::kA;
    const Activations& t = reads_y ? p.y : p.x;
    base = static_cast<const Storage<kDType>*>(t.data) + head * t.head;
    batch = t.batch;
    row = t.row;
  }

  // Tiles that divide their axis: no row needs a check, and tiles of features stay inside one batch.
  static constexpr int kTile = S == Side::kA ? C.config.tile_m : C.config.tile_n;
  static constexpr bool kWhole =
      !kGeneric<C> &&
      (kTokensAreK ? C.shape.D : C.shape.T * (S == Side::kA ? 1 : C.shape.K)) % (kGeneric<C> ? 1 : kTile) ==
          0;
  static constexpr bool kOneBatch = !kGeneric<C> && C.shape.D % (kTokensAreK ? kTile : C.config.tile_k) == 0;
  static constexpr bool kLinear = kTokensContiguous ? kOneBatch : !kTaps;
  __device__ __forceinline__ long long pitch() const { return row; }

  struct Coordinate {
    long long offset;
    int feature;
  };
  __device__ __forceinline__ Coordinate token(int i) const {
    const int t = kTaps ? i / z.K : i;
    int shift = 0;
    if constexpr (kShifted) {
      shift = (kTaps ? i - t * z.K : 0) - z.pad;
      if constexpr (C.shape.op == Op::kGradInput) shift = -shift;
    }
    if constexpr (kTokensContiguous)
      return {t + shift * row, shift};
    else
      return {t * row + shift, shift};
  }
  __device__ __forceinline__ Coordinate feature(int i) const {
    const int b = i / z.D, d = i - b * z.D;
    if constexpr (kTokensContiguous)
      return {b * batch + d * row, d};
    else
      return {b * batch + d, d};
  }
  // The extent of the axis that is not k.
  __device__ __forceinline__ int extent() const {
    return kTokensAreK ? z.B * z.D : S == Side::kA ? z.T : z.T * z.K;
  }

  __device__ __forceinline__ Strided strided(int i) const {
    const Coordinate at = kTokensContiguous ? feature(i) : token(i);
    int low = 0, high;
    if constexpr (kContiguousIsK) {
      if constexpr (kHasLow) low = depth.begin;
      high = kWhole || i < extent() ? depth.end : 0;
    } else {
      high = i < depth.end && (kTokensAreK ? i >= depth.begin : true) ? extent() : 0;
    }
    return {at.offset, low, high, at.feature};
  }
  __device__ __forceinline__ Contiguous contiguous(int i) const {
    const Coordinate at = kTokensContiguous ? token(i) : feature(i);
    return {at.offset, i, at.feature};
  }
  __device__ __forceinline__ bool feature_exists(int d) const {
    return static_cast<unsigned>(d) < static_cast<unsigned>(z.D);
  }
  __device__ __forceinline__ bool inside(const Strided& s, const Contiguous& q) const {
    if constexpr (kShifted)
      return feature_exists(s.feature + q.feature);
    else
      return true;
  }
};

template <Kernel C, bool kIsWeight>
struct OperandAOf {
  using type = WeightOperand<C>;
};
template <Kernel C>
struct OperandAOf<C, false> {
  using type = ActivationOperand<C, Side::kA>;
};
template <Kernel C>
using OperandA = typename OperandAOf<C, !makes_weights(C.shape.op)>::type;
template <Kernel C>
using OperandB = ActivationOperand<C, Side::kB>;

}  // namespace trigen
