#include "cache/store.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <thread>

#include "cache/findings.h"
#include "cache/host.h"
#include "cache/layer.h"
#include "cache/row.h"
#include "generator/error.h"
#include "generator/names.h"

namespace trigen {
namespace cache {
namespace {

// The most that one look-up may cost, whatever a stranger's file holds.
constexpr int64_t kMostRecords = 1024, kLookUpBytes = kMaxFieldBytes;
// Limit of the evidence read to rank a problem's choices; a tune of everything writes 0.1 MiB.
constexpr int64_t kLessonBytes = int64_t{4} << 20;

void log_to_stderr(const std::string& line) { std::fprintf(stderr, "trigen: %s\n", printable(line).c_str()); }

std::string select(const char* columns, const char* table, const char* where) {
  return std::string("SELECT ") + columns + " FROM " + table + where;
}

class LayeredStore final : public Store {
 public:
  explicit LayeredStore(const Options& options)
      : none_(is_no_cache(options.layers)),
        timeout_(options.busy_ms),
        log_(options.log                      ? options.log
             : environment_flag("TRIGEN_LOG") ? log_to_stderr
                                              : std::function<void(const std::string&)>()),
        signers_(signers_of(trusted_keys(options.trusted_keys), findings_)) {
    for (LayerPlan& plan : plan_layers(options.layers))
      layers_.push_back(
          std::make_unique<Layer>(std::move(plan), options.read_only, &timeout_, &log_, &signers_));
    for (auto& layer : layers_)
      if (layer->user()) findings_.keep_in(layer.get());
  }

  ~LayeredStore() override { llvm::consumeError(findings_.flush()); }  // what is lost is found anew

  using Store::find_binary;
  std::optional<Binary> find_binary(const BinaryKey& key, BinaryParts parts) override {
    const Unpack what = parts == BinaryParts::kCubin ? Unpack::kCubin : Unpack::kAll;
    const std::string digest = key.digest();
    for (auto& layer : layers_) {
      if (const auto index = index_of(*layer); index && index->binaries.count(digest) == 0) continue;
      std::optional<Binary> found = first_binary(*layer, " WHERE key=?", {digest}, what);
      // A digest of another key's fields cannot come back here short of a broken SHA-256; compare all the
      // same.
      if (found && found->key.digest() == digest) {
        if (layer->stores()) note_use(layer->path(), digest);
        return found;
      }
    }
    return std::nullopt;
  }

  std::optional<Binary> find_binary_any_compiler(llvm::StringRef source_hash, llvm::StringRef arch) override {
    std::optional<Binary> best;
    const Layer* from = nullptr;
    for (auto& layer : layers_) {
      if (const auto index = index_of(*layer);
          index && index->sources.count(index_key(source_hash, arch)) == 0)
        continue;
      std::optional<Binary> found =
          first_binary(*layer, " WHERE source_hash=? AND arch=? ORDER BY stored_at DESC, rowid DESC",
                       {source_hash, arch}, Unpack::kAll);
      if (!found || (best && found->stored_at <= best->stored_at)) continue;
      best = std::move(found);
      from = layer.get();
    }
    if (from != nullptr && from->stores()) note_use(from->path(), best->key.digest());
    return best;
  }

  llvm::Error put_binary(const Binary& binary) override {
    if (std::string refusal = refuse_binary(binary); !refusal.empty())
      return make_error(ErrorKind::kCache, refusal);
    if (none_) return llvm::Error::success();  // as asked for
    return put([&](Database& database) { return put_binary_row(database, binary); });
  }

  std::vector<BinaryInfo> list_binaries() override {
    std::vector<BinaryInfo> list;
    for (auto& layer : layers_) {
      layer->read([&](Database& database) {
        Statement rows(database, select(kBinaryColumns, "binaries", " ORDER BY rowid").c_str());
        each_binary(*layer, rows, Unpack::kNothing, [&](Binary& binary, int64_t cubin_bytes) {
          list.push_back({std::move(binary.key), std::move(binary.candidate), std::move(binary.problem),
                          cubin_bytes, rows.bytes_read(), binary.stored_at, layer->path()});
          return true;
        });
        return rows.status();
      });
    }
    return list;
  }

  std::optional<FoundRecord> find_record(llvm::StringRef problem, llvm::ArrayRef<llvm::StringRef> archs,
                                         const DeviceQuery& query) override {
    std::optional<FoundRecord> best;
    Rank rank_of_best;
    // A record measured for one target comes before everything of those behind it.
    for (size_t target = 0; target < archs.size() && !rank_of_best.measured; ++target)
      for (size_t i = 0; i < layers_.size(); ++i) {
        const auto index = index_of(*layers_[i]);
        std::optional<Record> record = index ? best_indexed(*index, problem, archs[target], query)
                                             : best_record(*layers_[i], problem, archs[target], query);
        if (!record) continue;
        Rank rank = rank_of(*record, query);
        rank.target = -static_cast<int>(target);
        rank.layer = -static_cast<int>(i);
        if (best && rank <= rank_of_best) continue;
        rank_of_best = std::move(rank);
        best.emplace();
        best->difference = difference(*record, query);
        best->match = best->difference.empty() ? Match::kExact : Match::kNear;
        best->layer = layers_[i]->path();
        best->record = std::move(*record);
      }
    return best;
  }

