#include "emulator/global_race.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace trigen::emulator {
namespace {

constexpr uint32_t kWord = 4;     // bytes
constexpr uint64_t kPage = 4096;  // bytes whose own marks are made together

// Zeros, of which the pages that are touched take memory.
template <class Element>
Element* reserve(uint64_t count) {
  void* memory = mmap(nullptr, count * sizeof(Element), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return static_cast<Element*>(memory);
}

// One cluster's number, or ~0 for several.
void mark(std::atomic<uint32_t>& who, uint32_t mine) {
  uint32_t found = who.load();
  while (found != mine && found != ~0u && !who.compare_exchange_weak(found, found == 0 ? mine : ~0u)) {
  }
}

bool is_another(uint32_t found, uint32_t mine) { return found != 0 && found != mine; }

// The other cluster of a race that was found last.
struct Other {
  uint32_t mine;
  int64_t number = -1;
  void see(uint32_t found) {
    if (is_another(found, mine)) number = static_cast<int64_t>(found) - 1;
  }
};

}  // namespace

GlobalRaces::GlobalRaces(const std::vector<DeviceMemory*>& memories, bool checks) : checks_(checks) {
  for (const DeviceMemory* memory : memories)
    shadows_.push_back({memory->base(), memory->reserved(), reserve<Word>(memory->reserved() / kWord),
                        reserve<std::atomic<Marks*>>(memory->reserved() / kPage)});
}

GlobalRaces::~GlobalRaces() {
  for (Shadow& shadow : shadows_) {
    munmap(shadow.words, shadow.bytes / kWord * sizeof(Word));
    munmap(shadow.pages, shadow.bytes / kPage * sizeof(*shadow.pages));
  }
}

const GlobalRaces::Shadow* GlobalRaces::shadow_of(uint64_t address) const {
  for (const Shadow& shadow : shadows_)
    if (address - shadow.base < shadow.bytes) return &shadow;
  return nullptr;
}

GlobalRaces::Marks* GlobalRaces::page_of(const Shadow& shadow, uint64_t at) {
  std::atomic<Marks*>& page = shadow.pages[at / kPage];
  if (Marks* made = page.load()) return made;
  const std::lock_guard<std::mutex> lock(making_);
  if (page.load() == nullptr) page.store(made_.emplace_back(std::make_unique<Marks[]>(kPage)).get());
  return page.load();
}

// own(marks, first, bytes): leaves the access's mark of its `bytes` bytes from `first` on, and looks at the others there. beside: looks
// at those that accesses to all of a word left where this one has a part of it, or the other way round. Its own mark first, then the
// look at the others', as everywhere here: the later of two sees the earlier.
template <class Own, class Beside>
void GlobalRaces::visit(uint64_t address, uint32_t bytes, const Own& own, const Beside& beside) {
  const Shadow* const shadow = shadow_of(address);
  if (shadow == nullptr) return;
  for (uint32_t first = 0, count = 0; first < bytes; first += count) {
    const uint64_t at = address - shadow->base + first;
    count = std::min(kWord - static_cast<uint32_t>(at % kWord), bytes - first);
    Word& word = shadow->words[at / kWord];
    if (count == kWord) {
      own(word, first, count);
      if (word.split.load() == 0) continue;
      Marks* const marks = page_of(*shadow, at) + at % kPage;
      for (uint32_t i = 0; i < count; ++i) beside(marks[i], first + i, 1u);
    } else {
      if (word.split.load() == 0) word.split.store(1);
      Marks* const marks = page_of(*shadow, at) + at % kPage;
      for (uint32_t i = 0; i < count; ++i) own(marks[i], first + i, 1u);
      beside(word, first, count);
    }
  }
}

int64_t GlobalRaces::read(uint64_t address, uint32_t bytes, uint64_t cluster) {
  if (!checks_) return -1;
  Other other{static_cast<uint32_t>(cluster) + 1};
  const auto look = [&](Marks& marks, uint32_t, uint32_t) {
    other.see(marks.writer.load());
    other.see(marks.atomic.load());
  };
  visit(
      address, bytes,
      [&](Marks& marks, uint32_t first, uint32_t count) {
        mark(marks.reader, other.mine);
        look(marks, first, count);
      },
      look);
  return other.number;
}

int64_t GlobalRaces::write(uint64_t address, const uint8_t* value, uint32_t bytes, uint64_t cluster) {
  Other other{static_cast<uint32_t>(cluster) + 1};
  const auto look = [&](Marks& marks, uint32_t writer, uint32_t first, uint32_t count) {
    if (is_another(writer, other.mine) &&
        std::memcmp(host_pointer(address) + first, value + first, count) != 0)
      other.see(writer);
    other.see(marks.reader.load());
    other.see(marks.atomic.load());
  };
  visit(
      address, bytes,
      [&](Marks& marks, uint32_t first, uint32_t count) {
        look(marks, marks.writer.exchange(other.mine), first, count);
      },
      [&](Marks& marks, uint32_t first, uint32_t count) { look(marks, marks.writer.load(), first, count); });
  return checks_ ? other.number : -1;
}

int64_t GlobalRaces::atomic(uint64_t address, uint32_t bytes, uint64_t cluster) {
  Other other{static_cast<uint32_t>(cluster) + 1};
  const auto look = [&](Marks& marks, uint32_t, uint32_t) {
    other.see(marks.writer.load());
    other.see(marks.reader.load());
  };
  visit(
      address, bytes,
      [&](Marks& marks, uint32_t first, uint32_t count) {
        mark(marks.atomic, other.mine);
        look(marks, first, count);
      },
      look);
  return checks_ ? other.number : -1;
}

template <class Marked>
bool GlobalRaces::any(uint64_t address, uint32_t bytes, const Marked& marked) const {
  const Shadow* const shadow = shadow_of(address);
  if (shadow == nullptr) return false;
  for (uint32_t first = 0, count = 0; first < bytes; first += count) {
    const uint64_t at = address - shadow->base + first;
    count = std::min(kWord - static_cast<uint32_t>(at % kWord), bytes - first);
    const Word& word = shadow->words[at / kWord];
    if (marked(word)) return true;
    const Marks* const page = word.split.load() == 0 ? nullptr : shadow->pages[at / kPage].load();
    for (uint32_t i = 0; page != nullptr && i < count; ++i)
      if (marked(page[at % kPage + i])) return true;
  }
  return false;
}

bool GlobalRaces::wrote(uint64_t address, uint32_t bytes) const {
  return any(address, bytes,
             [](const Marks& marks) { return marks.writer.load() != 0 || marks.atomic.load() != 0; });
}

bool GlobalRaces::touched(uint64_t address, uint32_t bytes) const {
  return any(address, bytes, [](const Marks& marks) {
    return marks.writer.load() != 0 || marks.atomic.load() != 0 || marks.reader.load() != 0;
  });
}

}  // namespace trigen::emulator
