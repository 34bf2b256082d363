// trigen tune: find and store the best kernel for each problem.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cli/command.h"
#include "runtime/build_ahead.h"
#include "tuner/tune.h"

namespace trigen::cli {

// Keeps what a tune measured, beside the store: trigen-lab's recordings.
class TuneRecorder {
 public:
  virtual ~TuneRecorder() = default;
  virtual void adjust(TuneOptions& options) const = 0;
  // Before the list's first problem. Compiles ahead while the result lives; null: nothing is.
  virtual std::unique_ptr<BuildAhead> begin(const std::vector<Problem>& list, const Target& target,
                                            const Device* device, Store& store, TuneOptions& options) = 0;
  // As soon as the list's problem `index` is tuned.
  virtual llvm::Error write(const TuneReport& report, size_t index) const = 0;
};

// Adds tune's options; the result runs it and returns the exit code.
std::function<int()> add_tune_to(CLI::App& app, std::shared_ptr<TuneRecorder> recorder = nullptr);

}  // namespace trigen::cli
