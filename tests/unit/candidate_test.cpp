#include "generator/candidate.h"

#include <gmock/gmock.h>

#include <fstream>
#include <set>

#include "generator/cost/cost.h"
#include "generator/error.h"
#include "generator/problem_lists.h"
#include "generator/random_problem.h"
#include "problem_testing.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;
using trigen::testing::problem_of;
using trigen::testing::target_of;

const Family& family_of(llvm::StringRef name) { return **find_family(name); }

template <class T>
ErrorText error_of(llvm::Expected<T> value) {
  if (value) {
    ADD_FAILURE() << "no error";
    return {};
  }
  return take_error(value.takeError());
}

TEST(Family, UnknownNamesListTheKnownOnes) {
  const ErrorText error = error_of(find_family("simd"));
  EXPECT_EQ(error.kind, ErrorKind::kBadRequest);
  EXPECT_THAT(error.message, HasSubstr("unknown family 'simd'; allowed are "));
  EXPECT_THAT(error.message, HasSubstr("; did you mean 'simt'?"));
}

TEST(Candidate, IllegalConfigsSayWhy) {
  Config narrow{};
  narrow.tile_m = 48;
  const Problem problem = problem_of("forward,dtype=f16,B=2,T=64,D=64");
  const ErrorText error = error_of(make_candidate(problem, target_of("sm_70"), family_of("simt"), narrow));
  EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
  EXPECT_THAT(error.message,
              ::testing::StartsWith("simt:tile=48x0x0 cannot make forward,dtype=f16,B=2,H=1,T=64,D=64,K=1,"
                                    "pad=0 for sm_70: "));
  EXPECT_THAT(error.message, HasSubstr("48"));
}

// Records and bundles that were made before hold texts like these.
TEST(Candidate, TextsOfTheFirstVersionMeanTheSame) {
  std::ifstream rows(TRIGEN_SOURCE "/tests/golden/config_texts.txt");
  std::set<std::string> seen;
  for (std::string line; std::getline(rows, line);) {
    if (line.front() == '#') continue;
    const auto [target, rest] = llvm::StringRef(line).split(' ');
    const auto [problem, text] = rest.split(' ');
    auto candidate = parse_candidate(problem_of(problem), target_of(target), text);
    ASSERT_TRUE(static_cast<bool>(candidate)) << line << take_error(candidate.takeError()).message;
    EXPECT_EQ(describe(*candidate), text) << line;
    seen.insert(candidate->family->name().str());
  }
  EXPECT_EQ(seen.size(), families().size());
}

TEST(Candidate, ExtremeConfigsAreRefusedOrPlannedWithoutOverflow) {
  for (const char* text :
       {"forward,dtype=f16,B=2,T=64,D=64", "grad_weight,dtype=f32,B=2,T=64,D=64,math=tf32"})
    for (const Target& target : targets())
      for (const Family* family : families())
        for (const char* config :
             {"tile=1024x1024x1024,warps=1x1,stages=2,vec=1x1x1",
              "tile=1024x1024x32,warps=32x32,stages=2,vec=1x1x1",
              "tile=1024x64x32,warps=2x2,stages=2,vec=1x1x1", "tile=64x64x1024,warps=2x2,stages=3,vec=1x1x1",
              "tile=64x64x32,warps=2x2,stages=16,vec=1x1x1",
              "tile=64x64x32,warps=2x2,stages=2,vec=1x1x1,blocks=32",
              "tile=64x64x32,warps=2x2,stages=2,splitk=65535,raster=65536,vec=1x1x1"}) {
          auto candidate = parse_candidate(problem_of(text), target, family->name().str() + ":" + config);
          if (!candidate) {
            const ErrorKind kind = take_error(candidate.takeError()).kind;  // decode has no raster
            EXPECT_TRUE(kind == ErrorKind::kUnsupported || kind == ErrorKind::kBadRequest);
            continue;
          }
          // Legal: more splits than steps are empty, sections wider than the product are one.
          EXPECT_THAT(describe(*candidate), HasSubstr("splitk=65535"));
          EXPECT_GT(family->launch_plan(candidate->problem, target, candidate->config).workspace_bytes, 0);
          EXPECT_GT(predict(*candidate, model_of(target)).seconds, 0);
        }
}

TEST(Candidate, InvalidProblemsAreRefusedFirst) {
  Problem problem = problem_of("forward,dtype=f16,B=2,T=64,D=64");
  problem.T = 0;
  EXPECT_THAT(error_of(list_candidates(problem, target_of("sm_70"))).message, HasSubstr("T=0; allowed are"));
  EXPECT_THAT(error_of(generic_candidate(problem, target_of("sm_70"))).message,
              HasSubstr("T=0; allowed are"));
  EXPECT_THAT(error_of(make_candidate(problem, target_of("sm_70"), family_of("simt"), Config{})).message,
              HasSubstr("T=0; allowed are"));
}

