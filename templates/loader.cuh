// Moves one operand's tiles from global to shared memory, with zeros where elements do not take part. One of
// four ways, chosen at compile time:
//
// - asynchronous: cp.async of 4, 8 or 16 bytes (sm_80+, same dtype on both sides, vectors together in
//   shared memory);
// - staged: global -> registers in load(), registers -> (convert) -> shared in store(), so that the global
//   latency passes under the arithmetic between the two;
// - cut: staged; vectors whose features are shifted are cut out of the two aligned ones that they overlap;
// - batched: single 16-bit elements, too many registers to stage: store() moves them sixteen at a time.
//
// Layout gives the place of an element: byte(strided, contiguous), and kVectors when vectors along the
// contiguous axis stay together. W that is wider than x is rounded to x's dtype on the way.
#pragma once

#include "operand.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/memory.cuh"

namespace trigen {

template <class Operand, DType kSharedDType, DType kRoundTo, int kMn, int kDepth, int kThreads, class Layout,
          bool kAsync>
class Loader {
  static constexpr DType kDType = Operand::kDType;
  using Element = Storage<kDType>;
  static constexpr int kVec = Operand::kVec;
  static constexpr int kTaps = Operand::kTapsTogether;
  static constexpr int kContig = Operand::kContiguousIsK ? kDepth : kMn * kTaps;
  static constexpr int kStrides = Operand::kContiguousIsK ? kMn : kDepth / kTaps;
  static constexpr int kChunks = kContig / kVec;
  static constexpr int kPassC = kChunks > kThreads ? kChunks / kThreads : 1;
  static constexpr int kRowsPerPass = kChunks > kThreads ? 1 : kThreads / kChunks;
  static constexpr int kPassR = (kStrides + kRowsPerPass - 1) / kRowsPerPass;
  static constexpr bool kAllThreads = kStrides % kRowsPerPass == 0;
  static constexpr bool kVectorCopy = kDType == kSharedDType && kRoundTo == kDType && Layout::kVectors;
  static_assert(kContig % kVec == 0, "a tile holds whole vectors");
  static_assert(kChunks > kThreads ? kChunks % kThreads == 0 : kThreads % kChunks == 0,
                "the threads divide a tile's rows evenly: tile sizes and thread counts are powers of two");
  static_assert(!kAsync || (kVectorCopy && (kVec * kBytes<kDType> == 4 || kVec * kBytes<kDType> == 8 ||
                                            kVec * kBytes<kDType> == 16)),
                "cp.async copies 4, 8 or 16 bytes without conversion");
  static_assert(kVec * kBytes<kDType> <= 32, "an access is two 16-byte loads at most");

  static constexpr int kPasses = kPassR * kPassC;
  static constexpr bool kCut = Operand::kCutsVectors;
  static_assert(!kAsync || (!kCut && kTaps == 1), "cp.async neither shifts nor spreads");
  static constexpr bool kBatched = !kAsync && kVec * kBytes<kDType> < 4 && kPasses > 16;
  // Rows that stay the same for all tiles: of a linear operand the first address stands for all; else the
  // coordinates are kept while they are few, and decoded again where they would take too many registers.
  static constexpr bool kKeepsFirst = Operand::kContiguousIsK && Operand::kLinear;
  static constexpr bool kKeepsStrided = Operand::kContiguousIsK && !Operand::kLinear && kPassR <= 8;
  static constexpr int kUnroll = kAsync && kPasses > 8 ? 4 : kPasses;

 public:
  __device__ __forceinline__ Loader(const Params& p, const Sizes& z, int head, Range depth, int mn,
                                    int thread)
      : operand_(p, z, head, depth), mn_(mn), row_(thread / kColumns), column_(thread % kColumns * kVec) {
    if constexpr (kKeepsFirst) first_ = operand_.base + operand_.strided(mn + row_).offset;
    if constexpr (kKeepsStrided) {
#pragma unroll
      for (int i = 0; i < kPassR; ++i) strided_[i] = operand_.strided(mn + row_ + i * kRowsPerPass);
    }
    if constexpr (!Operand::kContiguousIsK) {
#pragma unroll
      for (int i = 0; i < kPassC; ++i)
        contiguous_[i] = operand_.contiguous(mn * kTaps + column_ + i * kThreads * kVec);
    }
  }

