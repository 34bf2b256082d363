// The canary: a kernel without right results on such a device so far runs first, on small batches of its
// own problem, before a plan with it is given out here, and its outputs are compared with a reference: all of them
// where they are few, else a sample. A kernel that fails is in quarantine: the cache answers as if it were not there.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan.h"

namespace trigen {

enum class CanaryResult { kRight, kWrong, kSkipped };

struct CanaryReport {
  CanaryResult result = CanaryResult::kSkipped;
  std::string text;       // what was wrong, or why none ran
  std::string lost = {};  // what the process lost by it: no other plan can be made in it; "" nothing
};

// The results of this process's canaries so far.
struct CanaryCounts {
  int64_t right = 0, wrong = 0, skipped = 0;
};
CanaryCounts canary_counts();

// Was the binary read from a layer that somebody else wrote, or compiled here for a choice that no tune checked, and
// has no canary of it run well on such a device? On emulated devices only
// binaries of others are checked, unless options.canary_emulated: their own reports see more, and a canary takes seconds.
bool needs_canary(const Resolution& resolution, const Device& device, Store& store,
                  const PlanOptions& options);

// Has a canary of this binary failed on such a device?
bool is_quarantined(const Binary& binary, const Device& device, Store& store);

// Runs the plan's kernel, which is loaded, on tensors of its own: allocates, waits, frees; nothing of it stays.
// Skipped while a stream of the caller's captures, where the device lacks the memory, and where it fails for
// reasons of its own.
CanaryReport run_canary(const Plan& plan);

// The same for a plan that is being made: under a mark that it began, which stays where this process does not live
// through it, and with what was found kept in the store. One that began before and never ended does not run again.
// Error: the kernel took the device from this process, which must be started again.
llvm::Expected<CanaryResult> try_canary(const Plan& plan, const Device& device, Store& store);

// The error where a canary of this process did that.
llvm::Error refuse_lost(const Device& device);

}  // namespace trigen
