#include "templates/wgmma_sm90.h"

#include <algorithm>
#include <bit>

#include "generator/families/families.h"
#include "generator/families/persistent_family.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/tiled_weight.h"
#include "generator/families/weight_stream_k.h"
#include "generator/families/weights.h"

namespace trigen {
namespace {

namespace geometry = wgmma_sm90;

constexpr int kMostStages = 12;
constexpr int kSlices[] = {
    2, 3, 4};  // of two row tiles: six and eight won nothing (docs/experiments/wgmma_sm90.md)
// Of a Toeplitz matrix: more heads and tokens are no start that a launch of strips would not beat (not measured).
constexpr int kMostNumbersBytes = 48 << 10;

// TMA reads W, 16-bit or f32, in rows of 16 bytes. A launch of its own packs f32 weights and those that are
// not aligned. Aligned f32 weights allow both. A launch writes strips of what stands for W, but a Toeplitz matrix's numbers may
// stay in shared memory.
std::vector<Access> weight_paths(const Problem& p) {  // worth a try
  std::vector<Access> paths;
  const bool dense = p.w == WeightForm::kDense;
  if (dense ? p.walign >= 16 : p.w == WeightForm::kToeplitz) paths.push_back(Access::kDirect);
  if ((p.wdtype != p.dtype || p.walign < 16 || !dense) && !too_many_to_pack_weights(p))
    paths.push_back(Access::kPacked);
  return paths;
}
// Contiguous tokens are read and written as they lie where nothing but the output and a multiplied residual has
// x's shape.
bool reads_tokens(const Problem& p) { return takes_tokens(p) && !geometry::exchanges(kernel_shape(p)); }
// Rows of several heads that lie whole pieces of 16 bytes apart, of heads that begin or end inside of one; a run's rows may lie
// otherwise, and are brought by threads then.
bool reads_heads(const Problem& p) {
  const Epilogue& e = p.epilogue;
  const bool alike = p.align >= 16 || whole_pieces(p.H * p.D, p.dtype);
  return !is_weight(p) && p.dtype != DType::kF32 && p.layout == Layout::kBTD && needs_packed_activations(p) &&
         p.H > 1 && alike && p.D >= persistent::kPiece && !e.pre && !e.gate && !e.residual;
}
Access activation_path(const Problem& p) { return activation_access(p, reads_tokens(p)); }
std::vector<Access> activation_paths(const Problem& p) {
  if (reads_heads(p)) return {Access::kDirect, Access::kPacked};
  return {activation_path(p)};
}
// Elements of an access to the input, and to the output.
int input_elements(const Problem& p, Access path) {
  if (path == Access::kPacked || !reads_heads(p)) return activation_elements(p, path);
  return static_cast<int>(std::min<int64_t>(p.align, 16) / element_size(p.dtype));
}
// Columns that boxes of a head need.
int64_t reached_features(const Problem& p) {
  return persistent::reached_features({.vec_b = input_elements(p, Access::kDirect)}, static_cast<int>(p.D));
}
std::vector<int> product_boxes(const Problem& p) {
  Problem reached = p;
  reached.D = reached_features(p);
  return boxes(reached);
}
int output_elements(const Problem& p, Access path) {
  return path == Access::kPacked || !reads_heads(p) ? activation_elements(p, path) : activation_vector(p);
}

class Product final : public PersistentKernel {
 public:
  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    return {{&Config::tile_m, {64, 128}},
            {&Config::tile_n, {64, 128, 192, 256}},
            {&Config::tile_k, {64}, "a swizzled row of shared memory holds 64 elements"},
            {&Config::warps_m, {c.tile_m / 16}, "a warpgroup multiplies 64 rows"},
            {&Config::warps_n, {1}, "a warpgroup is 4 warps along m"},
            clusters_key(c),
            boxes_key(),
            range_key(&Config::stages, 2, kMostStages),
            slices_key(p, c),
            geometry::slices(c) ? ConfigKey{&Config::raster, {0}, "slices have no sections"} : raster_key(),
            weights_key(p, c),
            ConfigKey(&Config::activations, activation_paths(p),
                      "what TMA cannot take is packed, and nothing else"),
            c.weights == Access::kPacked || p.w != WeightForm::kDense ? read_key(p)
                                                                      : vector_key(&Config::vec_a, 8),
            vector_key(&Config::vec_b, input_elements(p, c.activations)),
            vector_key(&Config::vec_c, output_elements(p, c.activations)),
            blocks_key()};
  }

