// Where the matrices of a batch lie: a stride apart, or, of a problem with pointers (Shape::pointers), each tensor's where a pointer
// of an array says, one for each head. Kernels of other problems know nothing of it.
#pragma once

#include "matrices.h"
#include "params.h"
#include "types.cuh"

namespace trigen {

// Of a tensor that is given as an array, whose stride is below 0.
template <Kernel C>
__device__ __forceinline__ bool is_array(long long stride) {
  return C.shape.pointers && stride < 0;
}
// The element at matrix_origin + matrix_offset is the matrix's first one. (References: without pointers PTX is as with data and head *
// stride written out, order of loads included.)
template <Kernel C>
__device__ __forceinline__ void* matrix_origin(void* data, const long long& stride, int head) {
  return is_array<C>(stride) ? static_cast<void* const*>(data)[head] : data;
}
template <Kernel C>
__device__ __forceinline__ long long matrix_offset(const long long& stride, int head) {
  return is_array<C>(stride) ? 0 : head * stride;
}
template <Kernel C, DType kType>
__device__ __forceinline__ void* first_of(void* data, long long stride, int head) {
  return static_cast<Storage<kType>*>(matrix_origin<C>(data, stride, head)) + matrix_offset<C>(stride, head);
}

// Parameters of a block's one head: those of the launch, or with the tensors where this head has them, whose strides of heads are 0
// then.
template <Kernel C>
__device__ __forceinline__ decltype(auto) at_head(const Params& p, int head) {
  if constexpr (C.shape.pointers) {
    constexpr DType kType = C.shape.dtype, kW = C.shape.wdtype;
    Params own = p;
    own.x.data = first_of<C, kType>(p.x.data, p.x.head, head);
    own.y.data = first_of<C, kType>(p.y.data, p.y.head, head);
    own.w = first_of<C, kW>(p.w, p.w_head, head);
    if constexpr (C.shape.residual)
      own.residual.data = first_of<C, kW>(p.residual.data, p.residual.head, head);
    own.x.head = own.y.head = own.residual.head = own.w_head = 0;
    return own;
  } else {
    return (p);  // itself
  }
}

// A matrix in its tensor map: the two outer coordinates, head and batch of activations, 0 and head of D. Of a problem with
// pointers the maps are of all memory (matrices.h), and the coordinates say where the matrix begins.
struct MappedMatrix {
  int c2, c3;
};
template <Kernel C, DType kType>
__device__ __forceinline__ MappedMatrix in_memory(void* data, long long stride, int head) {
  const unsigned long long distance =
      reinterpret_cast<unsigned long long>(first_of<C, kType>(data, stride, head)) -
      MemoryMap::base(reinterpret_cast<unsigned long long>(data));
  // As any access to a misaligned address ends: coordinates would leave these bits out.
  if (distance % MemoryMap::kPiece != 0) __trap();
  return {MemoryMap::low(distance), MemoryMap::high(distance)};
}
template <Kernel C>
__device__ __forceinline__ MappedMatrix mapped(const Activations& t, int head) {
  if constexpr (C.shape.pointers)
    return in_memory<C, C.shape.dtype>(t.data, t.head, head);
  else
    return {head, 0};
}
template <Kernel C>
__device__ __forceinline__ MappedMatrix mapped_output(const Params& p, int head) {
  if constexpr (C.shape.pointers)
    return in_memory<C, C.shape.wdtype>(p.w, p.w_head, head);
  else
    return {0, head};
}

}  // namespace trigen
