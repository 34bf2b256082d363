#include "templates/wgmma_taps_sm90.h"

#include <algorithm>
#include <cmath>

#include "generator/families/families.h"
#include "generator/families/persistent_family.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_stream_k.h"
#include "generator/families/weights.h"

namespace trigen {
namespace {

namespace geometry = wgmma_taps_sm90;

// Forward and grad_input read and write contiguous tokens as they lie where TMA takes them.
Access product_access(const Problem& p) { return activation_access(p, takes_tokens(p)); }
int product_elements(const Problem& p) { return activation_elements(p, product_access(p)); }

int taps_of(const Problem& p) { return static_cast<int>(p.K); }
// Elements of one store to dW, at most four: a lane reads so many f32 sums at once. Of few taps they are a row's, of
// others four taps where they lie together and aligned.
int weight_vector(const Problem& p) {
  if (geometry::weight::few(taps_of(p))) return std::min(4, widest_vectors(p).c);
  for (int vector : {4, 2})
    if (p.K % vector == 0 && p.walign >= vector * element_size(p.wdtype)) return vector;
  return 1;
}

// StreamK counts dW's items, and the k steps of those with several thread blocks, fewer than there are SMs,
// in 32 bits.
std::optional<std::string> too_many_items(const Problem& p) {
  constexpr double kMost = 1 << 30, kMostShared = 256;
  const auto panels = [](int64_t extent, int panel) {
    const int64_t count = (extent + panel - 1) / panel;
    return static_cast<double>(count);
  };
  const double rows = panels(p.T, geometry::kPanel),
               depth = panels(p.D, geometry::weight::step_features(p.dtype)) * static_cast<double>(p.B),
               all_rows = rows * static_cast<double>(p.H) *
                          std::ceil(static_cast<double>(p.K) / geometry::weight::kManyTaps),
               items = rows * all_rows;
  if (all_rows <= kMostWeightRows && items <= kMost && std::min(items, kMostShared) * depth <= kMost)
    return std::nullopt;
  return "counts at most 2^21 rows of blocks of 64 x 64 of dW, 2^30 blocks and 2^22 of their depth";
}

class Product final : public PersistentKernel {
 public:
  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    ConfigKey cluster{&Config::cluster, {1, 2}};
    if (c.tile_m == 64) cluster.allowed.append({3, 4});
    return {{&Config::tile_m, {64, 128, 192, 256}},
            {&Config::tile_n, {64, 128}},
            {&Config::tile_k, {64}, "a swizzled row of shared memory holds 64 elements"},
            {&Config::warps_m, {1}, "a warpgroup is 4 warps along the features"},
            {&Config::warps_n, {c.tile_n / 16}, "a warpgroup multiplies 64 features"},
            cluster,
            range_key(&Config::stages, 2, 16),
            slices_key(c),
            geometry::slices(c) ? ConfigKey{&Config::raster, {0}, "slices have no sections"} : raster_key(),
            ConfigKey(&Config::activations, {product_access(p)},
                      "what TMA cannot take is packed, and nothing else"),
            read_key(p),
            vector_key(&Config::vec_b, product_elements(p)),
            vector_key(&Config::vec_c, product_elements(p)),
            blocks_key()};
  }

