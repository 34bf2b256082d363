#include "generator/families/tiled_weight.h"

#include <set>

#include "generator/families/families.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_stream_k.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "templates/persistent/three_panels.h"

namespace trigen {
namespace {

namespace weight = persistent::weight;

// dW leaves by TMA where it is aligned for that and its rows are whole pieces of 16 bytes (8), else in pairs
// or single elements: rows of what stands for W have no alignment in common.
int output_vector(const Problem& p) {
  if (p.w != WeightForm::kDense) return 1;
  return p.walign >= 16 && whole_pieces(p.T, p.wdtype) ? 8 : p.walign >= 2 * element_size(p.wdtype) ? 2 : 1;
}

ConfigKey output_key(const Problem& p, const Config& c) {
  if (weight::fitted(c))
    return {&Config::vec_c, {8}, "columns that are no multiple of 64 leave in pieces of 16 bytes"};
  ConfigKey key{&Config::vec_c, {1}};
  for (int vec : {2, 8})
    if (vec <= output_vector(p)) key.allowed.push_back(vec);
  key.why = p.w != WeightForm::kDense
                ? text("w=" + to_string(p.w) + " is written by elements")
                : text("T=" + llvm::Twine(p.T) + " and walign=" + llvm::Twine(p.walign) + " allow " +
                       llvm::Twine(output_vector(p)));
  return key;
}

// Rows of features that begin at any element: threads bring them as they lie (templates/persistent/weight_rows.cuh).
bool brings_rows(const Problem& p) {
  return p.op == Op::kGradWeight && p.layout == Layout::kBTD && p.K == 1 && p.dtype != DType::kF32 &&
         p.w != WeightForm::kToeplitz && needs_packed_activations(p);
}
bool brings_rows(const Problem& p, Access path) { return path == Access::kDirect && brings_rows(p); }

// Contiguous tokens, and rows that begin at any element, are read as they lie, or copied: rows of copies hold the features of all
// batches one after the other, which are fewer k blocks where a head's features end inside one.
std::vector<Access> activation_paths(const Problem& p) {  // worth a try; the first is of any sizes
  std::vector<Access> paths = {activation_access(p, takes_tokens(p))};
  if (takes_tokens(p) && !too_many_to_pack(p)) paths.push_back(Access::kPacked);
  if (brings_rows(p)) paths.push_back(Access::kDirect);
  return paths;
}
int operand_elements(const Problem& p, Access path) {
  return brings_rows(p, path) ? 1 : activation_elements(p, path);
}

bool takes_boxes(const Problem& p) { return p.op == Op::kGradWeight && p.K == 1 && p.dtype != DType::kF32; }
ConfigKey weight_boxes_key(const Problem& p, Access path) {
  if (brings_rows(p, path)) return {&Config::box, {0}, "are TMA's, threads bring these rows"};
  if (takes_boxes(p)) return boxes_key();
  return {&Config::box, {0}, "are for grad_weight of one tap and 16-bit data"};
}

Config config_of(const Problem& p, const TiledWeight::Tile& tile, Access activations, int box = 0) {
  constexpr int kRowStages = 5;  // the most that fit
  return {.tile_m = tile.tile_m,
          .tile_n = tile.tile_n,
          .warps_m = (tile.tile_m == 64 && !tile.stacks) || tile.turns ? 4 : 8,
          .stages = brings_rows(p, activations) ? std::min(tile.stages, kRowStages) : tile.stages,
          .vec_c = output_vector(p),
          .cluster = tile.cluster,
          .box = box,
          .activations = activations};
}

// Narrow boxes are for activations as they lie: joined batches leave nothing empty. Whole batches one below the other are
// for single taps that TMA reads as they lie; slices for single taps of few tiles, with at least one k block for each. Of a
// Toeplitz matrix both warpgroups leave diagonals of every tile, of no form batches are stacked.
bool allows(const Problem& p, const Config& c) {
  constexpr int kMostTiles = 4096;
  if (weight::fitted(c) &&  // both triangles of 16-bit elements, features contiguous
      (p.op != Op::kGram || !p.epilogue.mirror || p.dtype == DType::kF32 || p.wdtype == DType::kF32 ||
       c.vec_c != 8 || weight::contiguous_tokens(kernel_shape(p), c)))
    return false;
  if (p.w == WeightForm::kToeplitz && (weight::takes_turns(c) || weight::slices(c))) return false;
  if (p.w != WeightForm::kDense && weight::stacks(c)) return false;
  if (brings_rows(p, c.activations))
    return c.cluster == 1 && c.box == 0 &&
           (weight::stacks(c) ? p.T <= persistent::kPanel && p.pointers == 0
                              : c.tile_m == 128 && c.tile_n == 128 && !weight::takes_turns(c));
  if (c.box > 0 && (!takes_boxes(p) || weight::stacks(c) || c.activations != Access::kDirect)) return false;
  if (weight::stacks(c) && p.pointers != 0)
    return false;  // a box has the matrices that it stacks from one base
  if (weight::stacks(c)) return p.T <= persistent::kPanel && p.K == 1 && c.activations == Access::kDirect;
  if (weight::holds_triangle(c))
    return p.w == WeightForm::kDense && p.K == 1 && p.dtype != DType::kF32 && p.T > 128 && p.T <= c.tile_m &&
           (p.fill == Fill::kLower ? p.diag <= 0 : p.diag >= 0);
  if (weight::shares_triangle(c))
    return p.op == Op::kGram && p.dtype != DType::kF32 && p.T > c.tile_m - 128 && p.T <= c.tile_m;
  if (weight::takes_turns(c)) return p.K == 1 && p.dtype != DType::kF32 && !p.epilogue.bias;
  if (!weight::slices(c)) return true;
  if (p.K > 1) return false;
  const int64_t rows = (p.T + c.tile_m - 1) / c.tile_m;
  if (weight::one_tile(c) && rows > weight::kMostThreePanelRows) return false;
  return rows <= kMostTiles && p.H * rows * rows <= kMostTiles &&
         weight_stream_k(p, c, c.cluster).depth >= c.cluster;
}

}  // namespace

std::vector<ConfigKey> TiledWeight::keys(const Problem& p, const Config& c) const {
  std::set<int> rows, columns, clusters, warps;
  for (const Tile& tile : tiles_) {
    const Config own = config_of(p, tile, c.activations, brings_rows(p, c.activations) ? 0 : c.box);
    if (!allows(p, own)) continue;
    rows.insert(tile.tile_m);
    if (tile.tile_m != c.tile_m) continue;
    columns.insert(tile.tile_n);
    if (tile.tile_n != c.tile_n) continue;
    clusters.insert(tile.cluster);
    if (tile.cluster == c.cluster) warps.insert(own.warps_m);
  }
  if (columns.empty()) columns = {128, 256};
  if (clusters.empty()) clusters = {1};
  if (warps.empty()) warps = {4 * weight::consumers(c)};
  const int depth = weight::block_depth(p.dtype), activation = operand_elements(p, c.activations);
  const auto values = [](const std::set<int>& all) { return ConfigKey::Values(all.begin(), all.end()); };
  return {
      {&Config::tile_m, values(rows)},
      {&Config::tile_n, values(columns)},
      {&Config::tile_k,
       {depth},
       text("a swizzled row of shared memory holds " + llvm::Twine(depth) + " elements")},
      {&Config::warps_m, values(warps), "a warpgroup multiplies 64 rows"},
      {&Config::warps_n, {1}, "a warpgroup is 4 warps along m"},
      {&Config::cluster, values(clusters)},
      weight_boxes_key(p, c.activations),
      // Taps hold two stages and wait for a third.
      range_key(&Config::stages, p.K > 1 ? 3 : 2, 12),
      raster_key(),
      weight::slices(c) ? ConfigKey{&Config::split_k, {c.cluster}, "every block of a cluster has a slice"}
      : weight::takes_turns(c)
          ? ConfigKey{&Config::split_k, {1}, "warpgroups that take turns have whole tiles"}
      : weight::shares_triangle(c) ? ConfigKey{&Config::split_k, {1}, "clusters of six have whole tiles"}
                                   : split_key(p),
      ConfigKey(&Config::weights, {Access::kDirect}, "is no choice here, dW is written as it lies"),
      ConfigKey(&Config::activations, activation_paths(p),
                "what TMA cannot take is packed, and contiguous tokens may be; rows of one tap need not be"),
      vector_key(&Config::vec_a, activation),
      vector_key(&Config::vec_b, activation),
      output_key(p, c),
      blocks_key()};
}

int TiledWeight::stage_bytes(const Problem&, const Config& c) const { return weight::stage_bytes(c); }
bool TiledWeight::fits(const Problem&, const Config& c) const {
  return weight::slices(c) ? weight::shared_bytes(c) <= persistent::kSharedLimit
                           : weight::store_panels(c) >= 1;
}
int64_t TiledWeight::shared_bytes(const Problem&, const Config& c) const { return weight::shared_bytes(c); }
int TiledWeight::threads(const Problem&, const Config& c) const { return weight::threads(c); }
uint32_t TiledWeight::grid(const Problem& p, const Target& target, const Config& c) const {
  if (weight::shares_triangle(c))  // a cluster for every matrix, as far as they run at the same time
    return static_cast<uint32_t>(std::min<int64_t>(clusters_at_once(target, c.cluster), p.H) * c.cluster);
  if (!weight::slices(c)) return PersistentKernel::grid(p, target, c);
  const persistent::StreamK s = weight_stream_k(p, c, c.cluster);  // a cluster for every tile
  return static_cast<uint32_t>(std::max(1, weight::sliced_tiles(c, s)) * c.cluster);
}

std::vector<Config> TiledWeight::space(const Problem& p, const Target& target) const {
  std::vector<Config> out;
  for (const Access path : activation_paths(p))
    for (const Tile& tile : tiles_)
      for (const int box : boxes(p)) put_tile(p, target, tile, path, box, out);
  return out;
}

void TiledWeight::put_tile(const Problem& p, const Target& target, const Tile& tile, Access activations,
                           int box, std::vector<Config>& out) const {
  Config c = completed(p, config_of(p, tile, activations, box));
  if (!allows(p, c)) return;
  if (weight::slices(c)) {
    c.split_k = c.cluster;
    if (c.tile_m < c.tile_n && p.T <= c.tile_m) return;
    const auto blocks = static_cast<int>(grid(p, target, c));
    const int room = clusters_at_once(target, c.cluster) * c.cluster;
    if (weight::fitted(c)) {  // the narrowest that is one wave
      Config narrower = c;
      narrower.tile_n -= 16;
      if (blocks <= room && weight::three_panel_tiles(narrower, weight_stream_k(p, c, 1)) > room)
        out.push_back(c);
      return;
    }
    // Tiles of 64 x 64: three blocks fit on an SM, two with more stages, or one with many.
    constexpr int kFewStages = 3, kManyStages = 11;
    if (c.tile_n == 64 && blocks <= room) c.stages = kManyStages;
    if (c.tile_n == 64 && blocks > 2 * room) c.stages = kFewStages;
    if (blocks <= (c.tile_n >= 128 ? 1 : c.cluster == 1 ? 3 : 2) * room) out.push_back(c);
    return;
  }
  // Clusters share loads where a row tile of 256 is not mostly empty.
  if (tile.cluster > 1 && p.T <= 128) return;
  if (weight::takes_turns(c)) {  // worth it where a block has several tiles
    const persistent::StreamK s = weight_stream_k(p, c, static_cast<int>(grid(p, target, c)));
    if (s.wide > s.blocks) out.push_back(c);
    return;
  }
  // 16 clusters of six run at the same time on 132 SMs, 18 do not (H200, 18 x 264 x 2048 28.0 us, 2026-11-29).
  if (weight::shares_triangle(c)) {
    if (p.H * c.cluster * 11 <= target.sms * 8) out.push_back(c);
    return;
  }
  llvm::append_range(out, with_splits(c, weight_stream_k(p, c, static_cast<int>(grid(p, target, c)))));
}

std::optional<Config> TiledWeight::any_size(const Problem& p) const {
  if (p.K > 1) return std::nullopt;  // one source for all sizes has one tap
  return completed(p, config_of(p, tiles_.front(), activation_paths(p).front()));
}

void TiledWeight::add_launches(const Problem& p, const Target&, const Config& c, Launch product,
                               LaunchPlan& plan) const {
  const auto operand = [&](MapSource source) {
    TensorMapSpec map = activation_map(p, source, weight::contiguous_tokens(kernel_shape(p), c));
    if (packs_activations(p, c)) {
      const packing::Rows rows = slot_rows(p);
      map.extents[0] = rows.features;
      map.extents[3] = rows.batches;
    }
    return p.dtype == DType::kF32 ? rounded(map) : map;
  };
  // Single taps whose rows are aligned leave by TMA; else nothing looks at the third map. Rows that threads bring have no map.
  const auto box = [&](MapSource source) {
    const Shape shape = kernel_shape(p);
    const bool tokens = weight::contiguous_tokens(shape, c);
    if (c.box > 0) return tokens ? with_rows(operand(source), c.box) : with_columns(operand(source), c.box);
    if (weight::fitted(c) && source == MapSource::kX) return with_rows(operand(source), c.tile_n);
    return weight::stacks(c) && !tokens ? with_rows(operand(source), shape.T, weight::stacked(shape, c))
                                        : operand(source);
  };
  if (!brings_rows(p, c.activations))
    product.maps = {box(MapSource::kY), box(MapSource::kX),
                    c.vec_c == 8 && p.K == 1 ? weights_map(p) : operand(MapSource::kX)};
  else if (c.vec_c == 8)
    product.maps = {weights_map(p)};
  product.register_threads = static_cast<uint32_t>(weight::register_threads(c));
  const uint32_t grid = product.grid[0];
  plan.launches.push_back(std::move(product));
  const persistent::StreamK stream_k = weight_stream_k(p, c, static_cast<int>(grid));
  if (weight::slices(c) || !leaves_parts(c, stream_k)) return;  // slices have added theirs
  plan.launches.push_back({.entry = kReduceEntry.str(),
                           .grid = {grid * static_cast<uint32_t>(weight::reduce_blocks(c)), 1, 1},
                           .block = {weight::kReduceThreads, 1, 1},
                           .cluster = 1,
                           .shared_bytes = weight::kReduceSharedBytes,
                           .maps = {},
                           .early = weight::admits_reduction(c) || p.w == WeightForm::kToeplitz,
                           .register_threads = weight::admits_reduction(c) ? 1024u : 0u});
  plan.workspace_bytes = 4 * stream_k.workspace();
}

Work TiledWeight::work(const Problem& p, const Target& target, const Config& c) const {
  return shared_weight_work(p, target, c, static_cast<int>(grid(p, target, c)));
}

}  // namespace trigen
