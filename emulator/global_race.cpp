#include "emulator/global_race.h"

#include <sys/mman.h>

#include <new>

namespace trigen::emulator {

GlobalRaces::GlobalRaces(const std::vector<DeviceMemory*>& memories, bool checks) : checks_(checks) {
  for (const DeviceMemory* memory : memories) {
    void* cells = mmap(nullptr, memory->reserved() * sizeof(Cell), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (cells == MAP_FAILED) throw std::bad_alloc();
    shadows_.push_back({memory->base(), memory->reserved(), static_cast<Cell*>(cells)});
  }
}

GlobalRaces::~GlobalRaces() {
  for (Shadow& shadow : shadows_) munmap(shadow.cells, shadow.bytes * sizeof(Cell));
}

GlobalRaces::Cell* GlobalRaces::cells_of(uint64_t address) const {
  for (const Shadow& shadow : shadows_)
    if (address - shadow.base < shadow.bytes) return shadow.cells + (address - shadow.base);
  return nullptr;
}

// One cluster's number, or ~0 for several.
void GlobalRaces::mark(std::atomic<uint32_t>& who, uint32_t mine) {
  uint32_t found = who.load();
  while (found != mine && found != ~0u && !who.compare_exchange_weak(found, found == 0 ? mine : ~0u)) {
  }
}

int64_t GlobalRaces::read(uint64_t address, uint32_t bytes, uint64_t cluster) {
  if (!checks_) return -1;
  const uint32_t mine = static_cast<uint32_t>(cluster) + 1;
  Cell* cells = cells_of(address);
  if (cells == nullptr) return -1;
  int64_t other = -1;
  for (uint32_t i = 0; i < bytes; ++i) {
    // Its own mark first, then the look at the others', as everywhere here: the later of two sees the
    // earlier.
    mark(cells[i].reader, mine);
    const uint32_t writer = cells[i].writer.load();
    if (writer != 0 && writer != mine) other = static_cast<int64_t>(writer) - 1;
    const uint32_t changer = cells[i].atomic.load();
    if (changer != 0 && changer != mine) other = static_cast<int64_t>(changer) - 1;
  }
  return other;
}

int64_t GlobalRaces::write(uint64_t address, const uint8_t* value, uint32_t bytes, uint64_t cluster) {
  const uint32_t mine = static_cast<uint32_t>(cluster) + 1;
  Cell* cells = cells_of(address);
  if (cells == nullptr) return -1;
  int64_t other = -1;
  for (uint32_t i = 0; i < bytes; ++i) {
    const uint32_t writer = cells[i].writer.exchange(mine), reader = cells[i].reader.load();
    if (writer != 0 && writer != mine && host_pointer(address)[i] != value[i])
      other = static_cast<int64_t>(writer) - 1;
    if (reader != 0 && reader != mine) other = static_cast<int64_t>(reader) - 1;
    const uint32_t changer = cells[i].atomic.load();
    if (changer != 0 && changer != mine) other = static_cast<int64_t>(changer) - 1;
  }
  return checks_ ? other : -1;
}

int64_t GlobalRaces::atomic(uint64_t address, uint32_t bytes, uint64_t cluster) {
  const uint32_t mine = static_cast<uint32_t>(cluster) + 1;
  Cell* cells = cells_of(address);
  if (cells == nullptr) return -1;
  int64_t other = -1;
  for (uint32_t i = 0; i < bytes; ++i) {
    mark(cells[i].atomic, mine);
    for (const uint32_t found : {cells[i].writer.load(), cells[i].reader.load()})
      if (found != 0 && found != mine) other = static_cast<int64_t>(found) - 1;
  }
  return checks_ ? other : -1;
}

bool GlobalRaces::wrote(uint64_t address, uint32_t bytes) const {
  const Cell* cells = cells_of(address);
  if (cells == nullptr) return false;
  for (uint32_t i = 0; i < bytes; ++i)
    if (cells[i].writer.load() != 0 || cells[i].atomic.load() != 0) return true;
  return false;
}

bool GlobalRaces::touched(uint64_t address, uint32_t bytes) const {
  const Cell* cells = cells_of(address);
  if (cells == nullptr) return false;
  for (uint32_t i = 0; i < bytes; ++i)
    if (cells[i].reader.load() != 0) return true;
  return wrote(address, bytes);
}

}  // namespace trigen::emulator
