#include "cache/upkeep.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>

#include "cache/folder.h"
#include "cache/host.h"
#include "generator/error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen::cache {
namespace {

// The signers that a reader of files asks for, and the age of their signatures.
class Reader {
 public:
  Reader(ReadFor use, const StoreOptions& options) {
    signers_.trusted = trusted_keys(options.trusted_keys);
    if (use == ReadFor::kLook || !signers_.trusted.required) return;
    user_.emplace(options);
    signers_ = user_->signers();
  }
  const Signers& signers() const { return signers_; }

 private:
  std::optional<UserLayer> user_;
  Signers signers_;
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

// The fields that say which record it is and which binary it names, without reading what it weighs.
SqlStatus list_records(Database& database, const char* where, std::vector<Record>& records) {
  Statement rows(database,
                 (std::string("SELECT problem,arch,device,sms,driver,source_hash,binary_arch,compiler,"
                              "options FROM records") +
                  where)
                     .c_str());
  while (rows.step()) {
    Record& r = records.emplace_back();
    r.problem = rows.text();
    r.arch = rows.text();
    r.device = rows.text();
    r.sms = static_cast<int>(rows.integer());
    r.driver = rows.text();
    r.binary.source_hash = rows.text();
    r.binary.arch = rows.text();
    r.binary.compiler = rows.text();
    r.binary.options = rows.text();
  }
  return rows.status();
}

// Bundles of the folder that were written so long ago become one. Nothing is locked: two nodes that do so at
// once make the same file of the same ones, and a node that is alive after all publishes its own again.
llvm::Expected<int64_t> fold(const std::string& folder, const StoreOptions& options) {
  constexpr int kKeptDays = 30;
  namespace fs = std::filesystem;
  const auto before = fs::file_time_type::clock::now() - std::chrono::hours(24 * kKeptDays);
  std::vector<std::string> old;
  std::error_code failed;
  for (const std::string& path : layers_in(folder, failed)) {
    std::error_code gone;
    const auto written = fs::last_write_time(path, gone);
    if (!gone && written <= before && is_bundle(path)) old.push_back(path);
  }
  if (old.size() < 2) return 0;
  const Reader reader(ReadFor::kRun, options);
  Contents all;
  for (const std::string& path : old) {
    LayerPlan plan = plan_reading(path);
    plan.own = true;  // as look-ups read them
    auto contents = read_layer(std::move(plan), ReadFor::kRun, reader.signers());
    if (!contents) return contents.takeError();
    all.add(*contents);
  }
  auto image = bundle_image(all, {{"made_by", "spool"}});
  if (!image) return image.takeError();
  const std::string path = folder + "/folded-" + sha256_of(*image).substr(0, 16) + ".trigen";
  if (const int error = write_whole_file(path, *image, 0600))
    return make_error(ErrorKind::kCache,
                      "'" + path + "' cannot be written (" + errno_text(error) +
                          "); the bundles that it would stand for are as they were; make room "
                          "or correct the permissions");
  int64_t folded = 0;
  for (const std::string& each : old)
    if (each != path && ::unlink(each.c_str()) == 0) ++folded;
  return folded;
}

// Records that the user's own trigen measured, and kernels that it made, stay: an import replaces what an import brought.
void keep_own(const Contents& before, const std::vector<Finding>& findings, Contents& after) {
  std::set<std::string> imported;
  for (const Finding& finding : findings)
    if (finding.kind == FindingKind::kImport) imported.insert(finding.name);
  const auto own = [&](const std::string& digest) {
    return imported.count(llvm::toHex(digest, /*LowerCase=*/true)) == 0;
  };
  for (const auto& [key, row] : before.binaries)
    if (own(row.digest)) after.binaries[key] = row;
  for (const auto& [key, row] : before.records)
    if (row.record.provenance == Provenance::kMeasured && own(row.digest)) after.records[key] = row;
}

}  // namespace

UserLayer::UserLayer(const StoreOptions& options)
    : timeout_(options.busy_ms),
      log_([](const std::string&) {}),
      signers_(signers_of(trusted_keys(options.trusted_keys), findings_)) {
  for (LayerPlan& plan : plan_layers(options.layers)) {
    if (!plan.user || layer_) continue;
    stands_for_ = plan.stands_for;
    layer_.emplace(std::move(plan), options.read_only, &timeout_, &log_, &signers_);
    findings_.keep_in(&*layer_);
  }
}

llvm::Expected<Layer*> UserLayer::get() {
  if (layer_) return &*layer_;
  return make_error(ErrorKind::kCache,
                    "no cache file to write: bundles are never written to; name one with --cache or in "
                    "TRIGEN_CACHE");
}

llvm::Expected<Contents> read_contents(const std::string& path, ReadFor use, const StoreOptions& options) {
  const Reader reader(use, options);
  return read_layer(plan_reading(path), use, reader.signers());
}

llvm::Expected<Contents> read_merged(const std::vector<std::string>& paths, ReadFor use,
                                     const StoreOptions& options) {
  const Reader reader(use, options);
  // Most of the time goes into the rows' digests, so that every core takes files; rows that meet are judged
  // alike in any order.
  const size_t threads =
      std::clamp<size_t>(std::min<size_t>(std::thread::hardware_concurrency(), paths.size()), 1, 16);
  std::vector<Contents> parts(threads);
  std::mutex mutex;
  std::atomic<size_t> next{0};
  std::map<size_t, ErrorText> failed;
  // Remembered when all are read: which of two signatures of one name is the older one does not depend on who was
  // first.
  std::map<std::string, std::set<int64_t>> met;
  Signers signers = reader.signers();
  signers.remember = [&](const std::string& name, int64_t timestamp) {
    const std::lock_guard<std::mutex> lock(mutex);
    met[name].insert(timestamp);
  };
  std::atomic<size_t> parts_taken{0};
  const auto work = [&] {
    Contents& part = parts[parts_taken++];
    for (size_t i = next++; i < paths.size(); i = next++) {
      auto one = read_layer(plan_reading(paths[i]), use, signers);
      if (one) {
        part.take(std::move(*one));
        continue;
      }
      const std::lock_guard<std::mutex> lock(mutex);
      failed.emplace(i, take_error(one.takeError()));
    }
  };
  on_threads(threads, work);
  if (!failed.empty()) return make_error(failed.begin()->second.kind, failed.begin()->second.message);
  for (const auto& [name, timestamps] : met) {
    if (use != ReadFor::kLook && timestamps.size() > 1)
      return make_error(ErrorKind::kCache, "the files hold two signed as '" + name + "', at " +
                                               std::to_string(*timestamps.begin()) + " and " +
                                               std::to_string(*timestamps.rbegin()) +
                                               ", so one was replaced by the other; leave the older one out");
    reader.signers().remember(name, *timestamps.rbegin());
  }
  for (size_t i = 1; i < threads; ++i) parts[0].take(std::move(parts[i]));
  std::sort(parts[0].damaged.begin(), parts[0].damaged.end());
  parts[0].drop_outdated_predictions();  // once: with each of a thousand files it would be most of the time
  return std::move(parts[0]);
}

llvm::Expected<ImportReport> import_contents(const StoreOptions& options, const Contents& contents) {
  UserLayer user(options);
  auto layer = user.get();
  if (!layer) return layer.takeError();
  ImportReport report;
  llvm::Error error = (*layer)->write([&](Database& database) {
    report = {};
    report.layer = (*layer)->path();
    Contents before;
    SqlStatus status = read_rivals(database, contents, before);
    Contents after = before;
    after.add(contents);
    std::vector<Finding> findings;
    if (status.ok()) status = read_findings(database, home_of(report.layer), findings);
    keep_own(before, findings, after);
    const auto note = [&](const std::string& digest, const std::string& candidate) {
      Finding imported;
      imported.kind = FindingKind::kImport;
      imported.name = llvm::toHex(digest, /*LowerCase=*/true);
      imported.text = candidate;
      if (status.ok()) status = put_finding_row(database, imported);
    };
    for (const auto& [key, row] : after.binaries) {
      const auto there = before.binaries.find(key);
      if (there != before.binaries.end() && there->second.digest == row.digest) continue;
      if (status.ok()) status = insert_binary_row(database, row);
      note(row.digest,
           row.binary.candidate);  // its canary runs as that of any kernel which was made elsewhere
      ++report.binaries;
    }
    for (const auto& [key, row] : after.records) {
      const auto there = before.records.find(key);
      if (there != before.records.end() && there->second.digest == row.digest) continue;
      if (status.ok()) status = insert_record_row(database, "records", row);
      note(row.digest, row.record.candidate);
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

llvm::Expected<int64_t> remove_records(const StoreOptions& options, const std::vector<std::string>& problems,
                                       const std::vector<std::string>& archs, std::string& path) {
  UserLayer user(options);
  auto layer = user.get();
  if (!layer) return layer.takeError();
  path = (*layer)->path();
  const auto of = [](const std::string& text, const std::vector<std::string>& list) {
    return list.empty() || llvm::is_contained(list, text);
  };
  int64_t removed = 0;
  llvm::Error error = (*layer)->write([&](Database& database) {
    removed = 0;
    std::vector<Record> all, chosen;
    SqlStatus status = list_records(database, "", all);
    std::set<std::string> kept;
    for (Record& record : all) {
      if (of(record.arch, archs) && of(record.problem, problems))
        chosen.push_back(std::move(record));
      else
        kept.insert(record.binary.digest());
    }
    for (const Record& record : chosen) {
      if (status.ok()) status = erase_record(database, record);
      const std::string binary = record.binary.digest();
      if (status.ok() && kept.count(binary) == 0) status = erase_binary(database, binary);
      ++removed;
    }
    return status;
  });
  if (error) return error;
  return removed;
}

llvm::Expected<CollectReport> collect(const StoreOptions& options, int64_t most_bytes) {
  UserLayer user(options);
  auto layer = user.get();
  if (!layer) return layer.takeError();
  CollectReport report;
  report.layer = (*layer)->path();
  llvm::Error error = (*layer)->write([&](Database& database) {
    report.binaries = report.records = 0;
    std::vector<Record> predictions;
    std::vector<Use> uses;
    SqlStatus status = list_records(database, " WHERE provenance=0", predictions);
    std::multimap<std::string, const Record*> naming;
    for (const Record& record : predictions) naming.emplace(record.binary.digest(), &record);
    if (status.ok()) status = list_uses(database, report.layer, uses);
    if (status.ok()) status = used_bytes(database, report.bytes_before);
    report.bytes_after = report.bytes_before;
    for (const Use& use : uses) {
      if (!status.ok() || report.bytes_after <= most_bytes) break;
      status = erase_binary(database, use.key);
      for (auto [at, end] = naming.equal_range(use.key); at != end && status.ok(); ++at) {
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
  if (const std::string& shared = user.stands_for(); !shared.empty()) {
    auto folded = fold(shared + ".d", options);
    if (!folded) return folded.takeError();
    report.folded = *folded;
  }
  if (report.bytes_after > most_bytes)
    return make_error(ErrorKind::kCache,
                      "cache '" + report.layer + "' has " + std::to_string(report.bytes_after) +
                          " B of measurements alone, more than " + std::to_string(most_bytes) +
                          "; allow more, or remove some with `trigen cache rm`");
  return report;
}

}  // namespace trigen::cache