  // Starts the copy of the tile whose depth begins at k.
  __device__ __forceinline__ void load(int k, unsigned shared) {
    if constexpr (!kBatched) {
      const Origin origin = origin_of(k);
#pragma unroll kUnroll
      for (int pass = 0; pass < kPasses; ++pass)
        visit(origin, pass, [&](int r, int c, const Strided& s, const Contiguous& q, const Element* from) {
          int begin = 0, end = 0;
          bounds(s, q, begin, end);
          if constexpr (kAsync) {
            constexpr int kSize = kBytes<kDType>;
            const unsigned to = shared + Layout::byte(r, c);
            if (Operand::kPartial && Operand::kHasLow && begin > 0 && begin < end) {
              copy_singly(to, from, begin, end);
            } else {
              if constexpr (Operand::kPartial && Operand::kHasLow) end = begin > 0 ? 0 : end;
              ptx::cp_async<kVec * kSize>(to, from, end * kSize);
            }
          } else if constexpr (kCut) {
            const int rest = s.feature & (kVec - 1);  // shift = a multiple of the vector + rest
            const int feature = q.feature + s.feature - rest;
            const bool any = q.index < s.high;
            fetch(raw_[pass], any && operand_.feature_exists(feature), from - rest);
            fetch(next_[pass], any && rest != 0 && operand_.feature_exists(feature + kVec),
                  from - rest + kVec);
          } else {
            fetch(raw_[pass], begin < end, from);
          }
        });
    }
  }

  // Staged: puts what load(k) fetched into shared memory. Batched: does all of it. Asynchronous: nothing to
  // do.
  __device__ __forceinline__ void store(int k, unsigned shared) {
    if constexpr (kAsync) return;
    const Origin origin = origin_of(k);
    if constexpr (kBatched) {
#pragma unroll 1
      for (int first = 0; first < kPasses; first += kBatch) {
#pragma unroll
        for (int i = 0; i < kBatch; ++i)
          visit(origin, first + i, [&](int, int, const Strided& s, const Contiguous& q, const Element* from) {
            int begin = 0, end = 0;
            bounds(s, q, begin, end);
            fetch(raw_[i], begin < end, from);
          });
#pragma unroll
        for (int i = 0; i < kBatch; ++i) {
          int r, c;
          if (place(first + i, r, c)) put(raw_[i], shared, r, c);
        }
      }
    } else {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        if constexpr (Operand::kPartial && kVec > 1) {
          visit(origin, pass, [&](int, int, const Strided& s, const Contiguous& q, const Element*) {
            int begin = 0, end = 0;
            bounds(s, q, begin, end);
            if (begin > 0 || end < kVec) raw_[pass].keep(begin, end);
          });
        }
        if constexpr (kCut) {
          visit(origin, pass, [&](int, int, const Strided& s, const Contiguous&, const Element*) {
            cut(raw_[pass], next_[pass], s.feature & (kVec - 1));
          });
        }
        int r, c;
        if (place(pass, r, c)) put(raw_[pass], shared, r, c);
      }
    }
  }

 private:
  static constexpr int kColumns = kChunks > kThreads ? kThreads : kChunks;
  static constexpr int kBatch = 16;
  static_assert(!kBatched || kPasses % kBatch == 0, "passes are powers of two");

  // The offsets and bounds that all vectors of a tile have in common.
  struct Origin {
    int k;
    Contiguous contiguous;  // k contiguous: this thread's place along k
    Strided strided;        // k strided: the row of the first pass
  };
  __device__ __forceinline__ Origin origin_of(int k) const {
    Origin o{k, {}, {}};
    if constexpr (Operand::kContiguousIsK)
      o.contiguous = operand_.contiguous(k + column_);
    else
      o.strided = operand_.strided(k + row_ * kTaps);
    return o;
  }

  __device__ __forceinline__ bool place(int pass, int& r, int& c) const {
    r = row_ + pass / kPassC * kRowsPerPass;
    c = column_ + pass % kPassC * kThreads * kVec;
    return kAllThreads || r < kStrides;
  }

  // Calls f(row, column, strided, contiguous, address) for one vector of this thread.
  template <class F>
  __device__ __forceinline__ void visit(const Origin& o, int pass, F&& f) const {
    const int i = pass / kPassC, j = pass % kPassC;
    int r, c;
    if (!place(pass, r, c)) return;
    const long long step = i * (operand_.pitch() * kRowsPerPass);  // from the first pass, for linear operands
    if constexpr (Operand::kContiguousIsK) {
      static_assert(kPassC == 1, "a tile's depth is shorter than a block's threads");
      Strided s;
      if constexpr (kKeepsStrided)
        s = strided_[i];
      else
        s = operand_.strided(mn_ + r);
      if constexpr (kKeepsFirst)
        f(r, c, s, o.contiguous, first_ + o.contiguous.offset + step);
      else
        f(r, c, s, o.contiguous, operand_.base + o.contiguous.offset + s.offset);
    } else {
      Strided s = o.strided;
      if (pass >= kPassC) s = operand_.strided(o.k + r * kTaps);
      if constexpr (Operand::kLinear) s.offset = o.strided.offset + step;
      f(r, c, s, contiguous_[j], operand_.base + contiguous_[j].offset + s.offset);
    }
  }

