// Locks: of other programs, of other copies of SQLite in this process, and what drops them.
#include <dlfcn.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sqlite3.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "cache/database.h"
#include "cache/lock.h"
#include "tests/fault/child.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using namespace trigen::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Clock = std::chrono::steady_clock;

// A program that keeps a transaction open on the file, as `sqlite3 cache.db` or a backup tool can.
Child hold_sqlite_lock(const std::string& path, const char* begin) {
  return Child([&](const std::function<void()>& say) -> std::string {
    sqlite3* db = nullptr;
    if (sqlite3_open(path.c_str(), &db) != SQLITE_OK ||
        sqlite3_exec(db, begin, nullptr, nullptr, nullptr) != SQLITE_OK)
      return sqlite3_errmsg(db);
    say();
    pause();
    return "";
  });
}

TEST(CacheLocked, ByAnotherProcessIsABoundedMissAndAnErrorWithThePath) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  auto store = open_store({path}, /*busy_ms=*/200);
  ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
  Child holder = hold_sqlite_lock(path, "BEGIN EXCLUSIVE");
  ASSERT_TRUE(holder.wait_for_word());

  auto start = Clock::now();
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(*store.lines, SizeIs(1));
  const std::string error = message(store->put_binary(sample_binary(2)));
  EXPECT_THAT(error,
              AllOf(HasSubstr("cache '" + path + "' is locked by another program"),
                    HasSubstr("for longer than 200 ms"), HasSubstr("set TRIGEN_CACHE to another file")));
  EXPECT_THAT(store->layers()[0].problem, HasSubstr("is locked by another program"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(3));
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(200)) << "it did wait";

  holder.kill_now();
  EXPECT_TRUE(store->find_binary(sample_binary(1).key)) << "free again";
  EXPECT_EQ(message(store->put_binary(sample_binary(2))), "");
  EXPECT_EQ(store->layers()[0].problem, "");
}

// A plan makes some ten operations on each layer, a list of plans hundreds: all of them wait once.
TEST(CacheLocked, ManyOperationsWaitOnceInAll) {
  CacheFolder folder;
  const std::string path = folder / "cache.db", second = folder / "second.db";
  ASSERT_EQ(message(open_store({path})->put_binary(sample_binary(1))), "");
  ASSERT_EQ(message(open_store({second})->put_binary(sample_binary(1))), "");
  auto store = open_store({path, second}, /*busy_ms=*/300);
  std::vector<Child> holders;
  for (const std::string& each : {path, second}) holders.push_back(hold_sqlite_lock(each, "BEGIN EXCLUSIVE"));
  for (Child& holder : holders) ASSERT_TRUE(holder.wait_for_word());
  const auto start = Clock::now();
  for (int i = 0; i < 16; ++i) {
    EXPECT_FALSE(store->find_binary(sample_binary(1).key));
    EXPECT_FALSE(store->find_record("forward", {"sm_80"}, {"A100", 108, "580"}));
  }
  EXPECT_NE(message(store->put_binary(sample_binary(2))), "");
  store->layers();
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(300));
  EXPECT_LT(Clock::now() - start, std::chrono::milliseconds(2000)) << "32 look-ups of two layers wait 19 s";
  EXPECT_THAT(*store.lines, SizeIs(2)) << "one line a layer: " << store.log();
  for (Child& holder : holders) holder.kill_now();
  EXPECT_TRUE(store->find_binary(sample_binary(1).key)) << "free again";
  EXPECT_EQ(message(store->put_binary(sample_binary(2))), "");
  Child again = hold_sqlite_lock(path, "BEGIN EXCLUSIVE");
  ASSERT_TRUE(again.wait_for_word());
  const auto later = Clock::now();
  EXPECT_NE(message(store->put_binary(sample_binary(3))), "");
  EXPECT_GE(Clock::now() - later, std::chrono::milliseconds(300)) << "a new lock is waited for again";
}

TEST(CacheLocked, AReaderOfAnotherProgramDoesNotStopLookUps) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  auto store = open_store({path}, /*busy_ms=*/200);
  ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
  Child holder = hold_sqlite_lock(path, "BEGIN; SELECT count(*) FROM binaries");
  ASSERT_TRUE(holder.wait_for_word());
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(message(store->put_binary(sample_binary(2))), HasSubstr("is locked by another program"));
}

