// Times of the dense product, the figure beside every choice of a tune.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "llvm/ADT/ArrayRef.h"
#include "tuner/tune.h"

namespace trigen::cli {

struct DenseOptions {
  uint64_t seed = 0;
  const std::atomic<bool>* cancel = nullptr;
};

struct DenseWords {
  std::vector<std::string> notes;    // why a time is an estimate; in that report's notes, too
  std::vector<std::string> remarks;  // choices that are no faster than dense or on a slow path, in words
};

// Puts dense's time into the reports, the i-th of which is of problems[i]: cuBLAS's where it is here and the choice was
// measured, else an estimate. `stations`: the devices that the tune
// ran on, which time side by side. For after a list: their workers are idle then, and what was measured is stored.
DenseWords stand_beside_dense(std::vector<TuneReport>& reports, const std::vector<Problem>& problems,
                              const Target& target, llvm::ArrayRef<const Device*> stations, Store& store,
                              const DenseOptions& options);

}  // namespace trigen::cli
