// Tensor maps for the bulk tensor copies of sm_90 and later, made from a call's pointers, sizes and strides.
#pragma once

#include "generator/family.h"
#include "runtime/driver.h"
#include "templates/params.h"

namespace trigen {

// 4 axes, boxes as MappedTensor says, 128-byte swizzle, zeros outside. Host work only: no context, no
// allocation, no lock. Pointers and strides must be multiples of 16 bytes. `dtype`: of x and y, `wdtype`: of
// W. `layout`: of x and y as they lie in memory; with bdt their first two axes are (t, d).
cuda::CUresult encode_tensor_map(const DriverApi& api, MappedTensor tensor, DType dtype, DType wdtype,
                                 Layout layout, const Params& params, cuda::CUtensorMap* map);

}  // namespace trigen
