#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <set>
#include <thread>

#include "runtime/compile.h"
#include "runtime_testing.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace trigen::testing;

std::unique_ptr<Store> open_store(const Folder& folder, bool read_only = false) {
  Store::Options options;
  options.layers = {folder / "cache.db"};
  options.read_only = read_only;
  return Store::open(options);
}

Candidate first_candidate(const char* arch = "sm_70", const char* text = "forward,dtype=f16,B=2,T=64,D=64") {
  return llvm::cantFail(
             list_candidates(llvm::cantFail(parse_problem(text)), *llvm::cantFail(find_target(arch))))
      .front();
}

TEST(Resources, LargestFiguresOverTheEntries) {
  // ptxas 12.9 -v, two entries.
  const Resources resources = parse_resources(
      "ptxas info    : 0 bytes gmem\n"
      "ptxas info    : Compiling entry function 'trigen_grad_weight' for 'sm_70'\n"
      "ptxas info    : Function properties for trigen_grad_weight\n"
      "ptxas         .     96 bytes stack frame, 168 bytes spill stores, 172 bytes spill loads\n"
      "ptxas info    : Used 128 registers, used 1 barriers, 2048 bytes smem, 568 bytes cmem[0]\n"
      "ptxas info    : Compile time = 5.536 ms\n"
      "ptxas info    : Compiling entry function 'trigen_reduce' for 'sm_70'\n"
      "ptxas info    : Function properties for trigen_reduce\n"
      "ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n"
      "ptxas info    : Used 16 registers, 568 bytes cmem[0]\n");
  EXPECT_EQ(resources.registers, 128);
  EXPECT_EQ(resources.stack_bytes, 96);
  EXPECT_EQ(resources.spill_bytes, 168 + 172);
  EXPECT_EQ(resources.static_shared, 2048);
}

TEST(Resources, AnEmptyLogIsNoReport) { EXPECT_EQ(parse_resources("").registers, 0); }

TEST(Compile, MakesCubinAndPtxOfTheTarget) {
  TRIGEN_NEEDS_NVRTC();
  const Candidate candidate = first_candidate();
  auto binary = compile(candidate, *real_nvrtc());
  ASSERT_TRUE(static_cast<bool>(binary)) << error_of(std::move(binary));
  EXPECT_THAT(binary->cubin, StartsWith("\x7f"
                                        "ELF"));
  EXPECT_EQ(static_cast<unsigned char>(binary->cubin[18]), 190) << "e_machine is EM_CUDA";
  EXPECT_EQ(static_cast<unsigned char>(binary->cubin[48]), 70) << "e_flags carry the architecture";
  EXPECT_THAT(binary->ptx,
              AllOf(HasSubstr(".target sm_70"),
                    HasSubstr(".visible .entry " + binary->entry.substr(0, binary->entry.find(' ')))));
  EXPECT_EQ(binary->ptx.find('\0'), std::string::npos);
  EXPECT_GT(binary->registers, 16);
  EXPECT_EQ(binary->key.arch, "sm_70");
  EXPECT_EQ(binary->key.compiler, real_nvrtc()->name());
  EXPECT_EQ(binary->key.digest(), binary_key(candidate, *real_nvrtc()).digest());
  EXPECT_EQ(binary->candidate, describe(candidate));
}

TEST(Compile, AFailureCarriesEverythingNeededToSeeItAgain) {
  TRIGEN_NEEDS_NVRTC();
  // A config that no legality rule let through: the template's own static_asserts refuse it.
  Candidate candidate = first_candidate();
  candidate.config.tile_m = 17;
  const std::string text = error_of(compile(candidate, *real_nvrtc()));
  EXPECT_THAT(text, AllOf(HasSubstr("compile failed: forward,dtype=f16,B=2,H=1,T=64,D=64"),
                          HasSubstr("tile=17x"), HasSubstr("for sm_70 with nvrtc "),
                          HasSubstr("NVRTC_ERROR_COMPILATION"), HasSubstr("error: static assertion failed"),
                          HasSubstr("\nprint the source with: trigen emit ")));
}

TEST(Compile, ACompilerWithoutTheTargetIsRefusedBeforehand) {
  const auto both = testing::with_second_compiler();
  const Nvrtc* newer = nullptr;
  for (const NvrtcFinding& finding : list_nvrtc())
    if (finding.problem.empty() && finding.file.major >= 13)
      newer = llvm::cantFail(Nvrtc::load(finding.file));
  if (newer == nullptr)
    GTEST_SKIP() << "[SKIP] needs NVRTC 13 (TRIGEN_TEST_NVRTC13 names a site-packages folder with it)";
  EXPECT_THAT(error_of(compile(first_candidate(), *newer)),
              AllOf(HasSubstr("nvrtc 13."), HasSubstr("does not make sm_70")));
}

