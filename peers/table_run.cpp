#include "peers/table_run.h"

#include <algorithm>
#include <chrono>

#include "check/text.h"
#include "check/verify.h"
#include "peers/copy_peer.h"
#include "peers/cublas.h"
#include "peers/pass.h"

namespace trigen {
namespace {

struct Arm {
  std::string name;
  LaunchOn launch;
};

// One problem of a row: its tensors, trigen's launch and the peers' launches on them.
struct Member {
  Problem problem;
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Workbench> bench;
  std::unique_ptr<CublasPeer> cublas;
  std::unique_ptr<EpiloguePass> pass;
  std::unique_ptr<Workbench> plain_bench;
  LaunchOn launch;
  std::vector<Arm> peers;
};

llvm::Expected<LaunchOn> launch_of(Workbench& bench, const std::shared_ptr<const Plan>& plan) {
  return launcher(bench, std::shared_ptr<const Executable>(plan, &plan->executable()));
}

llvm::Error check(Member& member) {
  const Reference reference(member.problem, member.bench->list(), member.bench->inputs());
  auto checked = verify(*member.plan, *member.bench, reference);
  if (!checked) return checked.takeError();
  if (checked->ok) return llvm::Error::success();
  return make_error(ErrorKind::kInternal, describe(member.plan->resolution().candidate) +
                                              " gives a wrong result for " + to_string(member.problem) +
                                              ": " + checked->failure);
}

// Peers that lack something are left out; `note` says why.
llvm::Error add_peers(Member& member, PeerKind over, const Device& device, Store& store,
                      const TableOptions& options, TableResult& result) {
  const auto leave_out = [&](llvm::Error error) {
    const std::string text = take_error(std::move(error)).message;
    if (result.note.find(text) == std::string::npos) result.note += (result.note.empty() ? "" : "; ") + text;
    return llvm::Error::success();
  };
  if (over == PeerKind::kPlain) {
    Problem problem = member.problem;
    problem.epilogue = {};
    auto plan = Plan::create(problem, device, store, options.plan);
    if (!plan) return leave_out(plan.takeError());
    WorkbenchOptions bench_options;
    bench_options.seed = options.seed;
    bench_options.rotate = true;
    auto bench = Workbench::create(device, problem, bench_options);
    if (!bench) return bench.takeError();
    member.plain_bench = std::move(*bench);
    auto launch = launch_of(*member.plain_bench, *plan);
    if (!launch) return launch.takeError();
    member.peers.push_back(
        {"without epilogue", [plain = std::move(*launch), sets = member.plain_bench->sets()](
                                 int set, cuda::CUstream stream) { return plain(set % sets, stream); }});
    return llvm::Error::success();
  }
  if (over == PeerKind::kCopy) {
    auto copy = copy_launch(*member.bench);
    if (!copy) return leave_out(copy.takeError());
    member.peers.push_back({"copy", std::move(*copy)});
    return llvm::Error::success();
  }
  if (over == PeerKind::kPass) {
    auto pass = EpiloguePass::create(*member.bench);
    if (!pass) return leave_out(pass.takeError());
    member.pass = std::move(*pass);
  }
  auto cublas = CublasPeer::create(*member.bench);
  if (!cublas) {
    if (auto error = leave_out(cublas.takeError())) return error;
    if (!member.pass || !device.info().emulated) return llvm::Error::success();
    // there is nothing to time, but the pass can run
    member.peers.push_back({"pass alone", [pass = member.pass.get()](int set, cuda::CUstream stream) {
                              return pass->run(set, stream);
                            }});
    return llvm::Error::success();
  }
  member.cublas = std::move(*cublas);
  result.library = "cublas " + member.cublas->version();
  for (CublasPeer::Arm& arm : member.cublas->arms()) {
    if (!member.pass) {
      member.peers.push_back({arm.name, std::move(arm.launch)});
      continue;
    }
    member.peers.push_back({arm.name + " + pass",
                            [product = std::move(arm.launch), pass = member.pass.get()](
                                int set, cuda::CUstream stream) -> llvm::Error {
                              if (auto error = product(set, stream)) return error;
                              return pass->run(set, stream);
                            }});
  }
  return llvm::Error::success();
}

// The launches one after the other; each member rotates its own sets.
LaunchOn in_sequence(std::vector<std::pair<const Member*, LaunchOn>> parts) {
  return [parts = std::move(parts)](int set, cuda::CUstream stream) -> llvm::Error {
    for (const auto& [member, launch] : parts)
      if (auto error = launch(set % member->bench->sets(), stream)) return error;
    return llvm::Error::success();
  };
}

llvm::Error run_once(Member& member, const LaunchOn& launch) {
  const ContextScope scope(member.bench->device().api(), member.bench->context());
  if (auto error = launch(0, member.bench->stream())) return error;
  return member.bench->synchronize();
}

TableArm arm_of(const std::string& name, const std::vector<double>& samples) {
  const Summary summary = summarize(samples);
  return {name, summary.median, summary.lower, summary.upper};
}

// A row of several problems has one peer: of each member the fastest arm, one after the other.
llvm::Expected<std::vector<Arm>> peers_of(std::vector<Member>& members) {
  if (members.size() == 1) return std::move(members[0].peers);
  std::vector<std::pair<const Member*, LaunchOn>> parts;
  std::string name;
  for (Member& member : members) {
    const Arm* best = nullptr;
    double least = 0;
    for (const Arm& arm : member.peers) {
      auto timing = time_alone(*member.bench, arm.launch);
      if (!timing) return timing.takeError();
      const double median = summarize(timing->samples).median;
      if (best == nullptr || median < least) best = &arm, least = median;
    }
    if (best == nullptr) return std::vector<Arm>{};
    parts.emplace_back(&member, best->launch);
    name += (name.empty() ? "" : " + ") + best->name;
  }
  return std::vector<Arm>{{name, in_sequence(std::move(parts))}};
}

llvm::Error time_arms(std::vector<Member>& members, std::vector<Arm> arms, const TableOptions& options,
                      TableResult& result) {
  std::vector<std::unique_ptr<TimedGraph>> graphs;
  std::vector<TimedGraph*> pointers;
  for (const Arm& arm : arms) {
    auto timing = time_alone(*members[0].bench, arm.launch);
    if (!timing) return timing.takeError();
    graphs.push_back(std::move(timing->graph));
    pointers.push_back(graphs.back().get());
  }
  const auto start = std::chrono::steady_clock::now();
  int rounds = 1;
  auto finals = time_in_turn(pointers, options.rounds, [&] {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    return (options.cancel != nullptr && options.cancel->load()) ||
           (rounds++ >= kLeastRounds && spent.count() > options.seconds);
  });
  if (!finals) return finals.takeError();
  const auto& samples = finals->samples;
  result.rounds = static_cast<int>(samples[0].size());
  for (size_t i = 0; i < arms.size(); ++i) result.arms.push_back(arm_of(arms[i].name, samples[i]));
  result.seconds = result.arms[0].median_s;
  if (finals->drifted)
    result.note += std::string(result.note.empty() ? "" : "; ") + "the device slowed down meanwhile";
  if (arms.size() < 2) return llvm::Error::success();
  size_t best = 1;
  for (size_t i = 2; i < arms.size(); ++i)
    if (result.arms[i].median_s < result.arms[best].median_s) best = i;
  result.peer = arms[best].name;
  result.peer_seconds = result.arms[best].median_s;
  std::vector<double> ratios;
  for (size_t r = 0; r < samples[0].size(); ++r)
    ratios.push_back(result.at_most ? samples[0][r] / samples[best][r] : samples[best][r] / samples[0][r]);
  result.got = summarize(ratios).median;
  return llvm::Error::success();
}

llvm::Error run(const TableRow& row, const Device& device, Store& store, const TableOptions& options,
                TableResult& result) {
  std::vector<Member> members(row.problems.size());
  for (size_t i = 0; i < members.size(); ++i) {
    Member& member = members[i];
    auto problem = parse_problem(row.problems[i]);
    if (!problem) return problem.takeError();
    member.problem = *problem;
    auto plan = Plan::create(*problem, device, store, options.plan);
    if (!plan) return plan.takeError();
    member.plan = *plan;
    const Resolution& resolution = (*plan)->resolution();
    result.kernel += (i > 0 ? " + " : "") + describe(resolution.candidate);
    result.provenance +=
        (i > 0 ? " + " : "") +
        std::string(resolution.provenance == Provenance::kMeasured ? "measured" : "predicted");
    WorkbenchOptions bench_options;
    bench_options.seed = options.seed;
    bench_options.rotate = true;
    auto rows = rows_from(*problem, row.first_row);
    if (!rows) return rows.takeError();
    bench_options.rows = *rows;
    auto bench = Workbench::create(device, *problem, bench_options);
    if (!bench) return bench.takeError();
    member.bench = std::move(*bench);
    if (options.check) {
      if (auto error = check(member)) return error;
    }
    auto launch = launch_of(*member.bench, *plan);
    if (!launch) return launch.takeError();
    member.launch = std::move(*launch);
    if (auto error = add_peers(member, row.over, device, store, options, result)) return error;
  }
  result.ran = true;
  // Every arm once outside any capture: libraries choose, load and allocate at their first call.
  for (Member& member : members) {
    if (auto error = run_once(member, member.launch)) return error;
    for (const Arm& arm : member.peers)
      if (auto error = run_once(member, arm.launch)) return error;
  }
  if (device.info().emulated) return llvm::Error::success();  // it has no time to measure
  auto peers = peers_of(members);
  if (!peers) return peers.takeError();
  std::vector<std::pair<const Member*, LaunchOn>> own;
  own.reserve(members.size());
  for (const Member& member : members) own.emplace_back(&member, member.launch);
  std::vector<Arm> arms{{"trigen", in_sequence(std::move(own))}};
  arms.insert(arms.end(), std::make_move_iterator(peers->begin()), std::make_move_iterator(peers->end()));
  return time_arms(members, std::move(arms), options, result);
}

}  // namespace

TableResult run_table_row(const TableGroup& group, const TableRow& row, const Device& device, Store& store,
                          const TableOptions& options) {
  TableResult result = result_of(group, row);
  result.device = device.info().name;
  result.driver = device.info().driver;
  if (row.over == PeerKind::kTorch) {
    result.note = "its peers live in PyTorch: bench/torch_tables.py runs it";
    return result;
  }
  if (auto error = run(row, device, store, options, result)) {
    const std::string text = take_error(std::move(error)).message;
    result.note += (result.note.empty() ? "" : "; ") + text;
    result.got = 0;
  }
  return result;
}

}  // namespace trigen
