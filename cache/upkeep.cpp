#include "cache/upkeep.h"

#include <optional>

#include "cache/layer.h"
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

}  // namespace trigen::cache
