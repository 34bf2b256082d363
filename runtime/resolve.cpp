// From a problem to a candidate and its binary: the record in the cache, or the policy for a miss.
#include "cache/bundle.h"
#include "generator/cost/cost.h"
#include "runtime/cached_corrections.h"
#include "runtime/canary.h"
#include "runtime/paths.h"
#include "runtime/plan.h"

namespace trigen {
namespace {

// The targets whose kernels the device runs as they are, best first: its own, then older ones of its major.
llvm::Expected<std::vector<const Target*>> usable_targets(const Device& device, const std::string& asked) {
  std::vector<const Target*> usable;
  if (!asked.empty()) {
    auto target = find_target(asked);
    if (!target) return target.takeError();
    if (!device.runs_cubin_of(**target) && !device.runs_ptx_of(**target))
      return make_error(ErrorKind::kUnsupported,
                        "kernels of " + asked + " do not run on " + device.info().spec() + " (" +
                            device.info().name + ", capability " + std::to_string(device.info().major) + "." +
                            std::to_string(device.info().minor) + "); name its own target, " +
                            device.target().name.str() + ", or an older one without 'a'");
    usable.push_back(*target);
    return usable;
  }
  usable.push_back(&device.target());
  const llvm::ArrayRef<Target> all = targets();
  for (size_t i = all.size(); i-- > 0;)
    if (&all[i] != usable.front() && all[i].compute_capability / 10 == device.info().major &&
        device.runs_ptx_of(all[i]))
      usable.push_back(&all[i]);
  return usable;
}

BuildOptions build_options(const Device& device, const PlanOptions& options) {
  BuildOptions build;
  if (!device.info().emulated) build.newest_cuda = device.driver().cuda_version();
  build.no_jit = options.no_jit;
  return build;
}

// Lookups skip quarantined binaries, but recompiling would recreate one, so check again.
llvm::Error refuse_quarantined(const Resolution& resolution, const Device& device, Store& store) {
  if (!is_quarantined(resolution.binary, device, store)) return llvm::Error::success();
  return make_error(ErrorKind::kDevice,
                    "kernel " + describe(resolution.candidate) + " for " +
                        to_string(resolution.candidate.problem) + " failed its canary on " +
                        device.info().name +
                        "; `trigen cache quarantine` shows what was found, and with --clear "
                        "forgets it");
}

llvm::Expected<Resolution> from_record(const Problem& problem, const FoundRecord& found, const Target& target,
                                       const Device& device, Store& store, const PlanOptions& options,
                                       BinaryParts parts) {
  const Record& record = found.record;
  auto candidate = parse_candidate(problem, target, record.candidate);
  if (!candidate) return candidate.takeError();
  Resolution resolution;
  resolution.candidate = *candidate;
  resolution.provenance = record.provenance;
  resolution.match = found.match;
  resolution.difference = found.difference;
  resolution.layer = found.layer;
  resolution.expected_us = record.median_us;
  // The record's own binary, while this version's templates still make that source, compiled as this version
  // does for that target: a row may name any other.
  if (record.binary.source_hash == render(*candidate).hash) {
    if (!is_compiled_for(record.binary, target)) {
      resolution.match = Match::kNear;
      resolution.difference = "the record names a binary of other options than this version's";
    } else if (auto binary = store.find_binary(record.binary, parts)) {
      if (options.no_jit || !binary->shipped || !is_unknown_compiler(binary->key.compiler)) {
        resolution.binary = std::move(*binary);
        return resolution;
      }
      resolution.match = Match::kNear;
      resolution.difference = "the record's kernel is of an unknown compiler, '" + binary->key.compiler + "'";
    }
  } else if (resolution.match == Match::kExact) {
    resolution.match = Match::kNear;
    resolution.difference = "the record was made with other templates than this version's";
  }
  auto built = build(*candidate, store, build_options(device, options));
  if (!built) return built.takeError();
  resolution.binary = std::move(built->binary);
  resolution.origin = built->origin;
  if (llvm::Error error = refuse_quarantined(resolution, device, store)) return error;
  return resolution;
}

// Predicted by an older version of the model than this one.
bool is_outdated(const Record& record) {
  return record.provenance == Provenance::kPredicted &&
         cache::model_version_of(record.evidence) < kModelVersion;
}

llvm::Expected<Resolution> from_candidate(const Candidate& candidate, Store& store, const Device& device,
                                          const PlanOptions& options) {
  auto built = build(candidate, store, build_options(device, options));
  if (!built) return built.takeError();
  Resolution resolution;
  resolution.candidate = candidate;
  resolution.binary = std::move(built->binary);
  resolution.origin = built->origin;
  const DeviceModel model =
      candidate.target == &device.target() ? device.model() : model_of(*candidate.target);
  resolution.expected_us = predict(candidate, model, resources_of(resolution.binary)).seconds * 1e6;
  return resolution;
}

// The model's choice for each usable target, and the generic kernel; the first that can be had and is not known to
// be wrong here.
llvm::Expected<Resolution> by_policy(const Problem& problem, const Device& device, Store& store,
                                     const PlanOptions& options, llvm::ArrayRef<const Target*> usable) {
  llvm::Error errors = llvm::Error::success();
  bool failed = false;
  // The first error says most: it is about the device's own target.
  const auto keep = [&](llvm::Error error) {
    if (failed)
      llvm::consumeError(std::move(error));
    else
      errors = llvm::joinErrors(std::move(errors), std::move(error));
    failed = true;
  };
  // A family whose kernel is wrong here is not asked for another one.
  std::vector<const Family*> wrong;
  // The first of `candidates` that can be had. What does not compile ends the search, what is not there without a
  // compiler or is wrong does not.
  const auto first_right = [&](llvm::ArrayRef<Candidate> candidates) -> std::optional<Resolution> {
    for (const Candidate& candidate : candidates) {
      if (!candidate.generic && llvm::is_contained(wrong, candidate.family)) continue;
      auto resolution = from_candidate(candidate, store, device, options);
      if (!resolution) {
        keep(resolution.takeError());
        if (options.no_jit) continue;
        return std::nullopt;
      }
      llvm::Error error = refuse_quarantined(*resolution, device, store);
      if (!error) return std::move(*resolution);
      keep(std::move(error));
      wrong.push_back(candidate.family);
    }
    return std::nullopt;
  };
  if (options.miss == MissPolicy::kFirstChoice) {
    for (const Target* target : usable) {
      // Without a compiler the kernels are others', who made what the target's own order has first.
      CachedCorrections cached;
      if (!options.no_jit) cached = find_corrections(problem, *target, device, store);
      const DeviceModel here = device.model();
      auto candidates =
          list_candidates(problem, *target, nullptr, options.no_jit ? nullptr : &here, &cached.corrections);
      if (!candidates) {
        keep(candidates.takeError());
        continue;
      }
      if (options.no_jit) candidates->resize(std::min(kChoicesWithoutJit, candidates->size()));
      auto resolution = first_right(*candidates);
      if (!resolution) continue;
      if (!cached.from.empty()) {
        resolution->match = Match::kNear;
        resolution->difference = cached.from;
      }
      // No record is stored: no tune has checked the choice. Its binary is, so that it is compiled once.
      llvm::consumeError(std::move(errors));
      return std::move(*resolution);
    }
  }
  if (options.miss == MissPolicy::kGeneric || options.no_jit || !wrong.empty()) {
    for (const Target* target : usable) {
      auto candidates = list_generic(problem, *target);
      if (!candidates) {
        keep(candidates.takeError());
        continue;
      }
      // The best generic kernel follows from the sizes; without a compiler the one that an earlier shape left serves.
      if (auto resolution = first_right(*candidates)) {
        llvm::consumeError(std::move(errors));
        return std::move(*resolution);
      }
    }
  }
  return errors;
}

}  // namespace

PlanOptions plan_options_from_environment() {
  PlanOptions options;
  options.no_jit = no_jit_from_environment();
  options.target = environment("TRIGEN_TARGET");
  options.canary = !environment_off("TRIGEN_CANARY");
  options.canary_emulated = environment_flag("TRIGEN_CANARY");
  options.launch_blocking = environment_flag("CUDA_LAUNCH_BLOCKING");
  return options;
}

llvm::Expected<Resolution> resolve(const Problem& problem, const Device& device, Store& store,
                                   const PlanOptions& options, BinaryParts parts) {
  if (llvm::Error error = validate(problem)) return error;
  auto usable = usable_targets(device, options.target);
  if (!usable) return usable.takeError();
  const std::string text = to_string(problem);
  std::vector<llvm::StringRef> archs;
  for (const Target* target : *usable) archs.push_back(target->name);
  const DeviceInfo& info = device.info();
  std::string stale;
  if (auto found = store.find_record(text, archs, {info.name, info.sms, info.driver})) {
    const Target& target =
        **llvm::find_if(*usable, [&](const Target* t) { return t->name == found->record.arch; });
    if (is_outdated(found->record) && options.miss == MissPolicy::kFirstChoice && !options.no_jit) {
      auto anew = by_policy(problem, device, store, options, *usable);
      if (anew) return anew;
      llvm::consumeError(anew.takeError());  // no compiler, say: the older choice is right, if slower
    }
    auto resolution = from_record(problem, *found, target, device, store, options, parts);
    if (resolution) return resolution;
    // A record that cannot be used is a miss; its reason is worth keeping where the miss is an error.
    stale = take_error(resolution.takeError()).message;
  }
  if (options.miss == MissPolicy::kError)
    return make_error(ErrorKind::kCache, "no record for " + text + " on " + device.target().name.str() +
                                             (stale.empty() ? "" : " that can be used (" + stale + ")") +
                                             "; make one with: trigen tune --arch " +
                                             (*usable)[0]->name.str() + " \"" + text + "\"");
  auto resolution = by_policy(problem, device, store, options, *usable);
  if (resolution || stale.empty()) return resolution;
  const ErrorText text_of = take_error(resolution.takeError());
  return make_error(text_of.kind,
                    text_of.message + "\nthe cache's record could not be used either: " + stale);
}

}  // namespace trigen
