#include "generator/families/persistent_family.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_shares.h"
#include "llvm/ADT/STLExtras.h"
#include "templates/persistent/grad_weight.h"

namespace trigen {
namespace {

std::string text(const llvm::Twine& t) { return t.str(); }
bool is_weight(const Problem& p) { return p.op == Op::kGradWeight; }

// A split that suits all sizes: parts for every SM where there are few tiles.
int any_split(const Problem& p) { return p.T <= 512 ? 33 : p.T <= 1024 ? 8 : p.T <= 2048 ? 2 : 1; }

}  // namespace

int PersistentFamily::row_tiles(const Problem& p, const Config& c) const {
  return schedule::ceil_div(static_cast<int>(p.T), c.tile_m);
}

uint32_t PersistentFamily::grid(const Problem& p, const Target& target, const Config& c) const {
  const int64_t clusters = clusters_at_once(target, c.cluster);
  if (is_weight(p)) return static_cast<uint32_t>(clusters * c.cluster);
  const int64_t units = int64_t{row_tiles(p, c)} * p.H * column_units(p, c);
  return static_cast<uint32_t>(std::min(clusters, units) * c.cluster);
}

std::vector<Config> PersistentFamily::with_sections(const Problem& p, const Target& target, Config c,
                                                    std::initializer_list<int> round, int rounds) const {
  const int rows = row_tiles(p, c), clusters = std::max(1, target.sms / c.cluster);
  const int64_t columns = p.H * column_units(p, c);
  const int even = clusters / std::gcd(clusters, rows);
  std::set<int> rasters(round);
  rasters.insert(0);
  for (int i = 1; i <= rounds; ++i) rasters.insert(i * even);
  std::vector<Config> out;
  for (int raster : rasters) {
    // Narrower sections than one round would be widened by the kernel.
    if (raster > 0 && (raster >= columns || raster < clusters / rows)) continue;
    c.raster = raster;
    out.push_back(c);
  }
  return out;
}

ConfigKey PersistentFamily::blocks_key(const Config& c) {
  return {"blocks", c.blocks, {1}, false, "registers are handed out for one block on an SM"};
}

ConfigKey PersistentFamily::vector_key(llvm::StringLiteral name, int found, int vector) {
  return {name, found, {vector}, false, "TMA moves 16 bytes, and what it cannot take is packed by elements"};
}
int PersistentFamily::most_read(const Problem& p) {
  return static_cast<int>(std::min<int64_t>(p.walign, 16) / element_size(p.wdtype));
}
ConfigKey PersistentFamily::read_key(const Problem& p, const Config& c) {
  ConfigKey key{"vec_a", c.vec_a, {}};
  for (int vec = 1; vec <= most_read(p); vec *= 2) key.allowed.push_back(vec);
  key.why = text("walign=" + llvm::Twine(p.walign) + " allows 1 to " + llvm::Twine(most_read(p)) +
                 ", powers of two");
  return key;
}

std::optional<std::string> PersistentFamily::reject(const Problem& p, const Target& target,
                                                    const Config& c) const {
  if (!serves(target)) return text(name() + " does not run on " + target.name + "; it needs sm_90a");
  if (p.op == Op::kDecode)
    return text(name() + " makes whole products, not the rows of decode; use another family");
  if (const auto why = refuse(p)) return text(name() + " " + *why + "; use another family");
  if (auto why = reject_keys(name(), keys(p, c))) return why;
  if (!fits(p, c))
    return text("stages=" + llvm::Twine(c.stages) + " of " + llvm::Twine(stage_bytes(p, c)) +
                " B leave too little of " + llvm::Twine(persistent::kSharedLimit) +
                " B of shared memory to stage the output; try " +
                (c.stages > 2 ? "stages=" + llvm::Twine(c.stages - 1) : llvm::Twine("a smaller tile")));
  return std::nullopt;
}

std::vector<Config> PersistentFamily::configs(const Problem& p, const Target& target) const {
  std::vector<Config> out;
  if (!serves(target) || p.op == Op::kDecode || refuse(p)) return out;
  for (const Config& c : space(p, target))
    if (!llvm::is_contained(out, c) && !reject(p, target, c)) out.push_back(c);
  return out;
}

std::optional<Config> PersistentFamily::generic_config(const Problem& p, const Target& target) const {
  if (!serves(target) || p.op == Op::kDecode || refuse(p)) return std::nullopt;
  std::optional<Config> c = any_size(p);
  if (!c) return std::nullopt;
  if (is_weight(p))
    c->split_k = any_split(p);
  else
    c->raster = 16;
  if (reject(p, target, *c)) return std::nullopt;
  return c;
}

LaunchPlan PersistentFamily::launch_plan(const Problem& p, const Target& target, const Config& c) const {
  LaunchPlan plan;
  Launch product{.entry = entry_name(p.op).str(),
                 .grid = {grid(p, target, c), 1, 1},
                 .block = {static_cast<uint32_t>(threads(p, c)), 1, 1},
                 .cluster = static_cast<uint32_t>(c.cluster),
                 .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c)),
                 .maps = {},
                 .early = true};
  add_launches(p, target, c, std::move(product), plan);
  if (packs_activations(p, c)) pack_activations(p, plan);
  return plan;
}

