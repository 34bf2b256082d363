// The end of a tune: the best few, timed in turn.
#include <algorithm>

#include "check/text.h"
#include "tuner/gpu_watch.h"
#include "tuner/session.h"

namespace trigen {

llvm::Expected<std::vector<size_t>> Session::load_finalists() {
  std::vector<size_t> finalists;
  for (const size_t i : search_.finalists()) {
    CandidateReport& row = report_.candidates[i];
    if (row.outcome == Outcome::kWrong || row.outcome == Outcome::kFailed) continue;  // in an earlier round
    const bool held = bench_->holds(i);
    if (!held || options_.sample) {  // resumed or lost with a worker; or timed without a check so far
      Binary binary;
      if (!held) {
        auto built = build(candidates_[i], store_, options_.build);
        if (!built) return built.takeError();
        binary = std::move(built->binary);
      }
      auto trial =
          bench_->trial(i, candidates_[i], binary, {/*check=*/true, /*time=*/!held, row.predicted_s});
      if (!trial) return trial.takeError();
      if (!fill(i, *trial)) {
        if (trial->poisoned) return make_error(ErrorKind::kDevice, row.candidate + ": " + row.note);
        continue;
      }
    }
    row.outcome = Outcome::kFinalist;
    finalists.push_back(i);
  }
  // a later one's failure took the worker along
  for (const size_t i : finalists)
    if (!bench_->holds(i)) return load_finalists();
  return finalists;
}

double Session::read_anchor(bool now) {
  constexpr double kAnchorEvery = 2;  // s: a chip warms up over tens of them
  if (options_.anchor == nullptr || anchor_broken_ || (!now && elapsed() - anchored_s_ < kAnchorEvery))
    return 0;
  auto seconds = options_.anchor->time();
  anchored_s_ = elapsed();
  if (!seconds) {
    anchor_broken_ = true;
    const std::string why = take_error(seconds.takeError()).message;
    if (!cancelled()) report_.notes.push_back("drift is not watched: the anchor " + why);
    return 0;
  }
  noise_.reading(*seconds);
  return *seconds;
}

void Session::read_state() {
  if (options_.watch != nullptr) report_.states.push_back(options_.watch->read());
}

llvm::Error Session::run_finals() {
  constexpr int kMostFinals = 3;
  constexpr double kMostDrift = 0.03;  // of the anchor from before the final to after it
  const double budget = options_.search.budget_s;
  Finals finals;
  std::vector<size_t> finalists;
  read_anchor(true);
  for (int attempt = 1; attempt <= kMostFinals;) {
    if (const auto reach = noise_.reach()) search_.set_reach(*reach);
    auto loaded = load_finalists();
    if (!loaded && cancelled()) {
      llvm::consumeError(loaded.takeError());
      choose_by_quick_times();
      return llvm::Error::success();
    }
    if (!loaded) return loaded.takeError();
    finalists = std::move(*loaded);
    if (finalists.empty()) return nothing_works();
    const double before = read_anchor(true);
    read_state();
    size_t round = 0, at = 0;
    const auto replay = [&](size_t arm) {
      at = finalists[arm];
      return bench_->replay(at);
    };
    auto timed = time_in_turn(finalists.size(), replay, options_.finals_rounds, [&] {
      show("finals", ++round, static_cast<size_t>(options_.finals_rounds), search_.best_seconds(),
           report_.candidates[search_.best()].candidate);
      return cancelled() || (budget > 0 && spent() > 1.25 * budget && round >= 9);
    });
    llvm::Error error = timed ? llvm::Error::success() : timed.takeError();
    if (!error && options_.objective != TuneObjective::kTime && !cancelled()) error = weigh(finalists, at);
    if (error) {
      if (cancelled()) {
        llvm::consumeError(std::move(error));
        choose_by_quick_times();
        return llvm::Error::success();
      }
      const ErrorText text = take_error(std::move(error));
      failed(at, Outcome::kFailed, text.message);
      if (!bench_->renews())
        return make_error(text.kind, report_.candidates[at].candidate + ": " + text.message);
      continue;  // without it
    }
    finals = std::move(*timed);
    read_state();
    const auto& states = report_.states;
    const std::string trouble =
        states.size() < 2 ? "" : options_.watch->trouble_since(states[states.size() - 2], states.back());
    const double after = read_anchor(true);
    const double moved = before > 0 && after > 0 ? std::max(after / before, before / after) - 1 : 0;
    if (cancelled() || (!finals.drifted && moved <= kMostDrift && trouble.empty())) break;
    if (attempt++ < kMostFinals) continue;  // what changed meanwhile may be over: once more
    if (!trouble.empty()) report_.notes.push_back("during the finals " + trouble);
    if (moved > kMostDrift)
      report_.notes.push_back(format("the anchor's time moved by %.1f %% during the finals", 100 * moved));
  }
  decide(finalists, finals);
  return llvm::Error::success();
}

llvm::Error Session::weigh(const std::vector<size_t>& finalists, size_t& at) {
  // NVML's counter is renewed every 20 to 100 ms: half a second knows it to some per cent
  constexpr double kWeighing = 0.5;
  constexpr int kWeighings = 3;
  for (const size_t i : finalists) report_.candidates[i].joules.clear();
  for (int round = 0; round < kWeighings && !cancelled(); ++round) {
    for (const size_t i : finalists) {
      at = i;
      show("energy", static_cast<size_t>(round), kWeighings, search_.best_seconds(),
           report_.candidates[search_.best()].candidate);
      const auto before = options_.watch->joules();
      auto runs = bench_->spin(i, kWeighing);
      if (!runs) return runs.takeError();
      const auto after = options_.watch->joules();
      if (!before || !after || *runs <= 0 || *after <= *before)
        return make_error(ErrorKind::kDevice, "the energy counter does not move; use --objective time");
      report_.candidates[i].joules.push_back((*after - *before) / static_cast<double>(*runs));
    }
  }
  return llvm::Error::success();
}

void Session::decide(const std::vector<size_t>& finalists, const Finals& finals) {
  if (finals.drifted)
    report_.notes.push_back("the device slowed down during the finals (clocks, heat or another user)");
  if (finals.outliers > static_cast<int>(finals.samples[0].size() * finalists.size() / 10)) {
    report_.notes.push_back(
        format("%d samples of the finals lie far outside their quartiles: another user of the device?",
               finals.outliers));
  }
  std::vector<std::vector<double>> costs = finals.samples;
  for (size_t k = 0; k < finalists.size(); ++k) {
    CandidateReport& row = report_.candidates[finalists[k]];
    row.finals = finals.samples[k];
    if (options_.objective == TuneObjective::kTime || row.joules.empty()) continue;
    const double factor = options_.objective == TuneObjective::kEdp ? summarize(row.finals).median : 1;
    costs[k] = row.joules;
    for (double& cost : costs[k]) cost *= factor;
  }
  report_.anchor_s = noise_.readings();
  report_.reach = noise_.reach().value_or(options_.search.finals_reach);
  const Choice choice = choose(costs);
  const CandidateReport& winner = report_.candidates[finalists[choice.winner]];
  const Summary summary = summarize(winner.finals);
  report_.seconds = summary.median;
  report_.lower_s = summary.lower;
  report_.upper_s = summary.upper;
  report_.joules = summarize(winner.joules).median;
  report_.complete = !cancelled();
  store_choice(finalists[choice.winner], Provenance::kMeasured);
}

void Session::choose_by_quick_times() {
  size_t chosen = search_.best();
  for (const size_t i : search_.finalists()) {
    if (summarize(report_.candidates[i].quick).median <= search_.best_seconds() * (1 + kNoiseFloor)) {
      chosen = i;
      break;
    }
  }
  const Summary summary = summarize(report_.candidates[chosen].quick);
  report_.seconds = summary.median;
  report_.lower_s = summary.lower;
  report_.upper_s = summary.upper;
  report_.complete = false;
  store_choice(chosen, Provenance::kMeasured);
}

}  // namespace trigen
