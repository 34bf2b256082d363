// Sizes of shared memory in Hopper's persistent families. Plain C++, like config.h.
#pragma once

#include "config.h"

namespace trigen::persistent {

inline constexpr int kPanel = 64;             // elements of one 128-byte swizzled row, 16-bit types
inline constexpr int kPanelBytes = 64 * 128;  // 64 rows of 128 bytes: a box of TMA
// Features of a box of x, y and what has their shape. A panel is so many boxes of 64 tokens, from different batches where a
// head is short, so that few of its columns are empty.
TRIGEN_HOST_DEVICE constexpr int box_features(const Config& c) { return c.box > 0 ? c.box : kPanel; }
inline constexpr int kSharedLimit = 232448;      // bytes a block may use on sm_90
inline constexpr long long kL2Bytes = 50 << 20;  // of an H100; an H200 has 60

}  // namespace trigen::persistent
