// Finds the best kernel for a problem on a target and stores it: measured where a device of the target is at
// hand, predicted by the model where there is none.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "runtime/compile.h"
#include "runtime/device.h"
#include "runtime/nvml.h"
#include "tuner/sample.h"
#include "tuner/search.h"

namespace trigen {

class Anchor;
class Bench;
class CompilePool;
class GpuWatch;

// The quantity that the best candidate has least of; energy is of the whole GPU, over one run of many.
enum class TuneObjective { kTime, kEnergy, kEdp };
const char* to_string(TuneObjective objective);  // "time", "energy", "edp"

// The values are printed by name.
enum class Outcome {
  kNotTried,  // the search stopped before it
  kNotBuilt,  // the compiler refused it; note has the text
  kSpilled,   // more than a few registers spill to memory: no choice without a measurement
  kWrong,     // its result is not the reference's: never chosen; note says where
  kFailed,    // the device refused or broke off the run, or gave no answer in time; note says why
  kRanked,    // compiled and ranked by the model with the compiler's report
  kTimed,
  kFinalist,
  kChosen,
};
const char* to_string(Outcome outcome);

struct CandidateReport {
  std::string candidate;  // family:config
  size_t rank = 0;        // in the model's order of all of them, from 1
  Outcome outcome = Outcome::kNotTried;
  ErrorKind kind = ErrorKind::kBuild;  // kNotBuilt: of the error whose text note has
  double ranked_s = 0;     // by the model before anything was compiled: what the order was made of
  double predicted_s = 0;  // with the compiler's report once it is compiled
  Resources resources;
  double error = 0, tolerance = 0;
  std::vector<double> quick;   // seconds, timed alone
  std::vector<double> finals;  // seconds, timed in turn with the other finalists
  std::vector<double> joules;  // of a run, in turn too; where the objective asks for it
  double at_s = 0;             // since the tune's start, when it was done
  bool resumed = false;        // taken from the samples of an earlier, unfinished tune
  std::string note;
};

struct TuneReport {
  std::string problem, target;
  std::string device;  // GPU model; "" when predicted
  std::string driver;
  int sms = 0;
  Provenance provenance = Provenance::kPredicted;
  bool kept = false;                // an earlier measured record, or what another process chose meanwhile
  bool complete = true;             // false: interrupted, or finals cut short
  bool stored = true;               // false: the cache could not be written; notes say why
  std::string chosen;               // family:config
  double seconds = 0;               // median, or prediction
  double lower_s = 0, upper_s = 0;  // quartiles, measured only
  double error = 0, tolerance = 0;  // of the chosen kernel, where it ran
  double ceiling_s = 0;             // tuner/ceiling.h
  double dense_s = 0;  // of the dense product, for the caller to fill: generator/cost/dense.h's estimate, or
  bool dense_measured = false;  // timed beside the choice
  std::string limiter;          // the model's: "tensor", "dram", ...
  std::string stop_reason;
  double elapsed_s = 0;
  std::vector<CandidateReport> candidates;  // in the model's order
  size_t space = 0;                         // legal ones; more than `candidates` in a sample
  // Conditions of the times. The GPU's states before and after each final; the anchor's times in order; how
  // close to the best a candidate had to be for the finals.
  std::vector<GpuState> states;
  std::vector<double> anchor_s;
  double reach = 0;
  TuneObjective objective = TuneObjective::kTime;
  double joules = 0;               // of a run of the chosen one; 0: not measured
  std::vector<std::string> notes;  // what the user must know: why predicted, drift, cache trouble
  double share_of_ceiling() const { return seconds > 0 ? ceiling_s / seconds : 0; }
};

// A tune's progress, for a display. Reported from tune()'s thread.
struct TuneProgress {
  std::string problem;
  const char* phase = "";      // "compiling", "measuring", "finals"
  size_t done = 0, total = 0;  // candidates
  double best_s = 0;           // 0: none yet
  std::string best;
  double elapsed_s = 0, eta_s = 0;
};

// Builds of a tune: binaries of other users are not used where a compiler is here, so that a bad bundle ends no tune.
inline BuildAllOptions own_builds() {
  BuildAllOptions build;
  build.own = true;
  return build;
}

struct TuneOptions {
  SearchOptions search;
  size_t predict_candidates = 8;  // compiled without a device
  int finals_rounds = 31;
  const Family* family = nullptr;
  std::optional<Config> config;  // with family: this one candidate
  // These of all legal candidates instead of a search, for recordings: all are timed, the finalists checked.
  std::optional<SampleOptions> sample;
  bool force = false;  // measure again despite a measured record; wait for no other process's tune of it
  uint64_t seed = 20240912;
  double emulated_work = 3.0e7;  // multiply-adds: the largest problem that is checked on an emulated device
  BuildAllOptions build = own_builds();
  TuneObjective objective = TuneObjective::kTime;
  Bench* bench = nullptr;                     // where candidates run; null: in this process
  Anchor* anchor = nullptr;                   // null: quick times count as SearchOptions::finals_reach says
  GpuWatch* watch = nullptr;                  // null: the GPU's state is not watched
  CompilePool* pool = nullptr;                // who compiles; null: threads of this tune, as `build` says
  const std::atomic<bool>* cancel = nullptr;  // set: stop soon, keep what there is
  std::function<void(const TuneProgress&)> progress;
};

// `device` may be null (no device at hand). Measures when the device runs the target's machine code, else
// predicts and says so. The record is stored before it returns; a cache that cannot be written is a note.
// Errors: no legal candidate, no compiler for the target, every candidate failed.
// With `sample` the record is the best of the sample alone.
llvm::Expected<TuneReport> tune(const Problem& problem, const Target& target, const Device* device,
                                Store& store, const TuneOptions& options);
// Compiles into the store what tune() without a device compiles first, for problems whose turn comes later.
void compile_predicted(const Problem& problem, const Target& target, Store& store,
                       const TuneOptions& options);

}  // namespace trigen
