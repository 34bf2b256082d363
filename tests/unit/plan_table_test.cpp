#include "runtime/plan_table.h"

#include <gtest/gtest.h>

namespace trigen {
namespace {

using Table = PlanTable<int, int, std::hash<int>, int>;

TEST(PlanTable, KeepsTheFirstOfAKeyAndEveryRequestThatItAnswered) {
  Table table(2);
  const auto first = table.add(1, std::make_shared<const int>(10));
  EXPECT_EQ(table.add(1, std::make_shared<const int>(11)), first);
  EXPECT_EQ(table.find(1), first);
  EXPECT_EQ(table.find(2), nullptr);
  table.remember(7, first);
  EXPECT_EQ(table.answer(7), first);
  EXPECT_EQ(table.answer(8), nullptr);
}

TEST(PlanTable, DropsWhatNobodyHoldsWhereItIsFull) {
  Table table(100);
  std::weak_ptr<const int> unused;
  const auto held = table.add(0, std::make_shared<const int>(0));
  for (int key = 1; key < 100000; ++key) {
    const auto plan = table.add(key, std::make_shared<const int>(key));
    table.remember(key, plan);
    if (key == 1) unused = plan;
    ASSERT_LE(table.size(), 101U);
  }
  EXPECT_TRUE(unused.expired());
  EXPECT_EQ(table.find(0), held);
  EXPECT_EQ(table.answer(1), nullptr);
}

TEST(PlanTable, HeldPlansGrowBeyondTheBound) {
  Table table(3);
  std::vector<Table::Shared> held;
  for (int key = 0; key < 10; ++key) held.push_back(table.add(key, std::make_shared<const int>(key)));
  for (int key = 0; key < 10; ++key) EXPECT_EQ(table.find(key), held[static_cast<size_t>(key)]);
}

}  // namespace
}  // namespace trigen
