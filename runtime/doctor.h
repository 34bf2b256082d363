// Findings about this machine: driver, devices, compilers, caches; each problem with its next step. `trigen
// doctor` prints them.
#pragma once

#include <string>
#include <vector>

#include "cache/store.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/nvrtc.h"

namespace trigen {

enum class Severity { kNote, kWarning, kError };

struct Trouble {
  Severity severity = Severity::kNote;
  std::string about;      // "driver", "device cuda:0", "nvrtc", "cache /path"
  std::string text;       // what was found
  std::string next_step;  // what to do
};

struct TargetFinding {
  std::string target;                // "sm_70"
  std::vector<std::string> made_by;  // compilers that can make it: "nvrtc 12.9.86"
  std::string chosen;                // the one that a compile would use
};

struct Findings {
  std::string version;  // of trigen
  MachineFacts machine;
  DriverFinding driver;
  std::vector<DeviceInfo> devices;
  std::string emulator;  // path of libtrigen_emulator.so, "" when it is not there
  std::vector<NvrtcFinding> nvrtc;
  std::vector<TargetFinding> targets;  // one per entry of targets()
  std::vector<LayerInfo> caches;       // in lookup order
  bool no_jit = false;
  std::vector<Trouble> troubles;  // worst first
};
Findings examine(Store& store, llvm::StringRef driver_path = "");

}  // namespace trigen
