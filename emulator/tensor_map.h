// A tensor map's fields, and their encoding in the map's 128 opaque bytes on this device.
#pragma once

#include <cstdint>

#include "cuda_abi.h"

namespace trigen::emulator {

struct TensorMap {
  uint64_t address = 0;
  uint32_t rank = 0;
  uint32_t element_bytes = 0;
  cuda::CUtensorMapDataType type = cuda::CU_TENSOR_MAP_DATA_TYPE_UINT8;
  cuda::CUtensorMapSwizzle swizzle = cuda::CU_TENSOR_MAP_SWIZZLE_NONE;
  bool nan_fill = false;
  uint64_t dims[5] = {1, 1, 1, 1, 1};     // elements, innermost first
  uint64_t strides[5] = {0, 0, 0, 0, 0};  // bytes; strides[0] is element_bytes
  uint32_t box[5] = {1, 1, 1, 1, 1};

  void store(cuda::CUtensorMap* map) const;
  /// False when the bytes are no map that this device made.
  bool load(const void* bytes);
  uint64_t box_bytes() const;
};

/// The shared address at which a 16-byte chunk lands: swizzles exchange chunks within rows of 32, 64 or 128
/// bytes. (PTX ISA, "Swizzling modes": the chunk's number is xored with bits 7 and up of the address.)
inline uint32_t swizzle_address(uint32_t address, cuda::CUtensorMapSwizzle swizzle) {
  switch (swizzle) {
    case cuda::CU_TENSOR_MAP_SWIZZLE_32B:
      return address ^ ((address >> 3) & 0x10);
    case cuda::CU_TENSOR_MAP_SWIZZLE_64B:
      return address ^ ((address >> 3) & 0x30);
    case cuda::CU_TENSOR_MAP_SWIZZLE_128B:
      return address ^ ((address >> 3) & 0x70);
    default:
      return address;
  }
}

}  // namespace trigen::emulator
