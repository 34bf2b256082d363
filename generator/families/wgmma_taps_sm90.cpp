#include "templates/wgmma_taps_sm90.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "generator/families/families.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "llvm/ADT/Twine.h"
#include "templates/pack.h"

namespace trigen {
namespace {

namespace geometry = wgmma_taps_sm90;

std::string text(const llvm::Twine& t) { return t.str(); }

int row_tiles(const Problem& p, const Config& c) {
  return schedule::ceil_div(static_cast<int>(p.T), c.tile_m);
}

// Blocks are persistent: one on every SM, fewer when there is less to do.
uint32_t grid_of(const Problem& p, const Target& target, const Config& c) {
  const int64_t clusters = std::max(1, target.sms / c.cluster);
  const int64_t units = int64_t{row_tiles(p, c)} * p.H *
                        geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  return static_cast<uint32_t>(std::min(clusters, units) * c.cluster);
}

// Elements of one access to W by the launch that packs it.
int read_vector(const Problem& p) {
  return static_cast<int>(std::min<int64_t>(p.walign, 16) / element_size(p.wdtype));
}

class WgmmaTapsSm90 final : public Family {
 public:
  llvm::StringRef name() const override { return "wgmma_taps_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_taps_sm90.cuh"; }
  bool serves(const Target& target) const override { return target.wgmma; }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    if (p.op == Op::kGradWeight) return geometry::weight::shared_bytes(c);
    return geometry::shared_bytes(kernel_shape(p), c);
  }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (!serves(target)) return text(name() + " does not run on " + target.name + "; it needs sm_90a");
    if (auto why = reject_problem(p)) return why;
    if (p.op == Op::kGradWeight) return reject_weight(p, c);
    if (c.tile_m % 64 != 0 || c.tile_m < 64 || c.tile_m > 256)
      return text("tile_m=" + llvm::Twine(c.tile_m) + ": " + name() +
                  " takes 64, 128, 192 or 256 tokens; try 256");
    if (c.tile_n != 64 && c.tile_n != 128)
      return text("tile_n=" + llvm::Twine(c.tile_n) + ": " + name() + " takes 64 or 128 features; try 128");
    if (c.tile_k != 64)
      return text("tile_k=" + llvm::Twine(c.tile_k) +
                  ": a swizzled row of shared memory holds 64 elements; try 64");
    if (c.warps_m != 1 || c.warps_n != c.tile_n / 16)
      return text("warps=" + llvm::Twine(c.warps_m) + "x" + llvm::Twine(c.warps_n) +
                  ": a warpgroup multiplies 64 features; try warps=1x" + llvm::Twine(c.tile_n / 16));
    if (c.cluster != 1 && (c.cluster != 2 || c.tile_m < 128))
      return text("cluster=" + llvm::Twine(c.cluster) + ": " + name() +
                  " takes 1, or 2 with tile_m=128 or more; try cluster=1");
    if (c.stages < 2 || c.stages > 16)
      return text("stages=" + llvm::Twine(c.stages) + ": " + name() + " takes 2 to 16");
    const Shape shape = kernel_shape(p);
    if (geometry::store_panels(shape, c) < 1)
      return text("stages=" + llvm::Twine(c.stages) + " of " + llvm::Twine(geometry::stage_bytes(c)) +
                  " B and the input's " + llvm::Twine(geometry::input_bytes(shape, c)) +
                  " B leave too little of " + llvm::Twine(geometry::kSharedLimit) +
                  " B of shared memory to stage the output; try " +
                  (c.stages > 2 ? "stages=" + llvm::Twine(c.stages - 1) : llvm::Twine("a smaller tile_m")));
    if (c.raster < 0) return text("raster=" + llvm::Twine(c.raster) + " is negative; 0 is one section");
    if (c.split_k != 1)
      return text("split_k=" + llvm::Twine(c.split_k) + " is for grad_weight only; try split_k=1");
    if (c.vec_a < 1 || c.vec_a > read_vector(p) || (c.vec_a & (c.vec_a - 1)) != 0)
      return text("vec_a=" + llvm::Twine(c.vec_a) + ": walign=" + llvm::Twine(p.walign) + " allows 1 to " +
                  llvm::Twine(read_vector(p)) + ", powers of two; try vec_a=" + llvm::Twine(read_vector(p)));
    if (c.vec_b != 8 || c.vec_c != 8)
      return text("vec=" + llvm::Twine(c.vec_a) + "x" + llvm::Twine(c.vec_b) + "x" + llvm::Twine(c.vec_c) +
                  ": the copy engine moves 16 bytes; try vec=" + llvm::Twine(c.vec_a) + "x8x8");
    if (c.blocks != 1)
      return text("blocks=" + llvm::Twine(c.blocks) +
                  ": registers are handed out for one block on an SM; try blocks=1");
    return std::nullopt;
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    if (!serves(target) || reject_problem(p)) return out;
    if (p.op == Op::kGradWeight) {
      for (int stages : {6, 10}) out.push_back(weight_config(p, stages));
      return out;
    }
    constexpr struct {
      int tile_m, tile_n, stages;
    } kTiles[] = {{256, 128, 4}, {256, 128, 3}, {192, 128, 4}, {192, 128, 5}, {128, 128, 7},
                  {128, 128, 6}, {256, 64, 4},  {128, 64, 8},  {64, 128, 8}};
    for (const auto& t : kTiles) {
      // A tile more than twice as large as the product only adds waste.
      if (t.tile_m > 64 && p.T <= t.tile_m / 2) continue;
      if (t.tile_n > 64 && p.D <= 64) continue;
      for (int cluster : {1, 2}) {
        Config c = config(p, t.tile_m, t.tile_n, t.stages, cluster);
        const int rows = row_tiles(p, c), clusters = std::max(1, target.sms / cluster);
        const int64_t columns = p.H * geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
        // Sections that fill whole rounds of the machine, and one section.
        const int even = clusters / std::gcd(clusters, rows);
        for (int raster : std::set<int>{0, even, 2 * even}) {
          // Narrower sections than one round would be widened by the kernel.
          if (raster > 0 && (raster >= columns || raster < clusters / rows)) continue;
          c.raster = raster;
          if (!reject(p, target, c)) out.push_back(c);
        }
      }
    }
    return out;
  }

