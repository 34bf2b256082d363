// Tensor maps for the bulk tensor copies of sm_90 and later, made from a call's pointers, sizes and strides.
#pragma once

#include "generator/tensor_map.h"
#include "runtime/driver.h"
#include "templates/params.h"

namespace trigen {

// A map of what `spec` says, for this call's pointers and strides: 4 axes, zeros outside. Host work only: no
// context, no allocation, no lock. Pointers and strides must be multiples of 16 bytes.
cuda::CUresult encode_tensor_map(const DriverApi& api, const TensorMapSpec& spec, const Params& params,
                                 cuda::CUtensorMap* map);

}  // namespace trigen
