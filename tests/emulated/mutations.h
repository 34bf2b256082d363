// Synchronising instructions of a kernel's PTX, each taken away in turn: does the emulated device notice?
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "check/workbench.h"
#include "runtime/plan.h"

namespace trigen::mutations {

// One synchronising instruction, and what stands in its place when it is taken away.
struct Removal {
  std::string kind;         // "bar.sync", "mbarrier.try_wait" ...
  int line = 0;             // of the PTX
  int ordinal = 0;          // among those of its kind
  std::string instruction;  // as it was
  std::string instead;      // "", or what a wait that never waits would give
  int lines = 1;            // it stands on as many
};
std::vector<Removal> find_removals(const std::string& ptx);
std::string without(const std::string& ptx, const Removal& removal);

// One kernel of tests/emulated/mutations.txt, which says what the fields are.
struct Subject {
  struct Run {
    int sms = 0;
    int64_t batch = 1;
  };
  int line = 0;
  std::string target, choice, problem;
  std::vector<Run> runs;
  std::map<std::string, int> keeps;  // by kind
};
llvm::Expected<std::vector<Subject>> read_subjects(const std::string& path);

// A subject that is compiled and has run once: its own results are what the others are compared with.
class Patient {
 public:
  // Errors: those of the compiler and the device; no compiler for the subject's target.
  static llvm::Expected<std::unique_ptr<Patient>> create(const Subject& subject, const Device& device,
                                                         Store& store);
  const std::string& ptx() const { return ptx_; }

  // Runs `ptx` as this kernel, all runs with one completion order ("late", "early", "random:1"). "" when it
  // gives the same bits as the kernel itself, else what was found.
  std::string run(const std::string& ptx, const std::string& order);
  // In all completion orders, until something is found.
  std::string find(const std::string& ptx);

 private:
  struct Run {
    std::unique_ptr<Target> target;  // with the run's multiprocessors
    Candidate candidate;
    std::unique_ptr<Workbench> bench;
    std::vector<std::byte> expected;
  };
  Patient() = default;
  llvm::Expected<std::vector<std::byte>> outputs(Run& run, const std::string& ptx, const std::string& order);

  const Device* device_ = nullptr;
  std::string ptx_;
  Binary binary_;
  std::vector<Run> runs_;
  int loads_ = 0;
};

}  // namespace trigen::mutations