  // One source for all sizes has one tap.
  std::optional<Config> generic_config(const Problem&, const Target&) const override { return std::nullopt; }

  LaunchPlan launch_plan(const Problem& p, const Target& target, const Config& c) const override {
    const bool forward = p.op == Op::kForward;
    LaunchPlan plan;
    if (p.op == Op::kGradWeight) {
      const auto blocks = static_cast<uint32_t>(target.sms);
      plan.launches.push_back({.entry = entry_name(p.op).str(),
                               .grid = {blocks, 1, 1},
                               .block = {geometry::weight::kThreads, 1, 1},
                               .cluster = 1,
                               .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c)),
                               .maps = {MappedTensor::kY, MappedTensor::kX},
                               .early = true});
      const geometry::weight::Shares shares(kernel_shape(p), static_cast<int>(p.B), target.sms);
      plan.workspace_bytes = shares.workspace_bytes();
      if (shares.rest() > 0)
        plan.launches.push_back({.entry = kReduceEntry.str(),
                                 .grid = {blocks * geometry::weight::kReduceBlocks, 1, 1},
                                 .block = {geometry::weight::kReduceThreads, 1, 1},
                                 .cluster = 1,
                                 .shared_bytes = 0,
                                 .maps = {},
                                 .early = true});
      return plan;
    }
    plan.launches.push_back(pack_launch(p));
    plan.launches.push_back({.entry = entry_name(p.op).str(),
                             .grid = {grid_of(p, target, c), 1, 1},
                             .block = {static_cast<uint32_t>(geometry::threads(c)), 1, 1},
                             .cluster = static_cast<uint32_t>(c.cluster),
                             .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c)),
                             .maps = {MappedTensor::kPackedW, forward ? MappedTensor::kX : MappedTensor::kY,
                                      forward ? MappedTensor::kY : MappedTensor::kX},
                             .early = true});
    plan.workspace_bytes =
        packing::workspace_bytes(static_cast<int>(p.T), static_cast<int>(p.K), static_cast<int>(p.H));
    return plan;
  }

  Work work(const Problem& p, const Target& target, const Config& c, int sms) const override;

 private:
  static Config weight_config(const Problem& p, int stages) {
    return {.tile_m = 64,
            .tile_n = 64 * geometry::weight::kGroupTaps,
            .tile_k = 64,
            .warps_m = 4,
            .warps_n = geometry::weight::kConsumers,
            .stages = stages,
            .split_k = 1,
            .raster = 0,
            .vec_a = 8,
            .vec_b = 8,
            .vec_c = weight_vector(p),
            .cluster = 1,
            .blocks = 1};
  }

  // Taps of one store: four where they lie together and aligned.
  static int weight_vector(const Problem& p) {
    return p.K % 4 == 0 && p.walign >= 4 * element_size(p.wdtype) ? 4 : 1;
  }

  std::optional<std::string> reject_weight(const Problem& p, const Config& c) const {
    const Config own = weight_config(p, c.stages);
    if (c.stages < 3 || c.stages > 12)
      return text("stages=" + llvm::Twine(c.stages) + ": grad_weight of " + name() + " takes 3 to 12; try 6");
    if (!(c == own)) return text("grad_weight of " + name() + " has one tile; try " + to_string(own));
    return std::nullopt;
  }

  static Config config(const Problem& p, int tile_m, int tile_n, int stages, int cluster) {
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .tile_k = 64,
            .warps_m = 1,
            .warps_n = tile_n / 16,
            .stages = stages,
            .split_k = 1,
            .raster = 0,
            .vec_a = read_vector(p),
            .vec_b = 8,
            .vec_c = 8,
            .cluster = cluster,
            .blocks = 1};
  }

  // What this family does not make, whatever the config.
  std::optional<std::string> reject_problem(const Problem& p) const {
    const auto no = [&](const llvm::Twine& why) { return text(name() + " " + why + "; use another family"); };
    if (p.op == Op::kDecode) return no("makes whole products, not the rows of decode");
    if (p.op == Op::kGradWeight && p.K <= 4)
      return no("sums dW of eight taps at once, K=" + llvm::Twine(p.K) + " would waste half of them");
    if (p.K < 2 || p.K > 32) return no("makes 2 to 32 taps, K=" + llvm::Twine(p.K));
    if (p.pad < 0 || p.pad >= p.K)
      return no("loads features around the output's, pad=" + llvm::Twine(p.pad) + " is outside 0 to K-1");
    if (p.dtype == DType::kF32) return no("multiplies 16-bit data");
    if (p.layout != Layout::kBTD)
      return no("reads features that are contiguous, layout=bdt has contiguous tokens");
    if (p.align < 16)
      return no("copies 16-byte pieces of x and y, align=" + llvm::Twine(p.align) + " does not give them");
    if (p.op != Op::kGradWeight && !whole_pieces(p.D, p.dtype))
      return no("writes 16-byte pieces, D=" + llvm::Twine(p.D) + " ends inside one");
    const Epilogue& e = p.epilogue;
    if (p.op == Op::kGradWeight && e.bias && (p.fill == Fill::kLower ? p.diag < 0 : p.diag > 0))
      return no("sums grad_bias beside a row's first block, diag=" + llvm::Twine(p.diag) +
                " leaves rows without");
    if (e.pre || e.gate || e.residual)
      return no("adds bias and activates; pre, gate and residual are read and written by features");
    return std::nullopt;
  }
};

