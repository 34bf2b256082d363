// The text form of a config.
#include <iterator>

#include "generator/error.h"
#include "generator/family.h"
#include "generator/names.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen {
namespace {

// A key of the text form with the fields it stands for, joined by 'x'.
struct Key {
  llvm::StringLiteral name;
  int Config::*fields[3];
  int count;
  int64_t largest;  // far above what is useful, far below what overflows a product of sizes
};
constexpr Key kKeys[] = {
    {"tile", {&Config::tile_m, &Config::tile_n, &Config::tile_k}, 3, 1024},
    {"warps", {&Config::warps_m, &Config::warps_n, nullptr}, 2, 32},
    {"stages", {&Config::stages, nullptr, nullptr}, 1, 16},
    {"splitk", {&Config::split_k, nullptr, nullptr}, 1, 65535},
    {"raster", {&Config::raster, nullptr, nullptr}, 1, 65536},
    {"vec", {&Config::vec_a, &Config::vec_b, &Config::vec_c}, 3, 64},
    {"cluster", {&Config::cluster, nullptr, nullptr}, 1, 16},
    {"blocks", {&Config::blocks, nullptr, nullptr}, 1, 32},
};
// Keys of two words, left out where they say direct.
struct Path {
  llvm::StringLiteral name;
  Access Config::*field;
};
constexpr Path kPaths[] = {{"weights", &Config::weights}, {"activations", &Config::activations}};
static_assert(sizeof(Config) == 15 * sizeof(int), "a field of Config is missing in kKeys and kPaths");
constexpr llvm::StringLiteral kAccesses[] = {"direct", "packed"};  // by Access

}  // namespace

llvm::StringRef to_string(Access access) { return kAccesses[static_cast<int>(access)]; }

std::string to_string(const Config& config) {
  std::string text;
  for (const Key& key : kKeys) {
    const auto fields = llvm::makeArrayRef(key.fields, key.count);
    if (llvm::all_of(fields, [&](int Config::*field) { return config.*field == 0; })) continue;
    if (!text.empty()) text += ',';
    text += key.name;
    char separator = '=';
    for (int Config::*field : fields) {
      text += separator;
      text += std::to_string(config.*field);
      separator = 'x';
    }
  }
  for (const Path& path : kPaths)
    if (config.*path.field != Access::kDirect)
      text += ((text.empty() ? "" : ",") + path.name + "=" + to_string(config.*path.field)).str();
  return text;
}

llvm::Expected<Config> parse_config(llvm::StringRef text) {
  auto fields = split_fields("config", text);
  if (!fields) return fields.takeError();
  if (fields->empty())
    return bad_request("empty config; write one as tile=128x128x32,warps=2x2,stages=3,splitk=1,vec=8x8x8");
  llvm::SmallVector<llvm::StringRef, 8> names;
  for (const Key& key : kKeys) names.push_back(key.name);
  for (const Path& path : kPaths) names.push_back(path.name);

  Config config{};
  bool given[std::size(kKeys) + std::size(kPaths)] = {};
  for (const Field& field : *fields) {
    const std::string at = " at column " + std::to_string(field.column);
    const Key* key = llvm::find_if(kKeys, [&](const Key& k) { return k.name == field.key; });
    const Path* path = llvm::find_if(kPaths, [&](const Path& k) { return k.name == field.key; });
    if (key == std::end(kKeys) && path == std::end(kPaths))
      return bad_request("unknown config key " + quoted(field.key) + at + "; allowed are " + one_of(names) +
                         did_you_mean(field.key, names));
    bool& seen = given[key - std::begin(kKeys) + (path - std::begin(kPaths)) % std::size(kPaths)];
    if (seen) return bad_request("config key '" + field.key + "'" + at + " is given twice; give it once");
    seen = true;
    if (path != std::end(kPaths)) {
      const auto* access = llvm::find(kAccesses, field.value);
      if (access == std::end(kAccesses))
        return bad_request("config key '" + field.key + "'" + at + " has " + quoted(field.value) +
                           "; allowed are direct or packed, as in " + path->name + "=packed");
      config.*path->field = static_cast<Access>(access - std::begin(kAccesses));
      continue;
    }
    llvm::SmallVector<llvm::StringRef, 4> parts;
    field.value.split(parts, 'x');
    if (!field.has_value || static_cast<int>(parts.size()) != key->count)
      return bad_request("config key '" + field.key + "'" + at + " has " + quoted(field.value) +
                         "; allowed " +
                         (key->count == 1 ? "is one number, as in " + key->name + "=2"
                                          : "are " + std::to_string(key->count) + " numbers, as in " +
                                                key->name + (key->count == 2 ? "=2x2" : "=128x128x32")));
    for (int i = 0; i < key->count; ++i) {
      auto value = parse_integer(field.key, parts[i]);
      if (!value) return value.takeError();
      if (*value < 0 || *value > key->largest)
        return bad_request(field.key + "=" + llvm::Twine(*value) + at + "; allowed are 0 to " +
                           llvm::Twine(key->largest));
      config.*(key->fields[i]) = static_cast<int>(*value);
    }
  }
  return config;
}

bool operator==(const Config& a, const Config& b) {
  return llvm::all_of(kKeys,
                      [&](const Key& key) {
                        return llvm::all_of(llvm::makeArrayRef(key.fields, key.count),
                                            [&](int Config::*field) { return a.*field == b.*field; });
                      }) &&
         llvm::all_of(kPaths, [&](const Path& path) { return a.*path.field == b.*path.field; });
}

}  // namespace trigen
