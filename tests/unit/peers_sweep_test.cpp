// Sweeps: the problems that a seed draws, their two halves, and what rows say together.
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>

#include "lab/sweep_problems.h"
#include "lab/sweep_summary.h"

namespace trigen {
namespace {

std::vector<Problem> draw(uint64_t seed, SweepHalf half, int count, std::vector<Problem> seen = {}) {
  SweepProblems problems(seed, half, std::move(seen));
  std::vector<Problem> out;
  for (int i = 0; i < count; ++i) out.push_back(problems.next());
  return out;
}

double share(const std::vector<Problem>& list, bool (*is)(const Problem&)) {
  return static_cast<double>(std::count_if(list.begin(), list.end(), is)) / static_cast<double>(list.size());
}

TEST(SweepProblems, TheSeedAloneDecides) {
  EXPECT_EQ(draw(7, SweepHalf::kReported, 20), draw(7, SweepHalf::kReported, 20));
  EXPECT_NE(draw(7, SweepHalf::kReported, 20), draw(8, SweepHalf::kReported, 20));
  // The draw is part of every reported figure: a change of it is a change of the yardstick, to be said.
  EXPECT_EQ(short_text(draw(1, SweepHalf::kReported, 1).front()), "grad_input,dtype=bf16,B=128,T=128,D=64");
}

TEST(SweepProblems, NoSizesAreInBothHalves) {
  for (const Problem& p : draw(1, SweepHalf::kFitting, 500)) EXPECT_EQ(half_of(p), SweepHalf::kFitting);
  Problem p = draw(1, SweepHalf::kReported, 1).front();
  p.op = Op::kGradInput;
  p.epilogue = {};
  p.dtype = p.wdtype = DType::kF16;
  EXPECT_EQ(half_of(p), SweepHalf::kReported) << "whatever the op, the types and the epilogue";
}

TEST(SweepProblems, SizesThatWereSeenAreLeftOut) {
  const auto first = draw(3, SweepHalf::kReported, 50);
  const auto second = draw(3, SweepHalf::kReported, 50, {first[0], first[10]});
  for (const Problem& p : second)
    EXPECT_FALSE(p.B == first[10].B && p.T == first[10].T && p.D == first[10].D && p.H == first[10].H &&
                 p.K == first[10].K);
}

// The distribution that the header writes down, within the noise of 4000 draws.
TEST(SweepProblems, DrawsWhatTheHeaderSays) {
  const auto list = draw(11, SweepHalf::kReported, 4000);
  for (const Problem& p : list) {
    EXPECT_FALSE(static_cast<bool>(validate(p))) << to_string(p);
    EXPECT_GE(p.T, 32);
    EXPECT_LE(p.T, 16384);
    EXPECT_GE(p.H * p.D, 64);
    EXPECT_LE(p.H * p.D, 4096);
    EXPECT_LE(p.B * p.T * p.H * p.D, int64_t{1} << 28);
    EXPECT_LE(p.B * p.T, 2 * 131072);
  }
  EXPECT_NEAR(share(list, [](const Problem& p) { return p.op == Op::kGradWeight; }), 0.333, 0.03);
  EXPECT_NEAR(share(list, [](const Problem& p) { return p.dtype == DType::kBF16; }), 0.60, 0.03);
  EXPECT_NEAR(share(list, [](const Problem& p) { return p.dtype == DType::kF32; }), 0.08, 0.02);
  EXPECT_NEAR(share(list, [](const Problem& p) { return p.H > 1; }), 0.12, 0.03);
  EXPECT_NEAR(share(list, [](const Problem& p) { return p.K > 1; }), 0.07, 0.02);
  EXPECT_NEAR(share(list, [](const Problem& p) { return p.layout == Layout::kBDT; }), 0.04, 0.015);
  EXPECT_NEAR(share(list, [](const Problem& p) { return (p.T & (p.T - 1)) == 0; }), 0.72, 0.04);
  EXPECT_NEAR(share(list, [](const Problem& p) { return p.H * p.D % 8 != 0; }), 0.026, 0.012);
  EXPECT_GT(share(list, [](const Problem& p) { return p.T <= 128; }), 0.12);
  for (const Problem& p : list) EXPECT_EQ(p.epilogue.zero_outside, p.op == Op::kGradWeight);
}

TableResult row(const char* table, const char* problem, double got) {
  TableResult result;
  result.table = table;
  result.problem = problem;
  result.ran = got > 0;
  result.failed = got <= 0;
  result.got = got;
  result.device = "D & E";
  return result;
}

TEST(SweepSummary, CountsMeansAndPercentiles) {
  const char* forward = "forward,dtype=bf16,B=2,T=128,D=64";
  const char* weight = "grad_weight,dtype=bf16,B=2,T=4096,D=64,epilogue=zero_outside";
  const std::vector<TableResult> rows = {row("untuned", forward, 0.5), row("untuned", weight, 2),
                                         row("untuned", forward, 0), row("tuned", forward, 1),
                                         row("tuned", weight, 4)};
  const auto all = summarize_sweep(rows);
  ASSERT_EQ(all.size(), 6U);  // of each table: all, forward, grad_weight
  EXPECT_EQ(all[0].rows, 2U);
  EXPECT_EQ(all[0].failed, 1U);
  EXPECT_EQ(all[0].not_slower, 1U);
  EXPECT_DOUBLE_EQ(all[0].mean, 1);
  EXPECT_DOUBLE_EQ(all[0].tenth, 0.65);
  EXPECT_DOUBLE_EQ(all[0].worst, 0.5);
  EXPECT_EQ(all[3].table, "tuned");
  EXPECT_EQ(all[3].not_slower, 2U);
  EXPECT_DOUBLE_EQ(all[3].mean, std::sqrt(2.0))
      << "4 counts as 2: no triangle gains more on a peer at its best";
  EXPECT_DOUBLE_EQ(all[3].uncut, 2);
  EXPECT_EQ(above_most(rows, "tuned").size(), 1U);
  EXPECT_EQ(above_most(rows, "untuned").size(), 0U) << "2 itself is not above";
  EXPECT_EQ(all[5].op, "grad_weight");
  const auto worst = worst_of(rows, "untuned", 5);
  ASSERT_EQ(worst.size(), 2U);
  EXPECT_DOUBLE_EQ(worst[0].got, 0.5);
}

}  // namespace
}  // namespace trigen