TEST(Candidate, ListsAreLegalDistinctAndSorted) {
  LONG_WITH_SANITIZERS();
  for (const char* text :
       {"forward,dtype=f16,B=32,T=512,D=1024", "grad_input,dtype=bf16,B=3,T=257,D=100,K=4,wdtype=f32",
        "grad_weight,dtype=f16,B=16,H=4,T=1024,D=256,epilogue=bias", "forward,dtype=f32,B=1,T=5,D=3"})
    for (const Target& target : targets()) {
      const Problem problem = problem_of(text);
      auto list = list_candidates(problem, target);
      ASSERT_TRUE(static_cast<bool>(list)) << take_error(list.takeError()).message;
      std::set<std::string> seen;
      double previous = 0;
      for (const Candidate& candidate : *list) {
        SCOPED_TRACE(target.name.str() + " " + describe(candidate));
        EXPECT_TRUE(seen.insert(describe(candidate)).second) << "twice";
        EXPECT_EQ(candidate.family->reject(problem, target, candidate.config), std::nullopt);
        const double seconds = predict(candidate, model_of(target)).seconds;
        EXPECT_GE(seconds, previous);
        previous = seconds;
      }
    }
}

TEST(Candidate, OneFamilyCanBeAskedFor) {
  const Family& simt = family_of("simt");
  auto list = list_candidates(problem_of("forward,dtype=f16,B=32,T=512,D=1024"), target_of("sm_80"), &simt);
  ASSERT_TRUE(static_cast<bool>(list));
  for (const Candidate& candidate : *list) EXPECT_EQ(candidate.family, &simt);
}

// 300 configs of mma_sm80 come before wgmma_sm90's first.
TEST(Candidate, AFamilyOfManyConfigsLeavesPlacesForTheOthers) {
  auto list =
      list_candidates(problem_of("grad_weight,dtype=f16,B=512,H=8,T=160,D=24,epilogue=bias+zero_outside"),
                      target_of("sm_90a"));
  ASSERT_TRUE(static_cast<bool>(list));
  EXPECT_EQ(list->size(), kMostCandidates);
  const auto of = [&](const char* family) {
    return std::count_if(list->begin(), list->end(),
                         [&](const Candidate& candidate) { return candidate.family == &family_of(family); });
  };
  EXPECT_GT(of("mma_sm80"), 200);
  EXPECT_GE(of("wgmma_sm90"), 8);
}

TEST(Candidate, NothingLegalGivesEveryFamilysReason) {
  // More heads than a grid has.
  const ErrorText error =
      error_of(list_candidates(problem_of("forward,dtype=f16,B=1,H=70000,T=8,D=8"), target_of("sm_70")));
  EXPECT_EQ(error.kind, ErrorKind::kUnsupported);
  for (const Family* family : families())
    EXPECT_THAT(error.message, HasSubstr("\n  " + family->name().str() + ": "));
  EXPECT_THAT(error.message, HasSubstr("65535"));
  EXPECT_THAT(error.message, HasSubstr("use another arch, dtype or size"));
}

TEST(Candidate, EveryProblemHasAGenericOneOnEveryTarget) {
  LONG_WITH_SANITIZERS();
  RandomProblem random(5);
  std::vector<Problem> problems;
  for (const ProblemListFile& file : problem_list_files()) {
    auto list = parse_problem_list(file.text);
    ASSERT_TRUE(static_cast<bool>(list));
    problems.insert(problems.end(), list->begin(), list->end());
  }
  for (int i = 0; i < 500; ++i) problems.push_back(random.next());
  for (const Target& target : targets())
    for (const Problem& problem : problems) {
      if (problem.math == Math::kTF32 && !target.tf32_mma) {
        EXPECT_THAT(error_of(generic_candidate(problem, target)).message, HasSubstr("tf32"));
        continue;
      }
      if (problem.op == Op::kNewtonSchulz && target.compute_capability < 80) {
        EXPECT_THAT(error_of(generic_candidate(problem, target)).message,
                    HasSubstr("newton_schulz_sm80: does not run on " + target.name.str()));
        continue;
      }
      bool served = problem.math != Math::kTF32;
      for (const Family* family : families()) served |= family->name() != "simt" && family->serves(target);
      if (!served) continue;  // tf32 needs a tensor-core family
      auto generic = generic_candidate(problem, target);
      ASSERT_TRUE(static_cast<bool>(generic)) << take_error(generic.takeError()).message;
      EXPECT_TRUE(generic->generic);
      EXPECT_THAT(describe(*generic), ::testing::EndsWith(",generic"));
    }
}

TEST(Candidate, TextRoundTrips) {
  const Problem problem = problem_of("grad_weight,dtype=f16,B=16,T=512,D=256,epilogue=bias");
  for (const Target& target : targets()) {
    auto list = list_candidates(problem, target);
    auto generic = generic_candidate(problem, target);
    ASSERT_TRUE(static_cast<bool>(list) && static_cast<bool>(generic));
    list->push_back(*generic);
    for (const Candidate& candidate : *list) {
      auto again = parse_candidate(problem, target, describe(candidate));
      ASSERT_TRUE(static_cast<bool>(again)) << take_error(again.takeError()).message;
      EXPECT_EQ(describe(*again), describe(candidate));
      EXPECT_EQ(again->generic, candidate.generic);
      EXPECT_TRUE(again->config == candidate.config);
    }
  }
  EXPECT_EQ(error_of(parse_candidate(problem, target_of("sm_70"), "tile=1x1x1")).message,
            "candidate 'tile=1x1x1' has no ':'; write family:config, as in "
            "simt:tile=64x64x8,warps=2x2,stages=2,splitk=1,vec=1x1x1");
  EXPECT_THAT(error_of(parse_candidate(problem, target_of("sm_70"), "simt:tile=1")).message,
              HasSubstr("allowed are 3 numbers"));
}

}  // namespace
}  // namespace trigen
