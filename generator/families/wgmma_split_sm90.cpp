#include "templates/wgmma_split_sm90.h"

#include "generator/families/families.h"
#include "generator/families/persistent_family.h"
#include "generator/families/persistent_work.h"
#include "generator/families/tile_family.h"
#include "generator/families/weight_stream_k.h"

namespace trigen {
namespace {

namespace geometry = wgmma_split_sm90;

geometry::Workspace workspace_of(const Problem& p, long long part_floats) {
  return geometry::Workspace(p.op, p.epilogue.bias, static_cast<int>(p.B), static_cast<int>(p.H),
                             static_cast<int>(p.T), static_cast<int>(p.D), part_floats);
}

// Elements of one access: of rows of `size` elements at `align` bytes, read four at a time or written two at
// a time.
int read_vector(int64_t align, int64_t size) { return align >= 16 && size % 4 == 0 ? 4 : 1; }
int write_vector(int64_t align, int64_t size) { return align >= 8 && size % 2 == 0 ? 2 : 1; }

// TMA brings what grad_weight splits inside the product's launch.
bool may_split_inside(const Problem& p) { return p.op == Op::kGradWeight && !needs_packed_activations(p); }

class Planes final : public PersistentKernel {
 public:
  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    const std::string registers = "there are registers for the sums of tile=128x128x64",
                      widths = text("sizes, align=" + llvm::Twine(p.align) + " and walign=" +
                                    llvm::Twine(p.walign) + " allow 1 or " + vectors_text(p));
    const Config own = with_vectors(p, c);
    const auto width = [&](int Config::*member, int most) {
      ConfigKey key{member, {1}, widths};
      if (most > 1) key.allowed.push_back(most);
      return key;
    };
    const auto read_width = [&](int Config::*member, int most) {
      return geometry::splits_inside(c) ? vector_key(member, 4) : width(member, most);
    };
    ConfigKey rows{&Config::tile_m, {128}, "blocks share sums by tiles of 128 rows"};
    if (!is_weight(p)) rows = {&Config::tile_m, {64, 128}, registers + " or 64x128x64"};
    return {rows,
            {&Config::tile_n, {128}, registers},
            {&Config::tile_k, {64}, "a scale is that of 64 elements along k"},
            {&Config::warps_m, {c.tile_m / 16}, "a warpgroup multiplies 64 rows"},
            {&Config::warps_n, {1}, "a warpgroup is 4 warps along m"},
            box_key(p),
            range_key(&Config::stages, 2, most_stages(c)),
            raster_key(),
            split_key(p),
            read_width(&Config::vec_a, own.vec_a),
            read_width(&Config::vec_b, own.vec_b),
            width(&Config::vec_c, own.vec_c),
            {&Config::cluster, {1}, "blocks share nothing"},
            blocks_key()};
  }

  int stage_bytes(const Problem&, const Config& c) const override { return geometry::stage_bytes(c); }
  bool fits(const Problem&, const Config& c) const override {
    return geometry::shared_bytes(c) <= geometry::kSharedLimit;
  }
  int64_t shared_bytes(const Problem&, const Config& c) const override { return geometry::shared_bytes(c); }
  int threads(const Problem&, const Config& c) const override { return geometry::threads(c); }
  int column_units(const Problem& p, const Config& c) const override {
    return geometry::column_units(c, static_cast<int>(p.B), static_cast<int>(p.D));
  }

  std::vector<Config> space(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    for (int rows : {128, 64}) {
      if (rows == 64 && (is_weight(p) || !leaves_sms_idle(p, target))) continue;
      const int most = rows == 64 ? 4 : 3;
      for (int stages : {most, most - 1}) {
        const Config c = config(p, rows, stages);
        llvm::append_range(out, is_weight(p) ? with_splits(c, stream_k_of(p, target, c))
                                             : with_sections(p, target, c, {8, 16, 32}, 1));
      }
    }
    if (may_split_inside(p)) {
      const Config c = config(p, 128, 2, geometry::kBox);
      llvm::append_range(out, with_splits(c, stream_k_of(p, target, c)));
    }
    return out;
  }
  std::optional<Config> any_size(const Problem& p) const override { return config(p, 128, 3); }

