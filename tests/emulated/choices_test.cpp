// Kernels of big problems, run: the model's first choices at T from 512 and the kernels for all sizes, of every
// target, on problems just larger than their tiles. Small problems choose other tiles, and a target's
// tests run its own small choices alone.
#include <gtest/gtest.h>

#include <set>

#include "check/verify.h"
#include "generator/candidate.h"
#include "runtime/compile.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

// Without a dtype's own tensor cores some of them are simt's.
const char* const kBig[] = {"forward,dtype=bf16,B=32,T=512,D=1024",
                            "forward,dtype=f16,B=8,T=2048,D=1024",
                            "forward,dtype=f32,B=16,T=1024,D=1024",
                            "grad_input,dtype=bf16,B=8,T=2048,D=1024",
                            "grad_weight,dtype=f16,B=32,T=512,D=1024,epilogue=bias",
                            "grad_weight,dtype=bf16,B=8,T=2048,D=1024,epilogue=bias",
                            "grad_weight,dtype=f32,B=16,T=1024,D=1024,epilogue=bias",
                            "gram,dtype=bf16,B=1,T=2048,D=8192,epilogue=residual+mirror",
                            "forward,dtype=f32,B=16,T=1024,D=1024,math=tf32",
                            "grad_weight,dtype=f32,B=16,T=1024,D=1024,math=tf32,epilogue=bias",
                            "forward,dtype=bf16,B=16,T=1024,D=1024,K=4,pad=3"};
const char* const kOdd[] = {"forward,dtype=f16,B=2,H=2,T=37,D=11,epilogue=bias",
                            "grad_input,dtype=bf16,B=1,T=70,D=20,K=3,pad=1",
                            "grad_weight,dtype=f16,B=3,T=35,D=19,epilogue=bias",
                            "forward,dtype=f32,B=1,T=70,D=20,math=tf32",
                            "grad_weight,dtype=f32,B=2,T=35,D=19",
                            "gram,dtype=f16,B=1,H=2,T=37,D=19,epilogue=residual+mirror"};

// Two row tiles and two of columns, whole pieces for every access.
std::string just_larger(const Problem& big, const Config& c) {
  const auto up = [](int extent) { return std::to_string((extent + 24 + 7) / 8 * 8); };
  const bool weight = makes_weights(big.op);
  Problem p = big;
  p.B = weight ? 3 : 1;
  std::string text = to_string(p);
  const auto put = [&](const std::string& key, const std::string& value) {
    const size_t at = text.find("," + key + "=") + key.size() + 2;
    text.replace(at, text.find(',', at) - at, value);
  };
  put("T", up(weight ? std::max(c.tile_m, c.tile_n / static_cast<int>(p.K)) : c.tile_m));
  put("D", weight ? "72" : up(c.tile_n));
  return text;
}

class Choices : public ::testing::TestWithParam<const Target*> {
 protected:
  void expect_right(const Candidate& candidate) {
    BuildOptions options;
    options.code = code_for(*device_);
    auto built = build(candidate, *store_, options);
    if (!built) {
      const ErrorText error = take_error(built.takeError());
      if (error.kind == ErrorKind::kNoCompiler) GTEST_SKIP() << error.message;
      FAIL() << error.message;
    }
    auto plan = Plan::of(candidate, built->binary, *device_);
    ASSERT_TRUE(static_cast<bool>(plan)) << llvm::toString(plan.takeError());
    auto bench = llvm::cantFail(Workbench::create(*device_, candidate.problem));
    const Reference reference(candidate.problem, bench->list(), bench->inputs());
    auto result = verify(**plan, *bench, reference);
    ASSERT_TRUE(static_cast<bool>(result)) << llvm::toString(result.takeError());
    EXPECT_TRUE(result->ok) << describe(candidate) << " " << to_string(candidate.problem) << ": "
                            << result->failure;
    EXPECT_EQ(result->exact, result->outputs);
    std::printf("%s  %s\n", describe(candidate).c_str(), to_string(candidate.problem).c_str());
  }
  void open() {
    auto opened = Device::open(("emulated:" + GetParam()->name).str());
    if (!opened) FAIL() << llvm::toString(opened.takeError());
    device_ = *opened;
    store_ = Store::open({});
  }
  // sm_80's family and instructions; its choices are other tiles of it.
  static bool is_like_an_older_one() {
    static const std::set<std::string> alike = {"sm_86", "sm_89", "sm_90", "sm_100", "sm_100a"};
    return alike.count(GetParam()->name.str()) != 0;
  }
  const Device* device_ = nullptr;
  std::unique_ptr<Store> store_;
};

// Of two targets with the same choice the older one runs it.
TEST_P(Choices, OfBigProblemsAreRight) {
  if (is_like_an_older_one() && !thorough()) GTEST_SKIP() << "[SKIP] runs with TRIGEN_TEST_ALL=1";
  ASSERT_NO_FATAL_FAILURE(open());
  std::set<std::string> run;
  int index = static_cast<int>(GetParam() - targets().data());  // the next target has others
  for (const Target& target : targets()) {
    if (&target > GetParam()) break;
    for (const char* text : kBig) {
      const Problem big = llvm::cantFail(parse_problem(text));
      auto ranked = rank_candidates(big, target);
      if (!ranked) {  // tf32 where there is none
        llvm::consumeError(ranked.takeError());
        continue;
      }
      const Candidate& first = ranked->front();
      const std::string small = just_larger(big, first.config);
      if (!run.insert(describe(first) + " " + small).second || &target != GetParam()) continue;
      if (!takes(index++, 3)) continue;
      const Problem p = llvm::cantFail(parse_problem(small));
      auto candidate = parse_candidate(p, target, describe(first));
      ASSERT_TRUE(static_cast<bool>(candidate)) << small << ": " << llvm::toString(candidate.takeError());
      ASSERT_NO_FATAL_FAILURE(expect_right(*candidate));
      if (IsSkipped()) return;
    }
  }
}

TEST_P(Choices, OfAllSizesAreRight) {
  ASSERT_NO_FATAL_FAILURE(open());
  // In a quick run those that are like an older one share the problems out, two each.
  const bool shares = is_like_an_older_one() && !thorough();
  int index = static_cast<int>(GetParam() - targets().data()), ran = 0;
  for (const char* text : kOdd) {
    if (shares && !takes(index++, 3)) continue;
    auto candidate = generic_candidate(llvm::cantFail(parse_problem(text)), *GetParam());
    if (!candidate) {
      llvm::consumeError(candidate.takeError());
      continue;
    }
    ASSERT_NO_FATAL_FAILURE(expect_right(*candidate));
    if (IsSkipped()) return;
    ++ran;
  }
  EXPECT_GE(ran, shares ? 2 : 4);
}

std::vector<const Target*> all_targets() {
  std::vector<const Target*> out;
  for (const Target& target : targets()) out.push_back(&target);
  return out;
}

INSTANTIATE_TEST_SUITE_P(Targets, Choices, ::testing::ValuesIn(all_targets()),
                         [](const auto& info) { return info.param->name.str(); });

}  // namespace
}  // namespace trigen