  int stage_bytes(const Problem&, const Config& c) const override { return geometry::stage_bytes(c); }
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
    } kTiles[] = {{256, 128, 5}, {256, 128, 4}, {256, 128, 3}, {192, 128, 4}, {192, 128, 5}, {128, 128, 7},
                  {128, 128, 6}, {256, 64, 4},  {128, 64, 8},  {64, 128, 8},  {64, 64, 12}};
    std::vector<Config> out;
    for (const auto& t : kTiles) {
      // A tile more than twice as large as the product only adds waste.
      if (t.tile_m > 64 && p.T <= t.tile_m / 2) continue;
      if (t.tile_n > 64 && p.D <= 64) continue;
      for (int cluster : {1, 2}) {
        if (t.tile_m == 64 && cluster > 1) continue;
        llvm::append_range(out,
                           with_sections(p, target, config(p, t.tile_m, t.tile_n, t.stages, cluster), {}, 2));
      }
    }
    // Short contexts, all taps of W in the ring.
    for (int tile_n : {128, 64}) {
      const Config c = config(p, 64, tile_n, taps_of(p), 1);
      if (geometry::keeps_weights(kernel_shape(p), c) && (tile_n == 64 || p.D > 64)) out.push_back(c);
    }
    put_slices(p, target, out);
    return out;
  }
  // One source for all sizes has one tap.
  std::optional<Config> any_size(const Problem&) const override { return std::nullopt; }

  void add_launches(const Problem& p, const Target& target, const Config& c, Launch product,
                    LaunchPlan& plan) const override {
    const Shape shape = kernel_shape(p);
    const bool forward = p.op == Op::kForward, tokens = geometry::contiguous_tokens(shape, c);
    const auto map = [&](MapSource source) { return activation_map(p, source, tokens); };
    const TensorMapSpec input = map(forward ? MapSource::kX : MapSource::kY);
    const WeightOperand weights = packed_weights(p, target);
    prepare_weights(weights, plan);
    product.maps = {
        weights.map,
        with_rows(input, tokens ? geometry::features(shape, c) : geometry::block_tokens(shape, c)),
        map(forward ? MapSource::kY : MapSource::kX)};
    if (p.epilogue.pre) product.maps.push_back(map(MapSource::kPre));
    if (p.epilogue.gate) product.maps.push_back(map(MapSource::kGate));
    if (p.epilogue.residual) product.maps.push_back(map(MapSource::kResidual));
    plan.launches.push_back(std::move(product));
  }

  Work work(const Problem& p, const Target& target, const Config& c) const override;

 private:
  // Clusters of tiles of 128 tokens and more share loads of W, those of 64 two row tiles.
  static ConfigKey slices_key(const Config& c) {
    if (c.tile_m == 64 && c.cluster > 1)
      return {&Config::split_k, {c.cluster}, "every block of a cluster of such tiles has a slice"};
    return {&Config::split_k, {1}, "is for grad_weight, gram and clusters of tiles of 64 tokens"};
  }
  // Pairs of row tiles, with a cluster of slices for each.
  int64_t pairs(const Problem& p, const Config& c) const {
    return int64_t{persistent::row_pairs(row_tiles(p, c))} * p.H * column_units(p, c);
  }
  // Slices for two blocks, where all clusters run at the same time: of more tiles a persistent block has long and short ones.
  // Three and four won nothing (docs/experiments/wgmma_taps_sm90.md).
  void put_slices(const Problem& p, const Target& target, std::vector<Config>& out) const {
    for (const auto& [tile_n, stages] : {std::pair{64, 12}, {128, 8}}) {
      Config c = config(p, 64, tile_n, stages, 2);
      c.split_k = 2;
      if (p.T > 64 && (tile_n == 64 || p.D > 64) && pairs(p, c) <= clusters_at_once(target, c.cluster))
        out.push_back(c);
    }
  }
  // `stages`: of small tiles, about so many, a number of whole steps (unrolls).
  Config config(const Problem& p, int tile_m, int tile_n, int stages, int cluster) const {
    Config c = completed(
        p, {.tile_m = tile_m, .tile_n = tile_n, .stages = stages, .vec_a = most_read(p), .cluster = cluster});
    const int taps = taps_of(p);
    if (!geometry::small(c) || taps > geometry::kUnrolledTaps) return c;
    for (int steps = std::max(1, (2 * stages + taps) / (2 * taps)); steps > 0; --steps) {
      c.stages = steps * taps;
      if (fits(p, c)) return c;
    }
    c.stages = stages;
    return c;
  }
};