  int stage_bytes(const Problem& p, const Config& c) const override {
    return geometry::stage_bytes(kernel_shape(p), c);
  }
  bool fits(const Problem& p, const Config& c) const override {
    return geometry::store_panels(kernel_shape(p), c) >= 1;
  }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return geometry::shared_bytes(kernel_shape(p), c);
  }
  int threads(const Problem&, const Config& c) const override { return geometry::threads(c); }
  uint32_t grid(const Problem& p, const Target& target, const Config& c) const override {
    if (!geometry::slices(c)) return PersistentKernel::grid(p, target, c);
    return static_cast<uint32_t>(pairs(p, c) * c.cluster);
  }
  int column_units(const Problem& p, const Config& c) const override {
    return geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  }

  std::vector<Config> space(const Problem& p, const Target& target) const override {
    constexpr struct {
      int tile_m, tile_n, stages;
    } kTiles[] = {{128, 256, 4}, {128, 256, 3}, {128, 192, 4}, {128, 128, 5}, {128, 128, 6},
                  {128, 64, 6},  {64, 256, 4},  {64, 128, 6},  {64, 64, 12}};
    std::vector<Config> out;
    const Shape shape = kernel_shape(p);
    for (const auto& t : kTiles)
      for (const int box : product_boxes(p)) {
        const int64_t panels = head_panels(p, box);
        // A tile more than twice as large as the product only adds waste.
        if (t.tile_m > 64 && p.T <= 64) continue;
        if (t.tile_n > 64 && t.tile_n / 128 >= panels) continue;
        // The smallest tile is for what leaves SMs without one of 64 x 128.
        if (t.tile_m * t.tile_n == 64 * 64 && (p.T + 63) / 64 * p.H * ((panels + 1) / 2) >= target.sms)
          continue;
        for (int cluster : {1, 2})
          for (const Config& c : with_sections(
                   p, target, config(p, t.tile_m, t.tile_n, t.stages, cluster, box), {8, 16, 32}, 2, true))
            for (Access path : weight_paths(p)) {
              Config own = with_weights(p, c, path);
              if (geometry::numbers_bytes(shape, own) > kMostNumbersBytes) continue;
              // f32 weights take more of a stage, numbers nothing: as many stages as there is room for.
              if (geometry::keeps_numbers(shape, own)) {
                const int panels_before = geometry::store_panels(shape, with_weights(p, c, Access::kPacked));
                for (Config more = own;
                     ++more.stages <= kMostStages && geometry::store_panels(shape, more) >= panels_before;)
                  own.stages = more.stages;
              }
              if (geometry::reads_f32_weights(shape, own) || geometry::keeps_numbers(shape, own))
                while (own.stages > 2 && geometry::store_panels(shape, own) < 1) --own.stages;
              out.push_back(own);
            }
      }
    for (const int box : product_boxes(p))
      for (int panels_of_tile : {1, 2, 3, 4})
        for (int slices : kSlices) put_slices(p, target, panels_of_tile, slices, box, out);
    return out;
  }
  std::optional<Config> any_size(const Problem& p) const override {
    const Config c{
        .tile_m = 128, .tile_n = 256, .stages = 4, .cluster = 1, .activations = activation_path(p)};
    return with_weights(p, completed(p, c), weight_paths(p).back());
  }

