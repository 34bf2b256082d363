// Log lines and counters of libtrigen.so's plans, through the C interface, on the emulated device.
#include <gmock/gmock.h>
#include <trigen/trigen.h>

#include <filesystem>
#include <mutex>
#include <thread>

#include "../unit/runtime_testing.h"
#include "cache/store.h"
#include "generator/cost/cost.h"
#include "runtime/device.h"
#include "test_driver.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using trigen::testing::Folder;

constexpr const char* kProblem = "forward,dtype=f32,B=2,H=1,T=20,D=12,K=1,pad=0";

struct Lines {
  std::mutex mutex;
  std::vector<std::string> of[5];
  static void add(trigen_log_level level, const char* line, void* user) {
    auto* lines = static_cast<Lines*>(user);
    const std::lock_guard<std::mutex> lock(lines->mutex);
    lines->of[level].emplace_back(line);
  }
};

class Log : public ::testing::Test {
 protected:
  void SetUp() override {
    TRIGEN_NEEDS_NVRTC();
    if (trigen::testing::load_test_driver("sm_70") == nullptr) GTEST_SKIP() << "[SKIP] no emulated device";
    ASSERT_EQ(trigen_set_log(TRIGEN_LOG_DEBUG, Lines::add, &lines_), TRIGEN_OK);
  }
  void TearDown() override { trigen_set_log(TRIGEN_LOG_OFF, nullptr, nullptr); }

  static trigen_counts counted() {
    trigen_counts counts;
    counts.struct_size = sizeof counts;
    EXPECT_EQ(trigen_counters(&counts), TRIGEN_OK) << trigen_last_error();
    return counts;
  }
  // A plan of a runtime of its own; what its describe() says of the kernel.
  std::string plan(bool no_jit = false, int times = 1, const char* text = kProblem) const {
    const std::string cache = folder_ / "cache.db";
    const char* layer = cache.c_str();
    trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
    options.layers = &layer;
    options.layer_count = 1;
    options.no_jit = no_jit ? 1 : 0;
    options.driver = "emulated:sm_70";
    trigen_runtime* runtime = nullptr;
    EXPECT_EQ(trigen_runtime_create(&options, &runtime), TRIGEN_OK) << trigen_last_error();
    trigen_problem problem;
    problem.struct_size = sizeof problem;
    EXPECT_EQ(trigen_problem_parse(text, &problem), TRIGEN_OK);
    std::string candidate;
    for (int i = 0; i < times; ++i) {
      trigen_plan* made = nullptr;
      if (trigen_plan_create(runtime, &problem, 0, &made) != TRIGEN_OK) break;
      trigen_plan_info info;
      info.struct_size = sizeof info;
      EXPECT_EQ(trigen_plan_describe(made, &info), TRIGEN_OK);
      candidate = info.candidate;
      trigen_plan_destroy(made);
    }
    trigen_runtime_destroy(runtime);
    return candidate;
  }
  // Stores the choice whose binary the cache has.
  void store(Provenance provenance, const std::string& driver) const {
    Store::Options options;
    options.layers = {folder_ / "cache.db"};
    auto store = Store::open(options);
    const auto binaries = store->list_binaries();
    ASSERT_EQ(binaries.size(), 1u);
    Record record;
    record.problem = kProblem;
    record.arch = "sm_70";
    record.candidate = binaries[0].candidate;
    record.binary = binaries[0].key;
    record.provenance = provenance;
    if (provenance == Provenance::kMeasured) {
      const DeviceInfo& here =
          llvm::cantFail(Device::open(*trigen::testing::load_test_driver("sm_70"), 0))->info();
      record.device = here.name;
      record.sms = here.sms;
      record.driver = driver;
    } else {
      record.evidence = "{\"model\":" + std::to_string(kModelVersion) + "}";
    }
    ASSERT_FALSE(static_cast<bool>(store->put_record(record)));
  }

  Folder folder_;
  Lines lines_;
};

