// Tensor maps as data: what a launch reads and writes by bulk tensor copies (TMA, sm_90 and later). A family
// says which; the runtime makes them anew for every run, from the call's pointers and strides.
#pragma once

#include <cstdint>

#include "generator/problem.h"

namespace trigen {

// Whose memory: a field of Params.
enum class MapSource : int { kX, kY, kPre, kGate, kResidual, kWeights, kWorkspace };
enum class MapElement : int { kF16, kBF16, kF32, kTF32 };  // kTF32: f32 that loads round to tf32

struct TensorMapSpec {
  MapSource source = MapSource::kX;
  MapElement element = MapElement::kF16;
  int64_t extents[4] = {1, 1, 1, 1};  // elements, innermost axis first
  // Bytes from element to element of axes 1 to 3: what a launch wrote into the workspace. All zero: as the
  // call says, (row, head, batch) of activations, (row, -, head) of W.
  int64_t strides[3] = {0, 0, 0};
  int columns = 64, rows = 64;  // of a box, along the two innermost axes
  int batches = 1;              // of a box, along the outermost axis
  bool memory = false;          // of matrices anywhere: the two outer axes are those of templates/matrices.h
  int swizzle_bytes = 128;      // also a box's row
  // Of activations whose heads may begin inside a piece of 16 bytes: as HeadPlaces says (templates/persistent/heads.h). Nothing
  // looks at the map of rows that it has no place for.
  bool heads = false;
};

int64_t element_size(MapElement element);  // bytes
MapElement map_element(DType dtype);

// x, y and what has their shape: (d, t, h, b), or (t, d, h, b) with contiguous tokens. Boxes of 64 rows of
// 128 bytes.
TensorMapSpec activation_map(const Problem& problem, MapSource source, bool contiguous_tokens = false);
// W or dW as it lies: (s, t, 1, h).
TensorMapSpec weights_map(const Problem& problem);
// The same where heads may begin inside a piece of 16 bytes.
TensorMapSpec heads_map(const Problem& problem, MapSource source);
// Loads round f32 to tf32.
TensorMapSpec rounded(TensorMapSpec map);
// Boxes of `columns` elements, swizzled as so many bytes (32, 64 or 128) are.
TensorMapSpec with_columns(TensorMapSpec map, int columns);
// Boxes of `rows` rows, of so many batches.
TensorMapSpec with_rows(TensorMapSpec map, int rows, int batches = 1);

}  // namespace trigen
