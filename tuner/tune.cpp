#include "tuner/tune.h"

#include <algorithm>

#include "check/text.h"
#include "runtime/cached_corrections.h"
#include "tuner/ceiling.h"
#include "tuner/evidence.h"
#include "tuner/gpu_watch.h"
#include "tuner/session.h"

namespace trigen {
namespace {

// `ranks` and `space` (how many there are) are set for a sample alone.
// `device`: the device that the order is for, with the corrections of its cache; null: a device of the target.
llvm::Expected<std::vector<Candidate>> candidates_for(const Problem& problem, const Target& target,
                                                      const Device* device, const TuneOptions& options,
                                                      Store& store, std::vector<size_t>& ranks,
                                                      size_t& space) {
  if (options.config && options.family != nullptr) {
    auto one = make_candidate(problem, target, *options.family, *options.config);
    if (!one) return one.takeError();
    return std::vector<Candidate>{*one};
  }
  if (!options.sample && device == nullptr) return list_candidates(problem, target, options.family);
  if (!options.sample) {
    const CachedCorrections cached = find_corrections(problem, target, *device, store);
    const DeviceModel here = device->model();
    return list_candidates(problem, target, options.family, &here, &cached.corrections);
  }
  auto all = rank_candidates(problem, target, options.family);
  if (!all) return all.takeError();
  std::vector<Candidate> chosen;
  for (const size_t i : draw_sample(*all, *options.sample)) {
    ranks.push_back(i + 1);
    chosen.push_back((*all)[i]);
  }
  space = all->size();
  return chosen;
}

// The first few candidates that differ in more than `raster`, the order of their tiles: it leaves the
// kernel's code as it is, and the model's order among them too.
std::vector<size_t> distinct_kernels(const std::vector<Candidate>& candidates,
                                     const std::vector<CandidateReport>& rows, size_t wanted) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < candidates.size() && chosen.size() < wanted; ++i) {
    if (rows[i].outcome != Outcome::kNotTried) continue;  // failed in an earlier tune
    const auto same = [&](size_t j) {
      Config config = candidates[j].config;
      config.raster = candidates[i].config.raster;
      return candidates[j].family == candidates[i].family && config == candidates[i].config;
    };
    if (std::none_of(chosen.begin(), chosen.end(), same)) chosen.push_back(i);
  }
  return chosen;
}

// Compiles the first few by the model, ranks them with the compiler's report, and keeps the first that does not
// spill.
llvm::Error predict_choice(Session& session) {
  const TuneOptions& options = session.options();
  TuneReport& report = session.report();
  auto& candidates = session.candidates();
  const DeviceModel model = model_of(session.target());
  std::vector<Binary> binaries(candidates.size());
  size_t tried = 0;
  size_t good = 0;
  std::vector<size_t> batch = distinct_kernels(candidates, report.candidates, options.predict_candidates);
  while (!batch.empty() && good == 0 && !session.cancelled()) {
    std::vector<Candidate> work;
    work.reserve(batch.size());
    for (const size_t i : batch) work.push_back(candidates[i]);
    BuildAllOptions build = options.build;
    build.cancel = options.cancel;
    size_t done = 0;
    build_all(work, session.store(), build, [&](size_t index, llvm::Expected<BuiltBinary> built) {
      const size_t at = batch[index];
      CandidateReport& row = report.candidates[at];
      if (!built) {
        row.outcome = session.cancelled() ? Outcome::kNotTried : Outcome::kNotBuilt;
        ErrorText text = take_error(built.takeError());
        row.kind = text.kind;
        row.note = std::move(text.message);
      } else {
        binaries[at] = std::move(built->binary);
        session.built(at, binaries[at].key);
        row.resources = resources_of(binaries[at]);
        row.predicted_s = predict(candidates[at], model, row.resources).seconds;
        row.outcome = row.resources.spills() ? Outcome::kSpilled : Outcome::kRanked;
        good += row.outcome == Outcome::kRanked ? 1 : 0;
        session.note_cache(built->cache_problem);
      }
      session.show("compiling", ++done, batch.size(), 0, "");
      return !session.cancelled();
    });
    tried += batch.size();
    // none of them will do: on along the model's order
    batch.clear();
    for (size_t i = 0; i < candidates.size() && batch.size() < options.predict_candidates; ++i)
      if (report.candidates[i].outcome == Outcome::kNotTried) batch.push_back(i);
  }
  // The best of those that happened to be ready is no choice: without a record plans take the model's first.
  if (session.cancelled())
    return make_error(ErrorKind::kDevice, llvm::Twine("interrupted before the candidates of ") +
                                              report.problem + " were all compiled; no choice was stored");
  // the best rank, a spilling one only when there is nothing else; ties keep the model's first order
  const auto best = [&]() -> std::optional<size_t> {
    std::optional<size_t> chosen;
    for (const Outcome wanted : {Outcome::kRanked, Outcome::kSpilled}) {
      for (size_t i = 0; i < candidates.size(); ++i) {
        if (report.candidates[i].outcome != wanted || (chosen && wanted == Outcome::kSpilled)) continue;
        if (!chosen || report.candidates[i].predicted_s < report.candidates[*chosen].predicted_s) chosen = i;
      }
      if (chosen) break;
    }
    return chosen;
  };
  while (const auto chosen = best()) {
    report.stop_reason = format("ranked %zu compiled candidates of %zu", tried, candidates.size());
    auto done = session.choose_predicted(*chosen, binaries[*chosen]);
    if (!done) return done.takeError();
    if (*done) return llvm::Error::success();
  }
  return session.nothing_works();
}

