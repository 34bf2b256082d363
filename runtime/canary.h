// The canary: a kernel that nobody has seen give right results on such a device runs once, on a small batch of its
// own problem, before the first plan with it is given out here, and a sample of its outputs is compared with the
// double-precision reference. A kernel that fails is in quarantine: the cache answers as if it were not there.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/plan.h"

namespace trigen {

enum class CanaryResult { kRight, kWrong, kSkipped };

struct CanaryReport {
  CanaryResult result = CanaryResult::kSkipped;
  std::string text;  // what was wrong, or why none ran
  std::string lost = {};  // what the process lost by it: no other plan can be made in it; "" nothing
};

// What this process's canaries said so far.
struct CanaryCounts {
  int64_t right = 0, wrong = 0, skipped = 0;
};
CanaryCounts canary_counts();

// Was the binary read from a layer that somebody else wrote, or compiled here for a choice that no tune checked, and
// has no canary of it run well on such a device? An emulated one, whose own reports see more and whose canaries take
// seconds, runs those of others alone unless the options ask for all.
bool needs_canary(const Resolution& resolution, const Device& device, Store& store,
                  const PlanOptions& options);

// Has a canary of this binary failed on such a device?
bool is_quarantined(const Binary& binary, const Device& device, Store& store);

// Runs the plan's kernel, which is loaded, on tensors of its own: allocates, waits, frees; nothing of it stays.
// Skipped while a stream of the caller's captures, where the device lacks the memory, and where it fails for
// reasons of its own.
CanaryReport run_canary(const Plan& plan);

// Keeps what was found in the store; says once what is wrong and what comes next.
void keep_finding(const CanaryReport& report, const Resolution& resolution, const Device& device,
                  Store& store);

}  // namespace trigen
