// The driver of a test that runs on an emulated device and, with TRIGEN_TEST_GPU=1, on this machine's GPU.
#pragma once

#include <cstdlib>

#include "runtime/driver.h"

namespace trigen::testing {

inline const bool kOnGpu = std::getenv("TRIGEN_TEST_GPU") != nullptr;

// Null on a machine without that device. `emulated`: the emulated device's target.
inline const Driver* load_test_driver(const char* emulated) {
  auto loaded = kOnGpu ? Driver::load() : Driver::load_emulated(emulated);
  if (loaded) return *loaded;
  llvm::consumeError(loaded.takeError());
  return nullptr;
}

}  // namespace trigen::testing
