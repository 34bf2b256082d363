// Schedules of the persistent kernels: every work tile once, none twice, and evenly.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "templates/persistent/grad_weight.h"
#include "templates/wgmma_sm90.h"
#include "templates/wgmma_tf32_sm90.h"

namespace trigen::persistent {
namespace {

using namespace wgmma_sm90;

bool kept(Fill fill, int row, int k, int diag) {
  return fill == Fill::kLower ? k <= row + diag : k >= row + diag;
}

// Of blocks of `depth` along k, for 64 rows: those with nothing to mask, and those that have a weight.
struct Counted {
  int unmasked = 0, active = 0;
};
Counted counted(Fill fill, int first, int diag, int blocks, int depth) {
  Counted out;
  for (int i = 0; i < blocks; ++i) {
    const int k = depth * (fill == Fill::kLower ? i : blocks - 1 - i);
    int inside = 0;
    for (int r = 0; r < 64; ++r)
      for (int c = 0; c < depth; ++c) inside += kept(fill, first + r, k + c, diag);
    // Blocks come in an order in which whole ones are first and empty ones last.
    if (inside == 64 * depth) {
      EXPECT_EQ(out.unmasked++, i);
    }
    if (inside > 0) {
      EXPECT_EQ(out.active++, i);
    }
  }
  return out;
}

TEST(KRange, CountsTheBlocksThatHaveAWeight) {
  for (Fill fill : {Fill::kLower, Fill::kUpper})
    for (int blocks : {1, 2, 5, 9})
      for (int diag : {-700, -130, -65, -64, -63, -3, 0, 1, 5, 63, 64, 65, 200, 700})
        for (int first = 0; first < 64 * blocks; first += 64) {
          const KRange range(fill, first, diag, blocks);
          const Counted expected = counted(fill, first, diag, blocks, 64);
          EXPECT_EQ(range.unmasked_blocks, expected.unmasked)
              << "blocks " << blocks << " diag " << diag << " first " << first;
          EXPECT_EQ(range.blocks, expected.active)
              << "blocks " << blocks << " diag " << diag << " first " << first;
        }
}

// Of a row tile the blocks before the first one that has a weight; rows behind the last token have none.
TEST(KRange, CountsTheBlocksBeforeABand) {
  for (Fill fill : {Fill::kLower, Fill::kUpper})
    for (int tokens : {1, 64, 65, 200, 577})
      for (int width : {1, 2, 63, 64, 65, 66, 128, 129, 400})
        for (int rows : {64, 128, 256})
          for (int first = 0; first < tokens && width <= tokens; first += rows) {
            const int blocks = schedule::ceil_div(tokens, 64);
            int before = 0;
            for (int i = 0; i < blocks; ++i) {
              const int k = 64 * (fill == Fill::kLower ? i : blocks - 1 - i);
              bool any = false;
              for (int row = first; row < first + rows; ++row)
                any |= fill == Fill::kLower ? k <= row && row < k + 63 + width
                                            : k + 63 >= row && k < row + width;
              if (any) break;
              ++before;
            }
            EXPECT_EQ(blocks_before_band(fill, first, rows, width, blocks), before)
                << tokens << " tokens, width " << width << ", rows " << first << " to " << first + rows;
            EXPECT_EQ(blocks_before_band(fill, first, rows, 0, blocks), 0);
          }
}

// A block's stages one after the other, as skips_blocks takes them: is a stage skipped, and would whoever skipped
// it know that its block has landed before the next wait there?
struct WalkedStage {
  bool skipped, other_waited;  // by the time that the loading thread has the stage before it back
};
std::vector<WalkedStage> walked_stages(const Shape& s, const Config& c, int columns, int clusters) {
  std::vector<WalkedStage> out;
  const Fill fill = product_fill(s);
  const int blocks = schedule::ceil_div(s.T, kPanel), diag = s.op == Op::kGradInput ? -s.diag : s.diag;
  TileScheduler scheduler = scheduler_of(s, c, row_tiles(c, s.T), columns, clusters, 0);
  for (int row, column; scheduler.next(row, column);) {
    const KRange first(fill, row * c.tile_m, diag, blocks), second(fill, row * c.tile_m + 64, diag, blocks);
    const KRange& longest = first.blocks > second.blocks ? first : second;
    for (int block = 0; block < longest.blocks; ++block)
      out.push_back(
          {block >= std::min(first.blocks, second.blocks), block > 0 && block - 1 < longest.unmasked_blocks});
  }
  return out;
}
bool walk_is_safe(const std::vector<WalkedStage>& stages, size_t ring) {
  for (size_t i = 0; i + ring < stages.size(); ++i)
    if (stages[i].skipped && !stages[i + ring].skipped &&
        (stages[i + ring - 1].skipped || !stages[i].other_waited))
      return false;
  return true;
}

Config ring_of(int tile_n, int stages) {
  Config c{};
  c.tile_m = 128;
  c.tile_n = tile_n;
  c.tile_k = 64;
  c.stages = stages;
  c.cluster = 1;
  return c;
}

TEST(Skips, NoWalkComesBackToAStageOfWhichItKnowsNothing) {
  int allowed = 0, refused = 0;
  for (const Op op : {Op::kForward, Op::kGradInput})
    for (const Fill fill : {Fill::kLower, Fill::kUpper})
      for (const int tokens : {40, 72, 128, 192, 256, 320, 640, 2176})
        for (const int diag : {-130, -64, -2, -1, 0, 1, 32, 64, 2000})
          for (int stages = 2; stages <= 8; ++stages) {
            if (std::abs(diag) >= tokens) continue;
            Shape s{};
            s.op = op;
            s.dtype = s.wdtype = DType::kBF16;
            s.fill = fill;
            s.T = tokens;
            s.diag = diag;
            Config c = ring_of(64, stages);
            bool safe = true;
            for (const int columns : {1, 2, 3, 5, 8, 13})
              for (const int raster : {0, 1, 2, 3})
                for (const int clusters : {1, 2, 3}) {
                  c.raster = raster;
                  safe = safe && walk_is_safe(walked_stages(s, c, columns, clusters), stages);
                }
            // It may refuse what these walks do not reach, and never the other way round.
            if (skips_blocks(s, c)) {
              EXPECT_TRUE(safe) << "T " << tokens << " diag " << diag << " stages " << stages;
            }
            ++(skips_blocks(s, c) ? allowed : refused);
          }
  EXPECT_GT(allowed, 100);
  EXPECT_GT(refused, 100);
  // The usual triangles of the usual rings, and what none may skip.
  const Config ring = ring_of(256, 4);
  Shape s{};
  s.dtype = s.wdtype = DType::kBF16;
  s.T = 1000;
  EXPECT_TRUE(skips_blocks(s, ring));
  s.op = Op::kGradInput;
  EXPECT_TRUE(skips_blocks(s, ring));
  s.T = 0;  // any size
  EXPECT_FALSE(skips_blocks(s, ring));
}

TEST(KStepRange, CountsTheStepsThatHaveAWeight) {
  using wgmma_tf32_sm90::kPanelTokens;
  using wgmma_tf32_sm90::kStep;
  for (Fill fill : {Fill::kLower, Fill::kUpper})
    for (int steps : {1, 2, 5, 18})
      for (int diag : {-700, -130, -65, -64, -63, -33, -32, -31, -3, 0, 1, 5, 31, 32, 33, 63, 64, 200, 700})
        for (int first = 0; first < kStep * steps; first += kPanelTokens) {
          const wgmma_tf32_sm90::KStepRange range(fill, first, diag, steps);
          const Counted expected = counted(fill, first, diag, steps, kStep);
          EXPECT_EQ(range.unmasked_steps, expected.unmasked)
              << "steps " << steps << " diag " << diag << " first " << first;
          EXPECT_EQ(range.steps, expected.active)
              << "steps " << steps << " diag " << diag << " first " << first;
        }
}

std::map<std::pair<int, int>, int> scheduled(int rows, int columns, int section, int clusters,
                                             std::vector<int>* work = nullptr, bool by_columns = false) {
  std::map<std::pair<int, int>, int> tiles;
  for (int cluster = 0; cluster < clusters; ++cluster) {
    TileScheduler scheduler{.rows = rows,
                            .columns = columns,
                            .section = section,
                            .clusters = clusters,
                            .cluster = cluster,
                            .longest_last = true,
                            .turns = by_columns ? 0 : 1};
    for (int row = 0, column = 0; scheduler.next(row, column);) {
      EXPECT_TRUE(row >= 0 && row < rows && column >= 0 && column < columns);
      ++tiles[{row, column}];
      if (work) (*work)[cluster] += row + 1;
    }
  }
  return tiles;
}

TEST(TileScheduler, EveryTileOnce) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const int rows = 1 + random() % 40, columns = 1 + random() % 70, section = 1 + random() % columns,
              clusters = 1 + random() % 140;
    const auto tiles = scheduled(rows, columns, section, clusters);
    EXPECT_EQ(tiles.size(), static_cast<size_t>(rows) * columns);
    for (const auto& [tile, times] : tiles) EXPECT_EQ(times, 1);
  }
}

