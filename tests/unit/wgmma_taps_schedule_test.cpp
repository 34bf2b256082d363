// Stream-K schedule of wgmma_taps_sm90's grad_weight: every k step of every block and group of taps once.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>
#include <vector>

#include "templates/wgmma_taps_sm90.h"

namespace trigen::wgmma_taps_sm90::weight {
namespace {

Shape shape_of(int T, int D, int H, int K, int diag, Fill fill) {
  Shape s{};
  s.op = Op::kGradWeight;
  s.T = T, s.D = D, s.H = H, s.K = K, s.diag = diag, s.fill = fill;
  return s;
}

void check(const Shape& s, int B, int blocks) {
  const StreamK stream_k(s, B, blocks);
  SCOPED_TRACE(::testing::Message() << "T=" << s.T << " D=" << s.D << " H=" << s.H << " K=" << s.K
                                    << " diag=" << s.diag << " B=" << B << " blocks=" << blocks);
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
      const long long slot = StreamK::slot(block, work.begin == 0);
      EXPECT_TRUE(slots.insert(slot).second) << "two sums in one place";
      EXPECT_LE(4 * (slot + kSums), stream_k.workspace_bytes());
      EXPECT_LE(4 * (stream_k.bias_slot(block, work.begin == 0) + kPanel), stream_k.workspace_bytes());
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
  for (int row = 0; row < stream_k.rows; ++row)
    for (int column = 0; column < stream_k.rows; ++column) {
      const bool kept = s.fill == Fill::kLower ? kPanel * column <= kPanel * row + kPanel - 1 + s.diag
                                               : kPanel * column + kPanel - 1 >= kPanel * row + s.diag;
      touched += kept;
      for (int head = 0; head < s.H; ++head)
        for (int group = 0; group < groups(s.K); ++group)
          EXPECT_EQ(places.count({head, row, column, group}), kept) << "block " << row << ", " << column;
    }
  EXPECT_EQ(touched, stream_k.places);
  for (const auto& [where, times] : biases) EXPECT_EQ(times, 1) << "row " << std::get<1>(where);
}

TEST(TapsWeight, EveryStepOfEveryBlockOnce) {
  check(shape_of(256, 512, 1, 16, 0, Fill::kLower), 64, 132);
  check(shape_of(512, 1024, 1, 16, 0, Fill::kLower), 32, 132);
  check(shape_of(1024, 1024, 1, 8, 0, Fill::kLower), 16, 132);
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i)
    check(shape_of(1 + static_cast<int>(random() % 900), 1 + static_cast<int>(random() % 300),
                   1 + static_cast<int>(random() % 3), 2 + static_cast<int>(random() % 31),
                   static_cast<int>(random() % 400) - 200, random() % 2 ? Fill::kLower : Fill::kUpper),
          1 + static_cast<int>(random() % 9), 1 + static_cast<int>(random() % 140));
}

}  // namespace
}  // namespace trigen::wgmma_taps_sm90::weight
