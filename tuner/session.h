// One problem's tune in progress: its candidates, its report, its samples in the store. Internal to tune.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "tuner/anchor.h"
#include "tuner/bench.h"
#include "tuner/compile_pool.h"
#include "tuner/tune.h"

namespace trigen {

class BuildQueue;

// The candidates that a search of these builds first.
std::vector<size_t> first_choices(const std::vector<Candidate>& candidates, const DeviceModel& model,
                                  const SearchOptions& options);

class Session {
 public:
  Session(const Problem& problem, const Target& target, const Device* device, Store& store,
          const TuneOptions& options, std::vector<Candidate> candidates);
  ~Session();

  const TuneOptions& options() const { return options_; }
  const Target& target() const { return target_; }
  Store& store() { return store_; }
  TuneReport& report() { return report_; }
  std::vector<Candidate>& candidates() { return candidates_; }
  Bench& bench() { return *bench_; }
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }
  double elapsed() const;
  double spent() const;  // of the budget, which begins when inputs, reference and anchor are there
  void show(const char* phase, size_t done, size_t total, double best_s, const std::string& best);
  void note_cache(const std::string& problem);  // once

  void built(size_t index, const BinaryKey& key) { keys_[index] = key; }
  // Out, and stored so, with the reason: the next tune passes over it.
  void failed(size_t index, Outcome outcome, std::string note);

  // The right to tune this problem for this kind of device: one process has it, the others wait until it is
  // done and take its choice (keep_existing, keep_prediction). Null: tune without it, since options force or ask
  // for a part of the candidates, or the holder takes too long, which a note says. A dead holder's goes on.
  std::unique_ptr<Store::Lease> take_turn();
  // A complete measured record of this device and source is there, and options do not force: report it and
  // stop.
  bool keep_existing();
  // The same for a prediction that another process stored while this one waited for its turn.
  bool keep_prediction();
  llvm::Error measure();
  // Takes over what an earlier tune stored of candidates of the same source. For a prediction these are the
  // ones that failed their check.
  void resume();
  // Runs the predicted choice on the emulated device of the target, where there is one and the problem is small
  // enough, and stores it: nothing that failed its check. False: it broke the run; another one may do.
  llvm::Expected<bool> choose_predicted(size_t index, const Binary& binary);
  // The error when no candidate is left: every reason, shortened.
  llvm::Error nothing_works() const;

 private:
  // Builds and tries the search's batches until it has enough. Spilling kernels are passed over until nothing
  // else works.
  llvm::Error search_batches(std::unique_ptr<BuildQueue> first, std::vector<size_t> batch);
  CompilePool& pool();
  // The batch, and behind it what may be the next one.
  std::unique_ptr<BuildQueue> compile(const std::vector<size_t>& batch);
  void not_built(size_t index, llvm::Error error);
  // Times one built candidate, and checks it where it may come into the finals; fills its row. Errors that end everything are
  // returned.
  llvm::Error try_candidate(size_t index, const Binary& binary);
  bool fill(size_t index, const Trial& trial);  // false: failed
  // The finalists, loaded and checked.
  llvm::Expected<std::vector<size_t>> load_finalists();
  llvm::Error run_finals();
  void decide(const std::vector<size_t>& finalists, const Finals& finals);
  // Joules of a run of each finalist, in turn: rows' `joules`.
  llvm::Error weigh(const std::vector<size_t>& finalists, size_t& at);
  // Times the anchor, if there is one and its last time is a while ago or `now`. 0: none.
  double read_anchor(bool now);
  void read_state();  // of the GPU, into the report
  // Without finals: the first in the fixed order within the noise of the best quick time.
  void choose_by_quick_times();
  void store_sample(size_t index);
  void store_choice(size_t index, Provenance provenance);
  llvm::Expected<bool> check_emulated(size_t index, const Binary& binary);
  bool measured() const;                // times of a device, not predictions
  bool keep(const FoundRecord& found);  // false: its kernel is not one of today's candidates
  std::string turn_name() const;
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
  std::unique_ptr<Bench> own_bench_;
  std::unique_ptr<CompilePool> own_pool_;
  Bench* bench_;
  std::vector<BinaryKey> keys_;  // of built candidates
  Noise noise_;
  double anchored_s_ = -1e9;  // when the anchor was timed last
  bool cache_noted_ = false, anchor_broken_ = false;
  int64_t waited_since_ = 0;  // seconds since 1970; 0: the turn came at once
  double inputs_s_ = 0;       // when inputs and reference were there; 0: not yet
};

}  // namespace trigen
