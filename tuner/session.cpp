#include "tuner/session.h"

#include <algorithm>
#include <cmath>

#include "check/text.h"
#include "check/verify.h"
#include "tuner/build_queue.h"
#include "tuner/ceiling.h"

namespace trigen {
namespace {

std::vector<SearchPoint> points_of(const std::vector<Candidate>& candidates, const DeviceModel& model) {
  std::vector<SearchPoint> points;
  points.reserve(candidates.size());
  for (const Candidate& candidate : candidates)
    points.push_back({candidate.family->name().str(), candidate.config, predict(candidate, model).seconds});
  return points;
}

DeviceModel model_for(const Target& target, const Device* device) {
  const bool real = device != nullptr && !device->info().emulated && device->runs_cubin_of(target);
  return real ? device->model() : model_of(target);
}

}  // namespace

Session::Session(const Problem& problem, const Target& target, const Device* device, Store& store,
                 const TuneOptions& options, std::vector<Candidate> candidates)
    : problem_(problem),
      target_(target),
      device_(device),
      store_(store),
      options_(options),
      candidates_(std::move(candidates)),
      search_(points_of(candidates_, model_for(target, device)), options.search),
      start_(std::chrono::steady_clock::now()),
      timed_(candidates_.size()),
      keys_(candidates_.size()) {
  report_.problem = to_string(problem);
  report_.target = target.name.str();
  const DeviceModel model = model_for(target, device);
  report_.ceiling_s = ceiling_of(problem, target, model).seconds();
  for (const Candidate& candidate : candidates_) {
    CandidateReport row;
    row.candidate = describe(candidate);
    row.ranked_s = row.predicted_s = predict(candidate, model).seconds;
    report_.candidates.push_back(std::move(row));
  }
}

double Session::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

void Session::show(const char* phase, size_t done, size_t total, double best_s, const std::string& best) {
  if (!options_.progress) return;
  TuneProgress p;
  p.problem = report_.problem;
  p.phase = phase;
  p.done = done;
  p.total = total;
  p.best_s = best_s;
  p.best = best;
  p.elapsed_s = elapsed();
  if (done > 0 && total >= done) {
    p.eta_s = p.elapsed_s / static_cast<double>(done) * static_cast<double>(total - done);
    if (options_.search.budget_s > 0 && device_ != nullptr) {
      p.eta_s = std::min(p.eta_s, std::max(0.0, options_.search.budget_s - p.elapsed_s));
    }
  }
  options_.progress(p);
}

llvm::Error budget_spent(llvm::StringRef problem, double budget_s, double inputs_s, double compile_s) {
  // a dozen candidates at least make a choice, and the finals take their share
  const int advised = 10 * std::max(1, static_cast<int>(std::ceil(4 * std::max(inputs_s, compile_s) / 10)));
  const std::string compiled =
      compile_s > 0 ? format("its compile took %.1f s", compile_s) : "it was not compiled";
  return make_error(
      ErrorKind::kBadRequest,
      format("the budget of %g s ended before the first candidate of %s was measured: %s, inputs and "
             "reference %.1f s beside it; allow more, for example --budget %ds",
             budget_s, problem.str().c_str(), compiled.c_str(), inputs_s, advised));
}

llvm::Error Session::nothing_works() const {
  if (cancelled())
    return make_error(ErrorKind::kDevice,
                      "interrupted before any candidate of " + report_.problem + " was done");
  const bool out_of_time = device_ != nullptr && !search_.in_time(elapsed());
  if (out_of_time && search_.tried_count() == 0)
    return budget_spent(report_.problem, options_.search.budget_s, inputs_s_, first_build_s_);
  // one reason for all of them (no compiler for the target, say) is said once
  const auto tried = [](const CandidateReport& row) { return row.outcome != Outcome::kNotTried; };
  const auto first = std::find_if(report_.candidates.begin(), report_.candidates.end(), tried);
  if (first != report_.candidates.end() && first->outcome == Outcome::kNotBuilt &&
      std::all_of(first, report_.candidates.end(),
                  [&](const CandidateReport& row) { return !tried(row) || row.note == first->note; })) {
    return make_error(first->kind, first->note);
  }
  std::string text = "no candidate of " + report_.problem + " works on " + report_.target + ":";
  size_t shown = 0;
  ErrorKind kind = ErrorKind::kDevice;
  for (const CandidateReport& row : report_.candidates) {
    if (row.outcome == Outcome::kNotTried) continue;
    if (row.outcome == Outcome::kNotBuilt) kind = ErrorKind::kBuild;
    if (++shown > 4) break;
    text += "\n  " + row.candidate + ": " + to_string(row.outcome) + ", " + row.note.substr(0, 600);
  }
  if (out_of_time)
    text += format("\nthe budget of %g s was spent after %zu of %zu candidates; allow more with --budget",
                   options_.search.budget_s, search_.tried_count(), candidates_.size());
  return make_error(kind, text);
}

llvm::Error Session::check_emulated(size_t index, const Binary& binary) {
  const Device* device = device_;
  if (device == nullptr && options_.count) {
    auto emulated = Device::open("emulated:" + target_.name.str());
    if (!emulated) {  // not installed: counting said so
      llvm::consumeError(emulated.takeError());
      return llvm::Error::success();
    }
    device = *emulated;
  }
  if (device == nullptr || !device->info().emulated) return llvm::Error::success();
  if (count_work(problem_).triangle_flop / 2 > options_.emulated_work) {
    report_.notes.push_back(
        "not checked: too big for the emulated device; `trigen verify` checks smaller problems there");
    return llvm::Error::success();
  }
  CandidateReport& row = report_.candidates[index];
  WorkbenchOptions bench_options;
  bench_options.seed = options_.seed;
  auto bench = Workbench::create(*device, problem_, bench_options);
  if (!bench) return bench.takeError();
  const Reference reference(problem_, (*bench)->list(), (*bench)->inputs());
  auto plan = Plan::of(candidates_[index], binary, *device);
  if (!plan) return plan.takeError();
  auto result = verify(**plan, **bench, reference);
  if (!result) return result.takeError();
  row.error = result->error;
  row.tolerance = result->tolerance;
  if (!result->ok) {
    return make_error(ErrorKind::kInternal,
                      row.candidate + " gives a wrong result on the emulated device: " + result->failure +
                          "; it was not stored; please report it with `trigen verify \"" + report_.problem +
                          "\"`");
  }
  report_.notes.push_back(
      format("checked on the emulated device: error %.1e, allowed %.1e", result->error, result->tolerance));
  return llvm::Error::success();
}

llvm::Error Session::time_candidate(size_t index, std::shared_ptr<const Plan> plan) {
  auto launch = launcher(*bench_, std::shared_ptr<const Executable>(plan, &plan->executable()));
  if (!launch) return launch.takeError();
  auto timing = time_alone(*bench_, *launch);
  if (!timing) return timing.takeError();
  const double median = summarize(timing->samples).median;
  if (search_.contends(median)) timed_[index] = {std::move(plan), std::move(timing->graph)};
  if (report_.candidates[index].quick.empty()) report_.candidates[index].quick = std::move(timing->samples);
  return llvm::Error::success();
}

void Session::not_built(size_t index, llvm::Error error) {
  CandidateReport& row = report_.candidates[index];
  ErrorText text = take_error(std::move(error));
  row.outcome = Outcome::kNotBuilt;
  row.kind = text.kind;
  row.note = std::move(text.message);
  search_.failed(index);
}

llvm::Error Session::try_candidate(size_t index, const Binary& binary) {
  CandidateReport& row = report_.candidates[index];
  keys_[index] = binary.key;
  auto fail = [&](Outcome outcome, std::string note) {
    row.outcome = outcome;
    row.note = std::move(note);
    search_.failed(index);
    store_sample(index);
  };
  // A refusal leaves the context usable; a broken kernel (an illegal address) does not, and ends the tune.
  // Its sample is stored first, so that the next tune passes over it.
  auto device_error = [&](llvm::Error error) -> llvm::Error {
    const std::string text = take_error(std::move(error)).message;
    fail(Outcome::kFailed, text);
    if (auto dead = bench_->synchronize()) {
      llvm::consumeError(std::move(dead));
      return make_error(ErrorKind::kDevice,
                        "candidate " + row.candidate + " broke the device's context: " + text +
                            "; what was measured is kept, run the same tune again to go on without it");
    }
    return llvm::Error::success();
  };
  auto plan = Plan::of(candidates_[index], binary, *device_);
  if (!plan) return device_error(plan.takeError());
  if (!options_.sample) {
    auto checked = verify(**plan, *bench_, *reference_);
    if (!checked) return device_error(checked.takeError());
    row.error = checked->error;
    row.tolerance = checked->tolerance;
    if (!checked->ok) {
      fail(Outcome::kWrong, checked->failure);
      return llvm::Error::success();
    }
  }
  if (auto error = time_candidate(index, std::move(*plan))) return device_error(std::move(error));
  row.outcome = Outcome::kTimed;
  search_.timed(index, summarize(row.quick).median);
  store_sample(index);
  return llvm::Error::success();
}

llvm::Expected<bool> Session::check_finalist(size_t index) {
  CandidateReport& row = report_.candidates[index];
  auto checked = verify(*timed_[index].plan, *bench_, *reference_);
  if (!checked) return checked.takeError();
  row.error = checked->error;
  row.tolerance = checked->tolerance;
  if (!checked->ok) {
    row.outcome = Outcome::kWrong;
    row.note = checked->failure;
    timed_[index] = {};
  }
  return checked->ok;
}

llvm::Error Session::run_finals() {
  std::vector<size_t> finalists = search_.finalists();
  std::vector<TimedGraph*> graphs;
  for (const size_t i : finalists) {
    if (timed_[i].graph == nullptr) {  // resumed: load and capture it again
      auto built = build(candidates_[i], store_, options_.build);
      if (!built) return built.takeError();
      auto plan = Plan::of(candidates_[i], std::move(built->binary), *device_);
      if (!plan) return plan.takeError();
      auto checked = verify(**plan, *bench_, *reference_);
      if (!checked) return checked.takeError();
      if (!checked->ok) {
        report_.candidates[i].outcome = Outcome::kWrong;
        report_.candidates[i].note = checked->failure;
        continue;
      }
      if (auto error = time_candidate(i, std::move(*plan))) return error;
      if (timed_[i].graph == nullptr) continue;
    } else if (options_.sample) {
      auto right = check_finalist(i);
      if (!right) return right.takeError();
      if (!*right) continue;
    }
    report_.candidates[i].outcome = Outcome::kFinalist;
  }
  finalists.erase(std::remove_if(finalists.begin(), finalists.end(),
                                 [&](size_t i) { return timed_[i].graph == nullptr; }),
                  finalists.end());
  if (finalists.empty()) return nothing_works();
  graphs.reserve(finalists.size());
  for (const size_t i : finalists) graphs.push_back(timed_[i].graph.get());

  const double budget = options_.search.budget_s;
  Finals finals;
  for (int attempt = 0; attempt < 2; ++attempt) {
    size_t round = 0;
    auto measured = time_in_turn(graphs, options_.finals_rounds, [&] {
      show("finals", ++round, static_cast<size_t>(options_.finals_rounds), search_.best_seconds(),
           report_.candidates[search_.best()].candidate);
      return cancelled() || (budget > 0 && elapsed() > 1.25 * budget && round >= 9);
    });
    if (!measured) return measured.takeError();
    finals = std::move(*measured);
    if (!finals.drifted || cancelled()) break;  // a machine that slowed down meanwhile: once more
  }
  if (finals.drifted)
    report_.notes.push_back("the device slowed down during the finals (clocks, heat or another user)");
  if (finals.outliers > static_cast<int>(finals.samples[0].size() * graphs.size() / 10)) {
    report_.notes.push_back(
        format("%d samples of the finals lie far outside their quartiles: another user of the device?",
               finals.outliers));
  }
  const Choice choice = choose(finals.samples);
  for (size_t k = 0; k < finalists.size(); ++k) report_.candidates[finalists[k]].finals = finals.samples[k];
  const Summary summary = summarize(finals.samples[choice.winner]);
  report_.seconds = summary.median;
  report_.lower_s = summary.lower;
  report_.upper_s = summary.upper;
  report_.complete = !cancelled();
  store_choice(finalists[choice.winner], Provenance::kMeasured);
  return llvm::Error::success();
}

llvm::Error Session::search_batches(std::unique_ptr<BuildQueue> queue, std::vector<size_t> batch) {
  std::vector<std::pair<size_t, Binary>> spilled;
  bool stopped = false;
  const auto go_on = [&] { return !stopped && !cancelled() && search_.in_time(elapsed()); };
  while (!batch.empty()) {
    for (size_t at = 0; at < batch.size() && go_on();) {
      const size_t index = batch[at];
      show("measuring", search_.tried_count(), search_.allowance(), search_.best_seconds(),
           search_.any() ? report_.candidates[search_.best()].candidate : "");
      auto built = queue->take(index, stopped);
      if (!built) continue;
      ++at;
      CandidateReport& row = report_.candidates[index];
      if (!*built) {
        not_built(index, built->takeError());
        continue;
      }
      BuiltBinary& binary = **built;
      note_cache(binary.cache_problem);
      row.resources = resources_of(binary.binary);
      row.predicted_s = predict(candidates_[index], device_->model(), row.resources).seconds;
      if (row.resources.spills()) {
        row.outcome = Outcome::kSpilled;
        search_.failed(index);
        spilled.emplace_back(index, std::move(binary.binary));
        continue;
      }
      if (auto error = try_candidate(index, binary.binary)) return error;
    }
    if (!go_on()) break;
    batch = search_.next(elapsed());
    queue = std::make_unique<BuildQueue>(candidates_, batch, store_, options_.build);
  }
  // Out of time before the first: its build is waited for, to say what one takes. The cache keeps it.
  while (search_.tried_count() == 0 && !batch.empty() && !stopped && !cancelled() && first_build_s_ == 0) {
    auto built = queue->take(batch.front(), stopped);
    if (!built) continue;
    first_build_s_ = elapsed();
    if (!*built) not_built(batch.front(), built->takeError());
  }
  queue.reset();
  report_.stop_reason = cancelled() ? format("interrupted after %zu of %zu candidates", search_.tried_count(),
                                             candidates_.size())
                                    : search_.reason(elapsed());
  for (auto& [index, binary] : spilled) {
    if (search_.any() || cancelled()) break;
    if (auto error = try_candidate(index, binary)) return error;
  }
  return llvm::Error::success();
}

llvm::Error Session::measure() {
  const DeviceInfo& info = device_->info();
  report_.device = info.name;
  report_.driver = info.driver;
  report_.sms = info.sms;
  WorkbenchOptions bench_options;
  bench_options.seed = options_.seed;
  bench_options.rotate = true;
  resume();
  // compiling starts first: making inputs and the reference takes its time
  std::vector<size_t> batch = search_.next(elapsed());
  if (batch.empty() && search_.tried_count() == 0) batch.push_back(0);  // no time at all: what would it take?
  auto queue = std::make_unique<BuildQueue>(candidates_, batch, store_, options_.build);
  auto bench = Workbench::create(*device_, problem_, bench_options);
  if (!bench) return bench.takeError();
  bench_ = std::move(*bench);
  reference_ = std::make_unique<Reference>(problem_, bench_->list(), bench_->inputs());
  inputs_s_ = elapsed();
  if (auto error = search_batches(std::move(queue), std::move(batch))) return error;
  if (!search_.any()) return nothing_works();
  if (cancelled() && options_.sample)
    return make_error(ErrorKind::kDevice, "interrupted before a choice of the sample was checked");
  if (cancelled()) {
    // no finals: the first in the fixed order within the noise of the best quick time
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
    return llvm::Error::success();
  }
  if (auto error = run_finals()) return error;
  if (report_.complete) {
    if (auto error = store_.clear_samples(report_.problem, report_.target, info.name))
      note_cache(take_error(std::move(error)).message);
  }
  return llvm::Error::success();
}

}  // namespace trigen
