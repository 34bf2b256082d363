#include "peers/compare.h"

#include <nlohmann/json.hpp>

#include "check/text.h"
#include "check/verify.h"
#include "peers/copy_peer.h"
#include "peers/cublas.h"
#include "tuner/ceiling.h"

namespace trigen {

llvm::Expected<Comparison> compare(const Problem& problem, const Device& device, Store& store,
                                   const CompareOptions& options) {
  Comparison out;
  out.problem = to_string(problem);
  out.device = device.info().name;
  out.driver = device.info().driver;
  auto plan = Plan::create(problem, device, store, options.plan);
  if (!plan) return plan.takeError();
  const Resolution& resolution = (*plan)->resolution();
  out.target = resolution.candidate.target->name.str();
  out.candidate = describe(resolution.candidate);
  out.provenance = resolution.provenance;
  auto rows = rows_from(problem, options.first_row);
  if (!rows) return rows.takeError();
  if (options.first_row) out.problem += " at row " + std::to_string(*options.first_row);
  out.ceiling_s = ceiling_of(problem, device.gpu(), device.model(), *rows).seconds();
  if (!resolution.difference.empty())
    out.notes.push_back("the record is of another device: " + resolution.difference);

  WorkbenchOptions bench_options;
  bench_options.seed = options.seed;
  bench_options.rotate = true;
  bench_options.rows = *rows;
  auto bench = Workbench::create(device, problem, bench_options);
  if (!bench) return bench.takeError();
  out.sets = (*bench)->sets();
  const Reference reference(problem, (*bench)->list(), (*bench)->inputs());
  auto checked = verify(**plan, **bench, reference);
  if (!checked) return checked.takeError();
  if (!checked->ok) {
    return make_error(ErrorKind::kInternal, out.candidate + " gives a wrong result for " + out.problem +
                                                ": " + checked->failure +
                                                "; run `trigen tune` for this problem");
  }

  auto launch = launcher(**bench, std::shared_ptr<const Executable>(*plan, &(*plan)->executable()));
  if (!launch) return launch.takeError();
  struct Runner {
    ComparedArm arm;
    LaunchOn launch;
  };
  std::vector<Runner> runners;
  runners.push_back({{"trigen", "", {}, {}, checked->error, 1}, std::move(*launch)});
  if ((*plan)->executable().prepared_bytes() > 0) {
    auto unchanged =
        unchanged_launcher(**bench, std::shared_ptr<const Executable>(*plan, &(*plan)->executable()));
    if (!unchanged) return unchanged.takeError();
    runners.push_back(
        {{kUnchangedArm, "W prepared by an earlier run", {}, {}, -1, 1}, std::move(*unchanged)});
  }
  std::unique_ptr<CublasPeer> peer;
  if (options.cublas) {
    auto made = CublasPeer::create(**bench);
    if (!made) {
      out.notes.push_back(take_error(made.takeError()).message);
    } else {
      peer = std::move(*made);
      out.peer_version = "cublas " + peer->version();
      for (CublasPeer::Arm& arm : peer->arms(true, out.notes)) {
        double error = -1;
        if (arm.exact) {
          auto measured = peer->error_of(arm, reference);
          if (!measured) return measured.takeError();
          error = *measured;
        }
        runners.push_back({{arm.name, arm.note, {}, {}, error, 1}, std::move(arm.launch)});
      }
    }
  }

  std::unique_ptr<CopyPeer> copied;
  if (!is_whole_product(problem.op)) {
    auto copy = CopyPeer::create(**bench);
    if (!copy) {
      out.notes.push_back(take_error(copy.takeError()).message);
    } else {
      copied = std::move(*copy);
      runners.push_back({{"copy",
                          op_row(problem.op).takes(kRowsField) ? "of the bytes that the rows read of x"
                                                               : "of as many bytes",
                          {},
                          {},
                          -1,
                          1},
                         copied->launch()});
    }
  }
  out.cold = (*bench)->outgrows_l2();
  if (!out.cold) out.notes.emplace_back("the input sets together stay in the L2, in every arm alike");

  std::vector<std::unique_ptr<TimedGraph>> graphs;
  std::vector<TimedGraph*> pointers;
  for (Runner& runner : runners) {
    auto timing = time_alone(**bench, runner.launch);
    if (!timing) return timing.takeError();
    graphs.push_back(std::move(timing->graph));
    pointers.push_back(graphs.back().get());
  }
  out.launches = graphs[0]->launches();
  auto finals = time_in_turn(pointers, options.rounds,
                             [&] { return options.cancel != nullptr && options.cancel->load(); });
  if (!finals) return finals.takeError();
  if (finals->drifted)
    out.notes.push_back("the device slowed down during the run (clocks, heat or another user)");
  for (size_t i = 0; i < runners.size(); ++i) {
    ComparedArm& arm = runners[i].arm;
    arm.samples = finals->samples[i];
    arm.seconds = summarize(arm.samples);
    std::vector<double> ratios;
    for (size_t r = 0; r < arm.samples.size(); ++r) ratios.push_back(arm.samples[r] / finals->samples[0][r]);
    arm.ratio = summarize(ratios).median;
    out.arms.push_back(std::move(arm));
  }
  return out;
}

std::string comparison_json(const Comparison& c) {
  using nlohmann::json;
  json arms = json::array();
  for (const ComparedArm& arm : c.arms) {
    json samples = json::array();
    for (const double s : arm.samples) samples.push_back(s * 1e6);
    json row = {{"name", arm.name},
                {"median_us", arm.seconds.median * 1e6},
                {"quartiles_us", {arm.seconds.lower * 1e6, arm.seconds.upper * 1e6}},
                {"ratio_to_trigen", arm.ratio},
                {"samples_us", samples}};
    if (!arm.note.empty()) row["note"] = arm.note;
    if (arm.error >= 0) row["error"] = arm.error;
    arms.push_back(std::move(row));
  }
  const json out = {{"problem", c.problem},
                    {"target", c.target},
                    {"device", c.device},
                    {"driver", c.driver},
                    {"candidate", c.candidate},
                    {"provenance", c.provenance == Provenance::kMeasured ? "measured" : "predicted"},
                    {"peer", c.peer_version},
                    {"ceiling_us", c.ceiling_s * 1e6},
                    {"input_sets", c.sets},
                    {"launches_per_sample", c.launches},
                    {"notes", c.notes},
                    {"arms", arms}};
  return out.dump(2, ' ', true, json::error_handler_t::replace);
}

}  // namespace trigen
