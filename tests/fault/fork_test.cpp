// fork() beside threads that make plans: a child finds every lock free, or is told that it was forked.
#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

#include "cache/lock.h"
#include "tests/fault/child.h"

namespace trigen {
namespace {

using cache::Call;
using testing::Child;
using Clock = std::chrono::steady_clock;

TEST(Fork, ChildrenOfThreadsThatMakePlansDoNotHang) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP()
      << "[SKIP] the address sanitizer's allocator does not survive a fork beside threads that allocate";
#endif
  std::mutex table;  // as the runtime's: no fork handler of its own
  std::atomic<bool> stop{false};
  std::atomic<unsigned> rounds{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop) {
        const Call call;
        const Call nested;  // a call that calls another is one
        const std::lock_guard<std::mutex> lock(table);
        ++rounds;
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    });
  unsigned refused = 0;
  for (int i = 0; i < 30; ++i) {
    Child child([&](const std::function<void()>&) -> std::string {
      const Call call;
      if (!call.allowed()) return "refused";
      return table.try_lock() ? "" : "a lock of the parent's thread is held";
    });
    const std::string result = child.join();
    refused += result == "refused";
    EXPECT_TRUE(result.empty() || result == "refused") << result;
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(refused, 3u) << "calls of 50 us end within the wait";
  EXPECT_GT(rounds, 30u) << "the threads went on after each fork";
}

TEST(Fork, AChildOfALongCallIsToldSo) {
  std::atomic<bool> inside{false}, stop{false};
  std::thread compiles([&] {
    const Call call;
    inside = true;
    while (!stop) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  while (!inside) std::this_thread::yield();
  const auto start = Clock::now();
  Child child([&](const std::function<void()>&) -> std::string {
    const Call call;
    if (call.allowed()) return "allowed";
    Child grandchild([](const std::function<void()>&) -> std::string {
      return Call().allowed() ? "allowed after another fork" : "";
    });
    return grandchild.join();
  });
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(1)) << "fork() waited for the compile";
  EXPECT_EQ(child.join(), "");
  EXPECT_TRUE(Call().allowed()) << "the parent goes on";
  stop = true;
  compiles.join();
  // One that forks itself inside a call does not wait for itself.
  const Call own;
  Child of_own([](const std::function<void()>&) -> std::string { return Call().allowed() ? "" : "refused"; });
  EXPECT_EQ(of_own.join(), "");
}

}  // namespace
}  // namespace trigen
