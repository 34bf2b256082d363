// wgmma_taps_sm90: the shared memory of forward and grad_input, the launch that packs W, and the stream-K schedule of
// grad_weight: every k step of every block and group of taps once.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "templates/pack.h"
#include "templates/wgmma_taps_sm90.h"

namespace trigen::wgmma_taps_sm90 {
namespace {

Shape product_shape(int D, int K, Layout layout) {
  Shape s{};
  s.op = Op::kForward, s.dtype = DType::kBF16, s.layout = layout;
  s.T = 512, s.D = D, s.H = 1, s.K = K, s.pad = (K - 1) / 2;
  return s;
}
Config tile_of(int tokens, int features, int stages, int slices = 1) {
  Config c{};
  c.tile_m = tokens, c.tile_n = features, c.tile_k = 64, c.stages = stages;
  c.split_k = c.cluster = slices;
  return c;
}

// Small tiles have the room for four blocks of the input on their way and four that are multiplied; wide ones keep two, or one
// on its way.
TEST(TapsInput, HasTheBuffersThatTheOutputLeaves) {
  const auto buffers = [](const Shape& s, const Config& c) {
    EXPECT_GE(store_panels(s, c), 1);
    EXPECT_LE(shared_bytes(s, c), kSharedLimit);
    EXPECT_GE(shared_bytes(s, c), c.stages * stage_bytes(c) + sent_bytes(c) + kBarrierBytes);
    const InputBuffers found = input_buffers(s, c);
    if (found.loaded > 2 || found.transposed > 2) {
      EXPECT_LE(shared_bytes(s, c), kSharedLimit - (12 << 10))
          << "blocks of the packing launch fit beside it";
    }
    return std::pair(found.loaded, found.transposed);
  };
  const Shape rows = product_shape(1024, 3, Layout::kBTD), tokens = product_shape(1024, 3, Layout::kBDT);
  EXPECT_EQ(buffers(rows, tile_of(64, 64, 8)), std::pair(4, 4));
  EXPECT_EQ(buffers(rows, tile_of(64, 64, 12)), std::pair(4, 4));
  EXPECT_EQ(buffers(rows, tile_of(64, 64, 12, 2)), std::pair(4, 2));
  EXPECT_EQ(buffers(rows, tile_of(64, 64, 12, 3)), std::pair(3, 2));
  EXPECT_EQ(buffers(rows, tile_of(64, 64, 8, 4)), std::pair(4, 2));
  EXPECT_EQ(buffers(rows, tile_of(64, 128, 6, 2)), std::pair(3, 2));
  EXPECT_EQ(buffers(rows, tile_of(128, 64, 8)), std::pair(3, 2));
  EXPECT_EQ(buffers(rows, tile_of(128, 128, 7)), std::pair(2, 2));
  EXPECT_EQ(buffers(rows, tile_of(256, 128, 3)), std::pair(2, 2));
  EXPECT_EQ(buffers(rows, tile_of(256, 128, 4)), std::pair(1, 2));
  EXPECT_EQ(buffers(tokens, tile_of(64, 64, 8)), std::pair(2, 4)) << "read as they lie";
  Shape exchanged = rows;
  exchanged.residual = exchanged.gate = true;
  EXPECT_EQ(buffers(exchanged, tile_of(128, 64, 8)), std::pair(2, 2)) << "behind what the output exchanges";
  EXPECT_EQ(store_panels(exchanged, tile_of(128, 64, 8)), 2) << "two panels of two buffers";
}

TEST(TapsSlices, HaveRoomForWhatIsSent) {
  const Shape s = product_shape(256, 3, Layout::kBTD);
  EXPECT_EQ(sent_bytes(tile_of(64, 64, 8)), 0);
  EXPECT_EQ(sent_bytes(tile_of(64, 64, 8, 2)), 64 * 64 * 4);
  EXPECT_EQ(sent_bytes(tile_of(64, 64, 8, 4)), 3 * 64 * 64 * 4);
  EXPECT_EQ(sent_bytes(tile_of(64, 128, 8, 3)), 2 * 64 * 128 * 4);
  // Each block of slices has a column tile of its own; clusters that share weights have one for each block.
  EXPECT_EQ(column_units(tile_of(64, 64, 8, 4), 3, 256), 12);
  Config pair = tile_of(128, 64, 8, 2);
  pair.split_k = 1;
  EXPECT_EQ(column_units(pair, 3, 256), 6);
  EXPECT_EQ(sent_bytes(pair), 0);
  EXPECT_GE(store_panels(s, tile_of(64, 128, 4, 4)), 1);
  EXPECT_EQ(store_panels(s, tile_of(64, 128, 8, 4)), 0) << "no room";
}

// Every row of 64 columns once, whatever the blocks' size; W of few rows has blocks enough for four on each SM.
TEST(Packing, SmallWeightsHaveManyBlocks) {
  EXPECT_EQ(packing::warp_rows(512, 3, 1), 1);
  EXPECT_EQ(packing::warp_rows(1024, 4, 1), 2);
  EXPECT_EQ(packing::warp_rows(2048, 4, 1), 8);
  EXPECT_EQ(packing::warp_rows(512, 3, 8), 4);
  EXPECT_EQ(packing::warp_rows(64, 32, 1), 1);
  EXPECT_EQ(packing::warp_rows(64, 1, 1), 8) << "one tap's sizes may be run-time values";
  for (const int T : {1, 64, 65, 320, 512, 1000, 4096})
    for (const int taps : {1, 2, 3, 4, 5, 16, 17, 32})
      for (const int heads : {1, 3, 64}) {
        EXPECT_EQ(packing::row_blocks(T, taps, heads) * packing::block_rows(T, taps, heads),
                  packing::pitch(T));
        EXPECT_LE(packing::shared_bytes(T, taps, heads), 48 << 10);
      }
}

}  // namespace
}  // namespace trigen::wgmma_taps_sm90

