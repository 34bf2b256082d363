#include "emulator/memory.h"

#include <sys/mman.h>

#include <cstring>
#include <new>

namespace trigen::emulator {
namespace {

constexpr uint64_t kAlign = 512;
constexpr uint64_t kGap = 512;  // between allocations

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
  const uint64_t table = (reserved(capacity) >> kGranuleShift) * sizeof(Allocation*);
  return 2 * reserved(capacity) + table + kAlign;
}

uint64_t DeviceMemory::allocate(uint64_t bytes) {
  if (bytes > capacity_) return 0;
  std::lock_guard<std::mutex> lock(mutex_);
  uint64_t room = (bytes + kAlign - 1) / kAlign * kAlign;
  if (used_ + room > capacity_) return 0;
  uint64_t offset = next_;
  Allocation* record = nullptr;
  if (offset + room + kGap > reserved_) {
    for (auto it = graveyard_.begin(); it != graveyard_.end(); ++it) {  // the oldest one that is large enough
      if ((*it)->room < room) continue;
      record = *it;
      graveyard_.erase(it);
      offset = record->base - base_;
      room = record->room;
      break;
    }
    if (record == nullptr) return 0;
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

bool DeviceMemory::free(uint64_t address) {
  std::lock_guard<std::mutex> lock(mutex_);
  Allocation* record = find(address);
  if (record == nullptr || record->freed || record->base != address) return false;
  record->freed = true;
  const uint64_t room = record->room;
  used_ -= room;
  // Gives the pages back to the host; they read as zeros and as never written if handed out again.
  constexpr uint64_t kPage = 4096;
  uint64_t begin = (record->base + kPage - 1) / kPage * kPage, end = record->end() / kPage * kPage;
  if (end > begin) madvise(host_pointer(begin), end - begin, MADV_DONTNEED);
  uint64_t flags = reinterpret_cast<uint64_t>(written_ + (record->base - base_));
  uint64_t flags_begin = (flags + kPage - 1) / kPage * kPage, flags_end = (flags + room) / kPage * kPage;
  if (flags_end > flags_begin) {
    std::memset(host_pointer(flags), 0, flags_begin - flags);
    madvise(host_pointer(flags_begin), flags_end - flags_begin, MADV_DONTNEED);
    std::memset(host_pointer(flags_end), 0, flags + room - flags_end);
  } else {
    std::memset(host_pointer(flags), 0, room);
  }
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