TEST(Compile, CanBeCancelled) {
  TRIGEN_NEEDS_NVRTC();
  const std::atomic<bool> cancel{true};
  EXPECT_THAT(error_of(compile(first_candidate(), *real_nvrtc(), &cancel)), HasSubstr("was cancelled"));
}

TEST(Build, CompilesOnceAndThenTakesTheCache) {
  TRIGEN_NEEDS_NVRTC();
  Folder folder;
  auto store = open_store(folder);
  const Candidate candidate = first_candidate();
  auto first = build(candidate, *store);
  ASSERT_TRUE(static_cast<bool>(first)) << error_of(std::move(first));
  EXPECT_EQ(first->origin, BinaryOrigin::kCompiled);
  EXPECT_EQ(first->cache_problem, "");
  auto second = build(candidate, *store);
  ASSERT_TRUE(static_cast<bool>(second));
  EXPECT_EQ(second->origin, BinaryOrigin::kCache);
  EXPECT_EQ(second->binary.cubin, first->binary.cubin);
  EXPECT_EQ(second->binary.registers, first->binary.registers);
  // Another batch size is the same kernel.
  auto larger = build(first_candidate("sm_70", "forward,dtype=f16,B=3,T=64,D=64"), *store);
  ASSERT_TRUE(static_cast<bool>(larger));
  const std::string hash = render(first_candidate("sm_70", "forward,dtype=f16,B=3,T=64,D=64")).hash;
  EXPECT_EQ(larger->origin == BinaryOrigin::kCache, hash == render(candidate).hash);
}

// The emulated device's PTX is the one that a GPU's binary has beside its cubin, byte for byte.
TEST(Compile, PtxAloneIsTheSamePtx) {
  LONG_WITH_SANITIZERS();
  TRIGEN_NEEDS_NVRTC();
  for (const char* target : {"sm_70", "sm_80", "sm_90a"}) {
    const Candidate candidate = first_candidate(target, "forward,dtype=f16,B=2,T=64,D=64");
    auto whole = compile(candidate, *real_nvrtc());
    auto alone = compile(candidate, *real_nvrtc(), nullptr, Code::kPtx);
    ASSERT_TRUE(static_cast<bool>(whole)) << error_of(std::move(whole));
    ASSERT_TRUE(static_cast<bool>(alone)) << error_of(std::move(alone));
    EXPECT_EQ(alone->ptx, whole->ptx) << target;
    EXPECT_EQ(alone->cubin, "");
    EXPECT_EQ(alone->key.arch, "compute" + llvm::StringRef(target).drop_front(2).str());
  }
}

TEST(Build, PtxAloneServesNoGpu) {
  LONG_WITH_SANITIZERS();
  TRIGEN_NEEDS_NVRTC();
  Folder folder;
  auto store = open_store(folder);
  const Candidate candidate = first_candidate();
  BuildOptions ptx;
  ptx.code = Code::kPtx;
  auto alone = build(candidate, *store, ptx);
  ASSERT_TRUE(static_cast<bool>(alone)) << error_of(std::move(alone));
  EXPECT_EQ(build(candidate, *store, ptx)->origin, BinaryOrigin::kCache);
  auto whole = build(candidate, *store);
  ASSERT_TRUE(static_cast<bool>(whole)) << error_of(std::move(whole));
  EXPECT_EQ(whole->origin, BinaryOrigin::kCompiled);
  EXPECT_NE(whole->binary.cubin, "");
  // The whole binary, where it is at hand, does for the emulated device too.
  EXPECT_NE(build(candidate, *store, ptx)->binary.cubin, "");
}

TEST(Build, ACacheThatCannotBeWrittenIsNoError) {
  TRIGEN_NEEDS_NVRTC();
  Folder folder;
  auto store = open_store(folder, true);
  auto built = build(first_candidate(), *store);
  ASSERT_TRUE(static_cast<bool>(built)) << error_of(std::move(built));
  EXPECT_EQ(built->origin, BinaryOrigin::kCompiled);
  EXPECT_NE(built->cache_problem, "");
}

