// The cache: SQLite files ("layers") that hold binaries and records. One writable user layer over read-only
// layers.
//
// Nothing here ever makes the application fail: an unreadable, locked, damaged, full, foreign or read-only
// layer is a miss (for reads) or a kept error text (for writes), plus one log line. Thread safe. No network
// file system tricks: rollback journal, short transactions, a lock file of our own beside the layer
// (docs/cache-format.md).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

// Must-match fields: a binary is used only when all of them are equal.
struct BinaryKey {
  std::string source_hash;     // generator's Source::hash
  std::string arch;            // "sm_70"
  std::string compiler;        // "nvrtc 12.9.86"
  std::string options;         // canonical option string
  std::string digest() const;  // SHA-256 hex over the fields
};

struct Binary {
  BinaryKey key;
  std::string candidate;  // describe(): family:config
  std::string problem;    // the problem that it was made for, canonical text (any B)
  std::string entry;      // entry names, separated by spaces
  std::string source;     // emitted text
  std::string cubin;
  std::string ptx;
  std::string log;  // the compiler's log with the resource report
  int registers = 0, spill_bytes = 0, stack_bytes = 0, static_shared = 0;
  int64_t stored_at = 0;  // seconds since 1970; 0 in a put: now
  // Of the row that it was read from, "" of a fresh one: its digest in hex, its layer, and whether it was made
  // elsewhere: in another layer than the one that this store's puts go to, or imported into that.
  std::string digest, layer;
  bool shipped = false;

  // What findings of its canary call it: the row's digest, or its key's where it was compiled here, as that may be
  // compiled anew.
  std::string finding_name() const { return shipped ? digest : key.digest(); }
};

// What of a binary a look-up unpacks: everything, or the cubin alone, which is what a plan loads first.
enum class BinaryParts { kAll, kCubin };

enum class Provenance : int { kPredicted = 0, kMeasured = 1 };  // stored: do not renumber

// A tuned choice for problem x device.
struct Record {
  std::string problem;  // canonical text
  std::string arch;     // target name
  // Soft fields: a mismatch is used and said (exact / near / none).
  std::string device;  // GPU model, "" for predicted
  int sms = 0;
  std::string driver;     // "580.159"
  std::string candidate;  // family:config
  BinaryKey binary;       // the binary that runs it
  Provenance provenance = Provenance::kPredicted;
  double median_us = 0;   // measured median, or the model's prediction
  double error = 0;       // relative error against the double-precision reference, measured only
  std::string evidence;   // JSON: samples, finalists, peers, rejected candidates with their errors, date
  int64_t stored_at = 0;  // seconds since 1970; 0 in a put: now
};

enum class Match : int { kNone = 0, kNear = 1, kExact = 2 };
struct FoundRecord {
  Record record;
  Match match = Match::kNone;
  std::string layer;       // path
  std::string difference;  // for kNear: "driver 580.159 here, 575.57 in the record"
};

// What was found out here about what others made. Kept in the user layer, and in the store itself where that
// takes none.
namespace cache {
enum class FindingKind : int {
  kSignature = 0,
  kCanary = 1,
  kImport = 2,
  kHome = 3
};  // stored: do not renumber
struct Finding {
  FindingKind kind = FindingKind::kCanary;
  // Of a binary: its digest; of a signature: key and file, "32BF122E87FA8B9E/core.trigen"; home: home_of().
  std::string name;
  std::string device, driver;  // canary: where it ran
  int64_t value = 0;           // canary: 1 right, 0 wrong; signature: the newest timestamp that was met
  std::string text;            // canary: what ran, out of which layer, and what was wrong
  int64_t stored_at = 0;       // seconds since 1970; 0 in a put: now
};
}  // namespace cache

// A binary without its contents, for lists.
struct BinaryInfo {
  BinaryKey key;
  std::string candidate, problem;
  int64_t cubin_bytes = 0, stored_bytes = 0, stored_at = 0;
  std::string layer;  // path
};

// One row of `trigen cache ls`, one cache line of `trigen doctor`.
struct LayerInfo {
  std::string path;
  bool exists = false;
  bool writable = false;    // the user layer, and its file and folder may be written
  bool user_layer = false;  // the one that puts go to
  std::string problem;      // empty when healthy or not there yet, else what is wrong and the next step
  std::string note;         // nothing wrong, but worth a word: a network file system, files set aside
  int schema = 0;
  int64_t binaries = 0, records = 0, bytes = 0;
};

class Store {
 public:
  struct Options {
    // In lookup order. Empty: TRIGEN_CACHE (a list), then $XDG_CACHE_HOME/trigen/cache.db, then what
    // share/trigen holds below the library's prefix and below /usr (docs/cache-format.md). "none" alone: no
    // file is read or written, and only a put of a record is an error.
    std::vector<std::string> layers;
    // The first one that is no bundle (*.trigen) is the user layer, which puts go to; the others are only
    // read.
    bool read_only = false;
    int busy_ms =
        5000;  // the longest wait for other processes, milliseconds: of a plan's operations together
    // Whose signatures layers need that this user's trigen did not write (cache/signature.h); default:
    // TRIGEN_TRUSTED_KEYS.
    std::optional<std::string> trusted_keys = {};
    std::function<void(const std::string&)> log =
        {};  // one line per problem; default: stderr when TRIGEN_LOG is set
  };
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

  // The best record for this problem: measured before predicted, exact device before near, then the earlier
  // layer, then the newer one. Nothing is exact for a record of no device (a prediction) when a device asks.
  // Empty device: any, as near.
  virtual std::optional<FoundRecord> find_record(llvm::StringRef problem, llvm::StringRef arch,
                                                 llvm::StringRef device, int sms, llvm::StringRef driver) = 0;
  // One record per (problem, arch, device, sms, driver): a later measurement replaces an earlier one. A
  // measured record removes the predicted ones of its device and of no device; a predicted one is dropped
  // (success) where a measured one of the same device exists.
  virtual llvm::Error put_record(const Record& record) = 0;
  // Could something be put now? A write of nothing; makes the file where it is not there yet.
  virtual llvm::Error try_put() = 0;
  // Without their evidence.
  virtual std::vector<FoundRecord> list_records() = 0;
  // Measured ones of the target, with their evidence, whose problem begins with `prefix`, goes on with digits and
  // ends with `suffix`; the first ones, whose evidence has 4 MiB together.
  virtual std::vector<FoundRecord> find_measured(llvm::StringRef prefix, llvm::StringRef suffix,
                                                 llvm::StringRef arch) = 0;
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
  class Lease {
   public:
    virtual ~Lease() = default;
  };
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

// The lookup order that an empty Options::layers stands for, existing or not.
std::vector<std::string> default_layers();
// Does Options::layers, or TRIGEN_CACHE in its stead, say that there is to be no cache?
bool is_no_cache(const std::vector<std::string>& layers);

}  // namespace trigen
