#include "generator/config.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <iterator>

#include "generator/error.h"
#include "generator/family.h"
#include "generator/names.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen {
namespace {

using Member = ConfigMember;

constexpr Member kMembers[] = {
    {"tile_m", "tile", Member::kTile, 1024, &Config::tile_m},
    {"tile_n", "tile", Member::kTile, 1024, &Config::tile_n},
    {"tile_k", "tile", Member::kTile, 1024, &Config::tile_k},
    {"warps_m", "warps", Member::kFit, 32, &Config::warps_m},
    {"warps_n", "warps", Member::kFit, 32, &Config::warps_n},
    {"stages", "stages", Member::kFit, 16, &Config::stages},
    {"split_k", "splitk", Member::kOrder, 65535, &Config::split_k, nullptr, 1},
    {"raster", "raster", Member::kOrder, 65536, &Config::raster},
    {"vec_a", "vec", Member::kApart, 64, &Config::vec_a},
    {"vec_b", "vec", Member::kApart, 64, &Config::vec_b},
    {"vec_c", "vec", Member::kApart, 64, &Config::vec_c},
    {"cluster", "cluster", Member::kApart, 16, &Config::cluster},
    {"box", "box", Member::kApart, 64, &Config::box},
    {"blocks", "blocks", Member::kFit, 32, &Config::blocks},
    {"weights", "weights", Member::kPath, 1, nullptr, &Config::weights},
    {"activations", "activations", Member::kPath, 1, nullptr, &Config::activations},
};
static_assert(sizeof(Config) == std::size(kMembers) * sizeof(int),
              "a member of Config has no row in kMembers");
static_assert(
    [] {
      std::array<int, std::size(kMembers)> numbers;
      for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<int>(i);
      const auto config = std::bit_cast<Config>(numbers);
      for (size_t i = 0; i < numbers.size(); ++i) {
        const Member& m = kMembers[i];
        if ((m.path != nullptr ? static_cast<int>(config.*m.path) : config.*m.number) != numbers[i])
          return false;
      }
      return true;
    }(),
    "the rows of kMembers do not stand in the order of Config's members");
constexpr llvm::StringLiteral kAccesses[] = {"direct", "packed"};  // by Access

// The members of one key, which follow each other.
using Group = llvm::ArrayRef<Member>;
Group group_of(llvm::StringRef key) {
  const auto* first = llvm::find_if(kMembers, [&](const Member& m) { return m.key == key; });
  return {first, std::find_if(first, std::end(kMembers), [&](const Member& m) { return m.key != key; })};
}
llvm::ArrayRef<Group> groups() {
  static const std::vector<Group> all = [] {
    std::vector<Group> out;
    for (const Member* m = kMembers; m != std::end(kMembers); m = out.back().end())
      out.push_back(group_of(m->key));
    return out;
  }();
  return all;
}

// Has some op of the family the key?
bool takes(const Family& family, llvm::StringRef key) {
  Problem p;
  p.B = p.T = p.D = 1;
  for (size_t op = 0; op < std::size(kOpNames); ++op) {
    p.op = static_cast<Op>(op);
    for (const ConfigKey& row : family.keys(p, {}))
      if (row.member->key == key) return true;
  }
  return false;
}

bool is_allowed(const ConfigKey& key, int found) {
  if (key.range) return key.allowed.front() <= found && found <= key.allowed.back();
  return llvm::is_contained(key.allowed, found);
}

// The allowed value next to what was found, the larger one of two.
int nearest(const ConfigKey& key, int found) {
  return *std::min_element(key.allowed.begin(), key.allowed.end(), [&](int a, int b) {
    const int to_a = std::abs(a - found), to_b = std::abs(b - found);
    return to_a != to_b ? to_a < to_b : a > b;
  });
}

std::string list_of(const ConfigKey& key) {
  const auto spelled = [&](int value) { return key.member->spelled(value); };
  if (key.range) return spelled(key.allowed.front()) + " to " + spelled(key.allowed.back());
  std::string list;
  for (size_t i = 0; i < key.allowed.size(); ++i)
    list += (i == 0 ? "" : i + 1 == key.allowed.size() ? " or " : ", ") + spelled(key.allowed[i]);
  return list;
}

// The refusal's words for the form of a key's value.
std::string example(Group group) {
  const std::string key = group[0].key.str();
  if (group.size() == 1) return "is one number, as in " + key + "=2";
  return "are " + std::to_string(group.size()) + " numbers, as in " + key +
         (group.size() == 2 ? "=2x2" : "=128x128x32");
}

}  // namespace

