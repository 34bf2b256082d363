// A shipped layer's connection is opened once and its statements are prepared once, as counted in SQLite itself;
// a file that changed, or another one in its place, is opened anew.
#include "cache/index.h"

#include <gmock/gmock.h>
#include <sqlite3.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <thread>

#include "cache/layer.h"
#include "cache/row.h"
#include "tests/fault/child.h"
#include "tests/unit/cache_testing.h"

namespace trigen::cache {
namespace {

using namespace trigen::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::atomic<int> connections, prepared;

int count_prepared(void*, int action, const char*, const char*, const char*, const char*) {
  prepared += action == SQLITE_SELECT ? 1 : 0;  // the authorizer is asked while a statement is prepared
  return SQLITE_OK;
}

int count_connection(sqlite3* database, char**, const sqlite3_api_routines*) {
  ++connections;
  return sqlite3_set_authorizer(database, count_prepared, nullptr);
}

// Past the time in which a file that changed may change again unseen.
void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(80)); }

constexpr unsigned kRows = 12;

class Connection : public ::testing::Test {
 protected:
  Connection() {
    sqlite3_auto_extension(reinterpret_cast<void (*)()>(count_connection));
    fill(path_, 0);
    settle();
    connections = prepared = 0;
  }
  ~Connection() override { sqlite3_cancel_auto_extension(reinterpret_cast<void (*)()>(count_connection)); }

  // A file without a lock file beside it: a shipped layer.
  void fill(const std::string& path, unsigned first) const {
    const std::string made = folder_ / "made.db";
    {
      const OpenStore store = open_store({made});
      for (unsigned n = first; n < first + kRows; ++n) {
        EXPECT_EQ(message(store->put_binary(sample_binary(n))), "");
        Record record = sample_record(Provenance::kMeasured, "A100", 108, "580", "simt:tile=1");
        record.problem = "problem " + std::to_string(n);
        EXPECT_EQ(message(store->put_record(record)), "");
      }
    }
    std::filesystem::copy_file(made, path);
    std::filesystem::remove(made);
  }
  OpenStore open() const { return open_store({folder_ / "user.db", path_}); }
  static bool has(const OpenStore& store, unsigned n) {
    const std::string problem = "problem " + std::to_string(n);
    return store->find_record(problem, {"sm_80"}, {"A100", 108, "580"}).has_value() &&
           store->find_binary(sample_binary(n).key, BinaryParts::kCubin).has_value();
  }

  CacheFolder folder_;
  const std::string path_ = folder_ / "shipped.db";
};

TEST_F(Connection, IsOpenedAndPreparesEachStatementOnce) {
  const OpenStore store = open();
  for (unsigned n = 0; n < 4; ++n) EXPECT_TRUE(has(store, n)) << n;
  EXPECT_EQ(connections, 1);
  // Of the schema, of a record's choice, of a record, of the index' size (three), rows and keys, and of a binary.
  EXPECT_LE(prepared, 10);
  const int before = prepared;
  for (unsigned n = 0; n < kRows; ++n) EXPECT_TRUE(has(store, n)) << n;
  EXPECT_EQ(connections, 1);
  EXPECT_EQ(prepared, before) << "statements are prepared anew";
  EXPECT_THAT(*store.lines, IsEmpty());
}

TEST_F(Connection, AFileThatIsWrittenIsOpenedForEachLookUp) {
  const OpenStore store = open_store({path_});  // the user layer: others may write it
  EXPECT_TRUE(has(store, 0));
  EXPECT_TRUE(has(store, 1));
  EXPECT_GE(connections, 3);
}

TEST_F(Connection, AnotherFileInItsPlaceIsSeen) {
  const OpenStore store = open();
  for (unsigned n = 0; n < 4; ++n) EXPECT_TRUE(has(store, n));
  const std::string other = folder_ / "other.db";
  fill(other, 100);
  std::filesystem::rename(other, path_);
  settle();
  EXPECT_FALSE(has(store, 0));
  EXPECT_TRUE(has(store, 100));
  std::filesystem::remove(path_);
  EXPECT_FALSE(has(store, 100));
  EXPECT_THAT(*store.lines, IsEmpty());
}

TEST_F(Connection, ARowThatChangesUnderItIsFoundDamaged) {
  const OpenStore store = open();
  for (unsigned n = 0; n < 4; ++n) EXPECT_TRUE(has(store, n));
  run_sql(path_, "UPDATE binaries SET cubin=zeroblob(length(cubin)) WHERE source_hash='source2'");
  settle();
  EXPECT_TRUE(has(store, 1));
  EXPECT_FALSE(has(store, 2));
  EXPECT_THAT(store.log(), HasSubstr("is damaged (its SHA-256 does not match)"));
}

TEST_F(Connection, IsNotCarriedAcrossAFork) {
  const OpenStore store = open();
  for (unsigned n = 0; n < 4; ++n) EXPECT_TRUE(has(store, n));
  const auto is_open = [this] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
      std::error_code ignored;
      if (std::filesystem::read_symlink(entry.path(), ignored) == path_) return true;
    }
    return false;
  };
  EXPECT_TRUE(is_open());
  testing::Child child([&](const std::function<void()>&) -> std::string {
    if (is_open()) return "the child has its parent's connection";
    for (unsigned n = 0; n < kRows; ++n)
      if (!has(store, n)) return "the child finds nothing";
    return is_open() ? "" : "the child keeps none of its own";
  });
  EXPECT_EQ(child.join(), "");
  const int before = connections;
  for (unsigned n = 0; n < kRows; ++n) EXPECT_TRUE(has(store, n));
  EXPECT_EQ(connections, before + 1) << "the parent opened it again, once";
}

TEST_F(Connection, ManyThreadsShareAStore) {
  const OpenStore store = open();
  std::atomic<int> missed{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int round = 0; round < 10; ++round)
        for (unsigned n = 0; n < kRows; ++n) missed += has(store, n) ? 0 : 1;
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(missed, 0);
}

// PTX that is no zstd frame, under a digest that fits: what a plan needs not is not unpacked.
TEST_F(Connection, ACubinIsReadWithoutUnpackingWhatLiesBesideIt) {
  Database database;
  ASSERT_TRUE(database.open(path_, OpenMode::kReadWrite, 1000).ok());
  BinaryRow row;
  {
    Statement rows(
        database,
        (std::string("SELECT ") + kBinaryColumns + " FROM binaries WHERE source_hash='source3'").c_str());
    std::string name;
    ASSERT_TRUE(rows.step());
    ASSERT_EQ(read_binary_row(rows, row, name), RowState::kGood);
  }
  row.packed.ptx = "no frame";
  row.packed.source = "none either";
  set_stored_at(row, 1);  // with its digest
  ASSERT_TRUE(insert_binary_row(database, row).ok());
  database.close();
  settle();
  const OpenStore store = open();
  const auto found = store->find_binary(sample_binary(3).key, BinaryParts::kCubin);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->cubin == sample_binary(3).cubin);
  EXPECT_FALSE(store->find_binary(sample_binary(3).key).has_value()) << "whole, it is damaged";
}

}  // namespace
}  // namespace trigen::cache