  // Drops the first `rest` elements of a, next and keeps a vector.
  __device__ __forceinline__ static void cut(Raw<kDType, kVec>& a, const Raw<kDType, kVec>& next, int rest) {
    const int halves = rest * kBytes<kDType> / 2;
    unsigned w[7] = {a.w[0], a.w[1], a.w[2], a.w[3], next.w[0], next.w[1], next.w[2]};
    if (halves & 4) w[0] = w[2], w[1] = w[3], w[2] = w[4], w[3] = w[5], w[4] = w[6], w[5] = next.w[3];
    if (halves & 2) w[0] = w[1], w[1] = w[2], w[2] = w[3], w[3] = w[4], w[4] = w[5];
#pragma unroll
    for (int i = 0; i < 4; ++i) a.w[i] = halves & 1 ? __funnelshift_r(w[i], w[i + 1], 16) : w[i];
  }

  __device__ __forceinline__ static void fetch(Raw<kDType, kVec>& raw, bool any, const Element* from) {
    raw.clear();
    if (any) ptx::load_global_nc<kVec * kBytes<kDType>>(raw.w, from);
  }

  // The elements of a vector that take part: [begin, end) of kVec.
  __device__ __forceinline__ void bounds(const Strided& s, const Contiguous& q, int& begin, int& end) const {
    if constexpr (kVec == 1 || !Operand::kPartial) {
      const bool low = !Operand::kHasLow || q.index + kVec > s.low;
      end = low && q.index < s.high && operand_.inside(s, q) ? kVec : 0;
      begin = 0;
    } else {
      end = max(0, min(s.high - q.index, kVec));
      begin = Operand::kHasLow ? max(0, min(s.low - q.index, kVec)) : 0;
    }
  }

  // A vector whose front lies outside the triangle: cp.async can cut its end only.
  __device__ __forceinline__ static void copy_singly(unsigned to, const Element* from, int begin, int end) {
    Raw<kDType, kVec> v;
    v.clear();
#pragma unroll
    for (int i = 0; i < kVec; ++i)
      if (i >= begin && i < end) {
        Raw<kDType, 1> one;
        ptx::load_global_nc<kBytes<kDType>>(one.w, from + i);
        v.set(i, one.get(0));
      }
    ptx::store_shared<kVec * kBytes<kDType>>(to, v.w);
  }

  static __device__ __forceinline__ unsigned place_of(int r, int c) {
    if constexpr (kTaps > 1)
      return Layout::byte(r * kTaps + c % kTaps, c / kTaps);
    else
      return Layout::byte(r, c);
  }

  __device__ __forceinline__ static void put(const Raw<kDType, kVec>& raw, unsigned shared, int r, int c) {
    if constexpr (kVectorCopy && kTaps == 1) {
      ptx::store_shared<kVec * kBytes<kDType>>(shared + Layout::byte(r, c), raw.w);
    } else {
      float v[kVec];
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        v[i] = to_float<kDType>(raw.get(i));
        if constexpr (kRoundTo != kDType && kSharedDType == DType::kF32)
          v[i] = to_float<kRoundTo>(from_float<kRoundTo>(v[i]));
      }
      if constexpr (Layout::kVectors && kTaps == 1) {
        Raw<kSharedDType, kVec> out;
        out.from_floats(v);
        ptx::store_shared<kVec * kBytes<kSharedDType>>(shared + Layout::byte(r, c), out.w);
      } else {
#pragma unroll
        for (int i = 0; i < kVec; ++i) {
          Raw<kSharedDType, 1> out;
          out.clear();
          out.set(0, from_float<kSharedDType>(v[i]));
          ptx::store_shared<kBytes<kSharedDType>>(shared + place_of(r, c + i), out.w);
        }
      }
    }
  }

  Operand operand_;
  int mn_, row_, column_;
  const Element* first_;
  Strided strided_[kKeepsStrided ? kPassR : 1];
  Contiguous contiguous_[Operand::kContiguousIsK ? 1 : kPassC];
  Raw<kDType, kVec> next_[kCut ? kPasses : 1];
  Raw<kDType, kVec> raw_[kAsync ? 1 : kBatched ? kBatch : kPasses];
};

}  // namespace trigen
