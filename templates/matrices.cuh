// Where the matrices of a batch lie: a stride apart, or, of a problem with pointers (Shape::pointers), each where a pointer of an
// array says. Kernels of other problems have the stride alone.
#pragma once

#include "matrices.h"
#include "params.h"
#include "types.cuh"

namespace trigen {

// Of tensors given as arrays of pointers, whose stride is below 0.
template <Kernel C>
__device__ __forceinline__ bool is_array(long long stride) {
  return C.shape.pointers && stride < 0;
}
// The element at matrix_origin + matrix_offset is the matrix's first one. (References: where there is no array PTX is as it was with data and head *
// stride written out, order of loads included.)
template <Kernel C>
__device__ __forceinline__ void* matrix_origin(void* data, const long long& stride, int head) {
  return is_array<C>(stride) ? static_cast<void* const*>(data)[head] : data;
}
template <Kernel C>
__device__ __forceinline__ long long matrix_offset(const long long& stride, int head) {
  return is_array<C>(stride) ? 0 : head * stride;
}

// A matrix in its tensor map: the two outer coordinates, head and batch of activations, 0 and head of D. Of a problem with
// pointers the maps are of all memory (matrices.h), and the coordinates say where the matrix begins.
struct MappedMatrix {
  int c2, c3;
};
template <Kernel C, DType kType>
__device__ __forceinline__ MappedMatrix mapped_matrix(void* data, long long stride, int head) {
  const auto address = reinterpret_cast<unsigned long long>(
      static_cast<Storage<kType>*>(matrix_origin<C>(data, stride, head)) + matrix_offset<C>(stride, head));
  return {MemoryMap::low(address), MemoryMap::high(address)};
}
template <Kernel C>
__device__ __forceinline__ MappedMatrix mapped(const Activations& t, int head) {
  if constexpr (C.shape.pointers)
    return mapped_matrix<C, C.shape.dtype>(t.data, t.head, head);
  else
    return {head, 0};
}
template <Kernel C>
__device__ __forceinline__ MappedMatrix mapped_output(const Params& p, int head) {
  if constexpr (C.shape.pointers)
    return mapped_matrix<C, C.shape.wdtype>(p.w, p.w_head, head);
  else
    return {0, head};
}

}  // namespace trigen
