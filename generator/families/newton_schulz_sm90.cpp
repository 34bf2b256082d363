#include "templates/newton_schulz_sm90.h"

#include <algorithm>
#include <cmath>

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_stream_k.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = newton_schulz_sm90;

class NewtonSchulz final : public Family {
 public:
  llvm::StringRef name() const override { return "newton_schulz_sm90"; }
  llvm::StringRef template_file() const override { return "newton_schulz_sm90.cuh"; }
  bool serves(const Target& target) const override { return target.wgmma; }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return geometry::shared_bytes(c, static_cast<int>(p.D));
  }

  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const int vec = activation_vector(p);
    const std::string widths = activation_widths(p);
    ConfigKey::Values sides;
    for (const int side : {128, 192, 256})
      if (side >= p.T) sides.push_back(side);
    return {
        {&Config::tile_m, sides, "T in all, in tiles of 64 rows"},
        {&Config::warps_m, {warps(c.tile_m)}, "a warpgroup for each two tiles, of 256 rows five"},
        {&Config::warps_n, {1}},
        {&Config::tile_n, {geometry::kSide}, "columns of a panel"},
        {&Config::tile_k, {16}, "an instruction's depth"},
        {&Config::stages, {1, 2}, "X stays in shared memory, or passes through a ring of panels"},
        {&Config::split_k, {1}, "each block of a cluster makes what follows from R alone"},
        {&Config::vec_a, {1}, "coefficients are read singly"},
        powers_key(&Config::vec_b, vec, widths),
        powers_key(&Config::vec_c, std::min(vec, 4), "a thread has two neighbours of y, with another's four"),
        {&Config::cluster, {0, 2, 4, 8}},
        {&Config::blocks, {0, 1}, "a block has an SM for itself"}};
  }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (!serves(target)) return text(name() + " does not run on " + target.name + "; it needs sm_90a");
    if (p.op != Op::kNewtonSchulz)
      return text(name() + " makes newton_schulz only, the op is " + to_string(p.op));
    if (auto why = reject_keys(name(), keys(p, c), c)) return why;
    if (const int64_t bytes = shared_bytes(p, c); bytes > target.max_shared_per_block)
      return text("R, Z, Q and the panels need " + llvm::Twine(bytes) + " B of shared memory, " +
                  target.name + " has " + llvm::Twine(target.max_shared_per_block) +
                  " B; try stages=2 or a larger cluster");
    if (const int panels = geometry::panels(static_cast<int>(p.D)); geometry::blocks(c) > panels)
      return text("cluster=" + llvm::Twine(c.cluster) + " leaves a block without one of " +
                  llvm::Twine(panels) + " panels; try fewer blocks");
    if (p.T * p.D > kMostElements)
      return text("a matrix has more than 2^30 elements; give it to gram, product by product");
    if (p.B * p.H * geometry::blocks(c) > kMostBlocks)
      return std::string("more than 2^31 thread blocks; use a smaller batch");
    return std::nullopt;
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    if (p.op != Op::kNewtonSchulz || !serves(target)) return out;
    for (const int stages : {1, 2})
      for (const int cluster : {0, 2, 4, 8}) {
        if (cluster > 2 && p.B * p.H * cluster > 4 * target.sms) continue;
        if (cluster == 2 && p.T > 192) continue;  // spills, and adds up R for longer than it multiplies
        const Config c = config(p, stages, cluster, activation_vector(p));
        if (!reject(p, target, c)) out.push_back(c);
      }
    return out;
  }

  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    if (p.op != Op::kNewtonSchulz || !serves(target)) return std::nullopt;
    Config c = config(p, 2, 0, 1);
    c.tile_m = static_cast<int>(kMostStepRows);
    c.warps_m = warps(c.tile_m);
    if (reject(p, target, c)) return std::nullopt;
    return c;
  }

  LaunchPlan launch_plan(const Problem& p, const Target&, const Config& c) const override {
    LaunchPlan plan;
    plan.launches.push_back({.entry = entry_name(p.op).str(),
                             .grid = {static_cast<uint32_t>(p.B * p.H * geometry::blocks(c)), 1, 1},
                             .block = {static_cast<uint32_t>(geometry::threads(c)), 1, 1},
                             .cluster = static_cast<uint32_t>(geometry::blocks(c)),
                             .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c)),
                             .early = true});
    plan.workspace_bytes = geometry::workspace_bytes(c, kernel_sizes(p));
    return plan;
  }

  // Two kinds of steps, products of panels (Q X, or the lower triangle of X X^T) and of R, Z and Q.
  Work work(const Problem& p, const Target& target, const Config& c, int sms) const override {
    const double side = c.tile_m, panel = c.tile_n, tile = geometry::kSide, tiles = geometry::tiles(c);
    Work work{.rates = "iterations_wgmma",
              .steps = {{.products = (side * side + tiles * tile * tile) / 2 * panel},
                        {.products = tiles * tile * tile * side}}};
    work.threads = geometry::threads(c);
    work.registers = geometry::threads(c) > 256 ? 168 : 255;
    work.shared_bytes = shared_bytes(p, c);
    work.blocks = 1;
    work.cluster = geometry::blocks(c);
    const int round = geometry::round_steps(c, static_cast<int>(p.T), static_cast<int>(p.D));
    const int64_t rounds = (p.K + round - 1) / round,
                  panels = geometry::most_panels(c, static_cast<int>(p.D));
    const auto of_panels = static_cast<double>(2 * rounds * panels),
               of_sides = static_cast<double>(2 * (p.K - rounds) + 2 * p.K - rounds);
    const int64_t count = p.B * p.H;
    work.runs.push_back({{of_panels, of_sides}, 1, count});
    work.grid = static_cast<double>(count);
    work.all = {{of_panels * work.grid, of_sides * work.grid}, work.grid, count};
    const auto kept = static_cast<double>(launch_plan(p, target, c).workspace_bytes);
    work.chained = std::ceil(work.grid / at_once(target, c, sms)) * chain(p, c, rounds, panels, of_sides);
    work.memory_bytes = count_work(p).min_bytes;
    work.l2_bytes = work.memory_bytes * 2 + kept * static_cast<double>(std::max<int64_t>(0, 2 * rounds - 2));
    work.instructions = static_cast<double>(p.B * p.H * p.T * p.D) * 8;
    return work;
  }

 private:
  static constexpr int64_t kMostElements = int64_t{1} << 30;

  static int warps(int rows) { return rows == 192 ? 12 : 8; }

  static double at_once(const Target& target, const Config& c, int sms) {
    return geometry::blocks(c) > 1 ? clusters_at_once(target, geometry::blocks(c)) : sms;
  }
  // What a block does one after the other beside its products, us. An H100 took 0.75 to 1.1 times the whole prediction
  // (2026-11-28, docs/experiments/newton_schulz_sm90.md): a turn of a product 0.35 for the last wgmma, rounding and storing, a
  // product's barriers 0.3; a panel of a pass 0.5 and the first one's way 1; R's sums of a cluster 2 and three times what is
  // pushed at 20 bytes a ns (newton_schulz_sm80.cpp); 64 elements of x of a thread 0.35, of four bytes 1.4.
  static double chain(const Problem& p, const Config& c, int64_t rounds, int64_t panels, double of_sides) {
    const double blocks = geometry::blocks(c),
                 pushed = (1 - 1 / blocks) * geometry::tiles(c) * geometry::kTileBytes / 20000;
    const double of_side = geometry::turns(c) * 0.35 + 0.3, meeting = blocks > 1 ? 2 + 3 * pushed : 0.3,
                 pass = 0.5 * static_cast<double>(panels) + (c.stages == 1 ? 0 : 1);
    const double elements =
        (p.dtype == DType::kF32 ? 4 : 1) * static_cast<double>(p.T * p.D) / (geometry::threads(c) * blocks);
    return of_sides * of_side + static_cast<double>(rounds) * (2 * pass + meeting) + 2 + 0.35 * elements / 64;
  }
  // vec_c as wide as `vec` allows.
  Config config(const Problem& p, int stages, int cluster, int vec) const {
    const auto rows = static_cast<int>(std::max<int64_t>(2, (p.T + 63) / 64) * 64);
    return complete({.tile_m = rows,
                     .tile_n = geometry::kSide,
                     .warps_m = warps(rows),
                     .warps_n = 1,
                     .stages = stages,
                     .split_k = 1,
                     .vec_b = vec,
                     .vec_c = std::min(vec, 4),
                     .cluster = cluster,
                     .blocks = 1},
                    [&](const Config& c) { return keys(p, c); });
  }
};

}  // namespace

const Family& newton_schulz_sm90_family() {
  static const NewtonSchulz family;
  return family;
}

}  // namespace trigen
