#include "cache/upkeep.h"

#include <algorithm>
#include <optional>

#include "cache/layer.h"
#include "cache/usage.h"
#include "generator/error.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cache {
namespace {

// The layer that puts go to, with what it needs to be opened alone.
class UserLayer {
 public:
  explicit UserLayer(const std::vector<std::string>& layers)
      : patience_(Store::Options().busy_ms), log_([](const std::string&) {}) {
    for (LayerPlan& plan : plan_layers(layers))
      if (plan.user && !layer_)
        layer_.emplace(std::move(plan), /*read_only=*/false, &patience_, &log_, &signers_);
  }
  llvm::Expected<Layer*> get() {
    if (layer_) return &*layer_;
    return make_error(ErrorKind::kCache,
                      "no cache file to write: bundles are never written to; name one with --cache or in "
                      "TRIGEN_CACHE");
  }

 private:
  Patience patience_;
  Log log_;
  const Signers signers_;
  std::optional<Layer> layer_;
};

SqlStatus erase_record(Database& database, const Record& r) {
  Statement erase(database,
                  "DELETE FROM records WHERE problem=? AND arch=? AND device=? AND sms=? AND driver=?");
  erase.bind_text(r.problem).bind_text(r.arch).bind_text(r.device).bind_int(r.sms).bind_text(r.driver);
  erase.step();
  return erase.status();
}

SqlStatus erase_binary(Database& database, const std::string& key) {
  Statement erase(database, "DELETE FROM binaries WHERE key=?");
  erase.bind_text(key);
  erase.step();
  return erase.status();
}

SqlStatus number(Database& database, const char* pragma, int64_t& value) {
  Statement ask(database, pragma);
  if (ask.step()) value = ask.integer();
  return ask.status();
}

// Bytes that the file would have without its free pages.
SqlStatus used_bytes(Database& database, int64_t& bytes) {
  int64_t page = 0, pages = 0, unused = 0;
  SqlStatus status = number(database, "PRAGMA page_size", page);
  if (status.ok()) status = number(database, "PRAGMA page_count", pages);
  if (status.ok()) status = number(database, "PRAGMA freelist_count", unused);
  bytes = page * (pages - unused);
  return status;
}

struct Use {
  int64_t seconds;  // of the last look-up's day or of storing, whichever is later
  std::string key;
};

SqlStatus list_uses(Database& database, const std::string& layer, std::vector<Use>& uses) {
  Statement rows(database, "SELECT key,stored_at FROM binaries");
  while (rows.step()) {
    std::string key = rows.text();
    const int64_t stored = rows.integer();
    const int64_t used = int64_t{last_use(layer, key)} * 86400;
    uses.push_back({std::max(stored, used), std::move(key)});
  }
  std::sort(uses.begin(), uses.end(), [](const Use& a, const Use& b) {
    return std::tie(a.seconds, a.key) < std::tie(b.seconds, b.key);
  });
  return rows.status();
}

using ByBinary = std::multimap<std::string, const Record*>;

ByBinary predictions_of(const Contents& contents) {
  ByBinary predictions;
  for (const auto& [key, row] : contents.records)
    if (row.record.provenance == Provenance::kPredicted)
      predictions.emplace(row.record.binary.digest(), &row.record);
  return predictions;
}

}  // namespace

llvm::Expected<ImportReport> import_contents(const std::vector<std::string>& layers,
                                             const Contents& contents) {
  UserLayer user(layers);
  auto layer = user.get();
  if (!layer) return layer.takeError();
  ImportReport report;
  llvm::Error error = (*layer)->write([&](Database& database) {
    report = {};
    report.layer = (*layer)->path();
    Contents before;
    SqlStatus status = read_contents(database, /*bundle=*/false, before);
    Contents after = before;
    after.add(contents);
    for (const auto& [key, row] : after.binaries) {
      const auto there = before.binaries.find(key);
      if (there != before.binaries.end() && there->second.digest == row.digest) continue;
      if (status.ok()) status = insert_binary_row(database, row);
      // Its canary runs as that of any kernel which was made elsewhere.
      Finding imported;
      imported.kind = FindingKind::kImport;
      imported.name = llvm::toHex(row.digest, /*LowerCase=*/true);
      imported.text = row.binary.candidate;
      if (status.ok()) status = put_finding_row(database, imported);
      ++report.binaries;
    }
    for (const auto& [key, row] : after.records) {
      const auto there = before.records.find(key);
      if (there != before.records.end() && there->second.digest == row.digest) continue;
      if (status.ok()) status = insert_record_row(database, "records", row);
      ++report.records;
    }
    for (const auto& [key, row] : before.records)
      if (status.ok() && after.records.count(key) == 0) status = erase_record(database, row.record);
    return status;
  });
  if (error) return error;
  report.known = static_cast<int64_t>(contents.binaries.size() + contents.records.size()) - report.binaries -
                 report.records;
  return report;
}

llvm::Expected<int64_t> remove_records(const std::vector<std::string>& layers,
                                       const std::vector<std::string>& problems,
                                       const std::vector<std::string>& archs, std::string& path) {
  UserLayer user(layers);
  auto layer = user.get();
  if (!layer) return layer.takeError();
  path = (*layer)->path();
  int64_t removed = 0;
  llvm::Error error = (*layer)->write([&](Database& database) {
    removed = 0;
    Contents all;
    SqlStatus status = read_contents(database, /*bundle=*/false, all);
    Contents chosen = all;
    chosen.select(archs, problems);
    std::set<std::string> kept;
    for (const auto& [key, row] : all.records)
      if (chosen.records.count(key) == 0) kept.insert(row.record.binary.digest());
    for (const auto& [key, row] : chosen.records) {
      if (status.ok()) status = erase_record(database, row.record);
      const std::string binary = row.record.binary.digest();
      if (status.ok() && kept.count(binary) == 0) status = erase_binary(database, binary);
      ++removed;
    }
    return status;
  });
  if (error) return error;
  return removed;
}

llvm::Expected<CollectReport> collect(const std::vector<std::string>& layers, int64_t most_bytes) {
  UserLayer user(layers);
  auto layer = user.get();
  if (!layer) return layer.takeError();
  CollectReport report;
  report.layer = (*layer)->path();
  llvm::Error error = (*layer)->write([&](Database& database) {
    report.binaries = report.records = 0;
    Contents all;
    std::vector<Use> uses;
    SqlStatus status = read_contents(database, /*bundle=*/false, all);
    if (status.ok()) status = list_uses(database, report.layer, uses);
    if (status.ok()) status = used_bytes(database, report.bytes_before);
    report.bytes_after = report.bytes_before;
    const ByBinary predictions = predictions_of(all);
    for (const Use& use : uses) {
      if (!status.ok() || report.bytes_after <= most_bytes) break;
      status = erase_binary(database, use.key);
      for (auto [at, end] = predictions.equal_range(use.key); at != end && status.ok(); ++at) {
        status = erase_record(database, *at->second);
        ++report.records;
      }
      if (status.ok()) status = used_bytes(database, report.bytes_after);
      ++report.binaries;
    }
    return status;
  });
  if (error) return error;
  if (llvm::Error failed = (*layer)->compact(report.bytes_after)) return failed;
  if (report.bytes_after > most_bytes)
    return make_error(ErrorKind::kCache,
                      "cache '" + report.layer + "' has " + std::to_string(report.bytes_after) +
                          " B of measurements alone, more than " + std::to_string(most_bytes) +
                          "; allow more, or remove some with `trigen cache rm`");
  return report;
}

}  // namespace trigen::cache
