// A network file system as clusters have them, by FUSE over a local folder: no locks, stale handles after a
// file was replaced, and other nodes' new files seen late.
#pragma once

#include <memory>
#include <string>

namespace trigen::testing {

class FaultyMount {
 public:
  // Mounts `backing` at `point`: one node's view. Files that other nodes made are hidden for `late_ms`. Null,
  // with the reason in `why`, where FUSE cannot be used.
  static std::unique_ptr<FaultyMount> mount(const std::string& backing, const std::string& point, int late_ms,
                                            std::string& why);
  ~FaultyMount();
  FaultyMount(const FaultyMount&) = delete;
  FaultyMount& operator=(const FaultyMount&) = delete;
  // How often a lock was asked for, by anybody.
  int lock_calls() const;

 private:
  FaultyMount() = default;
  struct Shared;
  Shared* shared_ = nullptr;
  int pid_ = -1;
};

}  // namespace trigen::testing
