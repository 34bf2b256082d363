// The cuBLAS arms of one workbench, checked, with what was left out said once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "peers/cublas.h"

namespace trigen {

struct NamedLaunch {
  std::string name;
  LaunchOn launch;
};

struct PeerArms {
  std::unique_ptr<CublasPeer> cublas;
  std::vector<NamedLaunch> arms;
  std::string library;  // "cublas 13.1.0"
  std::vector<std::string> notes;
};

// Exact arms are compared with the reference when there is one; those that differ, and those that do not run,
// are left out with a note. Without cuBLAS on this machine: no arms, and a note. Every arm has run once, outside
// of any capture: libraries choose, load and allocate at their first call.
PeerArms peer_arms(Workbench& bench, bool epilogue, const Reference* reference);

// An exact arm's relative error is below this: its products are rounded to the data's type once for each tap,
// and an activation is approximated.
inline constexpr double kPeerTolerance = 2e-2;

}  // namespace trigen
