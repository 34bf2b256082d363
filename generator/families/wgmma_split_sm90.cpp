#include "templates/wgmma_split_sm90.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "generator/families/families.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_shares.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = wgmma_split_sm90;

std::string text(const llvm::Twine& t) { return t.str(); }

// Blocks of the product are persistent: one on every SM, fewer when there is less to do.
uint32_t grid_of(const Problem& p, const Target& target, const Config& c) {
  if (p.op == Op::kGradWeight) return static_cast<uint32_t>(target.sms);
  const int64_t units = int64_t{wgmma_sm90::row_tiles(c, static_cast<int>(p.T))} * p.H *
                        wgmma_sm90::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  return static_cast<uint32_t>(std::min<int64_t>(target.sms, units));
}

wgmma_sm90::Shares shares_of(const Problem& p, const Target& target, const Config& c) {
  const auto depth = static_cast<int>(p.B * schedule::ceil_div(static_cast<int>(p.D), geometry::kPanel));
  return wgmma_sm90::Shares(wgmma_sm90::Cut{.T = static_cast<int>(p.T),
                                            .diag = static_cast<int>(p.diag),
                                            .lower = p.fill == Fill::kLower,
                                            .depth = depth,
                                            .split = c.split_k,
                                            .blocks = static_cast<int>(grid_of(p, target, c)),
                                            .tile_n = c.tile_n,
                                            .edge = 128,
                                            .copies = static_cast<int>(p.H),
                                            .every_row = false});
}

geometry::Workspace workspace_of(const Problem& p, long long part_floats) {
  return geometry::Workspace(p.op, p.epilogue.bias, static_cast<int>(p.B), static_cast<int>(p.H),
                             static_cast<int>(p.T), static_cast<int>(p.D), part_floats);
}

// Elements of one access: of rows of `size` elements at `align` bytes, read four at a time or written two at
// a time.
int read_vector(int64_t align, int64_t size) { return align >= 16 && size % 4 == 0 ? 4 : 1; }
int write_vector(int64_t align, int64_t size) { return align >= 8 && size % 2 == 0 ? 2 : 1; }

