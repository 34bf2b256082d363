// trigen tune: find and store the best kernel for each problem.
#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

#include "check/text.h"
#include "cli/command.h"
#include "cli/fleet_progress.h"
#include "cli/fleet_work.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/search_table.h"
#include "cli/table.h"
#include "cli/target_options.h"
#include "cli/terminal.h"
#include "generator/caveats.h"
#include "generator/cost/dense.h"
#include "peers/compare.h"
#include "runtime/build_ahead.h"
#include "tuner/evidence.h"
#include "tuner/fleet.h"
#include "tuner/replay.h"
#include "tuner/statistics.h"
#include "tuner/tune.h"

namespace trigen::cli {
namespace {

std::string percent_or_dash(double share) { return share > 0 ? format("%.0f %%", 100 * share) : "-"; }

struct Tune {
  ProblemOptions problems;
  FleetWork work;
  TargetOptions where;
  std::string budget, deadline, wait, objective = "time";
  bool shared_ok = false;
  size_t candidates = 64, top = 8;
  double share = 0.1;
  bool exhaustive = false;
  std::string record, role = "fit";
  size_t sample = 0;
  std::vector<std::string> replays;
  int jobs = 0;
  bool force = false, no_counts = false, no_resume = false, json = false, verbose = false, no_device = false,
       no_dense = false;
  uint64_t seed = 20240912;

  void print_details(const TuneReport& report) const {
    std::printf("%s\n", report.problem.c_str());
    Table table({">rank", "=candidate", "outcome", ">predicted", ">quick", ">finals", "?>registers",
                 "?>error", "?note"});
    for (size_t i = 0; i < report.candidates.size(); ++i) {
      const CandidateReport& row = report.candidates[i];
      if (row.outcome == Outcome::kNotTried) continue;
      table.add({std::to_string(i + 1), row.candidate, to_string(row.outcome),
                 format_seconds(row.predicted_s) + (row.counts ? " counted" : ""),
                 row.quick.empty() ? "" : format_seconds(summarize(row.quick).median),
                 row.finals.empty() ? "" : format_seconds(summarize(row.finals).median),
                 row.resources.registers > 0 ? std::to_string(row.resources.registers) : "",
                 row.tolerance > 0 ? format("%.1e", row.error) : "",
                 row.note.substr(0, row.note.find('\n'))});
    }
    table.print();
    std::printf("%s; %.1f s\n\n", report.stop_reason.c_str(), report.elapsed_s);
  }

  static std::string provenance_of(const TuneReport& r) {
    const bool measured = r.provenance == Provenance::kMeasured;
    std::string provenance = measured ? "measured" : r.counted ? "predicted, counted" : "predicted";
    if (r.kept) provenance += measured ? " before" : ", by another process";
    if (!r.complete) provenance += ", interrupted";
    return provenance;
  }

  // The dense product's time: cuBLAS's, timed beside the choice in one run, where that was measured; else, and where
  // cuBLAS is not here, an estimate.
  void add_dense(TuneReport& report, const Problem& problem, const Target& target, const Device* device,
                 Store& store, const std::atomic<bool>& interrupted) const {
    const bool measured = report.provenance == Provenance::kMeasured && device != nullptr;
    report.dense_s = dense_seconds(problem, target, measured ? device->model() : model_of(target));
    if (!measured || report.kept || no_dense || report.dense_s == 0 || interrupted.load()) return;
    CompareOptions options;
    options.rounds = 11;
    options.seed = seed;
    options.cancel = &interrupted;
    auto compared = compare(problem, *device, store, options);
    if (!compared) {
      report.notes.push_back("dense is an estimate: " + take_error(compared.takeError()).message);
      return;
    }
    for (const ComparedArm& arm : compared->arms) {
      if (&arm == &compared->arms.front() || arm.ratio <= 0) continue;
      const double seconds = report.seconds * arm.ratio;  // of one run, as the clocks were there
      if (!report.dense_measured || seconds < report.dense_s) report.dense_s = seconds;
      report.dense_measured = true;
    }
    if (!report.dense_measured)
      for (const std::string& note : compared->notes) report.notes.push_back("dense is an estimate: " + note);
  }

