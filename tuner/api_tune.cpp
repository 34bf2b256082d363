// The C boundary: tuning and caches as files. Part of libtrigen, beside runtime/api*.cpp.
#include <ctime>

#include "cache/bundle.h"
#include "cache/upkeep.h"
#include "runtime/api.h"
#include "runtime/include/trigen/trigen_tune.h"
#include "tuner/tune.h"

using namespace trigen;
using namespace trigen::api;

namespace {

const std::map<std::string, std::string> kMadeBy = {{"made_by", "trigen " TRIGEN_VERSION_TEXT}};

llvm::Error required(const char* const* texts, size_t count, const char* name) {
  if (texts == nullptr || count == 0)
    return make_error(ErrorKind::kBadRequest, llvm::Twine(name) + " are none; allowed: at least one");
  for (size_t i = 0; i < count; ++i)
    if (texts[i] == nullptr)
      return make_error(ErrorKind::kBadRequest, llvm::Twine(name) + "[" + std::to_string(i) + "] is null");
  return llvm::Error::success();
}

llvm::Expected<std::vector<Problem>> problems_of(const char* const* texts, size_t count) {
  if (auto error = required(texts, count, "problems")) return error;
  std::vector<Problem> problems;
  for (size_t i = 0; i < count; ++i) {
    auto problem = parse_problem(texts[i]);
    if (!problem) return with_prefix(problem.takeError(), texts[i]);
    problems.push_back(*problem);
  }
  return problems;
}

struct Place {
  const Target* target = nullptr;
  const Device* device = nullptr;  // null: choices are predicted
};

llvm::Expected<Place> place_of(trigen_runtime& runtime, const trigen_tune_options& given) {
  Place place;
  if (given.target != nullptr) {
    auto target = find_target(given.target);
    if (!target) return target.takeError();
    place.target = *target;
  }
  if (given.predict == 0) {
    auto device = device_of(runtime, given.device);
    if (!device) return device.takeError();
    place.device = *device;
    if (place.target == nullptr) place.target = &(*device)->target();
  }
  if (place.target == nullptr)
    return make_error(ErrorKind::kBadRequest,
                      "trigen_tune_options has predict and no target; name one, for example sm_70");
  return place;
}

// One problem; `result` points into `report` and `message`.
trigen_status tune_one(const Problem& problem, const Place& place, Store& store, const TuneOptions& options,
                       trigen_tune_callback callback, void* user, bool& stop) {
  const std::string text = to_string(problem), target = place.target->name.str();
  std::string candidate, message;
  trigen_tune_result result = {};
  result.struct_size = sizeof result;
  result.provenance = "";
  auto report = tune(problem, *place.target, place.device, store, options);
  if (report) {
    candidate = report->chosen;
    result.provenance = report->provenance == Provenance::kMeasured ? "measured" : "predicted";
    result.seconds = report->seconds;
    result.stored = report->stored;
    for (const std::string& note : report->notes) message += (message.empty() ? "" : "\n") + note;
    if (!report->stored)
      result.status = set_error(TRIGEN_CACHE_ERROR, text + ": the choice could not be stored: " + message);
  } else {
    result.status = give(with_prefix(report.takeError(), text));
    message = trigen_last_error();
  }
  result.problem = text.c_str();
  result.target = target.c_str();
  result.candidate = candidate.c_str();
  result.message = message.c_str();
  stop = callback != nullptr && callback(&result, user) != 0;
  return result.status;
}

// Every row of the files; an error where one is damaged.
llvm::Expected<cache::Contents> contents_of(const std::vector<std::string>& files, cache::ReadFor use,
                                            const Store::Options& options) {
  auto all = cache::read_merged(files, use, options);
  if (all && !all->damaged.empty())
    return make_error(ErrorKind::kCache, "found " + std::to_string(all->damaged.size()) +
                                             " damaged rows, and wrote nothing: " + all->damaged.front() +
                                             "; tune their problems again");
  return all;
}

llvm::Error export_bundle(trigen_runtime& runtime, const std::string& bundle,
                          const std::vector<std::string>& targets, const std::vector<Problem>& problems) {
  std::vector<std::string> files, texts;
  for (const LayerInfo& layer : store_of(runtime).layers())
    if (layer.exists) files.push_back(layer.path);
  for (const Problem& problem : problems) texts.push_back(to_string(problem));
  for (const std::string& name : targets)
    if (auto target = find_target(name); !target) return target.takeError();
  auto all = contents_of(files, cache::ReadFor::kRun, store_options_of(runtime));
  if (!all) return all.takeError();
  all->select(targets, texts);
  all->clamp_dates(std::time(nullptr));
  std::vector<std::string> left_out;
  all->keep_what_runs(left_out);
  for (const auto& [arch, problem] : all->asked)
    if (all->answer(arch, problem) == llvm::StringRef("none"))
      return make_error(ErrorKind::kCache, llvm::Twine("no record of ") + problem + " for " + arch +
                                               ", and wrote nothing; tune it (trigen_tune)");
  if (all->records.empty())
    return make_error(ErrorKind::kCache, "no record to export, and wrote nothing; trigen_tune makes some");
  return cache::write_bundle(bundle, *all, kMadeBy);
}

}  // namespace

