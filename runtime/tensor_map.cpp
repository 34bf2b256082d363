#include "runtime/tensor_map.h"

namespace trigen {

using namespace cuda;

CUresult encode_tensor_map(const DriverApi& api, MappedTensor tensor, DType dtype, DType wdtype,
                           const Params& params, CUtensorMap* map) {
  const bool weights = tensor == MappedTensor::kW;
  const Activations& a = tensor == MappedTensor::kX ? params.x : params.y;
  const auto T = static_cast<unsigned long long>(params.T), H = static_cast<unsigned long long>(params.H);
  const unsigned long long extents[4] = {weights ? T : static_cast<unsigned long long>(params.D), T,
                                         weights ? 1 : H,
                                         weights ? H : static_cast<unsigned long long>(params.B)};
  // The stride of an axis with one element is never used, but must be legal: that of the axis before it.
  const bool wide = weights && wdtype == DType::kF32;
  const auto bytes = [&](long long elements) {
    return static_cast<unsigned long long>(elements) * (wide ? 4 : 2);
  };
  const unsigned long long row = bytes(weights ? params.w_row : a.row);
  const unsigned long long third = !weights && H > 1 ? bytes(a.head) : row;
  const unsigned long long fourth = extents[3] > 1 ? bytes(weights ? params.w_head : a.batch) : row;
  const unsigned long long strides[3] = {row, third, fourth};
  const unsigned box[4] = {wide ? 32u : 64u, 64, 1, 1}, steps[4] = {1, 1, 1, 1};
  return api.cuTensorMapEncodeTiled(
      map,
      wide                                         ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
      : (weights ? wdtype : dtype) == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                   : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      4, weights ? params.w : a.data, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace trigen
