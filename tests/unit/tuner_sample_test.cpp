#include "tuner/sample.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace trigen {
namespace {

TEST(Sample, HasTheFirstOnesAndEveryFamily) {
  const auto all =
      llvm::cantFail(rank_candidates(llvm::cantFail(parse_problem("grad_weight,dtype=f16,B=32,T=512,D=1024")),
                                     *llvm::cantFail(find_target("sm_90a"))));
  const std::vector<size_t> sample = draw_sample(all, {});
  EXPECT_EQ(sample, draw_sample(all, {})) << "the same problem and seed draw the same";
  SampleOptions other;
  other.seed = 2;
  EXPECT_NE(sample, draw_sample(all, other));
  for (size_t i = 0; i < 12; ++i) EXPECT_EQ(sample[i], i);
  EXPECT_TRUE(std::is_sorted(sample.begin(), sample.end()));
  for (const Candidate& candidate : all)
    EXPECT_TRUE(std::any_of(sample.begin(), sample.end(), [&](size_t i) {
      return all[i].family == candidate.family;
    })) << candidate.family->name().str();
  // few enough to be drawn whole
  EXPECT_EQ(draw_sample({all.begin(), all.begin() + 3}, {}).size(), 3U);
  EXPECT_TRUE(draw_sample({}, {}).empty());
}

}  // namespace
}  // namespace trigen