  // In words, for whom a column of times says nothing.
  static void add_remarks(const TuneReport& r, const Problem& problem, const Target& target,
                          std::vector<std::string>& remarks) {
    const std::string dense =
        dense_remark(r.seconds, r.provenance == Provenance::kMeasured, r.dense_s, r.dense_measured);
    if (!dense.empty()) remarks.push_back(r.problem + ": " + dense);
    auto candidate = parse_candidate(problem, target, r.chosen);
    if (!candidate) return llvm::consumeError(candidate.takeError());
    const std::string slow = slow_path(*candidate, target);
    if (!slow.empty() && std::find(remarks.begin(), remarks.end(), slow) == remarks.end())
      remarks.push_back(slow);
  }

  // After the list: the workers are idle, and what was measured is stored.
  template <class Results>
  std::vector<std::string> stand_beside_dense(Results& results, const std::vector<Problem>& list,
                                              const Target& target, const Device* station, Store& store,
                                              const std::atomic<bool>& interrupted) const {
    const Device* own = nullptr;  // in this process
    if (station != nullptr && !station->info().emulated && !no_dense) {
      if (auto opened = Device::open(std::to_string(station->info().ordinal)))
        own = *opened;
      else
        results.notes.push_back("dense is an estimate: " + take_error(opened.takeError()).message);
    }
    std::vector<std::string> remarks;
    for (size_t i = 0; i < results.reports.size(); ++i) {
      TuneReport& report = results.reports[i];
      const Problem& problem = list[results.places[i]];
      const bool same = own != nullptr && own->info().name == report.device;
      const size_t notes = report.notes.size();
      add_dense(report, problem, target, same ? own : nullptr, store, interrupted);
      results.notes.insert(results.notes.end(), report.notes.begin() + static_cast<std::ptrdiff_t>(notes),
                           report.notes.end());
      add_remarks(report, problem, target, remarks);
    }
    return remarks;
  }

  static void print_summary(const std::vector<TuneReport>& reports) {
    Table table({"=problem", "target", "=choice", ">time", "?>quartiles", "provenance", ">dense",
                 "?>of ceiling", "?>error"});
    for (const TuneReport& r : reports) {
      const bool measured = r.provenance == Provenance::kMeasured;
      table.add({r.problem, r.target, r.chosen, format_seconds(r.seconds),
                 measured && !r.kept ? format_seconds(r.lower_s) + " - " + format_seconds(r.upper_s) : "-",
                 provenance_of(r),
                 r.dense_s > 0 ? format_seconds(r.dense_s) + (r.dense_measured ? "" : " est.") : "-",
                 percent_or_dash(r.share_of_ceiling()),
                 r.tolerance > 0 || r.error > 0 ? format("%.1e", r.error) : "-"});
    }
    table.print();
  }

  SampleOptions sample_options() const {
    SampleOptions options;
    options.first = std::min(options.first, sample);
    options.drawn = sample - options.first;
    return options;
  }

  // One file a problem in the folder, as soon as it is measured.
  llvm::Error write_recording(const TuneReport& report, const std::string& role_of) const {
    if (record.empty() || report.provenance != Provenance::kMeasured || report.kept)
      return llvm::Error::success();
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    Recording recording = recording_of(report, date);
    recording.role = role_of;
    if (sample > 0) recording.sample = to_string(sample_options());
    std::error_code error;
    std::filesystem::create_directories(record, error);
    const std::string path = (std::filesystem::path(record) / file_name(recording)).string();
    std::ofstream file(path, std::ios::trunc);
    file << to_string(recording);
    file.close();
    if (!file)
      return make_error(ErrorKind::kBadRequest,
                        "cannot write the recording " + path + "; name another folder");
    return llvm::Error::success();
  }

  // The search on recordings: what it would have chosen, at what cost, over sixteen draws of the noise.
  llvm::Expected<int> run_replays() const {
    Table table(
        {"=recording", ">rows", ">tried", "?>share", ">worst regret", ">median", "?>choices", "?stop"});
    SearchOptions search;
    search.max_tried = candidates;
    search.share = share;
    auto recordings = read_recordings(replays);
    if (!recordings) return recordings.takeError();
    for (const Recording& recording : *recordings) {
      std::vector<double> regrets;
      std::set<size_t> choices;
      ReplayResult last;
      for (uint64_t draw = 0; draw < 16; ++draw) {
        auto result = replay(recording, search, seed + draw);
        if (!result) return with_prefix(result.takeError(), recording.problem);
        regrets.push_back(result->regret);
        choices.insert(result->chosen);
        last = *result;
      }
      const Summary summary = summarize(regrets);
      table.add(
          {recording.problem + " " + recording.target + (recording.exhaustive() ? "" : ", not exhaustive"),
           std::to_string(recording.rows.size()), std::to_string(last.tried), percent_or_dash(last.share),
           format("%.1f %%", 100 * summary.maximum), format("%.1f %%", 100 * summary.median),
           std::to_string(choices.size()), last.reason});
    }
    table.print();
    return kDone;
  }

