// The search's decisions on timing tables, without devices.
#include "tuner/search.h"

#include <gmock/gmock.h>

#include "tuner/numbers.h"

namespace trigen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Search, StopsWhenAllWereTried) {
  Search search(3, {});
  EXPECT_TRUE(search.wants_more(0));
  search.timed(0, 2e-6);
  search.failed(1);
  EXPECT_TRUE(search.wants_more(0));
  search.timed(2, 1e-6);
  EXPECT_FALSE(search.wants_more(0));
  EXPECT_EQ(search.best(), 2U);
  EXPECT_THAT(search.reason(0), HasSubstr("all 3 candidates"));
}

TEST(Search, KeepsPartOfTheBudgetForTheFinals) {
  SearchOptions options;
  options.budget_s = 10;
  options.finals_share = 0.2;
  Search search(100, options);
  search.timed(0, 1e-6);
  EXPECT_TRUE(search.wants_more(7.9));
  EXPECT_FALSE(search.wants_more(8.1));
  EXPECT_THAT(search.reason(8.1), HasSubstr("budget of 10 s"));
}

TEST(Search, StopsWithoutGainButNotBeforeTheMinimum) {
  SearchOptions options;
  options.budget_s = 0;
  options.min_timed = 30;
  options.patience = 10;
  Search search(200, options);
  // the first is the best; gains below the noise do not count
  search.timed(0, 100e-6);
  size_t count = 1;
  for (; search.wants_more(1e9); ++count) search.timed(count, 99.9e-6);
  EXPECT_EQ(count, 30U);
  EXPECT_THAT(search.reason(0), HasSubstr("no gain"));
}

TEST(Search, ALateGainGoesOn) {
  SearchOptions options;
  options.budget_s = 0;
  options.min_timed = 30;
  options.patience = 10;
  Search search(200, options);
  for (size_t i = 0; i < 29; ++i) search.timed(i, 100e-6);
  search.timed(29, 90e-6);
  size_t count = 30;
  for (; search.wants_more(0); ++count) search.timed(count, 95e-6);
  EXPECT_EQ(count, 40U);
}

TEST(Search, FinalistsAreTheBestFewInTheFixedOrder) {
  SearchOptions options;
  options.finalists = 3;
  options.finals_reach = 0.06;
  Search search(8, options);
  const double us[] = {105, 200, 104, 100, 103, 107, 101, 300};
  for (size_t i = 0; i < 8; ++i) search.timed(i, us[i] * 1e-6);
  EXPECT_THAT(search.finalists(), ElementsAre(3, 4, 6));
  EXPECT_TRUE(search.contends(100.5e-6));
  EXPECT_FALSE(search.contends(104.5e-6));
  EXPECT_FALSE(search.contends(120e-6));
}

// On random tables, the winner that a search hands to the finals is within the reach of the true best of what
// it timed.
TEST(Search, NeverLosesTheBestOfWhatItTimed) {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SearchOptions options;
    options.budget_s = 0;
    Search search(64, options);
    double best = 1;
    size_t best_at = 0;
    for (size_t i = 0; i < 64 && search.wants_more(0); ++i) {
      if (random_bits(seed, 1, i) % 10 == 0) {
        search.failed(i);
        continue;
      }
      const double seconds = 100e-6 * (1.5 + 0.5 * random_value(seed, 2, i, 1));
      search.timed(i, seconds);
      if (seconds < best) {
        best = seconds;
        best_at = i;
      }
    }
    EXPECT_EQ(search.best(), best_at);
    EXPECT_THAT(search.finalists(), testing::Contains(best_at));
  }
}

}  // namespace
}  // namespace trigen
