// The cache: SQLite files ("layers") that hold binaries and records. One writable user layer over read-only
// layers.
//
// Nothing here ever makes the application fail: an unreadable, locked, damaged, full, foreign or read-only
// layer is a miss (for reads) or a kept error text (for writes), plus one log line. Thread safe. No network
// file system tricks: rollback journal, short transactions, a lock file of our own beside the layer
// (docs/cache-format.md).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/folder.h"
#include "cache/lock.h"
#include "cache/record.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

class Store {
 public:
  using Options = StoreOptions;
  static std::unique_ptr<Store> open(const Options& options);
  virtual ~Store() = default;

  virtual std::optional<Binary> find_binary(const BinaryKey& key, BinaryParts parts) = 0;
  std::optional<Binary> find_binary(const BinaryKey& key) { return find_binary(key, BinaryParts::kAll); }
  // Any compiler version: the newest binary with that source hash and arch, for TRIGEN_NO_JIT lookups where
  // no compiler is at hand to name its version.
  virtual std::optional<Binary> find_binary_any_compiler(llvm::StringRef source_hash,
                                                         llvm::StringRef arch) = 0;
  // Stores the binary, replacing a row with the same key (a damaged one too).
  virtual llvm::Error put_binary(const Binary& binary) = 0;
  virtual std::vector<BinaryInfo> list_binaries() = 0;

  // The best record for this problem by the one order (cache/record.h, Rank), of any of `archs`, best first.
  virtual std::optional<FoundRecord> find_record(llvm::StringRef problem,
                                                 llvm::ArrayRef<llvm::StringRef> archs,
                                                 const cache::DeviceQuery& query) = 0;
  // One record per (problem, arch, device, sms, driver): a later measurement replaces an earlier one. A
  // measured record removes the predicted ones of its device and of no device; a predicted one is dropped
  // (success) where a measured one of the same device exists.
  virtual llvm::Error put_record(const Record& record) = 0;
  // Could something be put now? A write of nothing; makes the file where it is not there yet.
  virtual llvm::Error try_put() = 0;
  // Without their evidence.
  virtual std::vector<FoundRecord> list_records() = 0;
  // Measured ones of the target, with their evidence, whose problem begins with `prefix`, goes on with digits and
  // ends with `suffix`: the best of each problem, device and SM count, of the first ones, whose evidence has 4 MiB
  // together.
  virtual std::vector<FoundRecord> find_measured(llvm::StringRef prefix, llvm::StringRef suffix,
                                                 llvm::StringRef arch, const cache::DeviceQuery& query) = 0;
  // "" when the row is gone, damaged, or its evidence is none that a put would take.
  virtual std::string find_evidence(const FoundRecord& record) = 0;

  // Samples of an unfinished tune, so that it can resume: opaque JSON per (problem, arch, device, candidate).
  virtual llvm::Error put_sample(const Record& sample) = 0;
  virtual std::vector<Record> find_samples(llvm::StringRef problem, llvm::StringRef arch,
                                           llvm::StringRef device) = 0;
  virtual llvm::Error clear_samples(llvm::StringRef problem, llvm::StringRef arch,
                                    llvm::StringRef device) = 0;

  // A binary with a finding "wrong" of any device is not there for find_binary and lease from then on.
  virtual std::optional<cache::Finding> find_finding(cache::FindingKind kind, llvm::StringRef name,
                                                     llvm::StringRef device, llvm::StringRef driver) = 0;
  // An error says that this process alone knows it.
  virtual llvm::Error put_finding(const cache::Finding& finding) = 0;
  virtual std::vector<cache::Finding> list_findings() = 0;
  virtual llvm::Error clear_findings(cache::FindingKind kind) = 0;

  // Exactly one compile per key: the first caller over all processes gets the lease and compiles; the others
  // wait (at most `wait_ms`) and then look the binary up again. A crashed owner's lease ends with its
  // process. kOwner is only given after a look-up that missed while the lease was held: put the binary, then
  // drop the lease. A fork's child owns no lease. Where no lock file can be made (no user layer, read-only
  // folder) it holds for this process only.
  using Lease = cache::Lease;
  enum class LeaseState { kOwner, kDone, kTimedOut };  // kDone: somebody else finished it meanwhile
  virtual LeaseState lease(const BinaryKey& key, int wait_ms, std::unique_ptr<Lease>& lease) = 0;
  // The same for whatever has a name, one try. Null: somebody has it.
  virtual std::unique_ptr<Lease> try_lease(llvm::StringRef name) = 0;
  // The same for what its owner may not live through: a file beside the user layer until the lease is dropped.
  // `unended`: somebody had it before, who is gone and did not drop it. Null, too, where no user layer can be written.
  virtual std::unique_ptr<Lease> try_mark(llvm::StringRef name, bool& unended) = 0;

  virtual std::vector<LayerInfo> layers() = 0;
  // Reads every row of every layer and checks its digest: one line per damaged row or unusable layer. Reads
  // only.
  virtual std::vector<std::string> verify() = 0;
};

}  // namespace trigen