// Whole columns to every cluster, and of those that are left at most one column's work.
TEST(TileScheduler, ColumnsOneByOne) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const int rows = 1 + random() % 5, columns = 1 + random() % 700, clusters = 1 + random() % 140;
    std::vector<int> work(clusters);
    const auto tiles = scheduled(rows, columns, std::min(clusters, columns), clusters, &work, true);
    EXPECT_EQ(tiles.size(), static_cast<size_t>(rows) * columns);
    for (const auto& [tile, times] : tiles) EXPECT_EQ(times, 1);
    const int of_column = rows * (rows + 1) / 2, whole = columns / clusters * of_column;
    EXPECT_GE(*std::min_element(work.begin(), work.end()), whole);
    EXPECT_LE(*std::max_element(work.begin(), work.end()), whole + of_column);
  }
  TileScheduler second{
      .rows = 2, .columns = 8, .section = 3, .clusters = 3, .cluster = 1, .longest_last = true, .turns = 0};
  std::vector<std::pair<int, int>> order;
  for (int row, column; second.next(row, column);) order.push_back({row, column});
  EXPECT_EQ(order, (std::vector<std::pair<int, int>>{{1, 1}, {0, 1}, {1, 4}, {0, 4}, {1, 7}}));
}

TEST(TileScheduler, LongAndShortRowsToEveryCluster) {
  // Rows and column units of T = 512 to 8192 with sections of whole rounds: within 4 % of the mean.
  const int cases[][3] = {{4, 128, 33}, {8, 64, 33}, {16, 32, 32}, {32, 16, 16}, {64, 16, 16}, {32, 128, 16}};
  for (const auto& [rows, columns, section] : cases) {
    std::vector<int> work(132);
    scheduled(rows, columns, section, 132, &work);
    const double mean = rows * (rows + 1) / 2.0 * columns / 132;
    EXPECT_LE(*std::max_element(work.begin(), work.end()), 1.04 * mean) << rows << " rows";
  }
}

