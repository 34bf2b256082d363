#include "emulator/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace trigen::emulator {
namespace {

constexpr uint64_t kAlign = 512;
constexpr uint64_t kGap = 512;  // between allocations
// A freed allocation is remembered, so that a use after it has a name, at 88 bytes each: 1.4 MB of them, then the
// oldest that fits goes first. A module may have 118 variables.
constexpr size_t kRemembered = 16384, kLookedAt = 128;

void* reserve(uint64_t bytes) {
  void* range =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED) throw std::bad_alloc();
  return range;
}

}  // namespace

DeviceMemory::DeviceMemory(int device, uint64_t capacity) : device_(device), capacity_(capacity) {
  reserved_ = reserved(capacity);
  range_ = static_cast<uint8_t*>(reserve(reserved_bytes(capacity)));  // all of it or nothing
  base_ = (reinterpret_cast<uint64_t>(range_) + kAlign - 1) / kAlign * kAlign;
  written_ = host_pointer(base_) + reserved_;
  granules_ = reinterpret_cast<Allocation**>(written_ + reserved_);
  next_ = kGap;
}

DeviceMemory::~DeviceMemory() { munmap(range_, reserved_bytes(capacity_)); }

uint64_t DeviceMemory::reserved_bytes(uint64_t capacity) {
  const uint64_t table = (reserved(capacity) >> kGranuleShift) * sizeof(void*);
  return 2 * reserved(capacity) + table + kAlign;
}

uint64_t DeviceMemory::allocate(uint64_t bytes) {
  if (bytes > capacity_) return 0;
  uint64_t room = (bytes + kAlign - 1) / kAlign * kAlign;
  if (used_ + room > capacity_) return 0;
  const bool full = next_ + room + kGap > reserved_;
  Allocation* record = full                               ? take_freed(room, capacity_, graveyard_.size())
                       : graveyard_.size() >= kRemembered ? take_freed(room, 2 * room, kLookedAt)
                                                          : nullptr;
  if (record == nullptr && full) return 0;
  uint64_t offset = next_;
  if (record != nullptr) {
    offset = record->base - base_;
    room = record->room;
  } else {
    next_ = offset + room + kGap;
    allocations_.emplace_back();
    record = &allocations_.back();
  }
  uint64_t first = offset >> kGranuleShift;
  uint64_t last = (offset + room - 1) >> kGranuleShift;
  for (uint64_t granule = first; granule <= last; ++granule) granules_[granule] = record;
  *record = Allocation{};
  record->base = base_ + offset;
  record->bytes = bytes;
  record->room = room;
  record->id = next_id_++;
  record->device = device_;
  used_ += room;
  return record->base;
}

// Of the oldest `looked_at` freed ones the first that has so much room; nullptr where none has.
Allocation* DeviceMemory::take_freed(uint64_t room, uint64_t most_room, size_t looked_at) {
  for (size_t i = 0; i < std::min(looked_at, graveyard_.size()); ++i) {
    Allocation* const record = graveyard_[i];
    if (record->room < room || record->room > most_room) continue;
    graveyard_.erase(graveyard_.begin() + static_cast<std::ptrdiff_t>(i));
    return record;
  }
  return nullptr;
}

// No byte of these belongs to a live allocation. Offsets.
bool DeviceMemory::idle(uint64_t begin, uint64_t end) const {
  if (begin >= reserved_ || end > reserved_) return false;
  for (uint64_t granule = begin >> kGranuleShift; granule << kGranuleShift < end; ++granule)
    if (granules_[granule] != nullptr && !granules_[granule]->freed) return false;
  return true;
}

// Gives pages of `table` (the memory, or the flags of its bytes) back to the host, also those that the freed one
// shares with others that were freed before; what is given back reads as zeros.
std::pair<uint64_t, uint64_t> DeviceMemory::give_back(const Allocation& freed, uint64_t table) const {
  constexpr uint64_t kPage = 4096;
  const uint64_t begin = table + (freed.base - base_), end = begin + freed.room;
  uint64_t first = begin / kPage * kPage, last = (end + kPage - 1) / kPage * kPage;
  if (first < begin && !idle(first - table, begin - table)) first += kPage;
  if (last > end && !idle(end - table, last - table)) last -= kPage;
  if (first >= last) return {end, end};
  madvise(host_pointer(first), last - first, MADV_DONTNEED);
  return {std::max(first, begin), std::min(last, end)};
}

bool DeviceMemory::free(uint64_t address) {
  Allocation* record = find(address);
  if (record == nullptr || record->freed || record->base != address) return false;
  record->freed = true;
  const uint64_t room = record->room;
  used_ -= room;
  give_back(*record, base_);
  // Its bytes were never written if they are handed out again.
  const uint64_t flags = reinterpret_cast<uint64_t>(written_ + (record->base - base_));
  const auto [begin, end] = give_back(*record, reinterpret_cast<uint64_t>(written_));
  std::memset(host_pointer(flags), 0, begin - flags);
  std::memset(host_pointer(end), 0, flags + room - end);
  graveyard_.push_back(record);
  return true;
}

void DeviceMemory::mark_written(uint64_t address, uint64_t bytes) {
  Allocation* record = find(address);
  if (record == nullptr || record->whole) return;
  if (address == record->base && bytes == record->bytes) record->whole = true;
  std::memset(written(address), 1, bytes);
}

bool DeviceMemory::is_written(uint64_t address, uint64_t bytes) const {
  const Allocation* record = find(address);
  if (record != nullptr && record->whole) return true;
  const uint8_t* flags = written(address);
  for (uint64_t i = 0; i < bytes; ++i)
    if (flags[i] == 0) return false;
  return true;
}

}  // namespace trigen::emulator
