// A tune's share of a fleet's work: which problems of the list are this tuner's, and where its results go.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/fleet.h"
#include "generator/problem.h"
#include "tuner/tune.h"

namespace trigen::cli {

class FleetWork {
 public:
  void add_to(CLI::App& app);
  bool any() const { return !folder_.empty() || !shard_.empty(); }
  // This tuner's part of the list, without problems that are no holes for these kinds of device. Reports those left
  // out.
  llvm::Expected<std::vector<Problem>> take(const std::vector<Problem>& list,
                                            const std::set<cache::DeviceKind>& kinds, Store& store,
                                            const Store::Options& options);
  // A problem is done: publishes what is due. An error's text is said and kept for publish().
  void finished(const TuneReport& report);
  // The rest. An error says that results are in the cache and not in the fleet's folder.
  llvm::Error publish();

 private:
  using Clock = std::chrono::steady_clock;
  // Problem and kind of device of a record.
  using Done = std::pair<std::string, cache::DeviceKind>;

  void say_who_refuses(const Store::Options& options) const;

  std::string folder_, shard_, interval_, key_;
  double interval_s_ = 600;
  std::optional<cache::Fleet> fleet_;
  std::optional<cache::Signer> signer_;
  std::string layer_;  // where the results are
  std::set<Done> done_;
  Clock::time_point published_ = Clock::now();
};

// The kind that a tune on this device, or on none, makes records of.
cache::DeviceKind kind_of(const Target& target, const Device* device);

}  // namespace trigen::cli