  std::vector<std::string> roles_of(const std::vector<Problem>& list) const {
    std::vector<std::string> roles(list.size(), role);
    const auto sizes = [](const Problem& p) { return std::array{p.B, p.H, p.T, p.D, p.K}; };
    bool check = false;
    for (size_t i = 0; role == "alternate" && i < list.size(); ++i) {
      if (i > 0 && sizes(list[i]) != sizes(list[i - 1])) check = !check;
      roles[i] = check ? "check" : "fit";
    }
    return roles;
  }

  // Samples of many problems take as long as their compiling, so that goes on while the device measures.
  static std::unique_ptr<BuildAhead> build_ahead(const std::vector<Problem>& list, const Target& target,
                                                 Store& store, TuneOptions& options) {
    std::vector<Candidate> work;
    for (const Problem& problem : list) {
      auto all = rank_candidates(problem, target, options.family);
      if (!all) {  // tune() says so when its turn comes
        llvm::consumeError(all.takeError());
        continue;
      }
      for (const size_t i : draw_sample(*all, *options.sample)) work.push_back((*all)[i]);
    }
    auto ahead = std::make_unique<BuildAhead>(std::move(work), store, options.build);
    options.build.threads = 2;  // they wait for the others' leases
    return ahead;
  }

  static llvm::Error read_duration(const char* name, const std::string& text, double& seconds) {
    if (text.empty()) return llvm::Error::success();
    auto value = parse_duration(name, text);
    if (!value) return value.takeError();
    seconds = *value;
    return llvm::Error::success();
  }

  // Null, with the reason in `why`, when no device was named and none is here.
  llvm::Expected<std::unique_ptr<Fleet>> open_fleet(FleetOptions& fleet_options, std::string& why) const {
    llvm::SmallVector<llvm::StringRef, 8> names;
    llvm::StringRef(where.device).split(names, ',');
    for (const llvm::StringRef name : names) fleet_options.devices.push_back(name.trim().str());
    auto opened = Fleet::open(fleet_options);
    if (opened || !where.device.empty()) return opened;
    why = take_error(opened.takeError()).message;
    return std::unique_ptr<Fleet>();
  }

  // What a list came to, problem by problem.
  struct Results {
    Tune& tune;
    const std::vector<Problem>& list;
    const std::vector<std::string>& roles;
    std::vector<TuneReport> reports = {};
    std::vector<size_t> places = {};  // of the reports in the list
    std::vector<std::string> notes = {};
    int failures = 0, unstored = 0;
    bool no_compiler = false;
    llvm::Error error = llvm::Error::success();  // ends the list

    using Say =
        std::function<void(const std::string& problem, const std::string& result, const std::string& choice)>;
    // False: on with no other problem.
    bool add(size_t index, llvm::Expected<TuneReport> report, bool interrupted, const Say& say) {
      if (!report) {
        const ErrorText text = take_error(report.takeError());
        if (interrupted) return false;
        say(to_string(list[index]), "failed", "");
        remark("error: " + text.message);
        ++failures;
        no_compiler = text.kind == ErrorKind::kNoCompiler;
        return !no_compiler;  // the other problems would meet the same lack
      }
      for (const std::string& note : report->notes)
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
      unstored += report->stored ? 0 : 1;
      std::string result = format_seconds(report->seconds) + " " + provenance_of(*report);
      if (report->joules > 0) result += format(", %.3g J", report->joules);
      say(report->problem, result, report->chosen);
      if (auto failed = tune.write_recording(*report, roles[index])) {
        error = llvm::joinErrors(std::move(error), std::move(failed));
        return false;
      }
      tune.work.finished(*report);
      const auto at = std::upper_bound(places.begin(), places.end(), index) - places.begin();
      places.insert(places.begin() + at, index);
      reports.insert(reports.begin() + at, std::move(*report));
      return true;
    }
  };

