// How grad_weight of wgmma_taps_sm90 shares its work: every k step of every block and group of taps once.
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
  const Shares shares(s, B, blocks);
  SCOPED_TRACE(::testing::Message() << "T=" << s.T << " D=" << s.D << " H=" << s.H << " K=" << s.K
                                    << " diag=" << s.diag << " B=" << B << " blocks=" << blocks);
  std::vector<std::vector<int>> done(shares.items, std::vector<int>(shares.depth));
  std::map<int, std::set<int>> parts;  // of an item: the thread blocks that left one
  std::set<long long> slots;
  for (int block = 0; block < blocks; ++block) {
    Pieces pieces(shares, block);
    for (Piece piece; pieces.next(piece);) {
      ASSERT_LT(piece.item, shares.items);
      ASSERT_LT(piece.begin, piece.end);
      for (int step = piece.begin; step < piece.end; ++step) ++done[piece.item][step];
      if (piece.end - piece.begin == shares.depth) continue;
      ASSERT_GE(piece.item, shares.whole);
      parts[piece.item].insert(block);
      const long long slot = Shares::slot(block, piece.begin == 0);
      EXPECT_TRUE(slots.insert(slot).second) << "two sums in one place";
      EXPECT_LE(4 * (slot + kSums), shares.workspace_bytes());
      EXPECT_LE(4 * (shares.bias_slot(block, piece.begin == 0) + kPanel), shares.workspace_bytes());
    }
  }
  std::set<std::tuple<int, int, int, int>> places;
  std::map<std::tuple<int, int>, int> biases;
  for (int item = 0; item < shares.items; ++item) {
    for (int times : done[item]) ASSERT_EQ(times, 1) << "item " << item;
    int head, row, column, group;
    shares.locate(item, head, row, column, group);
    EXPECT_TRUE(places.insert({head, row, column, group}).second);
    biases[{head, row}] += shares.sums_bias(row, column, group);
    if (item < shares.whole) continue;
    // The reduction finds the same thread blocks.
    const int index = item - shares.whole, first = shares.owner(index * shares.depth),
              last = shares.owner((index + 1) * shares.depth - 1);
    std::set<int> expected;
    for (int block = first; last > first && block <= last; ++block) expected.insert(block);
    EXPECT_EQ(parts[item], expected) << "item " << item;
  }
  int touched = 0;
  for (int row = 0; row < shares.rows; ++row)
    for (int column = 0; column < shares.rows; ++column) {
      const bool kept = s.fill == Fill::kLower ? kPanel * column <= kPanel * row + kPanel - 1 + s.diag
                                               : kPanel * column + kPanel - 1 >= kPanel * row + s.diag;
      touched += kept;
      for (int head = 0; head < s.H; ++head)
        for (int group = 0; group < groups(s.K); ++group)
          EXPECT_EQ(places.count({head, row, column, group}), kept) << "block " << row << ", " << column;
    }
  EXPECT_EQ(touched, shares.places);
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