// grad_weight: blocks share the tiles of 64 or 128 t by 64 s and a group of taps that whole rounds leave.
class TapWeight final : public PersistentKernel {
 public:
  std::vector<ConfigKey> keys(const Problem& p, const Config&) const override {
    const int taps = taps_of(p);
    const bool few = geometry::weight::few(taps);
    const int depth = geometry::weight::step_features(p.dtype);
    const std::string why =
        few ? "grad_weight's tiles have 128 x 64 and all of 2 to 4 taps, or 128 x 128 and two of f32"
            : "grad_weight's tiles have 64 x 64 and 8 of 5 taps and more";
    ConfigKey columns{&Config::tile_n, {64 * geometry::weight::group_taps(taps)}, why};
    if (taps == 2 && geometry::weight::shifts_dy(p.dtype)) columns.allowed.push_back(256);
    ConfigKey raster{&Config::raster, {0}, "blocks share what whole rounds leave"};
    if (few)
      raster = {&Config::raster,
                {0, 1},
                "is 0 where blocks share what whole rounds leave, 1 where they share nothing"};
    return {{&Config::tile_m, {few ? 128 : 64}, why},
            columns,
            {&Config::tile_k, {depth}, "a step is a swizzled row of 128 bytes"},
            {&Config::warps_m, {4}, why},
            {&Config::warps_n, {geometry::weight::kConsumers}, why},
            {&Config::cluster, {1}, why},
            range_key(&Config::stages, 3, 12),
            {&Config::split_k, {1}, "blocks share what whole rounds leave; no parts are cut"},
            raster,
            ConfigKey(&Config::activations, {activation_access(p)},
                      "what TMA cannot take is packed, and nothing else"),
            vector_key(&Config::vec_a, activation_elements(p, activation_access(p))),
            vector_key(&Config::vec_b, activation_elements(p, activation_access(p))),
            {&Config::vec_c, {weight_vector(p)}},
            blocks_key()};
  }

  int stage_bytes(const Problem& p, const Config& c) const override {
    return geometry::weight::stage_bytes(kernel_shape(p), c);
  }
  bool fits(const Problem& p, const Config& c) const override {
    return shared_bytes(p, c) <= geometry::kSharedLimit;
  }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return geometry::weight::shared_bytes(kernel_shape(p), c);
  }
  int threads(const Problem&, const Config&) const override { return geometry::weight::kThreads; }

  std::vector<Config> space(const Problem& p, const Target& target) const override {
    const int taps = taps_of(p);
    std::vector<Config> out;
    if (!geometry::weight::few(taps)) {
      for (int stages : {6, 10})
        out.push_back(
            completed(p, {.tile_m = 64, .tile_n = 64 * geometry::weight::kManyTaps, .stages = stages}));
      return out;
    }
    const bool wide = taps == 2 && geometry::weight::shifts_dy(p.dtype);
    for (const auto& [columns, stages] : {std::pair{64, 5}, {64, 6}, {128, 5}}) {
      if (columns > 64 && !wide) continue;
      Config c = completed(p, {.tile_m = 128, .tile_n = columns * taps, .stages = stages});
      out.push_back(c);
      // Nothing to share, or all by one block a tile, where that leaves no more than three quarters of the blocks' time unused.
      const geometry::weight::StreamK s(kernel_shape(p), c, static_cast<int>(p.B), target.sms);
      const int64_t rounds = schedule::ceil_div(s.items, s.blocks);
      if (s.rest() == 0 || rounds * s.blocks > 4 * int64_t{s.items}) continue;
      c.raster = 1;
      out.push_back(c);
    }
    return out;
  }
  std::optional<Config> any_size(const Problem&) const override { return std::nullopt; }

  void add_launches(const Problem& p, const Target& target, const Config& c, Launch product,
                    LaunchPlan& plan) const override {
    const uint32_t blocks = product.grid[0];
    for (const MapSource source : {MapSource::kY, MapSource::kX}) {
      const TensorMapSpec map = activation_map(p, source);
      product.maps.push_back(geometry::weight::shifts_dy(p.dtype) ? rounded(map) : map);
    }
    plan.launches.push_back(std::move(product));
    const geometry::weight::StreamK stream_k(kernel_shape(p), c, static_cast<int>(p.B), target.sms);
    plan.workspace_bytes = stream_k.workspace_bytes();
    if (stream_k.rest() > 0)
      plan.launches.push_back(
          {.entry = kReduceEntry.str(),
           .grid = {blocks * geometry::weight::kReduceBlocks, 1, 1},
           .block = {geometry::weight::kReduceThreads, 1, 1},
           .cluster = 1,
           .shared_bytes = static_cast<uint32_t>(geometry::weight::reduce_bytes(taps_of(p))),
           .maps = {},
           .early = true});
  }

  Work work(const Problem& p, const Target& target, const Config& c) const override;
};

