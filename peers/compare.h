// trigen's kernel and its peers on one problem, in one run, timed in turn.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/plan.h"
#include "tuner/statistics.h"

namespace trigen {

struct ComparedArm {
  std::string name;  // "trigen", "cublas batched"
  std::string note;
  Summary seconds;
  std::vector<double> samples;
  double error = -1;  // relative, against the reference; -1: not checked
  double ratio =
      1;  // its time over trigen's: the median of the ratios round by round (above 1: trigen is faster)
};

struct Comparison {
  std::string problem, target, device, driver;
  std::string candidate;  // of trigen
  Provenance provenance = Provenance::kPredicted;
  std::string peer_version;       // "cublas 12.9.1"
  std::vector<ComparedArm> arms;  // trigen first
  double ceiling_s = 0;
  int sets = 0;      // input sets that are rotated
  bool cold = true;  // together they are larger than the L2
  int launches = 0;  // of trigen's graph
  std::vector<std::string> notes;
};

struct CompareOptions {
  bool cublas = true;
  std::optional<int64_t> first_row;  // of decode; the longest rows when not named
  int rounds = 31;
  uint64_t seed = 20240912;
  PlanOptions plan;
  const std::atomic<bool>* cancel = nullptr;
};

// Every arm is checked against the reference before it is timed; a wrong trigen kernel is an error. Without
// cuBLAS on this machine the comparison has one arm and `notes` says so. Errors: device, no kernel.
// decode is timed beside a device copy of the bytes that it reads, too.
llvm::Expected<Comparison> compare(const Problem& problem, const Device& device, Store& store,
                                   const CompareOptions& options);
std::string comparison_json(const Comparison& comparison);

}  // namespace trigen
