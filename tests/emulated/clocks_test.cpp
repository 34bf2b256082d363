// What one warp knows of another's accesses, by barriers, hand-overs and proxy fences.
#include "emulator/clocks.h"

#include <gtest/gtest.h>

namespace trigen::emulator {
namespace {

constexpr uint32_t kWarps = 3;

struct Cluster {
  Clocks clocks;
  Cluster() { clocks.resize(kWarps); }
  // Does `reader` know that what `writer` did at `tick` lies before?
  bool knows(uint32_t reader, uint32_t writer, uint32_t tick) { return clocks.of(reader)[writer] >= tick; }
  // A barrier of two: both leave with what either knew.
  void barrier(uint32_t a, uint32_t b) {
    std::vector<uint32_t> both;
    for (const uint32_t agent : {a, b}) clocks.join_into(both, agent);
    for (const uint32_t agent : {a, b}) clocks.join(agent, both), clocks.tick(agent);
  }
};

TEST(Clocks, NobodyKnowsOfOthersAtTheStart) {
  Cluster c;
  EXPECT_EQ(c.clocks.agents(), kWarps + 1);
  EXPECT_EQ(c.clocks.async_agent(), kWarps);
  for (uint32_t a = 0; a <= kWarps; ++a)
    for (uint32_t b = 0; b <= kWarps; ++b) EXPECT_EQ(c.knows(a, b, 1), a == b);
}

TEST(Clocks, ABarrierOrdersWhatCameBeforeItAndNothingAfter) {
  Cluster c;
  const uint32_t before = c.clocks.now(0);
  c.barrier(0, 1);
  const uint32_t after = c.clocks.now(0);
  EXPECT_TRUE(c.knows(1, 0, before));
  EXPECT_FALSE(c.knows(1, 0, after)) << "an access after the barrier is a race";
  EXPECT_FALSE(c.knows(2, 0, before)) << "who was not there knows nothing";
}

TEST(Clocks, KnowledgeIsHandedOn) {
  Cluster c;
  const uint32_t written = c.clocks.now(0);
  c.barrier(0, 1);
  c.barrier(1, 2);
  EXPECT_TRUE(c.knows(2, 0, written)) << "by way of warp 1";
}

TEST(Clocks, JoiningNeverForgets) {
  Cluster c;
  c.barrier(0, 1);
  const std::vector<uint32_t> old = {0, 0, 0, 0};
  const uint32_t known = c.clocks.of(0)[1];
  c.clocks.join(0, old);
  EXPECT_EQ(c.clocks.of(0)[1], known);
  c.clocks.join(0, {0});  // of fewer agents: what it says of the others is nothing
  EXPECT_EQ(c.clocks.of(0)[1], known);
}

// A warp's writes are seen by the asynchronous proxy when the warp has fenced them, or when who starts the
// operation came to know of them and fenced then.
TEST(Clocks, TheAsynchronousProxySeesWhatWasFenced) {
  Cluster c;
  const uint32_t written = c.clocks.now(0);
  EXPECT_LT(c.clocks.fenced(0)[0], written) << "no fence yet";
  c.clocks.proxy_fence(0);
  EXPECT_GE(c.clocks.fenced(0)[0], written);
  EXPECT_GE(c.clocks.fenced(1)[0], written) << "the writer's own fence serves whoever starts it";
  EXPECT_LT(c.clocks.fenced(0)[0], c.clocks.now(0)) << "what is written behind the fence is not seen";
}

TEST(Clocks, AFenceBehindABarrierServesTheOthersWrites) {
  Cluster c;
  const uint32_t written = c.clocks.now(0);
  c.clocks.proxy_fence(1);  // before it knows: of no use
  EXPECT_LT(c.clocks.fenced(1)[0], written);
  c.barrier(0, 1);
  EXPECT_LT(c.clocks.fenced(1)[0], written) << "knowing is not fencing";
  c.clocks.proxy_fence(1);
  EXPECT_GE(c.clocks.fenced(1)[0], written);
  EXPECT_LT(c.clocks.fenced(2)[0], written) << "a third warp has fenced nothing";
}

}  // namespace
}  // namespace trigen::emulator
