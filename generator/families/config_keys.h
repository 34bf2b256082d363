// What a family takes for the keys of its configs: one table, from which legality and refusals follow.
// Internal to generator/families/.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/family.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"

namespace trigen {

struct ConfigKey {
  llvm::StringLiteral name;            // as refusals name it: "tile_m"
  int found;                           // what the config says
  llvm::SmallVector<int, 12> allowed;  // ascending; of a range the least and the most
  bool range = false;
  // Why nothing else is: "a warpgroup multiplies 64 rows". Empty: "FAMILY takes 64 or 128".
  std::string why = {};
  llvm::StringRef (*spelled)(int) = nullptr;  // values that are words
};

// Keys that mean the same in several families.
ConfigKey split_key(const Problem& problem, const Config& config, int least = 1);
ConfigKey raster_key(const Config& config);
ConfigKey access_key(llvm::StringLiteral name, Access found, llvm::ArrayRef<Access> allowed, const char* why);
// Both paths, of families that read every operand as it lies.
std::vector<ConfigKey> direct_keys(const Config& config);

// The first key that says what it may not: "tile_m=96: wgmma_sm90 takes 64 or 128; try tile_m=64".
std::optional<std::string> reject_keys(llvm::StringRef family, llvm::ArrayRef<ConfigKey> keys);

}  // namespace trigen
