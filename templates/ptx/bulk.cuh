// Bulk copies of contiguous bytes from global to shared memory, sm_90 and later. PTX ISA section 9.7.9.27
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

}  // namespace trigen::ptx
