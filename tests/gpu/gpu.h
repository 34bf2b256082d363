// What every test on a real device starts with.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>

#include "cache/store.h"
#include "runtime/device.h"
#include "runtime/nvrtc.h"
#include "runtime/plan.h"

namespace trigen {

// A cache file of its own for each test, and the device; skips with the reason where there is none.
class Gpu : public testing::Test {
 protected:
  void SetUp() override {
    auto device = Device::open("");
    if (!device) GTEST_SKIP() << "[SKIP] " << take_error(device.takeError()).message;
    device_ = *device;
    if (device_->info().emulated) GTEST_SKIP() << "[SKIP] the driver in use is the emulated one";
    auto compiler = Nvrtc::choose(device_->target());
    if (!compiler) GTEST_SKIP() << "[SKIP] " << take_error(compiler.takeError()).message;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    path_ = testing::TempDir() + "/trigen-gpu-" + std::to_string(::getpid()) + "-" + test->name() + ".db";
    Store::Options options;
    options.layers = {path_};
    store_ = Store::open(options);
  }
  void TearDown() override {
    store_.reset();
    for (const char* suffix : {"", ".lock", "-journal"}) ::unlink((path_ + suffix).c_str());
  }

  const Device* device_ = nullptr;
  std::unique_ptr<Store> store_;
  std::string path_;
};

}  // namespace trigen