namespace trigen::wgmma_taps_sm90::weight {
namespace {

Shape shape_of(int T, int D, int H, int K, int diag, Fill fill, DType dtype = DType::kBF16) {
  Shape s{};
  s.op = Op::kGradWeight, s.dtype = dtype, s.pad = (K - 1) / 2;
  s.T = T, s.D = D, s.H = H, s.K = K, s.diag = diag, s.fill = fill;
  return s;
}

void check(const Shape& s, const Config& c, int B, int blocks) {
  const StreamK stream_k(s, c, B, blocks);
  SCOPED_TRACE(::testing::Message() << "T=" << s.T << " D=" << s.D << " H=" << s.H << " K=" << s.K
                                    << " diag=" << s.diag << " B=" << B << " blocks=" << blocks
                                    << " tile=" << c.tile_m << "x" << c.tile_n);
  std::vector<std::vector<int>> done(stream_k.items, std::vector<int>(stream_k.depth));
  std::map<int, std::set<int>> parts;  // of an item: the thread blocks that left one
  std::set<long long> slots;
  for (int block = 0; block < blocks; ++block) {
    StreamKWalk walk(stream_k, block);
    for (WorkTile work; walk.next(work);) {
      ASSERT_LT(work.item, stream_k.items);
      ASSERT_LT(work.begin, work.end);
      for (int step = work.begin; step < work.end; ++step) ++done[work.item][step];
      if (work.end - work.begin == stream_k.depth) continue;
      ASSERT_GE(work.item, stream_k.whole_items);
      parts[work.item].insert(block);
      const long long slot = stream_k.slot(block, work.begin == 0);
      EXPECT_TRUE(slots.insert(slot).second) << "two sums in one place";
      EXPECT_LE(4 * (slot + sums(c)), stream_k.workspace_bytes());
      EXPECT_LE(4 * (stream_k.bias_slot(block, work.begin == 0) + c.tile_m), stream_k.workspace_bytes());
    }
  }
  std::set<std::tuple<int, int, int, int>> places;
  std::map<std::tuple<int, int>, int> biases;
  for (int item = 0; item < stream_k.items; ++item) {
    for (int times : done[item]) ASSERT_EQ(times, 1) << "item " << item;
    int head, row, column, group;
    stream_k.locate(item, head, row, column, group);
    EXPECT_TRUE(places.insert({head, row, column, group}).second);
    biases[{head, row}] += stream_k.sums_bias(row, column, group);
    if (item < stream_k.whole_items) continue;
    // The reduction finds the same thread blocks.
    const int index = item - stream_k.whole_items, first = stream_k.owner(index * stream_k.depth),
              last = stream_k.owner((index + 1) * stream_k.depth - 1);
    std::set<int> expected;
    for (int block = first; last > first && block <= last; ++block) expected.insert(block);
    EXPECT_EQ(parts[item], expected) << "item " << item;
  }
  int touched = 0;
  const int columns = kPanel * stream_k.columns, width = kPanel * stream_k.width;
  for (int row = 0; row < stream_k.rows; ++row)
    for (int column = 0; width * column < columns; ++column) {
      const int begin = c.tile_m * row, end = std::min(begin + c.tile_m, columns),
                last = std::min(width * (column + 1), columns) - 1;
      const bool kept = s.fill == Fill::kLower ? width * column <= end - 1 + s.diag : last >= begin + s.diag;
      touched += kept;
      for (int head = 0; head < s.H; ++head)
        for (int group = 0; group < stream_k.taps; ++group)
          EXPECT_EQ(places.count({head, row, column, group}), kept) << "block " << row << ", " << column;
    }
  EXPECT_EQ(touched, stream_k.places);
  for (const auto& [where, times] : biases) EXPECT_EQ(times, 1) << "row " << std::get<1>(where);
}

constexpr Config tile(int taps) {
  Config c{};
  c.tile_m = few(taps) ? 128 : 64, c.tile_n = 64 * (few(taps) ? taps : kManyTaps);
  return c;
}

TEST(TapsWeight, EveryStepOfEveryBlockOnce) {
  check(shape_of(256, 512, 1, 16, 0, Fill::kLower), tile(16), 64, 132);
  check(shape_of(512, 1024, 1, 16, 0, Fill::kLower), tile(16), 32, 132);
  check(shape_of(1024, 1024, 1, 8, 0, Fill::kLower), tile(8), 16, 132);
  check(shape_of(512, 2048, 1, 3, 0, Fill::kLower), tile(3), 4, 132);
  Config wide = tile(2);  // two panels of columns
  wide.tile_n = 256;
  check(shape_of(96, 364, 1, 2, 0, Fill::kLower, DType::kF32), wide, 512, 132);
  check(shape_of(458, 36, 2, 2, -70, Fill::kUpper, DType::kF32), wide, 2, 132);
  check(shape_of(458, 36, 2, 2, 470, Fill::kUpper, DType::kF32), wide, 2, 132);
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    const int taps = 2 + static_cast<int>(random() % 31);
    Config c = tile(taps);
    c.raster = static_cast<int>(few(taps) && random() % 2 == 0);
    const DType dtype = random() % 2 ? DType::kF32 : DType::kBF16;
    if (shifts_dy(dtype) && taps == 2) c.tile_n *= 2;
    check(shape_of(1 + static_cast<int>(random() % 900), 1 + static_cast<int>(random() % 300),
                   1 + static_cast<int>(random() % 3), taps, static_cast<int>(random() % 400) - 200,
                   random() % 2 ? Fill::kLower : Fill::kUpper, dtype),
          c, 1 + static_cast<int>(random() % 9), 1 + static_cast<int>(random() % 140));
  }
}

// Deep items are shared by all blocks, others by as many as get four steps; with a raster, none.
TEST(TapsWeight, SharesWhatWholeRoundsLeave) {
  const auto stream_k = [](int T, int D, int K, int B, int raster = 0) {
    Config c = tile(K);
    c.raster = raster;
    return StreamK(shape_of(T, D, 1, K, 0, Fill::kLower), c, B, 132);
  };
  EXPECT_EQ(stream_k(1024, 72, 2, 16).rest(), 72);
  EXPECT_EQ(stream_k(1024, 72, 2, 16).sharers(), 132);
  EXPECT_EQ(stream_k(512, 8, 2, 16).rest(), 20);
  EXPECT_EQ(stream_k(512, 8, 2, 16).sharers(), 80);
  EXPECT_EQ(stream_k(1024, 72, 2, 16, 1).rest(), 0);
  EXPECT_EQ(stream_k(1024, 72, 2, 16, 1).workspace_bytes(), 0);
  EXPECT_EQ(stream_k(512, 2048, 3, 4).rest(), 20);
  EXPECT_EQ(stream_k(256, 192, 8, 45).sharers(), 132);
}

// Banks of a warp's staged rows: the lanes of one phase of a store (8 of 16 bytes, 16 of 8) reach every bank once.
TEST(TapsWeight, StagedRowsLieInDifferentBanks) {
  for (const int taps : {2, 3, 4})
    for (const int columns : {8, kStoreColumns}) {
      const int size = taps == 3 ? 8 : 16;
      std::set<int> banks;
      for (int lane = 0; lane < 128 / size; ++lane)
        for (int word = 0; word < size / 4; ++word)
          banks.insert((lane / 4 * store_pitch(taps, columns) / 4 + lane % 4 * 2 * taps + word) % 32);
      EXPECT_EQ(banks.size(), 32u) << taps << " taps, " << columns << " columns";
      EXPECT_EQ(store_pitch(taps, columns) % 16, 0);
    }
}

}  // namespace
}  // namespace trigen::wgmma_taps_sm90::weight
