#include "templates/wgmma_resident_sm90.h"

#include <algorithm>

#include "generator/families/families.h"
#include "generator/families/persistent_family.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weights.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace resident = wgmma_resident_sm90;

// TMA takes 16-bit W in rows of 16 bytes, threads any W (templates/wgmma_resident_sm90/weights.cuh).
bool tma_takes_weights(const Problem& p) { return p.wdtype == p.dtype && p.walign >= 16; }

class ResidentProduct final : public PersistentKernel {
 public:
  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const Shape shape = kernel_shape(p);
    return {{&Config::tile_m,
             {resident::kPanel * resident::rows(shape)},
             "a tile holds all tokens, in blocks of 64"},
            {&Config::tile_n, {64, 128, 256}, "a stage is one, two or four panels of 64 features"},
            {&Config::tile_k, {resident::kPanel}, "a swizzled row of shared memory holds 64 elements"},
            {&Config::warps_m,
             {4 * resident::team(shape)},
             "a warpgroup is 4 warps along m, of more than 192 tokens two share a panel"},
            warps_key(shape, c),
            {&Config::cluster, {1}, "no stage is shared between blocks"},
            box_key(p),
            raster_key(p),
            split_key(p),
            weights_key(p),
            c.weights == Access::kPacked ? read_key(p) : weights_vector_key(p),
            vector_key(&Config::vec_b, 8),
            vector_key(&Config::vec_c, 8),
            blocks_key(),
            stages_key(shape, c)};
  }

  int stage_bytes(const Problem& p, const Config& c) const override {
    return resident::stage_bytes(kernel_shape(p), c);
  }
  bool fits(const Problem& p, const Config& c) const override { return resident::fits(kernel_shape(p), c); }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return resident::shared_bytes(kernel_shape(p), c);
  }
  int threads(const Problem&, const Config& c) const override { return resident::threads(c); }
  int column_units(const Problem& p, const Config& c) const override {
    return resident::stages_of_head(static_cast<int>(p.B), static_cast<int>(p.D), c);
  }

  std::vector<Config> space(const Problem& p, const Target&) const override {
    const Shape shape = kernel_shape(p);
    const bool one_block = p.T <= resident::kPanel, teams = resident::team(shape) > 1;
    // More on the way than needed disturbs the stores, at 64 tokens by a tenth
    // (docs/experiments/wgmma_resident_sm90.md).
    const auto room_of = [&](int width) {
      if (teams) return width > 64 ? persistent::kSharedLimit : 160 << 10;
      if (one_block && width > 128) return 96 << 10;
      return one_block && p.T > resident::kPanel / 2 ? 64 << 10 : persistent::kSharedLimit;
    };
    std::vector<Config> out;
    for (const int box : narrow_boxes(p))
      for (const int raster : rasters(p))
        for (int width = 64; width <= widest(p, raster); width *= 2) {
          const int room = room_of(width), first = one_block && width <= 128 ? 2 : 1;
          for (int consumers = first; consumers < first + 2; ++consumers) {
            Config c = config(p, width, consumers, raster, box);
            if (!resident::holds_weights(shape, c)) continue;
            // With claims and in teams a residual's half of the ring is beside that.
            const bool beside = resident::claims(c) || teams;
            const auto ring = [&] {
              return c.stages * (beside ? width / resident::kPanel * resident::panel_bytes(shape)
                                        : resident::stage_bytes(shape, c));
            };
            c.stages = resident::kMostStages / consumers * consumers;
            while (c.stages > 2 * consumers && (!resident::fits(shape, c) || ring() > room))
              c.stages -= consumers;
            if (width > 64 && ring() > room) continue;
            out.push_back(c);
            if (width > 64 && teams) continue;
            c.stages = teams ? c.stages - 1 : std::max(2, c.stages / 2 / consumers) * consumers;
            if (c.stages >= 2 * consumers) out.push_back(c);
          }
        }
    return out;
  }
  // Fragments are a matter of T.
  std::optional<Config> any_size(const Problem&) const override { return std::nullopt; }

  void add_launches(const Problem& p, const Target& target, const Config& c, Launch product,
                    LaunchPlan& plan) const override {
    const Shape shape = kernel_shape(p);
    const WeightOperand weights =
        c.weights == Access::kPacked ? packed_weights(p, target) : direct_weights(p);
    prepare_weights(weights, plan);
    if (resident::claims(c)) {
      plan.launches.push_back({.entry = kClaimsEntry.str(), .block = {32, 1, 1}, .early = true});
      plan.workspace_bytes = resident::claims_at(shape, c) + sizeof(uint32_t);
    }
    const bool forward = p.op == Op::kForward, tokens = p.layout == Layout::kBDT;
    const auto map = [&](MapSource source) {
      const TensorMapSpec whole = activation_map(p, source, tokens);
      return tokens ? whole
                    : with_columns(with_rows(whole, resident::lines(shape)), resident::box_features(c));
    };
    if (!resident::stages_weights(shape, c)) product.maps.push_back(weights.map);
    product.maps.push_back(map(forward ? MapSource::kX : MapSource::kY));
    product.maps.push_back(map(forward ? MapSource::kY : MapSource::kX));
    if (p.epilogue.residual) product.maps.push_back(map(MapSource::kResidual));
    plan.launches.push_back(std::move(product));
  }

  Work work(const Problem& p, const Target& target, const Config& c) const override;

 private:
  static int widest(const Problem& p, int raster) {
    if (resident::team(kernel_shape(p)) > 1) return splits_sectors(p) ? 128 : 64;
    return raster == 2 && splits_sectors(p) ? 256 : 128;
  }
  // Claims are behind a launch of their own: for outputs that the L2 cannot hold.
  static std::vector<int> rasters(const Problem& p) {
    if (p.H > 1 || !exceeds_l2(p)) return {1};
    return {2, 1};
  }
  static ConfigKey raster_key(const Problem& p) {
    ConfigKey key{&Config::raster, {1, 0}, "blocks take stages in turn, or a run each"};
    if (p.H > 1) return key;
    key.allowed.push_back(2);
    key.why = "blocks take stages in turn, a run each, or claim them";
    return key;
  }
  // Of two warpgroups' triangle threads would take 30 us to bring as much (docs/experiments/wgmma_resident_sm90.md).
  static Access weights_path(const Problem& p) {
    return tma_takes_weights(p) || p.T <= resident::kMostBrought ? Access::kDirect : Access::kPacked;
  }
  static ConfigKey weights_key(const Problem& p) {
    return {&Config::weights,
            {weights_path(p)},
            "f32 or unaligned W is packed for more than 192 tokens, and read as it lies for fewer"};
  }
  static ConfigKey weights_vector_key(const Problem& p) {
    ConfigKey key{&Config::vec_a, {1}, "TMA moves 16 bytes of W, threads an element"};
    if (tma_takes_weights(p)) key.allowed.push_back(8);
    return key;
  }
  static ConfigKey warps_key(const Shape& shape, Config c) {
    ConfigKey key{&Config::warps_n, {}, "is of warpgroups whose registers hold W"};
    c.tile_m = resident::kPanel * resident::rows(shape);
    c.warps_m = 4 * resident::team(shape);
    for (c.warps_n = 1; c.warps_n <= 3; ++c.warps_n)
      if (resident::holds_weights(shape, c)) key.allowed.push_back(c.warps_n);
    return key;
  }
  static ConfigKey stages_key(const Shape& shape, Config c) {
    ConfigKey key{&Config::stages, {}, "is of a ring that fits, of which warpgroups have equal shares"};
    const int consumers = std::max(1, c.warps_n);
    for (c.stages = 2 * consumers; c.stages <= resident::kMostStages; c.stages += consumers)
      if (resident::fits(shape, c)) key.allowed.push_back(c.stages);
    return key;
  }
  static std::vector<int> narrow_boxes(const Problem& p) {
    return p.layout == Layout::kBTD ? boxes(p) : std::vector<int>{0};
  }
  static ConfigKey box_key(const Problem& p) {
    if (p.layout == Layout::kBDT) return {&Config::box, {0}, "a box holds 64 contiguous tokens"};
    return boxes_key();
  }
  Config config(const Problem& p, int width, int consumers, int raster, int box) const {
    // Threads are faster where they bring half a block at most.
    const bool tma = tma_takes_weights(p) && p.T > resident::kPanel / 2;
    const Access path = weights_path(p);
    return completed(p, {.tile_n = width,
                         .warps_n = consumers,
                         .stages = 2 * consumers,
                         .raster = raster,
                         .vec_a = path == Access::kPacked ? most_read(p)
                                  : tma                   ? 8
                                                          : 1,
                         .box = box,
                         .weights = path});
  }
};

