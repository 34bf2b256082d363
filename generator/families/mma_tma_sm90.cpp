#include "templates/mma_tma_sm90.h"

#include "generator/families/families.h"
#include "generator/families/persistent_family.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weights.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = mma_tma_sm90;

// TMA reads rows of 16 bytes; a launch of its own packs others, f32, and what stands for W.
Access weight_path(const Problem& p) {
  return p.w != WeightForm::kDense || p.wdtype != p.dtype || p.walign < 16 ? Access::kPacked
                                                                           : Access::kDirect;
}

class Product final : public PersistentKernel {
 public:
  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const bool packed = weight_path(p) == Access::kPacked;
    return {{&Config::tile_m, {64, 128, 256}},
            {&Config::tile_n, {64, 128, 256}},
            {&Config::tile_k, {64}, "a swizzled row of shared memory holds 64 elements"},
            {&Config::warps_m, warps_along_m(c), "4 or 8 warps multiply 32 or 64 rows each"},
            {&Config::warps_n, warps_along_n(c, c.warps_m), "4 or 8 warps multiply 32 or 64 columns each"},
            {&Config::cluster, {1}, "is no choice here: blocks share no loads"},
            range_key(&Config::stages, 2, geometry::kMostStages),
            raster_key(),
            split_key(p),
            ConfigKey(&Config::weights, {weight_path(p)},
                      "TMA reads rows of 16 bytes, and f32 or unaligned weights alone are packed"),
            packed ? read_key(p) : vector_key(&Config::vec_a, 8),
            vector_key(&Config::vec_b, 8),
            vector_key(&Config::vec_c, 8),
            blocks_key()};
  }

  int stage_bytes(const Problem&, const Config& c) const override { return geometry::stage_bytes(c); }
  bool fits(const Problem&, const Config& c) const override {
    return geometry::shared_bytes(c) <= persistent::kSharedLimit;
  }
  int64_t shared_bytes(const Problem&, const Config& c) const override { return geometry::shared_bytes(c); }
  int threads(const Problem&, const Config& c) const override { return geometry::threads(c); }
  int column_units(const Problem& p, const Config& c) const override {
    return geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  }

  std::vector<Config> space(const Problem& p, const Target& target) const override {
    // Targets with wgmma have faster kernels: --config alone asks for these there.
    if (target.wgmma) return {};
    constexpr struct {
      int tile_m, tile_n, warps_m, warps_n;
    } kTiles[] = {{128, 256, 2, 4}, {256, 128, 4, 2}, {128, 128, 2, 4}, {128, 128, 4, 2},
                  {64, 256, 2, 4},  {128, 64, 4, 2},  {64, 128, 2, 4},  {64, 64, 2, 2}};
    std::vector<Config> out;
    const int64_t panels = p.B * ((p.D + 63) / 64);  // of one head
    for (const auto& t : kTiles) {
      // A tile more than twice as large as the product only adds waste.
      if (t.tile_m > 64 && p.T <= t.tile_m / 2) continue;
      if (t.tile_n > 64 && t.tile_n / 128 >= panels) continue;
      Config tile = config(p, t.tile_m, t.tile_n, t.warps_m, t.warps_n);
      for (int stages = 2; stages <= 6; ++stages) {
        tile.stages = stages;
        if (!fits(target, tile)) break;
        for (const Config& c : with_sections(p, target, tile, {8, 16, 32}, 2)) out.push_back(c);
      }
    }
    return out;
  }
  std::optional<Config> any_size(const Problem& p) const override {
    Config c = config(p, 128, 128, 2, 4);
    c.stages = 3;
    return c;
  }

  void add_launches(const Problem& p, const Target& target, const Config& c, Launch product,
                    LaunchPlan& plan) const override {
    const WeightOperand weights = p.w != WeightForm::kDense           ? strip_weights(p, target)
                                  : weight_path(p) == Access::kPacked ? packed_weights(p, target)
                                                                      : direct_weights(p);
    prepare_weights(weights, plan);
    product.maps = {with_rows(weights.map, c.tile_m / geometry::boxes_a(kernel_shape(p), c)),
                    activation_map(p, p.op == Op::kForward ? MapSource::kX : MapSource::kY)};
    plan.launches.push_back(std::move(product));
  }

  Work work(const Problem& p, const Target& target, const Config& c) const override;

  static bool fits(const Target& target, const Config& c) {
    return geometry::shared_bytes(c) <= target.max_shared_per_block;
  }

 private:
  // Warps make one warpgroup or two, each warp 32 or 64 rows and columns.
  static ConfigKey::Values warps_along_n(const Config& c, int warps_m) {
    ConfigKey::Values out;
    for (const int warps_n : {c.tile_n / 64, c.tile_n / 32})
      if (warps_m * warps_n == 4 || warps_m * warps_n == 8) out.push_back(warps_n);
    return out;
  }
  static ConfigKey::Values warps_along_m(const Config& c) {
    ConfigKey::Values out;
    for (const int warps_m : {c.tile_m / 64, c.tile_m / 32})
      if (!warps_along_n(c, warps_m).empty()) out.push_back(warps_m);
    return out;
  }
  Config config(const Problem& p, int tile_m, int tile_n, int warps_m, int warps_n) const {
    const int vec_a = weight_path(p) == Access::kDirect ? 8 : most_read(p);
    return completed(p, {.tile_m = tile_m,
                         .tile_n = tile_n,
                         .warps_m = warps_m,
                         .warps_n = warps_n,
                         .stages = 2,
                         .vec_a = vec_a});
  }
};

