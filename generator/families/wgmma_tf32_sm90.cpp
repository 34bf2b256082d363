#include <algorithm>
#include <numeric>
#include <set>

#include "generator/families/families.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_shares.h"
#include "llvm/ADT/Twine.h"
#include "templates/wgmma_tf32_sm90.h"

namespace trigen {
namespace {

namespace geometry = wgmma_tf32_sm90;

static_assert(geometry::packed_pitch(1) == packed_rounded_pitch(1) &&
              geometry::packed_pitch(1024) == packed_rounded_pitch(1024));

std::string text(const llvm::Twine& t) { return t.str(); }

bool is_weight(const Problem& p) { return p.op == Op::kGradWeight; }

// dW leaves through the copy engine where it is aligned for that and its rows are whole pieces of 16 bytes
// (8), else in pairs or single elements.
int weight_vector(const Problem& p) {
  return p.walign >= 16 && whole_pieces(p.T, p.wdtype) ? 8 : p.walign >= 8 ? 2 : 1;
}

// Elements of one access to W: forward's copy engine takes aligned rows alone, the launch that packs W single
// elements.
int matrix_vector(const Problem& p) { return p.op == Op::kGradInput || p.walign < 16 ? 1 : 4; }

// Elements of one access to activations: of the copy engine, or single ones of the launches that pack them.
int activation_vector(const Problem& p) { return needs_packed_activations(p) ? 1 : 4; }

// Blocks are persistent: one on every SM, fewer when there is less to do.
uint32_t grid_of(const Problem& p, const Target& target, const Config& c) {
  const int64_t clusters = std::max(1, target.sms / c.cluster);
  if (is_weight(p)) return static_cast<uint32_t>(clusters * c.cluster);
  const int64_t units = int64_t{wgmma_sm90::row_tiles(c, static_cast<int>(p.T))} * p.H *
                        geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  return static_cast<uint32_t>(std::min(clusters, units) * c.cluster);
}

class WgmmaTf32Sm90 final : public Family {
 public:
  llvm::StringRef name() const override { return "wgmma_tf32_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_tf32_sm90.cuh"; }
  bool serves(const Target& target) const override { return target.wgmma; }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return is_weight(p) ? wgmma_sm90::shared_bytes(kernel_shape(p), c) : geometry::shared_bytes(c);
  }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (!serves(target)) return text(name() + " does not run on " + target.name + "; it needs sm_90a");
    if (auto why = reject_problem(p)) return why;
    if (auto why = is_weight(p) ? reject_weight_tile(c) : reject_product_tile(c)) return why;
    if (c.tile_k != geometry::kStep)
      return text("tile_k=" + llvm::Twine(c.tile_k) +
                  ": a swizzled row of shared memory holds 32 elements of f32; try 32");
    if (c.stages < 2 || c.stages > 12)
      return text("stages=" + llvm::Twine(c.stages) + ": " + name() + " takes 2 to 12");
    if ((is_weight(p) ? wgmma_sm90::store_panels(kernel_shape(p), c) : geometry::store_panels(c)) < 1)
      return text(
          "stages=" + llvm::Twine(c.stages) + " of " +
          llvm::Twine(is_weight(p) ? wgmma_sm90::stage_bytes(kernel_shape(p), c) : geometry::stage_bytes(c)) +
          " B leave too little of " + llvm::Twine(geometry::kSharedLimit) +
          " B of shared memory to stage the output; try " +
          (c.stages > 2 ? "stages=" + llvm::Twine(c.stages - 1) : llvm::Twine("a smaller tile")));
    if (c.raster < 0) return text("raster=" + llvm::Twine(c.raster) + " is negative; 0 is one section");
    if (!is_weight(p) && c.split_k > 1)
      return text("split_k=" + llvm::Twine(c.split_k) + " is for grad_weight only; try split_k=1");
    if (c.split_k < 1 || c.split_k > 65535)
      return text("split_k=" + llvm::Twine(c.split_k) + " is outside 1 to 65535");
    if (auto why = reject_vectors(p, c)) return why;
    if (c.blocks != 1)
      return text("blocks=" + llvm::Twine(c.blocks) +
                  ": registers are handed out for one block on an SM; try blocks=1");
    return std::nullopt;
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    if (!serves(target) || reject_problem(p)) return out;
    const auto add = [&](const Config& c) {
      if (!reject(p, target, c)) out.push_back(c);
    };
    if (is_weight(p)) {
      constexpr struct {
        int tile_n, stages, cluster;
      } kWeightTiles[] = {{256, 4, 1}, {256, 3, 1}, {128, 6, 1}, {128, 5, 1}, {256, 4, 2}};
      for (const auto& t : kWeightTiles) {
        if (t.cluster > 1 && p.T <= 128) continue;
        Config c = weight_config(p, t.tile_n, t.stages, t.cluster);
        for (int split : weight_splits(weight_shares(p, c, static_cast<int>(grid_of(p, target, c))))) {
          c.split_k = split;
          add(c);
        }
      }
      return out;
    }
    constexpr struct {
      int tokens, features, stages;
    } kTiles[] = {{256, 128, 4}, {192, 128, 4}, {128, 128, 6}, {64, 128, 8}, {128, 64, 8}, {64, 64, 8}};
    const int64_t panels = p.B * ((p.D + 63) / 64);  // of one head
    // Smaller tiles than 128 x 128 lose by 30 % and more where there are enough of these for the machine.
    const bool few = (p.T + 127) / 128 * p.H * ((panels + 1) / 2) < target.sms;
    for (const auto& t : kTiles) {
      // A tile more than twice as large as the product only adds waste.
      if (t.tokens > 64 && t.tokens >= 2 * p.T) continue;
      if (t.features > 64 && panels == 1) continue;
      if (t.tokens * t.features < 128 * 128 && !few && p.T > 64 && panels > 1) continue;
      for (int cluster : {1, 2}) {
        Config c = product_config(p, t.tokens, t.features, t.stages, cluster);
        const int rows = wgmma_sm90::row_tiles(c, static_cast<int>(p.T)),
                  clusters = std::max(1, target.sms / cluster);
        const int64_t columns = p.H * geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
        if (cluster > 1 && columns * rows * 2 < clusters) continue;
        // Sections that fill whole rounds of the machine, and round numbers.
        const int even = clusters / std::gcd(clusters, rows);
        for (int raster : std::set<int>{0, 16, 32, even, 2 * even}) {
          // Narrower sections than one round would be widened by the kernel.
          if (raster > 0 && (raster >= columns || raster < clusters / rows)) continue;
          c.raster = raster;
          add(c);
        }
      }
    }
    return out;
  }

  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    if (!serves(target) || reject_problem(p)) return std::nullopt;
    Config c = is_weight(p) ? weight_config(p, 256, 4, 1) : product_config(p, 256, 128, 4, 1);
    if (is_weight(p))
      c.split_k = p.T <= 512 ? 33 : p.T <= 1024 ? 8 : p.T <= 2048 ? 2 : 1;
    else
      c.raster = 16;
    if (reject(p, target, c)) return std::nullopt;
    return c;
  }

  LaunchPlan launch_plan(const Problem& p, const Target& target, const Config& c) const override {
    using Tensor = MappedTensor;
    LaunchPlan plan;
    const uint32_t grid = grid_of(p, target, c);
    const auto threads = static_cast<uint32_t>(is_weight(p) ? wgmma_sm90::threads(c) : geometry::threads(c));
    Launch product{.entry = entry_name(p.op).str(),
                   .grid = {grid, 1, 1},
                   .block = {threads, 1, 1},
                   .cluster = static_cast<uint32_t>(c.cluster),
                   .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c)),
                   .maps = {},
                   .early = true};
    if (is_weight(p)) product.register_threads = static_cast<uint32_t>(wgmma_sm90::register_threads(c));
    if (geometry::packs(p.op, c)) {
      const auto blocks = static_cast<uint32_t>((p.T + geometry::kPackEdge - 1) / geometry::kPackEdge);
      plan.launches.push_back({.entry = kPackEntry.str(),
                               .grid = {blocks, blocks, static_cast<uint32_t>(p.H)},
                               .block = {geometry::kPackThreads, 1, 1},
                               .cluster = 1,
                               .shared_bytes = static_cast<uint32_t>(geometry::pack_shared_bytes(p.op)),
                               .maps = {},
                               .early = true});
      plan.workspace_bytes = 4 * p.H * p.T * int64_t{geometry::packed_pitch(static_cast<int>(p.T))};
    }
    switch (p.op) {
      case Op::kForward:
        product.maps = {geometry::packs(p.op, c) ? Tensor::kPackedRoundedW : Tensor::kRoundedW,
                        Tensor::kRoundedStepX, Tensor::kY};
        break;
      case Op::kGradInput:
        product.maps = {Tensor::kPackedRoundedW, Tensor::kRoundedStepY, Tensor::kX};
        break;
      case Op::kGradWeight:
        product.maps = {Tensor::kRoundedY, Tensor::kRoundedX, c.vec_c == 8 ? Tensor::kW : Tensor::kRoundedX};
        break;
      case Op::kDecode:
        break;  // rejected
    }
    plan.launches.push_back(std::move(product));
    // With tiles of one width, none of them shared, there is nothing to add.
    if (is_weight(p) && (c.split_k > 1 || c.tile_n > 128)) {
      plan.launches.push_back({.entry = kReduceEntry.str(),
                               .grid = {grid * wgmma_sm90::reduce_blocks(c), 1, 1},
                               .block = {wgmma_sm90::kReduceThreads, 1, 1},
                               .cluster = 1,
                               .shared_bytes = wgmma_sm90::kReduceSharedBytes,
                               .maps = {},
                               .early = wgmma_sm90::admits_reduction(c),
                               .register_threads = wgmma_sm90::admits_reduction(c) ? 1024u : 0u});
      plan.workspace_bytes = 4 * weight_shares(p, c, static_cast<int>(grid)).workspace();
    }
    if (packs_activations(p, c)) pack_activations(p, plan);
    return plan;
  }

  Work work(const Problem& p, const Target& target, const Config& c, int sms) const override;

 private:
  static Config product_config(const Problem& p, int tokens, int features, int stages, int cluster) {
    return {.tile_m = tokens,
            .tile_n = features,
            .tile_k = geometry::kStep,
            .warps_m = 1,
            .warps_n = features / 16,
            .stages = stages,
            .split_k = 1,
            .raster = 0,
            .vec_a = matrix_vector(p),
            .vec_b = activation_vector(p),
            .vec_c = activation_vector(p),
            .cluster = cluster,
            .blocks = 1};
  }
  static Config weight_config(const Problem& p, int columns, int stages, int cluster) {
    return {.tile_m = 128,
            .tile_n = columns,
            .tile_k = geometry::kStep,
            .warps_m = 8,
            .warps_n = 1,
            .stages = stages,
            .split_k = 1,
            .raster = 0,
            .vec_a = activation_vector(p),
            .vec_b = activation_vector(p),
            .vec_c = weight_vector(p),
            .cluster = cluster,
            .blocks = 1};
  }

  // What this family does not make, whatever the config.
  std::optional<std::string> reject_problem(const Problem& p) const {
    const auto no = [&](const llvm::Twine& why) { return text(name() + " " + why + "; use another family"); };
    if (p.op == Op::kDecode) return no("makes whole products, not the rows of decode");
    if (p.dtype != DType::kF32 || p.math != Math::kTF32) return no("multiplies f32 data with math=tf32");
    if (p.K != 1 || p.pad != 0) return no("makes K=1 with pad=0");
    if (needs_packed_activations(p))
      if (const auto why = too_many_to_pack(p)) return no(*why);
    if (is_weight(p))
      if (const auto why = too_many_shares(p, 32)) return no(*why);
    if (!is_weight(p) && matrix_vector(p) == 1 && (p.T > 65535 * geometry::kPackEdge || p.H > 65535))
      return no("packs W by a grid of at most 65535 heads and as many blocks of 64 tokens");
    return std::nullopt;
  }
  std::optional<std::string> reject_product_tile(const Config& c) const {
    if (c.tile_m % 64 != 0 || c.tile_m < 64 || c.tile_m > 256)
      return text("tile_m=" + llvm::Twine(c.tile_m) + ": " + name() + " takes 64, 128, 192 or 256; try 256");
    if (c.tile_n != 64 && c.tile_n != 128)
      return text("tile_n=" + llvm::Twine(c.tile_n) + ": " + name() + " takes 64 or 128; try 128");
    if (c.warps_m != 1 || c.warps_n != c.tile_n / 16)
      return text("warps=" + llvm::Twine(c.warps_m) + "x" + llvm::Twine(c.warps_n) +
                  ": a warpgroup multiplies 64 features; try warps=1x" + llvm::Twine(c.tile_n / 16));
    if (c.cluster != 1 && c.cluster != 2)
      return text("cluster=" + llvm::Twine(c.cluster) + ": " + name() + " takes 1 or 2; try cluster=1");
    return std::nullopt;
  }
  std::optional<std::string> reject_weight_tile(const Config& c) const {
    if (c.tile_m != 128)
      return text("tile_m=" + llvm::Twine(c.tile_m) + ": " + name() + " takes 128 for grad_weight; try 128");
    if (c.tile_n != 128 && c.tile_n != 256)
      return text("tile_n=" + llvm::Twine(c.tile_n) + ": " + name() +
                  " takes 128 or 256 for grad_weight; try 256");
    if (c.warps_m != 8 || c.warps_n != 1)
      return text("warps=" + llvm::Twine(c.warps_m) + "x" + llvm::Twine(c.warps_n) +
                  ": a warpgroup multiplies 64 rows; try warps=8x1");
    if (c.cluster != 1 && (c.cluster != 2 || c.tile_n != 256))
      return text("cluster=" + llvm::Twine(c.cluster) + ": " + name() +
                  " takes 1, or 2 with tile_n=256; try cluster=1");
    return std::nullopt;
  }
  std::optional<std::string> reject_vectors(const Problem& p, const Config& c) const {
    const int activation = activation_vector(p), a = is_weight(p) ? activation : matrix_vector(p);
    const bool output = is_weight(p) ? c.vec_c == 8 || c.vec_c == 2 || c.vec_c == 1 : c.vec_c == activation;
    if (is_weight(p) && output && c.vec_c > weight_vector(p))
      return text("vec_c=" + llvm::Twine(c.vec_c) + ": walign=" + llvm::Twine(p.walign) + " allows " +
                  llvm::Twine(weight_vector(p)));
    if (c.vec_a != a || c.vec_b != activation || !output)
      return text(
          "vec=" + llvm::Twine(c.vec_a) + "x" + llvm::Twine(c.vec_b) + "x" + llvm::Twine(c.vec_c) +
          ": the copy engine moves 16 bytes, and what it cannot take is packed by elements; try vec=" +
          llvm::Twine(a) + "x" + llvm::Twine(activation) + "x" +
          llvm::Twine(is_weight(p) ? weight_vector(p) : activation));
    return std::nullopt;
  }
};