  llvm::Error try_put() override {
    return put([](Database&) { return SqlStatus(); });
  }
  llvm::Error put_record(const Record& record) override {
    if (std::string refusal = refuse_record(record); !refusal.empty())
      return make_error(ErrorKind::kCache, refusal);
    return put([&](Database& database) { return put_record_row(database, record); });
  }

  std::vector<FoundRecord> list_records() override {
    std::vector<FoundRecord> list;
    for (auto& layer : layers_)
      for (Record& record :
           records(*layer, "records", " ORDER BY problem,arch,device,sms,driver", {}, Unpack::kNothing))
        list.push_back({std::move(record), Match::kNone, layer->path(), ""});
    return list;
  }
  std::vector<FoundRecord> find_measured(llvm::StringRef prefix, llvm::StringRef suffix, llvm::StringRef arch,
                                         const DeviceQuery& query) override {
    // The range goes through the primary key, the comparison reads no row that it does not take; ':' follows '9'.
    // No GLOB: a connection takes patterns of 64 bytes at most, and suffixes are longer.
    const std::string behind = prefix.str() + ":";
    std::vector<FoundRecord> list;
    std::map<std::tuple<std::string, std::string, int>, std::pair<Rank, size_t>> best;  // place in the list
    int64_t left = kLessonBytes;
    for (size_t i = 0; i < layers_.size(); ++i)
      for (Record& record : records(
               *layers_[i], "records",
               " WHERE problem>=? AND problem<? AND substr(problem,-length(?))=? AND arch=? AND provenance=1"
               " ORDER BY problem,arch,device,sms,driver",
               {prefix, behind, suffix, suffix, arch}, Unpack::kAll, left)) {
        left -= static_cast<int64_t>(record.evidence.size());
        Rank rank = rank_of(record, query);
        rank.layer = -static_cast<int>(i);
        const auto [at, fresh] =
            best.try_emplace({record.problem, record.device, record.sms}, rank, list.size());
        if (fresh) list.emplace_back();
        if (!fresh && rank <= at->second.first) continue;
        at->second.first = rank;
        list[at->second.second] = {std::move(record), Match::kNone, layers_[i]->path(), ""};
      }
    return list;
  }

  std::string find_evidence(const FoundRecord& found) override {
    const Record& r = found.record;
    for (auto& layer : layers_) {
      if (layer->path() != found.layer) continue;
      const auto rows =
          records(*layer, "records", " WHERE problem=? AND arch=? AND device=? AND driver=? AND sms=?",
                  {r.problem, r.arch, r.device, r.driver, std::to_string(r.sms)}, Unpack::kAll);
      return rows.empty() ? std::string() : rows.front().evidence;
    }
    return {};
  }

  llvm::Error put_sample(const Record& sample) override {
    if (std::string refusal = refuse_record(sample); !refusal.empty())
      return make_error(ErrorKind::kCache, refusal);
    if (none_) return llvm::Error::success();
    return put([&](Database& database) { return put_sample_row(database, sample); });
  }

  std::vector<Record> find_samples(llvm::StringRef problem, llvm::StringRef arch,
                                   llvm::StringRef device) override {
    for (auto& layer : layers_)
      if (layer->user())
        return records(*layer, "samples", " WHERE problem=? AND arch=? AND device=? ORDER BY rowid",
                       {problem, arch, device}, Unpack::kAll);
    return {};
  }

  llvm::Error clear_samples(llvm::StringRef problem, llvm::StringRef arch, llvm::StringRef device) override {
    if (none_) return llvm::Error::success();
    return put([&](Database& database) {
      Statement erase(database, "DELETE FROM samples WHERE problem=? AND arch=? AND device=?");
      erase.bind_text(problem).bind_text(arch).bind_text(device);
      erase.step();
      return erase.status();
    });
  }

  std::optional<Finding> find_finding(FindingKind kind, llvm::StringRef name, llvm::StringRef device,
                                      llvm::StringRef driver) override {
    return findings_.find(kind, name, device, driver);
  }
  llvm::Error put_finding(const Finding& finding) override { return findings_.put(finding); }
  std::vector<Finding> list_findings() override { return findings_.list(); }
  llvm::Error clear_findings(FindingKind kind) override { return findings_.clear(kind); }