class WgmmaSplitSm90 final : public Family {
 public:
  llvm::StringRef name() const override { return "wgmma_split_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_split_sm90.cuh"; }
  bool serves(const Target& target) const override { return target.wgmma; }
  int64_t shared_bytes(const Problem&, const Config& c) const override { return geometry::shared_bytes(c); }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (!serves(target)) return text(name() + " does not run on " + target.name + "; it needs sm_90a");
    if (auto why = reject_problem(p)) return why;
    if (c.tile_m != 128 || c.tile_n != 128 || c.tile_k != 64)
      return text("tile=" + llvm::Twine(c.tile_m) + "x" + llvm::Twine(c.tile_n) + "x" +
                  llvm::Twine(c.tile_k) + ": " + name() +
                  " has registers for 128 x 128 and scales for 64 along k; try 128x128x64");
    if (c.warps_m != 8 || c.warps_n != 1)
      return text("warps=" + llvm::Twine(c.warps_m) + "x" + llvm::Twine(c.warps_n) +
                  ": a warpgroup multiplies 64 rows; try warps=8x1");
    if (c.stages < 2 || geometry::shared_bytes(c) > geometry::kSharedLimit)
      return text("stages=" + llvm::Twine(c.stages) + " of " + llvm::Twine(geometry::stage_bytes(c)) +
                  " B: " + name() + " takes at least 2 and has " + llvm::Twine(geometry::kSharedLimit) +
                  " B of shared memory; try stages=3");
    if (c.raster < 0) return text("raster=" + llvm::Twine(c.raster) + " is negative; 0 is one section");
    if (p.op != Op::kGradWeight && c.split_k > 1)
      return text("split_k=" + llvm::Twine(c.split_k) + " is for grad_weight only; try split_k=1");
    if (c.split_k < 1 || c.split_k > 65535)
      return text("split_k=" + llvm::Twine(c.split_k) + " is outside 1 to 65535");
    const Config own = with_vectors(p, c);
    const auto within = [](int vec, int most, int wide) { return vec == 1 || (vec == wide && most == wide); };
    if (!within(c.vec_a, own.vec_a, 4) || !within(c.vec_b, own.vec_b, 4) || !within(c.vec_c, own.vec_c, 2))
      return text("vec=" + llvm::Twine(c.vec_a) + "x" + llvm::Twine(c.vec_b) + "x" + llvm::Twine(c.vec_c) +
                  ": sizes, align=" + llvm::Twine(p.align) + " and walign=" + llvm::Twine(p.walign) +
                  " allow 1 or " + llvm::Twine(own.vec_a) + "x" + llvm::Twine(own.vec_b) + "x" +
                  llvm::Twine(own.vec_c));
    if (c.cluster != 1 || c.blocks != 1)
      return text("cluster=" + llvm::Twine(c.cluster) + ",blocks=" + llvm::Twine(c.blocks) +
                  ": registers are handed out for one block on an SM, alone; try cluster=1,blocks=1");
    return std::nullopt;
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    if (!serves(target) || reject_problem(p)) return out;
    const auto add = [&](const Config& c) {
      if (!reject(p, target, c)) out.push_back(c);
    };
    for (int stages : {3, 2}) {
      Config c = config(p, stages);
      if (p.op == Op::kGradWeight) {
        const wgmma_sm90::Shares shares = shares_of(p, target, c);
        for (int split : weight_splits(shares)) {
          if (split > shares.depth) continue;
          c.split_k = split;
          add(c);
        }
        continue;
      }
      const int rows = wgmma_sm90::row_tiles(c, static_cast<int>(p.T));
      const int64_t columns = p.H * wgmma_sm90::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
      const int even = target.sms / std::gcd(target.sms, rows);
      for (int raster : std::set<int>{0, 8, 16, 32, even}) {
        // Narrower sections than one round would be widened by the kernel.
        if (raster > 0 && (raster >= columns || raster < target.sms / rows)) continue;
        c.raster = raster;
        add(c);
      }
    }
    return out;
  }

  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    if (!serves(target) || reject_problem(p)) return std::nullopt;
    Config c = config(p, 3);
    if (p.op == Op::kGradWeight)
      c.split_k = p.T <= 512 ? 33 : p.T <= 1024 ? 8 : p.T <= 2048 ? 2 : 1;
    else
      c.raster = 16;
    if (reject(p, target, c)) return std::nullopt;
    return c;
  }

  LaunchPlan launch_plan(const Problem& p, const Target& target, const Config& c) const override {
    LaunchPlan plan;
    const bool shares = p.op == Op::kGradWeight && c.split_k > 1;
    const geometry::Workspace workspace = workspace_of(p, shares ? shares_of(p, target, c).workspace() : 0);
    plan.workspace_bytes = workspace.end;
    const uint32_t grid = grid_of(p, target, c);
    plan.launches.push_back({.entry = kSplitEntry.str(),
                             .grid = {static_cast<uint32_t>(workspace.boxes()), 1, 1},
                             .block = {geometry::kSplitThreads, 1, 1},
                             .cluster = 1,
                             .shared_bytes = geometry::kSplitSharedBytes,
                             .maps = {}});
    plan.launches.push_back({.entry = entry_name(p.op).str(),
                             .grid = {grid, 1, 1},
                             .block = {static_cast<uint32_t>(geometry::threads(c)), 1, 1},
                             .cluster = 1,
                             .shared_bytes = static_cast<uint32_t>(geometry::shared_bytes(c)),
                             .maps = {}});
    if (shares)
      plan.launches.push_back({.entry = kReduceEntry.str(),
                               .grid = {grid * geometry::kReduceBlocks, 1, 1},
                               .block = {geometry::kReduceThreads, 1, 1},
                               .cluster = 1,
                               .shared_bytes = 0,
                               .maps = {}});
    return plan;
  }

  Work work(const Problem& p, const Target& target, const Config& c, int sms) const override;

 private:
  static Config with_vectors(const Problem& p, Config c) {
    const bool weight = p.op == Op::kGradWeight;
    c.vec_a = weight ? read_vector(p.align, p.D) : read_vector(p.walign, p.T);
    c.vec_b = read_vector(p.align, p.D);
    c.vec_c = weight ? write_vector(p.walign, p.T) : write_vector(p.align, p.D);
    return c;
  }
  static Config config(const Problem& p, int stages) {
    return with_vectors(p, {.tile_m = 128,
                            .tile_n = 128,
                            .tile_k = 64,
                            .warps_m = 8,
                            .warps_n = 1,
                            .stages = stages,
                            .split_k = 1,
                            .raster = 0,
                            .vec_a = 1,
                            .vec_b = 1,
                            .vec_c = 1,
                            .cluster = 1,
                            .blocks = 1});
  }

  // What this family does not make, whatever the config.
  std::optional<std::string> reject_problem(const Problem& p) const {
    const auto no = [&](const llvm::Twine& why) { return text(name() + " " + why + "; use another family"); };
    if (p.op == Op::kDecode) return no("makes whole products, not the rows of decode");
    if (p.dtype != DType::kF32) return no("splits f32 data, dtype=" + to_string(p.dtype) + " needs no split");
    if (p.math != Math::kF16x3)
      return no("multiplies planes of f16, math=" + to_string(p.math) + " asks for something else");
    if (p.layout != Layout::kBTD)
      return no("reads features that are contiguous, layout=bdt has contiguous tokens");
    if (p.K != 1 || p.pad != 0) return no("makes K=1 with pad=0");
    // Boxes are blocks of the first launch's grid.
    constexpr double kMost = (int64_t{1} << 31) - 1;
    const int64_t token_blocks = (p.T + 63) / 64, feature_panels = (p.D + 63) / 64;
    const auto blocks = static_cast<double>(token_blocks), panels = static_cast<double>(feature_panels);
    const double activations = static_cast<double>(p.B * p.H) * blocks * panels;
    if ((p.op == Op::kGradWeight ? 2 * activations
                                 : activations + static_cast<double>(p.H) * blocks * blocks) > kMost)
      return no("counts at most 2^31 boxes of 64 x 64 elements");
    if (p.op == Op::kGradWeight)
      if (const auto why = too_many_shares(p, geometry::kPanel)) return no(*why);
    return std::nullopt;
  }
};

