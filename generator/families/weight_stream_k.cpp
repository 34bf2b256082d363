#include "generator/families/weight_stream_k.h"

#include <algorithm>
#include <set>

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "templates/persistent/grad_weight.h"

namespace trigen {

using namespace persistent;

int clusters_at_once(const Target& target, int cluster, int places) {
  const int all = std::max(1, target.sms * places / cluster);
  const int share = cluster < 3 * places ? 11 : places == 1 && (cluster % 3 == 0 || cluster == 7) ? 9 : 10;
  return std::max(1, all * share / 11);
}

StreamK weight_stream_k(const Problem& p, const Config& c, int grid) {
  const int features = weight::block_depth(p.dtype);
  const int box = c.box > 0 ? c.box : features;
  const auto B = static_cast<int>(p.B), T = static_cast<int>(p.T);
  const int batches =
      weight::stacks(c) ? schedule::ceil_div(B, weight::kConsumers * weight::stacked(kernel_shape(p), c)) : B;
  const packing::Rows rows =
      packs_activations(p, c) ? slot_rows(p) : packing::Rows(false, batches, static_cast<int>(p.D));
  const int scale = weight::stream_k_scale(c);
  return StreamK(StreamKArguments{
      .T = scale * T,
      .diag = scale * static_cast<int>(p.diag),
      .lower = p.fill == Fill::kLower,
      .depth = schedule::ceil_div(rows.batches * schedule::ceil_div(rows.features, box), features / box),
      .split = std::max(1, c.split_k),
      .blocks = grid / std::max(1, c.cluster),
      .tile_n = weight::stream_k_columns(c),
      .edge = scale * weight::edge_of(c),
      .copies = static_cast<int>(p.H * p.K),
      .every_row = p.epilogue.bias,
      .interleaves = p.K == 1,
      .parts_alone = weight::parts_alone(c),
      .taps = static_cast<int>(p.K),
      .width = weight::stream_k_width(c, static_cast<int>(p.width)),
      .diagonals = weight::work_diagonals(kernel_shape(p), c)});
}

bool leaves_parts(const Config& c, const StreamK& s) {
  return c.split_k > 1 || weight::parts_alone(c) || s.diagonals > 0 || s.narrow > 0;
}

double multiplied_depth(const Problem& p, const Config& c) {
  const int depth = weight::block_depth(p.dtype), blocks = schedule::ceil_div(static_cast<int>(p.D), depth);
  const int skipped = weight::block_steps() - weight::last_steps(kernel_shape(p), c);
  return depth * (1 - static_cast<double>(skipped) / (weight::block_steps() * blocks));
}

std::optional<std::string> too_many_work_tiles(const Problem& p, int features) {
  const int64_t row_tiles = (p.T + 127) / 128, blocks = (p.D + features - 1) / features;
  const auto rows = static_cast<double>(row_tiles),
             depth = static_cast<double>(p.B) * static_cast<double>(blocks);
  const double all_rows = static_cast<double>(p.H * p.K) * rows;
  if (all_rows <= kMostWeightRows && all_rows * std::max(rows, depth) <= double{1 << 30}) return std::nullopt;
  return "counts at most 2^21 rows of tiles of dW, 2^30 tiles and 2^30 blocks of their depth";
}

namespace {

// Numbers of parts: one for every block, half as many, twice as many, and the number that fills whole rounds best.
std::set<int> weight_splits(const StreamK& stream_k) {
  const int left = stream_k.wide % stream_k.blocks;
  const int all = left > 0 ? std::max(1, stream_k.blocks / left) : 1;
  std::set<int> splits = {1, std::max(1, all / 2), all, 2 * all};
  double best = 0;
  int fullest = 1;
  for (int split = all + 1; left > 0 && split <= 4 * all; ++split) {
    const int rounds = schedule::ceil_div(left * split, stream_k.blocks);
    const double filled = static_cast<double>(left) * split / (static_cast<double>(rounds) * stream_k.blocks);
    if (filled > best + 1e-9) best = filled, fullest = split;
  }
  splits.insert(fullest);
  splits.erase(splits.upper_bound(stream_k.depth), splits.end());
  return splits;
}

}  // namespace

std::vector<Config> with_splits(Config c, const StreamK& stream_k) {
  std::vector<Config> out;
  std::set<int> splits = weight_splits(stream_k);
  // A block less than fills the machine often beats a last round that few have.
  if (weight::squares(c))
    for (int split : std::set<int>(splits)) splits.insert(std::max(1, split - 1));
  for (int split : splits) {
    if (split > stream_k.depth) continue;
    c.split_k = split;
    out.push_back(c);
  }
  return out;
}

}  // namespace trigen
