// Copies from global to shared memory that bypass the registers, sm_80 and later. PTX ISA section 9.7.9.25.3
// (cp.async).
#pragma once

namespace trigen::ptx {

// Reads the first `valid` bytes of kSize and fills the rest with zeros.
template <int kSize>
__device__ __forceinline__ void cp_async(unsigned shared, const void* global, int valid) {
  static_assert(kSize == 4 || kSize == 8 || kSize == 16, "cp.async copies 4, 8 or 16 bytes");
  if constexpr (kSize == 16) {
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(global),
                 "r"(valid)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(shared), "l"(global), "n"(kSize),
                 "r"(valid)
                 : "memory");
  }
}
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most `kPending` of this thread's latest groups are under way.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}
// Arrives at `barrier`, as one of the arrivals that it waits for, once all of this thread's copies so far have landed (PTX
// ISA, cp.async.mbarrier.arrive).
__device__ __forceinline__ void cp_async_arrive(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

}  // namespace trigen::ptx
