#include "cli/tune_replays.h"

#include <set>

#include "check/text.h"
#include "cli/table.h"
#include "cli/tune_tables.h"
#include "tuner/replay.h"
#include "tuner/statistics.h"

namespace trigen::cli {

llvm::Error print_replays(const std::vector<std::string>& paths, const SearchOptions& search, uint64_t seed) {
  Table table({"=recording", ">rows", ">tried", "?>share", ">worst regret", ">median", "?>choices", "?stop"});
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

}  // namespace trigen::cli
