// trigen-lab replay: the search on recordings.
#include <set>

#include "check/text.h"
#include "cli/table.h"
#include "cli/tune_tables.h"
#include "lab/commands.h"
#include "lab/replay.h"
#include "tuner/statistics.h"

namespace trigen::cli {
namespace {

struct Replays {
  std::vector<std::string> paths;
  SearchOptions search;
  uint64_t seed = TuneOptions().seed;

  // The search's choice and its cost, over sixteen draws of the noise.
  llvm::Error run() const {
    Table table(
        {"=recording", ">rows", ">tried", "?>share", ">worst regret", ">median", "?>choices", "?stop"});
    auto recordings = read_recordings(paths);
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
    return llvm::Error::success();
  }
};

}  // namespace

void add_replay(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("replay", "replay the search on recordings, with its choice and loss");
  auto replays = std::make_shared<Replays>();
  sub->add_option("recordings", replays->paths, "files, or folders with them (tests/data)")->required();
  sub->add_option("--candidates", replays->search.max_tried,
                  "candidates to try at most, 0 for all of them (64)")
      ->check(whole_number(0, kMostCount));
  sub->add_option("--share", replays->search.share, "part of all candidates to try at most (0.1)")
      ->check(CLI::Range(0.0, 1.0) & decimal_number());
  sub->add_option("--seed", replays->seed, "of the noise")->check(whole_number(0, UINT64_MAX));
  commands.push_back({sub, [replays] { return report(replays->run()); }});
}

}  // namespace trigen::cli
