// Records name the model's version; plans choose anew where an older one predicted. So a change of what the
// model chooses must change its version, too.
#include <gmock/gmock.h>

#include "generator/candidate.h"
#include "generator/cost/cost.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

namespace trigen {
namespace {

constexpr const char* kProblems[] = {
    "forward,dtype=f16,B=32,T=512,D=1024",
    "forward,dtype=bf16,B=32,T=512,D=1024,K=4,epilogue=bias+gelu",
    "forward,dtype=f16,B=64,T=1024,D=630,epilogue=bias",
    "forward,dtype=bf16,B=8,T=512,D=64,K=4,wdtype=f32,epilogue=bias",
    "grad_input,dtype=f16,B=16,T=1024,D=512",
    "grad_weight,dtype=bf16,B=16,T=512,D=512,epilogue=bias",
    "grad_weight,dtype=bf16,B=4,T=1024,D=128,K=4,wdtype=f32",
    "forward,dtype=bf16,B=300,T=128,D=177,wdtype=f32,epilogue=gelu",
    "grad_input,dtype=bf16,B=64,H=8,T=128,D=60",
    "grad_weight,dtype=bf16,B=128,T=160,D=1024,epilogue=bias+zero_outside",
    "grad_weight,dtype=bf16,B=1024,T=64,D=71,epilogue=bias",
    "grad_weight,dtype=bf16,B=128,T=128,D=768,epilogue=bias+zero_outside",
    "grad_weight,dtype=f32,B=512,T=96,D=364,K=2,math=tf32",
    "forward,dtype=f32,B=8,T=256,D=256,math=tf32",
    "decode,dtype=bf16,B=64,T=512,D=1024,rows=2",
    "scan,dtype=bf16,B=4,T=4096,D=1024,wdtype=f32",
    "scan_grad_weight,dtype=bf16,B=4,T=4096,D=1024,wdtype=f32",
    "forward,dtype=bf16,B=16,T=1024,D=1024,w=toeplitz",
    "grad_weight,dtype=bf16,B=16,T=1024,D=1024,w=toeplitz",
    "forward,dtype=bf16,B=128,T=256,D=512,epilogue=bias",
    "grad_input,dtype=f16,B=512,H=16,T=256,D=16",
    "gram,dtype=bf16,B=1,T=1024,D=1024,epilogue=mirror",
    "gram,dtype=bf16,B=1,H=16,T=256,D=1024,epilogue=residual+mirror",
    "gram,dtype=f16,B=1,H=19,T=104,D=6984,epilogue=mirror",
};

// The first three of each problem and target, as text.
std::string choices() {
  std::string text;
  for (const char* problem_text : kProblems) {
    auto problem = parse_problem(problem_text);
    if (!problem) ADD_FAILURE() << llvm::toString(problem.takeError());
    for (const char* name : {"sm_70", "sm_80", "sm_90a", "sm_120a"}) {
      auto candidates = list_candidates(*problem, **find_target(name));
      if (!candidates) {
        llvm::consumeError(candidates.takeError());
        continue;
      }
      for (size_t i = 0; i < std::min<size_t>(3, candidates->size()); ++i)
        text += std::string(problem_text) + " " + name + " " + describe((*candidates)[i]) + "\n";
    }
  }
  return text;
}

TEST(ModelVersion, IsOfTheseChoices) {
  const std::string text = choices();
  const auto hash = llvm::SHA256::hash(llvm::arrayRefFromStringRef(text));
  const std::string digest = llvm::toHex(llvm::ArrayRef<uint8_t>(hash), /*LowerCase=*/true).substr(0, 16);
  EXPECT_EQ(kModelVersion, 29) << "put the digest of this version's choices below";
  EXPECT_EQ(digest, "3f969c34ef458bef")
      << "the model chooses otherwise than version " << kModelVersion
      << " did: add one to kModelVersion (generator/cost/cost.h) and put the new digest here. It chooses:\n"
      << text;
}

}  // namespace
}  // namespace trigen
