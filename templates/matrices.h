// Tensor maps of all memory: sizes that host and kernel agree on. Plain C++, like config.h.
//
// A map names one base. Where matrices lie anywhere its base is at the beginning of memory and its two outer axes are the
// address, in pieces of 16 bytes: a map's strides are multiples of 16 below 2^40 bytes, its extents up to 2^32 (CUDA Driver API,
// cuTensorMapEncodeTiled), coordinates are 32 bits and signed. So one map, made as all others are, serves any number of pointers;
// bounds of rows and columns are those of a matrix.
#pragma once

#include "config.h"

namespace trigen {

struct MemoryMap {
  // Enumerators: NVRTC 12.9 would put constants into every kernel's PTX.
  enum : int { kLowBits = 31, kHighBits = 13 };
  enum : unsigned long long {
    kBase = 16,  // not null, which is no address of a map
    kLowStride = 16,
    kHighStride = 16ull << 31  // bytes, all three
  };
  static_assert(kHighStride == kLowStride << kLowBits, "the two axes are one address");

  TRIGEN_HOST_DEVICE static constexpr int low(unsigned long long address) {
    return static_cast<int>((address - kBase) / kLowStride & ((1ull << kLowBits) - 1));
  }
  TRIGEN_HOST_DEVICE static constexpr int high(unsigned long long address) {
    return static_cast<int>((address - kBase) / kHighStride);
  }
};

}  // namespace trigen
