#include "templates/wgmma_tf32_sm90.h"

#include "generator/families/families.h"
#include "generator/families/persistent_family.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/tiled_weight.h"
#include "generator/families/weight_stream_k.h"
#include "generator/families/weights.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = wgmma_tf32_sm90;

bool shifts(const Problem& p) { return geometry::shifts(static_cast<int>(p.K)); }

// TMA takes forward's aligned rows; a launch packs others and those of taps, and always transposes grad_input's W.
Access weight_path(const Problem& p) {
  return p.op == Op::kForward && (p.walign < 16 || shifts(p)) ? Access::kPacked : Access::kDirect;
}
bool packs(const Problem& p) { return p.op == Op::kGradInput || weight_path(p) == Access::kPacked; }
// Elements of one access: TMA's, or single ones of the launches that pack.
int weight_vector(const Problem& p) { return packs(p) ? 1 : 4; }

class Product final : public PersistentKernel {
 public:
  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const int activation = activation_elements(p, activation_access(p));
    return {{&Config::tile_m, {64, 128, 192, 256}},
            {&Config::tile_n, {64, 128}},
            {&Config::tile_k, {geometry::kStep}, "a swizzled row of shared memory holds 32 elements"},
            {&Config::warps_m, {1}, "a warpgroup is 4 warps along the features"},
            {&Config::warps_n, {c.tile_n / 16}, "a warpgroup multiplies 64 features"},
            {&Config::cluster, {1, 2}},
            range_key(&Config::stages, 2, 12),
            raster_key(),
            split_key(p),
            ConfigKey(&Config::weights, {weight_path(p)},
                      "forward's rows that are not of 16 bytes or hold taps are packed, and nothing else"),
            ConfigKey(&Config::activations, {activation_access(p)},
                      "what TMA cannot take is packed, and nothing else"),
            vector_key(&Config::vec_a, weight_vector(p)),
            vector_key(&Config::vec_b, activation),
            vector_key(&Config::vec_c, activation),
            blocks_key()};
  }

  int stage_bytes(const Problem& p, const Config& c) const override {
    return geometry::stage_bytes(c, shifts(p));
  }
  bool fits(const Problem& p, const Config& c) const override {
    return geometry::store_panels(c, shifts(p)) >= 1;
  }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return geometry::shared_bytes(c, shifts(p));
  }
  int threads(const Problem&, const Config& c) const override { return geometry::threads(c); }
  int column_units(const Problem& p, const Config& c) const override {
    return geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  }

  std::vector<Config> space(const Problem& p, const Target& target) const override {
    constexpr struct {
      int tokens, features, stages;
    } kTiles[] = {{256, 128, 4}, {192, 128, 4}, {128, 128, 6}, {64, 128, 8}, {128, 64, 8}, {64, 64, 8}};
    std::vector<Config> out;
    const int64_t panels = p.B * ((p.D + 63) / 64);  // of one head
    // Smaller tiles than 128 x 128 lose by 30 % and more where there are enough of these for the machine.
    const bool few = (p.T + 127) / 128 * p.H * ((panels + 1) / 2) < target.sms;
    for (const auto& t : kTiles) {
      // A tile more than twice as large as the product only adds waste.
      if (t.tokens > 64 && t.tokens >= 2 * p.T) continue;
      if (t.features > 64 && panels == 1) continue;
      if (t.tokens * t.features < 128 * 128 && !few && p.T > 64 && panels > 1) continue;
      for (int cluster : {1, 2}) {
        const Config c = config(p, t.tokens, t.features, t.stages, cluster);
        const int64_t units = p.H * column_units(p, c) * row_tiles(p, c);
        if (cluster > 1 && units * 2 < target.sms / cluster) continue;
        llvm::append_range(out, with_sections(p, target, c, {16, 32}, 2));
      }
    }
    return out;
  }
  // One source for all sizes has one tap.
  std::optional<Config> any_size(const Problem& p) const override {
    if (shifts(p)) return std::nullopt;
    return config(p, 256, 128, 4, 1);
  }

  void add_launches(const Problem& p, const Target& target, const Config& c, Launch product,
                    LaunchPlan& plan) const override {
    const TensorMapSpec x = activation_map(p, MapSource::kX), y = activation_map(p, MapSource::kY);
    const bool packs = geometry::packs(p.op, c), forward = p.op == Op::kForward;
    const WeightOperand weights = packs ? packed_tf32_weights(p, target) : direct_weights(p);
    prepare_weights(weights, plan);
    product.maps = {packs ? weights.map : rounded(weights.map),
                    with_rows(rounded(forward ? x : y), geometry::kStep), forward ? y : x};
    plan.launches.push_back(std::move(product));
  }

  Work work(const Problem& p, const Target& target, const Config& c) const override;

 private:
  Config config(const Problem& p, int tokens, int features, int stages, int cluster) const {
    return completed(p, {.tile_m = tokens, .tile_n = features, .stages = stages, .cluster = cluster});
  }
};

