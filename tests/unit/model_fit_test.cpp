// Rates fitted to times that a known table made.
#include "lab/model_fit.h"

#include <gmock/gmock.h>

#include "generator/error.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using testing::HasSubstr;

std::string table() {
  for (const RatesFile& file : rates_files())
    if (file.name == "h200.txt") return file.text.str();
  return "";
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// Every tenth candidate of a problem, with the times that a table predicts.
RecordedSpace space_by(const Rates& rates, const std::string& problem, const std::string& role) {
  Recording recording;
  recording.problem = problem;
  recording.target = "sm_90a";
  recording.role = role;
  const Problem parsed = llvm::cantFail(parse_problem(problem));
  const auto all = llvm::cantFail(rank_candidates(parsed, *llvm::cantFail(find_target("sm_90a"))));
  for (size_t i = 0; i < all.size(); i += 10) {
    RecordedCandidate row;
    row.us = 1;
    row.candidate = describe(all[i]);
    recording.rows.push_back(row);
  }
  RecordedSpace space = llvm::cantFail(space_of(recording));
  const std::vector<double> us = predicted_us(space, &rates);
  for (size_t i = 0; i < us.size(); ++i) space.rows[i].us = us[i];
  return space;
}

std::vector<RecordedSpace> spaces_by(const Rates& rates) {
  return {space_by(rates, "forward,dtype=bf16,B=16,T=1024,D=768", "fit"),
          space_by(rates, "forward,dtype=bf16,B=32,T=512,D=768", "fit")};
}

TEST(ModelFit, FindsARateThatWasMadeWrong) {
  const Rates truth = llvm::cantFail(Rates::parse(table()));
  const auto spaces = spaces_by(truth);
  const std::string wrong = replaced(table(), "[loop tiles]\ntensor_share    ",
                                     "[loop tiles]\ntensor_share    0.3 x fitted a mistake #");
  const auto fit = llvm::cantFail(fit_rates(wrong, spaces));
  EXPECT_GT(fit.before, 0.02);
  EXPECT_LT(fit.after, fit.before / 4) << "the objective of the truth is about 0";
  ASSERT_FALSE(fit.changes.empty());
  EXPECT_LT(fit_objective(llvm::cantFail(Rates::parse(fit.table)), spaces, {}), fit.after + 1e-12)
      << "the table that is printed is the one that was reached";
}

TEST(ModelFit, LeavesDatasheetsAlone) {
  const Rates truth = llvm::cantFail(Rates::parse(table()));
  FitOptions once;
  once.sweeps = 1;
  const Rates fitted =
      llvm::cantFail(Rates::parse(llvm::cantFail(fit_rates(table(), spaces_by(truth), once)).table));
  ASSERT_EQ(fitted.all().size(), truth.all().size());
  for (size_t i = 0; i < truth.all().size(); ++i) {
    EXPECT_EQ(fitted.all()[i].name, truth.all()[i].name);
    if (truth.all()[i].kind == Rate::Kind::kDatasheet) {
      EXPECT_EQ(fitted.all()[i].value, truth.all()[i].value) << truth.all()[i].name;
    }
  }
}

TEST(ModelFit, NeverLooksAtTheCheckHalf) {
  const Rates truth = llvm::cantFail(Rates::parse(table()));
  FitOptions once;
  once.sweeps = 1;
  auto spaces = spaces_by(truth);
  const std::string without = llvm::cantFail(fit_rates(table(), spaces, once)).table;
  spaces.push_back(space_by(truth, "forward,dtype=bf16,B=16,T=1024,D=768", "check"));
  for (RecordedSpace::Row& row : spaces.back().rows) row.us *= 7;
  EXPECT_EQ(llvm::cantFail(fit_rates(table(), spaces, once)).table, without);
  EXPECT_THAT(take_error(fit_rates(table(), {spaces.back()}).takeError()).message,
              HasSubstr("no recording there has the role fit"));
}

TEST(ModelFit, FoldsPredictWhatTheyWereNotFittedTo) {
  const Rates truth = llvm::cantFail(Rates::parse(table()));
  FitOptions once;
  once.sweeps = 1;
  auto spaces = spaces_by(truth);
  spaces.push_back(space_by(truth, "forward,dtype=bf16,B=16,T=1024,D=768", "check"));
  const ModelFigures held = llvm::cantFail(cross_validate(table(), spaces, 2, once));
  ASSERT_EQ(held.choices.size(), 2U) << "each problem of role fit once, none of the others";
  EXPECT_NE(held.choices[0].problem, held.choices[1].problem);
  EXPECT_LT(held.untuned.worst, 0.02) << "the table is the one that made the times";
}

// The embedded table is what the fit to the recordings ends at: no single rate of it would move again.
TEST(ModelFit, TheEmbeddedTableIsFitted) {
  TRIGEN_LEAVES_OUT(!thorough());  // it fits for 40 s
  std::vector<RecordedSpace> spaces;
  for (const Recording& recording : llvm::cantFail(
           read_recordings({TRIGEN_SOURCE "/tests/data/recordings", TRIGEN_SOURCE "/tests/data/samples"})))
    if (recording.role == "fit") spaces.push_back(llvm::cantFail(space_of(recording)));
  FitOptions once;
  once.sweeps = 1;
  auto fit = fit_rates(table(), spaces, once);
  ASSERT_TRUE(static_cast<bool>(fit)) << take_error(fit.takeError()).message;
  for (const FittedRate& rate : fit->changes)
    ADD_FAILURE() << "[" << rate.section << "] " << rate.name << " is " << rate.before << ", the fit says "
                  << rate.after;
}

}  // namespace
}  // namespace trigen
