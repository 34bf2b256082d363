// The index of a file that stays as it is: the same answers as the file's, and none of a file that changed.
#include "cache/index.h"

#include <gmock/gmock.h>
#include <sqlite3.h>

#include <chrono>
#include <thread>

#include "cache/layer.h"
#include "tests/unit/cache_testing.h"

namespace trigen::cache {
namespace {

using namespace trigen::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Record record_of(int n, const std::string& device = "A100") {
  Record r = sample_record(Provenance::kMeasured, device, 108, "580", "simt:tile=" + std::to_string(n));
  r.problem = "problem " + std::to_string(n);
  r.evidence = "{\"n\":" + std::to_string(n) + "}";
  return r;
}

// Past the time in which a file that changed may change again unseen.
void settle() { std::this_thread::sleep_for(std::chrono::milliseconds(80)); }

class Indexed : public ::testing::Test {
 protected:
  Indexed() {
    auto store = open_store({path_});
    for (int n = 0; n < 5; ++n) {
      EXPECT_EQ(message(store->put_record(record_of(n))), "");
      EXPECT_EQ(message(store->put_binary(sample_binary(static_cast<unsigned>(n)))), "");
    }
    EXPECT_EQ(message(store->put_record(record_of(0, "H100"))), "");
    settle();
  }
  // A look-up's answer as text, "" for none.
  static std::string found(const OpenStore& store, int n, const std::string& device = "A100") {
    const auto answer = store->find_record("problem " + std::to_string(n), {"sm_80"}, {device, 108, "580"});
    if (!answer) return "";
    return answer->record.candidate + " " + answer->record.device + " " + answer->record.evidence + " " +
           std::to_string(static_cast<int>(answer->match)) + " " + answer->difference + " " + answer->layer;
  }
  static bool has(const OpenStore& store, unsigned n) {
    return store->find_binary(sample_binary(n).key).has_value();
  }
  // Asks until the index must be there.
  static OpenStore warm(const std::string& path) {
    OpenStore store = open_store({path});
    for (int i = 0; i < 6; ++i) found(store, 99);
    return store;
  }

