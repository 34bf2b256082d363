#include <gmock/gmock.h>

#include <map>
#include <set>

#include "generator/candidate.h"
#include "generator/error.h"
#include "generator/random_problem.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"
#include "problem_testing.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;
using trigen::testing::problem_of;

std::vector<Candidate> candidates_of(const Problem& problem, const Target& target) {
  auto list = list_candidates(problem, target);
  auto generic = generic_candidate(problem, target);
  if (!list || !generic) {
    ADD_FAILURE() << to_string(problem);
    llvm::consumeError(list.takeError());
    llvm::consumeError(generic.takeError());
    return {};
  }
  list->push_back(*generic);
  return *list;
}

// Carries out an emit command: trigen emit --arch A --candidate C P.
Source emit(llvm::StringRef command) {
  llvm::SmallVector<llvm::StringRef, 8> words;
  command.split(words, ' ');
  if (words.size() != 7 || words[2] != "--arch" || words[4] != "--candidate") {
    ADD_FAILURE() << command.str();
    return {};
  }
  auto candidate = parse_candidate(problem_of(words[6]), **find_target(words[3]), words[5]);
  if (!candidate) {
    ADD_FAILURE() << command.str() << ": " << take_error(candidate.takeError()).message;
    return {};
  }
  return render(*candidate);
}

TEST(Templates, IncludeOnlyEachOther) {
  std::set<std::string> names;
  for (const TemplateFile& file : template_files()) names.insert(file.name.str());
  EXPECT_THAT(names, ::testing::IsSupersetOf({"config.h", "params.h"}));
  for (const Family* family : families()) EXPECT_EQ(names.count(family->template_file().str()), 1u);
  for (const TemplateFile& file : template_files()) {
    for (llvm::StringRef included : included_files(file.text))
      EXPECT_EQ(names.count(included.str()), 1u) << file.name.str() << " includes " << included.str();
    EXPECT_FALSE(file.text.contains("#include <")) << file.name.str() << " needs a header at run time";
  }
}

// The build makes the digests: every template that a file reaches enters its own.
TEST(Templates, DigestsAreOfAllThatIsIncluded) {
  std::map<std::string, llvm::StringRef> texts;
  for (const TemplateFile& file : template_files()) texts[file.name.str()] = file.text;
  for (const TemplateFile& file : template_files()) {
    std::set<std::string> closure;
    std::vector<std::string> open = {file.name.str()};
    while (!open.empty()) {
      const std::string name = open.back();
      open.pop_back();
      if (!closure.insert(name).second) continue;
      for (llvm::StringRef included : included_files(texts[name])) open.push_back(included.str());
    }
    llvm::SHA256 hash;
    for (const std::string& name : closure)
      hash.update(name + "\n" + std::to_string(texts[name].size()) + "\n" + texts[name].str());
    EXPECT_EQ(file.digest.str(), llvm::toHex(hash.final(), /*LowerCase=*/true)) << file.name.str();
  }
}

TEST(Templates, IncludesAreFoundInAnyDress) {
  EXPECT_THAT(
      included_files(
          "#include \"a.h\"\n  # include  \"b/c.cuh\" // why\n// #include \"d\"\n#include <e>\nint x;"),
      ::testing::ElementsAre("a.h", "b/c.cuh"));
}

TEST(Render, TheFirstLineIsTheCommandThatPrintsItAgain) {
  RandomProblem random(99);
  std::vector<Problem> problems = {problem_of("forward,dtype=f16,B=32,T=512,D=1024"),
                                   problem_of("grad_weight,dtype=f16,B=32,T=512,D=1024,wdtype=f32"),
                                   problem_of("grad_input,dtype=bf16,B=16,H=4,T=1024,D=256,K=4,layout=bdt")};
  while (problems.size() < 40) {
    problems.push_back(random.next());
    const Problem& last = problems.back();  // that every target has a kernel for
    if (last.math == Math::kTF32 || last.op == Op::kNewtonSchulz) problems.pop_back();
  }
  for (const char* arch : {"sm_70", "sm_75", "sm_80", "sm_90a"})
    for (const Problem& problem : problems) {
      const std::vector<Candidate> candidates = candidates_of(problem, **find_target(arch));
      for (size_t i = 0; i < candidates.size(); i += i + 9 < candidates.size() ? 7 : 1) {
        const Source source = render(candidates[i]);
        llvm::StringRef command = llvm::StringRef(source.text).split('\n').first;
        ASSERT_TRUE(command.consume_front("// "));
        ASSERT_EQ(command, emit_command(candidates[i]));
        const Source again = emit(command);
        ASSERT_EQ(again.text, source.text);
        ASSERT_EQ(again.hash, source.hash);
      }
    }
}

