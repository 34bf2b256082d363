// The launches that an early one may overlap (programmatic dependent launch): those whose end nothing has
// waited for when it begins. PTX ISA, griddepcontrol.
#pragma once

#include <memory>
#include <vector>

#include "emulator/global_race.h"

namespace trigen::emulator {

struct LaunchesBefore {
  std::vector<std::unique_ptr<GlobalRaces>> launches;  // what each did with global memory, the oldest first
  // The stream may have run anything before: all of memory may still be read and written.
  bool anything = false;

  bool empty() const { return launches.empty() && !anything; }
  void clear() {
    launches.clear();
    anything = false;
  }
  bool wrote(uint64_t address, uint32_t bytes) const {
    for (const auto& each : launches)
      if (each->wrote(address, bytes)) return true;
    return anything;
  }
  bool touched(uint64_t address, uint32_t bytes) const {
    for (const auto& each : launches)
      if (each->touched(address, bytes)) return true;
    return anything;
  }
};

}  // namespace trigen::emulator
