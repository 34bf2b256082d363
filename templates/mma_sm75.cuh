// Family mma_sm75: f16 by mma.m16n8k8 with ldmatrix; tiles pass through registers on their way to shared
// memory (Turing has no cp.async), two stages.
#pragma once

#include "gemm_staged.cuh"
#include "mma_ldmatrix.cuh"

namespace trigen::mma_sm75 {

template <Kernel C>
inline constexpr int kThreads = kTileThreads<C>;

template <Kernel C>
class Engine : public LdmatrixEngine<C, false> {
  static constexpr Config c = C.config;

 public:
  static constexpr bool kSkips = !makes_weights(C.shape.op);
  static constexpr int kWarpRows = c.tile_m / c.warps_m;
  __device__ __forceinline__ explicit Engine(int thread)
      : LdmatrixEngine<C, false>(thread), first_row_(thread / 32 / c.warps_n * kWarpRows) {}
  __device__ __forceinline__ int first_row() const { return first_row_; }

 private:
  int first_row_;
};

template <Kernel C>
__device__ __forceinline__ void run(const Params& p) {
  constexpr Config c = C.config;
  if constexpr (StagedShape<OperandA<C>, c.tile_m, c.tile_k, kThreads<C>>::kServed &&
                StagedShape<OperandB<C>, c.tile_n, c.tile_k, kThreads<C>>::kServed)
    gemm_staged<C, Engine<C>>(p);
  else
    gemm<C, LdmatrixEngine<C, false>>(p);
}
template <Kernel C>
__device__ __forceinline__ void reduce(const Params& p) {
  reduce_splits<C>(p);
}

}  // namespace trigen::mma_sm75