// Steps of forward and grad_input: blocks of 64 tokens of the input, by the panels of the output tile that
// have them in their k range.
class TapSteps {
 public:
  TapSteps(const Problem& p, const Config& c)
      : c_(c),
        taps_(static_cast<double>(p.K)),
        shape_(kernel_shape(p)),
        buffers_(geometry::input_buffers(shape_, c)) {
    // Transposes of a block with 128 features and few taps; one buffer: the next block's loads wait for it. Contiguous
    // tokens need none.
    transposes_ =
        geometry::contiguous_tokens(shape_, c)
            ? 0
            : geometry::features(shape_, c) / 144.0 * geometry::block_tokens(shape_, c) / geometry::kPanel +
                  (buffers_.loaded > 1 ? 0 : 1);
  }
  // The kind of a step that `whole` panels take part in, and `crossing` ones with their diagonal block.
  size_t kind(int whole, int crossing) {
    const std::pair<int, int> key{whole, crossing};
    const auto found = std::find(keys_.begin(), keys_.end(), key);
    if (found != keys_.end()) return static_cast<size_t>(found - keys_.begin());
    keys_.push_back(key);
    // A diagonal block's columns begin with the first that has weights for 16 tokens of k: 16, 32, 48 and 64 of 64, or of a short
    // context's pieces.
    const int pieces = geometry::token_pieces(shape_);
    const double blocks = taps_ * (whole * pieces * pieces / 16.0 + crossing * pieces * (pieces + 1) / 32.0);
    // A product of n columns takes n / 2 cycles, and its operands n / 4 + 20 to read.
    const double columns = pieces == 4 ? c_.tile_m : crossing > 0 ? 8 * (pieces + 1) : 16 * pieces;
    Step step{.products = blocks * geometry::kPanel * geometry::kPanel * c_.tile_n,
              .operand_reads = (columns / 4 + 20) / (columns / 2),
              .transposes = transposes_};
    if (geometry::keeps_weights(shape_, c_)) {  // only the input comes: `loaded` blocks are on their way
      step.feed_bytes =
          static_cast<double>(geometry::input_panels(shape_, c_)) * geometry::input_panel_bytes(shape_, c_);
      step.loads = static_cast<double>(std::max(c_.stages - 1, 1)) / buffers_.loaded;
    } else {
      const double loaded = taps_ * (whole + crossing);
      step.feed_bytes = loaded * geometry::kPanelBytes / persistent::sharers(c_);
      step.loads = loaded / geometry::panels(c_);
    }
    steps.push_back(step);
    return keys_.size() - 1;
  }
  std::vector<Step> steps;

 private:
  const Config& c_;
  double taps_, transposes_ = 1;
  Shape shape_;
  geometry::InputBuffers buffers_;
  std::vector<std::pair<int, int>> keys_;
};

// What parts of the shared items hold, of a whole item's sums.
double kept_share(const Shape& shape, const geometry::weight::StreamK& s) {
  const int rows = s.panels * geometry::kPanel, columns = s.width * geometry::kPanel;
  int64_t kept = 0, all = 0;
  for (int index = 0; index < s.rest(); index += s.taps) {
    int head, row, column, group;
    s.locate(s.whole_items + index, head, row, column, group);
    for (int r = 0; r < rows; r += 16)
      for (int at = 0; at < columns; at += 8, ++all)
        kept += geometry::weight::reaches(shape, rows * row + r, columns * column + at) ? 1 : 0;
  }
  return static_cast<double>(kept) / static_cast<double>(all);
}

