// Happens-before between the threads of a cluster. Vector clocks after Flanagan and Freund, "FastTrack", 2009; an agent
// is a warp, whose lanes share its ticks; what each of them knows is kept apart.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trigen::emulator {

// How far an agent's accesses are known, in its ticks. Lanes that let go one by one (one arrives for some, another for
// others) count together from then on: known up to the latest of them.
struct Known {
  uint32_t all = 0;    // of all its lanes
  uint32_t some = 0;   // of `lanes`; 0 where that is no more than `all`
  uint32_t lanes = 0;  // bits
  // Control flow, whatever is under way: all lanes have gone past what they did before this tick.
  uint32_t passed = 0;

  // In the place of a lane, where several lanes or the warp as one have made the access.
  static constexpr uint32_t kSeveral = 32, kWarp = 33;

  bool covers(uint32_t lane, uint32_t tick) const {
    if (tick <= all) return true;
    if (lane == kWarp) return tick < passed;
    // Of several it is not known which, so any two will do.
    return tick <= some && (lane == kSeveral ? (lanes & (lanes - 1)) != 0 : (lanes >> lane & 1) != 0);
  }
  bool covers_all_of(const Known& other) const {
    return other.all <= all && (other.some <= all || (other.some <= some && (other.lanes & ~lanes) == 0));
  }
  void join(const Known& other);
  friend bool operator==(const Known&, const Known&) = default;
};

using Clock = std::vector<Known>;  // by agent
/// Joins the entries of `other` from `first` on, as far as it has some.
void join(Clock& clock, const Clock& other, size_t first = 0);

// Each lane's knowledge of each agent. In a cluster of several blocks a clock's second half holds what is known to
// have ended, so that its place may be written: an arrival at any scope tells that. Values are seen in another block
// through the scope .cluster only (PTX ISA, "Memory Consistency Model", scopes).
//
// Of its own warp a lane knows what bar.warp.sync and barriers have told it. They alone order memory between lanes:
// shfl, vote, match, redux, elect, ldmatrix and mma wait for the others to come, not for what those have read or
// written (PTX ISA, "bar.warp.sync", which says it, and the others, which do not; CUDA C++ Programming Guide, "Warp
// Shuffle Functions": no memory barrier).
class Clocks {
 public:
  /// One agent per warp, one for launches before, and a last one for the asynchronous copy unit.
  void resize(uint32_t warps, bool several_blocks = false);
  uint32_t agents() const { return agents_; }
  /// Entries of a clock, and the first of its second half (0: there is none, one holds both).
  uint32_t width() const { return agents_ + ended_; }
  uint32_t ended() const { return ended_; }
  uint32_t async_agent() const { return agents_ - 1; }
  /// The agent of the launches before: knowing any tick of it means knowing that they have ended.
  uint32_t launches_agent() const { return agents_ - 2; }
  /// Of other agents and of the agent's other lanes; its own accesses lie before its next one anyhow.
  const Known* of(uint32_t agent, uint32_t lane) const {
    const std::vector<Group>& groups = groups_[agent];
    size_t i = 0;
    while (i + 1 < groups.size() && (groups[i].lanes >> lane & 1) == 0) ++i;
    return groups[i].clock.data();
  }
  uint32_t now(uint32_t agent) const { return now_[agent]; }
  /// Begins a new tick: later accesses of the agent are told apart from earlier ones.
  void tick(uint32_t agent) { ++now_[agent]; }

  /// The union of the lanes' knowledge, in storage that the next call overwrites.
  const Clock& known(uint32_t agent, uint32_t lanes);
  /// The same with their own accesses so far: the knowledge that a release passes on.
  const Clock& released(uint32_t agent, uint32_t lanes);
  /// The lanes come to know `clock`, of which the entries from `first` on.
  void acquire(uint32_t agent, uint32_t lanes, const Clock& clock, uint32_t first = 0);
  /// bar.warp.sync: the lanes know all that any of them knows and has done.
  void sync(uint32_t agent, uint32_t lanes);
  /// An instruction that the agent's lanes come to and leave together (.sync): none stands before it any more.
  void pass(uint32_t agent);

  /// fence.proxy.async: what the lanes know of and have done becomes visible to the asynchronous proxy.
  void proxy_fence(uint32_t agent, uint32_t lanes);
  /// For every agent, which of its writes the asynchronous proxy sees when `agent` starts an operation now: fenced by
  /// the writer, or by `agent` after it had seen them.
  Clock fenced(uint32_t agent) const;

 private:
  // Lanes that know the same.
  struct Group {
    uint32_t lanes;
    Clock clock;
  };
  uint32_t agents_ = 0, ended_ = 0;
  std::vector<std::vector<Group>> groups_;  // of every agent; each lane is in one
  std::vector<uint32_t> now_;
  Clock scratch_, fences_;
};

// An asynchronous operation's view of memory: fixed when it is issued, however late it runs.
struct AsyncView {
  Clock clock;   // what the issuing lanes knew and had done
  Clock fenced;  // Clocks::fenced
};

}  // namespace trigen::emulator
