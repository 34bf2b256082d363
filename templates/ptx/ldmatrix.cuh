// Four 8x8 matrices of 16-bit elements from shared memory, sm_75 and later. PTX ISA section 9.7.14.5.15
// (ldmatrix): lane l gives the address of row l % 8 of matrix l / 8 (16 bytes, aligned) and receives elements
// 2 * (l % 4), +1 of row l / 4.
#pragma once

namespace trigen::ptx {

__device__ __forceinline__ void ldmatrix_x4(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void ldmatrix_x4_trans(unsigned (&r)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(address)
               : "memory");
}

}  // namespace trigen::ptx