TEST(TileScheduler, SectionsHaveWorkForTheMachine) {
  Config c{};
  c.raster = 16;
  EXPECT_EQ(section_columns(c, 8, 64, 132), 16);   // 128 tiles: one round
  EXPECT_EQ(section_columns(c, 2, 256, 132), 66);  // widened from 32 tiles
  EXPECT_EQ(section_columns(c, 200, 64, 132), 16);
  EXPECT_EQ(section_columns(c, 2, 10, 132), 10);
  c.raster = 0;
  EXPECT_EQ(section_columns(c, 8, 64, 132), 64);
  c.raster = 1;
  EXPECT_EQ(section_columns(c, 2, 256, 132), 132);
  EXPECT_EQ(section_columns(c, 8, 64, 132), 64);
}

// Adds up what all blocks do: for each tile of 128 x 128 (256 x 256 for pairs and squares of blocks), its k
// blocks.
void check_shares(int T, int diag, bool lower, int depth, int split, int blocks, int tile_n, int copies = 1,
                  bool every_row = false, int edge = 128, bool interleaves = false, int taps = 1) {
  SCOPED_TRACE(testing::Message() << "T " << T << " diag " << diag << " lower " << lower << " depth " << depth
                                  << " split " << split << " blocks " << blocks << " tile_n " << tile_n
                                  << " edge " << edge << " copies " << copies << " every row " << every_row
                                  << " interleaves " << interleaves << " taps " << taps);
  const StreamK stream_k(StreamKArguments{T, diag, lower, depth, split, blocks, tile_n, edge, copies,
                                          every_row, interleaves, false, taps});
  const int unit = std::max(tile_n / edge, 1);
  int wide = 0, narrow = 0;
  for (int row = 0; row < stream_k.rows; ++row) {
    EXPECT_EQ(stream_k.before(false, row), wide) << "row " << row;
    EXPECT_EQ(stream_k.before(true, row), narrow) << "row " << row;
    wide += stream_k.span(row) / unit;
    narrow += stream_k.span(row) % unit;
  }
  EXPECT_EQ(stream_k.wide, wide * copies);
  EXPECT_EQ(stream_k.narrow, narrow * copies);
  for (const bool is_narrow : {false, true})
    for (int tile = 0, last = 0; tile < (is_narrow ? stream_k.narrow : stream_k.wide); ++tile) {
      int place = -1;
      const int copy = stream_k.copy_of(is_narrow, tile, place);
      ASSERT_EQ(stream_k.index_of(is_narrow, place, copy), tile);
      if (stream_k.wide > blocks) EXPECT_GE(copy / taps, last) << "heads one after the other";
      last = copy / taps;
    }
  std::map<std::tuple<int, int, int>, std::vector<int>> done;  // copy, row, column
  std::map<long long, long long> slots;                        // begin -> end in the workspace
  for (int b = 0; b < blocks; ++b) {
    StreamKWalk walk(stream_k, b);
    int narrow_slots = 0;
    for (WorkTile work; walk.next(work);) {
      ASSERT_LT(work.begin, work.end);
      for (int half = 0; half < (work.narrow ? 1 : unit); ++half) {
        auto& times = done[{work.copy, work.row, work.column + half}];
        times.resize(depth);
        for (int i = work.begin; i < work.end; ++i) {
          const int k = work.origin + i * work.step;
          ASSERT_LT(k, depth);
          ++times[k];
        }
      }
      if (work.number >= 0) {
        const long long slot = stream_k.slot(work.number);
        EXPECT_TRUE(slots.emplace(slot, slot + (work.narrow ? kNarrowSums : stream_k.wide_sums())).second)
            << "two parts in one place";
        if (every_row) {
          const long long bias = stream_k.bias_slot(work.number);
          EXPECT_TRUE(slots.emplace(bias, bias + edge).second) << "two parts in one place";
        }
        narrow_slots += work.narrow;
      } else {
        EXPECT_EQ(work.begin, 0);
        EXPECT_EQ(work.end, depth);
      }
    }
    EXPECT_LE(narrow_slots, 2);
  }
  long long last = 0;
  for (const auto& [begin, end] : slots) {
    EXPECT_GE(begin, last);
    last = end;
  }
  EXPECT_LE(last, stream_k.workspace());
  const Fill fill = lower ? Fill::kLower : Fill::kUpper;
  for (int row = 0; row < stream_k.rows; ++row)
    for (int column = 0; column < stream_k.rows; ++column) {
      // The corner of the tile that lies deepest in the triangle.
      const bool touched = lower ? kept(fill, edge * row + edge - 1, edge * column, diag)
                                 : kept(fill, edge * row, edge * column + edge - 1, diag);
      for (int copy = 0; copy < copies; ++copy) {
        const auto found = done.find({copy, row, column});
        if (touched || (every_row && column == stream_k.bias_column(row))) {
          ASSERT_NE(found, done.end()) << "tile " << row << ", " << column;
        }
        if (found == done.end()) continue;
        for (int times : found->second) EXPECT_EQ(times, 1) << "tile " << row << ", " << column;
      }
    }
  // grad_bias: beside a tile at the diagonal, which the reduction finds by its place.
  for (int row = 0; every_row && row < stream_k.rows; ++row) {
    const bool narrow = stream_k.bias_is_narrow(row);
    int of = -1, column = -1;
    stream_k.locate(narrow, stream_k.bias_place(row), of, column);
    EXPECT_EQ(of, row);
    EXPECT_EQ(column, stream_k.bias_column(row));
    EXPECT_EQ(lower ? column + (narrow ? 1 : stream_k.unit) : column,
              stream_k.first(row) + (lower ? stream_k.span(row) : 0));
  }
  // The reduction finds the same blocks that left parts.
  for (int tile = 0; tile < stream_k.narrow; ++tile) {
    const int first = stream_k.owner(tile * depth), end = stream_k.owner((tile + 1) * depth - 1);
    EXPECT_LE(stream_k.bound(first), tile * depth);
    EXPECT_GT(stream_k.bound(first + 1), tile * depth);
    EXPECT_GE(stream_k.bound(end + 1), (tile + 1) * depth);
    for (int b = first; end > first && b <= end; ++b)
      EXPECT_TRUE(slots.count(stream_k.slot(stream_k.narrow_number(b, b == first))));
  }
}

