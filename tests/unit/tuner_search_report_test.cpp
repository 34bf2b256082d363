#include "tuner/search_report.h"

#include <gmock/gmock.h>

#include "lab/replay.h"

namespace trigen {
namespace {

CandidateReport row_of(const std::string& candidate, Outcome outcome, double predicted_us,
                       double measured_us = 0, double at_s = 0) {
  CandidateReport row;
  row.candidate = candidate;
  row.outcome = outcome;
  row.ranked_s = predicted_us * 1e-6;
  if (measured_us > 0) row.quick = {measured_us * 1e-6};
  row.at_s = at_s;
  return row;
}

TEST(SearchReport, SaysWhatWasTriedAndWhatWasPassedOver) {
  TuneReport report;
  report.provenance = Provenance::kMeasured;
  report.candidates = {
      row_of("f:tile=1,a", Outcome::kTimed, 10, 12, 2), row_of("f:tile=1,b", Outcome::kChosen, 11, 11, 9),
      row_of("f:tile=2,a", Outcome::kSpilled, 12),      row_of("f:tile=2,b", Outcome::kTimed, 13, 12.5, 4),
      row_of("f:tile=3,a", Outcome::kWrong, 13),        row_of("f:tile=3,b", Outcome::kNotTried, 50)};
  const SearchReport search = search_report_of(report);
  EXPECT_EQ(search.space, 6U);
  EXPECT_EQ(search.tried, 5U);
  EXPECT_EQ(search.passed_over,
            (std::map<std::string, size_t>{{"ranked lower by the model", 1}, {"spills", 1}, {"wrong", 1}}));
  ASSERT_EQ(search.best.size(), 2U) << "in the order of time";
  EXPECT_DOUBLE_EQ(search.best[0].best_s, 12e-6);
  EXPECT_DOUBLE_EQ(search.best[1].at_s, 9);
  EXPECT_DOUBLE_EQ(search.expected_loss, 0) << "nothing that the model puts at 50 us takes less than 11";
  report.provenance = Provenance::kPredicted;
  EXPECT_LT(search_report_of(report).expected_loss, 0) << "a prediction knows no loss";
}

TEST(ExpectedLoss, IsTheMeanSavingOfTheUntimed) {
  // Errors of 0.5 and 1.0, each as likely: the untimed one takes 5 or 10, the best takes 10.
  EXPECT_NEAR(expected_loss({{"a", 20, 10}, {"b", 10, 10}, {"c", 10, 0}}), 0.25, 0.01);
  EXPECT_NEAR(expected_loss({{"a", 20, 10}, {"b", 10, 10}, {"c", 10, 0}, {"c", 10, 0}}), 0.375, 0.01);
  // A group of its own speaks for itself.
  EXPECT_NEAR(expected_loss({{"a", 20, 10}, {"c", 10, 10}, {"c", 10, 10}, {"c", 10, 10}, {"c", 10, 0}}), 0,
              0.01);
  EXPECT_LT(expected_loss({{"a", 1, 0}}), 0);
}

// Expected losses that searches stated beside their real ones, on spaces that were measured whole.
TEST(ExpectedLoss, IsOfTheOrderOfWhatSearchesLost) {
  auto recordings = read_recordings({TRIGEN_SOURCE "/tests/data/recordings"});
  ASSERT_TRUE(bool(recordings));
  double said = 0, lost = 0;
  int spaces = 0;
  for (const Recording& recording : *recordings) {
    if (!recording.exhaustive()) continue;
    auto replayed = replay(recording, {}, 1);
    ASSERT_TRUE(bool(replayed));
    const std::vector<double> truth = settled_us(recording);
    std::vector<LossPoint> points;
    for (size_t i = 0; i < recording.rows.size(); ++i)
      if (recording.rows[i].timed())
        points.push_back({loss_group(recording.rows[i].candidate), recording.rows[i].predicted_us, 0});
      else
        points.push_back({"", 0, 0});
    for (const size_t i : replayed->order) points[i].measured_s = truth[i];
    const double loss = expected_loss(points);
    std::printf("%s %s: expected %.1f %%, lost %.1f %%\n", recording.target.c_str(),
                recording.problem.c_str(), 100 * loss, 100 * replayed->regret);
    said += loss;
    lost += replayed->regret;
    ++spaces;
  }
  ASSERT_GT(spaces, 0);
  EXPECT_GE(said, lost) << "over all spaces it is no promise that is broken";
  EXPECT_LT(said / spaces, 0.10) << "and no number that says nothing";
}

}  // namespace
}  // namespace trigen
