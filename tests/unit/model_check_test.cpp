// The cost model held against times that devices measured: tests/data.
#include "lab/model_check.h"

#include <gmock/gmock.h>

#include "generator/error.h"

namespace trigen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAreArray;

const std::vector<std::string> kMissedOfCheck = {
    "grad_input,dtype=f32,B=192,H=1,T=80,D=384,K=1,pad=0,math=f16x3",
    "forward,dtype=f32,B=32,H=1,T=384,D=384,K=1,pad=0,math=tf32,epilogue=bias+residual"};
const std::vector<std::string> kMissedOfFit = {"decode,dtype=bf16,B=128,H=1,T=512,D=512,K=4,pad=1,rows=2"};

TEST(ModelCheck, RankCorrelationIsOfTheOrderAlone) {
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {10, 20, 30, 4000}), 1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 2, 3, 4}, {4, 3, 2, 1}), -1);
  EXPECT_DOUBLE_EQ(rank_correlation({1, 1, 1}, {1, 2, 3}), 0);
  // ranks 0, 1.5, 1.5, 3 against 0, 1, 2, 3: 4.5 / sqrt(4.5 * 5)
  EXPECT_NEAR(rank_correlation({1, 2, 2, 3}, {1, 2, 3, 4}), 4.5 / std::sqrt(4.5 * 5), 1e-12);
}

// A recording of the model's own first candidates in its order, with times of our choosing.
Recording of_the_model(const std::vector<double>& us) {
  Recording out;
  out.problem = "forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0";
  out.target = "sm_90a";
  const auto all = llvm::cantFail(
      rank_candidates(llvm::cantFail(parse_problem(out.problem)), *llvm::cantFail(find_target(out.target))));
  out.candidates = all.size();
  for (size_t i = 0; i < us.size(); ++i) {
    RecordedCandidate row;
    row.rank = i + 1;
    row.outcome = us[i] > 0 ? "timed" : "spills";
    row.us = us[i];
    row.candidate = describe(all[i]);
    out.rows.push_back(row);
  }
  return out;
}

TEST(ModelCheck, LossIsOfTheModelsFirstChoice) {
  const RecordedSpace space =
      llvm::cantFail(space_of(of_the_model({0, 30, 24, 20, 40, 50, 60, 70, 80, 16, 90})));
  ASSERT_EQ(space.rows.size(), 10U) << "the one that was not timed is left out";
  const ModelFigures figures = check_model({space}, "", true);
  ASSERT_EQ(figures.choices.size(), 1U);
  EXPECT_DOUBLE_EQ(figures.choices[0].loss(), 30.0 / 16 - 1);
  EXPECT_EQ(figures.choices[0].chosen, space.rows[0].text);
  EXPECT_EQ(figures.choices[0].best, space.rows[8].text);
  EXPECT_DOUBLE_EQ(figures.untuned.worst, 30.0 / 16 - 1);
  EXPECT_DOUBLE_EQ(figures.untuned_8.worst, 20.0 / 16 - 1);
  EXPECT_EQ(figures.recorded.problems, 0U) << "the first of all candidates was not timed";
  EXPECT_FALSE(figures.choices[0].recorded);
}

TEST(ModelCheck, TimesAreOfTheFinalsAndQuickOnesAreScaledToThem) {
  Recording recording = of_the_model({10, 12, 14});
  recording.rows[0].finals_us = 11;
  EXPECT_THAT(settled_us(recording),
              ElementsAre(testing::DoubleEq(11), testing::DoubleEq(13.2), testing::DoubleEq(15.4)));
}