TEST(StreamK, EveryKBlockOfEveryTileOnce) {
  for (int T : {64, 128, 256, 512, 1000, 1024, 2048, 4096})
    for (int split : {1, 2, 8, 33, 132})
      for (int tile_n : {128, 256}) {
        check_shares(T, 0, true, 64, split, 132, tile_n);
        check_shares(T, 0, true, 64, split, 132, tile_n, 1, true, 128, true);
      }
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const int edge = 128 << random() % 2, tile_n = 128 << random() % 2, taps = 1 + random() % 3;
    check_shares(1 + random() % 3000, static_cast<int>(random() % 1500) - 700, random() % 2,
                 1 + random() % 70, 1 + random() % 40, 1 + random() % 140, tile_n, taps * (1 + random() % 5),
                 random() % 2, edge, random() % 2, taps);
  }
}

// A band: exactly the tiles that it meets, each k block of each once, whole tiles and parts in places of their own where diagonals
// are what they leave.
TEST(StreamK, ABandHasTheTilesThatItMeets) {
  for (const int edge : {128, 256})
    for (const int tile_n : {128, 256})
      for (const int T : {1, 128, 129, 300, 1000})
        for (const int width : {1, 2, 127, 128, 129, 130, 256, 257, 258, 600, 1000}) {
          if (width > T) continue;
          SCOPED_TRACE(testing::Message()
                       << "T " << T << " width " << width << " edge " << edge << " tile_n " << tile_n);
          const StreamK stream_k(StreamKArguments{.T = T,
                                                  .diag = 0,
                                                  .lower = true,
                                                  .depth = 5,
                                                  .split = 3,
                                                  .blocks = 4,
                                                  .tile_n = tile_n,
                                                  .edge = edge,
                                                  .copies = 2,
                                                  .every_row = true,
                                                  .width = width,
                                                  .diagonals = 7});
          std::map<std::tuple<int, int, int>, int> done;
          std::set<long long> numbers;
          for (int b = 0; b < stream_k.blocks; ++b) {
            StreamKWalk walk(stream_k, b);
            for (WorkTile work; walk.next(work);) {
              for (int half = 0; half < (work.narrow ? 1 : stream_k.unit); ++half)
                done[{work.copy, work.row, work.column + half}] += work.end - work.begin;
              const int number =
                  work.number >= 0 ? work.number : stream_k.whole_number(work.narrow, work.index);
              EXPECT_TRUE(numbers.insert(number).second) << "two work tiles in one place";
              EXPECT_LE(stream_k.slot(number) + stream_k.diagonals, stream_k.slot(stream_k.numbers()));
            }
          }
          EXPECT_EQ(stream_k.slot(stream_k.numbers()) + 1ll * stream_k.incomplete() * edge,
                    stream_k.workspace());
          size_t met = 0;
          for (int row = 0; row < stream_k.rows; ++row)
            for (int column = 0; column <= row; ++column) {
              const int nearest = column == row ? 0 : edge * row - (edge * column + edge - 1);
              if (nearest >= width) continue;
              for (int copy = 0; copy < 2; ++copy, ++met)
                EXPECT_EQ((done[{copy, row, column}]), stream_k.depth);
            }
          EXPECT_EQ(done.size(), met) << "tiles that the band does not meet";
        }
}