// Three products of planes for each block of k, after a launch that reads every operand once and writes as
// many bytes.
Work WgmmaSplitSm90::work(const Problem& p, const Target& target, const Config& c, int) const {
  const int grid = static_cast<int>(grid_of(p, target, c));
  const bool weight = p.op == Op::kGradWeight;
  Work work{.rates = "planes",
            .steps = {{.products = 3.0 * c.tile_m * c.tile_n * geometry::kPanel,
                       .feed_bytes = static_cast<double>(geometry::stage_bytes(c))}},
            .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n},
            .stages = c.stages};
  const double activation = static_cast<double>(p.B * p.H * p.T * p.D) * 4,
               matrix = static_cast<double>(p.H * p.T) * static_cast<double>(p.T) / 2 * 4;
  work.passes.push_back({"split", 0, 2 * (weight ? 2 * activation : activation + matrix)});
  work.memory_bytes = count_work(p).min_bytes;  // the planes are as many bytes
  if (weight) {
    const wgmma_sm90::Shares s = shares_of(p, target, c);
    put_weight_shares(work, s);
    work.l2_bytes = work.all.steps[0] * work.steps[0].feed_bytes;
    if (c.split_k > 1)
      work.passes.push_back({"add_planes", static_cast<double>(s.parts()) * s.wide_sums() * 4});
    return work;
  }
  const ProductWalk walk(
      p, c, wgmma_sm90::row_tiles(c, static_cast<int>(p.T)),
      static_cast<int>(p.H) * wgmma_sm90::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D)),
      grid);
  const std::vector<Run> tiles = reached_tiles(walk, c, static_cast<int>(p.T));
  put_product(work, walk, tiles);
  double steps = 0;
  for (const Run& tile : tiles) steps += tile.steps[0];
  work.rereads = {
      panel_reread(p, walk, static_cast<double>(walk.section) * c.tile_n, steps * geometry::kPanel)};
  work.l2_bytes = work.all.steps[0] * work.steps[0].feed_bytes;
  return work;
}

}  // namespace

const Family& wgmma_split_sm90_family() {
  static const WgmmaSplitSm90 family;
  return family;
}

}  // namespace trigen