  void add_launches(const Problem& p, const Target& target, const Config& c, Launch product,
                    LaunchPlan& plan) const override {
    const bool splits = is_weight(p) && (c.split_k > 1 || stacks(p, c));
    const uint32_t blocks = product.grid[0];
    const long long part_floats = splits ? stream_k_of(p, target, c).workspace() : 0;
    product.early = false;
    if (geometry::splits_inside(c)) {
      plan.workspace_bytes = 4 * part_floats;
      product.maps = {with_rows(activation_map(p, MapSource::kY), geometry::kSplitRows),
                      with_rows(activation_map(p, MapSource::kX), geometry::kSplitRows)};
    } else {
      const geometry::Workspace workspace = workspace_of(p, part_floats);
      plan.workspace_bytes = workspace.end;
      plan.launches.push_back({.entry = kSplitEntry.str(),
                               .grid = {static_cast<uint32_t>(workspace.boxes()), 1, 1},
                               .block = {geometry::kSplitThreads, 1, 1},
                               .cluster = 1,
                               .shared_bytes = geometry::kSplitSharedBytes,
                               .maps = {}});
    }
    plan.launches.push_back(std::move(product));
    if (splits)
      plan.launches.push_back({.entry = kReduceEntry.str(),
                               .grid = {blocks * geometry::kReduceBlocks, 1, 1},
                               .block = {geometry::kReduceThreads, 1, 1},
                               .cluster = 1,
                               .shared_bytes = 0,
                               .maps = {}});
  }

  Work work(const Problem& p, const Target& target, const Config& c) const override;

