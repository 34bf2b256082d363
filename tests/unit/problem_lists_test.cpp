#include "generator/problem_lists.h"

#include <gmock/gmock.h>

#include <set>

#include "generator/error.h"
#include "generator/problem.h"

namespace trigen {
namespace {

std::vector<Problem> parsed(llvm::StringRef text) {
  auto list = parse_problem_list(text);
  if (list) return *list;
  ADD_FAILURE() << take_error(list.takeError()).message;
  return {};
}

TEST(ProblemLists, ParseAndAreWrittenCanonically) {
  for (const ProblemListFile& file : problem_list_files()) {
    SCOPED_TRACE(file.name.str());
    std::set<std::string> seen;
    for (const Problem& problem : parsed(file.text)) {
      const std::string text = to_string(problem);
      EXPECT_TRUE(seen.insert(text).second) << "twice: " << text;
      EXPECT_THAT(file.text.str(), testing::HasSubstr("\n" + text + "\n"));
    }
  }
}

TEST(ProblemLists, CoreIsAShortTuneOfATrainingStep) {
  const std::vector<Problem> core = parsed(core_problem_list());
  EXPECT_GE(core.size(), 12u);
  EXPECT_LE(core.size(), 18u);
  std::set<Op> ops;
  for (const Problem& problem : core) {
    ops.insert(problem.op);
    // Every target multiplies f16 on its tensor cores; bf16 starts with sm_80.
    EXPECT_EQ(problem.dtype, DType::kF16);
    EXPECT_EQ(problem.align, 16);
  }
  EXPECT_EQ(ops.size(), 3u);
}

TEST(ProblemLists, MixersCoverWhatMixersUse) {
  auto text = shipped_problem_list("mixers");
  ASSERT_TRUE(static_cast<bool>(text));
  std::set<int64_t> taps, tokens, features, heads;
  bool one_sided = false, bdt = false, upper = false, tf32 = false;
  for (const Problem& p : parsed(*text)) {
    taps.insert(p.K), tokens.insert(p.T), features.insert(p.D), heads.insert(p.H);
    one_sided |= p.K > 1 && p.pad == p.K - 1;
    bdt |= p.layout == Layout::kBDT;
    upper |= p.fill == Fill::kUpper && p.diag == 2;
    tf32 |= p.math == Math::kTF32;
  }
  EXPECT_THAT(taps, testing::IsSupersetOf({1, 4, 8, 16}));
  EXPECT_THAT(tokens, testing::IsSupersetOf({257, 511, 513, 1025, 4096}));
  EXPECT_THAT(features, testing::IsSupersetOf({256, 1025, 16000}));
  EXPECT_THAT(heads, testing::IsSupersetOf({1, 4}));
  EXPECT_TRUE(one_sided && bdt && upper && tf32);
}

TEST(ProblemLists, AreFoundByName) {
  ASSERT_TRUE(static_cast<bool>(shipped_problem_list("core")));
  EXPECT_EQ(*shipped_problem_list("core.txt"), core_problem_list());
  auto unknown = shipped_problem_list("mixer");
  ASSERT_FALSE(static_cast<bool>(unknown));
  EXPECT_EQ(take_error(unknown.takeError()).message,
            "unknown problem list 'mixer'; shipped are core or mixers; did you mean 'mixers'?");
}

}  // namespace
}  // namespace trigen