// forward and grad_input: features by tokens, steps of 32 along k that panels of 64 tokens take part in.
Work WgmmaTf32Sm90::work(const Problem& p, const Target& target, const Config& c, int) const {
  const int grid = static_cast<int>(grid_of(p, target, c));
  if (is_weight(p)) return shared_weight_work(p, target, c, grid);
  const ProductWalk walk(
      p, c, wgmma_sm90::row_tiles(c, static_cast<int>(p.T)),
      static_cast<int>(p.H) * geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D)),
      grid / c.cluster);
  const Epilogue& e = p.epilogue;
  Work work{.rates = "ring_tf32",
            .unit = Unit::kTensorTf32,
            .steps = {{.products = static_cast<double>(c.tile_m) * c.tile_n * geometry::kStep,
                       .feed_bytes = 128 * (static_cast<double>(c.tile_m) / c.cluster + c.tile_n)}},
            .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n,
                     .act = e.act,
                     .exchanged = e.pre + e.gate + e.residual},
            .stages = c.stages,
            .cluster = c.cluster};
  std::vector<Run> tiles;
  const int steps = schedule::ceil_div(static_cast<int>(p.T), geometry::kStep),
            panels = geometry::token_panels(c);
  double all = 0;
  for (int row = 0; row < walk.rows; ++row) {
    double active = 0;
    for (int panel = 0; panel < panels; ++panel)
      active += geometry::StepReach(walk.fill, row * c.tile_m + 64 * panel, walk.diag, steps).active;
    active /= panels;
    all += active;
    tiles.push_back({{active}, 1});
  }
  put_product(work, walk, tiles);
  const double width = static_cast<double>(walk.section) * c.cluster * c.tile_n;
  work.rereads = {panel_reread(p, walk, width, all * geometry::kStep)};
  work.memory_bytes = count_work(p).min_bytes;
  work.l2_bytes = all * walk.columns * c.cluster * work.steps[0].feed_bytes;
  if (geometry::packs(p.op, c))  // half of W is read, half of a copy written
    work.passes.push_back({"transpose", 0, 4.0 * static_cast<double>(p.H * p.T) * static_cast<double>(p.T)});
  put_copies(work, p, c);
  return work;
}

}  // namespace

const Family& wgmma_tf32_sm90_family() {
  static const WgmmaTf32Sm90 family;
  return family;
}

}  // namespace trigen