 private:
  Work work_inside(const Problem& p, const Target& target, const Config& c) const;
  static Config with_vectors(const Problem& p, Config c) {
    c.vec_a = is_weight(p) ? read_vector(p.align, p.D) : read_vector(p.walign, p.T);
    c.vec_b = read_vector(p.align, p.D);
    if (geometry::splits_inside(c)) c.vec_a = c.vec_b = 4;
    c.vec_c = is_weight(p) ? write_vector(p.walign, p.T) : write_vector(p.align, p.D);
    return c;
  }
  static std::string vectors_text(const Problem& p) {
    const Config own = with_vectors(p, {});
    return text(llvm::Twine(own.vec_a) + "x" + llvm::Twine(own.vec_b) + "x" + llvm::Twine(own.vec_c));
  }
  static bool stacks(const Problem& p, const Config& c) {
    return is_weight(p) && geometry::stacks(c, static_cast<int>(p.T));
  }
  static ConfigKey box_key(const Problem& p) {
    ConfigKey key{&Config::box, {0}, "are of grad_weight whose rows TMA takes, split inside its launch (32)"};
    if (may_split_inside(p)) key.allowed.push_back(geometry::kBox);
    return key;
  }
  static int most_stages(const Config& c) { return geometry::splits_inside(c) ? 2 : c.tile_m == 64 ? 4 : 3; }
  // Fewer tiles of 128 rows than SMs: half as many rows busy up to twice as many. Where tiles of 128 rows
  // fill the machine, they read each box of x half as often.
  bool leaves_sms_idle(const Problem& p, const Target& target) const {
    const Config c = config(p, 128, 3);
    return int64_t{row_tiles(p, c)} * p.H * column_units(p, c) < target.sms;
  }
  Config config(const Problem& p, int rows, int stages, int box = 0) const {
    return completed(p, with_vectors(p, {.tile_m = rows, .stages = stages, .box = box}));
  }
  // grad_bias comes from sums of rows that the first launch left, so not every row needs a tile; or from a row's first tile.
  persistent::StreamK stream_k_of(const Problem& p, const Target& target, const Config& c) const {
    const bool inside = geometry::splits_inside(c);
    const auto blocks = static_cast<int>(p.B * schedule::ceil_div(static_cast<int>(p.D), geometry::kPanel)),
               depth = stacks(p, c) ? (blocks + 1) / 2 : blocks;
    return persistent::StreamK(persistent::StreamKArguments{.T = static_cast<int>(p.T),
                                                            .diag = static_cast<int>(p.diag),
                                                            .lower = p.fill == Fill::kLower,
                                                            .depth = depth,
                                                            .split = c.split_k,
                                                            .blocks = static_cast<int>(grid(p, target, c)),
                                                            .tile_n = c.tile_n,
                                                            .edge = 128,
                                                            .copies = static_cast<int>(p.H),
                                                            .every_row = inside && p.epilogue.bias,
                                                            .interleaves = inside,
                                                            .parts_alone = stacks(p, c)});
  }
};

// Parts that a thread of the reduction adds one after the other, in its busiest block.
int loads_of_reduction(const persistent::StreamK& s) {
  const int items = (s.wide - s.whole_tiles) * s.wide_sums() / (4 * geometry::kReduceThreads);
  return schedule::ceil_div(items, s.blocks * geometry::kReduceBlocks) * s.split;
}

// Most of a step's time is there whatever comes in it (the section's latency and step). Above that what a block of k passes through
// shared memory: each box of f32 lands there, is read and comes back as planes; each warpgroup of products reads its 64 rows and all
// columns, 12 times 16 elements of k. Half of that where a head's features end in half a panel.
Work Planes::work_inside(const Problem& p, const Target& target, const Config& c) const {
  const persistent::StreamK s = stream_k_of(p, target, c);
  const auto D = static_cast<int>(p.D);
  const int columns = stacks(p, c) ? geometry::kPanel : c.tile_n;  // of a warpgroup's products
  const int panels = schedule::ceil_div(D, geometry::kPanel);
  const double filled = geometry::ends_in_half(D) ? 1 - 0.5 / panels : 1;
  // Of a short context its rows alone, by warps.
  const double rows = schedule::ceil_div(static_cast<int>(p.T), geometry::kSplitRows) * geometry::kSplitRows,
               there = stacks(p, c) ? rows / geometry::kPanel : 1;
  const double arriving = 4.0 * there * geometry::boxes(c) * geometry::kPanel * geometry::kPanel;
  Work work{.rates = "planes_inside",
            .steps = {{.products = filled * 3 * c.tile_m * columns * geometry::kPanel,
                       .feed_bytes = filled * arriving,
                       .shared_bytes = filled * (3 * arriving + 2 * 12 * 2 * 16.0 * (64 + columns))}},
            .tile = {.elements = static_cast<double>(c.tile_m) * columns},
            .stages = c.stages,
            .warpgroups = geometry::consumers(c)};
  put_weight_stream_k(work, s);
  if (s.whole_tiles == 0)
    work.busy = std::min(1.0, static_cast<double>(std::min(s.parts(), s.blocks)) / target.sms);
  work.memory_bytes = count_work(p).min_bytes;
  work.l2_bytes = work.all.steps[0] * work.steps[0].feed_bytes;
  if (s.parts() > 0) {
    const int beside = stacks(p, c) ? 2 : 1, parts = beside * s.split, runs = geometry::reduce_runs(parts);
    const int sums = c.tile_m * columns / beside;  // of a tile
    const int64_t items = int64_t{s.wide - s.whole_tiles} * sums / 4 * runs / geometry::kReduceThreads,
                  blocks_of_sum = int64_t{s.blocks} * geometry::kReduceBlocks;
    work.passes.push_back({.rates = "add_planes",
                           .bytes = static_cast<double>(s.parts()) * beside * sums * 4,
                           .parts = static_cast<int>((items + blocks_of_sum - 1) / blocks_of_sum) *
                                    schedule::ceil_div(parts, runs)});
  }
  return work;
}

// Three products of planes for each block of k, after a launch that reads every operand once and writes as
// many bytes.
Work Planes::work(const Problem& p, const Target& target, const Config& c) const {
  if (geometry::splits_inside(c)) return work_inside(p, target, c);
  const int blocks = static_cast<int>(grid(p, target, c));
  const bool weight = makes_weights(p.op);
  Work work{.rates = "planes",
            .steps = {{.products = 3.0 * c.tile_m * c.tile_n * geometry::kPanel,
                       .feed_bytes = static_cast<double>(geometry::stage_bytes(c))}},
            .tile = {.elements = static_cast<double>(c.tile_m) * c.tile_n},
            .stages = c.stages,
            .warpgroups = geometry::consumers(c)};
  // The planes are whole boxes of 64 x 64.
  const auto split_bytes = [&](double tokens, double features) {
    const double activation = static_cast<double>(p.B * p.H) * tokens * features * 4,
                 matrix = static_cast<double>(p.H) * tokens * tokens / 2 * 4;
    return weight ? 2 * activation : activation + matrix;
  };
  const auto whole = [](int64_t size) {
    const int64_t padded = (size + 63) / 64 * 64;
    return static_cast<double>(padded);
  };
  work.passes.push_back({"split", 0,
                         split_bytes(static_cast<double>(p.T), static_cast<double>(p.D)) +
                             split_bytes(whole(p.T), whole(p.D))});
  work.memory_bytes = count_work(p).min_bytes;  // the planes are as many bytes
  if (weight) {
    const persistent::StreamK s = stream_k_of(p, target, c);
    // A row's grad_bias was added by one thread when this was timed, from what the first launch left of each box. Lanes share it since
    // (bias_lanes), which no device has timed.
    if (p.epilogue.bias) work.chained = s.depth;
    put_weight_stream_k(work, s);
    work.l2_bytes = work.all.steps[0] * work.steps[0].feed_bytes;
    if (c.split_k > 1)
      work.passes.push_back({.rates = "add_planes",
                             .bytes = static_cast<double>(s.parts()) * s.wide_sums() * 4,
                             .parts = loads_of_reduction(s)});
    return work;
  }
  const ProductWalk walk(p, c, row_tiles(p, c), static_cast<int>(p.H) * column_units(p, c),
                         blocks / c.cluster);
  const std::vector<Run> tiles = reached_tiles(walk, c, static_cast<int>(p.T));
  put_product(work, p, walk, tiles);
  double steps = 0;
  for (const Run& tile : tiles) steps += tile.steps[0];
  work.rereads = {
      panel_reread(p, walk, static_cast<double>(walk.section) * c.tile_n, steps * geometry::kPanel)};
  work.l2_bytes = work.all.steps[0] * work.steps[0].feed_bytes;
  return work;
}

class WgmmaSplitSm90 final : public PersistentFamily {
 public:
  llvm::StringRef name() const override { return "wgmma_split_sm90"; }
  llvm::StringRef template_file() const override { return "wgmma_split_sm90.cuh"; }

