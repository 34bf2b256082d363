#include "runtime/tensor_map.h"

#include <bit>
#include <cstdint>

#include "templates/matrices.h"
#include "templates/persistent/heads.h"

namespace trigen {

using namespace cuda;

namespace {

// The memory of a tensor's elements; strides in bytes.
struct Memory {
  void* data;
  long long strides[3];
};

Memory activation_memory(const Activations& a, long long size) {
  return {a.data, {a.row * size, a.head * size, a.batch * size}};
}

// What has heads.
const Activations& activations_of(MapSource source, const Params& params) {
  return source == MapSource::kX ? params.x : params.y;
}

Memory memory_of(const TensorMapSpec& spec, const Params& params) {
  const long long size = element_size(spec.element);
  switch (spec.source) {
    case MapSource::kX:
      return activation_memory(params.x, size);
    case MapSource::kY:
      return activation_memory(params.y, size);
    case MapSource::kPre:
      return activation_memory(params.pre, size);
    case MapSource::kGate:
      return activation_memory(params.gate, size);
    case MapSource::kResidual:
      return activation_memory(params.residual, size);
    case MapSource::kWeights:
      return {params.w, {params.w_row * size, 0, params.w_head * size}};
    case MapSource::kWorkspace:
      break;
  }
  return {params.workspace, {spec.strides[0], spec.strides[1], spec.strides[2]}};
}

CUtensorMapDataType data_type(MapElement element) {
  switch (element) {
    case MapElement::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case MapElement::kBF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case MapElement::kF32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case MapElement::kTF32:
      break;
  }
  return CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
}

CUtensorMapSwizzle swizzle(int bytes) {
  switch (bytes) {
    case 32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    default:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
  }
}

// What the L2 fetches of a line for a box that touches a part of it. The rest belongs to a neighbouring head or row, whose box comes
// later: with 128 bytes it is there by then, if the L2 keeps the tensor so long, else it was read in vain. 256 bytes, two lines, were
// 2 % faster at most. One H100, driver 580.159.04, 2026-11-28, by 64, 128, 256 bytes: forward 64,2048,16x48 (201 MB) 765, 954, 1065 us; 32,512,8x80 (42
// MB) 25.5, 24.9, 27.9; docs/experiments/wgmma_sm90.md.
CUtensorMapL2promotion promotion(const TensorMapSpec& spec) {
  constexpr long long kHeldBytes = 50ll << 20;  // the L2 of an H100 and an H200
  long long bytes = element_size(spec.element);
  for (const int64_t extent : spec.extents) bytes *= extent;
  return bytes > kHeldBytes ? CU_TENSOR_MAP_L2_PROMOTION_L2_64B : CU_TENSOR_MAP_L2_PROMOTION_L2_128B;
}

}  // namespace

CUresult encode_tensor_map(const DriverApi& api, const TensorMapSpec& spec, const Params& params,
                           CUtensorMap* map) {
  const Memory memory = memory_of(spec, params);
  unsigned long long extents[4], strides[3];
  for (int i = 0; i < 4; ++i) extents[i] = static_cast<unsigned long long>(spec.extents[i]);
  // The stride of an axis with one element is never used, but must be legal: that of the rows.
  for (int i = 0; i < 3; ++i)
    strides[i] = static_cast<unsigned long long>(memory.strides[i > 0 && spec.extents[i + 1] == 1 ? 0 : i]);
  void* base = memory.data;
  if (spec.heads) {
    const persistent::HeadPlaces places(activations_of(spec.source, params), params.H, params.D);
    base = std::bit_cast<void*>(std::bit_cast<uintptr_t>(base) / 16 * 16);
    if (places.alike) extents[0] = static_cast<unsigned long long>(places.columns(params.H, params.D));
    if (places.side_by_side) extents[2] = 1, strides[1] = strides[0];
    if (!places.alike)  // any map that there may be
      for (unsigned long long& stride : strides) stride = 16 * ((extents[0] * 2 + 15) / 16);
  }
  if (spec.memory) {
    base = std::bit_cast<void*>(uintptr_t{MemoryMap::base(std::bit_cast<uintptr_t>(base))});
    extents[2] = 1ull << MemoryMap::kLowBits, strides[1] = MemoryMap::kPiece;
    extents[3] = 1ull << MemoryMap::kHighBits, strides[2] = MemoryMap::kHighStride;
  }
  const unsigned box[4] = {static_cast<unsigned>(spec.columns), static_cast<unsigned>(spec.rows), 1,
                           static_cast<unsigned>(spec.batches)},
                 steps[4] = {1, 1, 1, 1};
  return api.cuTensorMapEncodeTiled(map, data_type(spec.element), 4, base, extents, strides, box, steps,
                                    CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle(spec.swizzle_bytes),
                                    promotion(spec), CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace trigen
