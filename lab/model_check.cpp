#include "lab/model_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "generator/error.h"
#include "tuner/statistics.h"

namespace trigen {
namespace {

// Mean ranks, from 0.
std::vector<double> ranks_of(llvm::ArrayRef<double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) ++end;
    const double rank = static_cast<double>(i + end - 1) / 2;
    for (; i < end; ++i) ranks[order[i]] = rank;
  }
  return ranks;
}

class LossList {
 public:
  void add(double loss, const std::string& problem) {
    if (losses_.empty() || loss > worst_) {
      worst_ = loss;
      worst_problem_ = problem;
    }
    losses_.push_back(loss);
  }
  Losses figures() const {
    if (losses_.empty()) return {};
    std::vector<double> sorted = losses_;
    std::sort(sorted.begin(), sorted.end());
    return {sorted.size(), quantile(sorted, 0.5), quantile(sorted, 0.9), worst_, worst_problem_};
  }

 private:
  std::vector<double> losses_;
  double worst_ = 0;
  std::string worst_problem_;
};

// Some rows of a space in the order in which the model would choose them.
std::vector<size_t> model_order(const RecordedSpace& space, const std::vector<double>& predicted,
                                std::vector<size_t> rows) {
  std::sort(rows.begin(), rows.end(), [&](size_t a, size_t b) {
    if (predicted[a] != predicted[b]) return predicted[a] < predicted[b];
    return space.rows[a].order < space.rows[b].order;
  });
  return rows;
}

// The best time of the first `count` rows over the best of all of them, less 1.
double loss_of_first(const RecordedSpace& space, const std::vector<size_t>& order, size_t count) {
  double first = HUGE_VAL;
  double best = HUGE_VAL;
  for (size_t i = 0; i < order.size(); ++i) {
    const double us = space.rows[order[i]].us;
    best = std::min(best, us);
    if (i < count) first = std::min(first, us);
  }
  return first / best - 1;
}

// Figures gathered of one family and op.
struct Gathered {
  std::vector<double> ranks, errors, biases;
  size_t problems = 0;
  LossList first, first_8;
  void add(const RecordedSpace& space, const std::vector<double>& predicted,
           const std::vector<size_t>& rows) {
    const std::vector<size_t> order = model_order(space, predicted, rows);
    std::vector<double> times, guesses;
    for (const size_t i : order) {
      times.push_back(space.rows[i].us);
      guesses.push_back(predicted[i]);
      biases.push_back(std::log(predicted[i] / space.rows[i].us));
      errors.push_back(std::fabs(biases.back()));
    }
    ++problems;
    if (rows.size() < kFewRows) return;
    ranks.push_back(rank_correlation(guesses, times));
    const std::string text = to_string(space.problem);
    first.add(loss_of_first(space, order, 1), text);
    first_8.add(loss_of_first(space, order, 8), text);
  }
};

// Is today's first choice of all legal candidates among the rows?
bool first_is_recorded(const RecordedSpace& space) {
  auto all = list_candidates(space.problem, *space.target);
  if (!all) {
    llvm::consumeError(all.takeError());
    return false;
  }
  const std::string first = describe(all->front());
  return std::any_of(space.rows.begin(), space.rows.end(),
                     [&](const RecordedSpace::Row& row) { return row.text == first; });
}

// A position that no constant of the model moves.
std::map<std::string, size_t> fixed_order(const Problem& problem, const Target& target) {
  std::map<std::string, size_t> out;
  for (const Family* family : families()) {
    if (!family->serves(target)) continue;
    for (const Config& config : family->configs(problem, target))
      out.emplace(describe({problem, &target, family, config, false}), out.size());
  }
  return out;
}

// `predict_all`: the microseconds of a space's rows.
template <class Predict>
ModelFigures figures_of(const std::vector<RecordedSpace>& spaces, const std::string& role, bool whole_order,
                        const Predict& predict_all) {
  ModelFigures out;
  std::map<std::pair<std::string, Op>, Gathered> gathered;
  LossList untuned_8, recorded;
  for (const RecordedSpace& space : spaces) {
    if (!role.empty() && space.role != role) continue;
    const std::vector<double> predicted = predict_all(space);
    std::map<std::string, std::vector<size_t>> by_family;
    std::vector<size_t> all;
    for (size_t i = 0; i < space.rows.size(); ++i) {
      by_family[space.rows[i].candidate.family->name().str()].push_back(i);
      all.push_back(i);
    }
    for (const auto& [family, rows] : by_family)
      gathered[{family, space.problem.op}].add(space, predicted, rows);
    const std::vector<size_t> order = model_order(space, predicted, all);
    const size_t best = *std::min_element(
        all.begin(), all.end(), [&](size_t a, size_t b) { return space.rows[a].us < space.rows[b].us; });
    out.choices.push_back({to_string(space.problem), space.role, space.rows[order[0]].text,
                           space.rows[best].text, space.rows[order[0]].us, space.rows[best].us,
                           predicted[order[0]]});
    untuned_8.add(loss_of_first(space, order, 8), out.choices.back().problem);
    out.choices.back().recorded = whole_order && first_is_recorded(space);
    if (out.choices.back().recorded) recorded.add(out.choices.back().loss(), out.choices.back().problem);
  }
  for (auto& [key, g] : gathered) {
    FamilyFigures f;
    f.family = key.first;
    f.op = to_string(key.second).str();
    f.problems = g.problems;
    f.candidates = g.errors.size();
    f.ranked = g.ranks.size();
    if (f.ranked > 0)
      f.rank = std::accumulate(g.ranks.begin(), g.ranks.end(), 0.0) / static_cast<double>(f.ranked);
    f.error = summarize(g.errors).median;
    f.bias = summarize(g.biases).median;
    f.first = g.first.figures();
    f.first_8 = g.first_8.figures();
    out.families.push_back(std::move(f));
  }
  out.untuned = losses_of(out.choices);
  out.untuned_8 = untuned_8.figures();
  out.recorded = recorded.figures();
  return out;
}

}  // namespace

