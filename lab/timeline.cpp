// trigen-lab timeline: a candidate's main loop on the clock (clock/).
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "check/text.h"
#include "cli/problem_options.h"
#include "cli/target_options.h"
#include "cli/terminal.h"
#include "lab/clock/clock.h"
#include "lab/clock/disassembler.h"
#include "lab/clock/timeline.h"
#include "lab/commands.h"

namespace trigen::cli {
namespace {

constexpr const char* kTimelineNote =
    "predicted from machine code and published timings of the units, measured on no device; docs/clock.md "
    "says "
    "how far that was checked";

// The whole call, where the loop's steps take the clock's cycles and where they are estimated.
struct Call {
  double clocked_s = 0, estimated_s = 0;
  // A dense product whose loop keeps its pipe as busy, by the same clock, or its bytes at the memory's rate.
  double dense_s = 0;
  double peak_share = 0;  // of the data sheet's rate, that the triangle's own work reaches
  std::string limit;      // of the whole call
};

Call call_of(const Candidate& candidate, const Binary& binary, const DeviceModel& device,
             const ClockedLoop& clock) {
  const Target& target = *candidate.target;
  const Work work = candidate.family->work(candidate.problem, target, candidate.config, device.sms);
  const std::optional<Resources> resources = resources_of(binary);
  const double sheet = work.unit == Unit::kFp32         ? target.fp32_flops
                       : work.unit == Unit::kTensorTf32 ? target.tf32_flops
                                                        : target.mma16_flops;
  const Totals count = count_work(candidate.problem);
  Call out;
  const Prediction clocked = predict(work, target, device, resources, clock.step_cycles);
  out.clocked_s = clocked.seconds;
  out.limit = clocked.limiter;
  out.estimated_s = predict(work, target, device, resources).seconds;
  double busy = 0;
  for (const Busy& pipe : clock.timing.busy)
    if (llvm::StringRef(pipe.name) == (clock.loop.tensor ? "tensor pipe" : "FMA pipe"))
      busy = pipe.cycles / clock.timing.cycles;
  out.dense_s = std::max(count.dense_flop / (busy * sheet), count.min_bytes / target.dram_bytes_per_s);
  out.peak_share = count.triangle_flop / sheet / out.clocked_s;
  return out;
}

// Prints what bounds the loop and its timeline; writes the picture where one is asked for.
llvm::Error print_timeline(const Candidate& candidate, const Binary& binary, const std::string& svg,
                           bool as_json) {
  auto functions = disassemble(binary.cubin);
  if (!functions) return functions.takeError();
  const DeviceModel device = model_of(*candidate.target);
  auto clocked = clock_candidate(candidate, *functions, device, resources_of(binary));
  if (!clocked) return clocked.takeError();
  const LoopTiming& timing = clocked->timing;
  const Call call = call_of(candidate, binary, device, *clocked);
  const std::string title = to_string(candidate.problem) + ", " + describe(candidate) + ", " +
                            candidate.target->name.str() + " (" + candidate.target->model_device.str() + ")";
  if (!svg.empty())
    if (auto error = write_text(svg, timeline_svg(clocked->loop, timing, title))) return error;
  if (as_json) {
    nlohmann::ordered_json out = {{"problem", to_string(candidate.problem)},
                                  {"candidate", describe(candidate)},
                                  {"target", candidate.target->name.str()},
                                  {"gpu", candidate.target->model_device.str()},
                                  {"provenance", "predicted"},
                                  {"instructions", clocked->loop.body.size()},
                                  {"warps", clocked->warps},
                                  {"blocks", clocked->blocks},
                                  {"cycles", timing.cycles},
                                  {"mean_cycles", clocked->step_cycles},
                                  {"bound", timing.bound().name},
                                  {"call_us", call.clocked_s * 1e6},
                                  {"call_bound", call.limit},
                                  {"estimated_call_us", call.estimated_s * 1e6},
                                  {"dense_us", call.dense_s * 1e6},
                                  {"peak_share", call.peak_share}};
    for (const Busy& busy : timing.busy) out["busy"][busy.name] = busy.cycles / timing.cycles;
    for (int i = 0; i < kIdles; ++i)
      out["idle"][name_of(static_cast<Idle>(i))] = timing.idle[i] / timing.cycles;
    std::printf("%s\n", out.dump(2).c_str());
    return llvm::Error::success();
  }
  std::printf("%s\n", timeline_text(clocked->loop, timing, title).c_str());
  std::printf("%d warps of %d block%s on an SM; bank conflicts not counted\n",
              clocked->warps * clocked->blocks, clocked->blocks, clocked->blocks == 1 ? "" : "s");
  std::printf(
      "the whole call (predicted): %s with this loop, %.0f %% of the data sheet's rate; %s by the cost "
      "model's estimates; a dense product whose loop is as busy takes %s\n\n",
      format_seconds(call.clocked_s).c_str(), 100 * call.peak_share, format_seconds(call.estimated_s).c_str(),
      format_seconds(call.dense_s).c_str());
  print_prose(kTimelineNote);
  return llvm::Error::success();
}

struct Timeline {
  ProblemOptions problems;
  TargetOptions where;
  std::string svg;
  bool json = false;

  llvm::Error run() const {
    auto problem = problems.problem();
    if (!problem) return problem.takeError();
    auto target = where.target();
    if (!target) return target.takeError();
    if (*target == nullptr)
      return make_error(ErrorKind::kBadRequest,
                        "the clock needs a target; name one with --arch, as in --arch sm_70");
    auto built = where.build_choice(*problem, **target);
    if (!built) return built.takeError();
    return print_timeline(built->candidate, built->binary, svg, json);
  }
};

}  // namespace

void add_timeline(CLI::App& app, Commands& commands) {
  CLI::App* sub =
      app.add_subcommand("timeline",
                         "predict a main loop's cycles from machine code: what bounds it, slots used "
                         "of each unit, a strip of each warp (needs nvdisasm)");
  auto timeline = std::make_shared<Timeline>();
  timeline->problems.add_to(*sub);
  timeline->where.add_arch(*sub);
  timeline->where.add_gpu(*sub);
  timeline->where.add_family(*sub);
  timeline->where.add_cache(*sub);
  sub->add_option("--svg", timeline->svg, "write the timeline as a picture")->type_name("FILE");
  sub->add_flag("--json", timeline->json, "figures as JSON on standard output");
  commands.push_back({sub, [timeline] { return report(timeline->run()); }});
}

}  // namespace trigen::cli