  // Without a device.
  static void predict_all(const std::vector<Problem>& list, const Target& target, Store& store,
                          TuneOptions options, Results& results) {
    ProgressDisplay display = make_progress(list.size());
    options.progress = [&](const TuneProgress& progress) { display.show(progress); };
    const auto say = [&](const std::string& problem, const std::string& result, const std::string& choice) {
      display.finish(problem, result, choice);
    };
    for (size_t i = 0; i < list.size() && !options.cancel->load(); ++i) {
      display.begin(i);
      auto report = trigen::tune(list[i], target, nullptr, store, options);
      display.clear();
      if (!results.add(i, std::move(report), options.cancel->load(), say)) return;
    }
  }

  static void run_fleet(Fleet& fleet, const std::vector<Problem>& list, Store& store,
                        const TuneOptions& options, Results& results) {
    const bool several = fleet.stations().size() > 1;
    ProgressDisplay one = make_progress(list.size());
    std::vector<std::string> names;
    for (const Station& station : fleet.stations())
      names.push_back(station.device->info().emulated
                          ? format("%s/%d", station.name.c_str(), station.device->info().ordinal)
                          : station.name);
    FleetProgress all = make_fleet_progress(names, list.size() * fleet.kinds());
    Fleet::Events events;
    events.begin = [&](const Fleet::Item& item) {
      several ? all.begin(item.station) : one.begin(item.problem);
    };
    events.show = [&](const Fleet::Item& item, const TuneProgress& progress) {
      several ? all.show(item.station, progress) : one.show(progress);
    };
    events.lost = [&](const Fleet::Item& item, llvm::Error error) {
      all.clear();
      remark("warning: " + names[item.station] +
             " takes no more problems: " + take_error(std::move(error)).message);
    };
    events.finish = [&](const Fleet::Item& item, llvm::Expected<TuneReport> report) {
      several ? all.clear() : one.clear();
      return results.add(
          item.problem, std::move(report), options.cancel->load(),
          [&](const std::string& problem, const std::string& result, const std::string& choice) {
            several ? all.finish(item.station, problem, result, choice) : one.finish(problem, result, choice);
          });
    };
    fleet.run(list, store, options, events);
    const size_t begun = results.reports.size() + static_cast<size_t>(results.failures);
    const size_t wanted = list.size() * fleet.kinds();
    if (begun < wanted && !options.cancel->load() && !results.no_compiler)
      remark(format("error: %zu of %zu problems were not begun", wanted - begun, wanted));
  }

