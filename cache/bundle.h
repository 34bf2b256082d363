// The rows of whole cache files in memory, for export, import, merge, diff and gc, and bundles: a cache as one immutable
// file, NAME.trigen, to be shipped (docs/cache-format.md, "Bundles"). Rows stay as they lie in the file, packed and
// digested, so that what is copied has the same bytes everywhere.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cache/row.h"

namespace trigen::cache {

// Problem, arch, device, SMs, driver.
using RecordKey = std::tuple<std::string, std::string, std::string, int, std::string>;
RecordKey key_of(const Record& record);

struct Contents {
  std::map<std::string, BinaryRow> binaries;  // by BinaryKey::digest()
  std::map<RecordKey, RecordRow> records;
  // Arch and problem: what a bundle was made for, answered or not; of a cache file what it has records of.
  std::set<std::pair<std::string, std::string>> asked;
  std::vector<std::string> damaged;  // rows that were left out, in words

  // A row that is there already stays when it is the better one of the two (docs/cache-format.md, "Merging").
  void add(BinaryRow row);
  void add(RecordRow row);
  // Adds everything of another, then drops the predictions that a measurement outdates: a.add(b) and b.add(a)
  // are the same, and so is any order and repetition of several.
  void add(const Contents& other);
  // The same without the dropping, which is due after the last of several.
  void take(Contents&& other);
  void drop_outdated_predictions();
  // The records of these archs and problems alone (an empty list: of all); these are what was asked for.
  void select(const std::vector<std::string>& archs, const std::vector<std::string>& problems);
  // The binaries that a record names, and the records whose binary is here; `left_out` names the others.
  void keep_what_runs(std::vector<std::string>& left_out);
  // Dates after this one become this one, so that what is made again has the same bytes.
  void clamp_dates(int64_t latest);
  // "measured", "predicted" or "none".
  const char* answer(const std::string& arch, const std::string& problem) const;
};

// A number or switch (as 0 and 1) that a record's evidence has under this key, outside of its lists.
std::optional<double> evidence_number(llvm::StringRef evidence, llvm::StringRef key);
// The version of the cost model that a record's evidence names, 0 when it names none.
int model_version_of(llvm::StringRef evidence);

// The use that a file's rows are read for: it decides what is asked of the file (docs/signing.md).
enum class ReadFor {
  kLook,  // to be shown or compared: no row of it runs, and an older file than the newest may be looked at
  kImport,  // to be the user's from now on, or to go on to others: signed by somebody trusted whosever the file is,
            // no older one of its name, every page and row checked, dates that the clock allows
  kRun,  // as look-ups use it: what this user's trigen wrote here needs no signature
};
enum class Rows { kAll, kRecords };  // kRecords: no binaries
// Reads every row of an open cache file; damage where they add up to more bytes than the file has.
SqlStatus read_contents(Database& database, bool bundle, ReadFor use, Contents& contents,
                        Rows rows = Rows::kAll);
// The rows alone that adding `others` could replace or outdate: binaries of these keys, records of these
// problems and archs.
SqlStatus read_rivals(Database& database, const Contents& others, Contents& contents);

// A bundle's bytes: a function of the contents and `meta` alone.
llvm::Expected<std::string> bundle_image(const Contents& contents,
                                         const std::map<std::string, std::string>& meta);
// Writes a bundle under another name and renames it into place.
llvm::Error write_bundle(const std::string& path, const Contents& contents,
                         const std::map<std::string, std::string>& meta);

}  // namespace trigen::cache
