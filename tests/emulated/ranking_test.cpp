// A Hopper of another size than an H200: the model orders its candidates by its own SM count.
#include <gtest/gtest.h>

#include <cstdlib>

#include "../unit/runtime_testing.h"
#include "cache/store.h"
#include "generator/cost/cost.h"
#include "generator/error.h"
#include "runtime/plan.h"
#include "test_driver.h"

namespace trigen {
namespace {

constexpr int kSms = 114;  // an H100 PCIe's
[[maybe_unused]] const int said = ::setenv("TRIGEN_EMULATED_SMS", "114", 1);

class Ranking : public ::testing::Test {
 protected:
  void SetUp() override {
    auto opened = Device::open("emulated:sm_90a");
    if (!opened) GTEST_SKIP() << "[SKIP] " << take_error(opened.takeError()).message;
    device_ = *opened;
    ASSERT_EQ(device_->info().sms, kSms);
  }
  const Device* device_ = nullptr;
  const Target& target_ = *llvm::cantFail(find_target("sm_90a"));
};

TEST_F(Ranking, FollowsTheDevicesOwnSms) {
  DeviceModel own = model_of(target_);
  own.sms = kSms;
  size_t other_first = 0;
  std::string differs;
  for (const char* op : {"forward", "grad_input", "grad_weight"})
    for (const char* sizes : {"B=32,T=512,D=1024", "B=16,T=1024,D=1024", "B=8,T=2048,D=1024",
                              "B=32,T=192,D=768", "B=128,T=256,D=512"}) {
      const Problem problem = llvm::cantFail(parse_problem(std::string(op) + ",dtype=bf16," + sizes));
      const auto usual = llvm::cantFail(list_candidates(problem, target_));
      const auto here = llvm::cantFail(list_candidates(problem, target_, nullptr, &own));
      ASSERT_GE(here.size(), std::min(usual.size(), kFewCandidates));
      for (size_t i = 1; i < here.size(); ++i)
        ASSERT_LE(predict(here[i - 1], own).seconds, predict(here[i], own).seconds)
            << to_string(problem) << i;
      other_first += describe(here.front()) == describe(usual.front()) ? 0 : 1;
    }
  EXPECT_GT(other_first, 0U) << "or the count does not matter";
}

// A plan of a problem that nobody tuned takes it.
TEST_F(Ranking, APlansFirstChoiceIsTheDevices) {
  if (testing::real_nvrtc("sm_90a") == nullptr)
    GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_90a; set TRIGEN_NVRTC";
  const Problem problem = llvm::cantFail(parse_problem("forward,dtype=bf16,B=16,T=1024,D=1024"));
  const DeviceModel own = device_->model();
  EXPECT_EQ(own.sms, kSms);
  const auto here = llvm::cantFail(list_candidates(problem, target_, nullptr, &own));
  Store::Options options;
  options.layers = {"none"};
  const auto store = Store::open(options);
  const auto plan = llvm::cantFail(Plan::create(problem, *device_, *store));
  EXPECT_EQ(describe(plan->resolution().candidate), describe(here.front()));
}

}  // namespace
}  // namespace trigen