// One test: "once" is of the process, and so are the counters.
TEST_F(Log, APlansLineAndCounterForEachAnswer) {
  const trigen_counts before = counted();
  plan(/*no_jit=*/true);  // nothing there, nothing may be made
  ASSERT_EQ(lines_.of[TRIGEN_LOG_INFO].size(), 1u);
  EXPECT_THAT(lines_.of[TRIGEN_LOG_INFO][0],
              AllOf(HasSubstr("failed=\""), HasSubstr("compiling is forbidden"), Not(HasSubstr("\n"))));
  EXPECT_THAT(lines_.of[TRIGEN_LOG_NOTICE], IsEmpty());

  const std::string kernel = plan();
  ASSERT_EQ(lines_.of[TRIGEN_LOG_INFO].size(), 2u);
  EXPECT_THAT(
      lines_.of[TRIGEN_LOG_INFO][1],
      AllOf(StartsWith(std::string("plan problem=") + kProblem +
                       " device=emulated:sm_70 answer=miss provenance=predicted "),
            HasSubstr(" target=sm_70 kernel=" + kernel + " code=compiled ms="), Not(HasSubstr("layer="))));
  ASSERT_EQ(lines_.of[TRIGEN_LOG_DEBUG].size(), 1u);
  EXPECT_THAT(lines_.of[TRIGEN_LOG_DEBUG][0],
              AllOf(StartsWith("compile kernel=" + kernel), HasSubstr("compiler=\"nvrtc ")));
  ASSERT_EQ(lines_.of[TRIGEN_LOG_NOTICE].size(), 1u);
  EXPECT_THAT(lines_.of[TRIGEN_LOG_NOTICE][0],
              AllOf(StartsWith("untuned: "), HasSubstr(kProblem), HasSubstr("trigen tune --device")));

  store(Provenance::kPredicted, "");
  plan(/*no_jit=*/false, /*times=*/3);  // one plan, found again; untuned is not said again
  EXPECT_THAT(lines_.of[TRIGEN_LOG_INFO].back(),
              AllOf(HasSubstr("answer=near provenance=predicted layer=" + (folder_ / "cache.db")),
                    HasSubstr("code=cache")));
  EXPECT_EQ(lines_.of[TRIGEN_LOG_NOTICE].size(), 1u);

  store(Provenance::kMeasured, "another");
  plan();
  EXPECT_THAT(lines_.of[TRIGEN_LOG_INFO].back(),
              AllOf(HasSubstr("answer=near provenance=measured"),
                    HasSubstr("differs=\"driver emulated here, another in the record\"")));
  ASSERT_EQ(lines_.of[TRIGEN_LOG_NOTICE].size(), 2u);
  EXPECT_THAT(lines_.of[TRIGEN_LOG_NOTICE][1],
              AllOf(StartsWith("near: "), HasSubstr("another in the record")));
  store(Provenance::kMeasured, "emulated");
  plan();
  plan();
  EXPECT_THAT(lines_.of[TRIGEN_LOG_INFO].back(), HasSubstr("answer=exact provenance=measured"));
  EXPECT_EQ(lines_.of[TRIGEN_LOG_NOTICE].size(), 2u);

  const trigen_counts after = counted();
  EXPECT_EQ(after.misses - before.misses, 1u);
  EXPECT_EQ(after.predicted - before.predicted, 1u);
  EXPECT_EQ(after.near - before.near, 1u);
  EXPECT_EQ(after.exact - before.exact, 2u);
  EXPECT_EQ(after.compiles - before.compiles, 1u);
  EXPECT_EQ(after.canaries, 0u);
  EXPECT_GT(after.compile_ms, before.compile_ms);
  EXPECT_GT(after.plan_ms - before.plan_ms, after.compile_ms - before.compile_ms);
}

TEST_F(Log, ASlowPathIsSaidOnceWhateverTheSizes) {
  for (const char* text : {"forward,dtype=bf16,B=2,T=512,D=512", "grad_input,dtype=bf16,B=4,T=256,D=512"})
    plan(/*no_jit=*/false, 2, text);
  std::vector<std::string> slow;
  for (const std::string& line : lines_.of[TRIGEN_LOG_NOTICE])
    if (line.rfind("slow: ", 0) == 0) slow.push_back(line);
  EXPECT_THAT(slow, ElementsAre(HasSubstr("bf16 runs without tensor cores on sm_70")));
}

