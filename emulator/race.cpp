#include "emulator/race.h"

#include <algorithm>

namespace trigen::emulator {

void RaceShadow::reset(uint32_t bytes, bool enabled) {
  enabled_ = enabled;
  regions_.assign(enabled ? (bytes >> kRegionShift) + 1 : 0, Region{});
  more_.clear();
  free_.clear();
}

void RaceShadow::refine(Region& region, uint32_t parts) {
  if (region.cells.empty()) region.cells.resize(size_t{1} << (kRegionShift - region.shift));
  while (region.shift > 0 && (parts & ((1u << region.shift) - 1)) != 0) {
    std::vector<Cell> halves;
    halves.reserve(2 * region.cells.size());
    for (const Cell& cell : region.cells) {
      halves.push_back(cell);
      Cell other = cell;  // lists have one owner
      if (other.readers[2] >= kMore) {
        std::vector<uint64_t> list = more_[other.readers[2] & ~kMore];
        other.readers[2] = kMore | more_.size();
        more_.push_back(std::move(list));
      }
      halves.push_back(other);
    }
    region.cells = std::move(halves);
    --region.shift;
  }
}

template <class F>
void RaceShadow::for_cells(uint32_t offset, uint32_t bytes, const F& body) {
  constexpr uint32_t kRegion = 1u << kRegionShift;
  for (const uint32_t end = offset + bytes; offset < end;) {
    const uint32_t part = std::min(end - offset, kRegion - offset % kRegion), inside = offset % kRegion;
    Region& region = regions_[offset >> kRegionShift];
    if (region.cells.empty() || ((inside | part) & ((1u << region.shift) - 1)) != 0)
      refine(region, inside | part);
    for (uint32_t i = inside >> region.shift; i < (inside + part) >> region.shift; ++i) body(region.cells[i]);
    offset += part;
  }
}

void RaceShadow::clear_readers(Cell& cell) {
  if (cell.readers[2] >= kMore) {
    const auto index = static_cast<uint32_t>(cell.readers[2] & ~kMore);
    more_[index].clear();
    free_.push_back(index);
  }
  cell.readers[0] = cell.readers[1] = cell.readers[2] = 0;
}

// One entry an agent: its latest read, which others lie before, or several lanes'.
void RaceShadow::add_reader(Cell& cell, uint64_t mine, const Accessor& by) {
  auto joined = [&](uint64_t& reader) {
    if (reader == mine) return true;
    if (agent_of(reader) != by.agent || is_atomic(reader) != is_atomic(mine)) return false;
    const uint32_t one = lane_of(reader), other = lane_of(mine),
                   tick = std::max(tick_of(reader), tick_of(mine));
    uint32_t lane = other;
    if (!ended_before(reader, by)) {  // of the warp's read and a lane's, the lane's is harder to know of
      if (other == Known::kWarp)
        lane = one;
      else if (one != Known::kWarp && one != other)
        lane = Known::kSeveral;
    }
    reader = (mine & ~(uint64_t{0x7f} << 32 | 0xffffffff)) | static_cast<uint64_t>(lane) << 32 | tick;
    return true;
  };
  uint64_t* place = nullptr;
  const bool more = cell.readers[2] >= kMore;
  for (uint64_t* reader = cell.readers; reader < cell.readers + (more ? 2 : 3); ++reader) {
    if (*reader != 0 && joined(*reader)) return;
    // A reader that lies before this one needs no more keeping: what is ordered after this one is after it,
    // too.
    if (place == nullptr && ended_before(*reader, by)) place = reader;
  }
  if (more) {
    for (uint64_t& reader : more_[cell.readers[2] & ~kMore]) {
      if (joined(reader)) return;
      if (place == nullptr && ended_before(reader, by)) place = &reader;
    }
  }
  if (place != nullptr) {
    *place = mine;
    return;
  }
  if (!more) {
    uint32_t index = static_cast<uint32_t>(more_.size());
    if (free_.empty()) {
      more_.emplace_back();
    } else {
      index = free_.back();
      free_.pop_back();
    }
    more_[index].push_back(cell.readers[2]);
    cell.readers[2] = kMore | index;
  }
  more_[cell.readers[2] & ~kMore].push_back(mine);
}

uint64_t RaceShadow::unordered_reader(const Cell& cell, const Accessor& by, bool atomics_too,
                                      bool plain_too) const {
  auto counts = [&](uint64_t reader) {
    return reader != 0 && (is_atomic(reader) ? atomics_too : plain_too) &&
           !(plain_too ? ended_before(reader, by) : before(reader, by));
  };
  for (const uint64_t reader : cell.readers) {
    if (reader < kMore) {
      if (counts(reader)) return reader;
      continue;
    }
    for (const uint64_t further : more_[reader & ~kMore])
      if (counts(further)) return further;
  }
  return 0;
}

RaceHit RaceShadow::read(uint32_t offset, uint32_t bytes, const Accessor& by) {
  RaceHit found;
  const uint64_t mine = pack(by, false);
  for_cells(offset, bytes, [&](Cell& cell) {
    if (found.kind == RaceKind::kNone && !before(cell.writer, by))
      found = hit(RaceKind::kReadAfterWrite, cell.writer);
    if (found.kind == RaceKind::kNone && is_atomic(cell.writer))
      if (const uint64_t other = unordered_reader(cell, by, true, false))
        found = hit(RaceKind::kReadAfterWrite, other);
    if (cell.readers[0] != mine) add_reader(cell, mine, by);
  });
  return found;
}

RaceHit RaceShadow::write(uint32_t offset, uint32_t bytes, const Accessor& by) {
  RaceHit found;
  const uint64_t mine = pack(by, false);
  for_cells(offset, bytes, [&](Cell& cell) {
    if (found.kind == RaceKind::kNone) {
      if (!ended_before(cell.writer, by))
        found = hit(RaceKind::kWriteAfterWrite, cell.writer);
      else if (const uint64_t other = unordered_reader(cell, by, true, true))
        found = hit(is_atomic(other) ? RaceKind::kWriteAfterWrite : RaceKind::kWriteAfterRead, other);
    }
    cell.writer = mine;
    clear_readers(cell);
  });
  return found;
}

// Kept among the readers as well: the next atomic takes the writer's place.
RaceHit RaceShadow::atomic(uint32_t offset, uint32_t bytes, const Accessor& by) {
  RaceHit found;
  const uint64_t mine = pack(by, true);
  for_cells(offset, bytes, [&](Cell& cell) {
    if (found.kind == RaceKind::kNone) {
      if (!is_atomic(cell.writer) && !before(cell.writer, by))
        found = hit(RaceKind::kWriteAfterWrite, cell.writer);
      else if (const uint64_t other = unordered_reader(cell, by, false, true))
        found = hit(RaceKind::kWriteAfterRead, other);
    }
    cell.writer = mine;
    add_reader(cell, mine, by);
  });
  return found;
}

RaceHit RaceShadow::async_read(uint32_t offset, uint32_t bytes, const Accessor& by, const AsyncView& view) {
  RaceHit found;
  const uint32_t async = static_cast<uint32_t>(view.fenced.size()) - 1;
  const uint64_t mine = pack(by, false);
  for_cells(offset, bytes, [&](Cell& cell) {
    if (const uint64_t writer = cell.writer; writer != 0 && found.kind == RaceKind::kNone) {
      const uint32_t other = agent_of(writer), lane = lane_of(writer), tick = tick_of(writer);
      if (!view.clock[other].covers(lane, tick))
        found = hit(RaceKind::kReadAfterWrite, writer);
      else if (other != async && !view.fenced[other].covers(lane, tick))
        found = hit(RaceKind::kProxy, writer);
    }
    if (cell.readers[0] != mine) add_reader(cell, mine, by);
  });
  return found;
}

RaceShadow& PagedRaces::page(uint64_t address) {
  const uint64_t number = address / kPage;
  if (number != last_) {
    last_page_ = &pages_[number];
    last_ = number;
    if (!last_page_->enabled()) last_page_->reset(kPage, true);
  }
  return *last_page_;
}

}  // namespace trigen::emulator