void ConfigMember::set(Config& config, int value) const {
  if (path)
    config.*path = static_cast<Access>(value);
  else
    config.*number = value;
}

std::string ConfigMember::spelled(int value) const {
  return path ? kAccesses[value].str() : std::to_string(value);
}

llvm::ArrayRef<ConfigMember> config_members() { return kMembers; }

ConfigKey::ConfigKey(int Config::*number, Values allowed, std::string why)
    : member(llvm::find_if(kMembers, [&](const Member& m) { return m.number == number; })),
      allowed(std::move(allowed)),
      why(std::move(why)) {}

ConfigKey::ConfigKey(Access Config::*path, llvm::ArrayRef<Access> allowed, std::string why)
    : member(llvm::find_if(kMembers, [&](const Member& m) { return m.path == path; })), why(std::move(why)) {
  for (Access access : allowed) this->allowed.push_back(static_cast<int>(access));
}

ConfigKey split_key(const Problem& p) {
  if (makes_weights(p.op)) return range_key(&Config::split_k, 1, 65535);
  return {&Config::split_k, {1}, "is for grad_weight and gram only"};
}

ConfigKey raster_key() {
  return range_key(&Config::raster, 0, 65536, "sections have columns, 0 is one section");
}

ConfigKey range_key(int Config::*number, int least, int most, std::string why) {
  ConfigKey key{number, {least, most}, std::move(why)};
  key.range = true;
  return key;
}

ConfigKey powers_key(int Config::*number, int most, std::string why) {
  ConfigKey key{number, {}, std::move(why)};
  for (int value = 1; value <= most; value *= 2) key.allowed.push_back(value);
  return key;
}

std::optional<std::string> reject_keys(llvm::StringRef family, llvm::ArrayRef<ConfigKey> keys,
                                       const Config& c) {
  const auto says = [](const Member& m, int value) { return (m.name + "=" + m.spelled(value)).str(); };
  for (const ConfigKey& key : keys) {
    const Member& member = *key.member;
    const int found = member.get(c);
    if (is_allowed(key, found)) continue;
    const std::string why = key.why.empty() ? (family + " takes " + list_of(key)).str() : key.why;
    // A reason may go on from the value: "split_k=4 is for grad_weight and gram only".
    return says(member, found) + (llvm::StringRef(why).startswith("is ") ? " " : ": ") + why + "; try " +
           says(member, nearest(key, found));
  }
  for (const Member& member : kMembers)
    if (member.get(c) != 0 &&
        llvm::none_of(keys, [&](const ConfigKey& key) { return key.member == &member; }))
      return says(member, member.get(c)) + ": " + family.str() + " has no such key; leave it out";
  return std::nullopt;
}

Config complete(Config config, llvm::function_ref<std::vector<ConfigKey>(const Config&)> keys) {
  for (const Member& m : kMembers)
    if (m.get(config) == 0) m.set(config, m.plain);
  // Values follow from those of the rows before.
  for (bool open = true; open;) {
    open = false;
    for (const ConfigKey& key : keys(config)) {
      if (key.member->get(config) != 0 || key.allowed.size() != 1 || key.allowed[0] == 0) continue;
      key.member->set(config, key.allowed[0]);
      open = true;
      break;
    }
  }
  return config;
}

llvm::StringRef to_string(Access access) { return kAccesses[static_cast<int>(access)]; }

