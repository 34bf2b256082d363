#include "libtorch/plans.h"

#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <string_view>
#include <unordered_map>

#include "libtorch/call.h"

namespace trigen::libtorch {
namespace {

struct Key {
  trigen_problem problem;
  int device;

  bool operator==(const Key& other) const {
    return device == other.device && std::memcmp(&problem, &other.problem, sizeof problem) == 0;
  }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    const std::string_view bytes(reinterpret_cast<const char*>(&key.problem), sizeof key.problem);
    return std::hash<std::string_view>()(bytes) ^ static_cast<size_t>(key.device);
  }
};

trigen_runtime* make_runtime() {
  trigen_runtime* made = nullptr;
  if (trigen_runtime_create(nullptr, &made) != TRIGEN_OK)
    refuse(std::string("trigen: ") + trigen_last_error());
  return made;
}

// Never freed: threads may run plans while the process ends.
struct Plans {
  trigen_runtime* runtime = make_runtime();
  std::shared_mutex mutex;
  std::unordered_map<Key, Plan, KeyHash> made;
};

Plans& plans() {
  static auto* const all = new Plans;
  return *all;
}

}  // namespace

void check(trigen_status status, const trigen_problem& problem) {
  if (status == TRIGEN_OK) return;
  const std::string said = trigen_last_error();
  char text[512] = "";
  trigen_problem_format(&problem, text, sizeof text, nullptr);
  refuse("trigen: " + (said.find(text) == std::string::npos ? std::string(text) + ": " + said : said));
}

Plan plan_of(const trigen_problem& problem, int device) {
  Plans& all = plans();
  const Key key{problem, device};
  {
    const std::shared_lock lock(all.mutex);
    const auto found = all.made.find(key);
    if (found != all.made.end()) return found->second;
  }
  // Made without the lock: a compile takes seconds, and two threads that meet share libtrigen's plan.
  trigen_plan* handle = nullptr;
  check(trigen_plan_create(all.runtime, &problem, device, &handle), problem);
  const std::unique_lock lock(all.mutex);
  const auto [place, is_new] = all.made.try_emplace(key, Plan{handle, trigen_plan_workspace_size(handle)});
  if (!is_new) trigen_plan_destroy(handle);
  return place->second;
}

}  // namespace trigen::libtorch