TEST(Geometry, SharedMemoryAsTheConfigsSay) {
  Config c{};
  c.tile_m = 128, c.tile_n = 256, c.tile_k = 64, c.warps_m = 8, c.warps_n = 1, c.stages = 4,
  c.cluster = c.blocks = 1;
  EXPECT_EQ(stage_bytes(Shape{}, c), (128 + 256) * 64 * 2);
  EXPECT_EQ(store_panels(Shape{}, c), 2);
  EXPECT_EQ(shared_bytes(Shape{}, c), 4 * 49152 + 2 * 2 * 8192 + 512);
  EXPECT_LE(shared_bytes(Shape{}, c), kSharedLimit);
  EXPECT_EQ(threads(c), 384);
}

// Numbers of a Toeplitz matrix: no room in the stages, twice two bytes for each head and token that row tiles reach, and 64 zeros.
TEST(Geometry, NumbersTakeNoRoomInTheRing) {
  Config c{};
  c.tile_m = 128, c.tile_n = 256, c.tile_k = 64, c.stages = 5, c.cluster = c.blocks = 1;
  Shape shape{};
  shape.T = 1000, shape.H = 1, shape.w = WeightForm::kToeplitz;
  EXPECT_TRUE(keeps_numbers(shape, c));
  EXPECT_EQ(stage_bytes(shape, c), 256 * 64 * 2);
  EXPECT_EQ(numbers_bytes(shape, c), 4 * (1024 + 64) + 64);
  EXPECT_EQ(store_panels(shape, c), 3);
  EXPECT_EQ(shared_bytes(shape, c), 5 * 32768 + 2 * 3 * 8192 + 4416 + 512);
  EXPECT_LE(shared_bytes(shape, c), kSharedLimit);
  shape.wdtype = DType::kF32;
  EXPECT_FALSE(reads_f32_weights(shape, c));
  c.weights = Access::kPacked;
  EXPECT_FALSE(keeps_numbers(shape, c));
  EXPECT_EQ(stage_bytes(shape, c), (128 + 256) * 64 * 2);
  shape.op = Op::kGradWeight, c.weights = Access::kDirect;
  EXPECT_FALSE(keeps_numbers(shape, c));
  EXPECT_EQ(weight::work_diagonals(shape, c), 2 * (64 + 256));
}

