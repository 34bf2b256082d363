#include "generator/families/tile_family.h"

#include <algorithm>

#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

// The largest vector of 1, 2, 4 or 8 elements that fits `bytes`, is aligned to `align` and divides `extent`.
// Vectors wider than 16 bytes are several accesses of 16.
int widest(int64_t element, int64_t bytes, int64_t align, int64_t extent) {
  for (int vec : {8, 4, 2})
    if (vec * element <= bytes && std::min<int64_t>(vec * element, 16) <= align && extent % vec == 0)
      return vec;
  return 1;
}

bool unshifted(const Problem& p) { return p.K == 1 && p.pad == 0; }

// The bytes of one vector of W: 16 once it is rounded to x's dtype.
int64_t weight_vector_bytes(const Problem& p) { return 16 * element_size(p.wdtype) / element_size(p.dtype); }

// The grid's x. (grad_weight makes about half of these.)
int64_t most_tiles(const Problem& p, int tile_m, int tile_n) {
  const int64_t columns = schedule::product_columns(p.op, kernel_sizes(p));
  return (p.T + tile_m - 1) / tile_m * ((columns + tile_n - 1) / tile_n);
}

Config config_of(const TileFamily::TileChoice& t, int stages, const Vectors& v) {
  return {.tile_m = t.tile_m,
          .tile_n = t.tile_n,
          .tile_k = t.tile_k,
          .warps_m = t.warps_m,
          .warps_n = t.warps_n,
          .stages = stages,
          .split_k = 1,
          .vec_a = v.a,
          .vec_b = v.b,
          .vec_c = v.c,
          .blocks = t.blocks};
}

}  // namespace

bool cuts_vectors(const Problem& p, int vec) {
  return !unshifted(p) && p.layout == Layout::kBTD && vec * element_size(p.dtype) == 16;
}

bool spreads_taps(const Problem& p) {
  return transposes(p.op) && (p.K == 2 || p.K == 4 || p.K == 8 || p.K == 16);
}

Shape kernel_shape(const Problem& p) {
  return {.op = p.op,
          .dtype = p.dtype,
          .wdtype = p.wdtype,
          .math = p.math,
          .layout = p.layout,
          .fill = p.fill,
          .T = static_cast<int>(p.T),
          .D = static_cast<int>(p.D),
          .H = static_cast<int>(p.H),
          .K = static_cast<int>(p.K),
          .pad = static_cast<int>(p.pad),
          .diag = static_cast<int>(p.diag),
          .w = p.w,
          .width = static_cast<int>(p.width),
          .bias = p.epilogue.bias,
          .act = p.epilogue.act,
          .pre = p.epilogue.pre,
          .gate = p.epilogue.gate,
          .residual = p.epilogue.residual,
          .accumulate = p.epilogue.accumulate,
          .zero_outside = p.epilogue.zero_outside,
          .mirror = p.epilogue.mirror,
          .grad_input = p.epilogue.grad_input,
          .pointers = p.pointers != 0};
}

schedule::Sizes kernel_sizes(const Problem& p) {
  return {static_cast<int>(p.B),    static_cast<int>(p.H),    static_cast<int>(p.T),
          static_cast<int>(p.D),    static_cast<int>(p.K),    static_cast<int>(p.pad),
          static_cast<int>(p.diag), static_cast<int>(p.width)};
}

int activation_vector(const Problem& p) {
  return widest(element_size(p.dtype), 16, p.align, p.layout == Layout::kBTD ? p.D : p.T);
}

std::string activation_widths(const Problem& p) {
  return text("align=" + llvm::Twine(p.align) + " and rows of " +
              llvm::Twine(p.layout == Layout::kBTD ? p.D : p.T) + " elements allow vectors of " +
              llvm::Twine(activation_vector(p)));
}

std::optional<std::string> reject_warps(const Config& c, int threads) {
  if (threads <= 512) return std::nullopt;
  return text("warps=" + llvm::Twine(c.warps_m) + "x" + llvm::Twine(c.warps_n) +
              " are more than 16 warps; try fewer");
}

std::optional<std::string> reject_cluster(const Target& target, const Config& c) {
  if (c.cluster <= 0 || target.compute_capability >= 90) return std::nullopt;
  return text("cluster=" + llvm::Twine(c.cluster) + ": " + target.name +
              " has no clusters of thread blocks; try cluster=0");
}

std::optional<std::string> reject_blocks(const Target& target, const Config& c, int threads) {
  if (c.blocks * threads <= target.max_threads_per_sm) return std::nullopt;
  return text("blocks=" + llvm::Twine(c.blocks) + " of " + llvm::Twine(threads) +
              " threads do not fit one SM of " + target.name + "; try fewer");
}

