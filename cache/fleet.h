// A fleet's folder: where tuners on many machines meet. It holds shards, which are bundles named by the SHA-256
// of their bytes, written whole once and never changed: any number of writers needs no lock, and a shard that
// is written twice is one file.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cache/bundle.h"
#include "cache/signature.h"

namespace trigen::cache {

// A kind of device, as measurements are of. A driver's version is no part of it: a record of another one serves as near.
struct DeviceKind {
  std::string arch;
  std::string device;  // GPU model; "": of no device, which predictions are enough for
  int sms = 0;         // of that model, or of the part of it that is used
  auto key() const { return std::tie(arch, device, sms); }
  bool operator<(const DeviceKind& other) const { return key() < other.key(); }
  bool operator==(const DeviceKind& other) const { return key() == other.key(); }
};

// Best first is last: greater is better.
enum class FleetAnswer : int { kNone, kPredicted, kNear, kMeasured };

class Fleet {
 public:
  // Errors: no such folder. `options`: whose signatures count.
  static llvm::Expected<Fleet> open(const std::string& folder, const StoreOptions& options = {});
  // Makes the folder where it is missing.
  static llvm::Expected<Fleet> make(const std::string& folder, const StoreOptions& options = {});
  const std::string& folder() const { return folder_; }

  // Reads the records of shards that came since; lines of those that cannot be read, whose records do not
  // count.
  std::vector<std::string> refresh();
  size_t shards() const { return known_.size(); }

  // kNear: measured on another device of the arch. Of a kind of no device kPredicted and better fill it.
  FleetAnswer answer(const std::string& problem, const DeviceKind& kind) const;
  bool is_hole(const std::string& problem, const DeviceKind& kind) const;
  // The kinds that were measured, and those of no device for archs that have predictions alone.
  std::set<DeviceKind> kinds() const;
  // Seconds that each tune of this kind took, as their evidence says it.
  std::vector<double> seconds_of(const DeviceKind& kind) const;

  // Writes one shard, whole or not at all, and ahead of it its signature; "" where there is nothing to write, else its
  // path.
  llvm::Expected<std::string> publish(const Contents& contents,
                                      const std::map<std::string, std::string>& meta,
                                      const Signer* signer = nullptr) const;

 private:
  struct Tuned {
    bool measured = false;
    double seconds = 0;
  };
  Fleet(std::string folder, const StoreOptions& options) : folder_(std::move(folder)), options_(options) {}

  std::string folder_;
  StoreOptions options_;
  std::set<std::string> known_;  // names of files
  // By problem and arch.
  std::map<std::pair<std::string, std::string>, std::map<DeviceKind, Tuned>> tuned_;
};

// The bundles of a folder by name, without those that are being written.
llvm::Expected<std::vector<std::string>> bundles_in(const std::string& folder);

}  // namespace trigen::cache
