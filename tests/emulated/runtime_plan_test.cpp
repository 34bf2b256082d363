// Making plans through libtrigen.so: the cache, the policies, targets and devices. Runs: runtime_run_test.cpp.
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "generator/cost/cost.h"
#include "measured_record.h"
#include "plan_testing.h"
#include "runtime/compile.h"
#include "runtime/plan.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StrEq;
using namespace trigen::testing;

TEST_F(PlanTest, ASecondPlanIsALookUp) {
  trigen_runtime* shared = runtime(options());
  trigen_plan* first = plan(shared, kForward);
  trigen_plan* second = plan(shared, kForward);
  EXPECT_THAT(info(first).candidate, StrEq(info(second).candidate));
  EXPECT_THAT(info(second).binary_from, StrEq("compiled"))
      << "the same plan, not another look into the cache";
  trigen_plan* other = plan(runtime(options()), kForward);
  EXPECT_THAT(info(other).binary_from, StrEq("cache"));
  EXPECT_THAT(info(other).match, StrEq("none")) << "a choice that nothing checked is no record";
  EXPECT_THAT(info(other).provenance, StrEq("predicted"));
}

// Plans that differ in the batch size share one module: 10 000 of them kept 2 GB of cubin and PTX.
TEST_F(PlanTest, ALoadedPlanKeepsNoBlob) {
  const auto problem = llvm::cantFail(parse_problem(kForward));
  const auto own = store();
  const auto made = llvm::cantFail(Plan::create(problem, *llvm::cantFail(Device::open(driver(), 0)), *own));
  const Binary& binary = made->resolution().binary;
  for (const std::string* blob : {&binary.cubin, &binary.ptx, &binary.source, &binary.log})
    EXPECT_LT(blob->capacity(), 64u);
  EXPECT_FALSE(binary.key.compiler.empty());
  EXPECT_FALSE(own->find_binary(binary.key)->ptx.empty()) << "the cache has them";
}

// Requests that were answered before are found by their fields, not by their text: each field must tell them
// apart.
TEST_F(PlanTest, ARepeatedRequestIsFoundByEveryField) {
  trigen_runtime* shared = runtime(options());
  const char* texts[] = {kForward,
                         "forward,dtype=f32,B=3,T=20,D=12",
                         "forward,dtype=f32,B=2,T=20,D=12,align=4",
                         "forward,dtype=f32,B=2,T=20,D=12,diag=1",
                         "forward,dtype=f32,B=2,T=20,D=12,epilogue=bias",
                         "grad_input,dtype=f32,B=2,T=20,D=12",
                         "decode,dtype=f32,B=2,T=20,D=12",
                         "decode,dtype=f32,B=2,T=20,D=12,rows=3"};
  for (int round = 0; round < 3; ++round) {
    for (const char* text : texts) {
      trigen_problem problem;
      problem.struct_size = sizeof problem;
      ASSERT_EQ(trigen_problem_parse(text, &problem), TRIGEN_OK);
      char canonical[256];
      ASSERT_EQ(trigen_problem_format(&problem, canonical, sizeof canonical, nullptr), TRIGEN_OK);
      EXPECT_THAT(info(plan(shared, text)).problem, StrEq(canonical)) << "round " << round;
    }
  }
  // a bad field is refused, however often a good one was answered
  trigen_problem problem;
  problem.struct_size = sizeof problem;
  ASSERT_EQ(trigen_problem_parse(kForward, &problem), TRIGEN_OK);
  for (int round = 0; round < 2; ++round) {
    trigen_problem bad = problem;
    bad.op = 99;
    trigen_plan* none = nullptr;
    EXPECT_EQ(trigen_plan_create(shared, &bad, 0, &none), TRIGEN_BAD_REQUEST);
    bad = problem;
    bad.struct_size = 8;
    EXPECT_EQ(trigen_plan_create(shared, &bad, 0, &none), TRIGEN_BAD_REQUEST);
    EXPECT_EQ(none, nullptr);
  }
}

