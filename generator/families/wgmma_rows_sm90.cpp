#include "templates/wgmma_rows_sm90.h"

#include "generator/families/families.h"
#include "generator/families/persistent_family.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weights.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = wgmma_rows_sm90;

// Features that an access takes at once: two where rows begin at words.
int access_elements(const Problem& p) { return p.align >= 4 ? 2 : 1; }

// Worth a try: a launch that packs W with zeros around its triangle, or masks in shared memory where TMA brings W itself. Beside
// a second output these would spill.
std::vector<Access> weight_paths(const Problem& p) {
  if (p.wdtype == p.dtype && p.walign >= 16 && !p.epilogue.pre) return {Access::kDirect, Access::kPacked};
  return {Access::kPacked};
}

class Rows final : public PersistentKernel {
 public:
  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const std::string widths = ("align=" + llvm::Twine(p.align) + " leaves no choice").str();
    ConfigKey tokens{&Config::tile_m, {64, 128, 192, 256}, "tokens are the columns of an instruction"};
    const Epilogue& e = p.epilogue;
    const int beside = e.gate + e.residual;
    if (e.pre || beside > 1 || (beside > 0 && e.act != Activation::kNone && access_elements(p) == 1))
      tokens = {&Config::tile_m, {64, 128}, "more sums beside this epilogue would spill"};
    return {std::move(tokens),
            {&Config::tile_n, {64, 128}, "a warpgroup multiplies 64 features"},
            {&Config::tile_k, {64}, "a swizzled row of shared memory holds 64 elements"},
            {&Config::warps_m, {c.tile_n / 16}, "a warpgroup multiplies 64 features"},
            {&Config::warps_n, {1}, "a warpgroup is 4 warps along the features"},
            {&Config::cluster, {1}, "blocks share nothing"},
            range_key(&Config::stages, c.weights == Access::kPacked ? 2 : 4, geometry::kMostStages),
            {&Config::split_k, {1}, "is for grad_weight and gram"},
            raster_key(),
            weights_key(p),
            {&Config::activations, {Access::kDirect}, "reads rows as they lie"},
            c.weights == Access::kPacked ? read_key(p) : vector_key(&Config::vec_a, 8),
            {&Config::vec_b, {access_elements(p)}, widths},
            {&Config::vec_c, {access_elements(p)}, widths},
            blocks_key()};
  }

  int stage_bytes(const Problem&, const Config& c) const override { return geometry::stage_bytes(c); }
  bool fits(const Problem&, const Config& c) const override {
    return geometry::shared_bytes(c) <= geometry::kSharedLimit;
  }
  int64_t shared_bytes(const Problem&, const Config& c) const override { return geometry::shared_bytes(c); }
  int threads(const Problem&, const Config& c) const override { return geometry::threads(c); }
  int column_units(const Problem& p, const Config& c) const override {
    return geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  }

  std::vector<Config> space(const Problem& p, const Target& target) const override {
    constexpr struct {
      int tile_m, tile_n, stages;
    } kTiles[] = {{256, 128, 4}, {256, 128, 3}, {192, 128, 4}, {128, 128, 6},
                  {256, 64, 5},  {128, 64, 8},  {64, 128, 7},  {64, 64, 12}};
    std::vector<Config> out;
    const int64_t panels = p.B * ((p.D + geometry::kPanel - 1) / geometry::kPanel);
    for (const auto& t : kTiles) {
      // Tiles of more tokens or panels than there are only add waste.
      if (t.tile_m >= 2 * std::max<int64_t>(64, (p.T + 63) / 64 * 64) || (t.tile_n > 64 && panels == 1))
        continue;
      for (Access path : weight_paths(p)) {
        const Config c = completed(p, {.tile_m = t.tile_m,
                                       .tile_n = t.tile_n,
                                       .stages = t.stages,
                                       .vec_a = path == Access::kPacked ? most_read(p) : 8,
                                       .weights = path});
        for (const Config& own : with_sections(p, target, c, {8, 16, 32}, 2, true)) out.push_back(own);
      }
    }
    return out;
  }
  std::optional<Config> any_size(const Problem&) const override { return std::nullopt; }

  void add_launches(const Problem& p, const Target& target, const Config& c, Launch product,
                    LaunchPlan& plan) const override {
    const WeightOperand weights =
        c.weights == Access::kPacked ? packed_weights(p, target) : direct_weights(p);
    prepare_weights(weights, plan);
    product.maps = {weights.map};
    plan.launches.push_back(std::move(product));
  }

  Work work(const Problem& p, const Target& target, const Config& c) const override {
    const int blocks = static_cast<int>(grid(p, target, c));
    const ProductWalk walk(p, c, row_tiles(p, c), static_cast<int>(p.H) * column_units(p, c), blocks);
    const Epilogue& e = p.epilogue;
    // What lands in shared memory, W's panels for each warpgroup, and its fragments of x: rows that begin apart meet in banks, and
    // what begins inside words is read by halves. Together they reach so much less than the banks carry (by hand, on an H100's
    // times of 14 kernels of five problems, 2026-11-28).
    constexpr double kMeetings = 1.35;
    const double fragments = 2.0 * geometry::kPanelBytes * (access_elements(p) == 1 ? 1.5 : 1),
                 panels = geometry::token_panels(c) * static_cast<double>(geometry::kPanelBytes);
    Work work{.rates = "rows",
              .steps = {{.products = static_cast<double>(c.tile_m) * c.tile_n * geometry::kPanel,
                         .feed_bytes = static_cast<double>(geometry::stage_bytes(c)),
                         .shared_bytes = kMeetings * (geometry::stage_bytes(c) +
                                                      geometry::consumers(c) * (panels + fragments))}},
              .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n,
                       .act = e.act,
                       .exchanged = e.pre + e.gate + e.residual,
                       .waits = 1},
              .stages = c.stages,
              .warpgroups = geometry::consumers(c)};
    const std::vector<Run> tiles = reached_tiles(walk, c, static_cast<int>(p.T));
    double steps = 0;
    for (const Run& tile : tiles) steps += tile.steps[0];
    put_product(work, p, walk, tiles);
    put_common_bytes(work, p, walk, steps, static_cast<double>(c.stages) * geometry::stage_bytes(c));
    work.rereads = {
        panel_reread(p, walk, static_cast<double>(walk.section) * c.tile_n, steps * geometry::kPanel)};
    work.memory_bytes = count_work(p).min_bytes;
    work.l2_bytes = steps * walk.columns * work.steps[0].feed_bytes;
    if (c.weights == Access::kPacked) work.passes.push_back({"pack", packing_bytes(p)});
    return work;
  }

 private:
  static ConfigKey weights_key(const Problem& p) {
    return {&Config::weights, weight_paths(p),
            "TMA reads 16-bit rows of W that begin at 16 bytes, a launch packs all others"};
  }
};

class WgmmaRowsSm90 final : public PersistentFamily {
 public:
  llvm::StringRef name() const override { return "wgmma_rows_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_rows_sm90.cuh"; }

 protected:
  std::optional<std::string> refuse(const Problem& p) const override {
    if (p.dtype == DType::kF32) return "multiplies 16-bit data";
    if (is_weight(p)) return ("makes rows, the op is " + to_string(p.op)).str();
    if (p.K != 1 || p.pad != 0) return "makes K=1 with pad=0";
    if (p.layout != Layout::kBTD)
      return "reads features that are contiguous, layout=bdt has contiguous tokens";
    if (!needs_packed_activations(p))
      return "is for rows that TMA cannot take, these begin and end at 16 bytes";
    return too_many_to_pack_weights(p);
  }
  const PersistentKernel& kernel(Op) const override { return rows_; }

 private:
  Rows rows_;
};

}  // namespace

const Family& wgmma_rows_sm90_family() {
  static const WgmmaRowsSm90 family;
  return family;
}

}  // namespace trigen
