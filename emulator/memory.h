// Global memory of one emulated device. Device addresses are host addresses inside one reserved range, so a
// lookup table by 256-byte granule tells the allocation of any address at once, and a byte map tells which
// bytes were ever written. One thread at a time allocates and frees: the driver's lock is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace trigen::emulator {

/// Device addresses are host addresses: the one place where a number becomes a pointer.
inline uint8_t* host_pointer(uint64_t address) {
  return reinterpret_cast<uint8_t*>(address);  // NOLINT(performance-no-int-to-ptr)
}

struct Allocation {
  uint64_t base = 0;
  uint64_t bytes = 0;
  uint64_t room = 0;  // of its place, which keeps its size whoever gets it next
  uint32_t id = 0;
  int device = 0;
  bool freed = false;
  bool read_only = false;
  bool is_const = false;  // a module's .const variable
  bool whole = false;     // every byte is known to be written
  uint64_t end() const { return base + bytes; }
};

class DeviceMemory {
 public:
  /// Throws std::bad_alloc where the process may not reserve reserved_bytes(capacity) of address space.
  explicit DeviceMemory(int device, uint64_t capacity);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  static uint64_t reserved_bytes(uint64_t capacity);
  /// Address of `bytes` bytes, aligned to 512 (cuMemAlloc promises 256), or 0 when the device's memory is
  /// used up. The bytes around an allocation belong to nobody. Freed memory is handed out again late: when
  /// nothing else is left, or many freed ones are remembered and an old one fits.
  uint64_t allocate(uint64_t bytes);
  /// False when `address` is not the start of a live allocation.
  bool free(uint64_t address);

  bool contains(uint64_t address) const { return address - base_ < reserved_; }
  /// The allocation that holds the address, live or freed; nullptr between allocations.
  Allocation* find(uint64_t address) const {
    uint64_t offset = address - base_;
    if (offset >= reserved_) return nullptr;
    Allocation* allocation = granules_[offset >> kGranuleShift];
    return allocation;
  }
  /// One byte for each byte of memory: 0 as long as nobody wrote it.
  uint8_t* written(uint64_t address) const { return written_ + (address - base_); }
  void mark_written(uint64_t address, uint64_t bytes);
  bool is_written(uint64_t address, uint64_t bytes) const;
  uint64_t capacity() const { return capacity_; }
  uint64_t used() const { return used_; }
  uint64_t base() const { return base_; }
  uint64_t reserved() const { return reserved_; }

 private:
  static constexpr int kGranuleShift = 8;
  // Room so that freed memory need not be reused soon.
  static uint64_t reserved(uint64_t capacity) { return capacity * 4; }
  Allocation* take_freed(uint64_t room, uint64_t most_room, size_t looked_at);
  bool idle(uint64_t begin, uint64_t end) const;
  std::pair<uint64_t, uint64_t> give_back(const Allocation& freed, uint64_t table) const;
  int device_;
  uint64_t capacity_;
  uint64_t reserved_ = 0;
  uint64_t base_ = 0;
  uint8_t* range_ =
      nullptr;  // all that is reserved: memory, a flag for each byte, a pointer for each granule
  uint8_t* written_ = nullptr;
  Allocation** granules_ = nullptr;
  uint64_t next_ = 0;
  uint64_t used_ = 0;
  uint32_t next_id_ = 1;
  std::deque<Allocation> allocations_;  // stable addresses
  std::deque<Allocation*> graveyard_;   // freed, oldest first
};

}  // namespace trigen::emulator