Vectors widest_vectors(const Problem& p) {
  const int64_t w = element_size(p.wdtype);
  const int activation = activation_vector(p);
  Vectors v{1, unshifted(p) || cuts_vectors(p, activation) ? activation : 1, activation};
  const bool dense = p.w == WeightForm::kDense;  // numbers that stand for W move one by one
  if (makes_weights(p.op)) {
    v.a = activation;
    v.c = dense ? widest(w, 16, p.walign, p.T * p.K) : 1;
  } else if (!dense) {
    v.a = 1;
  } else if (is_whole_product(p.op) && (!transposes(p.op) || p.K == 1 || spreads_taps(p))) {
    v.a = widest(w, weight_vector_bytes(p), p.walign, p.T * p.K);
  }
  return v;
}

int64_t TileFamily::shared_bytes(const Problem& problem, const Config& config) const {
  return footprint(kernel_shape(problem), config).total;
}

// Registers that hold a tile on its way from global to shared memory (templates/loader.cuh).
int TileFamily::staging_registers(const Problem& p, const Config& c) const {
  const int threads = 32 * c.warps_m * c.warps_n;
  const auto registers = [&](int extent, int vec, DType dtype, bool cut, bool spread) {
    const int64_t size = element_size(dtype);
    if (asynchronous() && dtype == p.dtype && vec * size >= 4 && !cut && !spread) return 0;
    const int elements = std::max(1, extent * c.tile_k / threads);
    if (vec * size < 4) return std::min(elements, 8);
    return static_cast<int>(elements * size / (cut ? 2 : 4));
  };
  const DType a = makes_weights(p.op) ? p.dtype : p.wdtype;
  return registers(c.tile_m, c.vec_a, a, false, spreads_taps(p)) +
         registers(c.tile_n, c.vec_b, p.dtype, cuts_vectors(p, c.vec_b), false);
}

std::vector<TileFamily::TileChoice> TileFamily::of_depths(std::initializer_list<int> depths,
                                                          std::initializer_list<TileChoice> tiles) {
  std::vector<TileChoice> out;
  for (int depth : depths)
    for (TileChoice tile : tiles) {
      tile.tile_k = depth;
      out.push_back(tile);
    }
  return out;
}

std::vector<TileFamily::TileChoice> TileFamily::staged_tiles() {
  return of_depths({32, 64}, {{128, 128, 0, 2, 4, 1},
                              {128, 128, 0, 4, 2, 1},
                              {128, 128, 0, 2, 4, 2},
                              {128, 64, 0, 2, 2, 1},
                              {128, 64, 0, 2, 2, 2},
                              {128, 64, 0, 4, 2, 2},
                              {64, 128, 0, 2, 2, 1},
                              {64, 128, 0, 2, 2, 2},
                              {64, 128, 0, 1, 4, 2},
                              {64, 128, 0, 2, 4, 2},
                              {256, 64, 0, 4, 2, 1},
                              {64, 256, 0, 2, 4, 1},
                              {64, 64, 0, 2, 2, 2},
                              {64, 64, 0, 2, 2, 4},
                              {64, 64, 0, 1, 2, 4},
                              {64, 64, 0, 2, 1, 4}});
}

std::vector<ConfigKey> TileFamily::keys(const Problem& p, const Config&) const {
  const std::vector<int> depths = stages(p);
  std::vector<ConfigKey> keys;
  for (int Config::*side : {&Config::tile_m, &Config::tile_n, &Config::tile_k})
    keys.push_back(powers_key(side, 1024, "is not a power of two"));
  for (int Config::*side : {&Config::warps_m, &Config::warps_n})
    keys.push_back(powers_key(side, 32, "is not a power of two"));
  keys.push_back({&Config::stages, ConfigKey::Values(depths.begin(), depths.end())});
  keys.push_back(split_key(p));
  keys.push_back(raster_key());
  const Vectors most = widest_vectors(p);
  for (const auto& [width, vec] :
       {std::pair{&Config::vec_a, most.a}, {&Config::vec_b, most.b}, {&Config::vec_c, most.c}})
    keys.push_back(powers_key(
        width, vec, text("alignment, contiguity and sizes allow powers of two to " + llvm::Twine(vec))));
  if (!unshifted(p) && most.b > 1)
    keys.push_back({&Config::vec_b,
                    {1, most.b},
                    text("features shifted by taps or padding are loaded singly or in vectors of " +
                         llvm::Twine(most.b))});
  keys.push_back(range_key(&Config::blocks, 0, 32));
  return keys;
}