TEST(Render, TheBatchSizeDoesNotEnter) {
  const Target& target = **find_target("sm_80");
  const Problem one = problem_of("forward,dtype=f16,B=1,T=512,D=1024"),
                many = problem_of("forward,dtype=f16,B=77,T=512,D=1024");
  for (Candidate candidate : candidates_of(one, target)) {
    const Source source = render(candidate);
    candidate.problem = many;
    EXPECT_EQ(render(candidate).hash, source.hash);
  }
}

TEST(Render, AGenericKernelIsOneForAllSizes) {
  const Target& target = **find_target("sm_75");
  auto a = generic_candidate(problem_of("forward,dtype=f16,B=1,T=512,D=1024"), target);
  auto b = generic_candidate(problem_of("forward,dtype=f16,B=9,H=3,T=4096,D=256"), target);
  ASSERT_TRUE(static_cast<bool>(a) && static_cast<bool>(b));
  ASSERT_EQ(describe(*a), describe(*b));
  EXPECT_EQ(render(*a).text, render(*b).text);
  EXPECT_THAT(render(*a).text, HasSubstr(".D = 0, .H = 0, .K = 0, .pad = 0, .diag = 0"));
}

TEST(Render, EverythingElseEntersTheHash) {
  std::set<std::string> hashes;
  size_t count = 0;
  for (const char* text : {"forward,dtype=f16,B=2,T=512,D=1024",
                           "forward,dtype=bf16,B=2,T=512,D=1024",
                           "forward,dtype=f16,B=2,T=512,D=1032",
                           "forward,dtype=f16,B=2,T=520,D=1024",
                           "forward,dtype=f16,B=2,H=2,T=512,D=1024",
                           "forward,dtype=f16,B=2,T=512,D=1024,K=2",
                           "forward,dtype=f16,B=2,T=512,D=1024,K=2,pad=1",
                           "forward,dtype=f16,B=2,T=512,D=1024,layout=bdt",
                           "forward,dtype=f16,B=2,T=512,D=1024,fill=upper",
                           "forward,dtype=f16,B=2,T=512,D=1024,diag=-1",
                           "forward,dtype=f16,B=2,T=512,D=1024,wdtype=f32",
                           "forward,dtype=f16,B=2,T=512,D=1024,epilogue=bias",
                           "forward,dtype=f16,B=2,T=512,D=1024,epilogue=gelu",
                           "forward,dtype=f16,B=2,T=512,D=1024,epilogue=gelu+pre",
                           "forward,dtype=f16,B=2,T=512,D=1024,epilogue=gate",
                           "forward,dtype=f16,B=2,T=512,D=1024,epilogue=residual",
                           "grad_input,dtype=f16,B=2,T=512,D=1024",
                           "grad_weight,dtype=f16,B=2,T=512,D=1024",
                           "grad_weight,dtype=f16,B=2,T=512,D=1024,epilogue=bias",
                           "grad_weight,dtype=f16,B=2,T=512,D=1024,epilogue=accumulate",
                           "grad_weight,dtype=f16,B=2,T=512,D=1024,epilogue=zero_outside",
                           "gram,dtype=f16,B=2,T=512,D=1024",
                           "gram,dtype=f16,B=2,T=512,D=1024,epilogue=residual",
                           "gram,dtype=f16,B=2,T=512,D=1024,epilogue=mirror",
                           "forward,dtype=f32,B=2,T=512,D=1024"})
    for (const Candidate& candidate : candidates_of(problem_of(text), **find_target("sm_80"))) {
      if (candidate.generic) continue;
      hashes.insert(render(candidate).hash);
      ++count;
    }
  EXPECT_EQ(hashes.size(), count);
  for (const std::string& hash : hashes) EXPECT_EQ(hash.size(), 64u);
}

TEST(Render, HasOneEntryPerLaunch) {
  const Target& target = **find_target("sm_80");
  const Problem problem = problem_of("grad_weight,dtype=f16,B=32,T=512,D=1024");
  for (const Candidate& candidate : candidates_of(problem, target)) {
    const Source source = render(candidate);
    EXPECT_EQ(source.entry, "trigen_grad_weight");
    EXPECT_EQ(llvm::StringRef(source.text).count("extern \"C\" __global__"),
              candidate.family->launch_plan(problem, target, candidate.config).launches.size());
    EXPECT_EQ(llvm::StringRef(source.text).contains("\ntrigen_reduce("), candidate.config.split_k > 1);
  }
}

}  // namespace
}  // namespace trigen
