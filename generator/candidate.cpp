#include "generator/candidate.h"

#include <algorithm>
#include <map>

#include "generator/cost/cost.h"
#include "generator/error.h"
#include "generator/names.h"
#include "generator/prediction_corrections.h"

namespace trigen {
namespace {

constexpr llvm::StringLiteral kGenericMark = ",generic";

// One line per family that cannot make the problem on the target, with its reason.
llvm::Error nothing_legal(const Problem& problem, const Target& target, const Family* only) {
  std::string text = "no family makes " + to_string(problem) + " for " + target.name.str() + ":";
  for (const Family* family : families()) {
    if (only && family != only) continue;
    std::string reason;
    if (!family->serves(target)) {
      reason = "does not run on " + target.name.str();
    } else {
      // A config that this family takes for usual sizes shows what is wrong with these.
      Problem usual = problem;
      usual.B = usual.H = usual.K = 1, usual.T = usual.D = 1024, usual.pad = usual.diag = 0;
      usual.width = std::min(usual.width, usual.T);
      const Config config = family->generic_config(usual, target).value_or(Config{});
      reason = family->reject(problem, target, config).value_or("has no config for these sizes");
    }
    text += "\n  " + family->name().str() + ": " + reason;
  }
  return make_error(ErrorKind::kUnsupported, text + "\nuse another arch, dtype or size");
}

}  // namespace

llvm::Expected<Candidate> make_candidate(const Problem& problem, const Target& target, const Family& family,
                                         const Config& config) {
  if (llvm::Error error = validate(problem)) return error;
  std::optional<std::string> reason;
  if (!family.serves(target))
    reason =
        "family " + family.name().str() + " does not run on " + target.name.str() + "; use another family";
  else
    reason = family.reject(problem, target, config);
  if (reason)
    return make_error(ErrorKind::kUnsupported, family.name() + ":" + to_string(config) + " cannot make " +
                                                   to_string(problem) + " for " + target.name + ": " +
                                                   *reason);
  return Candidate{problem, &target, &family, config, false};
}

namespace {

struct Ranked {
  Candidate candidate;
  double seconds;
};

// The configs that a family brings: its whole space, or its one kernel for any size.
std::vector<Config> configs_of(const Family& family, const Problem& problem, const Target& target,
                               bool generic) {
  if (!generic) return family.configs(problem, target);
  const std::optional<Config> config = family.generic_config(problem, target);
  if (!config || family.reject(problem, target, *config)) return {};
  return {*config};
}

llvm::Expected<std::vector<Ranked>> ranked_candidates(const Problem& problem, const Target& target,
                                                      const Family* only, bool generic,
                                                      const DeviceModel* device = nullptr,
                                                      const PredictionCorrections* corrections = nullptr) {
  if (llvm::Error error = validate(problem)) return error;
  std::vector<Ranked> ranked;
  const DeviceModel model = device != nullptr ? *device : model_of(target);
  for (const Family* family : families()) {
    if ((only && family != only) || !family->serves(target)) continue;
    for (const Config& config : configs_of(*family, problem, target, generic)) {
      Candidate candidate{problem, &target, family, config, generic};
      const double seconds = predict(candidate, model).seconds;
      ranked.push_back(
          {candidate, corrections != nullptr ? seconds * corrections->factor(candidate) : seconds});
    }
  }
  if (ranked.empty()) return nothing_legal(problem, target, only);
  // Stable: equal predictions keep the families' fixed order.
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.seconds < b.seconds; });
  return ranked;
}