TEST(Geometry, F32WeightsTakeTwiceTheRoomUnlessTheyArePacked) {
  Config c{};
  c.tile_m = 128, c.tile_n = 256, c.tile_k = 64, c.stages = 3, c.cluster = c.blocks = 1;
  Shape shape{};
  EXPECT_FALSE(reads_f32_weights(shape, c));
  shape.wdtype = DType::kF32;
  EXPECT_TRUE(reads_f32_weights(shape, c));
  EXPECT_EQ(stage_bytes(shape, c), (2 * 128 + 256) * 64 * 2);
  EXPECT_EQ(store_panels(shape, c), 2);
  EXPECT_LE(shared_bytes(shape, c), kSharedLimit);
  c.weights = Access::kPacked;
  EXPECT_TRUE(packs(shape, c));
  EXPECT_FALSE(reads_f32_weights(shape, c));
  EXPECT_EQ(stage_bytes(shape, c), (128 + 256) * 64 * 2);
  shape.op = Op::kGradWeight, c.weights = Access::kDirect;
  EXPECT_FALSE(reads_f32_weights(shape, c));
}

TEST(Geometry, WhatTheBlocksOfAClusterShare) {
  Config c{};
  c.tile_m = 128, c.tile_n = 128, c.tile_k = 64, c.stages = 6, c.cluster = 1, c.split_k = 9;
  EXPECT_FALSE(weight::squares(c));
  EXPECT_EQ(weight::edge_of(c), 128);
  c.cluster = 4;
  EXPECT_TRUE(weight::squares(c));
  EXPECT_EQ(weight::edge_of(c), 256);
  c.tile_n = 256, c.cluster = 2;
  EXPECT_FALSE(weight::squares(c));
  EXPECT_EQ(weight::edge_of(c), 256);
}

// Tiles of 64 x 64 are shared as tiles of 128 of twice the matrix: exactly those that the triangle touches.
TEST(Geometry, TilesOf64AreThoseOfTheTriangle) {
  for (const bool lower : {true, false})
    for (const int T : {1, 63, 64, 65, 200, 448})
      for (int diag = -130; diag <= 130; ++diag) {
        const StreamK stream_k(StreamKArguments{.T = 2 * T,
                                                .diag = 2 * diag,
                                                .lower = lower,
                                                .depth = 8,
                                                .split = 8,
                                                .blocks = 1,
                                                .tile_n = 64,
                                                .edge = 128,
                                                .copies = 1,
                                                .every_row = false});
        const int rows = (T + 63) / 64;
        ASSERT_EQ(stream_k.rows, rows);
        for (int row = 0; row < rows; ++row)
          for (int column = 0; column < rows; ++column) {
            const bool touched =
                lower ? 64 * column <= 64 * row + 63 + diag : 64 * column + 63 >= 64 * row + diag;
            const bool shared =
                column >= stream_k.first(row) && column < stream_k.first(row) + stream_k.span(row);
            EXPECT_EQ(shared, touched) << T << " " << diag << " " << row << " " << column;
          }
      }
}