TEST(CacheLocked, ByAnotherTrigenThroughTheLockFile) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  auto store = open_store({path}, /*busy_ms=*/200);
  ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
  Child holder([&](const std::function<void()>& say) -> std::string {
    cache::RangeLock lock;
    int error = 0;
    if (lock.acquire(path + ".lock", cache::kLayerByte, cache::LockKind::kExclusive, true, Clock::now(),
                     error) != cache::LockResult::kLocked)
      return "no lock";
    say();
    pause();
    return "";
  });
  ASSERT_TRUE(holder.wait_for_word());
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(message(store->put_binary(sample_binary(2))), HasSubstr("is locked by another program"));
  kill(holder.pid(), SIGKILL);  // the kernel gives the lock back
  EXPECT_NE(holder.join(), "");
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
}

TEST(CacheLocked, AWaiterGetsItWhenTheHolderEndsInTime) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  auto store = open_store({path}, /*busy_ms=*/5000);
  ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
  Child holder([&](const std::function<void()>& say) -> std::string {
    sqlite3* db = nullptr;
    sqlite3_open(path.c_str(), &db);
    if (sqlite3_exec(db, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr) != SQLITE_OK)
      return sqlite3_errmsg(db);
    say();
    usleep(200000);
    sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
    sqlite3_close(db);
    return "";
  });
  ASSERT_TRUE(holder.wait_for_word());
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
  EXPECT_EQ(message(store->put_binary(sample_binary(2))), "");
  EXPECT_EQ(holder.join(), "");
}

// The distribution's shared library is a second copy of SQLite, as Python's is: it knows nothing of ours.
struct OtherSqlite {
  void* library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
  decltype(&sqlite3_open) open_file =
      library ? reinterpret_cast<decltype(&sqlite3_open)>(dlsym(library, "sqlite3_open")) : nullptr;
  decltype(&sqlite3_exec) exec =
      library ? reinterpret_cast<decltype(&sqlite3_exec)>(dlsym(library, "sqlite3_exec")) : nullptr;
  decltype(&sqlite3_close) close_file =
      library ? reinterpret_cast<decltype(&sqlite3_close)>(dlsym(library, "sqlite3_close")) : nullptr;
  // Opens, reads and closes the file as an application's own use would.
  bool visit(const std::string& path) const {
    sqlite3* db = nullptr;
    bool good = open_file(path.c_str(), &db) == SQLITE_OK;
    exec(db, "SELECT count(*) FROM binaries", nullptr, nullptr, nullptr);  // may be busy
    close_file(db);
    return good;
  }
};

// Another process that tries to begin a transaction each time it is asked. It is made before any connection,
// so that it inherits none.
class Rival {
 public:
  explicit Rival(const std::string& path) {
    if (pipe(ask_) != 0 || pipe(answer_) != 0) ADD_FAILURE() << "no pipe";
    child_.emplace([this, path](const std::function<void()>&) -> std::string {
      close(ask_[1]);
      char byte;
      while (read(ask_[0], &byte, 1) == 1) {
        sqlite3* db = nullptr;
        sqlite3_open(path.c_str(), &db);
        byte = sqlite3_exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr) == SQLITE_OK ? 'y' : 'n';
        sqlite3_close(db);
        if (write(answer_[1], &byte, 1) != 1) return "pipe";
      }
      return "";
    });
  }
  ~Rival() {
    for (int end : {ask_[0], ask_[1], answer_[0], answer_[1]}) close(end);
    EXPECT_EQ(child_->join(), "");
  }
  Rival(const Rival&) = delete;
  Rival& operator=(const Rival&) = delete;
  bool enters() {
    char byte = '?';
    return write(ask_[1], "?", 1) == 1 && read(answer_[0], &byte, 1) == 1 && byte == 'y';
  }

 private:
  int ask_[2], answer_[2];
  std::optional<Child> child_;
};

