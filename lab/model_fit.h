// Fits the rates of a device's table (generator/rates.h) to recordings: those of role fit, and no others.
//
// Coordinate descent over every rate that is no datasheet's: a factor up or down as long as it helps. What is
// made small, averaged over problems:
//
//   log(1 + loss)   loss of the model's choice, where candidates predicted within a few percent of each other
//                   share the choice: a smooth stand-in for the first choice's loss
//   error x 1.5     abs(log(predicted / measured)) of the candidates, each with the weight best / measured
//
// A change must pay for itself (FitOptions::least), and the more the further a rate goes from where it began
// (FitOptions::prior times the square of log(value / Rate::first)), so that rates which no recording speaks of stay
// as they are.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lab/model_check.h"

namespace trigen {

struct FitOptions {
  int sweeps = 20;      // over all rates, at most; a sweep without a change is the last
  double least = 1e-4;  // that a change must gain
  double prior = 2e-4;
  double closeness = 0.05;  // predictions so close share the choice
  std::function<void(int sweep, double objective)> progress;
};

struct FittedRate {
  std::string section, name, unit;
  double before = 0, after = 0;
};

struct RatesFit {
  double before = 0, after = 0;  // the objective
  std::vector<FittedRate> changes;
  std::string table;  // with the changed lines: kind fitted, and as source the recorded ops that they move
};

// Errors: a table that is none, no recording of role fit, or recordings of several devices.
llvm::Expected<RatesFit> fit_rates(const std::string& table, const std::vector<RecordedSpace>& spaces,
                                   const FitOptions& options = {});
// Losses of the choices on problems that a fit has not seen, all of role fit: dealt into `folds` by their sizes,
// each fold predicted with rates fitted to the others, from the start of the table's fit. Fills `choices` and
// `untuned`. For judging a term of the model without a look at the check half.
llvm::Expected<ModelFigures> cross_validate(const std::string& table, std::vector<RecordedSpace> spaces,
                                            int folds, const FitOptions& options = {});
// The objective on the spaces of role fit.
double fit_objective(const Rates& rates, const std::vector<RecordedSpace>& spaces, const FitOptions& options);

}  // namespace trigen