TEST_F(PlanTest, ARepeatedRequestFollowsTheCurrentContext) {
  if (driver().device_count() < 2) GTEST_SKIP() << "[SKIP] one device only";
  trigen_runtime* shared = runtime(options());
  for (int round = 0; round < 2; ++round) {
    for (int ordinal = 0; ordinal < 2; ++ordinal) {
      const ContextScope scope(api(),
                               llvm::cantFail(llvm::cantFail(Device::open(driver(), ordinal))->context()));
      EXPECT_EQ(info(plan(shared, kForward, TRIGEN_CURRENT_DEVICE)).device_ordinal, ordinal);
      EXPECT_EQ(info(plan(shared, kForward, 1 - ordinal)).device_ordinal, 1 - ordinal);
    }
  }
}

TEST_F(PlanTest, ManyThreadsAskAtOnce) {
  trigen_runtime* shared = runtime(options());
  const char* texts[] = {kForward, "forward,dtype=f32,B=5,T=20,D=12", "forward,dtype=f32,B=6,T=20,D=12"};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 300; ++i) {
        const int which = (i + thread) % 3;
        trigen_problem problem;
        problem.struct_size = sizeof problem;
        trigen_plan* made = nullptr;
        if (trigen_problem_parse(texts[which], &problem) != TRIGEN_OK ||
            trigen_plan_create(shared, &problem, 0, &made) != TRIGEN_OK) {
          ++wrong;
          continue;
        }
        trigen_plan_info described{};
        described.struct_size = sizeof described;
        trigen_plan_describe(made, &described);
        const std::string batch = "B=" + std::to_string(which == 0 ? 2 : 4 + which) + ",";
        if (std::string(described.problem).find(batch) == std::string::npos) ++wrong;
        trigen_plan_destroy(made);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST_F(PlanTest, WithoutJitTheCacheDecides) {
  const Variable no_jit("TRIGEN_NO_JIT", "1");
  trigen_plan* made = nullptr;
  EXPECT_EQ(try_plan(runtime(options()), kForward, 0, &made), TRIGEN_CACHE_ERROR);
  EXPECT_THAT(trigen_last_error(),
              AllOf(HasSubstr("forward,dtype=f32,B=2,H=1,T=20,D=12"), HasSubstr("TRIGEN_NO_JIT"),
                    HasSubstr("trigen tune --arch " + own_target().name.str())));
  {
    const Variable allowed("TRIGEN_NO_JIT", nullptr);
    plan(runtime(options()), kForward);
  }
  Forward forward;
  const trigen_args args = forward.args();
  made = plan(runtime(options()), kForward);
  ASSERT_NE(made, nullptr);
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(forward.dy.take(), forward.expected);
  EXPECT_THAT(info(made).binary_from, StrEq("cache"));
}

TEST_F(PlanTest, ThePolicyForAMiss) {
  trigen_runtime_options given = options();
  given.miss = TRIGEN_MISS_ERROR;
  trigen_plan* made = nullptr;
  EXPECT_EQ(try_plan(runtime(given), kForward, 0, &made), TRIGEN_CACHE_ERROR);
  EXPECT_THAT(trigen_last_error(), AllOf(HasSubstr("no record for forward"),
                                         HasSubstr("trigen tune --arch " + own_target().name.str())));
  given.miss = TRIGEN_MISS_GENERIC;
  made = plan(runtime(given), kForward);
  EXPECT_THAT(info(made).candidate, HasSubstr(",generic"));
  Forward forward;
  const trigen_args args = forward.args();
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(forward.dy.take(), forward.expected);
  // Another shape of the same kind needs no compile.
  made = plan(runtime(given), "forward,dtype=f32,B=3,T=40,D=24");
  EXPECT_THAT(info(made).binary_from, StrEq("cache"));
}

TEST_F(PlanTest, AMeasuredRecordIsTaken) {
  const Problem problem = llvm::cantFail(parse_problem(kForward));
  const Device& device = *llvm::cantFail(Device::open(driver(), 0));
  const auto candidates = llvm::cantFail(list_candidates(problem, device.target()));
  ASSERT_GT(candidates.size(), 1u);
  const Candidate& last = candidates.back();
  auto cache = store();
  Record record = testing::measured_record(last, device);
  record.binary = llvm::cantFail(build(last, *cache)).binary.key;
  ASSERT_EQ(trigen::testing::error_of(cache->put_record(record)), "");
  const trigen_plan_info described = info(plan(runtime(options()), kForward));
  EXPECT_THAT(described.candidate, StrEq(describe(last)));
  EXPECT_THAT(described.provenance, StrEq("measured"));
  EXPECT_THAT(described.match, StrEq("exact"));
  EXPECT_THAT(described.layer, StrEq(cache_));
  EXPECT_EQ(described.expected_us, 12.5);
}

// A shape that was tuned at another batch size: the model's order, corrected by the times of that tune.
TEST_F(PlanTest, AnotherBatchSizeTeaches) {
  const Problem problem = llvm::cantFail(parse_problem(kForward));
  const Device& device = *llvm::cantFail(Device::open(driver(), 0));
  Problem tuned = problem;
  tuned.B = 2 * problem.B;
  const auto untaught = llvm::cantFail(list_candidates(problem, device.target()));
  const auto candidates = llvm::cantFail(list_candidates(tuned, device.target()));
  ASSERT_GT(candidates.size(), 5u);
  // Of five other kernels one ran in a twentieth of its time, the model's choice took ten times as long.
  std::string rows;
  std::string chosen;
  for (const Candidate& candidate : candidates) {
    const bool first = candidate.config == untaught.front().config;
    const double us = predict(candidate, model_of(device.target())).seconds * 1e6 *
                      (first            ? 10
                       : chosen.empty() ? 0.05
                                        : 1);
    if (!first && chosen.empty()) chosen = describe(candidate);
    rows += (rows.empty() ? "" : ",") + ("{\"candidate\":\"" + describe(candidate)) + "\",\"quick_us\":[" +
            std::to_string(us) + "]}";
  }
  auto cache = store();
  Record record = testing::measured_record(candidates.front(), device);
  record.candidate = chosen;
  record.evidence = "{\"candidates\":[" + rows + "]}";
  ASSERT_EQ(trigen::testing::error_of(cache->put_record(record)), "");
  const trigen_plan_info described = info(plan(runtime(options()), kForward));
  EXPECT_THAT(described.candidate, StrEq(chosen));
  EXPECT_THAT(described.provenance, StrEq("predicted"));
  EXPECT_THAT(described.match, StrEq("near"));
  EXPECT_THAT(described.difference, HasSubstr("ranked by times of B=4"));
}

TEST_F(PlanTest, TargetsThatTheDeviceCannotRun) {
  const Target* newer = nullptr;
  for (const Target& target : targets())
    if (target.compute_capability > own_target().compute_capability) newer = &target;
  if (newer == nullptr) GTEST_SKIP() << "[SKIP] no newer target than this device's";
  trigen_runtime_options given = options();
  given.target = newer->name.data();
  trigen_plan* made = nullptr;
  EXPECT_EQ(try_plan(runtime(given), kForward, 0, &made), TRIGEN_UNSUPPORTED);
  EXPECT_THAT(trigen_last_error(), AllOf(HasSubstr("kernels of " + newer->name.str() + " do not run on "),
                                         HasSubstr(own_target().name.str())));
}

// TRIGEN_TARGET=sm_70 on a newer device: kernels of an older target, made from its PTX by the
// driver.
TEST_F(PlanTest, AnOlderTargetRunsFromItsPtx) {
  if (trigen::testing::real_nvrtc("sm_70") == nullptr)
    GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_70; set TRIGEN_NVRTC";
  trigen_runtime_options given = options();
  given.target = "sm_70";
  plan(runtime(given), kForward);  // fills the cache
  const Variable no_jit("TRIGEN_NO_JIT", "1");
  Forward forward;
  trigen_plan* made = plan(runtime(given), kForward);
  ASSERT_NE(made, nullptr);
  const trigen_args args = forward.args();
  ASSERT_EQ(trigen_plan_run(made, &args, nullptr), TRIGEN_OK) << trigen_last_error();
  EXPECT_EQ(forward.dy.take(), forward.expected);
  EXPECT_THAT(info(made).target, StrEq("sm_70"));
  EXPECT_THAT(info(made).binary_from, StrEq("cache"));
  EXPECT_EQ(info(made).loaded_ptx, own_target().compute_capability < 80 && kOnGpu ? 0 : 1);
}

TEST_F(PlanTest, OneEmulatedTargetPerProcess) {
  if (kOnGpu) GTEST_SKIP() << "[SKIP] on a GPU";
  const std::string text = trigen::testing::error_of(Driver::load_emulated("sm_80"));
  EXPECT_THAT(text, HasSubstr("holds one emulated target only"));
}

}  // namespace
}  // namespace trigen
