// Leases within one process: threads and stores exclude each other as processes do (tests/fault has the
// processes).
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "cache/store.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using namespace trigen::testing;
using State = Store::LeaseState;

TEST(CacheLease, OneOwnerUntilItIsDropped) {
  CacheFolder folder;
  auto a = open_store({folder / "cache.db"}), b = open_store({folder / "cache.db"});
  std::unique_ptr<Store::Lease> first, second, third;
  const BinaryKey key = sample_binary(1).key;
  EXPECT_EQ(a->lease(key, 0, first), State::kOwner);
  EXPECT_TRUE(first);
  EXPECT_EQ(a->lease(key, 0, second), State::kTimedOut) << "the same store";
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(b->lease(key, 150, second), State::kTimedOut) << "another store";
  const auto waited = std::chrono::steady_clock::now() - start;
  EXPECT_GE(waited, std::chrono::milliseconds(150));
  EXPECT_LT(waited, std::chrono::milliseconds(1500));
  EXPECT_FALSE(second);
  EXPECT_EQ(b->lease(sample_binary(2).key, 0, third), State::kOwner) << "another key";
  first.reset();
  EXPECT_EQ(b->lease(key, 0, second), State::kOwner) << "the owner gave up without a binary";
}

// A mark stays where its owner dies, and only there.
TEST(CacheLease, AMarkSaysWhatNeverEnded) {
  CacheFolder folder;
  auto a = open_store({folder / "cache.db"}), b = open_store({folder / "cache.db"});
  const auto files = [&] {
    size_t marks = 0;
    for (const auto& entry :
         std::filesystem::directory_iterator(std::filesystem::path(folder / "cache.db").parent_path()))
      marks += entry.path().filename().string().rfind("cache.db.begun-", 0) == 0 ? 1 : 0;
    return marks;
  };
  bool unended = true;
  auto mark = a->try_mark("x", unended);
  ASSERT_TRUE(mark);
  EXPECT_FALSE(unended);
  EXPECT_EQ(files(), 1u);
  EXPECT_FALSE(b->try_mark("x", unended)) << "somebody is at it";
  EXPECT_FALSE(unended);
  EXPECT_TRUE(b->try_mark("y", unended)) << "another name";
  mark.reset();
  EXPECT_EQ(files(), 0u);
  EXPECT_TRUE(b->try_mark("x", unended));
  EXPECT_FALSE(unended);

  const pid_t child = ::fork();
  if (child == 0) {
    auto own = open_store({folder / "cache.db"});
    const auto held = own->try_mark("x", unended);
    ::_exit(held && !unended ? 0 : 1);
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(files(), 1u);
  mark = a->try_mark("x", unended);
  EXPECT_TRUE(mark);
  EXPECT_TRUE(unended);
  mark.reset();
  EXPECT_TRUE(a->try_mark("x", unended));
  EXPECT_FALSE(unended) << "told once";
  EXPECT_FALSE(open_store({folder / "cache.db"}, 5000, /*read_only=*/true)->try_mark("x", unended));
  EXPECT_FALSE(open_store({"none"})->try_mark("x", unended));
  EXPECT_EQ(files(), 0u);
}

TEST(CacheLease, WaitersFindTheBinaryDone) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  const Binary binary = sample_binary(1);
  std::unique_ptr<Store::Lease> owner;
  ASSERT_EQ(store->lease(binary.key, 0, owner), State::kOwner);
  std::atomic<int> done{0}, other{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 8; ++i)
    waiters.emplace_back([&] {
      std::unique_ptr<Store::Lease> lease;
      const State state = store->lease(binary.key, 8000, lease);
      ++(state == State::kDone && !lease && store->find_binary(binary.key) ? done : other);
    });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  ASSERT_EQ(message(store->put_binary(binary)), "");
  owner.reset();
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(done, 8);
  EXPECT_EQ(other, 0);
  EXPECT_EQ(store->lease(binary.key, 0, owner), State::kDone)
      << "a late caller whose look-up missed before the put";
}

TEST(CacheLease, ThreadsOfOneProcessCompileOnce) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  constexpr int kKeys = 10;
  std::atomic<int> compiles[kKeys] = {};
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kKeys; ++i) {
        const int k = (i + t) % kKeys;
        const Binary binary = sample_binary(static_cast<unsigned>(k));
        if (store->find_binary(binary.key)) continue;
        std::unique_ptr<Store::Lease> lease;
        const State state = store->lease(binary.key, 8000, lease);
        if (state == State::kOwner) {
          ++compiles[k];
          if (!message(store->put_binary(binary)).empty()) ++failures;
        } else if (state != State::kDone) {
          ++failures;
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (int k = 0; k < kKeys; ++k) EXPECT_EQ(compiles[k], 1) << k;
  EXPECT_EQ(failures, 0);
}

TEST(CacheLease, ReadOnlyFolderStillCompilesOncePerProcess) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"}, 1000, /*read_only=*/true);
  std::unique_ptr<Store::Lease> first, second;
  EXPECT_EQ(store->lease(sample_binary(1).key, 0, first), State::kOwner);
  EXPECT_EQ(store->lease(sample_binary(1).key, 20, second), State::kTimedOut);
  first.reset();
  EXPECT_EQ(store->lease(sample_binary(1).key, 0, second), State::kOwner);
}

// A child of fork() neither holds nor drops its parent's lease.
TEST(CacheLease, ForkedChildOwnsNothing) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  const BinaryKey key = sample_binary(1).key;
  std::unique_ptr<Store::Lease> lease;
  ASSERT_EQ(store->lease(key, 0, lease), State::kOwner);
  int gone[2];
  ASSERT_EQ(pipe(gone), 0);
  const pid_t child = fork();
  if (child == 0) {
    lease.reset();  // must not unlock the parent's
    std::unique_ptr<Store::Lease> own;
    const bool excluded = store->lease(key, 0, own) == State::kTimedOut;
    char byte = excluded ? 'x' : 'o';
    if (write(gone[1], &byte, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(gone[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'x') << "the child was excluded by its parent";
  std::unique_ptr<Store::Lease> again;
  EXPECT_EQ(store->lease(key, 0, again), State::kTimedOut) << "the child's reset must not have dropped it";
  // The child lives on with copies of everything; the parent's drop counts all the same.
  lease.reset();
  EXPECT_EQ(store->lease(key, 0, again), State::kOwner);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(gone[0]);
  close(gone[1]);
}

}  // namespace
}  // namespace trigen
