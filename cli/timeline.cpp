#include "cli/timeline.h"

#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "check/text.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "clock/clock.h"
#include "clock/disassembler.h"
#include "clock/timeline.h"
#include "runtime/compile.h"
#include "tuner/counting.h"

namespace trigen::cli {
namespace {

constexpr const char* kTimelineNote =
    "predicted from machine code and published timings of the units, measured on no device; docs/clock.md "
    "says "
    "how far that was checked";

// Counts of shared memory's passes; none where the emulated device is not here or the problem is too large.
std::optional<Counts> counts_of(const Candidate& candidate, const Binary& binary) {
  auto counter = Counter::open(*candidate.target);
  if (!counter) {
    remark("bank conflicts are not counted: " + take_error(counter.takeError()).message);
    return std::nullopt;
  }
  auto counts = (*counter)->count(candidate, binary);
  if (!counts) {
    remark("bank conflicts are not counted: " + take_error(counts.takeError()).message);
    return std::nullopt;
  }
  return *counts;
}

}  // namespace

llvm::Error print_timeline(const Candidate& candidate, const Binary& binary, const TimelineOptions& options,
                           bool as_json) {
  auto functions = disassemble(binary.cubin);
  if (!functions) return functions.takeError();
  const std::optional<Counts> counts = counts_of(candidate, binary);
  const DeviceModel device = model_of(*candidate.target);
  auto clocked = clock_candidate(candidate, *functions, device, resources_of(binary), counts);
  if (!clocked) return clocked.takeError();
  const LoopTiming& timing = clocked->timing;
  const std::string title = to_string(candidate.problem) + ", " + describe(candidate) + ", " +
                            candidate.target->name.str() + " (" + candidate.target->model_device.str() + ")";
  if (!options.svg.empty()) {
    std::ofstream file(options.svg, std::ios::trunc);
    file << timeline_svg(clocked->loop, timing, title);
    file.close();
    if (!file)
      return make_error(ErrorKind::kBadRequest, "cannot write " + options.svg + "; name a writable file");
  }
  if (as_json) {
    nlohmann::ordered_json out = {{"problem", to_string(candidate.problem)},
                                  {"candidate", describe(candidate)},
                                  {"target", candidate.target->name.str()},
                                  {"provenance", "predicted"},
                                  {"instructions", clocked->loop.body.size()},
                                  {"warps", clocked->warps},
                                  {"blocks", clocked->blocks},
                                  {"cycles", timing.cycles},
                                  {"bound", timing.bound().name}};
    for (const Busy& busy : timing.busy) out["busy"][busy.name] = busy.cycles / timing.cycles;
    for (int i = 0; i < kIdles; ++i)
      out["idle"][name_of(static_cast<Idle>(i))] = timing.idle[i] / timing.cycles;
    std::printf("%s\n", out.dump(2).c_str());
    return llvm::Error::success();
  }
  std::printf(
      "%s\n%d warps of %d block%s on an SM; %s\n\n", timeline_text(clocked->loop, timing, title).c_str(),
      clocked->warps * clocked->blocks, clocked->blocks, clocked->blocks == 1 ? "" : "s",
      counts ? format("%.2f passes over the banks for each that the bytes need", clocked->conflicts).c_str()
             : "bank conflicts not counted");
  print_prose(kTimelineNote);
  return llvm::Error::success();
}

}  // namespace trigen::cli
