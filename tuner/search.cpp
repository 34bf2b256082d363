#include "tuner/search.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <set>
#include <tuple>

#include "check/text.h"
#include "tuner/statistics.h"

namespace trigen {
namespace {

// A neighbour of a config this much slower than the best is not worth a try.
constexpr double kWalkReach = 0.10;
// The model is off by less than this factor: seeds of other tiles that it puts further away wait for the
// walk.
constexpr double kSeedReach = 2.0;

auto tile_of(const SearchPoint& p) {
  return std::make_tuple(p.family, p.config.tile_m, p.config.tile_n, p.config.tile_k, p.config.cluster);
}

}  // namespace

bool neighbours(const SearchPoint& a, const SearchPoint& b) {
  return a.family == b.family && neighbours(a.config, b.config);
}

Search::Search(std::vector<SearchPoint> points, const SearchOptions& options)
    : options_(options),
      points_(std::move(points)),
      seconds_(points_.size(), -1),
      tried_(points_.size(), false) {
  allowance_ = points_.size();
  if (options_.exhaustive) return;
  const auto share = static_cast<size_t>(std::floor(options_.share * static_cast<double>(points_.size())));
  allowance_ = std::max(share, options_.min_tried);
  if (options_.max_tried > 0) allowance_ = std::min(allowance_, options_.max_tried);
  allowance_ = std::min(allowance_, points_.size());
}

void Search::timed(size_t candidate, double median_s) {
  seconds_[candidate] = median_s;
  tried_[candidate] = true;
  ++done_;
  ++timed_;
  if (timed_ == 1 || median_s < best_s_ || (median_s == best_s_ && candidate < best_)) {
    best_ = candidate;
    best_s_ = median_s;
  }
}

void Search::failed(size_t candidate) {
  tried_[candidate] = true;
  ++done_;
}

// The first few of each family, then the model's first choices up to half of the seeds, then the first choice of
// each further tile. What the families take beyond a half of the seeds comes on top of them.
std::vector<size_t> Search::seeds() const {
  size_t wanted =
      std::max<size_t>(1, static_cast<size_t>(std::lround(options_.seeds * static_cast<double>(allowance_))));
  std::vector<size_t> chosen;
  std::set<decltype(tile_of(points_[0]))> tiles;
  const auto take = [&](size_t i) {
    if (std::find(chosen.begin(), chosen.end(), i) != chosen.end()) return;
    chosen.push_back(i);
    tiles.insert(tile_of(points_[i]));
  };
  for (size_t round = 0; round < options_.family_first; ++round) {
    std::set<std::string> served;
    for (size_t i = 0; i < points_.size() && chosen.size() < wanted; ++i)
      if (tiles.count(tile_of(points_[i])) == 0 && served.insert(points_[i].family).second) take(i);
  }
  const size_t half = (wanted + 1) / 2;
  for (size_t i = 0; i < std::min(half, points_.size()); ++i) take(i);
  wanted = std::max(wanted, chosen.size());
  for (size_t i = 0; i < points_.size() && chosen.size() < wanted; ++i) {
    if (points_[i].predicted_s > kSeedReach * points_[0].predicted_s) break;
    if (tiles.count(tile_of(points_[i])) == 0) take(i);
  }
  for (size_t i = 0; i < points_.size() && chosen.size() < wanted; ++i) take(i);
  chosen.erase(std::remove_if(chosen.begin(), chosen.end(), [&](size_t i) { return tried_[i]; }),
               chosen.end());
  if (chosen.size() > left()) chosen.resize(left());
  return chosen;
}

std::vector<size_t> Search::step() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < points_.size(); ++i)
    if (seconds_[i] >= 0 && seconds_[i] <= best_s_ * (1 + kWalkReach)) order.push_back(i);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return seconds_[a] < seconds_[b]; });
  const size_t wanted = std::min(options_.batch, left());
  std::vector<size_t> chosen;
  const auto take = [&](size_t i) {
    if (chosen.size() < wanted && !tried_[i] && std::find(chosen.begin(), chosen.end(), i) == chosen.end())
      chosen.push_back(i);
  };
  for (const size_t from : order) {
    // of each further tile the model's first alone
    std::set<decltype(tile_of(points_[0]))> tiles;
    for (size_t i = 0; i < points_.size() && chosen.size() < wanted; ++i) {
      if (!neighbours(points_[from], points_[i])) continue;
      if (tile_of(points_[i]) != tile_of(points_[from]) && !tiles.insert(tile_of(points_[i])).second)
        continue;
      take(i);
    }
  }
  // nothing near is left: on along the model's order
  for (size_t i = 0; i < points_.size() && chosen.size() < wanted; ++i) take(i);
  return chosen;
}

std::vector<size_t> Search::next(double elapsed_s) {
  if (left() == 0 || !in_time(elapsed_s)) return {};
  if (options_.exhaustive) {
    std::vector<size_t> all;
    for (size_t i = 0; i < points_.size(); ++i)
      if (!tried_[i]) all.push_back(i);
    return all;
  }
  if (steps_++ == 0) {
    auto first = seeds();
    if (!first.empty()) return first;  // else all of them were tried before an interruption
  }
  if (any()) {
    if (before_step_s_ > 0) idle_steps_ = best_s_ < before_step_s_ * (1 - kNoiseFloor) ? 0 : idle_steps_ + 1;
    if (idle_steps_ >= options_.patience) return {};
    before_step_s_ = best_s_;
  }
  return step();
}

std::vector<size_t> Search::after(const std::vector<size_t>& batch) const {
  Search guess = *this;
  const double as_predicted = any() ? best_s_ / points_[best_].predicted_s : 1;
  for (const size_t i : batch) guess.timed(i, as_predicted * points_[i].predicted_s);
  return guess.next(0);
}

bool Search::in_time(double elapsed_s) const {
  return options_.budget_s <= 0 || elapsed_s < options_.budget_s * (1 - options_.finals_share);
}

std::string Search::reason(double elapsed_s) const {
  const size_t all = points_.size();
  if (done_ >= all) return format("all %zu candidates tried", all);
  if (!in_time(elapsed_s))
    return format("budget of %g s spent after %zu of %zu candidates", options_.budget_s, done_, all);
  if (left() == 0) return format("%zu of %zu candidates tried, as many as allowed", done_, all);
  if (idle_steps_ >= options_.patience)
    return format("no gain in the last %zu steps after %zu of %zu candidates", idle_steps_, done_, all);
  return format("stopped after %zu of %zu candidates", done_, all);
}

std::vector<size_t> Search::finalists() const {
  std::vector<size_t> order;
  for (size_t i = 0; i < seconds_.size(); ++i) {
    if (seconds_[i] >= 0 && seconds_[i] <= best_s_ * (1 + options_.finals_reach)) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return seconds_[a] < seconds_[b]; });
  if (order.size() > options_.finalists) order.resize(options_.finalists);
  std::sort(order.begin(), order.end());
  return order;
}

double Search::contending_s() const {
  if (timed_ == 0) return std::numeric_limits<double>::infinity();
  std::vector<double> times;
  std::copy_if(seconds_.begin(), seconds_.end(), std::back_inserter(times), [](double s) { return s >= 0; });
  const double reach = best_s_ * (1 + options_.finals_reach);
  if (times.size() < options_.finalists) return reach;
  const auto last = times.begin() + static_cast<std::ptrdiff_t>(options_.finalists) - 1;
  std::nth_element(times.begin(), last, times.end());
  return std::min(reach, *last);
}

}  // namespace trigen
