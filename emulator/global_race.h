// Races in global memory between the clusters of one launch: nothing orders them, unless the kernel has
// atomics.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "emulator/memory.h"

namespace trigen::emulator {

// Who wrote and who read each byte in this launch. Thread-safe: clusters run on several host threads. Every
// race is seen by the later of its two accesses, whichever that is.
class GlobalRaces {
 public:
  explicit GlobalRaces(const std::vector<DeviceMemory*>& memories);
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

 private:
  // Cluster number + 1, 0 for nobody.
  struct Cell {
    std::atomic<uint32_t> writer, reader, atomic;
  };
  struct Shadow {
    const DeviceMemory* memory;
    Cell* cells;  // one for each byte; pages that nobody touches cost nothing
  };
  static void mark(std::atomic<uint32_t>& who, uint32_t mine);
  Cell* cells_of(uint64_t address) const;
  std::vector<Shadow> shadows_;
};

}  // namespace trigen::emulator
