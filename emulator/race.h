// Happens-before between the warps of a cluster, and what is known of every shared-memory granule: who wrote
// it last, who read it since. Vector clocks after Flanagan and Freund, "FastTrack", 2009; an agent is a warp,
// lanes are told apart too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trigen::emulator {

// clock[a][b]: the last tick of agent b that agent a knows to lie before its own next access.
class Clocks {
 public:
  /// One agent per warp, and a last one for the asynchronous copy unit.
  void resize(uint32_t warps);
  uint32_t agents() const { return agents_; }
  uint32_t async_agent() const { return agents_ - 1; }
  uint32_t* of(uint32_t agent) { return clocks_.data() + static_cast<size_t>(agent) * agents_; }
  uint32_t now(uint32_t agent) { return of(agent)[agent]; }
  /// Begins a new tick: later accesses of the agent are told apart from earlier ones.
  void tick(uint32_t agent) { ++of(agent)[agent]; }
  void join(uint32_t agent, const std::vector<uint32_t>& other);
  void join_into(std::vector<uint32_t>& target, uint32_t agent);
  /// fence.proxy.async: what the agent knows of becomes visible to the asynchronous proxy.
  void proxy_fence(uint32_t agent);
  /// For every agent, the last tick whose writes the asynchronous proxy sees when `agent` starts an operation
  /// now: fenced by the writer, or by `agent` after it had seen them.
  std::vector<uint32_t> fenced(uint32_t agent) const;

 private:
  uint32_t agents_ = 0;
  std::vector<uint32_t> clocks_;
  std::vector<uint32_t> fences_;
};

// What an asynchronous operation may rely on: fixed when it is issued, however late it runs.
struct AsyncView {
  std::vector<uint32_t> clock;   // what the issuing warp knew
  std::vector<uint32_t> fenced;  // Clocks::fenced
};

enum class RaceKind : uint8_t { kNone, kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite, kProxy };

struct RaceHit {
  RaceKind kind = RaceKind::kNone;
  uint32_t agent = 0;
  uint32_t lane = 0;
};

// Granules of two bytes. Accesses of one byte are not checked (another byte of the granule may belong to
// somebody else).
class RaceShadow {
 public:
  void reset(uint32_t bytes, bool enabled);
  bool enabled() const { return enabled_; }
  /// `clock`: what the accessing agent knows (Clocks::of, or a copy taken when an asynchronous operation was
  /// issued).
  RaceHit read(uint32_t offset, uint32_t bytes, uint32_t agent, uint32_t lane, const uint32_t* clock,
               uint32_t now);
  /// `stamp`: the tick that later accesses compare with; after `now` for copies that land later than they
  /// were issued.
  RaceHit write(uint32_t offset, uint32_t bytes, uint32_t agent, uint32_t lane, const uint32_t* clock,
                uint32_t now, uint32_t stamp);
  /// A read by the asynchronous proxy on behalf of `agent`: writes by ordinary stores need a proxy fence in
  /// between.
  RaceHit async_read(uint32_t offset, uint32_t bytes, uint32_t agent, const AsyncView& view);

 private:
  static constexpr uint32_t kTickBits = 18, kLaneBits = 5;
  struct Cell {
    uint32_t writer = 0;
    uint32_t readers[3] = {0, 0, 0};
  };
  static uint32_t pack(uint32_t agent, uint32_t lane, uint32_t tick) {
    return (agent << (kTickBits + kLaneBits)) | (lane << kTickBits) | tick;
  }
  static uint32_t agent_of(uint32_t packed) { return packed >> (kTickBits + kLaneBits); }
  static uint32_t lane_of(uint32_t packed) { return (packed >> kTickBits) & 31; }
  static uint32_t tick_of(uint32_t packed) { return packed & ((1u << kTickBits) - 1); }
  // Does the access `packed` lie before everything that (agent, lane) does from now on?
  static bool before(uint32_t packed, uint32_t agent, uint32_t lane, const uint32_t* clock, uint32_t now) {
    if (packed == 0) return true;
    uint32_t other = agent_of(packed);
    if (other != agent) return clock[other] >= tick_of(packed);
    return lane_of(packed) == lane || tick_of(packed) < now;
  }

  bool enabled_ = false;
  std::vector<Cell> cells_;
};

}  // namespace trigen::emulator
