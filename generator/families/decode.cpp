#include "templates/decode.h"

#include <algorithm>
#include <cmath>

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = decode;

int unit(const Problem& p, const Config& c) { return p.layout == Layout::kBTD ? c.vec_b : 1; }
bool shifted(const Problem& p) { return p.K != 1 || p.pad != 0; }

class Decode final : public Family {
 public:
  llvm::StringRef name() const override { return "decode"; }
  llvm::StringRef template_file() const override { return "decode.cuh"; }
  bool serves(const Target&) const override { return true; }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return geometry::shared_bytes(p.layout, c, static_cast<int>(std::min<int64_t>(p.K, 1 << 20)));
  }

  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const bool btd = p.layout == Layout::kBTD;
    const int vec = activation_vector(p);
    return {powers_key(&Config::tile_m, 16),
            powers_key(&Config::tile_n, 1024),
            powers_key(&Config::tile_k, 32),
            powers_key(&Config::warps_m, 16),
            powers_key(&Config::warps_n, 16),
            range_key(&Config::stages, 1, 16, "1 to 16 taps are summed together"),
            range_key(&Config::split_k, 1, 256),
            {&Config::vec_a, {1}, "weights are read singly"},
            powers_key(&Config::vec_b, vec,
                       text("align=" + llvm::Twine(p.align) + " and " +
                            (btd ? "D=" + llvm::Twine(p.D) : "T=" + llvm::Twine(p.T)) + " allow vectors of " +
                            llvm::Twine(vec))),
            powers_key(
                &Config::vec_c, btd ? c.vec_b : 1,
                btd ? "an output vector lies in one vector of x" : "the features of bdt are not contiguous"),
            range_key(&Config::blocks, 0, 32)};
  }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (p.op != Op::kDecode) return text(name() + " makes decode only, the op is " + to_string(p.op));
    if (auto why = reject_keys(name(), keys(p, c), c)) return why;
    const bool btd = p.layout == Layout::kBTD;
    if (auto why = reject_warps(c, geometry::threads(c))) return why;
    if (btd && c.tile_n != 32 * c.warps_n * c.vec_b)
      return text("tile_n=" + llvm::Twine(c.tile_n) + ": " + llvm::Twine(c.warps_n) +
                  " warps with vectors of " + llvm::Twine(c.vec_b) + " have " +
                  llvm::Twine(32 * c.warps_n * c.vec_b) + " features; try that");
    if (btd && c.tile_k < 4)
      return text("tile_k=" + llvm::Twine(c.tile_k) + ": a thread loads 4 tokens at least; try tile_k=8");
    if (!btd && c.tile_n % (c.warps_n * c.tile_k) != 0)
      return text("tile_n=" + llvm::Twine(c.tile_n) + " is no multiple of " +
                  llvm::Twine(c.warps_n * c.tile_k) + ", what the warps load at once; try that");
    if (shifted(p) && p.D > c.tile_n && c.tile_n <= geometry::halo(c, unit(p, c)))
      return text("tile_n=" + llvm::Twine(c.tile_n) +
                  " is no more than the taps reach beyond it; try a larger one");
    if (geometry::sums_per_feature(c) * (btd ? c.vec_b : c.tile_k) > 160)
      return text("tile_m=" + llvm::Twine(c.tile_m) + " rows by stages=" + llvm::Twine(c.stages) +
                  " taps need too many registers; try fewer");
    if (const int64_t bytes = shared_bytes(p, c); bytes > geometry::kSharedLimit)
      return text("rows, taps and warps need " + llvm::Twine(bytes) + " B of shared memory, " + name() +
                  " takes " + llvm::Twine(geometry::kSharedLimit) +
                  " B; try a smaller tile_n or fewer warps");
    if (p.H > 65535 || int64_t{geometry::row_groups(c, static_cast<int>(p.rows))} * c.split_k > 65535)
      return text("more than 65535 heads, or splits by rows; use fewer");
    return reject_blocks(target, c, geometry::threads(c));
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    if (p.op != Op::kDecode) return out;
    const bool btd = p.layout == Layout::kBTD;
    const int vec = activation_vector(p);
    const int rows = p.rows <= 1 ? 1 : p.rows <= 2 ? 2 : p.rows <= 4 ? 4 : 8;
    struct Shape {
      int warps_m, warps_n, tile_k;
    };
    // btd: 32 lanes by vec features a warp. bdt: few features a warp, several passes.
    static constexpr Shape kTokenRows[] = {{1, 4, 8}, {2, 4, 8}, {4, 4, 8},  {1, 4, 16}, {2, 4, 16},
                                           {4, 2, 8}, {8, 1, 8}, {2, 2, 16}, {1, 8, 8},  {1, 8, 16},
                                           {8, 2, 8}, {8, 2, 4}, {2, 1, 16}, {4, 1, 8},  {1, 2, 16},
                                           {4, 4, 4}, {4, 1, 16}};
    static constexpr Shape kFeatureRows[] = {{1, 4, 8}, {1, 8, 8}, {2, 4, 8}, {1, 4, 16}, {1, 8, 4},
                                             {4, 2, 8}, {2, 4, 4}, {1, 2, 8}, {1, 16, 8}};
    for (int vector = vec; vector >= std::max(1, vec / 2); vector /= 2) {
      for (const Shape& shape : btd ? llvm::makeArrayRef(kTokenRows) : llvm::makeArrayRef(kFeatureRows)) {
        for (int tile_m = rows; tile_m >= 1; tile_m /= 2) {
          for (int passes : {1, 2, 4, 8}) {
            if (btd != (passes == 1)) continue;
            Config c = config(p, shape.warps_m, shape.warps_n, shape.tile_k, vector, tile_m, passes);
            const Tiles tiles = tiles_of(p, c);
            // One wave of the model device at least; fewer tokens than a part has steps are not split.
            int last = 0;
            for (int wave : {0, 1, 2, 4}) {
              const int64_t most = std::max<int64_t>(1, p.T / (2 * geometry::step_tokens(p.layout, c)));
              const auto split = static_cast<int>(std::clamp<int64_t>(
                  wave * target.sms / std::max<int64_t>(1, tiles.blocks), 1, std::min<int64_t>(64, most)));
              if (split == last) continue;
              c.split_k = last = split;
              if (!reject(p, target, c)) out.push_back(c);
            }
          }
          if (tile_m > 1 && p.rows <= tile_m) break;  // smaller groups of rows read x again
        }
      }
    }
    return out;
  }

  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    if (p.op != Op::kDecode) return std::nullopt;
    const int vec = activation_vector(p), full = static_cast<int>(16 / element_size(p.dtype));
    const bool vectors = !shifted(p) && vec == full;
    Config c = config(p, 2, 4, 8, vectors ? full : 1, 1, 4);
    c.stages = 1;
    if (reject(p, target, c)) return std::nullopt;
    return c;
  }

  LaunchPlan launch_plan(const Problem& p, const Target&, const Config& c) const override {
    LaunchPlan plan;
    const Tiles tiles = tiles_of(p, c);
    const auto heads = static_cast<uint32_t>(p.H), splits = static_cast<uint32_t>(c.split_k);
    const auto groups = static_cast<uint32_t>(geometry::row_groups(c, static_cast<int>(p.rows)));
    plan.launches.push_back({.entry = entry_name(p.op).str(),
                             .grid = {static_cast<uint32_t>(tiles.count), heads, splits * groups},
                             .block = {static_cast<uint32_t>(geometry::threads(c)), 1, 1},
                             .cluster = 1,
                             .shared_bytes = static_cast<uint32_t>(shared_bytes(p, c))});
    if (c.split_k > 1) {
      const int64_t vectors = p.B * p.D / c.vec_c;
      plan.launches.push_back({.entry = kReduceEntry.str(),
                               .grid = {static_cast<uint32_t>((vectors + geometry::kReduceThreads - 1) /
                                                              geometry::kReduceThreads),
                                        heads, static_cast<uint32_t>(p.rows)},
                               .block = {geometry::kReduceThreads, 1, 1},
                               .cluster = 1,
                               .shared_bytes = 0});
    }
    plan.workspace_bytes = 4 * geometry::workspace_floats(c, kernel_sizes(p), static_cast<int>(p.rows));
    return plan;
  }

  Work work(const Problem& p, const Target& target, const Config& c, int sms) const override;

 private:
  struct Tiles {
    int64_t count, blocks;  // along x; all of one split
  };
  static Tiles tiles_of(const Problem& p, const Config& c) {
    const int64_t count = geometry::tiling(c, kernel_sizes(p), unit(p, c)).count;
    return {count, count * p.H * geometry::row_groups(c, static_cast<int>(p.rows))};
  }

  static Config config(const Problem& p, int warps_m, int warps_n, int tile_k, int vec, int tile_m,
                       int passes) {
    const bool btd = p.layout == Layout::kBTD;
    // All taps in one pass over x, as far as the registers go.
    int taps = static_cast<int>(std::min<int64_t>(p.K, 16));
    const int wide = tile_m * (btd ? vec : tile_k);
    while (taps > 1 && taps * wide > 64) taps = (taps + 1) / 2;
    // Half of the registers are loads in flight: told that 128 are free, the compiler does not trade them for
    // warps.
    const int words = std::max(1, static_cast<int>(vec * element_size(p.dtype) / 4)), loads = tile_k * words;
    const bool many = loads >= 64 && 40 + taps * wide + loads <= 116;
    return {.tile_m = tile_m,
            .tile_n = btd ? 32 * warps_n * vec : warps_n * tile_k * passes,
            .tile_k = tile_k,
            .warps_m = warps_m,
            .warps_n = warps_n,
            .stages = taps,
            .split_k = 1,
            .vec_a = 1,
            .vec_b = vec,
            .vec_c = btd ? vec : 1,
            .blocks = many ? std::max(1, 16 / (warps_m * warps_n)) : 0};
  }
};

