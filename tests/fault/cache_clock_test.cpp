// A clock that jumps, and what gc takes first.
#include <gmock/gmock.h>
#include <time.h>

#include "cache/folder.h"
#include "cache/upkeep.h"
#include "tests/files.h"
#include "tests/unit/cache_testing.h"

namespace {
time_t fake_now = 0;  // 0: the real one
}  // namespace

// This program's own, in front of libc's: what the cache, linked into it, asks.
extern "C" time_t time(time_t* out) noexcept {
  struct timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  const time_t value = fake_now != 0 ? fake_now : now.tv_sec;
  if (out != nullptr) *out = value;
  return value;
}

namespace trigen {
namespace {

using namespace trigen::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr time_t kDay = 86400, kToday = time_t{20000} * kDay;  // in 2024

class CacheClock : public ::testing::Test {
 protected:
  void TearDown() override { fake_now = 0; }
  CacheFolder folder_;
};

TEST_F(CacheClock, SetBackInMidRun) {
  const std::string path = folder_ / "cache.db";
  auto store = open_store({path});
  for (const time_t now : {kToday + 30000 * kDay, kToday, time_t{1}, kToday + kDay}) {
    fake_now = now;
    Record record = sample_record(Provenance::kMeasured, "A100", 108, "580", "c:a=" + std::to_string(now));
    ASSERT_EQ(message(store->put_record(record)), "");
    ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
    const auto found = store->find_record(record.problem, {"sm_80"}, {"A100", 108, "580"});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->record.candidate, record.candidate) << "the last put, not the latest date";
    EXPECT_TRUE(store->find_binary(sample_binary(1).key));
    std::unique_ptr<Store::Lease> lease;
    EXPECT_EQ(store->lease(sample_binary(2).key, 100, lease), Store::LeaseState::kOwner);
  }
  EXPECT_THAT(store->verify(), IsEmpty());
  EXPECT_EQ(store.log(), "");
}

TEST_F(CacheClock, GcTakesWhatWasNotUsedForLongest) {
  const std::string path = folder_ / "cache.db";
  auto store = open_store({path});
  for (unsigned n = 0; n < 10; ++n) {
    fake_now = kToday + static_cast<time_t>(n) * kDay;
    ASSERT_EQ(message(store->put_binary(sample_binary(n, 100000))), "");
    Record record = sample_record(n % 2 == 0 ? Provenance::kMeasured : Provenance::kPredicted,
                                  n % 2 == 0 ? "A100" : "", 108, "580");
    record.problem = "problem " + std::to_string(n);
    record.binary = sample_binary(n).key;
    ASSERT_EQ(message(store->put_record(record)), "");
  }
  fake_now = kToday + 100 * kDay;
  const std::string before = slurp(path);
  EXPECT_TRUE(store->find_binary(sample_binary(0).key)) << "the oldest, used today";
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
  EXPECT_EQ(before, slurp(path)) << "a look-up wrote to the layer";
  auto report = cache::collect({{path}}, 450000);
  ASSERT_TRUE(static_cast<bool>(report)) << message(report.takeError());
  EXPECT_LE(report->bytes_after, 450000);
  EXPECT_EQ(report->bytes_after, static_cast<int64_t>(std::filesystem::file_size(path)));
  EXPECT_GT(report->binaries, 3);
  for (unsigned n = 0; n < 2; ++n) EXPECT_TRUE(store->find_binary(sample_binary(n).key)) << n << " was used";
  for (unsigned n = 2; n < 2 + report->binaries; ++n)
    EXPECT_FALSE(store->find_binary(sample_binary(n).key)) << n;
  for (unsigned n = 2 + static_cast<unsigned>(report->binaries); n < 10; ++n)
    EXPECT_TRUE(store->find_binary(sample_binary(n).key)) << n;
  for (const char* kept : {"problem 0", "problem 1", "problem 2", "problem 4"})
    EXPECT_TRUE(store->find_record(kept, {"sm_80"}, {"A100", 108, "580"})) << kept;
  EXPECT_FALSE(store->find_record("problem 3", {"sm_80"}, {"A100", 108, "580"})) << "a prediction goes along";
  EXPECT_THAT(store->verify(), IsEmpty());
  auto nothing = cache::collect({{path}}, 450000);
  ASSERT_TRUE(static_cast<bool>(nothing));
  EXPECT_EQ(nothing->binaries, 0);
  EXPECT_THAT(message(cache::collect({{path}}, 4096).takeError()), HasSubstr("of measurements alone"));
}

TEST_F(CacheClock, AUseIsNotedOnceADayAndNeverByReadOnlyStores) {
  const std::string path = folder_ / "cache.db", key = sample_binary(1).key.digest();
  fake_now = kToday;
  ASSERT_EQ(message(open_store({path})->put_binary(sample_binary(1))), "");
  EXPECT_EQ(cache::last_use(path, key), 0);
  EXPECT_TRUE(open_store({path}, 5000, /*read_only=*/true)->find_binary(sample_binary(1).key));
  EXPECT_EQ(cache::last_use(path, key), 0);
  EXPECT_TRUE(open_store({path})->find_binary(sample_binary(1).key));
  EXPECT_EQ(cache::last_use(path, key), 20000);
  const auto written = std::filesystem::last_write_time(path + ".used");
  EXPECT_TRUE(open_store({path})->find_binary(sample_binary(1).key));
  EXPECT_EQ(std::filesystem::last_write_time(path + ".used"), written);
  fake_now = kToday + kDay;
  EXPECT_TRUE(open_store({path})->find_binary(sample_binary(1).key));
  EXPECT_EQ(cache::last_use(path, key), 20001);
}

}  // namespace
}  // namespace trigen
