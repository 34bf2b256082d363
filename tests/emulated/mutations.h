// Kernels of tests/emulated/mutations.txt, run with a fault planted in their PTX: does the emulated device
// notice, or the correctness gate?
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check/reference.h"
#include "check/workbench.h"
#include "mutants.h"
#include "runtime/canary.h"
#include "runtime/plan.h"

namespace trigen::mutations {

// One kernel of mutations.txt, which says what the fields are.
struct Subject {
  struct Run {
    int sms = 0;
    std::string problem;
  };
  int line = 0;
  std::string name, target, choice, problem;
  std::vector<Run> runs;
  int values = 0;  // one of so many mutants of other kinds than sync; 0: none
};
llvm::Expected<std::vector<Subject>> read_subjects(const std::string& path);

struct Verdict {
  // kNear: other bits, which the gate takes for right; kRefused: no PTX, which would say nothing.
  enum Kind { kKilled, kNear, kSame, kRefused } kind = kSame;
  std::string found;  // by what it was killed, or why it was refused
};

// A subject that is compiled and has run once: its own results are what the others are compared with.
class Patient {
 public:
  // Errors: those of the compiler and the device; no compiler for the subject's target.
  static llvm::Expected<std::unique_ptr<Patient>> create(const Subject& subject, const Device& device);
  const Listing& listing() const { return listing_; }
  const std::string& compiler() const { return compiler_; }  // "nvrtc 12.9.86"

  // Runs `ptx` as this kernel, all runs with one completion order ("late", "early", "random:1"). "" when it
  // gives the same bits as the kernel itself, else what was found.
  std::string run(const std::string& ptx, const std::string& order);
  // The mutant, until something is found. Of synchronisation: in all completion orders, where other bits than
  // the kernel's are a find. Of values: as check/verify.h has it, where wrong results are one.
  Verdict judge(const Mutant& mutant);
  // The report on the mutant by the canary of a plan for the first run.
  llvm::Expected<CanaryReport> canary(const Mutant& mutant);

 private:
  struct Run {
    std::unique_ptr<Target> target;  // with the run's multiprocessors
    Candidate candidate;
    std::unique_ptr<Workbench> bench;
    std::unique_ptr<Reference> reference;
    HostBuffers expected;
  };
  Patient() = default;
  llvm::Expected<std::shared_ptr<const Plan>> load(const Run& run, const std::string& ptx);
  llvm::Expected<HostBuffers> outputs(Run& run, const Plan& plan, const std::string& order);
  llvm::Expected<Verdict> judge_run(Run& run, const Plan& plan);

  const Device* device_ = nullptr;
  std::string compiler_;
  Listing listing_;
  Binary binary_;
  std::vector<Run> runs_;
  uint64_t steps_ = 0;  // limit for one cluster: what loops for ever ends there; 0: none
  int loads_ = 0;
};

}  // namespace trigen::mutations
