// The keys of configs. Config (templates/config.h) has a member for every key of any family, and `config_members` a row
// for each member: text, parsing, the kernel's initialiser and the search's steps are loops over these. A family's own
// table (Family::keys) has a row for each member that it takes, with the allowed values: refusals are loops over that,
// and a member without a row is refused.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/problem.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "templates/config.h"

namespace trigen {

class Family;

struct ConfigMember {
  // Meaning to the search: a side of the tile; a value that goes with the tile; the order of tiles and the parts of a
  // sum, which leave the main loop as it is; a choice apart from these; the path of an operand, which no step changes.
  enum Role { kTile, kFit, kOrder, kApart, kPath };

  llvm::StringRef name;  // "tile_m", in refusals and in the kernel's initialiser
  llvm::StringRef key;   // "tile", in the text, where the members of one key are joined by 'x'
  Role role;
  int largest;                     // far above what is useful, far below what overflows a product of sizes
  int Config::*number;             // or
  Access Config::*path = nullptr;  // a word
  int plain = 0;                   // where a text leaves the key out

  int get(const Config& config) const { return path ? static_cast<int>(config.*path) : config.*number; }
  void set(Config& config, int value) const;
  std::string spelled(int value) const;
};
// In the order of the declaration, which the text and designated initialisers keep.
llvm::ArrayRef<ConfigMember> config_members();

// A row of a family's table.
struct ConfigKey {
  using Values = llvm::SmallVector<int, 12>;
  ConfigKey(int Config::*number, Values allowed, std::string why = {});
  ConfigKey(Access Config::*path, llvm::ArrayRef<Access> allowed, std::string why);

  const ConfigMember* member;
  Values allowed;  // ascending; of a range the least and the most
  bool range = false;
  // Why nothing else is: "a warpgroup multiplies 64 rows". Empty: "FAMILY takes 64 or 128".
  std::string why;
};

// Rows that mean the same in several families.
ConfigKey split_key(const Problem& problem);
ConfigKey raster_key();
ConfigKey range_key(int Config::*number, int least, int most, std::string why = {});
ConfigKey powers_key(int Config::*number, int most, std::string why = {});  // powers of two

// The first member that says what it may not: "tile_m=96: wgmma_sm90 takes 64 or 128; try tile_m=64".
std::optional<std::string> reject_keys(llvm::StringRef family, llvm::ArrayRef<ConfigKey> keys,
                                       const Config& config);

// `config` with the members that are 0 and have one value, given the others.
Config complete(Config config, llvm::function_ref<std::vector<ConfigKey>(const Config&)> keys);

// Text: "tile=128x128x32,warps=2x2,stages=4,splitk=1,raster=8,vec=8x8x8,blocks=1". Keys that are 0, and
// weights=direct, activations=direct, are left out.
llvm::StringRef to_string(Access access);  // direct, packed
std::string to_string(const Config& config);
// `family`: keys that it lacks are refused, too.
llvm::Expected<Config> parse_config(llvm::StringRef text, const Family* family = nullptr);
bool operator==(const Config& a, const Config& b);

// The config of the same main loop, without an order of tiles and parts of sums.
Config without_order(Config config);
// Is one config a step away from the other? One key differs: of the order or apart, of the values that go with a
// tile, or one side of the tile (with the values that go with it).
bool neighbours(const Config& a, const Config& b);

}  // namespace trigen
