// Seeded mutations of real texts: the same run everywhere. TRIGEN_FUZZ_SECONDS=60 mutates for that long
// instead.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <vector>

#include "generator/problem_lists.h"
#include "tests/fuzz/mutator.h"
#include "tests/fuzz/parsers.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using Check = std::optional<std::string> (*)(llvm::StringRef);

const std::vector<std::string> kTokens = {",",
                                          "=",
                                          " ",
                                          "+",
                                          "x",
                                          "#",
                                          "\n",
                                          "-",
                                          "0",
                                          "1",
                                          "2147483647",
                                          "-9223372036854775808",
                                          "18446744073709551616",
                                          "T",
                                          "dtype",
                                          "f32",
                                          "f16",
                                          "bf16",
                                          "K=16",
                                          "pad=",
                                          "align=2",
                                          "walign=8",
                                          "upper",
                                          "layout=bdt",
                                          "w=band",
                                          "w=toeplitz",
                                          "width=3",
                                          "wdtype=f32",
                                          "math=tf32",
                                          "epilogue=",
                                          "bias",
                                          "gelu",
                                          "pre",
                                          "zero_outside",
                                          "diag=-1",
                                          "grad_weight",
                                          "forward",
                                          "tile=64x64x32",
                                          "splitk=2",
                                          "vec=1x1x1",
                                          "blocks",
                                          "\xff",
                                          "\xc3\xa9"};

using fuzz::Mutator;

std::vector<std::string> problem_texts() {
  std::vector<std::string> texts;
  for (const ProblemListFile& file : problem_list_files()) {
    auto list = parse_problem_list(file.text);
    if (!list) {
      ADD_FAILURE() << take_error(list.takeError()).message;
      continue;
    }
    for (const Problem& problem : *list) texts.push_back(to_string(problem));
  }
  return texts;
}

void run(Check check, Mutator mutator, int iterations) {
  const char* seconds = std::getenv("TRIGEN_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds ? std::atoi(seconds) : 0);
  for (int i = 0; seconds ? std::chrono::steady_clock::now() < end : i < iterations; ++i) {
    const std::string text = mutator.next();
    const std::optional<std::string> wrong = check(text);
    ASSERT_FALSE(wrong) << *wrong << "\ninput: " << testing::PrintToString(text);
  }
}

TEST(GeneratorParsers, ProblemText) {
  run(fuzz::check_problem, Mutator(1, problem_texts(), kTokens), 400000);
}

TEST(GeneratorParsers, ConfigText) {
  run(fuzz::check_config,
      Mutator(2,
              {"tile=128x128x32,warps=2x2,stages=4,splitk=1,raster=8,vec=8x8x8,blocks=1",
               "tile=64x256x16,warps=1x8,stages=2,vec=1x1x1,cluster=2", "stages=3"},
              kTokens),
      100000);
}

TEST(GeneratorParsers, CandidateText) {
  const Problem problem =
      llvm::cantFail(parse_problem("grad_weight,dtype=f16,B=16,T=512,D=256,epilogue=bias"));
  std::vector<std::string> texts{"simt:", "mma_sm80:,generic"};
  for (const Target& target : targets()) {
    const std::vector<Candidate> list = llvm::cantFail(list_candidates(problem, target));
    for (size_t i = 0; i < list.size(); i += 16) texts.push_back(describe(list[i]));
    texts.push_back(describe(llvm::cantFail(generic_candidate(problem, target))));
  }
  run(fuzz::check_candidate, Mutator(4, std::move(texts), kTokens), thorough() ? 60000 : 20000);
}

TEST(GeneratorParsers, ProblemList) {
  std::vector<std::string> texts{"", "# nothing\n"};
  const std::vector<std::string> problems = problem_texts();
  for (size_t i = 0; i + 2 < problems.size(); i += 3)
    texts.push_back("# group\n" + problems[i] + "\n\n" + problems[i + 1] + "  # same\r\n" + problems[i + 2]);
  run(fuzz::check_list, Mutator(3, std::move(texts), kTokens), 30000);
}

}  // namespace
}  // namespace trigen
