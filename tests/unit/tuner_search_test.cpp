// The search's decisions on timing tables, without devices. The landscapes here are made up to test
// mechanics; how good the search is, recorded times say (tuner_replay_test.cpp).
#include "tuner/search.h"

#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <set>

#include "check/text.h"
#include "generator/candidate.h"
#include "generator/cost/cost.h"
#include "generator/error.h"
#include "numerics/numbers.h"
#include "tuner/session.h"

namespace trigen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Points that are no neighbours of each other, so that the model's order alone leads.
std::vector<SearchPoint> apart(size_t count) {
  std::vector<SearchPoint> out;
  for (size_t i = 0; i < count; ++i) {
    SearchPoint point{format("f%zu", i), {}, 1e-6 * static_cast<double>(100 + i)};
    out.push_back(point);
  }
  return out;
}

// The real candidates of a problem, as a tune sees them.
std::vector<SearchPoint> real_space(const char* problem, const char* target) {
  const Target* t = llvm::cantFail(find_target(target));
  std::vector<SearchPoint> out;
  for (const Candidate& candidate :
       llvm::cantFail(list_candidates(llvm::cantFail(parse_problem(problem)), *t)))
    out.push_back(
        {candidate.family->name().str(), candidate.config, predict(candidate, model_of(*t)).seconds});
  return out;
}

// Runs a search on made-up times; the order in which candidates were tried.
template <typename Time>
std::vector<size_t> run(Search& search, const Time& time) {
  std::vector<size_t> order;
  for (auto batch = search.next(0); !batch.empty(); batch = search.next(0)) {
    for (const size_t i : batch) {
      order.push_back(i);
      const double seconds = time(i);
      seconds < 0 ? search.failed(i) : search.timed(i, seconds);
    }
  }
  return order;
}

TEST(Search, StopsWhenAllWereTried) {
  Search search(apart(3), {});
  EXPECT_THAT(run(search, [](size_t i) { return i == 1 ? -1.0 : i == 2 ? 1e-6 : 2e-6; }), testing::SizeIs(3));
  EXPECT_EQ(search.best(), 2U);
  EXPECT_THAT(search.reason(0), HasSubstr("all 3 candidates"));
}

TEST(Search, ExhaustiveTriesEveryoneInTheModelsOrder) {
  SearchOptions options;
  options.exhaustive = true;
  options.max_tried = 5;
  Search search(apart(300), options);
  const auto order = run(search, [](size_t) { return 1e-6; });
  ASSERT_EQ(order.size(), 300U);
  EXPECT_TRUE(std::is_sorted(order.begin(), order.end()));
}

TEST(Search, KeepsPartOfTheBudgetForTheFinals) {
  SearchOptions options;
  options.budget_s = 10;
  options.finals_share = 0.2;
  Search search(apart(100), options);
  const auto batch = search.next(0);
  search.timed(batch[0], 1e-6);
  EXPECT_TRUE(search.in_time(7.9));
  EXPECT_FALSE(search.in_time(8.1));
  EXPECT_TRUE(search.next(8.1).empty());
  EXPECT_THAT(search.reason(8.1), HasSubstr("budget of 10 s"));
}

TEST(Search, TriesATenthAndNoMore) {
  for (const size_t count : {40U, 80U, 300U, 5000U}) {
    SearchOptions options;
    options.patience = 1000;
    Search search(apart(count), options);
    const size_t allowed = std::min<size_t>(64, std::max<size_t>(12, count / 10));
    EXPECT_EQ(search.allowance(), allowed);
    EXPECT_EQ(run(search, [](size_t) { return 1e-6; }).size(), allowed);
    EXPECT_THAT(search.reason(0), HasSubstr("as many as allowed"));
  }
}