  void add_launches(const Problem& p, const Target& target, const Config& c, Launch product,
                    LaunchPlan& plan) const override {
    const bool numbers = geometry::keeps_numbers(kernel_shape(p), c);
    const WeightOperand weights = numbers || (p.w == WeightForm::kDense && c.weights == Access::kDirect)
                                      ? direct_weights(p)
                                  : p.w == WeightForm::kDense ? packed_weights(p, target)
                                                              : strip_weights(p, target);
    prepare_weights(weights, plan);
    const bool forward = p.op == Op::kForward, tokens = geometry::contiguous_tokens(kernel_shape(p), c);
    const int features = geometry::box_features(c);
    const auto map = [&](MapSource source) {
      const TensorMapSpec whole = persistent::reads_heads(kernel_shape(p), c)
                                      ? heads_map(p, source)
                                      : activation_map(p, source, tokens);
      return tokens ? with_rows(whole, features) : with_columns(whole, features);
    };
    // Nothing looks at a map of numbers.
    product.maps = {numbers ? map(MapSource::kX) : weights.map, map(forward ? MapSource::kX : MapSource::kY),
                    map(forward ? MapSource::kY : MapSource::kX)};
    if (p.epilogue.pre) product.maps.push_back(map(MapSource::kPre));
    if (p.epilogue.gate) product.maps.push_back(map(MapSource::kGate));
    if (p.epilogue.residual) product.maps.push_back(map(MapSource::kResidual));
    plan.launches.push_back(std::move(product));
  }

  Work work(const Problem& p, const Target& target, const Config& c) const override;

 private:
  static ConfigKey weights_key(const Problem& p, const Config& c) {
    if (p.w == WeightForm::kToeplitz && geometry::sharers(c) > 1)
      return {&Config::weights, {Access::kPacked}, "blocks of a cluster share loads of strips"};
    if (p.w == WeightForm::kBand)
      return {&Config::weights, {Access::kPacked}, "a launch writes strips of a band"};
    return ConfigKey(&Config::weights, weight_paths(p),
                     "TMA reads rows of 16 bytes, and f32 or unaligned weights alone are packed");
  }
  // Clusters of tiles of 128 rows share loads of W, those of 64 rows two row tiles.
  static ConfigKey clusters_key(const Config& c) {
    if (c.tile_m > 64) return {&Config::cluster, {1, 2}, "two blocks share loads of W"};
    ConfigKey::Values allowed{1};
    allowed.append(std::begin(kSlices), std::end(kSlices));
    return {&Config::cluster, std::move(allowed), "blocks that share two row tiles of 64 rows"};
  }
  static ConfigKey slices_key(const Problem& p, const Config& c) {
    if (p.w == WeightForm::kBand)
      return {&Config::split_k, {1}, "slices begin at the first token, not at a band's"};
    if (c.tile_m == 64 && c.cluster > 1)
      return {&Config::split_k, {c.cluster}, "every block of a cluster of such tiles has a slice"};
    return {&Config::split_k, {1}, "is for grad_weight, gram and clusters of tiles of 64 rows"};
  }
  // Panels of 64 columns of one head.
  static int64_t head_panels(const Problem& p, int box) {
    const int64_t features = box > 0 ? box : geometry::kPanel;
    return (p.B * ((reached_features(p) + features - 1) / features) * features + 63) / 64;
  }
  // Pairs of row tiles, with a cluster of slices for each.
  int64_t pairs(const Problem& p, const Config& c) const {
    return int64_t{persistent::row_pairs(row_tiles(p, c))} * p.H * column_units(p, c);
  }
  // Slices where all clusters run at the same time: of more tiles a persistent block has long and short ones.
  void put_slices(const Problem& p, const Target& target, int panels, int slices, int box,
                  std::vector<Config>& out) const {
    Config c = config(p, 64, persistent::kPanel * panels, 12, slices, box);
    c.split_k = slices;
    if (p.T <= 64 || p.w == WeightForm::kBand || (panels > 1 && panels / 2 >= head_panels(p, box)) ||
        pairs(p, c) > clusters_at_once(target, c.cluster))
      return;
    for (Access path : weight_paths(p)) {
      Config own = with_weights(p, c, path);
      if (geometry::numbers_bytes(kernel_shape(p), own) > kMostNumbersBytes) continue;
      while (own.stages > 2 && geometry::store_panels(kernel_shape(p), own) < 1) --own.stages;
      out.push_back(own);
    }
  }
  Config config(const Problem& p, int tile_m, int tile_n, int stages, int cluster, int box = 0) const {
    return completed(p,
                     {.tile_m = tile_m, .tile_n = tile_n, .stages = stages, .cluster = cluster, .box = box});
  }
  static Config with_weights(const Problem& p, Config c, Access path) {
    c.weights = path;
    c.vec_a = path == Access::kDirect && p.w == WeightForm::kDense ? 8 : most_read(p);
    return c;
  }
};

