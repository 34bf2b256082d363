#include "templates/scan.h"

#include <algorithm>
#include <cmath>

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_stream_k.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = scan;

// Steps of a walk that makes no outputs, in those of one that does: for scan_grad_weight's two and the launch ahead of parts.
constexpr double kWalk = 0.5;

class Scan final : public Family {
 public:
  llvm::StringRef name() const override { return "scan"; }
  llvm::StringRef template_file() const override { return "scan.cuh"; }
  bool serves(const Target&) const override { return true; }
  int64_t shared_bytes(const Problem& p, const Config& c) const override {
    return geometry::shared_bytes(p.op, p.layout, c, static_cast<int>(element_size(p.dtype)));
  }

  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const int vec = activation_vector(p);
    const std::string widths = activation_widths(p);
    return {{&Config::tile_m, {geometry::step_tokens(p.layout, c)}, "a step has one chunk of every thread"},
            {&Config::tile_n, tile_widths(p, c), "1 to 32 lanes lie along the features"},
            powers_key(&Config::tile_k, 32),
            powers_key(&Config::warps_m, 16),
            {&Config::warps_n, {1}},
            range_key(&Config::stages, 2, 8, "one step is computed while others are loaded"),
            range_key(&Config::split_k, 1, 1024),
            c.split_k > 1 ? ConfigKey{&Config::cluster, {0}, "is for tokens in one part, split_k=1"}
                          : ConfigKey{&Config::cluster, {0, 2, 3, 4, 5, 6, 7, 8}},
            {&Config::vec_a, {1}, "vectors of W are read singly"},
            powers_key(&Config::vec_b, vec, widths),
            powers_key(&Config::vec_c, vec, widths),
            range_key(&Config::blocks, 0, 32)};
  }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (!is_scan(p.op)) return text(name() + " makes scans only, the op is " + to_string(p.op));
    if (auto why = reject_keys(name(), keys(p, c), c)) return why;
    const int elements = c.tile_k * c.vec_c;
    if (elements > 64)
      return text("tile_k=" + llvm::Twine(c.tile_k) + " vectors of " + llvm::Twine(c.vec_c) +
                  " are more than a thread's 64 elements; try fewer");
    if (const int64_t steps = schedule::ceil_div(static_cast<int>(p.T), c.tile_m);
        c.split_k > 1 && c.split_k > steps)
      return text("split_k=" + llvm::Twine(c.split_k) + " parts of " + llvm::Twine(steps) +
                  " steps; try at most one a step");
    if ((p.layout == Layout::kBTD ? c.tile_n : c.tile_m) % c.vec_b != 0)
      return text("vec_b=" + llvm::Twine(c.vec_b) + " does not divide a row of a step; try a smaller one");
    if (const int64_t bytes = shared_bytes(p, c); bytes > target.max_shared_per_block)
      return text("the ring and the warps need " + llvm::Twine(bytes) + " B of shared memory, " +
                  target.name + " has " + llvm::Twine(target.max_shared_per_block) +
                  " B; try fewer stages or a smaller tile");
    if (auto why = reject_cluster(target, c)) return why;
    if (columns(p, c) * geometry::blocks(c) > kMostBlocks)
      return std::string("more than 2^31 thread blocks; use a smaller batch");
    if (makes_vectors(p.op) && p.H > kMostBlocksAcross)
      return text("more than " + llvm::Twine(kMostBlocksAcross) + " heads; use fewer");
    return reject_blocks(target, c, geometry::threads(c));
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    if (!is_scan(p.op)) return out;
    const bool btd = p.layout == Layout::kBTD, sums = makes_vectors(p.op);
    const int vec = activation_vector(p);
    // A thread's vectors, and how many: more tokens of a thread mean fewer maps to put together, more features fewer
    // lanes to add over. Steps come one after the other, so that long ones win, as far as all blocks run at a time.
    for (const int width : {4, 8, 2, 1}) {
      if (width > vec || (width < 4 && width < vec && !btd)) continue;
      for (const int across : {16, 8, 4, 2, 1}) {
        const int elements = width * across;
        if (elements > (sums ? 32 : 64) || elements < std::min(16, 2 * vec)) continue;
        for (const int lanes : {16, 8, 32, 4})
          for (const int warps : {8, 4, 16, 2, 1})
            for (const int stages : {2, 3}) {
              const Config c = config(p, width, across, lanes, warps, stages, vec);
              if (c.tile_m > 1024 || c.tile_n > 128 || c.tile_m < std::min<int64_t>(32, p.T)) continue;
              if ((lanes > 4 && c.tile_n >= 2 * p.D) || (warps > 1 && c.tile_m >= 2 * p.T)) continue;
              if (btd && c.tile_n * element_size(p.dtype) < 32 && p.D > 16) continue;
              // Registers of as many threads: 16 warps of 128 fill an SM.
              if (elements * warps > (sums ? 256 : 1024)) continue;
              add_parts(p, target, c, out);
            }
      }
    }
    return out;
  }

  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    if (!is_scan(p.op)) return std::nullopt;
    const int vec = activation_vector(p), full = static_cast<int>(16 / element_size(p.dtype));
    const int wide = vec == full ? full : 1;
    const bool btd = p.layout == Layout::kBTD;
    const Config c = config(p, btd ? std::min(2, wide) : wide, btd ? 8 : 1, 32, 4, 3, wide);
    if (reject(p, target, c)) return std::nullopt;
    return c;
  }

  LaunchPlan launch_plan(const Problem& p, const Target& target, const Config& c) const override {
    LaunchPlan plan;
    const bool early = target.compute_capability >= 90;
    const auto slabs = static_cast<uint32_t>(columns(p, c)), parts = static_cast<uint32_t>(c.split_k),
               block = static_cast<uint32_t>(geometry::threads(c));
    const Launch base{.block = {block, 1, 1}, .early = early};
    if (c.split_k > 1) {
      Launch carry = base;
      carry.entry = kCarryEntry.str();
      carry.grid[0] = slabs, carry.grid[1] = parts;
      carry.grid[2] = static_cast<uint32_t>(geometry::inputs(p.op));
      carry.shared_bytes = static_cast<uint32_t>(shared_bytes(p, c));
      plan.launches.push_back(carry);
    }
    Launch main = base;
    main.entry = entry_name(p.op).str();
    main.cluster = static_cast<uint32_t>(geometry::blocks(c));
    main.grid[0] = slabs * main.cluster, main.grid[1] = parts;
    main.shared_bytes = static_cast<uint32_t>(shared_bytes(p, c));
    plan.launches.push_back(main);
    if (makes_vectors(p.op)) {
      const int64_t sums = int64_t{geometry::sums(kernel_shape(p))} * p.T;
      Launch add = base;
      add.entry = kReduceEntry.str();
      add.grid[0] = static_cast<uint32_t>((sums + 31) / 32), add.grid[1] = static_cast<uint32_t>(p.H);
      add.block[0] = geometry::kSumThreads;
      add.shared_bytes = 4 * geometry::kSumThreads;
      plan.launches.push_back(add);
    }
    plan.workspace_bytes = 4 * geometry::workspace_floats(kernel_shape(p), c, kernel_sizes(p));
    return plan;
  }

  Work work(const Problem& p, const Target& target, const Config& c, int sms) const override {
    const bool sums = makes_vectors(p.op);
    // A step's copies of a thread are under way stages - 1 steps ahead.
    const double element = static_cast<double>(element_size(p.dtype));
    Work work{.rates = "scan",
              .unit = Unit::kFp32,
              .steps = {Step{.loads = c.tile_m * c.tile_n * (sums ? 2.0 : 1.0) * (c.stages - 1) / c.vec_b /
                                      geometry::threads(c)}}};
    work.threads = geometry::threads(c);
    const int64_t elements = int64_t{c.tile_k} * c.vec_c, chunk = geometry::tokens(p.layout, c);
    const int64_t features = geometry::features(p.layout, c);
    work.registers = sums ? registers_of_sums(target, c, features, chunk)
                          : std::min<int64_t>(128, 60 + elements + chunk / 2);
    work.shared_bytes = shared_bytes(p, c);
    work.blocks = c.blocks;
    work.cluster = geometry::blocks(c);
    const int64_t count = columns(p, c) * c.split_k;
    const double steps = schedule::ceil_div(geometry::part_steps(c, static_cast<int>(p.T)), work.cluster) *
                         (sums ? 2 * kWalk : 1.0);
    work.runs.push_back({{steps}, 1, count});
    work.grid = static_cast<double>(count);
    work.all = {{steps * work.grid}, work.grid, count};
    // Steps follow each other in a block, and blocks on the SMs that have no place for all of them.
    const int64_t places = places_of(target, work);
    // Rows of fewer than 128 bytes ask the L2 more often for the same bytes.
    const double lines = p.layout == Layout::kBTD ? std::max(1.0, 128 / (c.tile_n * element)) : 1;
    const double at_once = static_cast<double>(
        c.cluster == 0 ? places * sms : clusters_at_once(target, c.cluster, static_cast<int>(places)));
    // Maps to the other blocks, and theirs: by 53 configs of twelve problems, among them all clusters of a list's first
    // three (one H200, one H100, 2026-11-28). Contiguous tokens, and sums, wait longer.
    const double blocks = std::log2(std::max(1, c.cluster));
    const bool waits_long = sums || p.layout == Layout::kBDT;
    const double sent = c.cluster == 0 ? 1 : waits_long ? 0.5 + 0.9 * blocks : 0.4 + 0.3 * blocks;
    const double rounds = std::ceil(work.grid / at_once) * sent * steps;
    // The launch ahead of parts walks the same steps, of both directions where there are two.
    const int directions = geometry::inputs(p.op);
    const double ahead = c.split_k == 1 ? 0
                                        : directions * std::ceil(work.grid / at_once) * kWalk *
                                              geometry::part_steps(c, static_cast<int>(p.T));
    // Warps wait for each other, and for loads less by three stages where one block is on an SM: 256 x 32 at 4,4096,1024.
    const double there = work.grid * work.cluster / sms;  // blocks on an SM, as far as it has places
    const bool ahead_alone = there <= 1 && c.stages > 2 && c.cluster == 0;
    const double waits = (sums ? 0.75 + 0.03 * c.warps_m : 1) * (ahead_alone ? 0.9 : 1);
    work.chained = (rounds + ahead) * waits * (1 + (lines - 1) / 2);
    const LaunchPlan plan = launch_plan(p, target, c);
    const double x = static_cast<double>(p.B * p.H * p.T * p.D) * element;
    work.memory_bytes = count_work(p).min_bytes + static_cast<double>(plan.workspace_bytes);
    const int again = (sums ? 1 : 0) + (c.split_k > 1 ? directions : 0);
    if (again > 0) work.rereads = {{x * (sums ? 2 : 1), x * again}};
    work.l2_bytes = work.memory_bytes + x * again;
    // SMs that no block is on do not help. Sums of 32 elements a thread by 16 warps on an SM take 38.1 us for 49.9 at
    // 16,1024,4x256, and 38.5 for 48.7 at 32,512,1024; 52.3 for 51.5 at 4,4096,1024, where only 8 of them are there.
    const double idle = std::max(1.0, 1 / there);
    const double full = sums && c.blocks > 0
                            ? std::clamp(1.5 - c.warps_m * std::min<double>(there, places) / 16, 0.5, 1.0)
                            : 1;
    work.instructions = idle * full * static_cast<double>(p.B * p.H * p.T * p.D) *
                        (instructions(p, c) + (c.split_k > 1 ? directions * map_instructions(p, c) : 0));
    if (c.split_k > 1) work.passes.push_back({.rates = "add_rows", .parts = c.split_k});
    if (sums)
      work.passes.push_back({.rates = "add_rows", .parts = static_cast<int>(columns(p, c) / p.H / 8 + 1)});
    return work;
  }

 private:
  // Blocks, or clusters, of one part of the tokens.
  static int64_t columns(const Problem& p, const Config& c) {
    return p.B * p.H * geometry::slabs(c, static_cast<int>(p.D));
  }
  // Instructions of an element that the emulated device counts, moves left out, within 10 % (sm_90a, btd): its own, those of
  // a vector, and its share of what a thread does for a step. Whole steps have no checks of what is there. Those of sums are
  // not counts: they and the factors above are fitted to the times of 1,075 configs of four problems (11 to 15 % off, root
  // mean square; one H200, driver 580.159.04, NVRTC 13.0.88, 2026-11-27), by hand to the best. Reading maps of 8 features
  // has bank conflicts.
  static double instructions(const Problem& p, const Config& c) {
    const double features = geometry::features(p.layout, c),
                 elements = features * geometry::tokens(p.layout, c);
    if (makes_vectors(p.op)) {
      const double reads = features > 4 && geometry::feature_lanes(p.layout, c) > 4 ? 2.5 : 1;
      // dx: two products, a conversion and its share of a store and of an address.
      return 20 + 12 / features + (p.epilogue.grad_input ? 3 + 3 / features : 0) +
             (3.4 * lane_joins(p, c) + 3.6 * (reads * c.warps_m + c.cluster) * (features + 6)) / elements;
    }
    const bool whole = p.T % c.tile_m == 0 && p.D % c.tile_n == 0;
    // In clusters a map is made ahead of the outputs, which have no second product then.
    return (whole ? 1 : 1.3) *
           (6.3 + (c.cluster > 0 ? 2 : 0) + 12 / features + (joins(p, c) + 44) / elements);
  }
  // Of one map of the elements, as the launch ahead of parts makes them.
  static double map_instructions(const Problem& p, const Config& c) {
    const double features = geometry::features(p.layout, c);
    return 3 + 10 / features + (joins(p, c) + 10) / (features * geometry::tokens(p.layout, c));
  }
  // What a thread does in a step to put maps together, each of its features and the product of decays: of the lanes
  // along the tokens, of the warps, and of the blocks of a cluster.
  static double joins(const Problem& p, const Config& c) {
    return 3.4 * lane_joins(p, c) +
           1.75 * (c.warps_m * (c.cluster > 0 ? 1.5 : 1) + c.cluster) * (geometry::features(p.layout, c) + 2);
  }
  static double lane_joins(const Problem& p, const Config& c) {
    const double lanes = geometry::token_lanes(p.layout, c);
    return lanes > 1 ? (std::log2(lanes) + 1) * (geometry::features(p.layout, c) + 1) : 0;
  }
  // As the compiler reports them for sums of 16-bit data, btd, where a config does not say how many blocks an SM takes: close
  // to what 4, 3 or 2 blocks of 128 threads have (NVRTC 13.0.88, sm_90a, 1,075 configs).
  static int64_t registers_of_sums(const Target& target, const Config& c, int64_t features, int64_t chunk) {
    const int64_t elements = features * chunk;
    const int64_t registers = elements > 16
                                  ? (chunk > 8 && c.cluster == 0 ? 224 : 168)
                                  : std::min<int64_t>(124, 28 + 14 * elements / 5 + 4 * (chunk + features));
    return c.blocks > 0
               ? std::min<int64_t>(registers, target.registers_per_sm / (geometry::threads(c) * c.blocks))
               : registers;
  }
  // Blocks of an SM.
  static int64_t places_of(const Target& target, const Work& work) {
    return std::max<int64_t>(
        1, std::min(
               {target.shared_per_sm / (work.shared_bytes + target.reserved_shared_per_block),
                int64_t{target.max_threads_per_sm} / work.threads,
                int64_t{target.registers_per_sm} / (work.threads * std::max<int64_t>(work.registers, 32))}));
  }
  static ConfigKey::Values tile_widths(const Problem& p, const Config& c) {
    ConfigKey::Values out;
    for (int lanes = 1; lanes <= 32; lanes *= 2) out.push_back(lanes * geometry::features(p.layout, c));
    return out;
  }
  static Config config(const Problem& p, int width, int across, int lanes, int warps, int stages, int copy) {
    Config c{.tile_k = across,
             .warps_m = warps,
             .warps_n = 1,
             .stages = stages,
             .split_k = 1,
             .vec_a = 1,
             .vec_b = copy,
             .vec_c = width,
             .blocks = 0};
    // 64 elements of a thread need 128 registers, and the compiler takes more where it may.
    if (!makes_vectors(p.op) && across * width == 64) c.blocks = std::max(1, 16 / warps);
    c.tile_n = lanes * geometry::features(p.layout, c);
    c.tile_m = geometry::step_tokens(p.layout, c);
    const int row = p.layout == Layout::kBTD ? c.tile_n : c.tile_m;
    while (row % c.vec_b != 0) c.vec_b /= 2;
    return c;
  }
  // One part, and as many as fill the device one or two times where one does not.
  void add_parts(const Problem& p, const Target& target, Config c, std::vector<Config>& out) const {
    const int steps = schedule::ceil_div(static_cast<int>(p.T), c.tile_m);
    int last = 0;
    for (const int64_t wave : {0, 1, 2, 4}) {
      // One block of 16 warps on an SM only in clusters: two of 8 take 20.3 us for 22.7 at 16,1024,4x256 (H200, 2026-11-27).
      if (c.blocks == 1) break;
      const auto parts = static_cast<int>(std::clamp<int64_t>(
          wave * target.sms / std::max<int64_t>(1, columns(p, c)), 1, std::min(steps, 64)));
      if (parts == last) continue;
      c.split_k = last = parts;
      if (!reject(p, target, c)) out.push_back(c);
    }
    // Clusters, as long as those of half the size do not fill the device with 512 threads on an SM. Of 7 blocks there may
    // be room for more than of 8, by more than they take longer. Columns of less than a line of 128 bytes lose by them:
    // 1,16384,1024 36 to 54 us, parts 30 (H200, 2026-11-27).
    c.split_k = 1;
    if ((p.layout == Layout::kBTD ? c.tile_n : c.tile_m) * element_size(p.dtype) < 128) return;
    for (const int cluster : {2, 4, 7, 8}) {
      c.cluster = cluster;
      const int64_t threads_by_half = columns(p, c) * cluster / 2 * geometry::threads(c);
      if (target.compute_capability == 90 && cluster <= steps &&
          threads_by_half < 512 * int64_t{target.sms} && !reject(p, target, c)) {
        out.push_back(c);
        // Clusters of 2 win with 16 warps on an SM, so with 128 registers a thread, which the compiler takes by chance; with
        // 16 tokens of a thread they spill.
        if (makes_vectors(p.op) && cluster == 2 && c.tile_k * c.vec_c == 32 &&
            geometry::tokens(p.layout, c) <= 8) {
          Config full = c;
          full.blocks = 16 / c.warps_m;
          if (!reject(p, target, full)) out.push_back(full);
        }
      }
    }
  }
};

}  // namespace

const Family& scan_family() {
  static const Scan family;
  return family;
}

}  // namespace trigen