std::optional<std::string> TileFamily::reject(const Problem& p, const Target& target, const Config& c) const {
  if (!serves(target)) return text(name() + " does not run on " + target.name);
  if (!is_whole_product(p.op)) return text(name() + " makes whole products, the op is " + to_string(p.op));
  if (auto why = reject_math(p, target)) return why;

  if (auto why = reject_keys(name(), keys(p, c), c)) return why;
  const int threads = 32 * c.warps_m * c.warps_n;
  if (threads > 512)
    return text("warps=" + llvm::Twine(c.warps_m) + "x" + llvm::Twine(c.warps_n) + " are " +
                llvm::Twine(threads) + " threads, " + name() + " takes up to 512; try fewer warps");
  if (c.tile_m % (c.warps_m * rows_of_warp()) != 0)
    return text("tile_m=" + llvm::Twine(c.tile_m) + " over " + llvm::Twine(c.warps_m) +
                " warps is not a multiple of " + llvm::Twine(rows_of_warp()) +
                " rows per warp; try fewer warps");
  if (c.tile_n % (c.warps_n * columns_of_warp()) != 0)
    return text("tile_n=" + llvm::Twine(c.tile_n) + " over " + llvm::Twine(c.warps_n) +
                " warps is not a multiple of " + llvm::Twine(columns_of_warp()) +
                " columns per warp; try fewer warps");
  if (c.tile_k % depth_unit(p) != 0)
    return text("tile_k=" + llvm::Twine(c.tile_k) + " is not a multiple of " + llvm::Twine(depth_unit(p)) +
                "; try " + llvm::Twine(depth_unit(p)));
  const int64_t shared = shared_bytes(p, c);
  if (shared > target.max_shared_per_block)
    return text("stages=" + llvm::Twine(c.stages) + " needs " + llvm::Twine(shared) +
                " B of shared memory, " + target.name + " allows " +
                llvm::Twine(target.max_shared_per_block) + " B; try " +
                (c.stages > stages(p).front() ? llvm::Twine("stages=") + llvm::Twine(c.stages - 1)
                                              : llvm::Twine("a smaller tile")));
  // 255 is the architecture's limit. What addresses and predicates take was read off the compiler's reports.
  const int sums = c.tile_m * c.tile_n / threads;
  const int rest = fragment_registers(p, c) + staging_registers(p, c) + address_registers(p, c);
  const int64_t registers =
      std::min<int64_t>(255, target.registers_per_sm / (int64_t{threads} * std::max(1, c.blocks)));
  if (sums + rest > registers)
    return text("tile=" + llvm::Twine(c.tile_m) + "x" + llvm::Twine(c.tile_n) + " over " +
                llvm::Twine(threads) + " threads needs " + llvm::Twine(sums) +
                " registers for sums and about " + llvm::Twine(rest) + " for the rest, " +
                llvm::Twine(registers) + " are there; try more warps, a smaller tile or fewer blocks");

  if (spreads_taps(p) && c.vec_a > 1 && c.tile_k % p.K != 0)
    return text("vec_a=" + llvm::Twine(c.vec_a) + " holds the " + llvm::Twine(p.K) +
                " taps of a token, of which tile_k=" + llvm::Twine(c.tile_k) +
                " is no multiple; try tile_k=" + llvm::Twine(p.K) + " or vec_a=1");
  if (p.H > kMostBlocksAcross)
    return text("H=" + llvm::Twine(p.H) + " heads exceed a grid's 65535; split the call");
  if (const int64_t tiles = most_tiles(p, c.tile_m, c.tile_n); tiles > kMostBlocks)
    return text(llvm::Twine(tiles) + " tiles exceed a grid's 2^31 - 1; try larger tiles or split the call");
  return std::nullopt;
}

