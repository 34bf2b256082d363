#include "lab/table_run.h"

#include <chrono>

#include "check/text.h"
#include "check/verify.h"
#include "lab/foreign.h"
#include "lab/peer_arms.h"
#include "peers/copy_peer.h"
#include "peers/pass.h"

namespace trigen {
namespace {

using Arm = NamedLaunch;

// One problem of a row: its tensors, trigen's launch and the peers' launches on them.
struct Member {
  Problem problem;
  std::shared_ptr<const Plan> plan;
  std::unique_ptr<Workbench> bench;
  std::unique_ptr<Reference> reference;
  std::unique_ptr<CublasPeer> cublas;
  std::unique_ptr<CopyPeer> copy;
  std::unique_ptr<EpiloguePass> pass;
  std::unique_ptr<Workbench> plain_bench;
  LaunchOn launch;
  std::vector<Arm> peers;
};

llvm::Expected<LaunchOn> launch_of(Workbench& bench, const std::shared_ptr<const Plan>& plan) {
  return launcher(bench, std::shared_ptr<const Executable>(plan, &plan->executable()));
}

llvm::Error check(Member& member) {
  member.reference =
      std::make_unique<Reference>(member.problem, member.bench->list(), member.bench->inputs());
  auto checked = verify(*member.plan, *member.bench, *member.reference);
  if (!checked) return checked.takeError();
  if (checked->ok) return llvm::Error::success();
  return make_error(ErrorKind::kInternal, describe(member.plan->resolution().candidate) +
                                              " gives a wrong result for " + to_string(member.problem) +
                                              ": " + checked->failure);
}

void add_note(TableResult& result, const std::string& text) {
  if (result.note.find(text) == std::string::npos) result.note += (result.note.empty() ? "" : "; ") + text;
}

// Peers that lack something are left out; `note` says why.
llvm::Error add_peers(Member& member, PeerKind over, const Device& device, Store& store,
                      const TableOptions& options, TableResult& result) {
  const auto leave_out = [&](llvm::Error error) {
    add_note(result, take_error(std::move(error)).message);
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
    auto copy = CopyPeer::create(*member.bench);
    if (!copy) return leave_out(copy.takeError());
    member.copy = std::move(*copy);
    member.peers.push_back({"copy", member.copy->launch()});
    return llvm::Error::success();
  }
  PeerArms peers = peer_arms(*member.bench, over == PeerKind::kPass, member.reference.get());
  for (const std::string& note : peers.notes) add_note(result, note);
  if (!peers.cublas && over == PeerKind::kPass && device.info().emulated) {
    // there is nothing to time, but the pass can run
    auto pass = EpiloguePass::create(*member.bench, member.problem.epilogue);
    if (!pass) return leave_out(pass.takeError());
    member.pass = std::move(*pass);
    member.peers.push_back({"pass alone", [pass = member.pass.get()](int set, cuda::CUstream stream) {
                              return pass->run(set, stream);
                            }});
  }
  if (!peers.cublas) return llvm::Error::success();
  member.cublas = std::move(peers.cublas);
  member.peers = std::move(peers.arms);
  result.library = peers.library;
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
  if (finals->drifted) add_note(result, "the device slowed down meanwhile");
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
  auto behind = time_behind(*members[0].bench, arms[0].launch, arms[best].launch, kBehindRounds);
  if (!behind) return behind.takeError();
  result.behind_seconds = behind->seconds;
  result.behind_peer_seconds = behind->peer_seconds;
  result.behind_got = result.at_most ? 1 / behind->ratio : behind->ratio;
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
    if (!member.bench->outgrows_l2())
      add_note(result, "the input sets together stay in the L2, in every arm alike");
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
    if (member.cublas) continue;  // its arms ran when they were made
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
    const ErrorText text = take_error(std::move(error));
    add_note(result, text.message);
    result.got = 0;
    // what this version does not know, or may not compile here, was not tried
    const bool lacking = text.kind == ErrorKind::kBadRequest || text.kind == ErrorKind::kNoCompiler ||
                         (text.kind == ErrorKind::kUnsupported && options.plan.no_jit);
    result.failed = !lacking;
  }
  return result;
}

}  // namespace trigen