TEST(Build, WithoutJitAMissNamesTheProblemAndTheCommand) {
  Folder folder;
  auto store = open_store(folder);
  BuildOptions options;
  options.no_jit = true;
  const std::string text = error_of(build(first_candidate(), *store, options));
  EXPECT_THAT(text, AllOf(HasSubstr("the cache has no kernel for forward,dtype=f16,B=2,H=1,T=64,D=64"),
                          HasSubstr("TRIGEN_NO_JIT"), HasSubstr(folder / "cache.db"),
                          HasSubstr("trigen tune --arch sm_70 \"forward,dtype=f16,B=2")));
}

// In a process of its own: the kernel comes from the cache, and no compiler is opened for it.
TEST(BuildChild, DISABLED_TakesTheCacheWithoutACompiler) {
  const char* path = ::getenv("TRIGEN_CACHE");
  ASSERT_NE(path, nullptr);
  auto store = Store::open({});
  auto built = build(first_candidate(), *store);
  ASSERT_TRUE(static_cast<bool>(built)) << error_of(std::move(built));
  EXPECT_EQ(built->origin, BinaryOrigin::kCache);
  EXPECT_FALSE(Nvrtc::any_loaded());
  std::ifstream maps("/proc/self/maps");
  const std::string text((std::istreambuf_iterator<char>(maps)), {});
  EXPECT_THAT(text, Not(HasSubstr("nvrtc")));
}

TEST(Build, NoCompilerIsOpenedWhenTheCacheHasTheKernel) {
  LONG_WITH_SANITIZERS();
  TRIGEN_NEEDS_NVRTC();
  Folder folder;
  auto store = open_store(folder);
  ASSERT_EQ(error_of(build(first_candidate(), *store)), "");
  const Variable cache("TRIGEN_CACHE", folder / "cache.db");
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::execl("/proc/self/exe", "child", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
            "--gtest_filter=BuildChild.DISABLED_TakesTheCacheWithoutACompiler", nullptr);
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the child's output is above";
}

TEST(BuildAll, CallsBackOncePerCandidate) {
  LONG_WITH_SANITIZERS();
  TRIGEN_NEEDS_NVRTC();
  Folder folder;
  auto store = open_store(folder);
  std::vector<Candidate> candidates;
  for (const char* arch : {"sm_70", "sm_75", "sm_80", "sm_90a"}) candidates.push_back(first_candidate(arch));
  BuildAllOptions options;
  options.threads = 2;
  std::set<size_t> seen;
  std::string errors;
  build_all(candidates, *store, options, [&](size_t index, llvm::Expected<BuiltBinary> result) {
    EXPECT_TRUE(seen.insert(index).second);
    const std::string arch = result ? result->binary.key.arch : "none";
    EXPECT_EQ(arch, candidates[index].target->name);
    errors += error_of(std::move(result));
    return true;
  });
  EXPECT_EQ(errors, "");
  EXPECT_EQ(seen.size(), candidates.size());
}

TEST(BuildAll, StopsWhenTheCallbackSaysSo) {
  LONG_WITH_SANITIZERS();
  TRIGEN_NEEDS_NVRTC();
  Folder folder;
  auto store = open_store(folder);
  const std::vector<Candidate> candidates(4, first_candidate());
  BuildAllOptions options;
  options.threads = 2;
  int calls = 0;
  build_all(candidates, *store, options, [&](size_t, llvm::Expected<BuiltBinary> result) {
    llvm::consumeError(result.takeError());
    ++calls;
    return false;
  });
  EXPECT_EQ(calls, 1);
}

TEST(BuildAll, ACancelReachesEveryCandidate) {
  Folder folder;
  auto store = open_store(folder);
  const std::vector<Candidate> candidates(3, first_candidate());
  const std::atomic<bool> cancel{true};
  BuildAllOptions options;
  options.cancel = &cancel;
  int cancelled = 0;
  build_all(candidates, *store, options, [&](size_t, llvm::Expected<BuiltBinary> result) {
    cancelled += llvm::StringRef(error_of(std::move(result))).contains("was cancelled");
    return true;
  });
  EXPECT_EQ(cancelled, 3);
}

TEST(Environment, NoJitWords) {
  for (const char* word : {"1", "true", "YES", " on ", "2", "maybe"}) {
    const Variable variable("TRIGEN_NO_JIT", word);
    EXPECT_TRUE(no_jit_from_environment()) << word;
  }
  for (const char* word : {"0", "", "false", "no", "Off"}) {
    const Variable variable("TRIGEN_NO_JIT", word);
    EXPECT_FALSE(no_jit_from_environment()) << word;
  }
  EXPECT_GE(usable_cpus(), 1);
}

}  // namespace
}  // namespace trigen
