// How many candidates the core list's problems have: enough to choose from, and few enough to time a tenth.
#include <gtest/gtest.h>

#include <map>

#include "generator/candidate.h"
#include "generator/problem_lists.h"

namespace trigen {
namespace {

TEST(Space, OfEveryCoreProblemHoldsSixtyToThreeHundred) {
  llvm::SmallVector<llvm::StringRef, 64> lines;
  core_problem_list().split(lines, '\n');
  size_t problems = 0;
  // target -> op, with whose weights -> fewest and most
  std::map<std::string, std::map<std::string, std::pair<size_t, size_t>>> table;
  for (llvm::StringRef line : lines) {
    line = line.trim();
    if (line.empty() || line.startswith("#")) continue;
    ++problems;
    const Problem problem = llvm::cantFail(parse_problem(line));
    for (const Target& target : targets()) {
      std::map<std::string, size_t> families;
      const auto list = llvm::cantFail(list_candidates(problem, target));
      for (const Candidate& candidate : list) ++families[candidate.family->name().str()];
      std::string named;
      for (const auto& [family, count] : families) named += " " + family + " " + std::to_string(count);
      EXPECT_GE(list.size(), kFewCandidates) << target.name.str() << " " << line.str() << named;
      EXPECT_LE(list.size(), kMostCandidates) << target.name.str() << " " << line.str() << named;
      families["all"] = list.size();
      for (const auto& [family, count] : families) {
        auto& [fewest, most] = table[target.name.str()]
                                   .try_emplace(line.split(',').first.str() + " " + family, count, count)
                                   .first->second;
        fewest = std::min(fewest, count);
        most = std::max(most, count);
      }
    }
  }
  EXPECT_GT(problems, 10u);
  for (const auto& [target, rows] : table)
    for (const auto& [row, counts] : rows)
      std::printf("%-8s %-24s %3zu to %3zu\n", target.c_str(), row.c_str(), counts.first, counts.second);
}

}  // namespace
}  // namespace trigen
