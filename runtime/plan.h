// A plan: a problem resolved for one device. Made once, outside stream capture; run many times.
#pragma once

#include <memory>
#include <string>

#include "cache/store.h"
#include "runtime/arguments.h"
#include "runtime/compile.h"
#include "runtime/executable.h"

namespace trigen {

// The answer when the cache has no record for the problem. The same values as trigen_miss_policy: do not
// renumber.
enum class MissPolicy : int { kFirstChoice = 0, kGeneric = 1, kError = 2 };

// How many of the model's choices are looked up where compiling is forbidden: one of them may have been stored
// by an earlier run.
constexpr size_t kChoicesWithoutJit = 16;

struct PlanOptions {
  MissPolicy miss = MissPolicy::kFirstChoice;
  std::string
      target;  // "" = the device's own; "sm_70": that target's kernels, from PTX where the device needs it
  bool no_jit = false;
  bool canary =
      true;  // run kernels that no tune checked here once before they are given out (runtime/canary.h)
  bool canary_emulated = false;  // on emulated devices too; kernels of other machines have it there anyway
  bool check_pointers = true;    // refuse pointers of the host and of other devices by name
  bool launch_blocking =
      false;  // CUDA_LAUNCH_BLOCKING=1: wait after each run and name the problem in the error
};
// TRIGEN_NO_JIT, TRIGEN_TARGET, TRIGEN_CANARY, CUDA_LAUNCH_BLOCKING.
PlanOptions plan_options_from_environment();

// A choice of kernel for a problem, before it is loaded.
struct Resolution {
  Candidate candidate;
  Binary binary;
  Provenance provenance = Provenance::kPredicted;
  Match match = Match::kNone;  // of the record; kNone when there was none
  std::string difference;      // for kNear
  std::string layer;           // the record's cache file; "" when there was none
  BinaryOrigin origin = BinaryOrigin::kCache;
  double expected_us = 0;  // measured or predicted; 0 when unknown
};
// Record in the cache -> its binary; else by policy. NVRTC is not opened when the cache has the kernel.
// `parts`: of a binary that a record names.
llvm::Expected<Resolution> resolve(const Problem& problem, const Device& device, Store& store,
                                   const PlanOptions& options, BinaryParts parts = BinaryParts::kAll);

class Plan {
 public:
  static llvm::Expected<std::shared_ptr<const Plan>> create(const Problem& problem, const Device& device,
                                                            Store& store, const PlanOptions& options = {});
  // A plan for one given candidate and its binary, whatever the cache says: what the tuner and `trigen
  // verify` use.
  static llvm::Expected<std::shared_ptr<const Plan>> of(const Candidate& candidate, Binary binary,
                                                        const Device& device, LoadFrom from = LoadFrom::kAuto,
                                                        const PlanOptions& options = {});
  // The loaded kernel of a plan for another candidate of its config: one that differs in the batch size.
  static llvm::Expected<std::shared_ptr<const Plan>> again(const Plan& plan, const Candidate& candidate,
                                                           const PlanOptions& options);
  const Problem& problem() const { return resolution_.candidate.problem; }
  // Its binary has its key and its resources only; cubin, PTX, source and log are dropped once it is loaded.
  const Resolution& resolution() const { return resolution_; }
  const Executable& executable() const { return *executable_; }
  int64_t workspace_bytes() const { return executable_->workspace_bytes(); }

  // Asynchronous on `stream` (a CUstream of the plan's context; null = the legacy default stream). Checks the
  // arguments, then launches. Thread safe, capturable.
  llvm::Error run(const trigen_args& args, cuda::CUstream stream) const;

 private:
  Plan() = default;
  static llvm::Expected<std::shared_ptr<const Plan>> load(Resolution resolution, const Device& device,
                                                          LoadFrom from, const PlanOptions& options);
  Resolution resolution_;
  std::shared_ptr<const Executable> executable_;
  PlanOptions options_;
  std::shared_ptr<SeenPointers> seen_;
};

}  // namespace trigen