std::vector<Config> TileFamily::configs(const Problem& p, const Target& target) const {
  std::vector<Config> out;
  if (!is_whole_product(p.op) || !serves(target) || reject_math(p, target)) return out;
  const schedule::Sizes z = kernel_sizes(p);
  const Shape shape = kernel_shape(p);
  const Vectors v = widest_vectors(p);
  const int64_t columns = schedule::product_columns(p.op, z);
  std::vector<TileChoice> choices = tiles(p, target);
  // Every tile with all registers too, for operands that are staged in them: taps, f32 weights of 16-bit
  // data.
  if (asynchronous() && (p.K > 1 || p.pad != 0 || p.wdtype == DType::kF32))
    for (size_t i = 0, size = choices.size(); i < size; ++i)
      if (choices[i].blocks > 2) {
        choices.push_back(choices[i]);
        choices.back().blocks = 2;
      }
  for (const TileChoice& t : choices) {
    // A tile more than twice as large as the product only adds waste.
    if (t.tile_m > 64 && t.tile_m >= 2 * p.T) continue;
    if (t.tile_n > 64 && t.tile_n >= 2 * columns) continue;
    if (most_tiles(p, t.tile_m, t.tile_n) > kMostBlocks) continue;
    for (int stage : stages(p)) {
      // Two shallow stages hide too little, five deep ones gain nothing over four.
      const bool shallow = t.tile_k == depth_unit(p);
      if (stages(p).size() > 1 && stage == (shallow ? stages(p).front() : stages(p).back())) continue;
      Config c = config_of(t, stage, v);
      if (makes_weights(p.op)) {
        // Splits that just fill one, two, three or four waves of the model device, with 8 steps in each part
        // at least.
        const int64_t steps = schedule::ceil_div(schedule::product_depth(p.op, z), c.tile_k);
        // Blocks without those outside the triangle, which only end early: groups of one row have none.
        c.raster = 1;
        const int64_t blocks = std::max<int64_t>(1, int64_t{schedule::tile_count(shape, c, z)} * p.H);
        const int64_t slots = int64_t{target.sms} * std::max(1, c.blocks);
        // Several waves of tiles: their order decides what the L2 keeps. Else groups of one row as well:
        // their grid has no blocks without work (generator/cost/cost.cpp says what these cost).
        const std::initializer_list<int> waves = {8, 4, 16}, one = {8, 1};
        for (int raster : blocks > slots ? waves : one) {
          c.raster = raster;
          int last = 0;
          for (int64_t wave : {0, 1, 2, 3, 4}) {
            const int64_t split =
                std::clamp<int64_t>(wave * slots / blocks, 1, std::max<int64_t>(1, steps / 8));
            if (split == last) continue;
            c.split_k = last = static_cast<int>(split);
            if (!reject(p, target, c)) out.push_back(c);
          }
        }
      } else {
        // Sections as wide as the product, and narrower ones where there is something to narrow.
        const int64_t column_tiles = schedule::ceil_div(static_cast<int>(columns), c.tile_n);
        for (int raster : rasters()) {
          if (raster >= column_tiles && raster > 0) break;
          c.raster = raster;
          if (!reject(p, target, c)) out.push_back(c);
        }
      }
    }
  }
  return out;
}

// One binary per kind of problem: full vectors where every operand allows them, else single elements;
// grad_weight is split where its triangle has too few tiles to fill a device.
std::optional<Config> TileFamily::generic_config(const Problem& p, const Target& target) const {
  if (!is_whole_product(p.op) || !serves(target) || reject_math(p, target)) return std::nullopt;
  const TileChoice t = generic_tile(p);
  const Vectors v = widest_vectors(p);
  const int x = static_cast<int>(16 / element_size(p.dtype));
  const bool dense = p.w == WeightForm::kDense, weight = makes_weights(p.op);
  const int a_full = dense || weight ? x : 1;
  const int c_full = !weight ? x : dense ? static_cast<int>(16 / element_size(p.wdtype)) : 1;
  const bool full = unshifted(p) && v.a == a_full && v.b == x && v.c == c_full;
  Config c = config_of(t, stages(p).front(), full ? Vectors{a_full, x, c_full} : Vectors{1, 1, 1});
  if (weight && p.T * p.K <= 2048) c.split_k = 8;
  c.raster = 8;
  if (reject(p, target, c)) return std::nullopt;
  return c;
}

LaunchPlan TileFamily::launch_plan(const Problem& p, const Target&, const Config& c) const {
  const Shape shape = kernel_shape(p);
  const schedule::Sizes z = kernel_sizes(p);
  LaunchPlan plan;
  const auto heads = static_cast<uint32_t>(p.H), splits = static_cast<uint32_t>(std::max(1, c.split_k));
  plan.launches.push_back({.entry = entry_name(p.op).str(),
                           .grid = {static_cast<uint32_t>(schedule::tile_count(shape, c, z)), heads, splits},
                           .block = {static_cast<uint32_t>(32 * c.warps_m * c.warps_n), 1, 1},
                           .cluster = 1,
                           .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c))});
  const int reduced =
      schedule::sums_diagonals(shape) ? schedule::ceil_div(z.T, schedule::kReduceDiagonals) : z.T;
  if (schedule::adds_parts(shape, c))
    plan.launches.push_back({.entry = kReduceEntry.str(),
                             .grid = {static_cast<uint32_t>(reduced), heads, 1},
                             .block = {schedule::kReduceThreads, 1, 1},
                             .cluster = 1,
                             .shared_bytes = 0});
  plan.workspace_bytes = 4 * schedule::workspace_floats(shape, c, z);
  return plan;
}

}  // namespace trigen
