// Race detection for a memory that the threads of a cluster share: for each byte the last writer, the readers since,
// and whether the clocks order them before the next access.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "emulator/clocks.h"

namespace trigen::emulator {

enum class RaceKind : uint8_t { kNone, kReadAfterWrite, kWriteAfterRead, kWriteAfterWrite, kProxy };

struct RaceHit {
  RaceKind kind = RaceKind::kNone;
  uint32_t agent = 0;
  uint32_t lane = 0;
  bool atomic = false;  // the other access was an atomic
};

// The accessing lane and its clock.
struct Accessor {
  uint32_t agent = 0;
  uint32_t lane = 0;             // Known::kWarp: an access of the warp as one
  const Known* clock = nullptr;  // Clocks::of, or a copy from when an asynchronous operation was issued
  uint32_t stamp = 0;            // Clocks::now, when it takes place
  uint32_t ended = 0;            // Clocks::ended
};

// Cells of 16 bytes, until the first access to their region that is not made of whole cells: then the region
// has cells of eight bytes, four, two, or one.
class RaceShadow {
 public:
  void reset(uint32_t bytes, bool enabled);
  bool enabled() const { return enabled_; }
  RaceHit read(uint32_t offset, uint32_t bytes, const Accessor& by);
  RaceHit write(uint32_t offset, uint32_t bytes, const Accessor& by);
  /// An atomic: no race with another one, whatever the order.
  RaceHit atomic(uint32_t offset, uint32_t bytes, const Accessor& by);
  /// A read by the asynchronous proxy for by.agent, which issued it with `view`: writes by ordinary stores
  /// need a proxy fence in between.
  RaceHit async_read(uint32_t offset, uint32_t bytes, const Accessor& by, const AsyncView& view);

 private:
  // One access in 64 bits, 0 for none: agent + 1, atomic or not, lane, tick.
  struct Cell {
    uint64_t writer = 0;
    uint64_t readers[3] = {0, 0, 0};  // the last of these may name a list of more
  };
  static uint64_t pack(const Accessor& by, bool atomic) {
    return static_cast<uint64_t>(by.agent + 1) << 40 | static_cast<uint64_t>(atomic) << 39 |
           static_cast<uint64_t>(by.lane) << 32 | by.stamp;
  }
  static uint32_t agent_of(uint64_t packed) { return static_cast<uint32_t>(packed >> 40) - 1; }
  static bool is_atomic(uint64_t packed) { return (packed >> 39 & 1) != 0; }
  static uint32_t lane_of(uint64_t packed) { return packed >> 32 & 0x7f; }
  static uint32_t tick_of(uint64_t packed) { return static_cast<uint32_t>(packed); }
  static constexpr uint64_t kMore = uint64_t{0xffffff} << 40;  // a reader slot: below it the list's index
  static RaceHit hit(RaceKind kind, uint64_t other) {
    return {kind, agent_of(other), lane_of(other), is_atomic(other)};
  }
  // Does the access `packed` lie before everything that the accessor does from now on?
  static bool before(uint64_t packed, const Accessor& by, uint32_t first = 0) {
    if (packed == 0) return true;
    const uint32_t other = agent_of(packed);
    if (other == by.agent && lane_of(packed) == by.lane) return true;
    return by.clock[first + other].covers(lane_of(packed), tick_of(packed));
  }
  // Has it ended, so that its place may be written?
  static bool ended_before(uint64_t packed, const Accessor& by) { return before(packed, by, by.ended); }
  struct Region {
    uint32_t shift = 4;  // a cell is 1 << shift bytes
    std::vector<Cell> cells;
  };
  static constexpr uint32_t kRegionShift = 10;
  void refine(Region& region, uint32_t parts);
  template <class F>
  void for_cells(uint32_t offset, uint32_t bytes, const F& body);
  void add_reader(Cell& cell, uint64_t mine, const Accessor& by);
  uint64_t unordered_reader(const Cell& cell, const Accessor& by, bool atomics_too, bool plain_too) const;
  void clear_readers(Cell& cell);

  bool enabled_ = false;
  std::vector<Region> regions_;
  std::vector<std::vector<uint64_t>> more_;  // further readers of a cell
  std::vector<uint32_t> free_;               // lists of more_ that no cell names
};

// The same for global memory, page by page where the cluster touches it.
class PagedRaces {
 public:
  static constexpr uint32_t kPage = 4096;
  RaceShadow& page(uint64_t address);

 private:
  std::unordered_map<uint64_t, RaceShadow> pages_;
  uint64_t last_ = ~uint64_t{0};
  RaceShadow* last_page_ = nullptr;
};

}  // namespace trigen::emulator
