// The driver of a test that runs on an emulated device and, built with TRIGEN_TEST_GPU, on this machine's
// GPU.
#pragma once

#include "runtime/driver.h"

namespace trigen::testing {

#ifdef TRIGEN_TEST_GPU
inline constexpr bool kOnGpu = true;
#else
inline constexpr bool kOnGpu = false;
#endif

// Null on a machine without that device. `emulated`: the emulated device's target.
inline const Driver* load_test_driver(const char* emulated) {
  auto loaded = kOnGpu ? Driver::load() : Driver::load_emulated(emulated);
  if (loaded) return *loaded;
  llvm::consumeError(loaded.takeError());
  return nullptr;
}

}  // namespace trigen::testing
