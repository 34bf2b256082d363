// Report of a search, for people: how many candidates there were, which were tried, why the others were not, how
// the best was found, and what the choice may lose against the best of all.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tuner/tune.h"

namespace trigen {

struct SearchReport {
  size_t space = 0, tried = 0;
  std::map<std::string, size_t> passed_over;  // why -> how many
  struct Step {
    double at_s = 0, best_s = 0;
  };
  std::vector<Step> best;  // each time that the best became better
  // Share of the choice's time that the best untimed candidate is expected to save, by the model's errors for the
  // timed ones. Negative: nothing was timed.
  double expected_loss = -1;
};
SearchReport search_report_of(const TuneReport& report);

struct LossPoint {
  std::string group;  // points of one group are off alike
  double predicted_s = 0;
  double measured_s = 0;  // 0: not timed
};
// E[max(0, best - fastest of the untimed)] / best. An untimed point takes its prediction times the error of a
// timed one, drawn from its group where that has several, else from all; draws are independent.
double expected_loss(const std::vector<LossPoint>& points);
// "wgmma_sm90:tile=128x256x64" of a candidate's text: those of one tile are off alike.
std::string loss_group(const std::string& candidate);

}  // namespace trigen