std::string to_string(const Config& config) {
  std::string text;
  for (const Group& group : groups()) {
    if (llvm::all_of(group, [&](const Member& m) { return m.get(config) == 0; })) continue;
    if (!text.empty()) text += ',';
    text += group[0].key;
    char separator = '=';
    for (const Member& m : group) {
      text += separator + m.spelled(m.get(config));
      separator = 'x';
    }
  }
  return text;
}

llvm::Expected<Config> parse_config(llvm::StringRef text, const Family* family) {
  auto fields = split_fields("config", text);
  if (!fields) return fields.takeError();
  if (fields->empty())
    return bad_request("empty config; write one as tile=128x128x32,warps=2x2,stages=3,splitk=1,vec=8x8x8");
  Config config{};
  llvm::SmallVector<llvm::StringRef, 16> known, names;
  for (const Group& group : groups()) {
    known.push_back(group[0].key);
    if (family != nullptr && !takes(*family, group[0].key)) continue;
    names.push_back(group[0].key);
    if (family != nullptr)
      for (const Member& m : group) m.set(config, m.plain);
  }

  llvm::SmallVector<llvm::StringRef, 16> given;
  for (const Field& field : *fields) {
    const std::string at = " at column " + std::to_string(field.column);
    if (!llvm::is_contained(known, field.key))
      return bad_request("unknown config key " + quoted(field.key) + at + "; allowed are " + one_of(names) +
                         did_you_mean(field.key, names));
    if (!llvm::is_contained(names, field.key))
      return bad_request("config key '" + field.key + "'" + at + " is none of " + family->name() +
                         "; allowed are " + one_of(names) + "; leave it out");
    if (llvm::is_contained(given, field.key))
      return bad_request("config key '" + field.key + "'" + at + " is given twice; give it once");
    given.push_back(field.key);
    const Group group = group_of(field.key);
    if (group[0].path) {
      const auto* access = llvm::find(kAccesses, field.value);
      if (access == std::end(kAccesses))
        return bad_request("config key '" + field.key + "'" + at + " has " + quoted(field.value) +
                           "; allowed are direct or packed, as in " + field.key + "=packed");
      group[0].set(config, static_cast<int>(access - std::begin(kAccesses)));
      continue;
    }
    llvm::SmallVector<llvm::StringRef, 4> parts;
    field.value.split(parts, 'x');
    if (!field.has_value || parts.size() != group.size())
      return bad_request("config key '" + field.key + "'" + at + " has " + quoted(field.value) +
                         "; allowed " + example(group));
    for (const auto& [member, part] : llvm::zip(group, parts)) {
      auto value = parse_integer(field.key, part);
      if (!value) return value.takeError();
      if (*value < 0 || *value > member.largest)
        return bad_request(field.key + "=" + llvm::Twine(*value) + at + "; allowed are 0 to " +
                           llvm::Twine(member.largest));
      member.set(config, static_cast<int>(*value));
    }
  }
  return config;
}

bool operator==(const Config& a, const Config& b) {
  return llvm::all_of(kMembers, [&](const Member& m) { return m.get(a) == m.get(b); });
}

Config without_order(Config config) {
  for (const Member& m : kMembers)
    if (m.role == Member::kOrder) m.set(config, m.plain);
  return config;
}

bool neighbours(const Config& a, const Config& b) {
  int sides = 0, fits = 0, others = 0;
  for (const Group& group : groups()) {
    const auto differ =
        static_cast<int>(llvm::count_if(group, [&](const Member& m) { return m.get(a) != m.get(b); }));
    switch (group[0].role) {
      case Member::kTile:
        sides += differ;
        break;
      case Member::kFit:
        fits += std::min(differ, 1);
        break;
      case Member::kOrder:
      case Member::kApart:
        others += std::min(differ, 1);
        break;
      case Member::kPath:
        break;
    }
  }
  return sides == 0 ? fits + others == 1 : sides == 1 && others == 0;
}

}  // namespace trigen
