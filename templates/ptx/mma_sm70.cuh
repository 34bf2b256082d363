// mma.m8n8k4, f16 with f32 sums, sm_70. PTX ISA section 9.7.14.5.2 (fragments of m8n8k4): the lanes 4q..4q+3
// and 4q+16..4q+19 form quad pair q, and every quad pair multiplies its own 8x4 by 4x8.
#pragma once

namespace trigen::ptx {

// kARow: A's four elements run along k (else along m). kBRow: B's run along n (else along k).
template <bool kARow, bool kBRow>
__device__ __forceinline__ void mma_m8n8k4(float (&c)[8], const unsigned (&a)[2], const unsigned (&b)[2]) {
#define TRIGEN_M8N8K4(A_MAJOR, B_MAJOR)                                                                \
  asm("mma.sync.aligned.m8n8k4." A_MAJOR "." B_MAJOR                                                   \
      ".f32.f16.f16.f32 {%0, %1, %2, %3, %4, %5, %6, %7}, {%8, %9}, {%10, %11}, "                      \
      "{%0, %1, %2, %3, %4, %5, %6, %7};"                                                              \
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7]) \
      : "r"(a[0]), "r"(a[1]), "r"(b[0]), "r"(b[1]))
  if constexpr (kARow && kBRow)
    TRIGEN_M8N8K4("row", "row");
  else if constexpr (kARow)
    TRIGEN_M8N8K4("row", "col");
  else if constexpr (kBRow)
    TRIGEN_M8N8K4("col", "row");
  else
    TRIGEN_M8N8K4("col", "col");
#undef TRIGEN_M8N8K4
}

}  // namespace trigen::ptx