TEST(Search, StopsWithoutGainAndAGainGoesOn) {
  SearchOptions options;
  options.patience = 2;
  options.batch = 6;
  // gains below the noise do not count
  Search flat(apart(400), options);
  const size_t seeds = flat.next(0).size();
  Search again(apart(400), options);
  const auto order = run(again, [](size_t i) { return i == 0 ? 100e-6 : 99.9e-6; });
  EXPECT_EQ(order.size(), seeds + 2 * options.batch);
  EXPECT_THAT(again.reason(0), HasSubstr("no gain in the last 2 steps"));
  // a gain in the last of them: two more steps
  Search late(apart(400), options);
  size_t tried = 0;
  const auto longer =
      run(late, [&](size_t) { return ++tried == seeds + 2 * options.batch ? 90e-6 : 100e-6; });
  EXPECT_EQ(longer.size(), std::min(late.allowance(), seeds + 4 * options.batch));
}

TEST(Search, FinalistsAreTheBestFewInTheFixedOrder) {
  SearchOptions options;
  options.finalists = 3;
  options.finals_reach = 0.06;
  Search search(apart(8), options);
  const double us[] = {105, 200, 104, 100, 103, 107, 101, 300};
  for (size_t i = 0; i < 8; ++i) search.timed(i, us[i] * 1e-6);
  EXPECT_THAT(search.finalists(), ElementsAre(3, 4, 6));
  EXPECT_EQ(search.contending_s(), 103e-6) << "the last of them";
  search.set_reach(0.02);
  EXPECT_DOUBLE_EQ(search.contending_s(), 102e-6) << "who is near enough";
  EXPECT_EQ(Search(apart(8), options).contending_s(), HUGE_VAL) << "anyone is the best so far";
}

// What is compiled ahead is what comes next where times are as predicted, whatever the scale.
TEST(Search, KnowsWhatFollowsABatchThatTakesAsLongAsPredicted) {
  for (const char* problem :
       {"forward,dtype=bf16,B=32,T=512,D=1024", "grad_weight,dtype=f16,B=4,H=4,T=640,D=96"}) {
    const auto space = real_space(problem, "sm_90a");
    Search search(space, {});
    auto batch = search.next(0);
    size_t steps = 0;
    for (; !batch.empty() && steps < 3; ++steps) {
      const auto ahead = search.after(batch);
      EXPECT_EQ(ahead, search.after(batch)) << "nothing is remembered";
      for (const size_t i : batch) search.timed(i, 1.25 * space[i].predicted_s);
      batch = search.next(0);
      EXPECT_EQ(ahead, batch);
    }
    EXPECT_GT(steps, 1U);
  }
}

TEST(Search, NeverTriesACandidateTwiceAndNeverLosesTheBestOfWhatItTimed) {
  const auto space = real_space("forward,dtype=bf16,B=32,T=512,D=1024", "sm_90a");
  ASSERT_GT(space.size(), 200U);
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Search search(space, {});
    double best = 1;
    size_t best_at = 0;
    const auto order = run(search, [&](size_t i) {
      if (random_bits(seed, 1, i) % 10 == 0) return -1.0;
      const double seconds = 100e-6 * (1.5 + 0.5 * random_value(seed, 2, i, 1));
      if (seconds < best) best = seconds, best_at = i;
      return seconds;
    });
    EXPECT_EQ(std::set<size_t>(order.begin(), order.end()).size(), order.size());
    EXPECT_LE(order.size(), search.allowance());
    EXPECT_EQ(search.best(), best_at);
    EXPECT_THAT(search.finalists(), testing::Contains(best_at));
  }
}

// An interrupted tune goes on with what it had: the rest is tried, nothing twice.
TEST(Search, GoesOnFromWhatWasTimedBefore) {
  SearchOptions options;
  options.patience = 1000;
  Search search(apart(200), options);
  for (size_t i = 0; i < 10; ++i) search.timed(i, 1e-6);
  const auto order = run(search, [](size_t) { return 2e-6; });
  EXPECT_EQ(order.size(), search.allowance() - 10);
  for (const size_t i : order) EXPECT_GE(i, 10U);
}

