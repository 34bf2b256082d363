// Four 8x8 matrices of 16-bit elements to shared memory, sm_90 and later. PTX ISA section 9.7.14.5.16
// (stmatrix): lane l gives the address of row l % 8 of matrix l / 8 and holds elements 2 * (l % 4), +1 of row
// l / 4 of each.
#pragma once

namespace trigen::ptx {

__device__ __forceinline__ void stmatrix_x4(unsigned shared, unsigned r0, unsigned r1, unsigned r2,
                                            unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared), "r"(r0),
               "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

// The matrices' transposes: lane l holds elements 2 * (l % 4), +1 of column l / 4.
__device__ __forceinline__ void stmatrix_x4_trans(unsigned shared, unsigned r0, unsigned r1, unsigned r2,
                                                  unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared),
               "r"(r0), "r"(r1), "r"(r2), "r"(r3)
               : "memory");
}

}  // namespace trigen::ptx