// Pieces of sectors that one instruction writes of each row of a head: whole pieces of 16 bytes, and those of 8, 4 and 2 bytes at
// its ends.
double written_pieces(const Problem& p) {
  const auto ends = [](int64_t elements) { return std::popcount(static_cast<uint64_t>(elements)); };
  constexpr int64_t kPiece = persistent::kPiece;
  int64_t pieces = 0;
  for (int64_t h = 0; h < p.H; ++h) {
    const int64_t begin = h * p.D, end = begin + p.D, first = (begin + kPiece - 1) / kPiece,
                  last = end / kPiece;  // whole ones
    pieces += ends(first * kPiece - begin) + ends(end - last * kPiece);
    if (last > first) pieces += (last - 1) / 2 - first / 2 + 1;
  }
  return static_cast<double>(pieces * p.B) * static_cast<double>(p.T);
}

Work Product::work(const Problem& p, const Target& target, const Config& c) const {
  const int sharers = geometry::sharers(c);
  const int blocks = static_cast<int>(grid(p, target, c));
  const Shape shape = kernel_shape(p);
  const ProductWalk walk(p, c, row_tiles(p, c), static_cast<int>(p.H) * column_units(p, c),
                         blocks / c.cluster);
  const bool f32_weights = geometry::reads_f32_weights(shape, c);
  const bool residual = geometry::multiplies_residual(shape);
  const bool numbers = geometry::keeps_numbers(shape, c);
  const double rows = numbers ? 0 : c.tile_m * (f32_weights ? 2.0 : 1.0);  // of 128 bytes, of A in a stage
  // A's fragments out of shared memory, in columns of products: 128 x 128 takes longer than 128 x 256 by so much (98 and 86 us
  // at 4,4096,1024, H200, 2026-11-27; set by hand).
  const double multiplied = c.tile_n + (numbers ? 12 : 0);
  const bool split_a = c.weights == Access::kDirect && !numbers && splits_lines(p.T, p.wdtype),
             split_b = activations_split_lines(p, c);
  const Epilogue& e = p.epilogue;
  Work work{.rates = geometry::slices(c) ? llvm::StringLiteral("ring_pairs") : llvm::StringLiteral("ring"),
            .steps = {{.products = static_cast<double>(c.tile_m) * multiplied * geometry::kPanel,
                       .feed_bytes = 128 * (rows / sharers + c.tile_n),
                       .f32_bytes = f32_weights ? 128 * rows / sharers : 0,
                       .split_bytes = 128 * ((split_a ? rows / sharers : 0) + (split_b ? c.tile_n : 0))}},
            .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n,
                     .act = e.act,
                     .exchanged = e.pre + e.gate + (e.residual && !residual),
                     .sent = geometry::slices(c)},
            .stages = c.stages,
            .warpgroups = c.tile_m / 64,
            .cluster = c.cluster};
  // Buffers for a part of the tile: what comes next waits for what leaves.
  work.tile.waits = 1 - static_cast<double>(geometry::store_panels(shape, c)) / geometry::panels(c);
  std::vector<Run> tiles = reached_tiles(walk, c, static_cast<int>(p.T));
  double steps = 0;
  for (Run& tile : tiles) {
    steps += tile.steps[0];
    tile.steps[0] += residual ? 1 : 0;  // multiplied as one more block of k
  }
  if (geometry::slices(c))
    put_slice_runs(work, walk, tiles, c.cluster, static_cast<int>(p.T), geometry::sending(shape, c),
                   residual ? 1 : 0);
  else
    put_product(work, p, walk, tiles);
  if (!geometry::slices(c)) put_common_bytes(work, p, walk, steps, 128.0 * c.stages * (c.tile_m + c.tile_n));
  const double width = static_cast<double>(walk.section) * sharers * c.tile_n;
  work.rereads = {panel_reread(p, walk, width, steps * geometry::kPanel)};
  // By 329,256,648 and 256,256,456 (an H200, 2026-11-30); clusters of two write neighbours at the same time.
  work.memory_bytes = memory_of_product(p) + memory_of_split_sectors(p, sharers > 1 ? 12 : 48);
  work.l2_bytes = steps * walk.columns * sharers * work.steps[0].feed_bytes;
  if (geometry::packs(shape, c)) {
    work.passes.push_back({"pack", packing_bytes(p)});
  }
  put_copies(work, p, c);
  if (persistent::reads_heads(shape, c)) work.sector_writes = kWritesOfSector * written_pieces(p);
  return work;
}

