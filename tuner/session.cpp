#include "tuner/session.h"

#include <algorithm>

#include "check/text.h"
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

std::vector<size_t> first_choices(const std::vector<Candidate>& candidates, const DeviceModel& model,
                                  const SearchOptions& options) {
  return Search(points_of(candidates, model), options).next(0);
}

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
      bench_(options.bench),
      keys_(candidates_.size()) {
  if (bench_ == nullptr) {
    own_bench_ = std::make_unique<LocalBench>(device);
    bench_ = own_bench_.get();
  }
  report_.problem = to_string(problem);
  report_.target = target.name.str();
  report_.objective = options.objective;
  const DeviceModel model = model_for(target, device);
  report_.ceiling_s = ceiling_of(problem, target, model).seconds();
  for (const Candidate& candidate : candidates_) {
    CandidateReport row;
    row.candidate = describe(candidate);
    row.ranked_s = row.predicted_s = predict(candidate, model).seconds;
    report_.candidates.push_back(std::move(row));
  }
}

Session::~Session() {
  if (options_.pool != nullptr) options_.pool->forget(this);
}

bool Session::measured() const {
  return device_ != nullptr && !device_->info().emulated && device_->runs_cubin_of(target_);
}

double Session::elapsed() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

double Session::spent() const { return inputs_s_ > 0 ? elapsed() - inputs_s_ : 0; }

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
      p.eta_s = std::min(p.eta_s, std::max(0.0, options_.search.budget_s - spent()));
    }
  }
  options_.progress(p);
}

