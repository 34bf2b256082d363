#include "tuner/search_report.h"

#include <algorithm>

#include "tuner/statistics.h"

namespace trigen {
namespace {

constexpr size_t kSeveral = 3;  // errors of a group that stand for the group
constexpr int kSteps = 200;     // of the integral over times below the best

double time_of(const CandidateReport& row) {
  if (!row.finals.empty()) return summarize(row.finals).median;
  return row.quick.empty() ? 0 : summarize(row.quick).median;
}

// Measured over predicted, sorted.
using Errors = std::vector<double>;

// The part of the errors at most this large.
double part_below(const Errors& errors, double limit) {
  const auto end = std::upper_bound(errors.begin(), errors.end(), limit);
  return static_cast<double>(end - errors.begin()) / static_cast<double>(errors.size());
}

}  // namespace

std::string loss_group(const std::string& candidate) { return candidate.substr(0, candidate.find(',')); }

double expected_loss(const std::vector<LossPoint>& points) {
  std::map<std::string, Errors> groups;
  Errors all;
  double best = 0;
  for (const LossPoint& point : points) {
    if (point.measured_s <= 0 || point.predicted_s <= 0) continue;
    const double error = point.measured_s / point.predicted_s;
    all.push_back(error);
    groups[point.group].push_back(error);
    if (best == 0 || point.measured_s < best) best = point.measured_s;
  }
  if (all.empty()) return -1;
  std::sort(all.begin(), all.end());
  for (auto& [group, errors] : groups) std::sort(errors.begin(), errors.end());
  // E[best - min(best, X)] is the integral over times t below the best of P(X < t), X the fastest untimed.
  double sum = 0;
  for (int step = 0; step < kSteps; ++step) {
    const double t = best * (step + 0.5) / kSteps;
    double none = 1;
    for (const LossPoint& point : points) {
      if (point.measured_s > 0 || point.predicted_s <= 0) continue;
      const auto group = groups.find(point.group);
      const bool own = group != groups.end() && group->second.size() >= kSeveral;
      none *= 1 - part_below(own ? group->second : all, t / point.predicted_s);
    }
    sum += 1 - none;
  }
  return sum / kSteps;
}

SearchReport search_report_of(const TuneReport& report) {
  SearchReport out;
  out.space = std::max(report.space, report.candidates.size());
  std::vector<LossPoint> points;
  std::vector<SearchReport::Step> times;
  for (const CandidateReport& row : report.candidates) {
    const double time = time_of(row);
    switch (row.outcome) {
      case Outcome::kNotTried:
        ++out.passed_over["ranked lower by the model"];
        points.push_back({loss_group(row.candidate), row.ranked_s, 0});
        continue;
      case Outcome::kNotBuilt:
      case Outcome::kSpilled:
      case Outcome::kWrong:
      case Outcome::kFailed:
        ++out.passed_over[to_string(row.outcome)];
        break;
      default:
        break;
    }
    ++out.tried;
    if (time <= 0) continue;
    points.push_back({loss_group(row.candidate), row.ranked_s, time});
    times.push_back({row.at_s, summarize(row.quick.empty() ? row.finals : row.quick).median});
  }
  if (out.space > report.candidates.size())
    out.passed_over["not drawn"] = out.space - report.candidates.size();
  std::stable_sort(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.at_s < b.at_s; });
  for (const auto& step : times)
    if (out.best.empty() || step.best_s < out.best.back().best_s) out.best.push_back(step);
  out.expected_loss = report.provenance == Provenance::kMeasured ? expected_loss(points) : -1;
  return out;
}

}  // namespace trigen
