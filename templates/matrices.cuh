// Where the matrices of a batch lie: a stride apart, or, of a problem with pointers (Shape::pointers), each tensor's where a pointer
// of an array says, one for each head. Kernels of other problems know nothing of it.
#pragma once

#include "matrices.h"
#include "params.h"
#include "ptx/memory.cuh"
#include "types.cuh"

namespace trigen {

// A head's matrix. A stride below 0 is of an array.
template <DType kType>
__device__ __forceinline__ void* first_of(void* data, long long stride, int head) {
  if (stride < 0) return static_cast<void* const*>(data)[head];
  return static_cast<Storage<kType>*>(data) + head * stride;
}

// Parameters of a head's matrices: those of the launch, or with the tensors where this head has them, whose strides of heads are 0
// then. Reads the arrays: behind griddepcontrol.wait, and best while there is something else to do.
template <Kernel C>
__device__ __forceinline__ decltype(auto) at_head(const Params& p, int head) {
  if constexpr (C.shape.pointers) {
    constexpr DType kType = C.shape.dtype, kW = C.shape.wdtype;
    Params own = p;
    own.x.data = first_of<kType>(p.x.data, p.x.head, head);
    own.y.data = first_of<kType>(p.y.data, p.y.head, head);
    own.w = first_of<kW>(p.w, p.w_head, head);
    if constexpr (C.shape.residual) own.residual.data = first_of<kW>(p.residual.data, p.residual.head, head);
    own.x.head = own.y.head = own.residual.head = own.w_head = 0;
    return own;
  } else {
    return (p);  // itself
  }
}

// The pointers of `heads` heads into the L2, by a warp: no value is read, so this may come ahead of griddepcontrol.wait.
template <Kernel C>
__device__ __forceinline__ void prefetch_pointers(const Params& p, int first, int heads, int lane) {
  constexpr int kLine = 128 / sizeof(void*);
  const auto fetch = [&](const void* data, long long stride) {
    if (stride >= 0) return;
    for (int i = kLine * lane; i < heads; i += 32 * kLine)
      ptx::prefetch_l2(static_cast<void* const*>(data) + first + i);
  };
  if constexpr (C.shape.pointers) {
    fetch(p.x.data, p.x.head);
    fetch(p.y.data, p.y.head);
    fetch(p.w, p.w_head);
    if constexpr (C.shape.residual) fetch(p.residual.data, p.residual.head);
  }
}

// Those of the matrix that a block writes, and of C's, into the L1, while it is multiplied: registers are dear there. Behind
// griddepcontrol.wait.
template <Kernel C>
__device__ __forceinline__ void prefetch_output(const Params& p, int head) {
  if (p.w_head < 0) ptx::prefetch_l1(static_cast<void* const*>(p.w) + head);
  if (C.shape.residual && p.residual.head < 0)
    ptx::prefetch_l1(static_cast<void* const*>(p.residual.data) + head);
}

// A matrix in its tensor map: the two outer coordinates, head and batch of activations, 0 and head of D. Of a problem with
// pointers the maps are of all memory (matrices.h), and the coordinates say where the matrix begins.
struct MappedMatrix {
  int c2, c3;
};
__device__ __forceinline__ MappedMatrix in_memory(const void* data, const void* matrix) {
  const unsigned long long distance = reinterpret_cast<unsigned long long>(matrix) -
                                      MemoryMap::base(reinterpret_cast<unsigned long long>(data));
  // As any access to a misaligned address ends: coordinates would leave these bits out.
  if (distance % MemoryMap::kPiece != 0) __trap();
  return {MemoryMap::low(distance), MemoryMap::high(distance)};
}
template <Kernel C>
__device__ __forceinline__ MappedMatrix mapped(const Activations& t, int head) {
  if constexpr (C.shape.pointers)
    return in_memory(t.data, first_of<C.shape.dtype>(t.data, t.head, head));
  else
    return {head, 0};
}

}  // namespace trigen