  llvm::Expected<int> run_all() {
    if (!replays.empty()) return run_replays();
    auto list = problems.problems("core");
    if (!list) return list.takeError();
    auto target = where.target();
    if (!target) return target.takeError();
    auto choice = where.choice();
    if (!choice) return choice.takeError();
    TuneOptions options;
    if (!budget.empty()) {
      auto seconds = parse_duration("budget", budget);
      if (!seconds) return seconds.takeError();
      options.search.budget_s = *seconds;
    }
    FleetOptions fleet_options;
    fleet_options.target = *target;
    fleet_options.compile_threads = jobs;
    fleet_options.watch.shared_ok = shared_ok;
    if (auto error = read_duration("wait", wait, fleet_options.watch.wait_s)) return error;
    if (auto error = read_duration("deadline", deadline, fleet_options.deadline_s)) return error;
    const std::atomic<bool>& interrupted = catch_interrupts();
    options.cancel = fleet_options.cancel = fleet_options.watch.cancel = &interrupted;
    options.objective = objective == "energy" ? TuneObjective::kEnergy
                        : objective == "edp"  ? TuneObjective::kEdp
                                              : TuneObjective::kTime;
    std::string why = "not asked for";
    std::unique_ptr<Fleet> fleet;
    if (!no_device) {
      auto opened = open_fleet(fleet_options, why);
      if (!opened) return opened.takeError();
      fleet = std::move(*opened);
    }
    const Device* device = fleet == nullptr ? nullptr : fleet->stations().front().device.get();
    if (*target == nullptr) {
      if (device == nullptr) {
        return make_error(ErrorKind::kBadRequest, "no target is named and no device is here (" + why +
                                                      "); add --arch, for example --arch sm_70");
      }
      *target = &device->target();
    }
    options.search.max_tried = candidates;
    options.search.share = share;
    options.search.exhaustive = exhaustive || candidates == 0 || sample > 0;
    if (options.search.exhaustive) {
      if (budget.empty() && sample == 0) options.search.budget_s = 0;
      options.search.finalists = 16;  // what is best is decided in turn, not by times that are a minute apart
    }
    if (sample > 0) {
      options.sample = sample_options();
      options.search.finalists = 8;
    }
    options.predict_candidates = std::max<size_t>(1, top);
    options.count = !no_counts;
    options.family = choice->family;
    options.config = choice->config;
    options.force = force;
    options.resume = !no_resume;
    options.seed = seed;
    options.build.threads = jobs;
    options.build.no_jit = no_jit_from_environment();
    auto store = where.open_store();
    if (work.any()) {
      std::set<cache::DeviceKind> kinds;
      if (fleet == nullptr) kinds.insert(kind_of(**target, nullptr));
      for (size_t i = 0; fleet != nullptr && i < fleet->stations().size(); ++i) {
        const Device& each = *fleet->stations()[i].device;
        kinds.insert(kind_of(where.arch.empty() ? each.target() : **target, &each));
      }
      auto mine = work.take(*list, kinds, *store);
      if (!mine) return mine.takeError();
      list = std::move(mine);
      if (list->empty()) return kDone;
    }
    if (!json) {
      const bool measured = device != nullptr && !device->info().emulated && device->runs_cubin_of(**target);
      std::string how = "no device here, so choices are predicted by the model";
      if (measured) {
        how = "measuring on " + device->info().name;
        if (fleet->stations().size() > 1) how += format(" and %zu more", fleet->stations().size() - 1);
      } else if (device != nullptr && device->info().emulated) {
        how = "predicted by the model, checked on the emulated device where the problem is small enough";
      } else if (device != nullptr) {
        how = "predicted by the model, " + device->info().name + " is not a device of this target";
      }
      remark(format("tuning %zu problem%s for %s: %s", list->size(), list->size() == 1 ? "" : "s",
                    fleet != nullptr && fleet->kinds() > 1 ? "each GPU's own target" : (*target)->name.data(),
                    how.c_str()));
    }

    // What cannot be stored is better known before hours of measuring than after them.
    if (auto error = store->try_put())
      remark("warning: no choice can be stored: " + take_error(std::move(error)).message);
    const std::vector<std::string> roles = roles_of(*list);
    std::unique_ptr<BuildAhead> ahead;
    if (sample > 0 && device != nullptr && !device->info().emulated)
      ahead = build_ahead(*list, **target, *store, options);
    Results results{*this, *list, roles};
    if (fleet == nullptr) {
      predict_all(*list, **target, *store, options, results);
    } else {
      run_fleet(*fleet, *list, *store, options, results);
    }
    if (results.error) return std::move(results.error);
    std::vector<TuneReport>& reports = results.reports;
    const std::vector<std::string> remarks =
        stand_beside_dense(results, *list, **target, device, *store, interrupted);
    const std::vector<std::string>& notes = results.notes;
    int failures = results.failures;
    const int unstored = results.unstored;
    const bool no_compiler = results.no_compiler;
    llvm::Error unpublished = work.publish();
    if (json) {
      std::string out = "[";
      for (size_t i = 0; i < reports.size(); ++i) out += (i > 0 ? ",\n" : "\n") + report_json(reports[i]);
      std::printf("%s\n]\n", out.c_str());
    } else {
      if (verbose) {
        for (const TuneReport& report : reports) print_details(report);
      }
      if (!reports.empty()) print_summary(reports);
      if (const std::string searched = search_table(reports, columns(stdout)); !searched.empty())
        std::printf("\n%s", searched.c_str());
      for (const std::string& note : notes) remark("note: " + note);
      for (const std::string& text : remarks) remark("note: " + text);
    }
    if (unpublished) {
      ++failures;
      remark("error: " + take_error(std::move(unpublished)).message);
    }
    if (interrupted.load()) {
      remark(
          format("interrupted: %zu of %zu problems are in the cache, with what was measured; the same "
                 "command goes on there",
                 reports.size(), list->size()));
      return kInterrupted;
    }
    if (unstored > 0)
      remark(format("error: %d of %zu choices could not be stored", unstored, reports.size()));
    if (no_compiler && failures + unstored == 1) return kNoCompiler;
    return failures + unstored > 0 ? kFailure : kDone;
  }
};

}  // namespace

void add_tune(CLI::App& app, Commands& commands) {
  CLI::App* sub =
      app.add_subcommand("tune", "find the best kernels and store them (no problem named: the core list)")
          ->group(kWorkGroup);
  auto tune = std::make_shared<Tune>();
  tune->problems.add_to(*sub);
  tune->work.add_to(*sub);
  tune->where.add_arch(*sub);
  tune->where.add_device(*sub);
  sub->get_option("--device")
      ->description(
          "device: 0, cuda:0, several (0,1,2), all of them (all), or emulated:sm_70 (the CPU's; needs no "
          "GPU)");
  tune->where.add_family(*sub);
  tune->where.add_cache(*sub);
  sub->add_option("--budget", tune->budget,
                  "time for one problem, measuring: 60s, 2m (60s; none with --exhaustive)")
      ->type_name("TIME")
      ->check(not_empty());
  sub->add_option("--deadline", tune->deadline,
                  "how much longer than expected a candidate may keep the device before its worker is ended "
                  "(5s; 60s on the emulated device)")
      ->type_name("TIME");
  sub->add_option("--wait", tune->wait, "how long to wait for a GPU that is busy or held down by heat (60s)")
      ->type_name("TIME");
  sub->add_flag("--shared-ok", tune->shared_ok, "measure although others use the GPU or it is held down");
  sub->add_option(
         "--objective", tune->objective,
         "what the choice has least of: time, energy (of the whole GPU, a run), or edp, their product")
      ->check(CLI::IsMember({"time", "energy", "edp"}));
  sub->add_option("--candidates", tune->candidates,
                  "candidates to compile and time at most, beside the tenth of all; 0 for all of them (64)")
      ->check(whole_number(0, kMostCount));
  sub->add_option("--share", tune->share, "part of all candidates to try at most (0.1)")
      ->check(CLI::Range(0.0, 1.0) & decimal_number(0));
  sub->add_flag("--exhaustive", tune->exhaustive, "time every candidate (300 at most), as --candidates 0");
  sub->add_option(
         "--sample", tune->sample,
         "no search: time the model's first 12 and a draw over families and tiles, so many in all, and "
         "compile ahead over all problems; for --record")
      ->check(whole_number(1, kMostCount));
  sub->add_option("--role", tune->role,
                  "of the recordings: fit (the default), check, or alternate: fit and check in turn, and all "
                  "problems of the same sizes in a row alike")
      ->check(CLI::IsMember({"fit", "check", "alternate"}));
  sub->add_option("--record", tune->record, "folder for recordings of what was measured, a file a problem")
      ->type_name("FOLDER");
  sub->add_option("--replay", tune->replays,
                  "no tuning: the search on recordings, and what it would have chosen")
      ->type_name("FILE");
  sub->add_option("--top", tune->top, "without a device: candidates to compile, by the model's order (8)")
      ->check(whole_number(0, kMostCount));
  sub->add_flag("--no-counts", tune->no_counts,
                "without a device: rank by the model's estimates, not by what the emulated device counts");
  sub->add_option("-j,--jobs", tune->jobs, "compiling threads, 0 for one per CPU (0)")
      ->check(whole_number(0, 4096));
  sub->add_option("--seed", tune->seed, "of the random inputs")->check(whole_number(0, UINT64_MAX));
  sub->add_flag("--no-device", tune->no_device, "predict, even where a device is at hand");
  sub->add_flag("--no-dense", tune->no_dense,
                "do not time cuBLAS beside the choice; the dense product is estimated");
  sub->add_flag("--force", tune->force, "measure again what was measured before");
  sub->add_flag("--no-resume", tune->no_resume, "do not use the samples of an interrupted tune");
  sub->add_flag("-v,--verbose", tune->verbose, "print every candidate that was tried");
  sub->add_flag("--json", tune->json, "reports as JSON on standard output");
  commands.push_back({sub, [tune] {
                        auto code = tune->run_all();
                        return code ? *code : report(code.takeError());
                      }});
}

}  // namespace trigen::cli