// Every block of the triangle and group of taps has as many steps, shared evenly.
Work TapWeight::work(const Problem& p, const Target& target, const Config& c) const {
  namespace weight = geometry::weight;
  const weight::StreamK s(kernel_shape(p), c, static_cast<int>(p.B), target.sms);
  // Of the features that a step loads, those that it multiplies (Work::kLast, templates/wgmma_taps_sm90/weight.cuh).
  const Shape shape = kernel_shape(p);
  const bool tf32 = weight::shifts_dy(p.dtype);
  const int features = weight::step_features(p.dtype),
            panels = schedule::ceil_div(static_cast<int>(p.D), features);
  const double multiplied = weight::row_panels(c) > 1 || tf32
                                ? 1
                                : schedule::ceil_div(static_cast<int>(p.D), features / 4) / (4.0 * panels);
  const bool few = weight::few(taps_of(p));
  Work work{.rates = tf32 && few ? llvm::StringLiteral("taps_weight_few_tf32")
                     : tf32      ? llvm::StringLiteral("taps_weight_tf32")
                     : few       ? llvm::StringLiteral("taps_weight_few")
                                 : llvm::StringLiteral("taps_weight"),
            .unit = tf32 ? Unit::kTensorTf32 : Unit::kTensor16,
            .steps = {{.products = static_cast<double>(features) * weight::sums(c) * multiplied,
                       .feed_bytes = static_cast<double>(weight::stage_bytes(shape, c))}},
            .tile = {.elements = static_cast<double>(weight::sums(c))},
            .stages = c.stages};
  put_runs(work, s.blocks, few_tiles(s.items, s.blocks), [&](int block) {
    Run own{.steps = {0.0}};
    weight::StreamKWalk walk(s, block);
    for (weight::WorkTile tile; walk.next(tile); ++own.tiles) own.steps[0] += tile.end - tile.begin;
    return own;
  });
  work.all.steps = {static_cast<double>(s.items) * s.depth};
  work.all.tiles = s.whole_items + (s.rest() > 0 ? s.rest() + s.sharers() : 0);
  work.memory_bytes = count_work(p).min_bytes;
  work.l2_bytes = work.all.steps[0] * work.steps[0].feed_bytes;
  // Of more than four taps a thread has four of an element, and writes as many of them at a time as are aligned: 9.6 million
  // single ones took 134 us at 1,1792,384 with six taps (an H200, 2026-11-30). Of four the rates know.
  if (!few && c.vec_c < 4)
    work.sector_writes =
        static_cast<double>(p.H * p.K) * static_cast<double>(p.T) * static_cast<double>(p.T) / 2 / c.vec_c;
  if (s.rest() >
      0) {  // eight columns of 16 rows a warp, or the warps of a block, its parts one after the other
    const int together = s.adds_together() ? weight::kReduceWarps : 1,
              units = s.width * weight::kSlices * weight::kSumWarps;
    const int rounds = schedule::ceil_div(s.rest() * units * together,
                                          s.blocks * weight::kReduceBlocks * weight::kReduceWarps);
    work.passes.push_back({.rates = "add_shares",
                           .bytes = 4.0 * weight::sums(c) * kept_share(shape, s) * (s.rest() + s.sharers()),
                           .parts = rounds * schedule::ceil_div(s.parts(), together)});
  }
  put_copies(work, p, c);
  return work;
}

// What ends a tile, in elements: half of it is each warpgroup's drain and its first panel, as of 64 x 64 (by 18 short calls, an H200,
// 2026-11-30: by elements alone tiles of 256 tokens were predicted 18 % too long, of 64 tokens 6 % too short).
double tile_end(const Config& c) { return 0.5 * c.tile_m * c.tile_n + 4096.0 * geometry::consumers(c); }

