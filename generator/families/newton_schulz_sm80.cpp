#include "templates/newton_schulz_sm80.h"

#include <algorithm>
#include <cmath>

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_stream_k.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = newton_schulz_sm80;

class NewtonSchulz final : public Family {
 public:
  llvm::StringRef name() const override { return "newton_schulz_sm80"; }
  llvm::StringRef template_file() const override { return "newton_schulz_sm80.cuh"; }
  bool serves(const Target& target) const override { return target.compute_capability >= 80; }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return geometry::shared_bytes(p.layout, c, static_cast<int>(p.D));
  }

  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const int vec = activation_vector(p);
    const std::string widths = activation_widths(p);
    const int unit = 16 * std::max({1, c.warps_m, c.warps_n});
    ConfigKey::Values sides;
    for (int side = unit; side <= kUsualStepRows; side += unit)
      if (side >= p.T) sides.push_back(side);
    return {powers_key(&Config::warps_m, 8),
            powers_key(&Config::warps_n, 8),
            {&Config::tile_m, sides, "16 rows and columns for each warp, T in all"},
            {&Config::tile_n, panels_of(c), "16 columns for each warp, and 32 to 256"},
            {&Config::tile_k, {16}, "an instruction's depth"},
            {&Config::stages, {1, 2}, "X stays in shared memory, or passes through two panels"},
            {&Config::split_k, {1}},
            {&Config::vec_a, {1}, "coefficients are read singly"},
            powers_key(&Config::vec_b, vec, widths),
            powers_key(&Config::vec_c, p.layout == Layout::kBTD ? std::min(vec, 2) : 1,
                       "a thread has two columns of y"),
            {&Config::cluster, {0, 2, 4, 8}},
            range_key(&Config::blocks, 0, 8)};
  }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (p.op != Op::kNewtonSchulz)
      return text(name() + " makes newton_schulz only, the op is " + to_string(p.op));
    if (p.T > kUsualStepRows)
      return text("T=" + llvm::Twine(p.T) + "; " + name() + " takes at most " + llvm::Twine(kUsualStepRows) +
                  " rows, newton_schulz_sm90 256 on sm_90a; give larger ones to gram, product by product");
    if (auto why = reject_keys(name(), keys(p, c), c)) return why;
    if (auto why = reject_warps(c, geometry::threads(c))) return why;
    if (sums(c) > 160)
      return text("a thread has " + llvm::Twine(sums(c)) +
                  " sums, allowed are 160; try more warps or a smaller tile_n");
    if (const int64_t bytes = shared_bytes(p, c); bytes > target.max_shared_per_block)
      return text("R, Z, Q and the panels need " + llvm::Twine(bytes) + " B of shared memory, " +
                  target.name + " has " + llvm::Twine(target.max_shared_per_block) +
                  " B; try stages=2 or a smaller tile_n");
    if (auto why = reject_cluster(target, c)) return why;
    if (const int panels = geometry::panels(c, static_cast<int>(p.D)); geometry::blocks(c) > panels)
      return text("cluster=" + llvm::Twine(c.cluster) + " leaves a block without one of " +
                  llvm::Twine(panels) + " panels; try fewer blocks or a smaller tile_n");
    if (p.T * p.D > kMostElements)
      return text("a matrix has more than 2^30 elements; give it to gram, product by product");
    if (p.B * p.H * geometry::blocks(c) > kMostBlocks)
      return std::string("more than 2^31 thread blocks; use a smaller batch");
    return reject_blocks(target, c, geometry::threads(c));
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    if (p.op != Op::kNewtonSchulz) return out;
    constexpr int kWarps[][2] = {{4, 2}, {2, 2}, {2, 4}, {4, 4}, {2, 1}, {1, 2}, {1, 1}};
    for (const auto [down, across] : kWarps)
      for (const int panel : {64, 128, 256, 32})
        for (const int stages : {1, 2})
          for (const int cluster : {0, 2, 4, 8}) {
            if (panel > 32 && panel >= 2 * p.D) continue;
            if (cluster > 0 && p.B * p.H * cluster > 2 * target.sms) continue;
            Config c = config(p, down, across, panel, stages, activation_vector(p));
            c.cluster = cluster;
            // More spill: 1,100,300 of bf16 by 2 x 2 warps, 160 sums, took 129 us, by 4 x 2 in f32 64 (H200, 2026-11-28).
            if (sums(c) <= 128 && !reject(p, target, c)) out.push_back(c);
          }
    return out;
  }

  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    if (p.op != Op::kNewtonSchulz) return std::nullopt;
    Config c = config(p, 4, 2, 64, 2, 1);
    c.tile_m = static_cast<int>(kUsualStepRows);
    if (reject(p, target, c)) return std::nullopt;
    return c;
  }

  LaunchPlan launch_plan(const Problem& p, const Target& target, const Config& c) const override {
    LaunchPlan plan;
    plan.launches.push_back({.entry = entry_name(p.op).str(),
                             .grid = {static_cast<uint32_t>(p.B * p.H * geometry::blocks(c)), 1, 1},
                             .block = {static_cast<uint32_t>(geometry::threads(c)), 1, 1},
                             .cluster = static_cast<uint32_t>(geometry::blocks(c)),
                             .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c)),
                             .early = target.compute_capability >= 90});
    plan.workspace_bytes = geometry::workspace_bytes(c, kernel_sizes(p));
    return plan;
  }

  // Two kinds of steps, products of panels and of R, Z and Q. What their warps read in shared memory is as large as what
  // they multiply; and each waits for the one before, as for panels that come.
  Work work(const Problem& p, const Target& target, const Config& c, int sms) const override {
    const double side = c.tile_m, panel = c.tile_n;
    const auto read = [&](double columns, double depth) {
      return 2 * depth * (c.warps_n * side + c.warps_m * columns);
    };
    Work work{.rates = "iterations",
              .steps = {{.products = side * side * panel,
                         .shared_bytes = (read(side, panel) + read(panel, side)) / 2},
                        {.products = side * side * side, .shared_bytes = read(side, side)}},
              .mma_sync = true};
    work.threads = geometry::threads(c);
    const int64_t vectors = c.tile_m * c.tile_n * element_size(p.dtype) / 4 / work.threads;
    work.registers = std::min<int64_t>(
        255, 40 + sums(c) + 4 * (c.tile_n / c.warps_n / 16) + (c.stages == 1 ? 0 : vectors));
    work.shared_bytes = shared_bytes(p, c);
    work.blocks = c.blocks;
    work.cluster = geometry::blocks(c);
    const int round = geometry::round_steps(static_cast<int>(p.T), static_cast<int>(p.D));
    const int64_t rounds = (p.K + round - 1) / round,
                  panels = geometry::most_panels(c, static_cast<int>(p.D));
    const auto of_panels = static_cast<double>(2 * rounds * panels),
               of_sides = static_cast<double>(2 * (p.K - rounds) + 2 * p.K - rounds);
    const int64_t count = p.B * p.H;
    work.runs.push_back({{of_panels, of_sides}, 1, count});
    work.grid = static_cast<double>(count);
    work.all = {{of_panels * work.grid, of_sides * work.grid}, work.grid, count};
    // One after the other. A panel that stays is waited for once; 128 x 128 x 128 take mma.sync 0.95 us, about three waits.
    // Derived, not fitted (whole launches within 15 % on an H100): what a block of a cluster sends of R, f32 to its owner and
    // f16 to all others, at 20 bytes a ns (slices of grad_weight: 2 us for 43 KB, H200, 2026-11-23), and 2 us for three barriers, the slowest block and the adding.
    const double waits = c.stages == 1 ? 2 + static_cast<double>(panels) / 4 : of_panels / 2,
                 sent = 6 * side * side * (1 - 1.0 / work.cluster),
                 meetings = work.cluster > 1 ? static_cast<double>(rounds) * (5.7 + sent / 7000) : 0,
                 products = (of_sides * side + of_panels * panel) * side * side / (128 * 128 * 128);
    // Four warps keep an SM's tensor cores busy; a thread's elements of x are read and rounded one after the other, those of
    // f32 in four times the time (64 x 128 x 1024 by a block each 180 us, bf16 121; the same H100).
    const double idle = std::max(1.0, 4.0 / (c.warps_m * c.warps_n)),
                 elements = (c.stages == 1 ? 2.0 : 1.0 + static_cast<double>(rounds)) *
                            (p.dtype == DType::kF32 ? 4 : 1) * static_cast<double>(p.T * p.D) /
                            (work.threads * work.cluster);
    const int at_once = work.cluster > 1 ? clusters_at_once(target, work.cluster) : sms;
    work.chained = std::ceil(work.grid / static_cast<double>(at_once)) *
                   (2 * waits + meetings + of_sides + 2.7 * idle * products + elements / 64);
    const auto kept = static_cast<double>(launch_plan(p, target, c).workspace_bytes);
    work.memory_bytes = count_work(p).min_bytes;
    work.l2_bytes = work.memory_bytes * 2 + kept * static_cast<double>(std::max<int64_t>(0, 2 * rounds - 2));
    work.instructions = static_cast<double>(p.B * p.H * p.T * p.D) * 8;
    return work;
  }

 private:
  static constexpr int64_t kMostElements = int64_t{1} << 30;

  static ConfigKey::Values panels_of(const Config& c) {
    ConfigKey::Values out;
    for (const int panel : {32, 64, 128, 256})
      if (panel % (16 * std::max(1, c.warps_n)) == 0) out.push_back(panel);
    return out;
  }
  // Of a thread: of R's tile, and of a panel of Q X beside it.
  static int sums(const Config& c) { return c.tile_m * (c.tile_m + c.tile_n) / geometry::threads(c); }
  // vec_c as wide as `vec` allows.
  Config config(const Problem& p, int down, int across, int panel, int stages, int vec) const {
    const int unit = 16 * std::max(down, across);
    return complete({.tile_m = static_cast<int>((p.T + unit - 1) / unit * unit),
                     .tile_n = panel,
                     .warps_m = down,
                     .warps_n = across,
                     .stages = stages,
                     .vec_b = vec,
                     .vec_c = p.layout == Layout::kBTD && vec > 1 ? 2 : 1},
                    [&](const Config& c) { return keys(p, c); });
  }
};

}  // namespace

const Family& newton_schulz_sm80_family() {
  static const NewtonSchulz family;
  return family;
}

}  // namespace trigen