// The hazard, shown with a plain SQLite, so that the test after it means something.
TEST(CacheLocked, PlainSqlitesLocksAreDroppedByAForeignClose) {
  OtherSqlite other;
  if (other.library == nullptr) GTEST_SKIP() << "no libsqlite3.so.0 here: " << dlerror();
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  ASSERT_EQ(message(open_store({path})->put_binary(sample_binary(1))), "");
  Rival rival(path);
  EXPECT_TRUE(rival.enters());
  sqlite3* db = nullptr;
  ASSERT_EQ(other.open_file(path.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(other.exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_OK);
  EXPECT_FALSE(rival.enters());
  close(open(path.c_str(), O_RDONLY));
  EXPECT_TRUE(rival.enters()) << "not dropped: locks of our own may have become unnecessary";
  other.close_file(db);
}

TEST(CacheLocked, OurTransactionsSurviveAnotherSqliteInThisProcess) {
  OtherSqlite other;
  if (other.library == nullptr) GTEST_SKIP() << "no libsqlite3.so.0 here: " << dlerror();
  ASSERT_NE(reinterpret_cast<void*>(other.open_file), reinterpret_cast<void*>(&sqlite3_open))
      << "not a second copy";
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  ASSERT_EQ(message(open_store({path})->put_binary(sample_binary(1))), "");
  Rival rival(path);
  cache::Database ours;
  ASSERT_TRUE(ours.open(path, cache::OpenMode::kReadWrite, 100).ok());
  ASSERT_TRUE(ours.run("BEGIN IMMEDIATE; DELETE FROM binaries").ok());
  EXPECT_FALSE(rival.enters());
  ASSERT_TRUE(other.visit(path));
  close(open(path.c_str(), O_RDONLY));
  EXPECT_FALSE(rival.enters()) << "our lock was dropped";
  sqlite3* db = nullptr;
  ASSERT_EQ(other.open_file(path.c_str(), &db), SQLITE_OK);
  EXPECT_EQ(other.exec(db, "BEGIN IMMEDIATE", nullptr, nullptr, nullptr), SQLITE_BUSY)
      << "it does not see our lock";
  other.close_file(db);
  EXPECT_TRUE(ours.run("COMMIT").ok());
  ours.close();
  EXPECT_TRUE(rival.enters());
}

TEST(CacheLocked, LockFileAndLeasesSurviveAnotherSqliteInThisProcess) {
  OtherSqlite other;
  if (other.library == nullptr) GTEST_SKIP() << "no libsqlite3.so.0 here: " << dlerror();
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  auto store = open_store({path}, 200);
  ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
  std::unique_ptr<Store::Lease> lease;
  ASSERT_EQ(store->lease(sample_binary(2).key, 0, lease), Store::LeaseState::kOwner);
  cache::RangeLock layer_lock;
  int error = 0;
  ASSERT_EQ(layer_lock.acquire(path + ".lock", cache::kLayerByte, cache::LockKind::kExclusive, true,
                               Clock::now(), error),
            cache::LockResult::kLocked);
  ASSERT_TRUE(other.visit(path));
  close(open(path.c_str(), O_RDONLY));
  close(open((path + ".lock").c_str(), O_RDWR));

  Child process([&](const std::function<void()>&) -> std::string {
    auto theirs = open_store({path}, 100);
    if (message(theirs->put_binary(sample_binary(3))).empty()) return "a put entered our transaction";
    std::unique_ptr<Store::Lease> second;
    if (theirs->lease(sample_binary(2).key, 0, second) != Store::LeaseState::kTimedOut)
      return "a second owner of the lease";
    return "";
  });
  EXPECT_EQ(process.join(), "");
}

// Two processes write while a thread in each opens and closes the file through the other copy all the time.
TEST(CacheLocked, WritersStayCorrectBesideAnotherSqlite) {
  OtherSqlite other;
  if (other.library == nullptr) GTEST_SKIP() << "no libsqlite3.so.0 here: " << dlerror();
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  constexpr unsigned kPuts = 60;
  std::vector<Child> children;
  for (unsigned c = 0; c < 2; ++c)
    children.emplace_back([&, c](const std::function<void()>&) -> std::string {
      auto store = open_store({path});
      std::atomic<bool> stop{false};
      std::thread meddler([&] {
        while (!stop) {
          other.visit(path);
          std::this_thread::sleep_for(std::chrono::microseconds(300));
        }
      });
      std::string problem;
      for (unsigned i = 0; i < kPuts && problem.empty(); ++i) {
        const Binary binary = sample_binary(c * 1000 + i, 8000);
        problem = message(store->put_binary(binary));
        if (problem.empty() && !store->find_binary(binary.key)) problem = "a binary is lost: " + store.log();
      }
      stop = true;
      meddler.join();
      return problem;
    });
  for (Child& child : children) EXPECT_EQ(child.join(), "");
  auto store = open_store({path});
  EXPECT_EQ(store->layers()[0].binaries, 2 * kPuts);
  EXPECT_THAT(store->verify(), IsEmpty());
}

}  // namespace
}  // namespace trigen