// forward and grad_input: features by tokens, steps of 32 along k that panels of 64 tokens take part in.
Work Product::work(const Problem& p, const Target& target, const Config& c) const {
  const int blocks = static_cast<int>(grid(p, target, c));
  const ProductWalk walk(p, c, row_tiles(p, c), static_cast<int>(p.H) * column_units(p, c),
                         blocks / c.cluster);
  const Epilogue& e = p.epilogue;
  // A packed W has rows of whole pieces of 16 bytes, not of whole lines.
  const bool split_w = splits_lines(geometry::packed_pitch(static_cast<int>(p.T)), p.dtype),
             split_x = activations_split_lines(p, c);
  const auto taps = static_cast<double>(p.K);
  // Rows of 128 bytes of a stage: W's, and x's, which come once for all taps.
  const double tokens = static_cast<double>(c.tile_m) / c.cluster,
               features = 32 * geometry::feature_boxes(c, shifts(p)) / taps;
  Work work{.rates = "ring_tf32",
            .unit = Unit::kTensorTf32,
            .steps = {{.products = static_cast<double>(c.tile_m) * c.tile_n * geometry::kStep,
                       .feed_bytes = 128 * (tokens + features),
                       .split_bytes = 128 * ((split_w ? tokens : 0) + (split_x ? features : 0))}},
            .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n,
                     .act = e.act,
                     .exchanged = e.pre + e.gate + e.residual},
            .stages = c.stages,
            .warpgroups = c.tile_n / 64,
            .cluster = c.cluster};
  std::vector<Run> tiles;
  const int steps = schedule::ceil_div(static_cast<int>(p.T), geometry::kStep),
            panels = geometry::token_panels(c);
  double all = 0;
  for (int row = 0; row < walk.rows; ++row) {
    double mean_steps = 0;
    for (int panel = 0; panel < panels; ++panel)
      mean_steps += geometry::KStepRange(walk.fill, row * c.tile_m + 64 * panel, walk.diag, steps).steps;
    mean_steps *= taps / panels;
    all += mean_steps;
    tiles.push_back({{mean_steps}, 1});
  }
  put_product(work, p, walk, tiles);
  const double width = static_cast<double>(walk.section) * c.cluster * c.tile_n;
  work.rereads = {panel_reread(p, walk, width, all / taps * geometry::kStep)};
  work.memory_bytes = count_work(p).min_bytes;
  work.l2_bytes = all * walk.columns * c.cluster * work.steps[0].feed_bytes;
  if (geometry::packs(p.op, c))  // half of W is read, half of a copy written
    work.passes.push_back(
        {"transpose", 0, 4.0 * static_cast<double>(p.H * p.K * p.T) * static_cast<double>(p.T)});
  put_copies(work, p, c);
  return work;
}

constexpr TiledWeight::Tile kWeightTiles[] = {
    {128, 256, 4, 1}, {128, 256, 3, 1},     {128, 128, 6, 1}, {128, 128, 5, 1}, {128, 256, 4, 2},
    {128, 128, 6, 4}, {64, 64, 6, 1, true}, {128, 128, 6, 2}, {128, 128, 6, 3}, {64, 64, 5, 1},
    {64, 64, 5, 2},   {64, 64, 5, 3},       {64, 64, 5, 4},   {64, 64, 5, 6},   {64, 64, 5, 8},
    {64, 128, 9, 1},  {64, 192, 7, 1},      {128, 192, 5, 1}};

class WgmmaTf32Sm90 final : public PersistentFamily {
 public:
  llvm::StringRef name() const override { return "wgmma_tf32_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_tf32_sm90.cuh"; }

 protected:
  std::optional<std::string> refuse(const Problem& p) const override {
    if (p.dtype != DType::kF32 || p.math != Math::kTF32) return "multiplies f32 data with math=tf32";
    if (is_weight(p) && shifts(p)) return "makes grad_weight of K=1";
    if (p.K > geometry::kMostTaps)
      return ("has room for K=1 to " + llvm::Twine(geometry::kMostTaps) + " taps").str();
    if (needs_packed_activations(p))
      if (auto why = too_many_to_pack(p)) return why;
    if (is_weight(p)) return too_many_work_tiles(p, 32);
    return packs(p) ? too_many_to_pack_weights(p) : std::nullopt;
  }

  const PersistentKernel& kernel(Op op) const override {
    if (makes_weights(op)) return weight_;
    return product_;
  }

 private:
  Product product_;
  TiledWeight weight_{kWeightTiles};
};

}  // namespace

const Family& wgmma_tf32_sm90_family() {
  static const WgmmaTf32Sm90 family;
  return family;
}

}  // namespace trigen
