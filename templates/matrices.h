// Tensor maps of all memory: sizes that host and kernel agree on. Plain C++, like config.h.
//
// A map names one base. Where matrices lie anywhere its two outer axes are the distance from there, in pieces of 16 bytes, with
// 64 bits that wrap: a map's strides are multiples of 16 below 2^40 bytes, its extents up to 2^32 (CUDA Driver API,
// cuTensorMapEncodeTiled), coordinates are 32 bits and signed. So one map, made as all others are, serves any number of pointers;
// bounds of rows and columns are those of a matrix.
#pragma once

#include "config.h"

namespace trigen {

struct MemoryMap {
  // Enumerators: NVRTC 12.9 would put constants into every kernel's PTX.
  enum : int { kLowBits = 31, kHighBits = 64 - 4 - kLowBits };
  enum : unsigned long long { kPiece = 16, kHighStride = kPiece << kLowBits };  // bytes

  // The base, of a tensor's data: memory of the run, as boxes that lie outside of a matrix are looked up there (H100, driver
  // 580.159.04, 2026-11-28: 16 as the base of all was an illegal address for such boxes alone).
  TRIGEN_HOST_DEVICE static constexpr unsigned long long base(unsigned long long data) {
    return data - data % kPiece;
  }
  TRIGEN_HOST_DEVICE static constexpr int low(unsigned long long distance) {
    return static_cast<int>(distance / kPiece & ((1ull << kLowBits) - 1));
  }
  TRIGEN_HOST_DEVICE static constexpr int high(unsigned long long distance) {
    return static_cast<int>(distance / kHighStride);
  }
};

}  // namespace trigen