  LeaseState lease(const BinaryKey& key, int wait_ms, std::unique_ptr<Lease>& lease) override {
    lease.reset();
    const Clock::time_point until = Clock::now() + std::chrono::milliseconds(wait_ms);
    for (std::chrono::milliseconds pause{1};; pause = std::min(pause * 2, std::chrono::milliseconds(16))) {
      if (std::unique_ptr<Lease> got = take_lease(key.digest())) {
        // Whoever had it before may have stored the binary between the caller's look-up and now.
        if (find_binary(key)) return LeaseState::kDone;
        lease = std::move(got);
        return LeaseState::kOwner;
      }
      const auto left = until - Clock::now();
      if (left <= Clock::duration::zero()) return LeaseState::kTimedOut;
      std::this_thread::sleep_for(std::min<Clock::duration>(pause, left));
    }
  }

  std::unique_ptr<Lease> try_lease(llvm::StringRef name) override { return take_lease(name_digest(name)); }
  std::unique_ptr<Lease> try_mark(llvm::StringRef name, bool& unended) override {
    unended = false;
    return locks_files() ? cache::try_mark(user_layer()->path(), name_digest(name), unended) : nullptr;
  }

  std::vector<LayerInfo> layers() override {
    std::vector<LayerInfo> list;
    for (auto& layer : layers_) list.push_back(layer->info());
    return list;
  }

  std::vector<std::string> verify() override {
    std::vector<std::string> lines;
    for (auto& layer : layers_) {
      const std::string prefix = "cache '" + layer->path() + "': ";
      const Verdict v = layer->inspect([&](Database& database) {
        Statement check(database, "PRAGMA quick_check(20)");
        while (check.step())
          if (std::string line = check.text(); line != "ok") lines.push_back(prefix + line);
        std::string name;
        Statement binaries(database, select(kBinaryColumns, "binaries", "").c_str());
        Binary binary;
        int64_t cubin_bytes = 0;
        while (binaries.step())
          if (read_binary(binaries, Unpack::kAll, binary, name, cubin_bytes) == RowState::kDamaged)
            lines.push_back(prefix + damaged(name));
        for (const char* table : {"records", "samples"}) {
          Statement rows(database, select(kRecordColumns, table, "").c_str());
          Record record;
          while (rows.step())
            if (read_record(rows, Unpack::kNothing, table == std::string("samples"), record, name) ==
                RowState::kDamaged)
              lines.push_back(prefix + damaged(name));
          if (!rows.status().ok()) return rows.status();
        }
        return binaries.status();
      });
      if (!v.healthy() && !v.absent()) lines.push_back(v.text);
    }
    return lines;
  }

 private:
  static std::string damaged(const std::string& name) {
    return name +
           " is damaged (its SHA-256 does not match); it counts as missing and the next put replaces it";
  }

  void say_damaged(const Layer& layer, const std::string& name) {
    log_.once("cache '" + layer.path() + "': " + damaged(name));
  }

  const Layer* user_layer() const {
    for (const auto& layer : layers_)
      if (layer->user()) return layer.get();
    return nullptr;
  }

  // Can a lock file be made?
  bool locks_files() const {
    const Layer* const layer = user_layer();
    return layer != nullptr && layer->stores() && layer->prepare().healthy();
  }
  std::unique_ptr<Lease> take_lease(const std::string& digest) {
    const Layer* const layer = user_layer();
    return cache::try_lease(layer != nullptr ? layer->path() : "", locks_files(), digest);
  }

  llvm::Error put(Work work) {
    for (auto& layer : layers_)
      if (layer->user()) return layer->write(work);
    if (none_)
      return make_error(ErrorKind::kCache,
                        "the cache is `none`, as TRIGEN_CACHE or --cache says; name a file there");
    return make_error(
        ErrorKind::kCache,
        "no cache to store in: TRIGEN_CACHE, XDG_CACHE_HOME and HOME name no absolute path, and "
        "the user has no home that may be written; set TRIGEN_CACHE to a file");
  }

  // Calls `use(binary, its cubin's bytes)` for every good row until it returns false.
  template <typename Use>
  void each_binary(const Layer& layer, Statement& rows, Unpack what, Use use) {
    Binary binary;
    std::string name;
    int64_t cubin_bytes = 0;
    while (!rows.spent() && rows.step()) {
      const RowState state = read_binary(rows, what, binary, name, cubin_bytes);
      if (state == RowState::kDamaged)
        say_damaged(layer, name);
      else if (!use(binary, cubin_bytes))
        return;
    }
  }