// A step is a panel: all of its rows' blocks of k.
Work ResidentProduct::work(const Problem& p, const Target& target, const Config& c) const {
  const int blocks = static_cast<int>(grid(p, target, c));
  const Shape shape = kernel_shape(p);
  const double block = resident::kPanel, panels_of_stage = resident::panels(c);
  Work work{.rates = resident::claims(c) ? llvm::StringLiteral("claimed") : llvm::StringLiteral("resident"),
            .steps = {{.products = panels_of_stage * resident::units(shape) * block * block * block,
                       .feed_bytes = static_cast<double>(resident::stage_bytes(shape, c))}},
            .tile = {.elements = panels_of_stage * resident::lines(shape) * block, .act = p.epilogue.act},
            .stages = c.stages,
            .warpgroups = resident::multiplying(c),
            .threads = resident::threads(c),
            .registers = resident::first_registers(c),
            .shared_bytes = resident::shared_bytes(shape, c),
            .blocks = c.blocks};
  if (activations_split_lines(p, c)) work.steps[0].split_bytes = work.steps[0].feed_bytes;
  put_runs(work, blocks, false, [&](int index) {
    const resident::StageWalk walk =
        resident::walk_of_block(shape, c, static_cast<int>(p.B), shape.D, blocks, index);
    const double stages = resident::claims(c)
                              ? static_cast<double>(walk.of_head) / blocks
                              : std::max(0, schedule::ceil_div(walk.last - walk.first, walk.step));
    return Run{.steps = {stages}, .tiles = stages};
  });
  const double panels = static_cast<double>(p.H) * column_units(p, c);
  work.all.steps = {panels};
  work.all.tiles = panels;
  work.memory_bytes = memory_of_product(p);
  // Of a team by 329,256,648 and 256,256,456 (an H200, 2026-11-30).
  work.memory_bytes += memory_of_split_sectors(p, resident::team(c) > 1 ? 112 : 32);
  if (c.weights == Access::kPacked) work.passes.push_back({"pack", packing_bytes(p)});
  if (resident::stages_weights(shape, c) && resident::rows(shape) > 1)
    work.passes.push_back(
        {.rates = "bring_weights",
         .bytes = 2.0 * static_cast<double>(p.T * (p.T + 1)),  // four for each of a triangle
         .launches = 0});
  if (resident::team(c) >
      1)  // x waits for W that lies in its stages: 0.65 us by 64,256,512 and 128,256,512 (an H200, 2026-11-30)
    work.passes.push_back({.rates = "bring_weights", .bytes = 9750, .launches = 0});
  work.l2_bytes = panels * work.steps[0].feed_bytes + blocks * resident::units(shape) * resident::kPanelBytes;
  return work;
}

