#include <algorithm>
#include <numeric>
#include <set>

#include "generator/families/families.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_shares.h"
#include "generator/families/wgmma_samples.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "templates/pack.h"
#include "templates/wgmma_sm90.h"

namespace trigen {
namespace {

namespace geometry = wgmma_sm90;

std::string text(const llvm::Twine& t) { return t.str(); }

// Blocks are persistent: one on every SM, fewer when there is less to do.
uint32_t grid_of(const Problem& p, const Target& target, const Config& c) {
  const int64_t clusters = clusters_at_once(target, c.cluster);
  if (p.op == Op::kGradWeight) return static_cast<uint32_t>(clusters * c.cluster);
  const int64_t units = int64_t{geometry::row_tiles(c, static_cast<int>(p.T))} * p.H *
                        geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  return static_cast<uint32_t>(std::min(clusters, units) * c.cluster);
}

geometry::Shares shares_of(const Problem& p, const Target& target, const Config& c) {
  return weight_shares(p, c, static_cast<int>(grid_of(p, target, c)));
}

// dW leaves through the copy engine where it is aligned for that and its rows are whole pieces of 16 bytes
// (8), else in pairs or single elements.
int weight_vector(const Problem& p) {
  return p.walign >= 16 && whole_pieces(p.T, p.wdtype) ? 8 : p.walign >= 2 * element_size(p.wdtype) ? 2 : 1;
}

// The copy engine reads W, 16-bit or f32, in rows of 16 bytes (Config::vec_a = 8). A launch of its own packs
// f32 weights and those that are not aligned (vec_a: elements of one access). Aligned f32 weights allow both.
bool may_read(const Problem& p) { return p.op == Op::kGradWeight || p.walign >= 16; }
bool may_pack(const Problem& p) { return p.op != Op::kGradWeight && (p.wdtype != p.dtype || p.walign < 16); }
bool packs(const Problem& p, const Config& c) { return geometry::packs(kernel_shape(p), c); }
int pack_vector(const Problem& p) {  // at most
  return static_cast<int>(std::min<int64_t>(p.walign, 16) / element_size(p.wdtype));
}
// What configs() tries for vec_a.
std::vector<int> weight_reads(const Problem& p) {
  std::vector<int> reads;
  if (may_read(p)) reads.push_back(8);
  if (may_pack(p)) reads.push_back(pack_vector(p));
  return reads;
}

// Elements of one access to activations: of the copy engine, or single ones of the launches that pack them.
// Contiguous tokens are read and written as they lie in rows of 16-byte pieces, where nothing but the output
// and a multiplied residual has x's shape.
bool reads_tokens(const Problem& p) {
  return p.layout == Layout::kBDT && p.op != Op::kGradWeight && p.align >= 16 && whole_pieces(p.T, p.dtype) &&
         !geometry::exchanges(kernel_shape(p));
}
bool packs_any(const Problem& p) { return needs_packed_activations(p) && !reads_tokens(p); }
int activation_vector(const Problem& p) { return packs_any(p) ? 1 : 8; }

class WgmmaSm90 final : public Family {
 public:
  llvm::StringRef name() const override { return "wgmma_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_sm90.cuh"; }
  bool serves(const Target& target) const override { return target.wgmma; }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return geometry::shared_bytes(kernel_shape(p), c);
  }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (!serves(target)) return text(name() + " does not run on " + target.name + "; it needs sm_90a");
    if (auto why = reject_problem(p)) return why;
    if (c.tile_m != 128 && (c.tile_m != 64 || p.op == Op::kGradWeight))
      return text("tile_m=" + llvm::Twine(c.tile_m) + ": " + name() +
                  " takes 64 (forward, grad_input) or 128; try 128");
    if (p.op == Op::kGradWeight ? c.tile_n != 128 && c.tile_n != 256
                                : c.tile_n % 64 != 0 || c.tile_n < 64 || c.tile_n > 256)
      return text(
          "tile_n=" + llvm::Twine(c.tile_n) + ": " + name() +
          (p.op == Op::kGradWeight ? " takes 128 or 256 for grad_weight" : " takes 64, 128, 192 or 256") +
          "; try 256");
    if (c.tile_k != 64)
      return text("tile_k=" + llvm::Twine(c.tile_k) +
                  ": a swizzled row of shared memory holds 64 elements; try 64");
    if (c.warps_m != c.tile_m / 16 || c.warps_n != 1)
      return text("warps=" + llvm::Twine(c.warps_m) + "x" + llvm::Twine(c.warps_n) +
                  ": a warpgroup multiplies 64 rows; try warps=" + llvm::Twine(c.tile_m / 16) + "x1");
    const bool weight = p.op == Op::kGradWeight;
    if (c.cluster != 1 && (c.tile_m != 128 || c.cluster != (weight && c.tile_n == 128 ? 4 : 2)))
      return text("cluster=" + llvm::Twine(c.cluster) + ": " + name() + " takes " +
                  (!weight           ? "1, or 2 with tile_m=128"
                   : c.tile_n == 128 ? "1 or 4 with tile_n=128"
                                     : "1 or 2 with tile_n=256") +
                  "; try cluster=1");
    if (p.K > 1 && c.stages < 3)
      return text("stages=" + llvm::Twine(c.stages) +
                  ": taps hold two stages and wait for a third; try stages=3");
    if (c.stages < 2 || c.stages > 12)
      return text("stages=" + llvm::Twine(c.stages) + ": " + name() + " takes 2 to 12");
    if (geometry::store_panels(kernel_shape(p), c) < 1)
      return text("stages=" + llvm::Twine(c.stages) + " of " +
                  llvm::Twine(geometry::stage_bytes(kernel_shape(p), c)) + " B leave too little of " +
                  llvm::Twine(geometry::kSharedLimit) + " B of shared memory to stage the output; try " +
                  (c.stages > 2 ? "stages=" + llvm::Twine(c.stages - 1) : llvm::Twine("a smaller tile_n")));
    if (c.raster < 0) return text("raster=" + llvm::Twine(c.raster) + " is negative; 0 is one section");
    if (p.op != Op::kGradWeight && c.split_k > 1)
      return text("split_k=" + llvm::Twine(c.split_k) + " is for grad_weight only; try split_k=1");
    if (c.split_k < 1 || c.split_k > 65535)
      return text("split_k=" + llvm::Twine(c.split_k) + " is outside 1 to 65535");
    const int activation = activation_vector(p);
    const bool output =
        p.op != Op::kGradWeight ? c.vec_c == activation : c.vec_c == 8 || c.vec_c == 2 || c.vec_c == 1;
    if (p.op == Op::kGradWeight && output && c.vec_c > weight_vector(p))
      return text("vec_c=" + llvm::Twine(c.vec_c) + ": walign=" + llvm::Twine(p.walign) + " allows " +
                  llvm::Twine(weight_vector(p)));
    if (c.vec_a == 8 && !may_read(p))
      return text("vec_a=8: the copy engine reads rows of 16 bytes, walign=" + llvm::Twine(p.walign) +
                  "; try vec_a=" + llvm::Twine(pack_vector(p)));
    if (c.vec_a != 8 && may_pack(p) &&
        (c.vec_a < 1 || c.vec_a > pack_vector(p) || (c.vec_a & (c.vec_a - 1)) != 0))
      return text("vec_a=" + llvm::Twine(c.vec_a) + ": walign=" + llvm::Twine(p.walign) + " allows 1 to " +
                  llvm::Twine(pack_vector(p)) + ", powers of two" +
                  (may_read(p) ? ", and 8 without a packing launch" : "") +
                  "; try vec_a=" + llvm::Twine(weight_reads(p).front()));
    const int a = p.op == Op::kGradWeight ? activation : may_pack(p) ? c.vec_a : 8;
    if (c.vec_a != a || c.vec_b != activation || !output)
      return text(
          "vec=" + llvm::Twine(c.vec_a) + "x" + llvm::Twine(c.vec_b) + "x" + llvm::Twine(c.vec_c) +
          ": the copy engine moves 16 bytes, and what it cannot take is packed by elements; try vec=" +
          llvm::Twine(a) + "x" + llvm::Twine(activation) + "x" +
          llvm::Twine(p.op == Op::kGradWeight ? weight_vector(p) : activation));
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
    if (p.op == Op::kGradWeight) {
      constexpr struct {
        int tile_n, stages, cluster;
      } kWeightTiles[] = {{256, 4, 1}, {128, 6, 1}, {256, 4, 2}, {128, 6, 4}};
      for (const auto& t : kWeightTiles) {
        // Clusters share loads where a row tile of 256 is not mostly empty.
        if (t.cluster > 1 && p.T <= 128) continue;
        Config c = config(p, 128, t.tile_n, t.stages, t.cluster);
        const geometry::Shares shares = shares_of(p, target, c);
        std::set<int> splits = weight_splits(shares);
        // A block less than fills the machine often beats a last round that few have.
        if (geometry::squares(p.op, c))
          for (int split : std::set<int>(splits)) splits.insert(std::max(1, split - 1));
        for (int split : splits) {
          if (split > shares.depth) continue;
          c.split_k = split;
          add(c);
        }
      }
      return out;
    }
    constexpr struct {
      int tile_m, tile_n, stages;
    } kTiles[] = {{128, 256, 4}, {128, 256, 3}, {128, 192, 4}, {128, 128, 5},
                  {128, 128, 6}, {128, 64, 6},  {64, 256, 4},  {64, 128, 6}};
    const int64_t panels = p.B * ((p.D + 63) / 64);  // of one head
    const Shape shape = kernel_shape(p);
    for (const auto& t : kTiles) {
      // A tile more than twice as large as the product only adds waste.
      if (t.tile_m > 64 && p.T <= 64) continue;
      if (t.tile_n > 64 && t.tile_n / 128 >= panels) continue;
      for (int cluster : {1, 2}) {
        Config c = config(p, t.tile_m, t.tile_n, t.stages, cluster);
        const int rows = geometry::row_tiles(c, static_cast<int>(p.T)),
                  clusters = std::max(1, target.sms / cluster);
        const int64_t columns = p.H * geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
        // Sections that fill whole rounds of the machine, and round numbers.
        const int even = clusters / std::gcd(clusters, rows);
        for (int raster : std::set<int>{0, 8, 16, 32, even, 2 * even}) {
          // Narrower sections than one round would be widened by the kernel.
          if (raster > 0 && (raster >= columns || raster < clusters / rows)) continue;
          c.raster = raster;
          for (int read : weight_reads(p)) {
            Config own = c;
            own.vec_a = read;
            // f32 weights take more of a stage: as many stages as there is room for.
            if (geometry::reads_f32_weights(shape, own))
              while (own.stages > 2 && geometry::store_panels(shape, own) < 1) --own.stages;
            if (llvm::find(out, own) == out.end()) add(own);
          }
        }
      }
    }
    return out;
  }

  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    if (!serves(target) || reject_problem(p)) return std::nullopt;
    if (p.K > 1) return std::nullopt;  // one source for all sizes has one tap
    Config c = config(p, 128, 256, 4, 1);
    if (p.op != Op::kGradWeight) c.vec_a = weight_reads(p).back();
    if (p.op == Op::kGradWeight)
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
    Launch product{.entry = entry_name(p.op).str(),
                   .grid = {grid, 1, 1},
                   .block = {static_cast<uint32_t>(geometry::threads(c)), 1, 1},
                   .cluster = static_cast<uint32_t>(c.cluster),
                   .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c)),
                   .maps = {},
                   .early = true,
                   .register_threads = static_cast<uint32_t>(geometry::register_threads(c))};
    const Tensor weights = packs(p, c) ? Tensor::kPackedW : Tensor::kW;
    if (packs(p, c)) {
      plan.launches.push_back(pack_launch(p));
      plan.workspace_bytes = packing::workspace_bytes(static_cast<int>(p.T), 1, static_cast<int>(p.H));
    }
    switch (p.op) {
      case Op::kForward:
        product.maps = {weights, Tensor::kX, Tensor::kY};
        break;
      case Op::kGradInput:
        product.maps = {weights, Tensor::kY, Tensor::kX};
        break;
      case Op::kDecode:
        break;  // rejected
      // Single taps whose rows are aligned leave through the copy engine.
      case Op::kGradWeight:
        product.maps = {Tensor::kY, Tensor::kX, c.vec_c == 8 && p.K == 1 ? Tensor::kW : Tensor::kX};
        break;
    }
    if (p.epilogue.pre) product.maps.push_back(Tensor::kPre);
    if (p.epilogue.gate) product.maps.push_back(Tensor::kGate);
    if (p.epilogue.residual) product.maps.push_back(Tensor::kResidual);
    plan.launches.push_back(std::move(product));
    // With tiles of one width, none of them shared, there is nothing to add.
    if (p.op == Op::kGradWeight && (c.split_k > 1 || c.tile_n > 128)) {
      plan.launches.push_back({.entry = kReduceEntry.str(),
                               .grid = {grid * geometry::reduce_blocks(c), 1, 1},
                               .block = {geometry::kReduceThreads, 1, 1},
                               .cluster = 1,
                               .shared_bytes = geometry::kReduceSharedBytes,
                               .maps = {},
                               .early = geometry::admits_reduction(c),
                               .register_threads = geometry::admits_reduction(c) ? 1024u : 0u});
      plan.workspace_bytes = 4 * shares_of(p, target, c).workspace();
    }
    if (packs_activations(p, c)) pack_activations(p, plan);
    return plan;
  }

  std::vector<Sample> samples(const Problem& p, const Target& target, const Config& c) const override {
    if (packs_activations(p, c)) return {};  // several launches' work
    return wgmma_samples(*this, p, target, c);
  }
  Work work(const Problem& p, const Target& target, const Config& c, int sms) const override;

 private:
  static Config config(const Problem& p, int tile_m, int tile_n, int stages, int cluster) {
    const bool weight = p.op == Op::kGradWeight;
    const int activation = activation_vector(p);
    return {.tile_m = tile_m,
            .tile_n = tile_n,
            .tile_k = 64,
            .warps_m = tile_m / 16,
            .warps_n = 1,
            .stages = stages,
            .split_k = 1,
            .raster = 0,
            .vec_a = weight ? activation : 8,
            .vec_b = activation,
            .vec_c = weight ? weight_vector(p) : activation,
            .cluster = cluster,
            .blocks = 1};
  }

  // What this family does not make, whatever the config.
  std::optional<std::string> reject_problem(const Problem& p) const {
    const auto no = [&](const llvm::Twine& why) { return text(name() + " " + why + "; use another family"); };
    if (p.op == Op::kDecode) return no("makes whole products, not the rows of decode");
    if (p.dtype == DType::kF32) return no("multiplies 16-bit data");
    if (p.op != Op::kGradWeight && (p.K != 1 || p.pad != 0))
      return no("makes K=1 with pad=0: the copy engine cannot shift by single elements");
    if (packs_any(p))
      if (const auto why = too_many_to_pack(p)) return no(*why);
    if (p.op == Op::kGradWeight)
      if (const auto why = too_many_shares(p, 64)) return no(*why);
    return std::nullopt;
  }
};