  CacheFolder folder_;
  const std::string path_ = folder_ / "cache.db";
};

TEST_F(Indexed, IsMadeAfterAFewQuestionsAndDroppedWhenTheFileChanges) {
  LockTimeout timeout(1000);
  Log log({});
  const Signers signers;
  Layer layer({path_, true, false}, false, &timeout, &log, &signers);
  const auto index = [&] { return layer.index().get(layer, [](const std::string&) {}); };
  for (int i = 0; i < 3; ++i) EXPECT_EQ(index(), nullptr) << i;
  const auto made = index();
  ASSERT_NE(made, nullptr);
  EXPECT_EQ(made->binaries.size(), 5u);
  EXPECT_EQ(made->records.size(), 5u);
  EXPECT_EQ(index(), made) << "made once";
  EXPECT_EQ(message(open_store({path_})->put_record(record_of(7))), "");
  // A stamp in the future, so that a slow machine finds the file young, too.
  using Stamp = std::filesystem::file_time_type::clock;
  std::filesystem::last_write_time(path_, Stamp::now() + std::chrono::hours(1));
  for (int i = 0; i < 6; ++i) EXPECT_EQ(index(), nullptr) << "it may change again within the clock's tick";
  std::filesystem::last_write_time(path_, Stamp::now());
  settle();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(index(), nullptr) << i;
  ASSERT_NE(index(), nullptr);
  EXPECT_EQ(index()->records.size(), 6u);
  std::filesystem::remove(path_);
  ASSERT_NE(index(), nullptr) << "where no file is, nothing is to be asked";
  EXPECT_TRUE(index()->records.empty() && index()->binaries.empty() && index()->sources.empty());
}

TEST_F(Indexed, AFileIsSettledOnceItsContentAndItsEntryAre) {
  const FileIdentity settled = FileIdentity::of(path_);
  EXPECT_TRUE(settled.settled());
  FileIdentity written = settled, renamed = settled;
  written.modified.tv_sec += 3600;
  EXPECT_FALSE(written.settled());
  renamed.changed.tv_sec += 3600;
  EXPECT_FALSE(renamed.settled());
}

TEST_F(Indexed, AnswersAsTheFileDoes) {
  const OpenStore warmed = warm(path_);
  for (int n = 0; n < 7; ++n) {
    const OpenStore fresh = open_store({path_});
    EXPECT_EQ(found(warmed, n), found(fresh, n)) << n;
    EXPECT_EQ(found(warmed, n, "A30"), found(open_store({path_}), n, "A30")) << n;
    EXPECT_EQ(has(warmed, static_cast<unsigned>(n)), n < 5);
    const BinaryKey key = sample_binary(static_cast<unsigned>(n)).key;
    EXPECT_EQ(warmed->find_binary_any_compiler(key.source_hash, key.arch).has_value(), n < 5);
    EXPECT_FALSE(warmed->find_binary_any_compiler(key.source_hash, "sm_90").has_value());
  }
  EXPECT_EQ(found(warmed, 0, "H100").substr(0, 17), "simt:tile=0 H100 ");
}

TEST_F(Indexed, SeesWhatOthersPutReplaceAndRemove) {
  const OpenStore warmed = warm(path_);
  EXPECT_EQ(found(warmed, 8), "");
  EXPECT_EQ(message(open_store({path_})->put_record(record_of(8))), "");
  EXPECT_NE(found(warmed, 8), "");
  EXPECT_EQ(message(warmed->put_binary(sample_binary(8))), "");
  EXPECT_TRUE(has(warmed, 8));
  settle();
  for (int i = 0; i < 6; ++i) found(warmed, 99);  // an index again
  // Another file in its place, of the same size: a shipped one that was updated by rename.
  const std::string other = folder_ / "other.db";
  EXPECT_EQ(message(open_store({other})->put_record(record_of(9))), "");
  std::filesystem::rename(other, path_);
  EXPECT_NE(found(warmed, 9), "");
  EXPECT_EQ(found(warmed, 8), "");
  EXPECT_FALSE(has(warmed, 8));
  std::filesystem::remove(path_);
  EXPECT_EQ(found(warmed, 9), "");
}

TEST_F(Indexed, DamagedRowsAreLeftOutAndSaidOnce) {
  run_sql(path_, "UPDATE records SET median_us=1 WHERE problem='problem 2'");
  settle();
  const OpenStore warmed = warm(path_);
  EXPECT_EQ(found(warmed, 2), "");
  EXPECT_NE(found(warmed, 3), "");
  EXPECT_EQ(warmed.lines->size(), 1u);
  EXPECT_THAT(warmed.log(), HasSubstr("record of problem 2 on sm_80 is damaged"));
  // A damaged binary's key is in the index; its row is checked when it is read.
  run_sql(path_, "UPDATE binaries SET entry='x' WHERE source_hash='source1'");
  settle();
  const OpenStore again = warm(path_);
  EXPECT_FALSE(has(again, 1));
  EXPECT_TRUE(has(again, 2));
}

TEST_F(Indexed, ManyThreadsAskWhileAnotherStorePuts) {
  const OpenStore shared = open_store({path_});
  std::atomic<bool> stop{false};
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t)
    threads.emplace_back([&] {
      while (!stop)
        for (int n = 0; n < 5; ++n) wrong += found(shared, n).empty() ? 1 : 0;
    });
  const OpenStore other = open_store({path_});
  for (int n = 20; n < 26; ++n) {
    EXPECT_EQ(message(other->put_record(record_of(n))), "");
    EXPECT_NE(found(shared, n), "") << "what was put is there";
    settle();
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_THAT(*shared.lines, IsEmpty());
}

}  // namespace
}  // namespace trigen::cache
