// Knowledge of other threads' accesses, by barriers, hand-overs and proxy fences: warp by warp, and lane by lane.
#include "emulator/clocks.h"

#include <gtest/gtest.h>

namespace trigen::emulator {
namespace {

constexpr uint32_t kWarps = 3, kAll = ~0u;

struct Cluster {
  Clocks clocks;
  Cluster() { clocks.resize(kWarps); }
  // Does `reader` know that what `writer` did at `tick` lies before?
  bool knows(uint32_t reader, uint32_t writer, uint32_t tick, uint32_t by = 0, uint32_t of = 1) {
    return clocks.of(reader, by)[writer].covers(of, tick);
  }
  // Lanes of `from` let go of what they know, and lanes of `to` take it: an mbarrier.
  void hand_over(uint32_t from, uint32_t lanes, uint32_t to, uint32_t takers) {
    const Clock clock = clocks.released(from, lanes);
    clocks.tick(from);
    clocks.acquire(to, takers, clock);
  }
  // A barrier of two: both leave with what either knew.
  void barrier(uint32_t a, uint32_t b) {
    Clock both(clocks.width());
    for (const uint32_t agent : {a, b}) {
      join(both, clocks.released(agent, kAll));
      clocks.tick(agent);
    }
    for (const uint32_t agent : {a, b}) clocks.acquire(agent, kAll, both);
  }
};

TEST(Clocks, NobodyKnowsOfOthersAtTheStart) {
  Cluster c;
  EXPECT_EQ(c.clocks.agents(), kWarps + 2);
  EXPECT_EQ(c.clocks.async_agent(), kWarps + 1);
  for (uint32_t a = 0; a < c.clocks.agents(); ++a)
    for (uint32_t b = 0; b < c.clocks.agents(); ++b) EXPECT_FALSE(c.knows(a, b, 1));
}

TEST(Clocks, ABarrierOrdersWhatCameBeforeItAndNothingAfter) {
  Cluster c;
  const uint32_t before = c.clocks.now(0);
  c.barrier(0, 1);
  const uint32_t after = c.clocks.now(0);
  EXPECT_TRUE(c.knows(1, 0, before));
  EXPECT_TRUE(c.knows(0, 0, before)) << "lanes of one warp, too";
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
  const Known known = c.clocks.of(0, 0)[1];
  c.clocks.acquire(0, kAll, Clock(c.clocks.width()));
  EXPECT_EQ(c.clocks.of(0, 0)[1], known);
  c.clocks.acquire(0, kAll, Clock(1));  // of fewer agents: what it says of the others is nothing
  EXPECT_EQ(c.clocks.of(0, 0)[1], known);
}

// One lane lets go: of what it did, and of what it knew that others had done.
TEST(Clocks, ALaneSpeaksForItselfAndForWhomItHasMet) {
  Cluster c;
  const uint32_t early = c.clocks.now(0);
  c.clocks.sync(0, kAll);
  const uint32_t late = c.clocks.now(0);
  EXPECT_FALSE(c.knows(0, 0, late, 0, 1)) << "one lane of another, without bar.warp.sync";
  EXPECT_TRUE(c.knows(0, 0, early, 0, 1));
  c.hand_over(0, 1u << 3, 1, kAll);
  EXPECT_TRUE(c.knows(1, 0, early, 0, 7));
  EXPECT_TRUE(c.knows(1, 0, late, 0, 3));
  EXPECT_FALSE(c.knows(1, 0, late, 0, 7)) << "nothing has told lane 3";
  EXPECT_FALSE(c.knows(1, 0, late, 0, Known::kSeveral));
  EXPECT_FALSE(c.knows(1, 0, c.clocks.now(0), 0, 3)) << "what it does from then on";
}

TEST(Clocks, ALaneLearnsForItself) {
  Cluster c;
  const uint32_t written = c.clocks.now(0);
  c.hand_over(0, kAll, 1, 1u << 5);
  EXPECT_TRUE(c.knows(1, 0, written, 5));
  EXPECT_FALSE(c.knows(1, 0, written, 6));
  c.clocks.sync(1, 3u << 5);  // lanes 5 and 6
  EXPECT_TRUE(c.knows(1, 0, written, 6));
  EXPECT_FALSE(c.knows(1, 0, written, 7));
  c.clocks.sync(1, kAll);
  EXPECT_TRUE(c.knows(1, 0, written, 7));
}

TEST(Clocks, AWarpSyncOfSomeOrdersThem) {
  Cluster c;
  const uint32_t written = c.clocks.now(0);
  c.clocks.sync(0, 0xff);
  EXPECT_TRUE(c.knows(0, 0, written, 0, 7));
  EXPECT_FALSE(c.knows(0, 0, written, 0, 8));
  EXPECT_FALSE(c.knows(0, 0, written, 8, 0));
  c.hand_over(0, 1, 1, kAll);
  EXPECT_TRUE(c.knows(1, 0, written, 0, 7));
  EXPECT_FALSE(c.knows(1, 0, written, 0, 8));
}

// Every lane for itself is the whole warp.
TEST(Clocks, LanesOneByOneAreTheWarp) {
  Cluster c;
  const uint32_t written = c.clocks.now(0);
  for (uint32_t lane = 0; lane < 32; ++lane) {
    EXPECT_FALSE(c.knows(1, 0, written, 0, 31));
    c.hand_over(0, 1u << lane, 1, kAll);
  }
  for (const uint32_t lane : {0u, 17u, 31u, Known::kSeveral, Known::kWarp})
    EXPECT_TRUE(c.knows(1, 0, written, 0, lane));
  EXPECT_EQ(c.clocks.of(1, 0)[0].lanes, 0u);
}

// shfl, wgmma: the lanes have come to it. What a lane stored is not known by that; what the warp did as one is.
TEST(Clocks, PassingTogetherTellsWhereTheLanesStand) {
  Cluster c;
  const uint32_t done = c.clocks.now(0);
  c.clocks.tick(0);
  c.hand_over(0, 1, 1, kAll);
  EXPECT_FALSE(c.knows(1, 0, done, 0, Known::kWarp));
  c.clocks.pass(0);
  c.hand_over(0, 1, 1, kAll);
  EXPECT_TRUE(c.knows(1, 0, done, 0, Known::kWarp));
  EXPECT_FALSE(c.knows(1, 0, done, 0, 1));
}

// A warp's writes are seen by the asynchronous proxy when their lanes have fenced them, or when who starts the
// operation came to know of them and fenced then.
TEST(Clocks, TheAsynchronousProxySeesWhatWasFenced) {
  Cluster c;
  const uint32_t written = c.clocks.now(0);
  EXPECT_FALSE(c.clocks.fenced(0)[0].covers(1, written)) << "no fence yet";
  c.clocks.proxy_fence(0, 1);
  EXPECT_TRUE(c.clocks.fenced(0)[0].covers(0, written));
  EXPECT_FALSE(c.clocks.fenced(0)[0].covers(1, written)) << "another lane's";
  c.clocks.proxy_fence(0, kAll);
  EXPECT_TRUE(c.clocks.fenced(0)[0].covers(1, written));
  EXPECT_TRUE(c.clocks.fenced(1)[0].covers(1, written)) << "the writer's own fence serves whoever starts it";
  EXPECT_FALSE(c.clocks.fenced(0)[0].covers(1, c.clocks.now(0)))
      << "what is written behind the fence is not seen";
}

TEST(Clocks, AFenceBehindABarrierServesTheOthersWrites) {
  Cluster c;
  const uint32_t written = c.clocks.now(0);
  c.clocks.proxy_fence(1, kAll);  // before it knows: of no use
  EXPECT_FALSE(c.clocks.fenced(1)[0].covers(1, written));
  c.barrier(0, 1);
  EXPECT_FALSE(c.clocks.fenced(1)[0].covers(1, written)) << "knowing is not fencing";
  c.clocks.proxy_fence(1, 1);
  EXPECT_TRUE(c.clocks.fenced(1)[0].covers(1, written));
  EXPECT_FALSE(c.clocks.fenced(2)[0].covers(1, written)) << "a third warp has fenced nothing";
}

}  // namespace
}  // namespace trigen::emulator
