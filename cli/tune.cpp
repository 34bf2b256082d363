#include "cli/tune.h"

#include <algorithm>
#include <cstdio>
#include <set>

#include "check/text.h"
#include "cli/each_target.h"
#include "cli/fleet_progress.h"
#include "cli/fleet_work.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/target_options.h"
#include "cli/terminal.h"
#include "cli/tune_dense.h"
#include "cli/tune_tables.h"
#include "llvm/ADT/ScopeExit.h"
#include "tuner/evidence.h"
#include "tuner/fleet.h"
#include "tuner/tune.h"

namespace trigen::cli {
namespace {

struct Tune {
  ProblemOptions problems;
  FleetWork work;
  std::shared_ptr<TuneRecorder> recorder;  // null: nothing is recorded
  TargetOptions where;
  std::string budget, deadline, wait, objective = "time";
  bool shared_ok = false;
  std::optional<size_t> candidates;
  int jobs = 0;
  bool force = false, json = false, verbose = false, no_device = false;

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

  // Results of a list, problem by problem.
  struct Results {
    Tune& tune;
    const std::vector<Problem>& list;
    const Target& target;
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
        ErrorText text = take_error(report.takeError());
        if (interrupted) return false;
        const std::string instead = tune.problems.list_instead(list[index], target);
        if (!instead.empty()) text.message += ", or " + instead + ", which leaves such problems out";
        say(to_string(list[index]), "failed", "");
        remark("error: " + text.message, /*lines=*/true);
        ++failures;
        no_compiler = text.kind == ErrorKind::kNoCompiler;
        return !no_compiler;  // the other problems would meet the same lack
      }
      for (const std::string& note : report->notes)
        if (std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
      unstored += report->stored ? 0 : 1;
      std::string result = format_seconds(report->seconds) + " " + provenance_text(*report);
      if (report->joules > 0) result += format(", %.3g J", report->joules);
      say(report->problem, result, report->chosen);
      if (tune.recorder != nullptr) {
        if (auto failed = tune.recorder->write(*report, index)) {
          error = llvm::joinErrors(std::move(error), std::move(failed));
          return false;
        }
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
    // Compilers that a problem leaves idle work for the next ones, where the cache hands on what they make.
    CompilePool pool(options.build.threads, /*program=*/"");
    TuneOptions later = options;
    later.build.compiler = pool.compiler();
    const size_t ahead = llvm::errorToBool(store.try_put()) ? 0 : 2 * static_cast<size_t>(usable_cpus());
    size_t asked = 1;
    const auto withdrawn = llvm::make_scope_exit([&] { pool.withdraw(&pool); });
    for (size_t i = 0; i < list.size() && !options.cancel->load(); ++i) {
      for (; asked < list.size() && asked <= i + ahead; ++asked)
        pool.submit(&pool, [&, asked] { compile_predicted(list[asked], target, store, later); });
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
                 " takes no more problems: " + take_error(std::move(error)).message,
             /*lines=*/true);
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

  llvm::Error read(FleetOptions& fleet_options) const {
    auto target = where.target();
    if (!target) return target.takeError();
    fleet_options.target = *target;
    fleet_options.compile_threads = jobs;
    fleet_options.watch.shared_ok = shared_ok;
    if (auto error = read_duration("wait", wait, fleet_options.watch.wait_s)) return error;
    return read_duration("deadline", deadline, fleet_options.deadline_s);
  }

  llvm::Error read(TuneOptions& options) const {
    auto choice = where.choice();
    if (!choice) return choice.takeError();
    options.family = choice->family;
    options.config = choice->config;
    if (candidates) {
      options.search.max_tried = *candidates;
      options.search.share = 1;
      if (*candidates > 0) options.predict_candidates = *candidates;
    }
    if (recorder != nullptr) recorder->adjust(options);
    options.search.exhaustive = options.search.max_tried == 0 || options.sample;
    if (auto error = read_duration("budget", budget, options.search.budget_s)) return error;
    if (options.search.exhaustive) {
      if (budget.empty() && !options.sample) options.search.budget_s = 0;
      options.search.finalists = 16;  // what is best is decided in turn, not by times that are a minute apart
    }
    if (options.sample) options.search.finalists = 8;
    options.objective = objective == "energy" ? TuneObjective::kEnergy
                        : objective == "edp"  ? TuneObjective::kEdp
                                              : TuneObjective::kTime;
    options.force = force;
    options.build.threads = jobs;
    options.build.no_jit = no_jit_from_environment();
    return llvm::Error::success();
  }

  // The part of the list that a fleet leaves to this tuner.
  llvm::Expected<std::vector<Problem>> own_work(const std::vector<Problem>& list, const Target& target,
                                                const Fleet* fleet, Store& store) {
    std::set<cache::DeviceKind> kinds;
    if (fleet == nullptr) kinds.insert(kind_of(target, nullptr));
    for (size_t i = 0; fleet != nullptr && i < fleet->stations().size(); ++i) {
      const Device& each = *fleet->stations()[i].device;
      kinds.insert(kind_of(where.arch.empty() ? each.target() : target, &each));
    }
    return work.take(list, kinds, store, where.store_options());
  }

  void announce(size_t problems, const Target& target, const Fleet* fleet) const {
    const Device* device = fleet == nullptr ? nullptr : fleet->stations().front().device.get();
    std::string how = "no device here, so choices are predicted by the model";
    if (!where.gpu.empty()) how = "predicted by the model for " + target.model_device.str();
    if (device != nullptr && device->info().emulated) {
      how = "predicted by the model, checked on the emulated device where the problem is small enough";
    } else if (device != nullptr && !device->runs_cubin_of(target)) {
      how = "predicted by the model, " + device->info().name + " is not a device of this target";
    } else if (device != nullptr) {
      how = "measuring on " + device->info().name;
      if (fleet->stations().size() > 1) how += format(" and %zu more", fleet->stations().size() - 1);
    }
    remark(format("tuning %zu problem%s for %s: %s", problems, problems == 1 ? "" : "s",
                  fleet != nullptr && fleet->kinds() > 1 ? "each GPU's own target" : target.name.data(),
                  how.c_str()));
  }

  static DenseWords stand_beside_dense(Results& results, const Target& target, const Fleet* fleet,
                                       Store& store, const std::atomic<bool>& interrupted) {
    std::vector<const Device*> devices;
    for (size_t i = 0; fleet != nullptr && i < fleet->stations().size(); ++i)
      devices.push_back(fleet->stations()[i].device.get());
    std::vector<Problem> of_reports;
    for (const size_t place : results.places) of_reports.push_back(results.list[place]);
    return cli::stand_beside_dense(results.reports, of_reports, target, devices, store,
                                   {TuneOptions().seed, &interrupted});
  }

  void print(const Results& results, const DenseWords& dense) const {
    const std::vector<TuneReport>& reports = results.reports;
    if (json) {
      std::string out = "[";
      for (size_t i = 0; i < reports.size(); ++i) out += (i > 0 ? ",\n" : "\n") + report_json(reports[i]);
      std::printf("%s\n]\n", out.c_str());
      return;
    }
    for (size_t i = 0; verbose && i < reports.size(); ++i) print_candidates(reports[i]);
    if (!reports.empty()) print_choices(reports);
    if (const std::string searched = search_table(reports, columns(stdout)); !searched.empty())
      std::printf("\n%s", searched.c_str());
    if (const std::string checked = emulated_checks(reports); !checked.empty()) remark("note: " + checked);
    for (const auto* texts : {&results.notes, &dense.notes, &dense.remarks})
      for (const std::string& text : *texts) remark("note: " + text, /*lines=*/true);
  }

  // The exit code, with what went wrong said.
  int conclude(const Results& results, size_t wanted, llvm::Error unpublished, bool interrupted) const {
    int failures = results.failures;
    if (unpublished) {
      ++failures;
      (void)report(std::move(unpublished));
    }
    if (interrupted) {
      remark(
          format("interrupted: %zu of %zu problems are in the cache, with what was measured; the same "
                 "command goes on there",
                 results.reports.size(), wanted));
      return interrupted_code();
    }
    if (results.unstored > 0)
      remark(
          format("error: %d of %zu choices could not be stored", results.unstored, results.reports.size()));
    if (results.no_compiler && failures + results.unstored == 1) return kNoCompiler;
    return failures + results.unstored > 0 ? kFailure : kDone;
  }

  llvm::Expected<int> run_all() {
    auto named = problems.problems("core");
    if (!named) return named.takeError();
    return for_each_target(where, json, [&] { return run_list(*named); });
  }

  llvm::Expected<int> run_list(std::vector<Problem> list) {
    TuneOptions options;
    FleetOptions fleet_options;
    if (auto error = read(options)) return error;
    if (auto error = read(fleet_options)) return error;
    const std::atomic<bool>& interrupted = catch_interrupts();
    options.cancel = fleet_options.cancel = fleet_options.watch.cancel = &interrupted;
    std::string why = "not asked for";
    std::unique_ptr<Fleet> fleet;
    if (!no_device && where.gpu.empty()) {
      auto opened = open_fleet(fleet_options, why);
      if (!opened) return opened.takeError();
      fleet = std::move(*opened);
    }
    const Device* device = fleet == nullptr ? nullptr : fleet->stations().front().device.get();
    const Target* target = fleet_options.target;
    if (target == nullptr && device == nullptr)
      return make_error(ErrorKind::kBadRequest, "no target is named and no device is here (" +
                                                    what_was_found(why) +
                                                    "; see `trigen doctor`); add --arch, for example "
                                                    "--arch sm_70");
    if (target == nullptr) target = &device->target();
    if (const size_t dropped = problems.drop_unsupported(list, *target, "core"))
      remark("left out: " + std::to_string(dropped) +
             " problems of the shipped lists that no family makes for " + target->name.str() +
             " (tf32 needs sm_80)");
    auto store = where.open_store();
    if (work.any()) {
      auto mine = own_work(list, *target, fleet.get(), *store);
      if (!mine) return mine.takeError();
      list = std::move(*mine);
      if (list.empty()) return kDone;
    }
    if (!json) announce(list.size(), *target, fleet.get());
    // A store that takes no choice is better found before hours of measuring than after them.
    if (auto error = store->try_put())
      remark("warning: no choice can be stored: " + take_error(std::move(error)).message);
    std::unique_ptr<BuildAhead> ahead;
    if (recorder != nullptr) ahead = recorder->begin(list, *target, device, *store, options);
    Results results{*this, list, *target};
    if (fleet == nullptr) {
      predict_all(list, *target, *store, options, results);
    } else {
      run_fleet(*fleet, list, *store, options, results);
    }
    if (results.error) return std::move(results.error);
    const DenseWords dense = stand_beside_dense(results, *target, fleet.get(), *store, interrupted);
    llvm::Error unpublished = work.publish();
    print(results, dense);
    return conclude(results, list.size(), std::move(unpublished), interrupted.load());
  }
};

}  // namespace

std::function<int()> add_tune_to(CLI::App& app, std::shared_ptr<TuneRecorder> recorder) {
  CLI::App* const sub = &app;
  auto tune = std::make_shared<Tune>();
  tune->recorder = std::move(recorder);
  tune->problems.add_to(*sub);
  tune->work.add_to(*sub);
  tune->where.add_arch(*sub, /*several=*/true);
  tune->where.add_gpu(*sub);
  tune->where.add_device(*sub);
  sub->get_option("--device")
      ->description(
          "device: 0, cuda:0, several (0,1,2), all of them (all), or emulated:sm_70 (the CPU's; needs no "
          "GPU)");
  tune->where.add_family(*sub);
  tune->where.add_cache(*sub);
  sub->add_option("--budget", tune->budget,
                  "time for one problem's search, which measures one candidate at least: 60s, 2m (60s; none "
                  "with --candidates 0)")
      ->type_name("TIME")
      ->check(not_empty());
  sub->add_option("--deadline", tune->deadline,
                  "how much longer than expected a candidate may keep the device before its worker is ended "
                  "(5s; 60s on the emulated device)")
      ->type_name("TIME");
  sub->add_option("--wait", tune->wait, "how long to wait for a busy or throttled GPU (60s)")
      ->type_name("TIME");
  sub->add_flag("--shared-ok", tune->shared_ok, "measure even if the GPU is shared or throttled");
  sub->add_option("--objective", tune->objective,
                  "quantity to minimize: time, energy (of the whole GPU, a run), or edp, their product")
      ->check(one_word_of({"time", "energy", "edp"}));
  sub->add_option("--candidates", tune->candidates,
                  "compile and time at most so many candidates, 0: no limit (a tenth of all, at most 64); "
                  "without a device: compile the model's first ones (8)")
      ->check(whole_number(0, kMostCount));
  sub->add_option("-j,--jobs", tune->jobs, "compiling threads, 0 for one per CPU (0)")
      ->check(whole_number(0, 4096));
  sub->add_flag("--no-device", tune->no_device, "predict, even where a device is at hand");
  sub->add_flag("--force", tune->force,
                "measure again problems that have records, and start interrupted tunes anew");
  sub->add_flag("-v,--verbose", tune->verbose, "print every candidate that was tried");
  sub->add_flag("--json", tune->json, "reports as JSON on standard output");
  return [tune] { return report(tune->run_all()); };
}

void add_tune(CLI::App& app, Commands& commands) {
  CLI::App* sub =
      app.add_subcommand("tune", "find the best kernels and store them (no problem named: the core list)")
          ->group(kWorkGroup);
  commands.push_back({sub, add_tune_to(*sub)});
}

}  // namespace trigen::cli