 protected:
  std::optional<std::string> refuse(const Problem& p) const override {
    if (p.dtype != DType::kF32)
      return text("splits f32 data, dtype=" + to_string(p.dtype) + " needs no split");
    if (p.math != Math::kF16x3)
      return text("multiplies planes of f16, math=" + to_string(p.math) + " asks for something else");
    if (p.layout != Layout::kBTD)
      return "reads features that are contiguous, layout=bdt has contiguous tokens";
    if (p.K != 1 || p.pad != 0) return "makes K=1 with pad=0";
    // Boxes are blocks of the first launch's grid.
    constexpr double kMost = (int64_t{1} << 31) - 1;
    const int64_t token_blocks = (p.T + 63) / 64, feature_panels = (p.D + 63) / 64;
    const auto blocks = static_cast<double>(token_blocks), panels = static_cast<double>(feature_panels);
    const double activations = static_cast<double>(p.B * p.H) * blocks * panels;
    if ((is_weight(p) ? 2 * activations : activations + static_cast<double>(p.H) * blocks * blocks) > kMost)
      return "counts at most 2^31 boxes of 64 x 64 elements";
    if (is_weight(p)) return too_many_work_tiles(p, geometry::kPanel);
    return std::nullopt;
  }
  const PersistentKernel& kernel(Op) const override { return planes_; }

 private:
  Planes planes_;
};

}  // namespace

const Family& wgmma_split_sm90_family() {
  static const WgmmaSplitSm90 family;
  return family;
}

}  // namespace trigen
