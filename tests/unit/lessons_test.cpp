// Times of other batch sizes and devices, and a problem's candidates.
#include "generator/lessons.h"

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
std::vector<Lessons::Timed> as_predicted(int64_t batch, size_t count) {
  std::vector<Lessons::Timed> out;
  for (const Candidate& candidate : llvm::cantFail(list_candidates(problem(batch), target()))) {
    if (candidate.config.raster != 0 || out.size() == count) continue;
    out.push_back({candidate, predict(candidate, model_of(target())).seconds});
  }
  return out;
}

std::string first(const Lessons& lessons) {
  return describe(llvm::cantFail(list_candidates(problem(8), target(), nullptr, 0, &lessons)).front());
}

TEST(Lessons, TimesAsPredictedChangeNothing) {
  Lessons lessons;
  EXPECT_TRUE(lessons.empty());
  auto times = as_predicted(32, 9);
  for (Lessons::Timed& one : times) one.seconds *= 1.7;  // the model's scale is not the order
  lessons.add(times, model_of(target()), 4);
  EXPECT_FALSE(lessons.empty());
  for (const Lessons::Timed& one : times) EXPECT_NEAR(lessons.factor(one.candidate), 1, 1e-9);
  EXPECT_EQ(first(lessons), first({}));
}

TEST(Lessons, AKernelThatWasSlowerThanPredictedComesLater) {
  Lessons lessons;
  auto times = as_predicted(32, 9);
  const auto order = llvm::cantFail(list_candidates(problem(8), target()));
  for (Lessons::Timed& one : times)
    if (one.candidate.config.tile_m == order[0].config.tile_m &&
        one.candidate.config.tile_n == order[0].config.tile_n)
      one.seconds *= 3;
  lessons.add(times, model_of(target()), 4);
  EXPECT_NE(first(lessons), describe(order[0]));
  // Once at 3 times, of a quarter of the batch size: weight 1, against 1 for no lesson.
  EXPECT_NEAR(lessons.factor(order[0]), std::sqrt(3.0), 0.2);
  Candidate other = order[0];
  other.config.raster = 7;  // the order of its tiles is no other kernel
  EXPECT_EQ(lessons.factor(other), lessons.factor(order[0]));
  other.config.stages += 1;
  EXPECT_EQ(lessons.factor(other), 1) << "nobody timed it";
}

TEST(Lessons, TheNearerBatchSizeCountsMore) {
  Lessons lessons;
  auto slow = as_predicted(16, 9), fast = as_predicted(512, 9);
  slow[0].seconds *= 2;
  for (Lessons::Timed& one : fast)
    if (one.candidate.config == slow[0].candidate.config) one.seconds /= 2;
  lessons.add(slow, model_of(target()), 2);
  lessons.add(fast, model_of(target()), 64);
  EXPECT_GT(lessons.factor(slow[0].candidate), 1.1);
}

TEST(Lessons, TwoTimesTeachNothing) {
  Lessons lessons;
  lessons.add(as_predicted(32, 2), model_of(target()), 4);
  EXPECT_TRUE(lessons.empty());
}

}  // namespace
}  // namespace trigen
