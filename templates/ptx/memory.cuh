// Plain loads and stores of 2 to 16 bytes. PTX ISA sections 9.7.9.8 (ld), 9.7.9.9 (ld.global.nc), 9.7.9.11
// (st). Shared addresses are 32-bit shared-window addresses.
#pragma once

namespace trigen::ptx {

__device__ __forceinline__ unsigned shared_address(const void* p) {
  return static_cast<unsigned>(__cvta_generic_to_shared(p));
}

// Read-only for the whole kernel: may go through the non-coherent path.
template <int kSize>
__device__ __forceinline__ void load_global_nc(unsigned* w, const void* p) {
  static_assert(kSize == 2 || kSize == 4 || kSize == 8 || kSize % 16 == 0,
                "sizes that one or more loads cover");
  if constexpr (kSize == 2) {
    unsigned short v;
    asm volatile("ld.global.nc.u16 %0, [%1];" : "=h"(v) : "l"(p));
    w[0] = v;
  } else if constexpr (kSize == 4) {
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(w[0]) : "l"(p));
  } else if constexpr (kSize == 8) {
    asm volatile("ld.global.nc.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p));
  } else {
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i)
      asm volatile("ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[4 * i]), "=r"(w[4 * i + 1]), "=r"(w[4 * i + 2]), "=r"(w[4 * i + 3])
                   : "l"(static_cast<const char*>(p) + 16 * i));
  }
}

// May have been written in this kernel (accumulation, residual in place).
template <int kSize>
__device__ __forceinline__ void load_global(unsigned* w, const void* p) {
  static_assert(kSize == 2 || kSize == 4 || kSize == 8 || kSize % 16 == 0,
                "sizes that one or more loads cover");
  if constexpr (kSize == 2) {
    unsigned short v;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p) : "memory");
    w[0] = v;
  } else if constexpr (kSize == 4) {
    asm volatile("ld.global.u32 %0, [%1];" : "=r"(w[0]) : "l"(p) : "memory");
  } else if constexpr (kSize == 8) {
    asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "l"(p) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i)
      asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[4 * i]), "=r"(w[4 * i + 1]), "=r"(w[4 * i + 2]), "=r"(w[4 * i + 3])
                   : "l"(static_cast<const char*>(p) + 16 * i)
                   : "memory");
  }
}

// The 128 bytes around `p` into the L2 (PTX ISA section 9.7.9.15, prefetch); no value is read.
__device__ __forceinline__ void prefetch_l2(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

// A word that may have been written in this kernel, or 0, without a branch: many such loads are under way at a time.
__device__ __forceinline__ unsigned load_global_if(const void* p, bool read) {
  unsigned v;
  asm volatile(
      "{\n.reg .pred read;\nsetp.ne.u32 read, %2, 0;\nmov.u32 %0, 0;\n@read ld.global.u32 %0, [%1];\n}\n"
      : "=r"(v)
      : "l"(p), "r"(static_cast<unsigned>(read))
      : "memory");
  return v;
}

template <int kSize>
__device__ __forceinline__ void store_global(void* p, const unsigned* w) {
  static_assert(kSize == 2 || kSize == 4 || kSize == 8 || kSize % 16 == 0,
                "sizes that one or more stores cover");
  if constexpr (kSize == 2) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"(static_cast<unsigned short>(w[0])) : "memory");
  } else if constexpr (kSize == 4) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(w[0]) : "memory");
  } else if constexpr (kSize == 8) {
    asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(w[0]), "r"(w[1]) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i)
      asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(static_cast<char*>(p) + 16 * i),
                   "r"(w[4 * i]), "r"(w[4 * i + 1]), "r"(w[4 * i + 2]), "r"(w[4 * i + 3])
                   : "memory");
  }
}

template <int kSize>
__device__ __forceinline__ void store_shared(unsigned address, const unsigned* w) {
  static_assert(kSize == 2 || kSize == 4 || kSize == 8 || kSize % 16 == 0,
                "sizes that one or more stores cover");
  if constexpr (kSize == 2) {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address), "h"(static_cast<unsigned short>(w[0])) : "memory");
  } else if constexpr (kSize == 4) {
    asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(w[0]) : "memory");
  } else if constexpr (kSize == 8) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(w[0]), "r"(w[1]) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i)
      asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(address + 16 * i), "r"(w[4 * i]),
                   "r"(w[4 * i + 1]), "r"(w[4 * i + 2]), "r"(w[4 * i + 3])
                   : "memory");
  }
}

template <int kSize>
__device__ __forceinline__ void load_shared(unsigned* w, unsigned address) {
  static_assert(kSize == 2 || kSize == 4 || kSize == 8 || kSize % 16 == 0,
                "sizes that one or more loads cover");
  if constexpr (kSize == 2) {
    unsigned short v;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(address) : "memory");
    w[0] = v;
  } else if constexpr (kSize == 4) {
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(w[0]) : "r"(address) : "memory");
  } else if constexpr (kSize == 8) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(w[0]), "=r"(w[1]) : "r"(address) : "memory");
  } else {
#pragma unroll
    for (int i = 0; i < kSize / 16; ++i)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(w[4 * i]), "=r"(w[4 * i + 1]), "=r"(w[4 * i + 2]), "=r"(w[4 * i + 3])
                   : "r"(address + 16 * i)
                   : "memory");
  }
}

__device__ __forceinline__ unsigned load_shared_byte(unsigned address) {
  unsigned v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}

// Lets the warp rest for about that long, at most twice as long.
__device__ __forceinline__ void nanosleep(unsigned nanoseconds) {
  asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
}

// Adds to a word of global memory and returns what it was (PTX ISA section 9.7.13.5, atom).
__device__ __forceinline__ unsigned add_global(unsigned* p, unsigned v) {
  unsigned old;
  asm volatile("atom.relaxed.gpu.global.add.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}

}  // namespace trigen::ptx
