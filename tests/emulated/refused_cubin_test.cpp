// A driver that refuses a kernel's cubin takes the PTX beside it. The emulated device refuses every cubin; here it
// is taken for a GPU, so that a plan offers it one.
#include <gmock/gmock.h>

#include "bench/driver_calls.h"
#include "measured_record.h"
#include "runtime/canary.h"
#include "runtime/compile.h"
#include "test_driver.h"
#include "tests/unit/runtime_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using testing::CacheFolder;
using ::testing::HasSubstr;
using testing::message;
using ::testing::Not;

const Device* open_as_gpu() {
  auto driver = Driver::load_emulated("sm_70");
  if (!driver) {
    llvm::consumeError(driver.takeError());
    return nullptr;
  }
  DriverCalls::watch(**driver);
  const Device* device = llvm::cantFail(Device::open(**driver, 0));
  const_cast<DeviceInfo&>(device->info()).emulated = false;
  return device;
}

class RefusedCubinTest : public ::testing::Test {
 protected:
  void SetUp() override {
    device_ = open_as_gpu();
    if (device_ == nullptr) GTEST_SKIP() << "[SKIP] no emulated device";
    if (testing::real_nvrtc() == nullptr)
      GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_70; set TRIGEN_NVRTC";
    problem_ = llvm::cantFail(parse_problem("forward,dtype=f32,B=5,T=40,D=24"));
    candidate_ = llvm::cantFail(list_candidates(problem_, device_->target())).front();
    auto maker = testing::open_store({folder_ / "compiled.db"});
    binary_ = llvm::cantFail(build(candidate_, *maker.store)).binary;
    binary_.digest.clear();
    options_.no_jit = true;
  }
  void TearDown() override { Executable::forget(binary_.key); }

  void ship() const { testing::ship(shipped_, candidate_, binary_, *device_); }
  std::string refusal() {
    auto store = testing::open_store({user_, shipped_});
    auto plan = Plan::create(problem_, *device_, *store.store, options_);
    if (plan) ADD_FAILURE() << "made from " << ((*plan)->executable().from_ptx() ? "PTX" : "a cubin");
    return plan ? "" : take_error(plan.takeError()).message;
  }

  const Device* device_ = nullptr;
  CacheFolder folder_;
  const std::string user_ = folder_ / "user.db", shipped_ = folder_ / "shipped.db";
  Problem problem_;
  Candidate candidate_;
  Binary binary_;
  PlanOptions options_;
};

TEST_F(RefusedCubinTest, ThePtxBesideItRuns) {
  ASSERT_FALSE(binary_.cubin.empty());
  ship();
  auto store = testing::open_store({user_, shipped_});
  llvm::cantFail(device_->context());
  const CanaryCounts before = canary_counts();
  DriverCalls::clear();
  auto plan = Plan::create(problem_, *device_, *store.store, options_);
  ASSERT_TRUE(static_cast<bool>(plan)) << take_error(plan.takeError()).message;
  EXPECT_TRUE((*plan)->executable().from_ptx());
  EXPECT_EQ((*plan)->resolution().match, Match::kExact);
  EXPECT_EQ((*plan)->resolution().layer, shipped_);
  EXPECT_EQ(canary_counts().right - before.right, 1) << "its outputs were compared";
  EXPECT_GT(DriverCalls::calls("cuModuleLoadDataEx"), 1) << "the cubin was offered first";
  // The module is shared: nothing is offered again.
  DriverCalls::clear();
  auto again = Plan::create(problem_, *device_, *store.store, options_);
  ASSERT_TRUE(static_cast<bool>(again)) << take_error(again.takeError()).message;
  EXPECT_TRUE((*again)->executable().from_ptx());
}

TEST_F(RefusedCubinTest, WithoutPtxTheRefusalIsTheError) {
  binary_.ptx.clear();
  ship();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("loading a cubin"), HasSubstr("NO_BINARY_FOR_GPU"),
                               HasSubstr(to_string(problem_)), Not(HasSubstr("PTX:"))));
}

TEST_F(RefusedCubinTest, BothRefusalsAreSaid) {
  binary_.ptx.insert(binary_.ptx.find("{\n") + 2, "nonsense;\n");
  ship();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("loading a cubin"), HasSubstr("NO_BINARY_FOR_GPU"),
                               HasSubstr("loading PTX"), HasSubstr("INVALID_PTX")));
}

// Another version's kernel: no driver is given what this one would call with the wrong parameters.
TEST_F(RefusedCubinTest, OtherParametersAreRefusedBeforeTheDriverSeesThem) {
  const std::string own = "[" + std::to_string(sizeof(Params)) + "]";
  const size_t list = binary_.ptx.find(own, binary_.ptx.find(".entry " + binary_.entry));
  ASSERT_NE(list, std::string::npos);
  binary_.ptx.replace(list, own.size(), "[128], .param .u64 further");
  const size_t info =
      binary_.cubin.find("\x04\x17\x0c");  // EIATTR_KPARAM_INFO: 12 bytes, of which the last two
  ASSERT_NE(info, std::string::npos);      // have 14 bits of size
  binary_.cubin[info + 15] ^= 1;
  ship();
  DriverCalls::clear();
  EXPECT_THAT(refusal(), AllOf(HasSubstr("a cubin: "), HasSubstr("does not say what parameters it takes"),
                               HasSubstr("PTX: "),
                               HasSubstr("parameters of 128, 8 bytes, this version passes " +
                                         std::to_string(sizeof(Params)) + ";")));
  EXPECT_EQ(DriverCalls::calls("cuModuleLoadDataEx"), 0);
}

}  // namespace
}  // namespace trigen
