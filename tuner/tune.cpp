#include "tuner/tune.h"

#include <algorithm>
#include <chrono>

#include "tuner/ceiling.h"
#include "tuner/evidence.h"
#include "tuner/session.h"
#include "tuner/text.h"
#include "tuner/verify.h"

namespace trigen {
namespace {

llvm::Expected<std::vector<Candidate>> candidates_for(const Problem& problem, const Target& target,
                                                      const TuneOptions& options) {
  if (options.config && options.family != nullptr) {
    auto one = make_candidate(problem, target, *options.family, *options.config);
    if (!one) return one.takeError();
    return std::vector<Candidate>{*one};
  }
  return list_candidates(problem, target, options.family);
}

// Compiles the first few by the model, ranks them with the compiler's report, and keeps the first that does
// not spill.
llvm::Error predict_choice(Session& session) {
  const TuneOptions& options = session.options();
  TuneReport& report = session.report();
  auto& candidates = session.candidates();
  const DeviceModel model = model_of(session.target());
  std::vector<Binary> binaries(candidates.size());
  size_t next = 0;
  size_t good = 0;
  while (next < candidates.size() && good == 0 && !session.cancelled()) {
    const size_t count = std::min(options.predict_candidates, candidates.size() - next);
    BuildAllOptions build = options.build;
    build.cancel = options.cancel;
    size_t done = 0;
    build_all(llvm::ArrayRef(candidates).slice(next, count), session.store(), build,
              [&](size_t index, llvm::Expected<BuiltBinary> built) {
                const size_t at = next + index;
                CandidateReport& row = report.candidates[at];
                if (!built) {
                  row.outcome = session.cancelled() ? Outcome::kNotTried : Outcome::kNotBuilt;
                  row.note = take_error(built.takeError()).message;
                } else {
                  binaries[at] = std::move(built->binary);
                  row.resources = resources_of(binaries[at]);
                  const Prediction prediction = predict(candidates[at], model, row.resources);
                  row.predicted_s = prediction.seconds;
                  row.outcome = row.resources.spill_bytes > 0 ? Outcome::kSpilled : Outcome::kRanked;
                  good += row.outcome == Outcome::kRanked ? 1 : 0;
                  session.note_cache(built->cache_problem);
                }
                session.show("compiling", ++done, count, 0, "");
                return !session.cancelled();
              });
    next += count;
  }
  // the best rank, a spilling one only when there is nothing else; ties keep the model's first order
  std::optional<size_t> chosen;
  for (const Outcome wanted : {Outcome::kRanked, Outcome::kSpilled}) {
    for (size_t i = 0; i < candidates.size() && (!chosen || wanted == Outcome::kRanked); ++i) {
      if (report.candidates[i].outcome != wanted) continue;
      if (!chosen || report.candidates[i].predicted_s < report.candidates[*chosen].predicted_s) chosen = i;
    }
    if (chosen) break;
  }
  if (!chosen) return session.nothing_works();
  report.stop_reason = format("ranked %zu compiled candidates of %zu", next, candidates.size());
  session.choose_predicted(*chosen, binaries[*chosen]);
  return llvm::Error::success();
}

}  // namespace

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

llvm::Expected<TuneReport> tune(const Problem& problem, const Target& target, const Device* device,
                                Store& store, const TuneOptions& options) {
  if (auto error = validate(problem)) return error;
  const bool real = device != nullptr && !device->info().emulated;
  const bool measured = real && device->runs_cubin_of(target);
  auto candidates = candidates_for(problem, target, options);
  if (!candidates) return candidates.takeError();

  Session session(problem, target, device, store, options, std::move(*candidates));
  TuneReport& report = session.report();
  if (measured) {
    if (session.keep_existing()) return report;
    if (auto error = session.measure()) return error;
    return report;
  }
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
  if (auto error = predict_choice(session)) return error;
  if (device != nullptr && !real) {
    if (auto error = session.check_emulated()) return error;
  }
  return report;
}

}  // namespace trigen
