// The types of the cache: binaries, records, findings, what look-ups answer; and the one order of records.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "llvm/ADT/StringRef.h"

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
  // The row that the binary was read from, "" for a fresh one: digest in hex, layer, and whether the row was made
  // elsewhere: in another layer than the one that this store's puts go to, or imported into that.
  std::string digest, layer;
  bool shipped = false;

  // The name in a canary's findings: the row's digest, or the key's where the binary was compiled here, as that may be
  // compiled anew.
  std::string finding_name() const { return shipped ? digest : key.digest(); }
};

// Parts of a binary that a look-up unpacks: everything, or the cubin alone, which is what a plan loads first.
enum class BinaryParts { kAll, kCubin };

// A binary without its contents, for lists.
struct BinaryInfo {
  BinaryKey key;
  std::string candidate, problem;
  int64_t cubin_bytes = 0, stored_bytes = 0, stored_at = 0;
  std::string layer;  // path
};

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

struct StoreOptions {
  // In lookup order. Empty: TRIGEN_CACHE (a list), then $XDG_CACHE_HOME/trigen/cache.db, then what
  // share/trigen holds below the library's prefix and below /usr (docs/cache-format.md). "none" alone: no
  // file is read or written, and only a put of a record is an error.
  std::vector<std::string> layers;
  // The first one that is no bundle (*.trigen) is the user layer, which puts go to; the others are only
  // read.
  bool read_only = false;
  // The longest wait for other processes, milliseconds: of a plan's operations together.
  int busy_ms = 5000;
  // The keys that must have signed layers that this user's trigen did not write (cache/signature.h); default:
  // TRIGEN_TRUSTED_KEYS.
  std::optional<std::string> trusted_keys = {};
  // One line per problem; default: stderr when TRIGEN_LOG is set.
  std::function<void(const std::string&)> log = {};
};

namespace cache {

// A fact that was found out here about what others made. Kept in the user layer, and in the store itself where that
// takes none.
enum class FindingKind : int {
  kSignature = 0,
  kCanary = 1,
  kImport = 2,
  kHome = 3
};  // stored: do not renumber
struct Finding {
  FindingKind kind = FindingKind::kCanary;
  // Canary: the binary's digest; signature: key and file, "32BF122E87FA8B9E/core.trigen"; home: home_of().
  std::string name;
  std::string device, driver;  // canary: where it ran
  int64_t value = 0;           // canary: 1 right, 0 wrong; signature: the newest timestamp that was met
  std::string text;            // canary: what ran, out of which layer, and what was wrong
  int64_t stored_at = 0;       // seconds since 1970; 0 in a put: now
};

// The device that asks for a record. Empty: any, as near.
struct DeviceQuery {
  std::string device;
  int sms = 0;
  std::string driver;
};

// The one order of records: of two the greater rank is better, by the first field that differs. Look-ups choose by it
// among the records of a problem, merging among the rows of one key; a field that one of the two has no use for is the
// same in all that it compares. A new rule is a field here and its value in rank_of() or bundle.cpp's rank_of_row().
struct Rank {
  bool measured = false;  // before a prediction
  int target = 0;         // the device's own architecture before an older one: 0, -1, ...
  bool exact = false;     // device, SMs and driver are the query's
  bool device = false, sms = false, driver = false;  // each
  int layer = 0;                                     // the earlier layer: 0, -1, ...
  // Only for rows of one key: readable evidence, a prediction's version of the cost model, the compiler's version.
  bool evidence = false;
  int model = 0;
  std::vector<uint64_t> compiler;
  int64_t stored_at = 0;
  std::string digest;  // of the row: makes the order of rows of one key total
  auto operator<=>(const Rank&) const = default;
};
// The record's, for a query; without the places of target and layer, which the store knows.
Rank rank_of(const Record& record, const DeviceQuery& query);

// The text of what differs between here and the record, "" when nothing does: "driver 580.159 here, 575.57 in the
// record".
std::string difference(const Record& record, const DeviceQuery& query);

}  // namespace cache
}  // namespace trigen
