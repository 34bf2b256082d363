// Bulk tensor copies between global and shared memory, sm_90 and later. PTX ISA section 9.7.9.27
// (cp.async.bulk.tensor). The innermost coordinate times the element size must be a multiple of 16 bytes:
// others end in an illegal instruction (H200, driver 580, with and without swizzle), although the tensor map
// documentation does not say so.
#pragma once

namespace trigen {

// CUtensorMap: 128 opaque bytes that cuTensorMapEncodeTiled fills; a kernel takes it as `const
// __grid_constant__`.
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

}  // namespace trigen

namespace trigen::ptx {

__device__ __forceinline__ void tma_prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Prefetches one box into the L2. No value reaches the block, so this may come ahead of griddepcontrol.wait:
// later writes of the launch before land in the L2, too.
__device__ __forceinline__ void tma_prefetch_box(const TensorMap& map, int c0, int c1, int c2, int c3) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];" ::"l"(&map), "r"(c0),
               "r"(c1), "r"(c2), "r"(c3)
               : "memory");
}

// Loads one box whose first element is (c0, c1, c2, c3), innermost coordinate first, and completes on
// `barrier`. Elements outside the tensor arrive as zeros and count as bytes all the same; coordinates may be
// negative.
__device__ __forceinline__ void tma_load(unsigned shared, const TensorMap& map, unsigned barrier, int c0,
                                         int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2];" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// The same box into this block; where `kept`, the L2 gives its lines up behind others (PTX ISA section 9.7.9.18, createpolicy).
__device__ __forceinline__ void tma_load(unsigned shared, const TensorMap& map, unsigned barrier, int c0,
                                         int c1, int c2, int c3, bool kept) {
  unsigned long long last, normal;
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1, "
      "{%3, "
      "%4, %5, %6}], [%2], %7;" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3), "l"(kept ? last : normal)
      : "memory");
}

// The same box into every block of the cluster whose bit is set, at the same shared offset, each with its own
// barrier.
__device__ __forceinline__ void tma_load_multicast(unsigned shared, const TensorMap& map, unsigned barrier,
                                                   unsigned short blocks, int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%4, %5, %6, %7}], [%2], %3;" ::"r"(shared),
      "l"(&map), "r"(barrier), "h"(blocks), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// Stores one box; elements outside the tensor are dropped. Belongs to the thread's current bulk group.
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned shared, int c0, int c1, int c2,
                                          int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(&map),
      "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

// The same box, whose lines the L2 gives up before others, as others, or after them (PTX ISA section 9.7.9.18, createpolicy).
enum class Evicted { kFirst, kNormal, kLast };
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned shared, int c0, int c1, int c2,
                                          int c3, Evicted evicted) {
  unsigned long long first, normal, last;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm volatile("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  asm volatile("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(last));
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3, %4, %5}], [%1], "
      "%6;" ::"l"(&map),
      "r"(shared), "r"(c0), "r"(c1), "r"(c2), "r"(c3),
      "l"(evicted == Evicted::kFirst  ? first
          : evicted == Evicted::kLast ? last
                                      : normal)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's groups still read their shared memory.
template <int kPending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(kPending) : "memory");
}

// Waits until this thread's groups have written global memory.
__device__ __forceinline__ void tma_store_wait() { asm volatile("cp.async.bulk.wait_group 0;" ::: "memory"); }

// Orders this thread's ordinary writes to shared memory before later reads by TMA and the tensor
// cores.
__device__ __forceinline__ void fence_async_shared() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace trigen::ptx
