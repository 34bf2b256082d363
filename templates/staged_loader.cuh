// Moves one operand's tiles through registers, vector by vector, so that the main loop can put single loads
// and stores between its products (gemm_staged.cuh). loader.cuh serves what this one does not: taps, shifted
// features, single 16-bit elements, batches that end inside a tile, a W that is no matrix.
//
// Of a tile that lies wholly inside the triangle and the matrix (kFull) a vector costs its address and the
// load. Elsewhere elements that do not take part are zero and not read.
#pragma once

#include "operand.cuh"
#include "ptx/memory.cuh"

namespace trigen {

// Tile geometry, and whether StagedLoader serves it.
template <class Operand, int kMn, int kDepth, int kThreads>
struct StagedShape {
  static constexpr int kContig = Operand::kContiguousIsK ? kDepth : kMn;
  static constexpr int kStrides = Operand::kContiguousIsK ? kMn : kDepth;
  static constexpr int kChunks = kContig / Operand::kVec;
  static constexpr int kRowsPerPass = kChunks > kThreads ? 1 : kThreads / kChunks;
  static constexpr int kPasses = kStrides / kRowsPerPass;
  static constexpr bool kServed = Operand::kMatrix && Operand::kLinear && !Operand::kShifted &&
                                  Operand::kTapsTogether == 1 &&
                                  Operand::kVec * kBytes<Operand::kDType> >= 4 && kChunks <= kThreads &&
                                  kStrides % kRowsPerPass == 0 && kPasses <= 16;
};

template <class Operand, DType kSharedDType, int kMn, int kDepth, int kThreads, class Layout>
class StagedLoader {
  using S = StagedShape<Operand, kMn, kDepth, kThreads>;
  static constexpr DType kDType = Operand::kDType;
  using Element = Storage<kDType>;
  static constexpr int kVec = Operand::kVec;
  static_assert(S::kServed, "loader.cuh takes what this loader does not");
  static constexpr bool kPermutes = S::kRowsPerPass % 8 == 0 && requires { Layout::write_row(0); };

 public:
  static constexpr int kPasses = S::kPasses;

  __device__ __forceinline__ StagedLoader(const Params& p, const Sizes& z, int head, Range depth, int mn,
                                          int thread)
      : operand_(p, z, head, depth), mn_(mn), column_(thread % S::kChunks * kVec) {
    row_ = thread / S::kChunks;
    if constexpr (kPermutes) row_ = Layout::write_row(row_);
    place_ = Layout::byte(row_, column_);
    if constexpr (Operand::kContiguousIsK)
      base_ = operand_.base + operand_.strided(mn + row_).offset;
    else
      base_ = operand_.base + operand_.contiguous(mn + column_).offset;
    step_ = operand_.pitch() * S::kRowsPerPass;
  }

  // This thread's vectors of the tile at k: the first one, and what its passes have in common to tell what takes
  // part.
  struct Origin {
    const Element* from;
    int strided;     // of the first vector
    int lead;        // weights: how far its first element lies inside the triangle
    bool contained;  // along the contiguous axis
  };
  __device__ __forceinline__ Origin origin(int k) const {
    const int strided = (Operand::kContiguousIsK ? mn_ : k) + row_;
    const int index = (Operand::kContiguousIsK ? k : mn_) + column_;
    Origin o{base_, strided, 0, false};
    if constexpr (Operand::kContiguousIsK)
      o.from += operand_.contiguous(index).offset;
    else
      o.from += operand_.strided(strided).offset;
    if constexpr (Operand::kPartial) {
      o.lead = strided - index + max(-operand_.z.T, min(operand_.z.diag, operand_.z.T));
      o.contained = index < operand_.z.T;
    } else {
      const int low = Operand::kContiguousIsK && Operand::kHasLow ? operand_.depth.begin - (kVec - 1) : 0;
      o.contained =
          index >= low && index < (Operand::kContiguousIsK ? operand_.depth.end : operand_.extent());
    }
    return o;
  }
  template <bool kFull>
  __device__ __forceinline__ void load(int pass, const Origin& o) {
    const Element* const from = o.from + pass * step_;
    if constexpr (kFull) {
      ptx::load_global_nc<kVec * kBytes<kDType>>(raw_[pass].w, from);
    } else {
      raw_[pass].clear();
      if (takes_part(pass, o)) ptx::load_global_nc<kVec * kBytes<kDType>>(raw_[pass].w, from);
    }
  }
  template <bool kFull>
  __device__ __forceinline__ void store(int pass, unsigned shared, const Origin& o) {
    if constexpr (!kFull && Operand::kPartial && kVec > 1) {
      const int lead = o.lead + pass * S::kRowsPerPass;
      if (Operand::kHasLow ? lead > 0 && lead < kVec : lead + 1 > 0 && lead + 1 < kVec)
        raw_[pass].keep(Operand::kHasLow ? lead : 0, Operand::kHasLow ? kVec : lead + 1);
    }
    // Both layouts repeat after 8 rows.
    const unsigned to =
        shared + (S::kRowsPerPass % 8 == 0 ? place_ + pass * S::kRowsPerPass * Layout::kPitch
                                           : Layout::byte(row_ + pass * S::kRowsPerPass, column_));
    if constexpr (kDType == kSharedDType) {
      ptx::store_shared<kVec * kBytes<kDType>>(to, raw_[pass].w);
    } else {
      float v[kVec];
#pragma unroll
      for (int i = 0; i < kVec; ++i) v[i] = to_float<kDType>(raw_[pass].get(i));
      Raw<kSharedDType, kVec> out;
      out.from_floats(v);
      ptx::store_shared<kVec * kBytes<kSharedDType>>(to, out.w);
    }
  }

 private:
  // Any element of the vector?
  __device__ __forceinline__ bool takes_part(int pass, const Origin& o) const {
    const int strided = o.strided + pass * S::kRowsPerPass, lead = o.lead + pass * S::kRowsPerPass;
    if constexpr (Operand::kPartial) {
      const bool inside = Operand::kHasLow ? lead < kVec : lead + 1 > 0;
      return o.contained && inside &&
             ((Operand::kContiguousIsK && Operand::kWhole) || strided < operand_.z.T);
    } else if constexpr (Operand::kContiguousIsK) {
      return o.contained && (Operand::kWhole || strided < operand_.extent());
    } else {
      return o.contained && strided < operand_.depth.end &&
             (!Operand::kTokensAreK || strided >= operand_.depth.begin);
    }
  }

  Operand operand_;
  int mn_, row_, column_;
  unsigned place_;
  const Element* base_;
  long long step_;  // elements from pass to pass
  Raw<kDType, kVec> raw_[kPasses];
};

}  // namespace trigen
