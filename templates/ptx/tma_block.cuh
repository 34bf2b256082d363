// tma.cuh's load into the asking block's own shared memory. PTX ISA section 9.7.9.27 (cp.async.bulk.tensor with
// .shared::cta, PTX ISA 8.6). The same copy with .shared::cluster is a call of the system's code on sm_120
// (ptxas 12.9 and 13.0), for whose sake setmaxnreg is ignored.
#pragma once

#include "ptx/tma.cuh"

namespace trigen::ptx {

__device__ __forceinline__ void tma_load_block(unsigned shared, const TensorMap& map, unsigned barrier,
                                               int c0, int c1, int c2, int c3) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cta.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5, "
      "%6}], [%2];" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(c0), "r"(c1), "r"(c2), "r"(c3)
      : "memory");
}

}  // namespace trigen::ptx
