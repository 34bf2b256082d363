// A Hopper for tests of its families: the emulated sm_90a, or (with TRIGEN_TEST_GPU=1) this machine's GPU. What these
// tests do, plans made and run, lets no call of the driver fail.
#pragma once

#include <gtest/gtest.h>

#include "bench/driver_calls.h"
#include "runtime/device.h"
#include "runtime/nvrtc.h"
#include "test_driver.h"

namespace trigen::testing {

template <class Parameter>
class HopperTest : public ::testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (kOnGpu) {
      auto found = Device::open("");
      if (!found) GTEST_SKIP() << "[SKIP] " << take_error(found.takeError()).message;
      if (!(*found)->target().wgmma) GTEST_SKIP() << "[SKIP] no sm_90a here";
      device_ = *found;
    } else {
      device_ = llvm::cantFail(Device::open(*llvm::cantFail(Driver::load_emulated("sm_90a")), 0));
    }
    auto nvrtc = Nvrtc::choose(device_->target());
    if (!nvrtc) GTEST_SKIP() << "[SKIP] " << take_error(nvrtc.takeError()).message;
    nvrtc_ = *nvrtc;
    DriverCalls::watch(device_->driver());
    DriverCalls::clear();
  }
  void TearDown() override { EXPECT_EQ(DriverCalls::failed(), ""); }

  const Device* device_ = nullptr;
  const Nvrtc* nvrtc_ = nullptr;
};

}  // namespace trigen::testing
