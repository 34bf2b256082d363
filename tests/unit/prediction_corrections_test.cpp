// Times of other batch sizes and devices, and a problem's candidates.
#include "generator/prediction_corrections.h"

#include <gtest/gtest.h>

#include "generator/cost/cost.h"

namespace trigen {
namespace {

const Target& target() { return *llvm::cantFail(find_target("sm_90a")); }

Problem problem(int64_t batch) {
  Problem p = llvm::cantFail(parse_problem("forward,dtype=bf16,B=8,T=1024,D=512"));
  p.B = batch;
  return p;
}

// The first `count` kinds of kernel of the problem, with what the model predicts.
std::vector<PredictionCorrections::Timed> as_predicted(int64_t batch, size_t count) {
  std::vector<PredictionCorrections::Timed> out;
  for (const Candidate& candidate : llvm::cantFail(list_candidates(problem(batch), target()))) {
    if (candidate.config.raster != 0 || out.size() == count) continue;
    out.push_back({candidate, predict(candidate, model_of(target())).seconds});
  }
  return out;
}

std::string first(const PredictionCorrections& corrections) {
  return describe(
      llvm::cantFail(list_candidates(problem(8), target(), nullptr, nullptr, &corrections)).front());
}

TEST(PredictionCorrections, TimesAsPredictedChangeNothing) {
  PredictionCorrections corrections;
  EXPECT_TRUE(corrections.empty());
  auto times = as_predicted(32, 9);
  for (PredictionCorrections::Timed& one : times) one.seconds *= 1.7;  // the model's scale is not the order
  corrections.add(times, model_of(target()), 4);
  EXPECT_FALSE(corrections.empty());
  for (const PredictionCorrections::Timed& one : times)
    EXPECT_NEAR(corrections.factor(one.candidate), 1, 1e-9);
  EXPECT_EQ(first(corrections), first({}));
}

TEST(PredictionCorrections, AKernelThatWasSlowerThanPredictedComesLater) {
  PredictionCorrections corrections;
  auto times = as_predicted(32, 20);
  const auto order = llvm::cantFail(list_candidates(problem(8), target()));
  for (PredictionCorrections::Timed& one : times)
    if (one.candidate.config.tile_m == order[0].config.tile_m &&
        one.candidate.config.tile_n == order[0].config.tile_n)
      one.seconds *= 3;
  corrections.add(times, model_of(target()), 4);
  EXPECT_NE(first(corrections), describe(order[0]));
  // Once at 3 times, of a quarter of the batch size: weight 1, against the prediction's own 1.
  EXPECT_NEAR(corrections.factor(order[0]), std::sqrt(3.0), 0.2);
  Candidate other = order[0];
  other.config.raster = 7;  // the order of its tiles is no other kernel
  EXPECT_EQ(corrections.factor(other), corrections.factor(order[0]));
  other.config.stages += 1;
  EXPECT_EQ(corrections.factor(other), 1) << "nobody timed it";
}

TEST(PredictionCorrections, TheNearerBatchSizeCountsMore) {
  PredictionCorrections corrections;
  auto slow = as_predicted(16, 9), fast = as_predicted(512, 9);
  slow[0].seconds *= 2;
  for (PredictionCorrections::Timed& one : fast)
    if (one.candidate.config == slow[0].candidate.config) one.seconds /= 2;
  corrections.add(slow, model_of(target()), 2);
  corrections.add(fast, model_of(target()), 64);
  EXPECT_GT(corrections.factor(slow[0].candidate), 1.1);
}

TEST(PredictionCorrections, TwoTimesCorrectNothing) {
  PredictionCorrections corrections;
  corrections.add(as_predicted(32, 2), model_of(target()), 4);
  EXPECT_TRUE(corrections.empty());
}

}  // namespace
}  // namespace trigen
