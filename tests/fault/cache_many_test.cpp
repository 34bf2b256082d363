// Many processes on one file: one compile a key, no error, and other programs' connections in between.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdlib.h>

#include <chrono>
#include <fstream>
#include <iterator>

#include "tests/fault/child.h"
#include "tests/thorough.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using namespace trigen::testing;
using ::testing::IsEmpty;

// Starts that many processes at one moment and waits for all; each text is "" or what went wrong.
void all_at_once(unsigned processes, const std::function<std::string(unsigned)>& work) {
  int start[2];
  ASSERT_EQ(pipe2(start, O_CLOEXEC), 0);
  std::vector<Child> children;
  for (unsigned p = 0; p < processes; ++p)
    children.emplace_back([&, p](const std::function<void()>&) -> std::string {
      close(start[1]);
      char byte;
      if (read(start[0], &byte, 1) != 0) return "start";
      return work(p);
    });
  close(start[0]);
  close(start[1]);
  for (Child& child : children) EXPECT_EQ(child.join(), "");
}

TEST(CacheMany, ThirtyTwoProcessesCompileAColdKeyOnce) {
  CacheFolder folder;
  const std::string path = folder / "new/cache.db";
  int compiles[2];
  ASSERT_EQ(pipe2(compiles, O_CLOEXEC | O_NONBLOCK), 0);
  const Binary binary = sample_binary(1, 100000);
  all_at_once(32, [&](unsigned) -> std::string {
    auto store = open_store({path}, 20000);
    std::unique_ptr<Store::Lease> lease;
    if (!store->find_binary(binary.key)) {
      const auto state = store->lease(binary.key, 20000, lease);
      if (state == Store::LeaseState::kTimedOut) return "timed out";
      if (state == Store::LeaseState::kOwner) {
        usleep(200000);  // the compile
        if (write(compiles[1], "c", 1) != 1) return "pipe";
        if (auto error = store->put_binary(binary)) return message(std::move(error));
      }
    }
    const auto found = store->find_binary(binary.key);
    return found && found->cubin == binary.cubin ? store.log() : "not found; " + store.log();
  });
  char bytes[64];
  EXPECT_EQ(read(compiles[0], bytes, sizeof bytes), 1) << "compiles";
  close(compiles[0]);
  close(compiles[1]);
}

TEST(CacheMany, SixteenProcessesOnANewFileAgainAndAgain) {
  const unsigned rounds = thorough() ? 30 : 6;
  for (unsigned round = 0; round < rounds; ++round) {
    SCOPED_TRACE(round);
    CacheFolder folder;
    const std::string path = folder / "cache.db";
    all_at_once(16, [&](unsigned p) -> std::string {
      auto store = open_store({path}, 20000);
      if (auto error = store->put_binary(sample_binary(p, 5000))) return message(std::move(error));
      Record record = sample_record(Provenance::kMeasured, "GPU " + std::to_string(p), 108, "580");
      if (auto error = store->put_record(record)) return message(std::move(error));
      return store->find_binary(sample_binary(p, 5000).key) ? store.log() : "not found";
    });
    auto store = open_store({path});
    EXPECT_EQ(store->layers()[0].binaries, 16);
    EXPECT_EQ(store->layers()[0].records, 16);
    EXPECT_THAT(store->verify(), IsEmpty());
  }
}

// Python's sqlite3, as a user at a prompt: reads, holds a read transaction, takes the write lock for moments.
TEST(CacheMany, PythonsSqliteOnTheSameFile) {
  if (std::system("python3 -c 'import sqlite3' 2>/dev/null") != 0)
    GTEST_SKIP() << "[SKIP] no python3 with sqlite3";
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  auto store = open_store({path}, 20000);
  ASSERT_EQ(message(store->put_binary(sample_binary(0))), "");
  const std::string script = folder / "other.py", out = folder / "out.txt";
  std::ofstream(script) << R"(import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], timeout=20, isolation_level=None)
until = time.time() + 1.5
rounds = 0
while time.time() < until:
    db.execute("BEGIN")
    n = db.execute("SELECT count(*) FROM binaries").fetchone()[0]
    assert n >= 1, n
    db.execute("COMMIT")
    db.execute("BEGIN IMMEDIATE")
    time.sleep(0.002)
    db.execute("ROLLBACK")
    assert db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    rounds += 1
assert rounds > 3, rounds
)";
  Child python([&](const std::function<void()>& say) -> std::string {
    say();
    const int code = std::system(("python3 '" + script + "' '" + path + "' > '" + out + "' 2>&1").c_str());
    std::ifstream text(out);
    return code == 0 ? "" : "python: " + std::string(std::istreambuf_iterator<char>(text), {});
  });
  ASSERT_TRUE(python.wait_for_word());
  unsigned n = 1;
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
       std::chrono::steady_clock::now() < until; ++n) {
    ASSERT_EQ(message(store->put_binary(sample_binary(n, 3000))), "");
    ASSERT_TRUE(store->find_binary(sample_binary(n, 3000).key)) << store.log();
  }
  EXPECT_EQ(python.join(), "");
  EXPECT_EQ(store->layers()[0].binaries, n);
  EXPECT_THAT(store->verify(), IsEmpty());
  EXPECT_EQ(store.log(), "");
}

}  // namespace
}  // namespace trigen
