#include "lab/sweep_run.h"

#include <algorithm>
#include <chrono>

#include "check/text.h"
#include "check/verify.h"
#include "lab/peer_arms.h"
#include "peers/copy_peer.h"
#include "tuner/ceiling.h"

namespace trigen {
namespace {

struct Sweep {
  const Problem& problem;
  const Device& device;
  Store& store;
  const SweepOptions& options;
  std::vector<TableResult>& results;

  std::vector<std::shared_ptr<const Plan>> plans = {};  // one of each result
  std::unique_ptr<Workbench> bench = {};
  PeerArms peers = {};
  std::unique_ptr<CopyPeer> copy = {};
  std::vector<NamedLaunch> arms = {};  // the plans', the peers', the copy
  size_t first_peer = 0;

  std::vector<size_t> unchanged =
      {};  // results whose plans have an arm with w_unchanged, behind all plans' own

  size_t result_of_arm(size_t arm) const { return arm < plans.size() ? arm : unchanged[arm - plans.size()]; }
  std::shared_ptr<const Executable> executable_of(size_t i) const {
    return {plans[i], &plans[i]->executable()};
  }

  void note(const std::string& text) {
    for (TableResult& result : results) {
      if (result.note.find(text) == std::string::npos)
        result.note += (result.note.empty() ? "" : "; ") + text;
    }
  }

  llvm::Error choose() {
    for (TableResult& result : results) {
      if (result.table == kTuned) {
        auto tuned = tune(problem, device.target(), &device, store, options.tuning);
        if (!tuned) return tuned.takeError();
      }
      auto plan = Plan::create(problem, device, store, options.table.plan);
      if (!plan) return plan.takeError();
      const Resolution& resolution = (*plan)->resolution();
      result.kernel = describe(resolution.candidate);
      result.provenance = resolution.provenance == Provenance::kMeasured ? "measured" : "predicted";
      plans.push_back(*plan);
    }
    return llvm::Error::success();
  }

  llvm::Error prepare() {
    WorkbenchOptions bench_options;
    bench_options.seed = options.table.seed;
    bench_options.rotate = true;
    auto made = Workbench::create(device, problem, bench_options);
    if (!made) return made.takeError();
    bench = std::move(*made);
    if (!bench->outgrows_l2()) note("the input sets together stay in the L2, in every arm alike");
    const Reference reference(problem, bench->list(), bench->inputs());
    for (size_t i = 0; i < plans.size(); ++i) {
      auto checked = verify(*plans[i], *bench, reference);
      if (!checked) return checked.takeError();
      if (!checked->ok)
        return make_error(ErrorKind::kInternal, results[i].kernel + " gives a wrong result for " +
                                                    to_string(problem) + ": " + checked->failure);
      results[i].ran = true;
      auto launch = launcher(*bench, executable_of(i));
      if (!launch) return launch.takeError();
      arms.push_back({results[i].table, std::move(*launch)});
    }
    for (size_t i = 0; i < plans.size(); ++i) {
      if (plans[i]->executable().prepared_bytes() == 0) continue;
      auto launch = unchanged_launcher(*bench, executable_of(i));
      if (!launch) return launch.takeError();
      unchanged.push_back(i);
      arms.push_back({kUnchangedArm, std::move(*launch)});
    }
    first_peer = arms.size();
    peers = peer_arms(*bench, true, &reference);
    for (const std::string& text : peers.notes) note(text);
    for (NamedLaunch& arm : peers.arms) arms.push_back(std::move(arm));
    auto copied = CopyPeer::create(*bench);
    if (!copied) return copied.takeError();
    copy = std::move(*copied);
    arms.push_back({"copy", copy->launch()});
    return llvm::Error::success();
  }

  llvm::Error time() {
    std::vector<std::unique_ptr<TimedGraph>> graphs;
    std::vector<TimedGraph*> pointers;
    for (const NamedLaunch& arm : arms) {
      auto timing = time_alone(*bench, arm.launch, {.samples = 1});
      if (!timing) return timing.takeError();
      graphs.push_back(std::move(timing->graph));
      pointers.push_back(graphs.back().get());
    }
    const auto start = std::chrono::steady_clock::now();
    int rounds = 1;
    auto finals = time_in_turn(pointers, options.table.rounds, [&] {
      const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
      return (options.table.cancel != nullptr && options.table.cancel->load()) ||
             (rounds++ >= kLeastRounds && spent.count() > options.table.seconds);
    });
    if (!finals) return finals.takeError();
    if (finals->drifted) note("the device slowed down meanwhile");
    std::vector<Summary> times;
    for (const auto& samples : finals->samples) times.push_back(summarize(samples));
    size_t best = first_peer;
    for (size_t i = first_peer; i + 1 < arms.size(); ++i)
      if (times[i].median < times[best].median) best = i;
    const bool compared = best + 1 < arms.size();
    const Ceiling ceiling = ceiling_of(problem, device.gpu(), device.model());
    for (size_t i = 0; i < results.size(); ++i) {
      TableResult& result = results[i];
      result.rounds = static_cast<int>(finals->samples[i].size());
      for (size_t arm = 0; arm < arms.size(); ++arm) {
        if (arm < first_peer && result_of_arm(arm) != i) continue;
        result.arms.push_back({arms[arm].name, times[arm].median, times[arm].lower, times[arm].upper});
      }
      result.seconds = times[i].median;
      result.floor_seconds = std::max(times.back().median, ceiling.compute_s);
      result.bound = times.back().median > ceiling.compute_s ? "bytes" : "products";
      if (!compared) continue;
      result.peer = arms[best].name;
      result.peer_seconds = times[best].median;
      std::vector<double> ratios;
      for (size_t r = 0; r < finals->samples[i].size(); ++r)
        ratios.push_back(finals->samples[best][r] / finals->samples[i][r]);
      result.got = summarize(ratios).median;
    }
    return llvm::Error::success();
  }

  llvm::Error run() {
    if (auto error = choose()) return error;
    if (auto error = prepare()) return error;
    if (device.info().emulated) return llvm::Error::success();  // it has no time to measure
    return time();
  }
};

}  // namespace

std::vector<TableResult> run_sweep_problem(const Problem& problem, const Device& device, Store& store,
                                           const SweepOptions& options) {
  std::vector<TableResult> results;
  for (const char* table : {kUntuned, kTuned}) {
    if (table == kTuned && !options.tune) continue;
    TableResult result;
    result.table = table;
    result.title = table == kUntuned ? "the model's choice" : "tuned";
    result.problem = short_text(problem);
    result.over = "cublas";
    result.device = device.info().name;
    result.driver = device.info().driver;
    results.push_back(std::move(result));
  }
  Sweep sweep{problem, device, store, options, results};
  if (auto error = sweep.run()) {
    sweep.note(take_error(std::move(error)).message);
    for (TableResult& result : results) result.got = 0, result.failed = true;
  }
  for (TableResult& result : results) result.library = sweep.peers.library;
  return results;
}

}  // namespace trigen
