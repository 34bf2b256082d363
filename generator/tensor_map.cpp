#include "generator/tensor_map.h"

namespace trigen {

int64_t element_size(MapElement element) {
  return element == MapElement::kF16 || element == MapElement::kBF16 ? 2 : 4;
}

MapElement map_element(DType dtype) {
  return dtype == DType::kF32    ? MapElement::kF32
         : dtype == DType::kBF16 ? MapElement::kBF16
                                 : MapElement::kF16;
}

namespace {

TensorMapSpec map_of(MapSource source, DType dtype) {
  TensorMapSpec map;
  map.source = source;
  map.element = map_element(dtype);
  map.columns = static_cast<int>(map.swizzle_bytes / element_size(map.element));
  return map;
}

}  // namespace

TensorMapSpec activation_map(const Problem& p, MapSource source, bool contiguous_tokens) {
  TensorMapSpec map = map_of(source, p.dtype);
  map.extents[0] = contiguous_tokens ? p.T : p.D;
  map.extents[1] = contiguous_tokens ? p.D : p.T;
  map.extents[2] = p.H;
  map.extents[3] = p.B;
  map.memory = p.pointers != 0;
  return map;
}

TensorMapSpec heads_map(const Problem& p, MapSource source) {
  TensorMapSpec map = activation_map(p, source);
  map.heads = true;
  return map;
}

TensorMapSpec weights_map(const Problem& p) {
  TensorMapSpec map = map_of(MapSource::kWeights, p.wdtype);
  map.extents[0] = map.extents[1] = p.T;
  map.extents[3] = p.H;
  map.memory = p.pointers != 0;
  return map;
}

TensorMapSpec rounded(TensorMapSpec map) {
  map.element = MapElement::kTF32;
  return map;
}

TensorMapSpec with_columns(TensorMapSpec map, int columns) {
  map.columns = columns;
  map.swizzle_bytes = static_cast<int>(columns * element_size(map.element));
  return map;
}

TensorMapSpec with_rows(TensorMapSpec map, int rows, int batches) {
  map.rows = rows;
  map.batches = batches;
  return map;
}

}  // namespace trigen
