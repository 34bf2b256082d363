#include "runtime/tensor_map.h"

#include "templates/pack.h"

namespace trigen {

using namespace cuda;

namespace {

CUresult encode_packed(const DriverApi& api, DType dtype, const Params& params, CUtensorMap* map) {
  const auto T = static_cast<unsigned long long>(packing::pitch(params.T)),
             K = static_cast<unsigned long long>(params.K);
  const unsigned long long extents[4] = {T, T, K, static_cast<unsigned long long>(params.H)};
  const unsigned long long strides[3] = {2 * T, 2 * T * T, 2 * T * T * K};
  const unsigned box[4] = {64, 64, 1, 1}, steps[4] = {1, 1, 1, 1};
  return api.cuTensorMapEncodeTiled(
      map, dtype == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 4,
      params.workspace, extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

// What a MappedTensor says.
struct Mapping {
  bool weights, packed, rounded, x;
  unsigned rows;  // of a box
};

const Activations& activations_of(MappedTensor tensor, bool x, const Params& params) {
  if (tensor == MappedTensor::kPre) return params.pre;
  if (tensor == MappedTensor::kGate) return params.gate;
  if (tensor == MappedTensor::kResidual) return params.residual;
  return x ? params.x : params.y;
}

Mapping mapping_of(MappedTensor tensor) {
  switch (tensor) {
    case MappedTensor::kX:
      return {.weights = false, .packed = false, .rounded = false, .x = true, .rows = 64};
    case MappedTensor::kY:
    case MappedTensor::kPre:
    case MappedTensor::kGate:
    case MappedTensor::kResidual:
      return {.weights = false, .packed = false, .rounded = false, .x = false, .rows = 64};
    case MappedTensor::kPackedRoundedW:
      return {.weights = true, .packed = true, .rounded = false, .x = false, .rows = 64};
    case MappedTensor::kRoundedX:
      return {.weights = false, .packed = false, .rounded = true, .x = true, .rows = 64};
    case MappedTensor::kRoundedY:
      return {.weights = false, .packed = false, .rounded = true, .x = false, .rows = 64};
    case MappedTensor::kRoundedW:
      return {.weights = true, .packed = false, .rounded = true, .x = false, .rows = 64};
    case MappedTensor::kRoundedStepX:
      return {.weights = false, .packed = false, .rounded = true, .x = true, .rows = 32};
    case MappedTensor::kRoundedStepY:
      return {.weights = false, .packed = false, .rounded = true, .x = false, .rows = 32};
    case MappedTensor::kPackedW:  // encode_packed
    case MappedTensor::kW:
      break;
  }
  return {.weights = true, .packed = false, .rounded = false, .x = false, .rows = 64};
}

}  // namespace

CUresult encode_tensor_map(const DriverApi& api, MappedTensor tensor, DType dtype, DType wdtype,
                           Layout layout, const Params& params, CUtensorMap* map) {
  if (tensor == MappedTensor::kPackedW) return encode_packed(api, dtype, params, map);
  const Mapping m = mapping_of(tensor);
  const Activations& a = activations_of(tensor, m.x, params);
  const auto T = static_cast<unsigned long long>(params.T), H = static_cast<unsigned long long>(params.H);
  const auto D = static_cast<unsigned long long>(params.D);
  const bool tokens = layout == Layout::kBDT && !m.weights;  // contiguous
  const unsigned long long extents[4] = {m.weights || tokens ? T : D, tokens ? D : T, m.weights ? 1 : H,
                                         m.weights ? H : static_cast<unsigned long long>(params.B)};
  const DType type = m.weights ? wdtype : dtype;
  const bool wide = type == DType::kF32;
  const auto bytes = [&](long long elements) {
    return static_cast<unsigned long long>(elements) * (wide ? 4 : 2);
  };
  const long long pitch = m.packed ? packed_rounded_pitch(params.T) : params.w_row;
  const long long w_head = m.packed ? pitch * params.T : params.w_head;
  // The stride of an axis with one element is never used, but must be legal: that of the axis before it.
  const unsigned long long row = bytes(m.weights ? pitch : a.row);
  const unsigned long long third = !m.weights && H > 1 ? bytes(a.head) : row;
  const unsigned long long fourth = extents[3] > 1 ? bytes(m.weights ? w_head : a.batch) : row;
  const unsigned long long strides[3] = {row, third, fourth};
  const unsigned box[4] = {wide ? 32u : 64u, m.rows, 1, 1}, steps[4] = {1, 1, 1, 1};
  return api.cuTensorMapEncodeTiled(map,
                                    m.rounded              ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32
                                    : wide                 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32
                                    : type == DType::kBF16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                           : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                                    4,
                                    m.packed    ? params.workspace
                                    : m.weights ? params.w
                                                : a.data,
                                    extents, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                    CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                    CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
}

}  // namespace trigen