constexpr TiledWeight::Tile kWeightTiles[] = {{128, 256, 4, 1},
                                              {128, 128, 6, 1},
                                              {128, 256, 4, 2},
                                              {128, 128, 6, 4},
                                              {64, 64, 6, 1, true},
                                              {128, 128, 6, 2},
                                              {128, 128, 6, 3},
                                              {128, 128, 6, 1, false, true},
                                              {128, 128, 6, 4, false, true},
                                              {64, 64, 5, 1},
                                              {64, 64, 5, 2},
                                              {64, 64, 5, 3},
                                              {64, 64, 5, 4},
                                              {64, 64, 5, 6},
                                              {64, 64, 5, 8},
                                              {64, 128, 9, 1},
                                              {64, 192, 7, 1},
                                              {128, 192, 5, 1},  // slices
                                              {64, 80, 12, 1},
                                              {64, 96, 11, 1},
                                              {64, 112, 10, 1},
                                              {64, 144, 8, 1},
                                              {64, 160, 8, 1},
                                              {64, 176, 7, 1},
                                              {128, 80, 8, 1},
                                              {128, 96, 8, 1},
                                              {128, 112, 7, 1},
                                              {128, 144, 6, 1},
                                              {128, 160, 6, 1},
                                              {128, 176, 5, 1},
                                              {192, 192, 4, 1},   // whole triangles
                                              {384, 128, 6, 6}};  // by clusters

class WgmmaSm90 final : public PersistentFamily {
 public:
  llvm::StringRef name() const override { return "wgmma_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_sm90.cuh"; }

 protected:
  std::optional<std::string> refuse(const Problem& p) const override {
    if (p.dtype == DType::kF32) return "multiplies 16-bit data";
    if (!is_weight(p) && (p.K != 1 || p.pad != 0))
      return "makes K=1 with pad=0: TMA cannot shift by single elements";
    if (activation_path(p) == Access::kPacked)
      if (auto why = too_many_to_pack(p)) return why;
    if (is_weight(p)) return too_many_work_tiles(p, 64);
    if (weight_paths(p).empty()) return too_many_to_pack_weights(p);
    return std::nullopt;
  }

  bool takes_forms() const override { return true; }
  const PersistentKernel& kernel(Op op) const override {
    if (makes_weights(op)) return weight_;
    return product_;
  }

 private:
  Product product_;
  TiledWeight weight_{kWeightTiles};
};

}  // namespace

const Family& wgmma_sm90_family() {
  static const WgmmaSm90 family;
  return family;
}

}  // namespace trigen