llvm::Error Session::nothing_works() const {
  if (cancelled())
    return make_error(ErrorKind::kDevice,
                      "interrupted before any candidate of " + report_.problem + " was done");
  const bool out_of_time = device_ != nullptr && !search_.in_time(spent());
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

llvm::Expected<bool> Session::check_emulated(size_t index, const Binary& binary) {
  if (device_ != nullptr && !device_->info().emulated) return true;
  if (count_work(problem_).triangle_flop / 2 > options_.emulated_work) {
    report_.notes.push_back(
        "not checked: too big for the emulated device; `trigen verify` checks smaller problems there");
    return true;
  }
  Bench* bench = bench_;
  std::unique_ptr<Bench> local;
  if (device_ == nullptr) {
    auto emulated = Device::open("emulated:" + target_.name.str());
    if (!emulated) {
      report_.notes.push_back("not checked: " + take_error(emulated.takeError()).message);
      return true;
    }
    local = std::make_unique<LocalBench>(*emulated);
    bench = local.get();
  }
  WorkbenchOptions bench_options;
  bench_options.seed = options_.seed;
  if (auto error = bench->begin(problem_, bench_options)) return error;
  auto trial = bench->trial(index, candidates_[index], binary, {/*check=*/true, /*time=*/false, 0});
  if (!trial) return trial.takeError();
  bench->drop(index);
  CandidateReport& row = report_.candidates[index];
  row.error = trial->error;
  row.tolerance = trial->tolerance;
  if (trial->end == Trial::End::kWrong)
    return make_error(ErrorKind::kInternal,
                      row.candidate + " gives a wrong result on the emulated device: " + trial->note +
                          "; it was not stored; please report it with `trigen verify \"" + report_.problem +
                          "\"`");
  if (trial->poisoned) return make_error(ErrorKind::kDevice, trial->note);
  if (trial->end == Trial::End::kFailed) {
    failed(index, Outcome::kFailed, trial->note);
    return false;
  }
  return true;
}

void Session::not_built(size_t index, llvm::Error error) {
  CandidateReport& row = report_.candidates[index];
  ErrorText text = take_error(std::move(error));
  row.outcome = Outcome::kNotBuilt;
  row.kind = text.kind;
  row.note = std::move(text.message);
  search_.failed(index);
}

void Session::failed(size_t index, Outcome outcome, std::string note) {
  CandidateReport& row = report_.candidates[index];
  row.outcome = outcome;
  row.note = std::move(note);
  store_sample(index);
}

bool Session::fill(size_t index, const Trial& trial) {
  CandidateReport& row = report_.candidates[index];
  if (trial.tolerance > 0) {
    row.error = trial.error;
    row.tolerance = trial.tolerance;
  }
  if (trial.end == Trial::End::kDone) {
    if (row.quick.empty()) row.quick = trial.samples;
    return true;
  }
  failed(index, trial.end == Trial::End::kWrong ? Outcome::kWrong : Outcome::kFailed, trial.note);
  return false;
}

llvm::Error Session::try_candidate(size_t index, const Binary& binary) {
  CandidateReport& row = report_.candidates[index];
  keys_[index] = binary.key;
  read_anchor(false);
  const double contending_s = search_.contending_s();
  auto trial = bench_->trial(index, candidates_[index], binary,
                             {/*check=*/!options_.sample, /*time=*/true, row.predicted_s, contending_s});
  if (!trial) {
    if (!cancelled()) return trial.takeError();
    llvm::consumeError(trial.takeError());  // broken off: neither right nor wrong
    return llvm::Error::success();
  }
  if (!fill(index, *trial)) {
    search_.failed(index);
    if (!trial->poisoned) return llvm::Error::success();
    // stored already: the next tune passes over it
    return make_error(ErrorKind::kDevice,
                      "candidate " + row.candidate + " broke the device's context: " + trial->note +
                          "; what was measured is kept, run the same tune again to go on without it");
  }
  const double median = summarize(row.quick).median;
  noise_.samples(row.quick);
  if (median > contending_s) bench_->drop(index);
  row.outcome = Outcome::kTimed;
  search_.timed(index, median);
  store_sample(index);
  return llvm::Error::success();
}

CompilePool& Session::pool() {
  if (options_.pool != nullptr) return *options_.pool;
  if (own_pool_ == nullptr) own_pool_ = std::make_unique<CompilePool>(options_.build.threads);
  return *own_pool_;
}

std::unique_ptr<BuildQueue> Session::compile(const std::vector<size_t>& batch) {
  auto queue = std::make_unique<BuildQueue>(candidates_, batch, store_, options_.build, pool());
  pool().forget(this);
  // One that is under way when this tune ends goes on, with the store and the cancel.
  BuildAllOptions build_options = options_.build;
  build_options.cancel = options_.cancel;
  for (const size_t i : search_.after(batch))
    pool().build_ahead(this, candidates_[i], store_, build_options, CompilePool::Need::kNextStep);
  return queue;
}

llvm::Error Session::search_batches(std::unique_ptr<BuildQueue> queue, std::vector<size_t> batch) {
  // The budget bounds what follows the first candidate that works.
  const auto go_on = [&] { return !cancelled() && (!search_.any() || search_.in_time(spent())); };
  while (!batch.empty()) {
    for (size_t at = 0; at < batch.size() && go_on();) {
      const size_t index = batch[at];
      show("measuring", search_.tried_count(), search_.allowance(), search_.best_seconds(),
           search_.any() ? report_.candidates[search_.best()].candidate : "");
      auto built = queue->take(index);
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
      if (auto error = try_candidate(index, binary.binary)) return error;
    }
    if (!go_on()) break;
    batch = search_.next(spent());
    queue = compile(batch);
  }
  queue.reset();
  report_.stop_reason = cancelled() ? format("interrupted after %zu of %zu candidates", search_.tried_count(),
                                             candidates_.size())
                                    : search_.reason(spent());
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
  std::vector<size_t> batch = search_.next(spent());
  auto queue = compile(batch);
  if (auto error = bench_->begin(problem_, bench_options)) return error;
  read_anchor(false);
  inputs_s_ = elapsed();
  if (auto error = search_batches(std::move(queue), std::move(batch))) return error;
  if (!search_.any()) return nothing_works();
  if (cancelled() && options_.sample)
    return make_error(ErrorKind::kDevice, "interrupted before a choice of the sample was checked");
  if (cancelled()) {
    choose_by_quick_times();
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