namespace tiled_weight {

namespace sizes = persistent::weight;

int output_vector(const Problem& p) {
  return p.walign >= 16 && whole_pieces(p.T, p.wdtype) ? 8 : p.walign >= 2 * element_size(p.wdtype) ? 2 : 1;
}

ConfigKey output_key(const Problem& p, const Config& c) {
  ConfigKey key{"vec_c", c.vec_c, {1}};
  for (int vec : {2, 8})
    if (vec <= output_vector(p)) key.allowed.push_back(vec);
  key.why = text("T=" + llvm::Twine(p.T) + " and walign=" + llvm::Twine(p.walign) + " allow " +
                 llvm::Twine(output_vector(p)));
  return key;
}

std::vector<ConfigKey> keys(const Problem& p, const Config& c, std::initializer_list<int> clusters,
                            int least_stages) {
  const int depth = p.dtype == DType::kF32 ? 32 : 64;
  return {{"tile_m", c.tile_m, {128}},
          {"tile_n", c.tile_n, {128, 256}},
          {"tile_k",
           c.tile_k,
           {depth},
           false,
           text("a swizzled row of shared memory holds " + llvm::Twine(depth) + " elements")},
          {"warps_m", c.warps_m, {8}, false, "a warpgroup multiplies 64 rows"},
          {"warps_n", c.warps_n, {1}, false, "a warpgroup is 4 warps along m"},
          {"cluster", c.cluster, llvm::SmallVector<int, 12>(clusters)},
          {"stages", c.stages, {least_stages, 12}, true}};
}

std::vector<Config> with_splits(Config c, const persistent::Shares& shares) {
  std::vector<Config> out;
  std::set<int> splits = weight_splits(shares);
  // A block less than fills the machine often beats a last round that few have.
  if (sizes::squares(c))
    for (int split : std::set<int>(splits)) splits.insert(std::max(1, split - 1));
  for (int split : splits) {
    if (split > shares.depth) continue;
    c.split_k = split;
    out.push_back(c);
  }
  return out;
}

void add_launches(const Problem& p, const Config& c, Launch product, LaunchPlan& plan) {
  const uint32_t grid = product.grid[0];
  product.register_threads = static_cast<uint32_t>(sizes::register_threads(c));
  plan.launches.push_back(std::move(product));
  // With tiles of one width, none of them shared, there is nothing to add.
  if (c.split_k == 1 && c.tile_n == 128) return;
  plan.launches.push_back({.entry = kReduceEntry.str(),
                           .grid = {grid * static_cast<uint32_t>(sizes::reduce_blocks(c)), 1, 1},
                           .block = {sizes::kReduceThreads, 1, 1},
                           .cluster = 1,
                           .shared_bytes = sizes::kReduceSharedBytes,
                           .maps = {},
                           .early = sizes::admits_reduction(c),
                           .register_threads = sizes::admits_reduction(c) ? 1024u : 0u});
  plan.workspace_bytes = 4 * weight_shares(p, c, static_cast<int>(grid)).workspace();
}

}  // namespace tiled_weight

}  // namespace trigen
