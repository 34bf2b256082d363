// One problem's tune in progress: its candidates, its report, its samples in the store. Internal to tune.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "check/reference.h"
#include "check/workbench.h"
#include "tuner/measure.h"
#include "tuner/tune.h"

namespace trigen {

class BuildQueue;

// The error of a tune whose budget ended before its first candidate was measured: what that took so far, and
// what to allow. compile_s 0: it was not compiled yet.
llvm::Error budget_spent(llvm::StringRef problem, double budget_s, double inputs_s, double compile_s);

class Session {
 public:
  Session(const Problem& problem, const Target& target, const Device* device, Store& store,
          const TuneOptions& options, std::vector<Candidate> candidates);

  const TuneOptions& options() const { return options_; }
  const Target& target() const { return target_; }
  Store& store() { return store_; }
  TuneReport& report() { return report_; }
  std::vector<Candidate>& candidates() { return candidates_; }
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }
  double elapsed() const;
  void show(const char* phase, size_t done, size_t total, double best_s, const std::string& best);
  void note_cache(const std::string& problem);  // once

  // A complete measured record of this device and source is there, and options do not force: report it and
  // stop.
  bool keep_existing();
  llvm::Error measure();
  // Runs the predicted choice on the emulated device of the target, where there is one and the problem is small
  // enough, and stores it: nothing that failed its check.
  llvm::Error choose_predicted(size_t index, const Binary& binary);
  // The error when no candidate is left: every reason, shortened.
  llvm::Error nothing_works() const;

 private:
  struct Timed {
    std::shared_ptr<const Plan> plan;
    std::unique_ptr<TimedGraph> graph;
  };
  void resume();
  // Builds and tries the search's batches until it has enough. Spilling kernels are passed over until nothing
  // else works.
  llvm::Error search_batches(std::unique_ptr<BuildQueue> first, std::vector<size_t> batch);
  // Checks and times one built candidate; fills its row. Device errors that end everything are returned.
  void not_built(size_t index, llvm::Error error);
  llvm::Error try_candidate(size_t index, const Binary& binary);
  llvm::Error time_candidate(size_t index, std::shared_ptr<const Plan> plan);
  // Of a sample, whose candidates are timed first and of which the best alone are checked.
  llvm::Expected<bool> check_finalist(size_t index);
  llvm::Error run_finals();
  void store_sample(size_t index);
  void store_choice(size_t index, Provenance provenance);
  llvm::Error check_emulated(size_t index, const Binary& binary);
  Record record_of(size_t index) const;

  const Problem problem_;
  const Target& target_;
  const Device* device_;
  Store& store_;
  const TuneOptions& options_;
  std::vector<Candidate> candidates_;
  TuneReport report_;
  Search search_;
  std::chrono::steady_clock::time_point start_;
  std::unique_ptr<Workbench> bench_;
  std::unique_ptr<Reference> reference_;
  std::vector<Timed> timed_;
  std::vector<BinaryKey> keys_;  // of built candidates
  bool cache_noted_ = false;
  double inputs_s_ = 0, first_build_s_ = 0;  // when inputs and reference, and the first build, were there
};

}  // namespace trigen