extern "C" {

trigen_status trigen_tune(trigen_runtime* runtime, const char* const* problems, size_t count,
                          const trigen_tune_options* options, trigen_tune_callback callback,
                          void* user) noexcept {
  const trigen_tune_options defaults = TRIGEN_TUNE_OPTIONS_INIT;
  const trigen_tune_options& given = options == nullptr ? defaults : *options;
  if (runtime == nullptr)
    return set_error(TRIGEN_BAD_REQUEST, "runtime is null; make one with trigen_runtime_create");
  if (given.struct_size != sizeof(trigen_tune_options))
    return set_error(TRIGEN_BAD_REQUEST,
                     "trigen_tune_options has another struct_size than this library's; "
                     "start from TRIGEN_TUNE_OPTIONS_INIT");
  return guarded_call([&] {
    auto list = problems_of(problems, count);
    if (!list) return give(list.takeError());
    auto place = place_of(*runtime, given);
    if (!place) return give(place.takeError());
    TuneOptions tuning;
    if (given.budget_s > 0) tuning.search.budget_s = given.budget_s;
    tuning.build.threads = given.threads;
    tuning.build.no_jit = no_jit_of(*runtime);
    tuning.force = given.force != 0;
    trigen_status first = TRIGEN_OK;
    std::string why;
    bool stop = false;
    for (const Problem& problem : *list) {
      const trigen_status status =
          tune_one(problem, *place, store_of(*runtime), tuning, callback, user, stop);
      if (status != TRIGEN_OK && first == TRIGEN_OK) first = status, why = trigen_last_error();
      if (stop || status == TRIGEN_NO_COMPILER) break;  // the others would meet the same lack
    }
    return first == TRIGEN_OK ? first : set_error(first, why);
  });
}

trigen_status trigen_cache_export(trigen_runtime* runtime, const char* bundle, const char* const* targets,
                                  size_t target_count, const char* const* problems,
                                  size_t problem_count) noexcept {
  if (runtime == nullptr || bundle == nullptr)
    return set_error(TRIGEN_BAD_REQUEST, "runtime or bundle is null");
  return guarded_call([&] {
    std::vector<std::string> names;
    std::vector<Problem> list;
    if (target_count > 0) {
      if (auto error = required(targets, target_count, "targets")) return give(std::move(error));
      names.assign(targets, targets + target_count);
    }
    if (problem_count > 0) {
      auto parsed = problems_of(problems, problem_count);
      if (!parsed) return give(parsed.takeError());
      list = std::move(*parsed);
    }
    return give(export_bundle(*runtime, bundle, names, list));
  });
}

trigen_status trigen_cache_import(trigen_runtime* runtime, const char* const* files, size_t count) noexcept {
  if (runtime == nullptr) return set_error(TRIGEN_BAD_REQUEST, "runtime is null");
  return guarded_call([&] {
    if (auto error = required(files, count, "files")) return give(std::move(error));
    const Store::Options& options = store_options_of(*runtime);
    if (options.read_only)
      return set_error(
          TRIGEN_BAD_REQUEST,
          "the runtime was made with read_only, and an import writes its cache; use one without it");
    auto all = contents_of({files, files + count}, cache::ReadFor::kImport, options);
    if (!all) return give(all.takeError());
    auto report = cache::import_contents(options, *all);
    return report ? TRIGEN_OK : give(report.takeError());
  });
}

trigen_status trigen_cache_merge(const char* bundle, const char* const* files, size_t count) noexcept {
  if (bundle == nullptr) return set_error(TRIGEN_BAD_REQUEST, "bundle is null");
  return guarded_call([&] {
    if (auto error = required(files, count, "files")) return give(std::move(error));
    auto all = contents_of({files, files + count}, cache::ReadFor::kImport, {});
    if (!all) return give(all.takeError());
    return give(cache::write_bundle(bundle, *all, kMadeBy));
  });
}

}  // extern "C"
