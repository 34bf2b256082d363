#include "emulator/clocks.h"

#include <algorithm>

namespace trigen::emulator {

void Clocks::resize(uint32_t warps, bool several_blocks) {
  agents_ = warps + 1;
  ended_ = several_blocks ? agents_ : 0;
  clocks_.assign(static_cast<size_t>(agents_) * width(), 0);
  fences_.assign(static_cast<size_t>(agents_) * agents_, 0);
  for (uint32_t agent = 0; agent < agents_; ++agent) tick(agent);
}

void Clocks::join(uint32_t agent, const std::vector<uint32_t>& other, uint32_t first) {
  uint32_t* mine = of(agent);
  for (uint32_t i = first; i < width() && i < other.size(); ++i) mine[i] = std::max(mine[i], other[i]);
}

void Clocks::join_into(std::vector<uint32_t>& target, uint32_t agent) {
  target.resize(width(), 0);
  const uint32_t* mine = of(agent);
  for (uint32_t i = 0; i < width(); ++i) target[i] = std::max(target[i], mine[i]);
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

}  // namespace trigen::emulator
