// Happens-before between the warps of a cluster. Vector clocks after Flanagan and Freund, "FastTrack", 2009;
// an agent is a warp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace trigen::emulator {

// clock[a][b]: the last tick of agent b whose accesses agent a knows to lie before its own next one. In a cluster of
// several blocks a second half holds what is known to have ended, so that its place may be written: an arrival at any
// scope tells that. Values are seen in another block through the scope .cluster only (PTX ISA, "Memory Consistency
// Model", scopes).
class Clocks {
 public:
  /// One agent per warp, and a last one for the asynchronous copy unit.
  void resize(uint32_t warps, bool several_blocks = false);
  uint32_t agents() const { return agents_; }
  /// Entries of a clock, and the first of its second half (0: there is none, one holds both).
  uint32_t width() const { return agents_ + ended_; }
  uint32_t ended() const { return ended_; }
  uint32_t async_agent() const { return agents_ - 1; }
  uint32_t* of(uint32_t agent) { return clocks_.data() + static_cast<size_t>(agent) * width(); }
  uint32_t now(uint32_t agent) { return of(agent)[agent]; }
  /// Begins a new tick: later accesses of the agent are told apart from earlier ones.
  void tick(uint32_t agent) { of(agent)[ended_ + agent] = ++of(agent)[agent]; }
  /// The entries of `other` from `first` on.
  void join(uint32_t agent, const std::vector<uint32_t>& other, uint32_t first = 0);
  void join_into(std::vector<uint32_t>& target, uint32_t agent);
  /// fence.proxy.async: what the agent knows of becomes visible to the asynchronous proxy.
  void proxy_fence(uint32_t agent);
  /// For every agent, the last tick whose writes the asynchronous proxy sees when `agent` starts an operation
  /// now: fenced by the writer, or by `agent` after it had seen them.
  std::vector<uint32_t> fenced(uint32_t agent) const;

 private:
  uint32_t agents_ = 0, ended_ = 0;
  std::vector<uint32_t> clocks_;
  std::vector<uint32_t> fences_;
};

// What an asynchronous operation may rely on: fixed when it is issued, however late it runs.
struct AsyncView {
  std::vector<uint32_t> clock;   // what the issuing warp knew
  std::vector<uint32_t> fenced;  // Clocks::fenced
};

}  // namespace trigen::emulator
