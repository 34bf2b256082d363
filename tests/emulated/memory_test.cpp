#include "emulator/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>

namespace trigen::emulator {
namespace {

constexpr uint64_t kCapacity = 64 << 20;

TEST(DeviceMemory, AllocationsAreApartAndAlignedAndKnownByAnyAddress) {
  DeviceMemory memory(0, kCapacity);
  std::vector<std::pair<uint64_t, uint64_t>> blocks;
  for (const uint64_t bytes : {1, 100, 256, 4096, 5000, 1 << 20}) {
    const uint64_t base = memory.allocate(bytes);
    ASSERT_NE(base, 0u);
    EXPECT_EQ(base % 512, 0u);
    blocks.emplace_back(base, bytes);
  }
  for (const auto& [base, bytes] : blocks) {
    for (const uint64_t at : {base, base + bytes / 2, base + bytes - 1}) {
      const Allocation* found = memory.find(at);
      ASSERT_NE(found, nullptr);
      EXPECT_EQ(found->base, base);
      EXPECT_EQ(found->bytes, bytes);
    }
    // Behind its end, and before its start, are bytes of nobody.
    const Allocation* behind = memory.find(base + bytes);
    EXPECT_TRUE(behind == nullptr || base + bytes >= behind->end()) << bytes;
    const Allocation* before = memory.find(base - 1);
    EXPECT_TRUE(before == nullptr || base - 1 >= before->end()) << bytes;
    EXPECT_TRUE(memory.contains(base));
  }
  EXPECT_FALSE(memory.contains(memory.base() - 1));
  EXPECT_EQ(memory.find(memory.base() + memory.reserved()), nullptr);
}

TEST(DeviceMemory, FreedMemoryIsRememberedAndNotHandedOutAtOnce) {
  DeviceMemory memory(0, kCapacity);
  const uint64_t first = memory.allocate(1000);
  EXPECT_FALSE(memory.free(first + 8)) << "not a start";
  EXPECT_TRUE(memory.free(first));
  EXPECT_FALSE(memory.free(first)) << "a second time";
  ASSERT_NE(memory.find(first), nullptr);
  EXPECT_TRUE(memory.find(first)->freed) << "so that a use after it has a name";
  const uint64_t second = memory.allocate(1000);
  EXPECT_NE(second, first);
  EXPECT_FALSE(memory.find(second)->freed);
}

TEST(DeviceMemory, WhatIsFreedCanBeUsedAgainWhenNothingElseIsLeft) {
  DeviceMemory memory(0, kCapacity);
  EXPECT_EQ(memory.allocate(kCapacity + 1), 0u);
  for (int round = 0; round < 50; ++round) {
    const uint64_t block = memory.allocate(kCapacity / 2);
    ASSERT_NE(block, 0u) << round;
    EXPECT_EQ(memory.allocate(kCapacity / 2 + (1 << 20)), 0u) << "more than is left";
    EXPECT_GE(memory.used(), kCapacity / 2);
    ASSERT_TRUE(memory.free(block));
  }
  EXPECT_EQ(memory.used(), 0u);
}

// A place that a small allocation took of a large one that was freed is large again afterwards.
TEST(DeviceMemory, PlacesKeepTheirSize) {
  DeviceMemory memory(0, kCapacity);
  for (int round = 0; round < 50; ++round) {
    const uint64_t large = memory.allocate(kCapacity / 4);
    ASSERT_NE(large, 0u) << round;
    ASSERT_TRUE(memory.free(large));
    const uint64_t small = memory.allocate(1);
    ASSERT_NE(small, 0u) << round;
    EXPECT_EQ(memory.find(small + 1)->end(), small + 1) << "what is behind it is nobody's";
    ASSERT_TRUE(memory.free(small));
  }
}

TEST(DeviceMemory, KnowsEveryByteThatWasWritten) {
  DeviceMemory memory(0, kCapacity);
  const uint64_t base = memory.allocate(4096);
  EXPECT_FALSE(memory.is_written(base, 1));
  memory.mark_written(base + 10, 20);
  EXPECT_TRUE(memory.is_written(base + 10, 20));
  EXPECT_FALSE(memory.is_written(base + 9, 2));
  EXPECT_FALSE(memory.is_written(base + 29, 2));
  memory.mark_written(base, 4096);
  EXPECT_TRUE(memory.is_written(base, 4096));
  ASSERT_TRUE(memory.free(base));
  for (int i = 0; i < 20; ++i) {  // whoever gets the place starts with nothing written
    const uint64_t block = memory.allocate(kCapacity / 2);
    ASSERT_NE(block, 0u);
    EXPECT_FALSE(memory.is_written(block, 1));
    EXPECT_FALSE(memory.is_written(block + 4095, 1));
    memory.mark_written(block, kCapacity / 2);
    ASSERT_TRUE(memory.free(block));
  }
}

// Bytes of this process in memory.
size_t resident() {
  size_t pages = 0;
  std::ifstream("/proc/self/statm").ignore(64, ' ') >> pages;
  return pages * 4096;
}

// Eight places of 512 bytes share a page with the gaps between them. It goes back to the host with the last of them
// and not before.
TEST(DeviceMemory, SmallOnesGiveTheirPagesBackTogether) {
  DeviceMemory memory(0, kCapacity);
  std::mt19937 random(1);
  size_t before = 0;
  for (int round = 0; round < 600; ++round) {
    std::vector<uint64_t> blocks;
    for (int i = 0; i < 118; ++i) {
      blocks.push_back(memory.allocate(1 + random() % 700));
      ASSERT_NE(blocks.back(), 0u);
      const uint64_t bytes = memory.find(blocks.back())->bytes;
      EXPECT_FALSE(memory.is_written(blocks.back(), 1)) << round;
      std::memset(host_pointer(blocks.back()), i, bytes);
      memory.mark_written(blocks.back(), bytes);
    }
    std::shuffle(blocks.begin(), blocks.end(), random);
    for (size_t i = 0; i < blocks.size(); ++i) {
      const uint8_t* const last = host_pointer(blocks.back());
      const uint8_t value = *last;
      ASSERT_TRUE(memory.free(blocks[i]));
      if (i + 1 == blocks.size()) break;
      EXPECT_EQ(*last, value) << "a live one lost its bytes";
      EXPECT_TRUE(memory.is_written(blocks.back(), memory.find(blocks.back())->bytes));
    }
    if (round == 200) before = resident();  // as many are remembered as ever are
  }
  EXPECT_LT(resident(), before + (1 << 20)) << "400 rounds of 118 kept pages";
}

// Many sizes, freed in another order: live ones never overlap.
TEST(DeviceMemory, LiveAllocationsNeverOverlap) {
  DeviceMemory memory(0, kCapacity);
  std::mt19937 random(3);
  std::map<uint64_t, uint64_t> live;
  for (int step = 0; step < 3000; ++step) {
    if (!live.empty() && (random() % 3 == 0 || live.size() > 60)) {
      auto chosen = std::next(live.begin(), static_cast<std::ptrdiff_t>(random() % live.size()));
      ASSERT_TRUE(memory.free(chosen->first));
      live.erase(chosen);
      continue;
    }
    const uint64_t bytes = 1 + random() % (1 << (4 + random() % 17));
    const uint64_t base = memory.allocate(bytes);
    if (base == 0) continue;
    const auto next = live.lower_bound(base);
    if (next != live.end()) ASSERT_LE(base + bytes, next->first);
    if (next != live.begin()) ASSERT_LE(std::prev(next)->first + std::prev(next)->second, base);
    live[base] = bytes;
  }
}

}  // namespace
}  // namespace trigen::emulator
