// Today's cost model held against times that a device measured: every recorded candidate is predicted anew.
//
// Two things are asked of the model. Of a family, that its order is right: rank correlation, the error of the
// times, and what its first choices lose to the family's best. Of all families together, what a user meets
// who has not tuned: the model's first choice of all against the best that was measured.
#pragma once

#include <string>
#include <vector>

#include "generator/cost/cost.h"
#include "lab/recording.h"

namespace trigen {

// A recording whose candidates were parsed, to be predicted as often as one likes.
struct RecordedSpace {
  struct Row {
    Candidate candidate;
    Work work;
    double us = 0;     // settled_us; rows without a time are left out
    size_t order = 0;  // the families' fixed order, which decides between equal predictions
    std::string text;
  };
  Problem problem;
  const Target* target = nullptr;
  std::string role, device, file;
  bool whole = false;  // every candidate was tried
  std::vector<Row> rows;
};
// Errors: a problem, target or candidate that is none today, or nothing was timed.
llvm::Expected<RecordedSpace> space_of(const Recording& recording);

// Predictions of a space's rows, in microseconds, with today's rates or with others.
std::vector<double> predicted_us(const RecordedSpace& space, const Rates* rates);

// Over problems, each the time of a choice over the best time of its rows, less 1.
struct Losses {
  size_t problems = 0;
  double median = 0, nine_in_ten = 0, worst = 0;
  std::string worst_problem;
};

// One family's candidates of one op.
struct FamilyFigures {
  std::string family, op;
  size_t problems = 0, candidates = 0;
  size_t ranked = 0;      // problems with at least kFewRows of its candidates: what has an order
  double rank = 0;        // Spearman's correlation within a problem, averaged over those
  double error = 0;       // median of |log(predicted / measured)| over candidates
  double bias = 0;        // median of log(predicted / measured): below 0 is too fast
  Losses first, first_8;  // of those: the family's first choice, and the best of its first eight
};
inline constexpr size_t kFewRows = 3;

// The untuned choice of one problem.
struct UntunedChoice {
  std::string problem, role, chosen, best;
  double chosen_us = 0, best_us = 0, predicted_us = 0;
  bool recorded = false;  // today's first choice of all legal candidates is among the rows: `chosen` is it
  double loss() const { return chosen_us / best_us - 1; }
};
Losses losses_of(llvm::ArrayRef<UntunedChoice> choices);

struct ModelFigures {
  std::vector<FamilyFigures> families;  // in the order of their names, forward first
  std::vector<UntunedChoice> choices;   // in the order of the recordings
  Losses untuned, untuned_8;            // over all families; the best of the first eight
  Losses
      recorded;  // of the choices that are recorded: the others' losses are of what the model does not choose
};
// `role`: fit or check, "" for all. `whole_order`: also look for today's first choice among all legal
// candidates (UntunedChoice::recorded), which predicts every one of them. `rates`: others than today's.
ModelFigures check_model(const std::vector<RecordedSpace>& spaces, const std::string& role = "",
                         bool whole_order = false, const Rates* rates = nullptr);
// The same for predictions of any origin: of each space, of each row.
ModelFigures check_predictions(const std::vector<RecordedSpace>& spaces,
                               const std::vector<std::vector<double>>& predicted);

// 1 for the same order, -1 for the reverse, 0 where either is constant; equal values share their mean rank.
double rank_correlation(llvm::ArrayRef<double> a, llvm::ArrayRef<double> b);
std::string to_json(const ModelFigures& figures);

}  // namespace trigen