// Steps of forward and grad_input: blocks of 64 tokens of the input, by which panels of the output tile they
// reach.
class TapSteps {
 public:
  TapSteps(const Problem& p, const Config& c) : c_(c), taps_(static_cast<double>(p.K)) {
    const bool two = geometry::input_buffers(kernel_shape(p), c) > 1;
    transposes_ = two ? 1 : 2;  // one buffer: the next block's loads wait for it
  }
  // The kind of a step that `whole` panels take part in, and `crossing` ones with their diagonal block.
  size_t kind(int whole, int crossing) {
    const std::pair<int, int> key{whole, crossing};
    const auto found = std::find(keys_.begin(), keys_.end(), key);
    if (found != keys_.end()) return static_cast<size_t>(found - keys_.begin());
    keys_.push_back(key);
    // A diagonal block's columns begin with the first that 16 tokens of k reach: 16, 32, 48 and 64 of 64.
    const double blocks = taps_ * (whole + 0.625 * crossing), loaded = taps_ * (whole + crossing);
    // A product of n columns takes n / 2 cycles, and its operands n / 4 + 20 to read.
    steps.push_back({.products = blocks * geometry::kPanel * geometry::kPanel * c_.tile_n,
                     .feed_bytes = loaded * geometry::kPanelBytes / c_.cluster,
                     .loads = loaded / geometry::panels(c_),
                     .operand_reads = (c_.tile_m / 4.0 + 20) / (c_.tile_m / 2.0),
                     .transposes = transposes_});
    return keys_.size() - 1;
  }
  std::vector<Step> steps;

