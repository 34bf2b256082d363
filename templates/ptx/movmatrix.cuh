// The transpose of an 8x8 matrix of 16-bit elements in a warp's registers, sm_75 and later. PTX ISA section 9.7.14.5.17
// (movmatrix): lane l holds elements 2 * (l % 4), +1 of row l / 4, and gets those of column l / 4.
#pragma once

namespace trigen::ptx {

__device__ __forceinline__ unsigned movmatrix_trans(unsigned v) {
  unsigned transposed;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(transposed) : "r"(v));
  return transposed;
}

}  // namespace trigen::ptx