class WgmmaResidentSm90 final : public PersistentFamily {
 public:
  llvm::StringRef name() const override { return "wgmma_resident_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_resident_sm90.cuh"; }

 protected:
  std::optional<std::string> refuse(const Problem& p) const override {
    if (p.dtype == DType::kF32) return "multiplies 16-bit data";
    if (is_weight(p)) return "makes forward and grad_input";
    if (p.K != 1 || p.pad != 0) return "makes K=1 with pad=0";
    if (p.T > resident::kMostTokens)
      return text("keeps W of at most " + llvm::Twine(resident::kMostTokens) +
                  " tokens in registers, T=" + llvm::Twine(p.T));
    if (p.T > resident::kMostBrought && !tma_takes_weights(p))
      if (auto why = too_many_to_pack_weights(p)) return why;
    const Epilogue& e = p.epilogue;
    if (e.pre || e.gate) return "adds bias and a residual and activates, without pre and gate";
    if (e.residual && e.act != Activation::kNone)
      return "adds a residual to the sums, not to what is activated";
    if (p.align < 16 || !whole_pieces(p.layout == Layout::kBTD ? p.D : p.T, p.dtype))
      return "moves x and y in rows of whole 16-byte pieces";
    if (!resident::in_place(kernel_shape(p)))
      return text("puts the output in the place of x, which rows before it still need with diag=" +
                  llvm::Twine(p.diag));
    return std::nullopt;
  }
  const PersistentKernel& kernel(Op) const override { return product_; }

 private:
  ResidentProduct product_;
};

}  // namespace

const Family& wgmma_resident_sm90_family() {
  static const WgmmaResidentSm90 family;
  return family;
}

}  // namespace trigen