Work WgmmaSm90::work(const Problem& p, const Target& target, const Config& c, int) const {
  const int grid = static_cast<int>(grid_of(p, target, c));
  if (p.op == Op::kGradWeight) return shared_weight_work(p, target, c, grid);
  const Shape shape = kernel_shape(p);
  const ProductWalk walk(
      p, c, geometry::row_tiles(c, static_cast<int>(p.T)),
      static_cast<int>(p.H) * geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D)),
      grid / c.cluster);
  const bool f32_weights = geometry::reads_f32_weights(shape, c);
  const bool residual = geometry::multiplies_residual(shape);
  const double rows = c.tile_m * (f32_weights ? 2.0 : 1.0);  // of 128 bytes, of A in a stage
  const Epilogue& e = p.epilogue;
  Work work{.rates = "ring",
            .steps = {{.products = static_cast<double>(c.tile_m) * c.tile_n * geometry::kPanel,
                       .feed_bytes = 128 * (rows / c.cluster + c.tile_n),
                       .f32_bytes = f32_weights ? 128 * rows / c.cluster : 0}},
            .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n,
                     .act = e.act,
                     .exchanged = e.pre + e.gate + (e.residual && !residual)},
            .stages = c.stages,
            .cluster = c.cluster};
  // Buffers for a part of the tile: what comes in waits for what leaves.
  if (geometry::exchanges(shape))
    work.tile.waits = 1 - static_cast<double>(geometry::store_panels(shape, c)) / geometry::panels(c);
  std::vector<Run> tiles = reached_tiles(walk, c, static_cast<int>(p.T));
  double steps = 0;
  for (Run& tile : tiles) {
    steps += tile.steps[0];
    tile.steps[0] += residual ? 1 : 0;  // multiplied as one more block of k
  }
  put_product(work, walk, tiles);
  const double width = static_cast<double>(walk.section) * c.cluster * c.tile_n;
  work.rereads = {panel_reread(p, walk, width, steps * geometry::kPanel)};
  work.memory_bytes = count_work(p).min_bytes;
  work.l2_bytes = steps * walk.columns * c.cluster * work.steps[0].feed_bytes;
  if (packs(p, c)) {
    const double weights = static_cast<double>(p.H * p.T) * static_cast<double>(p.T) / 2;
    work.passes.push_back({"pack", weights * (2 + static_cast<double>(element_size(p.wdtype)))});
  }
  put_copies(work, p, c);
  return work;
}

}  // namespace

const Family& wgmma_sm90_family() {
  static const WgmmaSm90 family;
  return family;
}

}  // namespace trigen