Work Product::work(const Problem& p, const Target& target, const Config& c) const {
  const ProductWalk walk(p, c, row_tiles(p, c), static_cast<int>(p.H) * column_units(p, c),
                         static_cast<int>(grid(p, target, c)));
  const bool split_a = c.weights == Access::kDirect && splits_lines(p.T, p.wdtype),
             split_b = activations_split_lines(p, c);
  const Epilogue& e = p.epilogue;
  Work work{
      .rates = "ring_mma",
      .steps = {{.products = static_cast<double>(c.tile_m) * c.tile_n * geometry::kPanel,
                 .feed_bytes = 128.0 * (c.tile_m + c.tile_n),
                 .split_bytes = 128.0 * ((split_a ? c.tile_m : 0) + (split_b ? c.tile_n : 0)),
                 // TMA's writes, and each warp's fragments.
                 .shared_bytes = 128.0 * (c.tile_m * (1 + c.warps_n) + c.tile_n * (1 + c.warps_m))}},
      .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n,
               .act = e.act,
               .exchanged = e.pre + e.gate + e.residual},
      .stages = c.stages,
      .warpgroups = geometry::consumers(c),
      .mma_sync = true,
  };
  const std::vector<Run> tiles = reached_tiles(walk, c, static_cast<int>(p.T));
  double steps = 0;
  for (const Run& tile : tiles) steps += tile.steps[0];
  put_product(work, p, walk, tiles);
  work.rereads = {
      panel_reread(p, walk, static_cast<double>(walk.section) * c.tile_n, steps * geometry::kPanel)};
  work.memory_bytes = count_work(p).min_bytes;
  work.l2_bytes = steps * walk.columns * work.steps[0].feed_bytes;
  if (c.weights == Access::kPacked) {
    work.passes.push_back({"pack", packing_bytes(p)});
  }
  return work;
}

class MmaTmaSm90 final : public PersistentFamily {
 public:
  llvm::StringRef name() const override { return "mma_tma_sm90"; }
  llvm::StringRef template_file() const override { return "mma_tma_sm90.cuh"; }
  bool serves(const Target& target) const override { return target.setmaxnreg; }
  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (auto why = PersistentFamily::reject(p, target, c)) return why;
    if (Product::fits(target, c)) return std::nullopt;
    return ("stages=" + llvm::Twine(c.stages) + " need " + llvm::Twine(geometry::shared_bytes(c)) +
            " B of shared memory, " + target.name + " allows " + llvm::Twine(target.max_shared_per_block) +
            " B; try " +
            (c.stages > 2 ? "stages=" + llvm::Twine(c.stages - 1) : llvm::Twine("a smaller tile")))
        .str();
  }
  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    return target.wgmma ? std::nullopt : PersistentFamily::generic_config(p, target);
  }

 protected:
  llvm::StringRef served() const override { return "sm_90a, sm_100a or sm_120a"; }
  std::optional<std::string> refuse(const Problem& p) const override {
    if (makes_weights(p.op)) return "makes forward and grad_input";
    if (p.dtype == DType::kF32) return "multiplies 16-bit data";
    if (p.K != 1 || p.pad != 0) return "makes K=1 with pad=0: TMA cannot shift by single elements";
    if (needs_packed_activations(p)) return "reads rows of 16-byte pieces along the features (layout=btd)";
    if (weight_path(p) == Access::kPacked) return too_many_to_pack_weights(p);
    return std::nullopt;
  }
  bool takes_forms() const override { return true; }
  const PersistentKernel& kernel(Op) const override { return product_; }

 private:
  Product product_;
};

}  // namespace

const Family& mma_tma_sm90_family() {
  static const MmaTmaSm90 family;
  return family;
}

}  // namespace trigen
