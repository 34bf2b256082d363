// Lessons of the cache's measured records for a problem that has none of its own: the same problem's at other
// batch sizes, and on other devices of its target.
#pragma once

#include <string>

#include "cache/store.h"
#include "generator/lessons.h"
#include "runtime/device.h"

namespace trigen {

struct Learnt {
  Lessons lessons;
  std::string from;  // "ranked by times of B=32, B=128 on NVIDIA H200", "" when there is nothing
};
Learnt learn(const Problem& problem, const Target& target, const Device& device, Store& store);

}  // namespace trigen