// Work of the rows that read the most tokens.
Work Decode::work(const Problem& p, const Target& target, const Config& c, int) const {
  const LaunchPlan plan = launch_plan(p, target, c);
  const Launch& launch = plan.launches.front();
  const bool btd = p.layout == Layout::kBTD;
  const int64_t size = element_size(p.dtype);
  const Tokens tokens = tokens_of_rows(p, longest_rows(p));
  const double length = static_cast<double>(tokens.last - tokens.first);
  const double elements = static_cast<double>(p.B * p.H * p.D) * length;
  // x once for every group of rows, and for every group of taps that one pass has no registers for.
  const double rounds = std::ceil(static_cast<double>(p.K) / c.stages),
               times = geometry::row_groups(c, static_cast<int>(p.rows)) * rounds;
  // Overlapping tiles read their seams twice.
  const double seams =
      p.K == 1 || p.D <= c.tile_n ? 1 : static_cast<double>(c.tile_n) / (c.tile_n - c.stages);

  // A step's loads are issued one after the other, and its products follow them: eight elements to a load.
  const double loads = std::max(1, c.vec_b) * c.tile_k * (1 + geometry::sums_per_feature(c)) / 16.0;
  Work work{.rates = "stream", .unit = Unit::kFp32, .steps = {Step{.loads = loads}}};
  work.threads = geometry::threads(c);
  work.registers = 40 + geometry::sums_per_feature(c) * (btd ? c.vec_b : c.tile_k) +
                   c.tile_k * std::max<int64_t>(1, c.vec_b * size / 4) + (btd ? 0 : 2 * c.tile_k);
  work.shared_bytes = shared_bytes(p, c);
  work.blocks = c.blocks;
  // Vectors that a warp loads one after the other.
  const double turns = length / geometry::step_tokens(p.layout, c);
  const int passes = c.tile_n / (c.warps_n * c.tile_k);  // bdt: of a warp over the tile's features
  const double vectors = btd ? turns : std::ceil(turns) * passes;
  const double steps = std::max(1.0, std::ceil(vectors / c.split_k)) * rounds;
  const auto blocks = int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2];
  work.runs.push_back({{steps}, 1, blocks});
  work.grid = static_cast<double>(blocks);
  work.all = {{steps * work.grid}, work.grid, blocks};

  const double x = elements * static_cast<double>(size);
  work.memory_bytes = count_work(p).min_bytes + static_cast<double>(plan.workspace_bytes);
  work.rereads = {{x, x * (times * seams - 1)}};
  work.l2_bytes = x * times * seams;
  work.instructions =
      elements * times * (1 + geometry::sums_per_feature(c));  // a conversion, and its products
  work.tile.elements = geometry::sum_floats(c);  // that warps hand to each other, and then write
  if (c.split_k > 1) work.passes.push_back({.rates = "add_rows", .parts = c.split_k});
  return work;
}

}  // namespace

const Family& decode_family() {
  static const Decode family;
  return family;
}

}  // namespace trigen