TEST(ModelCheck, CountsTheRolesApart) {
  Recording recording = of_the_model({10, 12, 14});
  const RecordedSpace fit = llvm::cantFail(space_of(recording));
  recording.role = "check";
  const RecordedSpace check = llvm::cantFail(space_of(recording));
  const ModelFigures all = check_model({fit, check, check}, "", true);
  EXPECT_EQ(all.choices.size(), 3U);
  EXPECT_EQ(all.recorded.problems, 3U);
  EXPECT_EQ(check_model({fit, check, check}, "fit").choices.size(), 1U);
  EXPECT_EQ(check_model({fit, check, check}, "check").choices.size(), 2U);
}

TEST(ModelCheck, NamesWhatNoModelKnows) {
  Recording recording = of_the_model({10, 12});
  recording.rows[1].candidate = "wgmma_sm90:tile=3x3x3";
  auto space = space_of(recording);
  ASSERT_FALSE(static_cast<bool>(space));
  EXPECT_THAT(take_error(space.takeError()).message, HasSubstr("wgmma_sm90:tile=3x3x3"));
  EXPECT_THAT(take_error(space_of(of_the_model({0, 0})).takeError()).message, HasSubstr("was timed"));
}

std::vector<RecordedSpace> recorded_spaces() {
  std::vector<RecordedSpace> spaces;
  for (const Recording& recording : llvm::cantFail(
           read_recordings({TRIGEN_SOURCE "/tests/data/recordings", TRIGEN_SOURCE "/tests/data/samples"})))
    spaces.push_back(llvm::cantFail(space_of(recording)));
  return spaces;
}

// Bounds of each family's order and times. The figures of `trigen-lab model check tests/data`, less 0.05 of
// the rank correlation and with a tenth more of the error: a constant that makes the model worse than that
// shows here.
struct Bound {
  const char *family, *op;
  size_t problems;
  double rank, error;
};
constexpr Bound kBounds[] = {
    {"decode", "decode", 11, 0.67, 0.09},
    {"mma_sm80", "forward", 69, 0.53, 0.09},
    {"mma_sm80", "grad_input", 63, 0.56, 0.11},
    {"mma_sm80", "grad_weight", 67, 0.65, 0.13},
    {"mma_sm80", "gram", 28, 0.73, 0.16},
    {"simt", "forward", 68, 0.46, 0.14},
    {"simt", "grad_input", 65, 0.43, 0.13},
    {"simt", "grad_weight", 65, 0.56, 0.17},
    {"simt", "gram", 28, 0.52, 0.25},
    {"wgmma_resident_sm90", "forward", 17, 0.35, 0.13},
    {"wgmma_resident_sm90", "grad_input", 7, 0.60, 0.11},
    {"wgmma_rows_sm90", "forward", 2, 0.40, 0.08},
    {"wgmma_rows_sm90", "grad_input", 1, 0.26, 0.11},
    {"wgmma_sm90", "forward", 98, 0.72, 0.099},
    {"wgmma_sm90", "grad_input", 80, 0.78, 0.10},
    {"wgmma_sm90", "grad_weight", 71, 0.78, 0.10},
    {"wgmma_sm90", "gram", 28, 0.86, 0.10},
    {"wgmma_split_sm90", "forward", 11, 0.58, 0.08},
    {"wgmma_split_sm90", "grad_input", 11, 0.62, 0.09},
    {"wgmma_split_sm90", "grad_weight", 11, 0.81, 0.11},
    {"wgmma_taps_sm90", "forward", 22, 0.83, 0.11},
    {"wgmma_taps_sm90", "grad_input", 25, 0.84, 0.10},
    {"wgmma_taps_sm90", "grad_weight", 7, 0.00, 0.24},
    {"wgmma_tf32_sm90", "forward", 11, 0.78, 0.18},
    {"wgmma_tf32_sm90", "grad_input", 11, 0.73, 0.09},
    {"wgmma_tf32_sm90", "grad_weight", 11, 0.87, 0.10},
};