Work Product::work(const Problem& p, const Target& target, const Config& c) const {
  const ProductWalk walk(p, c, row_tiles(p, c), static_cast<int>(p.H) * column_units(p, c),
                         static_cast<int>(grid(p, target, c)) / c.cluster);
  Work work{.rates = geometry::slices(c) ? llvm::StringLiteral("taps_pairs") : llvm::StringLiteral("taps"),
            .tile = {.elements = tile_end(c),
                     .act = p.epilogue.act,
                     .exchanged = p.epilogue.pre + p.epilogue.gate + p.epilogue.residual,
                     .sent = geometry::slices(c)},
            .stages = c.stages,
            .warpgroups = geometry::consumers(c),
            .cluster = c.cluster};
  if (work.tile.exchanged > 0)  // what comes next waits for what leaves
    work.tile.waits =
        1 - static_cast<double>(geometry::store_panels(kernel_shape(p), c)) / geometry::panels(c);
  const int tokens = static_cast<int>(p.T), blocks = schedule::ceil_div(tokens, geometry::kPanel);
  TapSteps steps(p, c);
  std::vector<Run> tiles;
  for (int row = 0; row < walk.rows; ++row) {
    llvm::SmallVector<persistent::KRange, 4> range;
    int most = 0;
    for (int first = row * c.tile_m; first < std::min((row + 1) * c.tile_m, tokens);
         first += geometry::kPanel) {
      range.emplace_back(walk.fill, first, walk.diag, blocks);
      most = std::max(most, range.back().blocks);
    }
    Run tile{.tiles = 1};
    for (int step = 0; step < most; ++step) {
      int whole = 0, crossing = 0;
      for (const persistent::KRange& r : range) {
        // A diagonal that begins in a block's corner leaves out one block of a panel's k range in part.
        const bool corner = walk.diag == 0 && r.blocks == step + 1;
        (corner ? crossing : whole) += r.blocks > step ? 1 : 0;
      }
      const size_t kind = steps.kind(whole, crossing);
      tile.steps.resize(steps.steps.size(), 0.0);
      tile.steps[kind] += 1;
    }
    tiles.push_back(std::move(tile));
  }
  const size_t whole = geometry::slices(c) ? steps.kind(1, 0) : 0;
  work.steps = std::move(steps.steps);
  if (geometry::slices(c))
    put_slice_runs(work, walk, tiles, c.cluster, tokens, 0, 0, whole);
  else
    put_product(work, p, walk, tiles);
  for (size_t kind = 0; kind < work.steps.size(); ++kind)
    work.l2_bytes += work.all.steps[kind] * c.cluster * work.steps[kind].feed_bytes;
  const double weights =
                   static_cast<double>(p.H * p.K) * static_cast<double>(p.T) * static_cast<double>(p.T) / 2,
               read = weights * static_cast<double>(element_size(p.wdtype)),
               tensors = 2.0 * static_cast<double>(p.B * p.H * p.T * p.D * element_size(p.dtype));
  // The launch that packs has read W, of which a diagonal may leave less than half.
  work.memory_bytes = std::max(tensors, count_work(p).min_bytes - read);
  work.passes.push_back({"pack_taps", 2 * weights + read});
  put_copies(work, p, c);
  return work;
}

class WgmmaTapsSm90 final : public PersistentFamily {
 public:
  llvm::StringRef name() const override { return "wgmma_taps_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_taps_sm90.cuh"; }

 protected:
  std::optional<std::string> refuse(const Problem& p) const override {
    const auto no = [](const llvm::Twine& why) { return why.str(); };
    if (p.K < 2 || p.K > 32) return no("makes 2 to 32 taps, K=" + llvm::Twine(p.K));
    if (p.pad < 0 || p.pad >= p.K)
      return no("loads features around the output's, pad=" + llvm::Twine(p.pad) + " is outside 0 to K-1");
    if (p.dtype == DType::kF32 && !(is_weight(p) && p.math == Math::kTF32))
      return no("multiplies 16-bit data, and f32 data with math=tf32 for grad_weight");
    if (is_weight(p) ? needs_packed_activations(p) : product_access(p) == Access::kPacked)
      if (auto why = too_many_to_pack(p)) return why;
    const Epilogue& e = p.epilogue;
    if (is_weight(p) && e.bias && (p.fill == Fill::kLower ? p.diag < 0 : p.diag > 0))
      return no("sums grad_bias beside a row's first block, diag=" + llvm::Twine(p.diag) +
                " leaves rows without");
    return is_weight(p) ? too_many_items(p) : too_many_to_pack_weights(p);
  }

  const PersistentKernel& kernel(Op op) const override {
    if (makes_weights(op)) return weight_;
    return product_;
  }

 private:
  Product product_;
  TapWeight weight_;
};

}  // namespace

const Family& wgmma_taps_sm90_family() {
  static const WgmmaTapsSm90 family;
  return family;
}

}  // namespace trigen
