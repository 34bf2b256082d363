// The plans that a runtime keeps: each under its key, and under every request that was answered with it.
#pragma once

#include <map>
#include <memory>
#include <unordered_map>

namespace trigen {

// Bounded: a service with every possible batch size makes a plan for each. Where `most` plans are kept and one more
// comes, plans without another holder go; callers make them anew from the cache. Not thread-safe.
template <class Key, class Request, class RequestHash, class Value>
class PlanTable {
 public:
  using Shared = std::shared_ptr<const Value>;
  explicit PlanTable(size_t most) : most_(most) {}

  Shared find(const Key& key) const {
    const auto found = plans_.find(key);
    return found == plans_.end() ? nullptr : found->second;
  }
  Shared answer(const Request& request) const {
    const auto found = requests_.find(request);
    return found == requests_.end() ? nullptr : found->second;
  }
  void remember(const Request& request, const Shared& plan) {
    if (requests_.size() >= 4 * most_) requests_.clear();
    requests_.insert_or_assign(request, plan);
  }
  // The plan that is kept under the key: the first one that was put there.
  Shared add(const Key& key, Shared plan) {
    if (plans_.size() >= most_) drop_unused();
    return plans_.emplace(key, std::move(plan)).first->second;
  }
  size_t size() const { return plans_.size(); }

 private:
  void drop_unused() {
    requests_.clear();
    std::erase_if(plans_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }

  const size_t most_;
  std::map<Key, Shared> plans_;
  std::unordered_map<Request, Shared, RequestHash> requests_;
};

}  // namespace trigen
