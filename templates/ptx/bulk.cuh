// Bulk copies of contiguous bytes between global and shared memory, sm_90 and later. PTX ISA section 9.7.9.27
// (cp.async.bulk). Addresses and sizes are multiples of 16 bytes.
#pragma once

namespace trigen::ptx {

// `bytes` bytes that complete on `barrier`.
__device__ __forceinline__ void bulk_load(unsigned shared, const void* from, unsigned bytes,
                                          unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

// The other way; belongs to the thread's current bulk group (tma.cuh).
__device__ __forceinline__ void bulk_store(void* to, unsigned shared, unsigned bytes) {
  asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(shared),
               "r"(bytes)
               : "memory");
}

}  // namespace trigen::ptx
