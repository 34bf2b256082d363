#include "emulator/race.h"

#include <algorithm>

namespace trigen::emulator {

void Clocks::resize(uint32_t warps) {
  agents_ = warps + 1;
  clocks_.assign(static_cast<size_t>(agents_) * agents_, 0);
  fences_.assign(static_cast<size_t>(agents_) * agents_, 0);
  for (uint32_t agent = 0; agent < agents_; ++agent) of(agent)[agent] = 1;
}

void Clocks::join(uint32_t agent, const std::vector<uint32_t>& other) {
  uint32_t* mine = of(agent);
  for (uint32_t i = 0; i < agents_ && i < other.size(); ++i) mine[i] = std::max(mine[i], other[i]);
}

void Clocks::join_into(std::vector<uint32_t>& target, uint32_t agent) {
  target.resize(agents_, 0);
  const uint32_t* mine = of(agent);
  for (uint32_t i = 0; i < agents_; ++i) target[i] = std::max(target[i], mine[i]);
}

void Clocks::proxy_fence(uint32_t agent) {
  std::copy(of(agent), of(agent) + agents_, fences_.begin() + static_cast<std::ptrdiff_t>(agent) * agents_);
  tick(agent);
}

std::vector<uint32_t> Clocks::fenced(uint32_t agent) const {
  std::vector<uint32_t> view(agents_);
  for (uint32_t i = 0; i < agents_; ++i)
    view[i] = std::max(fences_[i * agents_ + i], fences_[agent * agents_ + i]);
  return view;
}

void RaceShadow::reset(uint32_t bytes, bool enabled) {
  enabled_ = enabled;
  cells_.assign(enabled ? (bytes + 1) / 2 : 0, Cell{});
}

RaceHit RaceShadow::read(uint32_t offset, uint32_t bytes, uint32_t agent, uint32_t lane,
                         const uint32_t* clock, uint32_t now) {
  RaceHit hit;
  if (bytes < 2 || (now >> kTickBits) != 0) return hit;
  uint32_t mine = pack(agent, lane, now);
  for (uint32_t i = offset / 2; i < (offset + bytes) / 2; ++i) {
    Cell& cell = cells_[i];
    if (!before(cell.writer, agent, lane, clock, now) && hit.kind == RaceKind::kNone)
      hit = {RaceKind::kReadAfterWrite, agent_of(cell.writer), lane_of(cell.writer)};
    if (cell.readers[0] == mine) continue;
    // Keeps the last readers of up to three agents. Readers that lie before this one need no more keeping.
    int place = -1;
    for (int r = 0; r < 3 && place < 0; ++r)
      if (cell.readers[r] == 0 || (agent_of(cell.readers[r]) == agent)) place = r;
    for (int r = 0; r < 3 && place < 0; ++r)
      if (before(cell.readers[r], agent, lane, clock, now)) place = r;
    if (place < 0) {
      cell.readers[2] = cell.readers[1];
      cell.readers[1] = cell.readers[0];
      place = 0;
    }
    cell.readers[place] = mine;
  }
  return hit;
}

RaceHit RaceShadow::write(uint32_t offset, uint32_t bytes, uint32_t agent, uint32_t lane,
                          const uint32_t* clock, uint32_t now, uint32_t stamp) {
  RaceHit hit;
  if (bytes < 2 || (stamp >> kTickBits) != 0) return hit;
  uint32_t mine = pack(agent, lane, stamp);
  for (uint32_t i = offset / 2; i < (offset + bytes) / 2; ++i) {
    Cell& cell = cells_[i];
    if (hit.kind == RaceKind::kNone) {
      if (!before(cell.writer, agent, lane, clock, now))
        hit = {RaceKind::kWriteAfterWrite, agent_of(cell.writer), lane_of(cell.writer)};
      for (uint32_t reader : cell.readers)
        if (hit.kind == RaceKind::kNone && !before(reader, agent, lane, clock, now))
          hit = {RaceKind::kWriteAfterRead, agent_of(reader), lane_of(reader)};
    }
    cell = Cell{mine, {0, 0, 0}};
  }
  return hit;
}

RaceHit RaceShadow::async_read(uint32_t offset, uint32_t bytes, uint32_t agent, const AsyncView& view) {
  const uint32_t async = static_cast<uint32_t>(view.clock.size()) - 1;
  for (uint32_t i = offset / 2; i < (offset + bytes + 1) / 2; ++i) {
    uint32_t writer = cells_[i].writer;
    if (writer == 0) continue;
    uint32_t other = agent_of(writer), tick = tick_of(writer);
    if (other != agent && view.clock[other] < tick)
      return {RaceKind::kReadAfterWrite, other, lane_of(writer)};
    if (other != async && view.fenced[other] < tick) return {RaceKind::kProxy, other, lane_of(writer)};
  }
  return {};
}

}  // namespace trigen::emulator
