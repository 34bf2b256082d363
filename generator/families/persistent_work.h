// Counts of the persistent warpgroup families: the walk of a product's tiles and the stream-K schedule of
// grad_weight, by the code that their kernels run (templates/persistent/). Internal to generator/families/.
#pragma once

#include <vector>

#include "generator/family.h"
#include "generator/work.h"
#include "templates/persistent/stream_k.h"
#include "templates/persistent/tile_scheduler.h"

namespace trigen {

// The diagonal as the rows of the product see it: grad_input multiplies by W's transpose.
int product_diag(const Problem& problem);

// Bytes of memory of forward and grad_input: heads' rows of 32 bytes cost more than they are
// (docs/experiments/wgmma_resident_sm90.md, "Narrow boxes").
double memory_of_product(const Problem& problem);
// Beside these, of 16-bit outputs that the L2 cannot hold and whose rows end inside a sector: two boxes write it at different times,
// so that `each` bytes more move for each row of a panel (docs/experiments/wgmma_resident_sm90.md).
double memory_of_split_sectors(const Problem& problem, double each);
bool splits_sectors(const Problem& problem);  // of 16-bit elements
bool exceeds_l2(const Problem& problem);      // its output

// The walk of `clusters` clusters over a product's tiles.
struct ProductWalk {
  int rows, columns, section, clusters;  // row tiles; column units of all heads; those in a section
  bool by_columns;                       // a cluster takes all rows of a column
  Fill fill;
  int diag, width;  // width: of a band, or 0

  ProductWalk(const Problem& problem, const Config& config, int rows, int columns, int clusters);
  persistent::TileScheduler scheduler(int cluster) const;
  // Rows of tiles that are worked on at the same time.
  double rows_at_once() const { return std::max(1.0, static_cast<double>(clusters) / section); }
};

// `times` times as much more.
void add(Run& sum, const Run& run, double times = 1);
// Of `blocks` persistent blocks, some that stand for all, in order; each for those up to the next.
std::vector<int> sample_blocks(int blocks);

// The runs and grid of `blocks` persistent blocks, each what own(block) says; `exact`: of every one of them,
// else of those that stand for all.
template <class Own>
void put_runs(Work& work, int blocks, bool exact, const Own& own) {
  const std::vector<int> walked = exact ? std::vector<int>() : sample_blocks(blocks);
  const int count = exact ? blocks : static_cast<int>(walked.size());
  for (int i = 0; i < count; ++i) {
    const int first = exact ? i : walked[static_cast<size_t>(i)];
    const int next = exact ? i + 1 : i + 1 < count ? walked[static_cast<size_t>(i) + 1] : blocks;
    Run run = own(first);
    run.steps.resize(work.steps.size(), 0.0);
    run.count = next - first;
    Run* last = work.runs.empty() ? nullptr : &work.runs.back();
    if (last != nullptr && last->steps == run.steps && last->tiles == run.tiles)
      last->count += run.count;
    else
      work.runs.push_back(std::move(run));
  }
  work.all.count = blocks;
  work.grid = blocks;
}
// True for tiles and parts that are few enough to walk one by one.
inline bool few_tiles(int64_t tiles, int blocks) { return tiles <= int64_t{16} * blocks; }
// Runs, one a row tile: the k blocks of 64 in the k range of its warpgroups, on average, and one output tile.
std::vector<Run> reached_tiles(const ProductWalk& walk, const Config& config, int tokens);
// The runs, sums and grid of a product whose every row tile is `tiles[row]`, and what its first blocks read.
void put_product(Work& work, const Problem& problem, const ProductWalk& walk, const std::vector<Run>& tiles);
// Bytes that a column's row tiles read beside each other, of `steps` blocks of 64 tokens in all (counted of wgmma_sm90).
void put_common_bytes(Work& work, const Problem& problem, const ProductWalk& walk, double steps,
                      double ring_bytes);
// The same by slices of pairs of row tiles of 64 tokens (templates/persistent/row_slices.h), whose clusters take as long as the
// longest of their blocks, and as if nothing else were done while sums are sent. `more`: steps of each row tile beside its k
// blocks; `kind`: of a step.
void put_slice_runs(Work& work, const ProductWalk& walk, const std::vector<Run>& tiles, int slices,
                    int tokens, int sending, int more, size_t kind = 0);
// The sums over the longest row tiles, as many as are worked on at the same time.
Run first_rows(std::vector<Run> tiles, double rows_at_once, double columns);
// Do pieces of 128 bytes of a row of `elements` lie across two of the L2's lines? Most do where rows do not begin at
// lines.
bool splits_lines(int64_t elements, DType dtype);
// Do pieces of x and y lie across lines? Copies of them in the workspace do not.
bool activations_split_lines(const Problem& problem, const Config& config);
// Sectors of the L2 that each head's rows of a btd output touch, those of two heads twice.
double touched_sectors(const Problem& problem);
// Work::sector_writes of a sector that threads write with the output of heads that begin inside a piece of 16 bytes, where warps that
// multiply wait for it: 20 ps on an H200, whole or not, where the rate is of dW's taps (docs/experiments/wgmma_sm90-operands.md).
inline constexpr double kWritesOfSector = 2.4;
// A section's panel of the other operand, `columns` elements wide, again for every walk over it that the L2
// does not keep. `depth`: tokens along k of all row tiles.
Reread panel_reread(const Problem& problem, const ProductWalk& walk, double columns, double depth);
// Reads and writes of the launches that copy activations into the workspace and back
// (templates/pack_activations.h), where the config asks for them.
void put_copies(Work& work, const Problem& problem, const Config& config);

// The runs, sums and grid of grad_weight's stream-K schedule. Steps of kind 0 are those of wide tiles, of kind 1 those
// of narrow ones.
void put_weight_stream_k(Work& work, const persistent::StreamK& stream_k);
// grad_weight by the schedule of templates/persistent/stream_k.h on a grid of `grid` thread blocks: wgmma_sm90's
// tiles, of 16-bit or f32 operands.
Work shared_weight_work(const Problem& problem, const Target& target, const Config& config, int grid);

}  // namespace trigen