TEST_F(Log, LevelsIncludeThoseBeforeThemAndNoOthers) {
  trigen_set_log(TRIGEN_LOG_NOTICE, Lines::add, &lines_);
  plan();
  EXPECT_THAT(lines_.of[TRIGEN_LOG_INFO], IsEmpty());
  trigen_set_log(TRIGEN_LOG_INFO, Lines::add, &lines_);
  plan();
  EXPECT_EQ(lines_.of[TRIGEN_LOG_INFO].size(), 1u);
  EXPECT_THAT(lines_.of[TRIGEN_LOG_DEBUG], IsEmpty());
  ::testing::internal::CaptureStderr();
  trigen_set_log(TRIGEN_LOG_INFO, nullptr, nullptr);
  plan();
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), StartsWith("trigen: plan problem="));
  EXPECT_EQ(lines_.of[TRIGEN_LOG_INFO].size(), 1u);
}

TEST_F(Log, ACacheThatCannotBeUsedIsAWarning) {
  folder_.write("cache.db", std::string(5000, 'x'));
  plan();
  ASSERT_EQ(lines_.of[TRIGEN_LOG_WARNING].size(), 1u);
  EXPECT_THAT(lines_.of[TRIGEN_LOG_WARNING][0], HasSubstr("is not a trigen cache"));
}

// The sink's user data may be freed as soon as another sink is set.
TEST_F(Log, AChangeWaitsForTheSinkToBeLeft) {
  plan();
  std::atomic<bool> stop{false};
  std::thread planner([&] {
    while (!stop) plan();
  });
  for (int i = 0; i < 50; ++i) {
    auto lines = std::make_unique<Lines>();
    trigen_set_log(TRIGEN_LOG_DEBUG, Lines::add, lines.get());
    std::this_thread::yield();
    trigen_set_log(TRIGEN_LOG_OFF, nullptr, nullptr);
    for (auto& level : lines->of) level.assign(1, "freed");
  }
  stop = true;
  planner.join();
}

TEST_F(Log, RefusalsSayWhatIsAllowed) {
  EXPECT_EQ(trigen_set_log(static_cast<trigen_log_level>(9), nullptr, nullptr), TRIGEN_BAD_REQUEST);
  EXPECT_THAT(trigen_last_error(),
              HasSubstr("level 9; allowed are TRIGEN_LOG_OFF (0) to TRIGEN_LOG_DEBUG (4)"));
  trigen_counts counts = {};
  EXPECT_EQ(trigen_counters(&counts), TRIGEN_BAD_REQUEST);
  EXPECT_THAT(trigen_last_error(), HasSubstr("trigen_counts has struct_size 0"));
  EXPECT_EQ(trigen_counters(nullptr), TRIGEN_BAD_REQUEST);
}

TEST_F(Log, NoCacheIsNoWarning) {
  ::setenv("TRIGEN_CACHE", "none", 1);
  ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  for (const bool named : {false, true}) {
    const char* const none = "none";
    trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
    options.driver = "emulated:sm_70";
    if (named) {
      ::unsetenv("TRIGEN_CACHE");
      options.layers = &none;
      options.layer_count = 1;
    }
    trigen_runtime* runtime = nullptr;
    ASSERT_EQ(trigen_runtime_create(&options, &runtime), TRIGEN_OK) << trigen_last_error();
    trigen_problem problem;
    problem.struct_size = sizeof problem;
    ASSERT_EQ(trigen_problem_parse(kProblem, &problem), TRIGEN_OK);
    trigen_plan* plan = nullptr;
    ASSERT_EQ(trigen_plan_create(runtime, &problem, 0, &plan), TRIGEN_OK) << trigen_last_error();
    trigen_plan_info info;
    info.struct_size = sizeof info;
    EXPECT_EQ(trigen_plan_describe(plan, &info), TRIGEN_OK);
    EXPECT_STREQ(info.binary_from, "compiled");
    trigen_plan_destroy(plan);
    trigen_runtime_destroy(runtime);
  }
  EXPECT_THAT(lines_.of[TRIGEN_LOG_WARNING], IsEmpty());
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

}  // namespace
}  // namespace trigen