  std::optional<Binary> first_binary(Layer& layer, const char* where,
                                     std::initializer_list<llvm::StringRef> values, Unpack what) {
    std::optional<Binary> found;
    const auto marks = findings_.marks();  // outside the layer's operation
    const std::string sql = select(kBinaryColumns, "binaries", where);
    layer.read([&](Database& database) {
      found.reset();
      Statement rows(database, sql.c_str());
      rows.allow_bytes(kLookUpBytes);
      for (llvm::StringRef value : values) rows.bind_text(value);
      each_binary(layer, rows, what, [&](Binary& binary, int64_t) {
        binary.shipped = !layer.user() || marks->imported.count(binary.digest) != 0;
        if (!marks->quarantined.empty() && marks->quarantined.count(binary.finding_name()) != 0) return true;
        found = std::move(binary);
        return false;
      });
      return rows.status();
    });
    if (!found) return found;
    found->layer = layer.path();
    return found;
  }

  std::shared_ptr<const Index> index_of(Layer& layer) {
    return layer.index().get(layer, [&](const std::string& name) { say_damaged(layer, name); });
  }

  static std::optional<Record> best_indexed(const Index& index, llvm::StringRef problem, llvm::StringRef arch,
                                            const DeviceQuery& query) {
    const auto rows = index.records.find(index_key(problem, arch));
    if (rows == index.records.end() || rows->second.empty()) return std::nullopt;
    const auto best = std::max_element(rows->second.begin(), rows->second.end(),
                                       [&](const RecordRow& a, const RecordRow& b) {
                                         return rank_of(a.record, query) < rank_of(b.record, query);
                                       });
    Record record = best->record;
    record.evidence = unpack_evidence(best->evidence);
    return record;
  }

  // The best record of one layer: ranked without the evidence, then read whole and checked, from the best on.
  std::optional<Record> best_record(Layer& layer, llvm::StringRef problem, llvm::StringRef arch,
                                    const DeviceQuery& query) {
    struct Row {
      Rank rank;
      int64_t id, evidence_bytes;
    };
    std::optional<Record> best;
    layer.read([&](Database& database) {
      best.reset();
      std::vector<Row> list;
      const std::string heads = std::string("SELECT rowid,length(evidence),") + kRecordHead +
                                " FROM records WHERE problem=? AND arch=? LIMIT ?";
      Statement rows(database, heads.c_str());
      rows.allow_bytes(kMostTextBytes);
      rows.bind_text(problem).bind_text(arch).bind_int(kMostRecords);
      while (rows.step()) {
        Row row = {};
        row.id = rows.integer();
        row.evidence_bytes = rows.integer();
        Record head;
        std::string digest;
        read_record_head(rows, head, digest);
        row.rank = rank_of(head, query);
        list.push_back(std::move(row));
      }
      if (!rows.status().ok()) return rows.status();
      std::stable_sort(list.begin(), list.end(), [](const Row& a, const Row& b) { return a.rank > b.rank; });
      int64_t left = kLookUpBytes;
      const std::string sql = select(kRecordColumns, "records", " WHERE rowid=?");
      for (const Row& row : list) {
        // A text packs to less than its size and 1 KB.
        if (row.evidence_bytes > kMostTextBytes + 1024 || (left -= row.evidence_bytes) < 0) continue;
        Statement one(database, sql.c_str());
        one.allow_bytes(2 * kMostTextBytes);
        one.bind_int(row.id);
        Record record;
        std::string name;
        if (!one.step()) return one.status();
        if (read_record(one, Unpack::kAll, false, record, name) == RowState::kGood) {
          best = std::move(record);
          break;
        }
        say_damaged(layer, name);
      }
      return SqlStatus{};
    });
    return best;
  }

  std::vector<Record> records(Layer& layer, const char* table, const char* where,
                              std::initializer_list<llvm::StringRef> values, Unpack what,
                              int64_t most = kLookUpBytes) {
    const bool samples = table == std::string("samples");
    std::vector<Record> list;
    const std::string sql = select(kRecordColumns, table, where);
    layer.read([&](Database& database) {
      list.clear();
      Statement rows(database, sql.c_str());
      for (llvm::StringRef value : values) rows.bind_text(value);
      Record record;
      std::string name;
      int64_t unpacked = 0;
      while (unpacked < most && rows.step()) {
        if (read_record(rows, what, samples, record, name) == RowState::kGood) {
          unpacked += static_cast<int64_t>(record.evidence.size());
          list.push_back(std::move(record));
        } else {
          say_damaged(layer, name);
        }
      }
      return rows.status();
    });
    return list;
  }

  const bool none_;  // no cache, as asked for
  LockTimeout timeout_;
  Log log_;
  Findings findings_;
  const Signers signers_;
  std::vector<std::unique_ptr<Layer>> layers_;
};

}  // namespace
}  // namespace cache

std::unique_ptr<Store> Store::open(const Options& options) {
  return std::make_unique<cache::LayeredStore>(options);
}

}  // namespace trigen
