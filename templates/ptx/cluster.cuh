// Thread block clusters, named barriers and register reallocation. PTX ISA sections 9.7.13.1 (barrier),
// 9.7.13.3 (barrier.cluster), 9.7.19.5 (setmaxnreg); sm_90 and later,
// setmaxnreg sm_90a.
#pragma once

namespace trigen::ptx {

__device__ __forceinline__ unsigned cluster_rank() {
  unsigned rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The two halves of cluster_sync, in this order.
__device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
// The first half of a meeting that passes no values on.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// The address of a place in this block's shared memory in block `rank` of its cluster, loads and stores there.
__device__ __forceinline__ unsigned cluster_address(unsigned shared, unsigned rank) {
  unsigned address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}
__device__ __forceinline__ float load_cluster(unsigned address) {
  float v;
  asm volatile("ld.shared::cluster.f32 %0, [%1];" : "=f"(v) : "r"(address) : "memory");
  return v;
}
__device__ __forceinline__ void store_cluster(unsigned address, float v) {
  asm volatile("st.shared::cluster.f32 [%0], %1;" ::"r"(address), "f"(v) : "memory");
}
__device__ __forceinline__ void store_cluster(unsigned address, float v0, float v1, float v2, float v3) {
  asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(v0), "f"(v1), "f"(v2),
               "f"(v3)
               : "memory");
}
__device__ __forceinline__ void store_cluster(unsigned address, const unsigned (&w)[4]) {
  asm volatile("st.shared::cluster.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address), "r"(w[0]), "r"(w[1]),
               "r"(w[2]), "r"(w[3])
               : "memory");
}

// Stores there that land when they do, and then count their bytes on an mbarrier of that block: no fence, which would
// wait for all that this thread has stored anywhere. PTX ISA section 9.7.9.12 (st.async).
__device__ __forceinline__ void store_cluster_async(unsigned address, unsigned barrier, float v) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(address),
               "f"(v), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void store_cluster_async(unsigned address, unsigned barrier, float v0, float v1,
                                                    float v2, float v3) {
  asm volatile(
      "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          address),
      "f"(v0), "f"(v1), "f"(v2), "f"(v3), "r"(barrier)
      : "memory");
}

// Barrier `id` (0 is __syncthreads') for `threads` threads.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Arrives there without a wait, for threads that wait in named_barrier.
__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

// Lets the launch after this one start as soon as every block of this one has come here or ended
// (griddepcontrol).
__device__ __forceinline__ void let_next_launch_start() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}

// Waits until the launches before this one, which it may have been allowed to overlap, have ended and their
// writes are visible (griddepcontrol). Returns at once where the launch was not allowed to.
__device__ __forceinline__ void wait_for_launches_before() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}

template <int kRegisters>
__device__ __forceinline__ void release_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

template <int kRegisters>
__device__ __forceinline__ void claim_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace trigen::ptx