llvm::Expected<RecordedSpace> space_of(const Recording& recording) {
  RecordedSpace out;
  auto problem = parse_problem(recording.problem);
  if (!problem) return problem.takeError();
  auto target = find_target(recording.target);
  if (!target) return target.takeError();
  out.problem = *problem;
  out.target = *target;
  // The GPU that was timed, where it is not the one that its architecture stands for.
  if (auto gpu = find_gpu(llvm::StringRef(recording.device).split(',').first); !gpu)
    llvm::consumeError(gpu.takeError());
  else if ((*gpu)->name == (*target)->name)
    out.target = *gpu;
  out.role = recording.role;
  out.device = recording.device;
  out.file = recording.file;
  out.whole = recording.exhaustive();
  const std::map<std::string, size_t> order = fixed_order(out.problem, *out.target);
  const std::vector<double> us = settled_us(recording);
  for (size_t i = 0; i < recording.rows.size(); ++i) {
    if (us[i] <= 0) continue;
    auto candidate = parse_candidate(out.problem, *out.target, recording.rows[i].candidate);
    if (!candidate) return candidate.takeError();
    RecordedSpace::Row row;
    row.candidate = *candidate;
    row.work = candidate->family->work(out.problem, *out.target, candidate->config, out.target->sms);
    row.us = us[i];
    row.text = recording.rows[i].candidate;
    const auto found = order.find(row.text);
    row.order = found == order.end() ? order.size() + i : found->second;
    out.rows.push_back(std::move(row));
  }
  if (out.rows.empty())
    return make_error(ErrorKind::kBadRequest, "no candidate of " + recording.problem + " was timed");
  return out;
}

std::vector<double> predicted_us(const RecordedSpace& space, const Rates* rates) {
  DeviceModel device = model_of(*space.target);
  if (rates != nullptr) device.rates = rates;
  std::vector<double> out;
  out.reserve(space.rows.size());
  for (const RecordedSpace::Row& row : space.rows)
    out.push_back(predict(row.work, *space.target, device).seconds * 1e6);
  return out;
}

double rank_correlation(llvm::ArrayRef<double> a, llvm::ArrayRef<double> b) {
  const std::vector<double> x = ranks_of(a);
  const std::vector<double> y = ranks_of(b);
  const double mean = static_cast<double>(a.size() - 1) / 2;
  double xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

Losses losses_of(llvm::ArrayRef<UntunedChoice> choices) {
  LossList list;
  for (const UntunedChoice& choice : choices) list.add(choice.loss(), choice.problem);
  return list.figures();
}

ModelFigures check_model(const std::vector<RecordedSpace>& spaces, const std::string& role, bool whole_order,
                         const Rates* rates) {
  const auto predict_all = [&](const RecordedSpace& space) { return predicted_us(space, rates); };
  return figures_of(spaces, role, whole_order, predict_all);
}

ModelFigures check_predictions(const std::vector<RecordedSpace>& spaces,
                               const std::vector<std::vector<double>>& predicted) {
  const auto given = [&](const RecordedSpace& space) { return predicted[&space - spaces.data()]; };
  return figures_of(spaces, "", false, given);
}
std::string to_json(const ModelFigures& figures) {
  using nlohmann::json;
  const auto losses = [](const Losses& l) {
    return json{{"problems", l.problems},
                {"median", l.median},
                {"nine_in_ten", l.nine_in_ten},
                {"worst", l.worst},
                {"worst_problem", l.worst_problem}};
  };
  json families = json::array();
  for (const FamilyFigures& f : figures.families)
    families.push_back({{"family", f.family},
                        {"op", f.op},
                        {"problems", f.problems},
                        {"candidates", f.candidates},
                        {"ranked", f.ranked},
                        {"rank_correlation", f.rank},
                        {"log_error", f.error},
                        {"log_bias", f.bias},
                        {"first", losses(f.first)},
                        {"first_8", losses(f.first_8)}});
  json choices = json::array();
  for (const UntunedChoice& c : figures.choices)
    choices.push_back({{"problem", c.problem},
                       {"role", c.role},
                       {"recorded", c.recorded},
                       {"loss", c.loss()},
                       {"chosen", c.chosen},
                       {"chosen_us", c.chosen_us},
                       {"predicted_us", c.predicted_us},
                       {"best", c.best},
                       {"best_us", c.best_us}});
  return json{{"untuned", losses(figures.untuned)},
              {"untuned_8", losses(figures.untuned_8)},
              {"recorded", losses(figures.recorded)},
              {"families", families},
              {"choices", choices}}
      .dump(1);
}

}  // namespace trigen
