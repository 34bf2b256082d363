// fork() beside threads that work on the emulated device: a child makes, runs and destroys plans of its own.
#include <gmock/gmock.h>
#include <trigen/trigen_memory.h>

#include <atomic>
#include <thread>

#include "../fault/child.h"
#include "../thorough.h"
#include "plan_testing.h"

namespace trigen {
namespace {

using trigen::testing::Child;
using trigen::testing::kForward;
using trigen::testing::PlanTest;

constexpr int kElements = 2 * 20 * 12, kWeights = 20 * 20;

// Everything that a program does once, with a runtime of its own: "" or what failed.
std::string work_once(const trigen_runtime_options& options) {
  trigen_runtime* runtime = nullptr;
  trigen_plan* plan = nullptr;
  trigen_problem problem;
  problem.struct_size = sizeof problem;
  std::string failed;
  const auto is_done = [&](trigen_status status) {
    if (status != TRIGEN_OK && failed.empty()) failed = trigen_last_error();
    return status == TRIGEN_OK;
  };
  trigen_args args = TRIGEN_ARGS_INIT;
  void *x = nullptr, *w = nullptr;
  std::vector<float> ones(kElements, 1.f), y(kElements), weights(kWeights, 1.f);
  if (is_done(trigen_runtime_create(&options, &runtime)) &&
      is_done(trigen_problem_parse(kForward, &problem)) &&
      is_done(trigen_plan_create(runtime, &problem, 0, &plan)) &&
      is_done(trigen_memory_allocate(runtime, 0, kElements * 4, &x)) &&
      is_done(trigen_memory_allocate(runtime, 0, kWeights * 4, &w)) &&
      is_done(trigen_memory_allocate(runtime, 0, kElements * 4, &args.y.data)) &&
      is_done(trigen_memory_write(runtime, 0, x, ones.data(), kElements * 4)) &&
      is_done(trigen_memory_write(runtime, 0, w, weights.data(), kWeights * 4))) {
    args.x.data = x;
    args.w = w;
    if (is_done(trigen_plan_run(plan, &args, nullptr)) &&
        is_done(trigen_memory_read(runtime, 0, y.data(), args.y.data, kElements * 4)) &&
        (y[0] != 1 || y[kElements - 1] != 20))
      failed = "a wrong result";
  }
  for (void* memory : {x, w, args.y.data}) is_done(trigen_memory_free(runtime, 0, memory));
  trigen_plan_destroy(plan);
  trigen_runtime_destroy(runtime);
  return failed;
}

TEST_F(PlanTest, ChildrenOfThreadsThatUseTheDeviceWork) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "[SKIP] the address sanitizer's allocator does not survive a fork beside threads that allocate";
#endif
  const trigen_runtime_options given = options();
  ASSERT_EQ(work_once(given), "");  // compiles
  std::atomic<bool> stop{false};
  std::atomic<int> rounds{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        EXPECT_EQ(work_once(given), "");
        ++rounds;
      }
    });
  const int forks = thorough() ? 600 : 100;
  int refused = 0;
  for (int i = 0; i < forks; ++i) {
    Child child([&](const std::function<void()>&) {
      ::alarm(10);  // one that hangs
      return work_once(given);
    });
    const std::string result = child.join();
    const bool told = result.find("was forked while another thread") != std::string::npos;
    refused += told ? 1 : 0;
    EXPECT_TRUE(result.empty() || told) << "child " << i << ": " << result;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(refused, forks / 20) << "no call here takes long";
  EXPECT_GT(rounds, 3) << "the threads went on after each fork";
}

}  // namespace
}  // namespace trigen
