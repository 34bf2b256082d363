// Races in global memory between the clusters of one launch: nothing orders them, unless the kernel has
// atomics. And between a launch and the one before it, where they may overlap.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "emulator/memory.h"

namespace trigen::emulator {

// Writers and readers of each byte of global memory in this launch. Thread-safe: clusters run on several host
// threads. The later of a race's two accesses reports it.
class GlobalRaces {
 public:
  /// `checks`: look for races inside this launch; without it the bytes that it writes are remembered alone.
  GlobalRaces(const std::vector<DeviceMemory*>& memories, bool checks);
  ~GlobalRaces();
  GlobalRaces(const GlobalRaces&) = delete;
  GlobalRaces& operator=(const GlobalRaces&) = delete;

  /// The number of another cluster that wrote one of the bytes, or -1. `address`: of live global memory.
  int64_t read(uint64_t address, uint32_t bytes, uint64_t cluster);
  /// Call before `value` is copied to `address`: the number of another cluster that read one of the bytes, or
  /// wrote another value there; kSeveral for more readers than one, -1 for no race.
  int64_t write(uint64_t address, const uint8_t* value, uint32_t bytes, uint64_t cluster);
  /// An atomic, which races with plain accesses alone; like write().
  int64_t atomic(uint64_t address, uint32_t bytes, uint64_t cluster);
  static constexpr int64_t kSeveral = 0xfffffffe;

  /// Whether the launch wrote, or accessed, any of the bytes; reads are known only with `checks`.
  bool wrote(uint64_t address, uint32_t bytes) const;
  bool touched(uint64_t address, uint32_t bytes) const;

 private:
  // Cluster number + 1, 0 for nobody.
  struct Marks {
    std::atomic<uint32_t> writer, reader, atomic;
  };
  // Of the accesses to all four bytes; `split` is 1 where others touched a part, whose bytes have marks of their own.
  struct Word : Marks {
    std::atomic<uint32_t> split;
  };
  struct Shadow {
    uint64_t base, bytes;        // of a device's memory
    Word* words;                 // of all of it; what nobody touches costs nothing
    std::atomic<Marks*>* pages;  // of its bytes' marks, or null
  };
  template <class Own, class Beside>
  void visit(uint64_t address, uint32_t bytes, const Own& own, const Beside& beside);
  template <class Marked>
  bool any(uint64_t address, uint32_t bytes, const Marked& marked) const;
  const Shadow* shadow_of(uint64_t address) const;
  Marks* page_of(const Shadow& shadow, uint64_t at);
  std::vector<Shadow> shadows_;
  std::mutex making_;
  std::vector<std::unique_ptr<Marks[]>> made_;  // what pages point to
  bool checks_;
};

}  // namespace trigen::emulator