 private:
  const Config& c_;
  double taps_, transposes_ = 1;
  std::vector<std::pair<int, int>> keys_;
};

// grad_weight: every block of the triangle and group of taps has as many steps, shared evenly.
Work tap_weight_work(const Problem& p, const Target& target, const Config& c) {
  namespace weight = geometry::weight;
  const weight::Shares s(kernel_shape(p), static_cast<int>(p.B), target.sms);
  constexpr double kPanel = geometry::kPanel;
  Work work{.rates = "taps_weight",
            .steps = {{.products = kPanel * kPanel * kPanel * weight::kGroupTaps,
                       .feed_bytes = 2.0 * geometry::kPanelBytes}},
            .tile = {.elements = weight::kSums},
            .stages = c.stages};
  put_runs(work, s.blocks, few_pieces(s.items, s.blocks), [&](int block) {
    Run own{.steps = {0.0}};
    weight::Pieces pieces(s, block);
    for (weight::Piece piece; pieces.next(piece); ++own.tiles) own.steps[0] += piece.end - piece.begin;
    return own;
  });
  work.all.steps = {static_cast<double>(s.items) * s.depth};
  work.all.tiles = s.whole + (s.rest() > 0 ? s.rest() + s.sharers() : 0);
  work.memory_bytes = count_work(p).min_bytes;
  work.l2_bytes = work.all.steps[0] * work.steps[0].feed_bytes;
  if (s.rest() > 0) work.passes.push_back({"add_shares", 4.0 * weight::kSums * (s.rest() + s.sharers())});
  return work;
}

Work WgmmaTapsSm90::work(const Problem& p, const Target& target, const Config& c, int) const {
  if (p.op == Op::kGradWeight) return tap_weight_work(p, target, c);
  const ProductWalk walk(
      p, c, row_tiles(p, c),
      static_cast<int>(p.H) * geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D)),
      static_cast<int>(grid_of(p, target, c)) / c.cluster);
  Work work{.rates = "taps",
            .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n, .act = p.epilogue.act},
            .stages = c.stages,
            .warpgroups = geometry::consumers(c),
            .cluster = c.cluster};
  const int tokens = static_cast<int>(p.T), blocks = schedule::ceil_div(tokens, geometry::kPanel);
  TapSteps steps(p, c);
  std::vector<Run> tiles;
  for (int row = 0; row < walk.rows; ++row) {
    llvm::SmallVector<wgmma_sm90::Reach, 4> reach;
    int most = 0;
    for (int first = row * c.tile_m; first < std::min((row + 1) * c.tile_m, tokens);
         first += geometry::kPanel) {
      reach.push_back({walk.fill, first, walk.diag, blocks});
      most = std::max(most, reach.back().active);
    }
    Run tile{.tiles = 1};
    for (int step = 0; step < most; ++step) {
      int whole = 0, crossing = 0;
      for (const wgmma_sm90::Reach& r : reach) {
        // Of a diagonal that begins in a block's corner, one block of a panel's reach is left out in part.
        const bool corner = walk.diag == 0 && r.active == step + 1;
        (corner ? crossing : whole) += r.active > step ? 1 : 0;
      }
      const size_t kind = steps.kind(whole, crossing);
      tile.steps.resize(steps.steps.size(), 0.0);
      tile.steps[kind] += 1;
    }
    tiles.push_back(std::move(tile));
  }
  work.steps = std::move(steps.steps);
  put_product(work, walk, tiles);
  for (size_t kind = 0; kind < work.steps.size(); ++kind)
    work.l2_bytes += work.all.steps[kind] * c.cluster * work.steps[kind].feed_bytes;
  work.memory_bytes = count_work(p).min_bytes;
  const double weights =
      static_cast<double>(p.H * p.K) * static_cast<double>(p.T) * static_cast<double>(p.T) / 2;
  work.passes.push_back({"pack_taps", weights * (2 + static_cast<double>(element_size(p.wdtype)))});
  return work;
}

}  // namespace

const Family& wgmma_taps_sm90_family() {
  static const WgmmaTapsSm90 family;
  return family;
}

}  // namespace trigen
