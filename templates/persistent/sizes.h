// Sizes of shared memory in Hopper's persistent families. Plain C++, like config.h.
#pragma once

namespace trigen::persistent {

inline constexpr int kPanel = 64;             // elements of one 128-byte swizzled row, 16-bit types
inline constexpr int kPanelBytes = 64 * 128;  // 64 rows of 128 bytes: a box of TMA
inline constexpr int kSharedLimit = 232448;   // bytes a block may use on sm_90

}  // namespace trigen::persistent
