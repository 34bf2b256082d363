#include "generator/families/persistent_family.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_stream_k.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "templates/persistent/sizes.h"

namespace trigen {
namespace {

// The kernels count a product's tiles, and the rounds of the tile scheduler, in 32 bits
// (templates/persistent/tile_scheduler.h): so many of the smallest leave room for a round more.
constexpr int kSmallestTile = 64;
constexpr double kMostTiles = 1 << 30;

std::optional<std::string> too_many_tiles(const Problem& p) {
  const auto edges = [](int64_t extent) {
    const int64_t tiles = (extent + kSmallestTile - 1) / kSmallestTile;
    return static_cast<double>(tiles);
  };
  const double tiles = edges(p.T) * edges(p.D) * static_cast<double>(p.B) * static_cast<double>(p.H);
  if (tiles <= kMostTiles) return std::nullopt;
  return text("counts at most 2^30 tiles of 64 x 64, B=" + llvm::Twine(p.B) + ", H=" + llvm::Twine(p.H) +
              ", T=" + llvm::Twine(p.T) + " and D=" + llvm::Twine(p.D) + " have more");
}

// A split that suits all sizes: parts for every SM where there are few tiles.
int any_split(const Problem& p) { return p.T <= 512 ? 33 : p.T <= 1024 ? 8 : p.T <= 2048 ? 2 : 1; }

}  // namespace

int PersistentKernel::row_tiles(const Problem& p, const Config& c) {
  return schedule::ceil_div(static_cast<int>(p.T), c.tile_m);
}

uint32_t PersistentKernel::grid(const Problem& p, const Target& target, const Config& c) const {
  const int64_t clusters = clusters_at_once(target, c.cluster);
  if (is_weight(p)) return static_cast<uint32_t>(clusters * c.cluster);
  const int64_t units = int64_t{row_tiles(p, c)} * p.H * column_units(p, c);
  return static_cast<uint32_t>(std::min(clusters, units) * c.cluster);
}

std::vector<Config> PersistentKernel::with_sections(const Problem& p, const Target& target, Config c,
                                                    std::initializer_list<int> round, int rounds,
                                                    bool by_columns) const {
  const int rows = row_tiles(p, c), clusters = std::max(1, target.sms / c.cluster);
  const int64_t columns = p.H * column_units(p, c);
  const int even = clusters / std::gcd(clusters, rows);
  std::set<int> rasters(round);
  rasters.insert(0);
  for (int i = 1; i <= rounds; ++i) rasters.insert(i * even);
  rasters.erase(1);
  if (by_columns && rows == 2 && columns >= clusters) rasters.insert(1);
  std::vector<Config> out;
  for (int raster : rasters) {
    // Narrower sections than one round would be widened by the kernel.
    if (raster > 1 && (raster >= columns || raster < clusters / rows)) continue;
    c.raster = raster;
    out.push_back(c);
  }
  return out;
}

Config PersistentKernel::completed(const Problem& p, Config c) const {
  return complete(c, [&](const Config& own) { return keys(p, own); });
}

ConfigKey PersistentKernel::blocks_key() {
  return {&Config::blocks, {1}, "registers are handed out for one block on an SM"};
}

ConfigKey PersistentKernel::vector_key(int Config::*width, int vector) {
  return {width, {vector}, "TMA moves 16 bytes, and what it cannot take is packed by elements"};
}
int PersistentKernel::most_read(const Problem& p) {
  if (p.w != WeightForm::kDense) return 1;
  return static_cast<int>(std::min<int64_t>(p.walign, 16) / element_size(p.wdtype));
}
ConfigKey PersistentKernel::read_key(const Problem& p) {
  return powers_key(&Config::vec_a, most_read(p),
                    text(llvm::Twine(p.w == WeightForm::kDense ? "walign=" + std::to_string(p.walign)
                                                               : "w=" + to_string(p.w).str()) +
                         " allows 1 to " + llvm::Twine(most_read(p)) + ", powers of two"));
}

std::vector<int> boxes(const Problem& p) {
  if (p.D <= 16) return {0, 16};
  if (p.D <= 32 || p.D == 96) return {0, 32};
  return {0};
}
ConfigKey boxes_key() { return {&Config::box, {0, 16, 32}, "boxes have 64 features (0), 32 or 16"}; }

std::optional<std::string> PersistentFamily::refusal(const Problem& p) const {
  if (p.w != WeightForm::kDense && !takes_forms())
    return text("multiplies with a W that is a matrix, w=" + to_string(p.w) + " stands for one");
  if (auto why = refuse(p)) return why;
  return is_weight(p) ? std::nullopt : too_many_tiles(p);
}

std::vector<ConfigKey> PersistentFamily::keys(const Problem& p, const Config& c) const {
  return kernel(p.op).keys(p, c);
}

std::optional<std::string> PersistentFamily::reject(const Problem& p, const Target& target,
                                                    const Config& c) const {
  if (!serves(target)) return text(name() + " does not run on " + target.name + "; it needs " + served());
  if (op_row(p.op).takes(kRowsField))
    return text(name() + " makes whole products, not the rows of decode; use another family");
  if (!is_whole_product(p.op))
    return text(name() + " makes whole products, the op is " + to_string(p.op) + "; use another family");
  if (const auto why = refusal(p)) return text(name() + " " + *why + "; use another family");
  const PersistentKernel& own = kernel(p.op);
  if (auto why = reject_keys(name(), own.keys(p, c), c)) return why;
  if (!own.fits(p, c))
    return text("stages=" + llvm::Twine(c.stages) + " of " + llvm::Twine(own.stage_bytes(p, c)) +
                " B leave too little of " + llvm::Twine(persistent::kSharedLimit) +
                " B of shared memory to stage the output; try " +
                (c.stages > 2 ? "stages=" + llvm::Twine(c.stages - 1) : llvm::Twine("a smaller tile")));
  return std::nullopt;
}

std::vector<Config> PersistentFamily::configs(const Problem& p, const Target& target) const {
  std::vector<Config> out;
  if (!serves(target) || !is_whole_product(p.op) || refusal(p)) return out;
  for (const Config& c : kernel(p.op).space(p, target))
    if (!llvm::is_contained(out, c) && !reject(p, target, c)) out.push_back(c);
  return out;
}

std::optional<Config> PersistentFamily::generic_config(const Problem& p, const Target& target) const {
  if (!serves(target) || !is_whole_product(p.op) || refusal(p)) return std::nullopt;
  std::optional<Config> c = kernel(p.op).any_size(p);
  if (!c) return std::nullopt;
  if (is_weight(p))
    c->split_k = any_split(p);
  else
    c->raster = 16;
  if (reject(p, target, *c)) return std::nullopt;
  return c;
}

LaunchPlan PersistentFamily::launch_plan(const Problem& p, const Target& target, const Config& c) const {
  const PersistentKernel& own = kernel(p.op);
  LaunchPlan plan;
  Launch product{.entry = entry_name(p.op).str(),
                 .grid = {own.grid(p, target, c), 1, 1},
                 .block = {static_cast<uint32_t>(own.threads(p, c)), 1, 1},
                 .cluster = static_cast<uint32_t>(c.cluster),
                 .shared_bytes = static_cast<uint32_t>(own.shared_bytes(p, c)),
                 .maps = {},
                 .early = true};
  own.add_launches(p, target, c, std::move(product), plan);
  if (packs_activations(p, c)) pack_activations(p, target, plan);
  return plan;
}

int64_t PersistentFamily::shared_bytes(const Problem& p, const Config& c) const {
  return kernel(p.op).shared_bytes(p, c);
}

Work PersistentFamily::work(const Problem& p, const Target& target, const Config& c, int) const {
  return kernel(p.op).work(p, target, c);
}

}  // namespace trigen
