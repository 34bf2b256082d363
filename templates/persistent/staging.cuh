// Output on its way from registers to global memory: staging panels that `kThreads` threads write to shared
// memory together, one of them asks for the copy from there. `kSlots` panels are used in turn, or once.
#pragma once

#include "config.h"
#include "persistent/sizes.h"
#include "ptx/cluster.cuh"
#include "ptx/memory.cuh"
#include "ptx/tma.cuh"

namespace trigen::persistent {

// The output, and the other tensors of its shape in an epilogue; null: the problem has no such tensor.
struct OutputMaps {
  const TensorMap *output, *pre, *gate, *residual;
};

// `operands`: the problem's tensors among pre, gate and residual.
template <Kernel C, class... Operands>
__device__ __forceinline__ OutputMaps output_maps(const TensorMap& output, const Operands&... operands) {
  constexpr Shape s = C.shape;
  static_assert(sizeof...(operands) == s.pre + s.gate + s.residual, "a map for each tensor of the epilogue");
  const TensorMap* const maps[] = {&operands..., nullptr};
  return {.output = &output,
          .pre = s.pre ? maps[0] : nullptr,
          .gate = s.gate ? maps[s.pre] : nullptr,
          .residual = s.residual ? maps[s.pre + s.gate] : nullptr};
}

// Offset of 16-byte chunk `chunk` of 8, in `line`, in a panel of 64 columns that consists of kParts boxes, kPartBytes from one
// to the next, of 64 lines or more and 128 / kParts bytes in a line. The swizzle of that many bytes: chunk ^ bits 7 and up of
// the box's address.
template <int kParts, int kPartBytes = kPanelBytes / kParts>
__device__ __forceinline__ unsigned panel_offset(unsigned line, unsigned chunk) {
  constexpr unsigned kChunks = 8 / kParts, kBytes = 128 / kParts;
  return chunk / kChunks * kPartBytes + line * kBytes +
         ((chunk % kChunks ^ (line / kParts & (kChunks - 1))) << 4);
}

template <int kSlots, int kThreads, bool kReused = true>
struct Staging {
  unsigned base, barrier;  // shared address of the first panel; the threads' named barrier
  int slot = 0;

  __device__ __forceinline__ Staging(unsigned first_panel, unsigned named_barrier)
      : base(first_panel), barrier(named_barrier) {}
  __device__ __forceinline__ static bool leads() { return threadIdx.x % kThreads == 0; }

  // The next panel, once the copy out of it has read it.
  __device__ __forceinline__ unsigned claim() const {
    if constexpr (kReused) {
      if (leads()) ptx::tma_store_wait_read<kSlots - 1>();
      ptx::named_barrier(barrier, kThreads);
    }
    return base + slot * kPanelBytes;
  }
  // Sends the panel that claim() gave, now written: copies() asks for the copies out of it.
  template <class Copies>
  __device__ __forceinline__ void send(const Copies& copies) {
    ptx::fence_async_shared();
    ptx::named_barrier(barrier, kThreads);
    if (leads()) {
      copies();
      ptx::tma_store_commit();
    }
    slot = slot + 1 == kSlots ? 0 : slot + 1;
  }
  __device__ __forceinline__ void send(const TensorMap& map, unsigned panel, int c0, int c1, int c2, int c3) {
    send([&] { ptx::tma_store(map, panel, c0, c1, c2, c3); });
  }
  // The last copies read shared memory: wait for that before the block ends. What they write is there when the launch has ended.
  __device__ __forceinline__ void finish() const {
    if (leads()) ptx::tma_store_wait_read<0>();
  }
};

}  // namespace trigen::persistent