// Candidates that the model puts at three times its best are hopeless (simt beside tensor cores; the model is off by a
// third at worst); the others are enough to choose from. In the whole spaces that an H200 timed, the best candidate
// left out took 2.0 and 10 times the best time. A family of many configs leaves places for the other families:
// the model is poor at telling which of two families is ahead.
std::vector<Candidate> worth_a_try(const std::vector<Ranked>& ranked) {
  constexpr size_t kPlaces = 8;  // of each family
  size_t hopeful = ranked.size();
  while (hopeful > kFewCandidates && ranked[hopeful - 1].seconds > 3 * ranked[0].seconds) --hopeful;
  std::map<const Family*, size_t> found;
  std::vector<bool> kept(hopeful);
  size_t room = kMostCandidates;
  for (size_t i = 0; i < hopeful; ++i)
    if (found[ranked[i].candidate.family]++ < kPlaces) kept[i] = true, --room;
  for (size_t i = 0; i < hopeful && room > 0; ++i)
    if (!kept[i]) kept[i] = true, --room;
  std::vector<Candidate> candidates;
  for (size_t i = 0; i < hopeful; ++i)
    if (kept[i]) candidates.push_back(ranked[i].candidate);
  return candidates;
}

std::vector<Candidate> candidates_of(const std::vector<Ranked>& ranked) {
  std::vector<Candidate> candidates;
  candidates.reserve(ranked.size());
  for (const Ranked& each : ranked) candidates.push_back(each.candidate);
  return candidates;
}

}  // namespace

llvm::Expected<std::vector<Candidate>> rank_candidates(const Problem& problem, const Target& target,
                                                       const Family* family) {
  auto ranked = ranked_candidates(problem, target, family, /*generic=*/false);
  if (!ranked) return ranked.takeError();
  return candidates_of(*ranked);
}

llvm::Expected<std::vector<Candidate>> list_candidates(const Problem& problem, const Target& target,
                                                       const Family* family, const DeviceModel* device,
                                                       const PredictionCorrections* corrections) {
  auto ranked = ranked_candidates(problem, target, family, /*generic=*/false, device, corrections);
  if (!ranked) return ranked.takeError();
  return worth_a_try(*ranked);
}

llvm::Expected<std::vector<Candidate>> list_generic(const Problem& problem, const Target& target) {
  auto ranked = ranked_candidates(problem, target, nullptr, /*generic=*/true);
  if (!ranked) return ranked.takeError();
  return candidates_of(*ranked);
}

llvm::Expected<Candidate> generic_candidate(const Problem& problem, const Target& target) {
  auto candidates = list_generic(problem, target);
  if (!candidates) return candidates.takeError();
  return candidates->front();
}

std::string describe(const Candidate& candidate) {
  std::string text = candidate.family->name().str() + ":" + to_string(candidate.config);
  if (candidate.generic) text += kGenericMark;
  return text;
}

llvm::Expected<Candidate> parse_candidate(const Problem& problem, const Target& target,
                                          llvm::StringRef text) {
  auto [name, config_text] = text.split(':');
  if (name.size() == text.size())
    return make_error(ErrorKind::kBadRequest,
                      "candidate " + quoted(text) +
                          " has no ':'; write family:config, as in simt:tile=64x64x8,warps=2x2,"
                          "stages=2,splitk=1,vec=1x1x1");
  auto family = find_family(name);
  if (!family) return family.takeError();
  const bool generic = config_text.consume_back(kGenericMark);
  auto config = parse_config(config_text, *family);
  if (!config) return config.takeError();
  auto candidate = make_candidate(problem, target, **family, *config);
  if (candidate) candidate->generic = generic;
  return candidate;
}

LaunchPlan launch_plan_on(const Candidate& candidate, int sms) {
  LaunchPlan own = candidate.family->launch_plan(candidate.problem, *candidate.target, candidate.config);
  const bool listed = std::any_of(targets().begin(), targets().end(),
                                  [&](const Target& target) { return &target == candidate.target; });
  if (!listed || sms <= 0 || sms == candidate.target->sms) return own;
  Target target = *candidate.target;
  target.sms = sms;
  LaunchPlan there = candidate.family->launch_plan(candidate.problem, target, candidate.config);
  const auto same_entry = [](const Launch& a, const Launch& b) { return a.entry == b.entry; };
  const bool fits = std::equal(own.launches.begin(), own.launches.end(), there.launches.begin(),
                               there.launches.end(), same_entry);
  return fits ? there : own;
}

}  // namespace trigen
