#include "generator/families/config_keys.h"

#include <algorithm>
#include <cstdlib>

#include "llvm/ADT/STLExtras.h"

namespace trigen {
namespace {

bool is_allowed(const ConfigKey& key) {
  if (key.range) return key.allowed.front() <= key.found && key.found <= key.allowed.back();
  return llvm::is_contained(key.allowed, key.found);
}

// The allowed value next to what was found, the larger one of two.
int nearest(const ConfigKey& key) {
  return *std::min_element(key.allowed.begin(), key.allowed.end(), [&](int a, int b) {
    const int to_a = std::abs(a - key.found), to_b = std::abs(b - key.found);
    return to_a != to_b ? to_a < to_b : a > b;
  });
}

std::string spelled(const ConfigKey& key, int value) {
  return key.spelled != nullptr ? key.spelled(value).str() : std::to_string(value);
}

std::string list_of(const ConfigKey& key) {
  if (key.range) return spelled(key, key.allowed.front()) + " to " + spelled(key, key.allowed.back());
  std::string list;
  for (size_t i = 0; i < key.allowed.size(); ++i)
    list += (i == 0 ? "" : i + 1 == key.allowed.size() ? " or " : ", ") + spelled(key, key.allowed[i]);
  return list;
}

}  // namespace

ConfigKey split_key(const Problem& p, const Config& c, int least) {
  if (p.op == Op::kGradWeight) return {"split_k", c.split_k, {least, 65535}, true};
  ConfigKey key{"split_k", c.split_k, {1}, false, "is for grad_weight only"};
  if (least < 1) key.allowed.push_back(least);
  return key;
}

ConfigKey raster_key(const Config& c) {
  return {"raster", c.raster, {0, 65536}, true, "sections have columns, 0 is one section"};
}

ConfigKey access_key(llvm::StringLiteral name, Access found, llvm::ArrayRef<Access> allowed,
                     const char* why) {
  ConfigKey key{name, static_cast<int>(found), {}, false, why};
  for (Access access : allowed) key.allowed.push_back(static_cast<int>(access));
  key.spelled = [](int value) { return to_string(static_cast<Access>(value)); };
  return key;
}

std::vector<ConfigKey> direct_keys(const Config& c) {
  constexpr const char* kWhy = "is no choice here, the kernel reads operands as they lie";
  return {access_key("weights", c.weights, {Access::kDirect}, kWhy),
          access_key("activations", c.activations, {Access::kDirect}, kWhy)};
}

std::optional<std::string> reject_keys(llvm::StringRef family, llvm::ArrayRef<ConfigKey> keys) {
  for (const ConfigKey& key : keys) {
    if (is_allowed(key)) continue;
    const std::string why = key.why.empty() ? (family + " takes " + list_of(key)).str() : key.why;
    // A reason may go on from the value: "split_k=4 is for grad_weight only".
    return (llvm::Twine(key.name) + "=" + spelled(key, key.found) +
            (llvm::StringRef(why).startswith("is ") ? " " : ": ") + why + "; try " + key.name + "=" +
            spelled(key, nearest(key)))
        .str();
  }
  return std::nullopt;
}

}  // namespace trigen
