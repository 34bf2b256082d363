// Every family against the reference on the device, its own machine code and the PTX of older targets.
#include "check/verify.h"

#include "check/selection.h"
#include "gpu.h"
#include "runtime/compile.h"

namespace trigen {
namespace {

const char* const kProblems[] = {
    "forward,dtype=bf16,B=3,T=129,D=96",
    "forward,dtype=f16,B=2,H=3,T=70,D=40,K=3,epilogue=bias+gelu+pre+gate+residual",
    "forward,dtype=f16,B=2,T=257,D=33,wdtype=f32,epilogue=bias",
    "forward,dtype=f32,B=2,T=65,D=31,K=2,layout=bdt,epilogue=bias+silu",
    "forward,dtype=f32,B=2,T=130,D=64,math=tf32,fill=upper,diag=2",
    "grad_input,dtype=bf16,B=3,T=129,D=96,K=4",
    "grad_input,dtype=f16,B=2,H=2,T=70,D=40,layout=bdt,fill=upper,epilogue=residual",
    "grad_weight,dtype=bf16,B=3,T=129,D=96,wdtype=f32,epilogue=bias",
    "grad_weight,dtype=f16,B=2,H=2,T=70,D=40,K=3,diag=-1,epilogue=bias+accumulate",
    "grad_weight,dtype=f32,B=4,T=33,D=17,layout=bdt,epilogue=zero_outside",
    "gram,dtype=bf16,B=1,H=3,T=129,D=96,epilogue=residual+mirror",
    "gram,dtype=f16,B=2,T=136,D=72,layout=bdt,fill=upper,wdtype=f32,epilogue=mirror",
    "gram,dtype=f32,B=1,H=2,T=70,D=40,math=f16x3,epilogue=residual",
    "decode,dtype=bf16,B=3,T=129,D=96,rows=3,epilogue=bias+gelu",
    "decode,dtype=f16,B=2,H=2,T=64,D=40,K=3,layout=bdt",
};

class Verify : public Gpu {
 protected:
  void check_target(const Target& target, LoadFrom from) {
    for (const char* text : kProblems) {
      auto problem = parse_problem(text);
      ASSERT_TRUE(static_cast<bool>(problem)) << text;
      Selection selection;
      selection.all_families = true;
      selection.generic = true;
      auto candidates = select(*problem, target, device_, *store_, selection);
      if (!candidates) {  // tf32 on sm_70
        const ErrorText refused = take_error(candidates.takeError());
        ASSERT_EQ(refused.kind, ErrorKind::kUnsupported) << refused.message;
        continue;
      }
      std::vector<Binary> binaries(candidates->size());
      build_all(*candidates, *store_, {}, [&](size_t index, llvm::Expected<BuiltBinary> built) {
        if (built) {
          binaries[index] = std::move(built->binary);
        } else {
          ADD_FAILURE() << take_error(built.takeError()).message;
        }
        return true;
      });
      for (const int gap : {0, 1}) {
        WorkbenchOptions options;
        options.gap = gap;
        auto bench = Workbench::create(*device_, *problem, options);
        ASSERT_TRUE(static_cast<bool>(bench)) << take_error(bench.takeError()).message;
        const Reference reference(*problem, (*bench)->list(), (*bench)->inputs());
        for (size_t i = 0; i < candidates->size(); ++i) {
          const Candidate& candidate = (*candidates)[i];
          if (binaries[i].cubin.empty()) continue;  // failed above
          auto plan = Plan::of(candidate, binaries[i], *device_, from);
          ASSERT_TRUE(static_cast<bool>(plan)) << take_error(plan.takeError()).message;
          auto result = verify(**plan, **bench, reference);
          ASSERT_TRUE(static_cast<bool>(result)) << take_error(result.takeError()).message;
          EXPECT_TRUE(result->ok) << text << ' ' << describe(candidate) << " gap " << gap << ": "
                                  << result->failure;
        }
      }
    }
  }
};

TEST_F(Verify, EveryFamilyOnItsOwnTarget) { check_target(device_->target(), LoadFrom::kAuto); }

TEST_F(Verify, PtxOfOlderTargets) {
  int checked = 0;
  std::string missing;
  for (const char* name : {"sm_70", "sm_75", "sm_80"}) {
    auto target = find_target(name);
    ASSERT_TRUE(static_cast<bool>(target));
    auto compiler = Nvrtc::choose(**target);
    if (!compiler) {
      missing += take_error(compiler.takeError()).message + "\n";
      continue;
    }
    if (!device_->runs_ptx_of(**target)) continue;
    check_target(**target, LoadFrom::kPtx);
    ++checked;
  }
  if (checked == 0) GTEST_SKIP() << "[SKIP] " << missing;
}

// The gate itself: the kernel of the other fill in a plan for this one must be seen.
TEST_F(Verify, AWrongKernelIsSeen) {
  auto lower = parse_problem("forward,dtype=bf16,B=2,T=128,D=64");
  auto upper = parse_problem("forward,dtype=bf16,B=2,T=128,D=64,fill=upper");
  ASSERT_TRUE(lower && upper);
  auto family = find_family("simt");
  ASSERT_TRUE(static_cast<bool>(family));
  auto right = list_candidates(*lower, device_->target(), *family);
  auto wrong = list_candidates(*upper, device_->target(), *family);
  ASSERT_TRUE(right && wrong);
  auto built = build(wrong->front(), *store_);
  ASSERT_TRUE(static_cast<bool>(built));
  auto bench = Workbench::create(*device_, *lower);
  ASSERT_TRUE(static_cast<bool>(bench));
  const Reference reference(*lower, (*bench)->list(), (*bench)->inputs());
  auto plan = Plan::of(right->front(), built->binary, *device_);
  ASSERT_TRUE(static_cast<bool>(plan)) << take_error(plan.takeError()).message;
  auto result = verify(**plan, **bench, reference);
  ASSERT_TRUE(static_cast<bool>(result));
  EXPECT_FALSE(result->ok);
  EXPECT_NE(result->failure, "");
}

}  // namespace
}  // namespace trigen
