// A warp: 32 lanes that execute together where they can.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "emulator/counters.h"
#include "emulator/program.h"
#include "emulator/race.h"
#include "emulator/report.h"

namespace trigen::emulator {

struct Block;

// Lanes of a warp that stand at the same instruction.
struct Fragment {
  enum class Wait : uint8_t { kNone, kCollective, kBlocked };
  uint32_t pc = 0;
  uint32_t mask = 0;
  Wait wait = Wait::kNone;
  uint8_t stage = 0;   // kBlocked: what the handler has done so far
  uint64_t token = 0;  // kBlocked: the handler's memory (a barrier's generation ...)
};

// cp.async copies of one instruction, not yet carried out. Carried out as late as allowed: when the thread
// waits.
struct AsyncCopy {
  uint32_t mask = 0;
  uint32_t group[32];   // per lane: number of the group it was committed to (or will be)
  uint64_t target[32];  // shared addresses
  uint64_t source[32];
  uint8_t bytes = 0;         // 4, 8, 16
  uint8_t source_bytes[32];  // the rest is filled with zeros
  const Inst* inst = nullptr;
  uint64_t sequence = 0;  // of the warp's copies
  Clock clock;            // what the lanes knew when they issued the copy
};

// A warp's share of a warpgroup matrix product, not yet carried out.
struct PendingProduct {
  const Inst* inst = nullptr;
  uint64_t a_descriptor = 0;
  uint64_t b_descriptor = 0;
  bool accumulate = true;
  uint32_t group = 0;
  std::vector<uint32_t> a_registers;  // A from registers, as read at issue: [register][lane]
  AsyncView view;
};

// A bulk copy out of shared memory, not yet carried out.
struct BulkStore {
  uint32_t lane = 0;
  uint32_t group = 0;
  std::function<void()> run;
};

struct Warp {
  Block* block = nullptr;
  const Program* program = nullptr;
  Counters* counters = nullptr;
  uint8_t* registers = nullptr;
  uint32_t index = 0;          // in its block
  uint32_t agent = 0;          // in its cluster: names the warp in race checks
  uint32_t valid = kFullMask;  // lanes that exist
  uint32_t exited = 0;
  std::vector<Fragment> fragments;
  uint32_t current = 0;        // index of the fragment that runs
  const Inst* inst = nullptr;  // the instruction that runs
  bool wait = false;           // set by a blocking handler: call again later
  bool spin = false;           // set by a failing test: let others run

  std::vector<AsyncCopy> copies;
  uint32_t committed[32] = {};  // cp.async groups committed, per lane
  uint64_t copy_sequence = 0;
  std::vector<PendingProduct> products;
  uint32_t products_committed = 0;
  bool products_fenced = false;            // by a wgmma.fence so far
  std::vector<RegisterUse> register_uses;  // of products, by Touch::index
  std::vector<BulkStore> bulk_stores;
  uint32_t bulk_committed[32] = {};  // cp.async.bulk groups committed, per lane

  template <class T>
  T* lanes(uint32_t slot) {
    return reinterpret_cast<T*>(registers + slot);
  }
  uint32_t& predicate(uint32_t slot) { return *reinterpret_cast<uint32_t*>(registers + slot); }
  void set_predicate(uint32_t slot, uint32_t bits, uint32_t mask) {
    uint32_t& value = predicate(slot);
    value = (value & ~mask) | (bits & mask);
  }
  uint32_t alive() const { return valid & ~exited; }
  /// Lanes, and those that are not there, which wait for nothing: what the lanes let go of is theirs, too.
  uint32_t with_gone(uint32_t lanes) const { return lanes | ~alive(); }
  Fragment& fragment() { return fragments[current]; }

  /// Adds a report about a lane at the current instruction.
  void report(Fault fault, uint32_t lane, const std::string& detail);
  /// The same, and ends the launch.
  [[noreturn]] void abort(Fault fault, uint32_t lane, const std::string& detail);
};

/// Executes `body(lane)` for the lanes of a mask; a full mask runs a plain loop that the compiler turns into
/// vector code.
template <class F>
inline __attribute__((always_inline)) void for_lanes(uint32_t mask, F&& body) {
  if (mask == kFullMask) {
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (int lane = 0; lane < 32; ++lane) body(lane);
  } else {
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1) body(__builtin_ctz(rest));
  }
}

}  // namespace trigen::emulator