TEST(ModelCheck, EveryFamilyKeepsItsOrderAndItsTimes) {
  const ModelFigures figures = check_model(recorded_spaces());
  EXPECT_EQ(figures.families.size(), std::size(kBounds));
  for (const Bound& bound : kBounds) {
    const auto found =
        std::find_if(figures.families.begin(), figures.families.end(),
                     [&](const FamilyFigures& f) { return f.family == bound.family && f.op == bound.op; });
    ASSERT_NE(found, figures.families.end()) << bound.family << " " << bound.op;
    EXPECT_GE(found->problems, bound.problems) << bound.family << " " << bound.op;
    EXPECT_GE(found->rank, bound.rank) << bound.family << " " << bound.op;
    EXPECT_LE(found->error, bound.error) << bound.family << " " << bound.op;
  }
}

// Of an H100 a sweep's kernels were timed: they are predicted for its own memory, by the H200's rates.
TEST(ModelCheck, ReadsWhatASweepTimed) {
  std::vector<RecordedSpace> spaces;
  for (const Recording& recording :
       llvm::cantFail(read_recordings({TRIGEN_SOURCE "/bench/results/h100-2026-11-23b.jsonl"}))) {
    EXPECT_EQ(recording.role, "check");
    spaces.push_back(llvm::cantFail(space_of(recording)));
    EXPECT_EQ(spaces.back().target->model_device, "H100 SXM");
  }
  const ModelFigures figures = check_model(spaces);
  EXPECT_EQ(figures.choices.size(), 63U);
  EXPECT_LE(figures.untuned.nine_in_ten, 0.06);
  const auto found =
      std::find_if(figures.families.begin(), figures.families.end(),
                   [](const FamilyFigures& f) { return f.family == "wgmma_sm90" && f.op == "grad_weight"; });
  ASSERT_NE(found, figures.families.end());
  EXPECT_EQ(found->candidates, 26U);
  EXPECT_LE(found->error, 0.15) << "0.20 with an H200's memory";
}

// An H100 that timed bench/model.txt: by the H200's rates and its own memory, without a table of its own.
TEST(ModelCheck, AnH100NeedsItsMemoryAndNoTable) {
  std::vector<RecordedSpace> spaces;
  for (const Recording& recording :
       llvm::cantFail(read_recordings({TRIGEN_SOURCE "/bench/results/h100-2026-11-27-samples.zst"}))) {
    spaces.push_back(llvm::cantFail(space_of(recording)));
    EXPECT_EQ(spaces.back().target->model_device, "H100 SXM");
  }
  const ModelFigures figures = check_model(spaces);
  EXPECT_EQ(figures.choices.size(), 176U);
  EXPECT_LE(figures.untuned.median, 0.01);
  EXPECT_LE(figures.untuned.nine_in_ten, 0.12);
  EXPECT_LE(figures.untuned_8.worst, 0.16);
}

// The goals of the untuned choice: to lose 2 % in the median, 8 % for nine in ten (8.1 since short calls are among them, 9.3 on the
// problems that constants were fitted to) and 20 % at worst, on the problems that no constant was fitted to and on the others.
// Problems that lose more are missed goals and stand here by name, as on docs/cost-model.md: one more fails, and so does one less,
// whose line there is to go.
TEST(ModelCheck, UntunedChoicesLoseWhatIsAsked) {
  const std::vector<RecordedSpace> spaces = recorded_spaces();
  for (const char* role : {"check", "fit"}) {
    const ModelFigures figures = check_model(spaces, role);
    EXPECT_LE(figures.untuned.median, 0.02) << role;
    EXPECT_LE(figures.untuned.nine_in_ten, role == std::string("check") ? 0.082 : 0.094) << role;
    std::vector<std::string> missed;
    for (const UntunedChoice& choice : figures.choices)
      if (choice.loss() > 0.20) missed.push_back(choice.problem);
    EXPECT_THAT(missed,
                UnorderedElementsAreArray(role == std::string("check") ? kMissedOfCheck : kMissedOfFit));
  }
}

}  // namespace
}  // namespace trigen