// Every row of a tile of slices has one owner with room for what the others send it.
TEST(Geometry, SlicesOwnAllRowsOfTheirTile) {
  for (const auto& [tile, columns] : {std::pair{64, 64}, {64, 128}, {128, 128}})
    for (const int cluster : {1, 2, 3, 4, 5, 6, 7, 8}) {
      Config c{};
      c.tile_m = tile, c.tile_n = columns, c.tile_k = 64, c.stages = 2, c.cluster = c.split_k = cluster;
      c.warps_m = tile / 16;
      if (tile == 128 && (cluster == 1 || cluster == 4)) {
        EXPECT_EQ(weight::squares(c), cluster == 4);
        EXPECT_FALSE(weight::slices(c));
        continue;
      }
      EXPECT_TRUE(weight::slices(c));
      EXPECT_FALSE(weight::stacks(c) || weight::squares(c) || weight::admits_reduction(c));
      EXPECT_EQ(weight::edge_of(c), tile);
      EXPECT_EQ(weight::threads(c), 2 * tile + 128);
      EXPECT_GE(weight::owned_eights(c) * cluster, tile / 8);
      EXPECT_LT((weight::owned_eights(c) - 1) * cluster, tile / 8);
      EXPECT_GE(weight::exchange_bytes(c), tile * (columns + 1) * 4)
          << "one block's share of all blocks' sums";
      EXPECT_LE(weight::shared_bytes(c), kSharedLimit);
    }
}

// A tile of 64 x 64 with two warpgroups stacks whole batches; with one warpgroup it is a cluster of size 1.
TEST(Geometry, OneBlockOfASmallTileStacksOrSlices) {
  Config c{};
  c.tile_m = c.tile_n = c.tile_k = 64, c.stages = 6, c.cluster = c.split_k = 1;
  c.warps_m = 8;
  EXPECT_TRUE(weight::stacks(c) && !weight::slices(c));
  EXPECT_EQ(weight::consumers(c), 2);
  c.warps_m = 4;
  EXPECT_TRUE(weight::slices(c) && !weight::stacks(c));
  EXPECT_EQ(weight::consumers(c), 1);
}

// A block that sums a whole triangle is one tile of StreamK's, always in parts; with 128 rows the same columns are slices.
TEST(Geometry, BlocksHoldWholeTriangles) {
  Config c{};
  c.tile_m = c.tile_n = 192, c.tile_k = 64, c.stages = 4, c.cluster = 1, c.split_k = 66, c.warps_m = 8;
  EXPECT_TRUE(weight::holds_triangle(c) && weight::parts_alone(c) && weight::admits_reduction(c));
  EXPECT_FALSE(weight::slices(c) || weight::stacks(c) || weight::squares(c) || weight::one_tile(c));
  EXPECT_EQ(weight::consumers(c), 2);
  EXPECT_EQ(weight::row_panels(c), 3);
  EXPECT_EQ(weight::stage_bytes(c), 2 * 192 * 128);
  EXPECT_GE(weight::store_panels(c), 1);
  EXPECT_EQ(weight::part_columns(c), weight::edge_of(c));
  c.tile_m = 128;
  EXPECT_TRUE(weight::one_tile(c) && weight::slices(c) && !weight::holds_triangle(c));
}

// A batch's last block multiplies what has features, and no step more.
TEST(Geometry, BatchesEndWithTheirFeatures) {
  Config c{};
  Shape s{};
  s.op = Op::kGradWeight, s.K = 1;
  const auto steps = [&](DType dtype, int D) {
    s.dtype = dtype, s.D = D;
    return weight::last_steps(s, c);
  };
  for (int D = 1; D <= 200; ++D) {
    EXPECT_EQ(steps(DType::kBF16, D), (D - 1) % 64 / 16 + 1) << D;
    EXPECT_EQ(steps(DType::kF32, D), (D - 1) % 32 / 8 + 1) << D;
  }
  EXPECT_EQ(steps(DType::kF16, 0), weight::block_steps()) << "any size";
  c.activations = Access::kPacked;
  EXPECT_EQ(steps(DType::kF16, 24), weight::block_steps()) << "batches are joined";
  c.activations = Access::kDirect, s.K = 2;
  EXPECT_EQ(steps(DType::kF16, 24), weight::block_steps()) << "taps";
}

