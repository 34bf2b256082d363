// Whole cache files, as `trigen cache` handles them: read, merged, taken into the user layer; its rows taken out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cache/findings.h"
#include "cache/layer.h"

namespace trigen::cache {

// The user layer of a store's options, opened alone, and what it keeps.
class UserLayer {
 public:
  explicit UserLayer(const StoreOptions& options);
  llvm::Expected<Layer*> get();
  const Signers& signers() const { return signers_; }
  const std::string& stands_for() const { return stands_for_; }  // LayerPlan's

 private:
  LockTimeout timeout_;
  Log log_;
  Findings findings_;
  Signers signers_;
  std::optional<Layer> layer_;
  std::string stands_for_;
};

// Reads one file under the rules of a layer; an error where it is not there or cannot be used. `options`: whose keys
// count, and the user layer that remembers the newest signatures.
llvm::Expected<Contents> read_contents(const std::string& path, ReadFor use,
                                       const StoreOptions& options = {});
// All of several files, as if each were added, in any order; `damaged` says of what.
llvm::Expected<Contents> read_merged(const std::vector<std::string>& paths, ReadFor use,
                                     const StoreOptions& options = {});

struct ImportReport {
  int64_t records = 0, binaries = 0;  // new here, or better than what was here
  int64_t known = 0;                  // rows that are here already, or better ones, or the user's own
  std::string layer;                  // path
};
// Adds the rows to the user layer of Options::layers in one transaction, by the rules of merging. What the
// layer has and the contents lack stays, and so do records that were measured here and binaries that were made here.
llvm::Expected<ImportReport> import_contents(const StoreOptions& options, const Contents& contents);

// Removes the records of these problems (an empty list: of all) and archs (likewise), and the binaries that only
// they named. Returns how many records; what other layers have stays.
llvm::Expected<int64_t> remove_records(const StoreOptions& options, const std::vector<std::string>& problems,
                                       const std::vector<std::string>& archs, std::string& layer);

struct CollectReport {
  std::string layer;
  int64_t binaries = 0, records = 0;          // removed
  int64_t bytes_before = 0, bytes_after = 0;  // of the file
  int64_t folded = 0;                         // published bundles that are one now
};
// Removes binaries of the user layer, least recently used first, and the predictions that name them, until
// the file has at most so many bytes, and gives the space back. Measurements stay: they cost time on a GPU,
// and a plan compiles their kernel again. On a network file system the bundles that no node has published for
// 30 days become one: their nodes may be gone, what they found is not.
llvm::Expected<CollectReport> collect(const StoreOptions& options, int64_t most_bytes);

}  // namespace trigen::cache