TEST(Neighbours, AreOneStepAway) {
  const auto point = [](const char* config) {
    return SearchPoint{"f", llvm::cantFail(parse_config(config)), 1e-6};
  };
  const SearchPoint a = point("tile=128x128x64,warps=8x1,stages=4,raster=8,vec=8x8x8,blocks=1");
  EXPECT_FALSE(neighbours(a, a));
  EXPECT_TRUE(neighbours(a, point("tile=128x128x64,warps=8x1,stages=5,raster=8,vec=8x8x8,blocks=1")));
  EXPECT_TRUE(neighbours(a, point("tile=128x128x64,warps=8x1,stages=4,raster=16,vec=8x8x8,blocks=1")));
  EXPECT_TRUE(neighbours(a, point("tile=128x256x64,warps=4x2,stages=3,raster=8,vec=8x8x8,blocks=1")));
  EXPECT_FALSE(neighbours(a, point("tile=128x256x64,warps=8x1,stages=4,raster=16,vec=8x8x8,blocks=1")));
  EXPECT_FALSE(neighbours(a, point("tile=64x256x64,warps=8x1,stages=4,raster=8,vec=8x8x8,blocks=1")));
  EXPECT_FALSE(neighbours(a, point("tile=128x128x64,warps=8x1,stages=5,raster=16,vec=8x8x8,blocks=1")));
  SearchPoint other = a;
  other.family = "g";
  other.config.raster = 16;
  EXPECT_FALSE(neighbours(a, other));
}

// A made-up landscape: the model is right about tiles and knows nothing of stages, raster and the rest, whose
// effects multiply. The walk must find nearly the best of it where the model's order alone does not.
TEST(Walk, FindsWhatTheModelDoesNotKnow) {
  for (const char* problem :
       {"forward,dtype=bf16,B=32,T=512,D=1024", "grad_weight,dtype=bf16,B=16,T=1024,D=1024"}) {
    const auto space = real_space(problem, "sm_90a");
    double worst = 0;
    double order_alone = 0;
    for (uint64_t seed = 0; seed < 20; ++seed) {
      std::vector<double> truth;
      for (const SearchPoint& p : space) {
        const auto effect = [&](uint64_t stream, int value) {
          return 1 + 0.05 * (1 + random_value(seed, stream, static_cast<uint64_t>(value), 1));
        };
        truth.push_back(p.predicted_s * effect(1, p.config.stages) * effect(2, p.config.raster) *
                        effect(3, p.config.cluster) * effect(4, p.config.split_k));
      }
      const double best = *std::min_element(truth.begin(), truth.end());
      Search search(space, {});
      run(search, [&](size_t i) { return truth[i]; });
      worst = std::max(worst, search.best_seconds() / best - 1);
      order_alone = std::max(
          order_alone,
          *std::min_element(truth.begin(), truth.begin() + static_cast<long>(search.tried_count())) / best -
              1);
    }
    EXPECT_LT(worst, 0.05) << problem;
    EXPECT_LE(worst, order_alone + 0.02) << problem;
  }
}

// The model puts nine tiles of one family before the first of another, 2 % apart: a coin's toss that the search
// must not take for an order.
TEST(Search, NoFamilyIsMissed) {
  std::vector<SearchPoint> points;
  for (int i = 0; i < 60; ++i) {
    SearchPoint point{i < 40 ? "first" : i < 50 ? "second" : "third", {}, 1e-6 * (100 + i)};
    point.config.tile_m = 16 * (1 + i % 20);
    point.config.tile_n = 16 * (1 + i / 20);
    points.push_back(point);
  }
  for (const size_t few : {0U, 1U, 2U}) {
    SearchOptions options;
    options.family_first = few;
    Search search(points, options);
    std::map<std::string, size_t> tried;
    const auto seeds = search.next(0);
    for (const size_t i : seeds) ++tried[points[i].family];
    EXPECT_LT(seeds.size(), search.allowance()) << "some are left for the walk";
    EXPECT_EQ(seeds.front(), 0U);
    if (few == 0) {
      EXPECT_EQ(tried.count("third"), 0U) << "or this shows nothing";
      continue;
    }
    EXPECT_GE(tried["second"], few);
    EXPECT_GE(tried["third"], few);
    EXPECT_GE(tried["first"], 3U) << "the model's first choices still are";
    // and the walk goes on from the one that is ahead
    Search again(points, options);
    run(again, [&](size_t i) {
      return points[i].family == "third" ? 50e-6 - 1e-7 * static_cast<double>(i) : 90e-6;
    });
    EXPECT_EQ(points[again.best()].family, "third");
  }
}

}  // namespace
}  // namespace trigen