// All k blocks of all row tiles once, every tile stored once by one that has some of it, and sums added where they are
// sent; the blocks of a pair have as much to do as each other.
TEST(Slices, OfPairsOfRowsMakeTheTriangle) {
  for (const Fill fill : {Fill::kLower, Fill::kUpper})
    for (const int rows : {1, 2, 3, 8, 9, 32})
      for (const int slices : {2, 3, 4, 8})
        for (const int sending : {0, 2, 5})
          for (const int diag : {-700, -130, -64, -1, 0, 3, 70, 700}) {
            SCOPED_TRACE(std::to_string(rows) + " rows, diag " + std::to_string(diag) + ", " +
                         std::to_string(slices) + " slices, sending " + std::to_string(sending));
            std::map<int, std::vector<int>> made;  // by row
            std::map<int, int> stored;
            for (int number = 0; number < row_pairs(rows); ++number) {
              const RowPair pair(fill, number, rows, diag, rows, slices, sending);
              std::vector<int> length(static_cast<size_t>(slices));
              std::map<int, unsigned> sent, added;  // by row
              for (int rank = 0; rank < slices; ++rank) {
                Slices walk(pair, 7, rank);
                for (RowWorkTile work; walk.next(work);) {
                  EXPECT_EQ(work.column, 7);
                  EXPECT_LE(work.begin, work.end);
                  length[static_cast<size_t>(rank)] += work.end - work.begin;
                  stored[work.row] += work.stores ? 1 : 0;
                  EXPECT_EQ(work.owner, work.row == pair.longer ? 0 : slices - 1);
                  EXPECT_EQ(work.stores, rank == work.owner);
                  if (work.stores) {
                    added[work.row] = work.senders;
                    if (KRange(fill, 64 * work.row, diag, rows).blocks > 0) {
                      EXPECT_LT(work.begin, work.end) << "sums to add to";
                    }
                  } else {
                    EXPECT_LT(work.begin, work.end);
                    sent[work.row] |= 1u << rank;
                  }
                  for (int block = work.begin; block < work.end; ++block) made[work.row].push_back(block);
                }
                RowWorkTile none;
                EXPECT_FALSE(walk.next(none)) << "it has ended";
              }
              for (const auto& [row, senders] : added) EXPECT_EQ(senders, sent[row]) << row;
              const int longest = *std::max_element(length.begin(), length.end());
              EXPECT_EQ(longest, pair.longest());
              if (sending == 0) {
                EXPECT_EQ(longest, schedule::ceil_div(pair.all(), slices));
              } else if (slices == 2) {
                const int all = length[0] + length[1];
                EXPECT_LE(length[0], (all + sending + 1) / 2);
                if (sent[pair.longer] != 0) {
                  EXPECT_LE(length[1] + sending, (all + sending + 1) / 2);
                }
              }
            }
            for (int row = 0; row < rows; ++row) {
              std::vector<int> all(static_cast<size_t>(KRange(fill, 64 * row, diag, rows).blocks));
              std::iota(all.begin(), all.end(), 0);
              std::sort(made[row].begin(), made[row].end());
              EXPECT_EQ(made[row], all) << row;
              EXPECT_EQ(stored[row], 1) << row;
            }
          }
}

TEST(Slices, HaveRoomForWhatIsSent) {
  for (const DType wdtype : {DType::kBF16, DType::kF32})
    for (const auto& [columns, slices] :
         {std::pair(64, 2), {128, 2}, {192, 2}, {256, 2}, {64, 4}, {128, 4}}) {
      Shape s{};
      s.dtype = DType::kBF16, s.wdtype = wdtype;
      Config c{};
      c.tile_m = 64, c.tile_n = columns, c.tile_k = 64, c.stages = 3, c.cluster = c.split_k = slices;
      EXPECT_EQ(sharers(c), 1);
      EXPECT_GE(store_panels(s, c), 1);
      EXPECT_LE(shared_bytes(s, c), kSharedLimit);
      EXPECT_GE(shared_bytes(s, c), 3 * stage_bytes(s, c) + (slices - 1) * 64 * columns * 4);
      EXPECT_EQ(column_units(c, 3, 64 * 8), schedule::ceil_div(3 * 8, columns / 64))
          << "each block has all columns";
    }
}

TEST(Geometry, AReductionFitsBesideTheProduct) {
  Config c{};
  c.tile_m = 128, c.tile_n = 128, c.tile_k = 64, c.stages = 6, c.cluster = 4, c.split_k = 9;
  // Registers for 512 threads, 256 of them the reduction's with 64 each; 1 KB a block is the system's.
  EXPECT_EQ(weight::register_threads(c), 512);
  EXPECT_LE(weight::kLoadRegisters + 2 * weight::sum_registers(c), 3 * 128);
  EXPECT_LE(weight::shared_bytes(c) + 1024 + weight::kReduceSharedBytes + 1024, 228 << 10);
  c.split_k = 1;
  EXPECT_EQ(weight::register_threads(c), 384);
}

}  // namespace
}  // namespace trigen::persistent
