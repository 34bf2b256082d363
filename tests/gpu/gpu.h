// Set-up of every test on a real device.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "../unit/cache_testing.h"
#include "cache/store.h"
#include "runtime/device.h"
#include "runtime/nvrtc.h"
#include "runtime/plan.h"

namespace trigen {

// A cache file of its own for each test, and the device; skips with the reason where there is none.
class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    auto device = Device::open("");
    if (!device) GTEST_SKIP() << "[SKIP] " << take_error(device.takeError()).message;
    device_ = *device;
    if (device_->info().emulated) GTEST_SKIP() << "[SKIP] the driver in use is the emulated one";
    auto compiler = Nvrtc::choose(device_->target());
    if (!compiler) GTEST_SKIP() << "[SKIP] " << take_error(compiler.takeError()).message;
    Store::Options options;
    options.layers = {folder_ / "cache.db"};
    store_ = Store::open(options);
  }

  const Device* device_ = nullptr;
  testing::CacheFolder folder_;  // nobody else may write a cache's folder
  std::unique_ptr<Store> store_;
};

}  // namespace trigen
