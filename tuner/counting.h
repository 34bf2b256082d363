// Counts what candidates' kernels do on the emulated device: a few thread blocks of the real kernel, with its
// own strides, on a problem of a small batch (Family::samples).
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "cache/store.h"
#include "check/emulated_device.h"
#include "check/workbench.h"
#include "generator/cost/counts.h"

namespace trigen {

class Counter {
 public:
  // The emulated device of a target. Errors: device, where there is none or where it is of another release.
  static llvm::Expected<std::unique_ptr<Counter>> open(const Target& target);

  // nullopt: the family names no samples, or the tensors are larger than kMostBytes. Errors: device, among
  // them every fault that the emulated device finds in the blocks that run. Exact, the same on every run;
  // candidates of one problem after the other reuse its tensors. Resets the device's counters. Not thread
  // safe: one counter at a time in a process.
  llvm::Expected<std::optional<Counts>> count(const Candidate& candidate, const Binary& binary);

  static constexpr int64_t kMostBytes = int64_t{192} << 20;  // of one set of tensors

 private:
  Counter(const Device& device, EmulatedDevice emulated) : device_(device), emulated_(emulated) {}
  llvm::Expected<BlockCounts> run(const Candidate& candidate, const Binary& binary, const Sample& sample);

  const Device& device_;
  EmulatedDevice emulated_;
  std::map<std::string, std::unique_ptr<Workbench>> benches_;  // by problem, with its small batch
};

}  // namespace trigen
