// How much of a sweep a run takes. scripts/test.sh takes a fixed part of each, scripts/test.sh --all takes
// everything.
#pragma once

#include <cstdlib>
#include <cstring>

namespace trigen {

// TRIGEN_TEST_ALL=1.
inline bool thorough() {
  const char* value = std::getenv("TRIGEN_TEST_ALL");
  return value != nullptr && std::strcmp(value, "0") != 0 && *value != 0;
}
// Case `index` of a sweep whose quick run takes one of `every`.
inline bool takes(int index, int every) { return thorough() || index % every == 0; }

}  // namespace trigen
