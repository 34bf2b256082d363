// Shared-memory layouts of the tensor-core families: rows are the operand's strided axis, as wide as its
// contiguous one, in 16-byte chunks whose place in the row is XORed with bits of the row's number. The
// operand keeps its contiguous axis, so that vectors from global memory stay vectors.
//
// Shared memory has 32 banks of 4 bytes, 8 chunks (128 bytes) in one pass, so reads are free of conflicts
// when the 8 chunks that go together lie in 8 different chunk columns modulo 128 bytes:
//   ldmatrix reads one chunk of 8 successive rows. Rows of 128 bytes and more: XOR with row % 8. Rows of 64
//   bytes take half of the columns and two rows share a pass: XOR with row / 2 % 4. Rows of 32 bytes: XOR
//   with row / 4 % 2. f32 with m or n contiguous has no ldmatrix (transposition works on 16-bit pieces); its
//   fragments read 8 successive words (2 chunks) of 4 successive rows: XOR with 2 * (row % 4).
// Writers fill whole rows, 8 successive chunks at a time in any order: free of conflicts too.
#pragma once

namespace trigen {

template <int kRows, int kColumns, int kElement, bool kContiguousIsK>
struct Swizzle {
  static constexpr int kPitch = kColumns * kElement;  // bytes
  static constexpr int kBytes = kRows * kPitch;
  static constexpr bool kVectors = true;
  static constexpr int kChunks = kPitch / 16;
  static constexpr bool kWords = kElement == 4 && !kContiguousIsK;
  static_assert(kChunks >= 2 && (kChunks & (kChunks - 1)) == 0, "a row is 2, 4, 8 ... chunks of 16 bytes");
  static_assert(!kWords || kChunks >= 8, "rows of f32 along m or n hold 32 elements at least");

  static __device__ __forceinline__ unsigned byte(int row, int column) {
    const int at = column * kElement;
    int mix;
    if constexpr (kWords)
      mix = (row & 3) << 1;
    else if constexpr (kChunks >= 8)
      mix = row & 7;
    else if constexpr (kChunks == 4)
      mix = (row >> 1) & 3;
    else
      mix = (row >> 2) & 1;
    return row * kPitch + (((at >> 4) ^ mix) << 4) + (at & 15);
  }
};

}  // namespace trigen
