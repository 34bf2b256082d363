#include "generator/decode_cost.h"

#include <algorithm>
#include <cmath>

#include "generator/limits.h"
#include "templates/decode.h"

namespace trigen {
namespace {

constexpr double kLatencySeconds = 0.7e-6;     // of loads under load
constexpr double kBlockSeconds = 1.5e-6;       // weights, first loads, sums, output
constexpr double kDramEfficiency = 0.95;       // of long reads
constexpr double kInstructionsPerElement = 1;  // conversion, beside a multiply-add for each row and tap
constexpr double kLanes = 128;                 // of one SM

int blocks_per_sm(const Candidate& candidate, const std::optional<Resources>& resources) {
  const Config& c = candidate.config;
  const Target& target = *candidate.target;
  const bool btd = candidate.problem.layout == Layout::kBTD;
  const int64_t size = element_size(candidate.problem.dtype);
  int64_t registers = 40 + decode::sums_per_feature(c) * (btd ? c.vec_b : c.tile_k) +
                      c.tile_k * std::max<int64_t>(1, c.vec_b * size / 4) + (btd ? 0 : 2 * c.tile_k);
  if (resources && resources->registers > 0) registers = resources->registers;
  registers = (std::min<int64_t>(registers, 255) + 7) / 8 * 8;
  return resident_blocks(target, registers, decode::threads(c),
                         candidate.family->shared_bytes(candidate.problem, c));
}

}  // namespace

Prediction predict_decode(const Candidate& candidate, const DeviceModel& device,
                          const std::optional<Resources>& resources) {
  const Problem& p = candidate.problem;
  const Config& c = candidate.config;
  const LaunchPlan plan = candidate.family->launch_plan(p, *candidate.target, c);
  const Launch& launch = plan.launches.front();
  const double blocks = static_cast<double>(launch.grid[0]) * launch.grid[1] * launch.grid[2];
  const Work work = count_work(p);
  const Tokens tokens = tokens_of_rows(p, longest_rows(p));
  const double length = static_cast<double>(tokens.last - tokens.first);
  // x once for every group of rows, and for every group of taps that one pass has no registers for.
  const double groups = decode::row_groups(c, static_cast<int>(p.rows)),
               rounds = std::ceil(static_cast<double>(p.K) / c.stages);
  const double x = static_cast<double>(p.B * p.H * p.D) * length * static_cast<double>(element_size(p.dtype));
  const double again = x < static_cast<double>(device.l2_bytes) * 0.7 ? 0.25 : 1;  // from the L2
  const double parts = static_cast<double>(plan.workspace_bytes);
  // Overlapping tiles read their seams twice.
  const double inside =
      p.K == 1 || p.D <= c.tile_n ? 1 : static_cast<double>(c.tile_n) / (c.tile_n - c.stages);

  Prediction r;
  r.blocks_per_sm = blocks_per_sm(candidate, resources);
  const double slots = static_cast<double>(device.sms) * r.blocks_per_sm;
  const double waves = std::ceil(blocks / slots);
  r.dram_s = (work.min_bytes + x * (groups * rounds * inside - 1) * again + parts) /
             (device.dram_bytes_per_s * kDramEfficiency);
  // What the loads in flight allow: an SM has one set of them every latency.
  const double turns = length / decode::step_tokens(p.layout, c);
  const int passes = c.tile_n / (c.warps_n * c.tile_k);  // bdt: of a warp over the tile's features
  const double vectors = p.layout == Layout::kBTD ? turns : std::ceil(turns) * passes;
  const double steps = std::max(1.0, std::ceil(vectors / c.split_k)) * rounds;
  r.l2_s = waves * (kBlockSeconds + steps * kLatencySeconds);
  const double elements = x / static_cast<double>(element_size(p.dtype)) * groups * rounds;
  r.compute_s = elements * (kInstructionsPerElement + decode::sums_per_feature(c)) * 1.3 /
                (kLanes * device.sms * device.clock_hz);
  // The last wave leaves SMs idle.
  r.tail_s = r.dram_s * std::max(0.0, std::min(1.0, device.sms / blocks) - 0.5) * 0.5;
  r.fixed_s = kLaunchSeconds + (c.split_k > 1 ? kNextLaunchSeconds : 0);
  const double spills = resources && resources->spills() ? 1.3 : 1;
  r.seconds = r.fixed_s + r.tail_s + spills * soft_max({r.dram_s, r.compute_s, r.l2_s});
  name_limiter(r, "fma");
  return r;
}

}  // namespace trigen