llvm::Error await_quiet(const TuneOptions& options) {
  return options.watch == nullptr ? llvm::Error::success() : options.watch->await_quiet();
}

}  // namespace

void compile_predicted(const Problem& problem, const Target& target, Store& store,
                       const TuneOptions& options) {
  std::vector<size_t> ranks;
  size_t space = 0;
  auto candidates = candidates_for(problem, target, nullptr, options, store, ranks, space);
  if (!candidates) return llvm::consumeError(candidates.takeError());  // said when its turn comes
  BuildOptions build_options = options.build;
  build_options.cancel = options.cancel;
  for (const size_t i : distinct_kernels(*candidates, std::vector<CandidateReport>(candidates->size()),
                                         options.predict_candidates)) {
    auto built = build((*candidates)[i], store, build_options);
    if (!built) llvm::consumeError(built.takeError());
  }
}

const char* to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::kNotTried:
      return "not tried";
    case Outcome::kNotBuilt:
      return "not built";
    case Outcome::kSpilled:
      return "spills";
    case Outcome::kWrong:
      return "wrong";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kRanked:
      return "ranked";
    case Outcome::kTimed:
      return "timed";
    case Outcome::kFinalist:
      return "finalist";
    case Outcome::kChosen:
      return "chosen";
  }
  return "?";
}

const char* to_string(TuneObjective objective) {
  return objective == TuneObjective::kTime ? "time" : objective == TuneObjective::kEnergy ? "energy" : "edp";
}

llvm::Expected<TuneReport> tune(const Problem& problem, const Target& target, const Device* device,
                                Store& store, const TuneOptions& options) {
  if (auto error = validate(problem)) return error;
  const bool real = device != nullptr && !device->info().emulated;
  const bool measured = real && device->runs_cubin_of(target);
  if (options.objective != TuneObjective::kTime && measured &&
      (options.watch == nullptr || !options.watch->joules() || options.watch->read().mig.value_or(false)))
    return make_error(ErrorKind::kUnsupported,
                      device->info().name +
                          " has no energy counter of its own here (NVML, Volta and newer, not sliced); use "
                          "--objective time");
  std::vector<size_t> ranks;
  size_t space = 0;
  auto candidates =
      candidates_for(problem, target, measured ? device : nullptr, options, store, ranks, space);
  if (!candidates) return candidates.takeError();

  Session session(problem, target, device, store, options, std::move(*candidates));
  if (device != nullptr && !real) session.resume();
  TuneReport& report = session.report();
  report.space = space;
  for (size_t i = 0; i < ranks.size(); ++i) report.candidates[i].rank = ranks[i];
  if (measured && session.keep_existing()) return report;
  const std::unique_ptr<Store::Lease> turn = session.take_turn();
  if (measured) {
    if (session.keep_existing()) return report;
    if (auto error = await_quiet(options)) return error;
    if (auto error = session.measure()) return error;
    return report;
  }
  if (session.keep_prediction()) return report;
  if (device == nullptr) {
    report.notes.push_back("no device here: the choice is the model's; run `trigen tune` on " +
                           target.name.str() + " to measure it");
  } else if (!real) {
    report.notes.push_back("an emulated device has no time to measure: the choice is the model's");
  } else {
    report.notes.push_back(device->info().name + " does not run " + target.name.str() +
                           " machine code: the choice is the model's; run `trigen tune` on a " +
                           target.name.str() + " device to measure it");
  }
  if (auto error = await_quiet(options)) return error;
  if (auto error = predict_choice(session)) return error;
  return report;
}

}  // namespace trigen
