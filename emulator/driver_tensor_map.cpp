// cuTensorMapEncodeTiled with the limits that the driver checks (CUDA Driver API, "Tensor Map Object
// Management").
#include <cstring>

#include "emulator/driver.h"
#include "emulator/tensor_map.h"

namespace trigen::emulator {

namespace {
constexpr uint32_t kMagic = 0x7472676d;
}

using namespace cuda;

void TensorMap::store(CUtensorMap* map) const {
  std::memset(map, 0, sizeof *map);
  unsigned long long* q = map->opaque;
  q[0] = address;
  q[1] = static_cast<uint64_t>(kMagic) << 32 | rank << 24 | element_bytes << 16 |
         static_cast<uint64_t>(type) << 8 | static_cast<uint64_t>(swizzle) << 4 | (nan_fill ? 1 : 0);
  for (int i = 0; i < 5; ++i) {
    q[2 + i] = dims[i];
    q[7 + i] = strides[i];
    q[12 + i / 3] |= static_cast<uint64_t>(box[i]) << (16 * (i % 3));
  }
}

bool TensorMap::load(const void* bytes) {
  unsigned long long q[16];
  std::memcpy(q, bytes, sizeof q);
  if (q[1] >> 32 != kMagic) return false;
  address = q[0];
  rank = q[1] >> 24 & 0xff;
  element_bytes = q[1] >> 16 & 0xff;
  type = static_cast<CUtensorMapDataType>(q[1] >> 8 & 0xff);
  swizzle = static_cast<CUtensorMapSwizzle>(q[1] >> 4 & 0xf);
  nan_fill = (q[1] & 1) != 0;
  for (int i = 0; i < 5; ++i) {
    dims[i] = q[2 + i];
    strides[i] = q[7 + i];
    box[i] = q[12 + i / 3] >> (16 * (i % 3)) & 0xffff;
  }
  return true;
}

uint64_t TensorMap::box_bytes() const {
  uint64_t bytes = element_bytes;
  for (uint32_t i = 0; i < rank; ++i) bytes *= box[i];
  return bytes;
}

namespace {

uint32_t bytes_of(CUtensorMapDataType type) {
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return 4;
  }
}

CUresult refuse(const std::string& text) { return fail(CUDA_ERROR_INVALID_VALUE, "tensor map: " + text); }

}  // namespace
}  // namespace trigen::emulator

using namespace trigen::emulator;

namespace trigen::cuda {

TRIGEN_ENTRY CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, unsigned rank,
                                             void* global_address, const unsigned long long* global_dim,
                                             const unsigned long long* global_strides,
                                             const unsigned* box_dim, const unsigned* element_strides,
                                             CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                             CUtensorMapL2promotion, CUtensorMapFloatOOBfill oob_fill) try {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  if (driver().device(context->device)->model->capability < 90)
    return fail(CUDA_ERROR_NOT_SUPPORTED, "tensor maps need compute capability 9.0");
  if (map == nullptr || reinterpret_cast<uint64_t>(map) % 64 != 0)
    return refuse("the map is not aligned to 64 bytes");
  if (rank < 1 || rank > 5) return refuse("rank " + std::to_string(rank) + ", allowed are 1 to 5");
  if (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32_FTZ || type == CU_TENSOR_MAP_DATA_TYPE_TFLOAT32_FTZ)
    return fail(CUDA_ERROR_NOT_SUPPORTED, "tensor maps that flush subnormals are not supported");
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE)
    return fail(CUDA_ERROR_NOT_SUPPORTED, "interleaved tensor maps are not supported");
  if (reinterpret_cast<uint64_t>(global_address) % 16 != 0)
    return refuse("the global address is not a multiple of 16");
  TensorMap out;
  out.address = reinterpret_cast<uint64_t>(global_address);
  out.rank = rank;
  out.type = type;
  out.element_bytes = bytes_of(type);
  out.swizzle = swizzle;
  out.nan_fill = oob_fill == CU_TENSOR_MAP_FLOAT_OOB_FILL_NAN_REQUEST_ZERO_FMA;
  out.strides[0] = out.element_bytes;
  for (unsigned i = 0; i < rank; ++i) {
    const std::string axis = "dimension " + std::to_string(i);
    if (global_dim[i] == 0 || global_dim[i] > (1ull << 32))
      return refuse(axis + " has " + std::to_string(global_dim[i]) + " elements, allowed are 1 to 2^32");
    if (box_dim[i] == 0 || box_dim[i] > 256)
      return refuse(axis + " has a box of " + std::to_string(box_dim[i]) + ", allowed are 1 to 256");
    if (element_strides[i] != 1)
      return fail(CUDA_ERROR_NOT_SUPPORTED, "element strides other than 1 are not supported");
    out.dims[i] = global_dim[i];
    out.box[i] = box_dim[i];
    if (i > 0) {
      out.strides[i] = global_strides[i - 1];
      if (out.strides[i] % 16 != 0 || out.strides[i] >= (1ull << 40))
        return refuse(axis + " has a stride of " + std::to_string(out.strides[i]) +
                      " B, it must be a multiple of 16 below 2^40");
    }
  }
  const uint64_t inner = static_cast<uint64_t>(out.box[0]) * out.element_bytes;
  if (inner % 16 != 0)
    return refuse("the box's inner dimension is " + std::to_string(inner) + " B, not a multiple of 16");
  const uint64_t span = swizzle == CU_TENSOR_MAP_SWIZZLE_32B    ? 32
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_64B  ? 64
                        : swizzle == CU_TENSOR_MAP_SWIZZLE_128B ? 128
                                                                : 0;
  if (swizzle > CU_TENSOR_MAP_SWIZZLE_128B)
    return fail(CUDA_ERROR_NOT_SUPPORTED, "this swizzle is not supported");
  if (span != 0 && inner > span)
    return refuse("the box's inner dimension is " + std::to_string(inner) + " B, the swizzle allows " +
                  std::to_string(span));
  out.store(map);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuTensorMapReplaceAddress(CUtensorMap* map, void* global_address) try {
  TensorMap changed;
  if (map == nullptr || !changed.load(map)) return fail(CUDA_ERROR_INVALID_VALUE, "not a tensor map");
  if (reinterpret_cast<uint64_t>(global_address) % 16 != 0)
    return fail(CUDA_ERROR_INVALID_VALUE, "the global address is not a multiple of 16");
  changed.address = reinterpret_cast<uint64_t>(global_address);
  changed.store(map);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

}  // namespace trigen::cuda
