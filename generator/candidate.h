// A candidate: problem + target + family + config that passed the legality rules, and the source that makes
// it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/family.h"

namespace trigen {

class PredictionCorrections;
struct DeviceModel;  // generator/cost/cost.h

struct Candidate {
  Problem problem;
  const Target* target = nullptr;
  const Family* family = nullptr;
  Config config{};
  bool generic = false;  // sizes are run-time values
};

// Errors with the family's reason when the config is not legal.
llvm::Expected<Candidate> make_candidate(const Problem& problem, const Target& target, const Family& family,
                                         const Config& config);
// The legal candidates of every family that serves the target, best first by the cost model
// (generator/cost/cost.h); equal predictions keep the families' fixed order. `family` limits them to one
// family. `device`: the one that the order is for, null for the target's model device. Error when nothing is legal: every
// family's reason is in the text.
llvm::Expected<std::vector<Candidate>> rank_candidates(const Problem& problem, const Target& target,
                                                       const Family* family = nullptr);
// Candidates that a search may meet: kMostCandidates at most, the first few of every family, and where there
// are more than kFewCandidates none that the model finds hopeless.
inline constexpr size_t kFewCandidates = 60, kMostCandidates = 300;
// `corrections`: factors from times of the same shape elsewhere (generator/prediction_corrections.h).
llvm::Expected<std::vector<Candidate>> list_candidates(const Problem& problem, const Target& target,
                                                       const Family* family = nullptr,
                                                       const DeviceModel* device = nullptr,
                                                       const PredictionCorrections* corrections = nullptr);
// The shape-generic candidates, each of which runs any shape of the problem's kind, best predicted first.
llvm::Expected<std::vector<Candidate>> list_generic(const Problem& problem, const Target& target);
llvm::Expected<Candidate> generic_candidate(const Problem& problem, const Target& target);

// The candidate's launches on a device of so many SMs (0: of the target's model device). A persistent grid has a block
// for each SM that is there: an H100 PCIe (114), an H20 (78) or a MIG slice would run the blocks of an H200 in waves.
// The binary is the same: kernels take the grid from gridDim. Where other launches belong to that many SMs than the
// source has entries for (a reduction of sums that the model device does not share), the model device's. A target
// that is no listed one but a copy with a count of its own keeps that.
LaunchPlan launch_plan_on(const Candidate& candidate, int sms);

// "mma_sm80:tile=128x128x32,..." (or "...,generic"), used in records, logs and the CLI.
std::string describe(const Candidate& candidate);
// The candidate that describe() printed. Errors for malformed text, an unknown family, and a config that is
// not legal here.
llvm::Expected<Candidate> parse_candidate(const Problem& problem, const Target& target, llvm::StringRef text);

// The emitted source: a comment with the command that prints it again, one include, the constexpr Kernel
// value, and one extern "C" entry per launch of the family's plan:
//
//   extern "C" __global__ void __launch_bounds__(threads[, Config::blocks])
//   trigen_<op>(const __grid_constant__ trigen::Params p) { trigen::<family>::run<kKernel>(p); }
//
// and for a plan with a reduction trigen_reduce, which calls trigen::<family>::reduce<kKernel>(p).
struct Source {
  std::string text;   // what NVRTC compiles
  std::string entry;  // the first extern "C" name
  std::string hash;   // SHA-256 (hex) over text and every template file it includes, transitively
};
// Deterministic: the same candidate gives the same bytes. The batch size does not enter.
Source render(const Candidate& candidate);
// The command that prints this source again: "trigen emit --arch sm_80 --candidate mma_sm80:tile=...
// forward,dtype=...". Its problem has the smallest batch size and alignment that give this source.
std::string emit_command(const Candidate& candidate);

// The embedded template files, by the name that #include uses ("mma_sm80.cuh", "ptx/ldmatrix.cuh").
struct TemplateFile {
  llvm::StringLiteral name;
  llvm::StringLiteral text;
  llvm::StringLiteral digest;  // SHA-256 (hex) of it and all that it includes: hashed at build time (0.9 ms)
};
llvm::ArrayRef<TemplateFile> template_files();
// The names that a text includes with #include "...", in order.
std::vector<llvm::StringRef> included_files(llvm::StringRef text);

}  // namespace trigen
