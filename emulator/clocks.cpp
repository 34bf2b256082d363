#include "emulator/clocks.h"

#include <algorithm>

namespace trigen::emulator {

void Known::join(const Known& other) {
  all = std::max(all, other.all);
  passed = std::max(passed, other.passed);
  if (other.some > all) {
    lanes = some > all ? lanes | other.lanes : other.lanes;
    some = std::max(some, other.some);
  }
  if (lanes == ~0u) all = std::max(all, some);
  if (some <= all) some = lanes = 0;
}

void join(Clock& clock, const Clock& other, size_t first) {
  for (size_t i = first; i < clock.size() && i < other.size(); ++i) clock[i].join(other[i]);
}

void Clocks::resize(uint32_t warps, bool several_blocks) {
  agents_ = warps + 2;
  ended_ = several_blocks ? agents_ : 0;
  groups_.assign(agents_, {Group{~0u, Clock(width())}});
  now_.assign(agents_, 1);
  fences_.assign(static_cast<size_t>(agents_) * agents_, {});
}

const Clock& Clocks::known(uint32_t agent, uint32_t lanes) {
  bool first = true;
  for (const Group& group : groups_[agent]) {
    if ((group.lanes & lanes) == 0) continue;
    if (first)
      scratch_ = group.clock;
    else
      join(scratch_, group.clock);
    first = false;
  }
  return scratch_;
}

const Clock& Clocks::released(uint32_t agent, uint32_t lanes) {
  known(agent, lanes);
  for (const uint32_t half : {0u, ended_}) scratch_[half + agent].join({0, now_[agent], lanes, 0});
  return scratch_;
}

void Clocks::acquire(uint32_t agent, uint32_t lanes, const Clock& clock, uint32_t first) {
  std::vector<Group>& groups = groups_[agent];
  for (size_t i = 0, count = groups.size(); i < count; ++i) {
    if ((groups[i].lanes & lanes) == 0) continue;
    if (const uint32_t others = groups[i].lanes & ~lanes; others != 0) {
      groups.push_back({others, groups[i].clock});
      groups[i].lanes &= lanes;
    }
    join(groups[i].clock, clock, first);
  }
  for (size_t i = 0; i < groups.size(); ++i)
    for (size_t j = groups.size() - 1; j > i; --j)
      if (groups[i].clock == groups[j].clock) {
        groups[i].lanes |= groups[j].lanes;
        groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(j));
      }
}

void Clocks::sync(uint32_t agent, uint32_t lanes) {
  acquire(agent, lanes, released(agent, lanes));
  tick(agent);
}

void Clocks::pass(uint32_t agent) {
  for (Group& group : groups_[agent])
    group.clock[agent].passed = group.clock[ended_ + agent].passed = now_[agent];
}

void Clocks::proxy_fence(uint32_t agent, uint32_t lanes) {
  const Clock& clock = released(agent, lanes);
  for (uint32_t i = 0; i < agents_; ++i) fences_[agent * agents_ + i].join(clock[i]);
  tick(agent);
}

Clock Clocks::fenced(uint32_t agent) const {
  Clock view(agents_);
  for (uint32_t i = 0; i < agents_; ++i) {
    view[i] = fences_[i * agents_ + i];
    view[i].join(fences_[agent * agents_ + i]);
  }
  return view;
}

}  // namespace trigen::emulator
