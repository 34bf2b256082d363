#include "cache/contents.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <limits>
#include <mutex>

#include "cache/findings.h"
#include "cache/layer.h"
#include "cache/threads.h"
#include "generator/error.h"

namespace trigen::cache {
namespace {

// Numbers of a text in their order: "nvrtc 12.9.86" -> {12, 9, 86}. What is newer compares greater.
std::vector<uint64_t> version_numbers(llvm::StringRef text) {
  std::vector<uint64_t> numbers;
  while (!text.empty()) {
    text = text.drop_until([](char c) { return c >= '0' && c <= '9'; });
    const llvm::StringRef digits = text.take_while([](char c) { return c >= '0' && c <= '9'; });
    uint64_t number = 0;
    if (!digits.empty() && !digits.getAsInteger(10, number)) numbers.push_back(number);
    text = text.drop_front(digits.size());
  }
  return numbers;
}

// The rules of docs/cache-format.md, "Merging", in their order; the digest makes the order total.
bool is_better(const RecordRow& a, const RecordRow& b) {
  const Record &ours = a.record, &theirs = b.record;
  if (ours.provenance != theirs.provenance) return ours.provenance == Provenance::kMeasured;
  const auto rank = [](const RecordRow& row) {
    const std::string evidence = unpack_evidence(row.evidence);
    const int model = row.record.provenance == Provenance::kMeasured ? 0 : model_version_of(evidence);
    return std::make_tuple(!evidence.empty(), model, version_numbers(row.record.binary.compiler),
                           row.record.stored_at, row.digest);
  };
  return rank(a) > rank(b);
}

bool is_better(const BinaryRow& a, const BinaryRow& b) {
  return std::make_tuple(a.binary.stored_at, a.digest) > std::make_tuple(b.binary.stored_at, b.digest);
}

template <typename Map, typename Row>
void keep_better(Map& map, const typename Map::key_type& key, Row row) {
  const auto [there, fresh] = map.try_emplace(key);
  if (fresh || is_better(row, there->second)) there->second = std::move(row);
}

std::string damage_of(const std::string& name) { return name + " is damaged (its SHA-256 does not match)"; }

// The bytes that rows of a file may still have, and what they are read for.
struct Budget {
  ReadFor use = ReadFor::kRun;
  int64_t left = std::numeric_limits<int64_t>::max();
};

RowState read_row(Statement& rows, BinaryRow& row, std::string& name) {
  return read_binary_row(rows, row, name);
}
RowState read_row(Statement& rows, RecordRow& row, std::string& name) {
  return read_record_row(rows, /*sample=*/false, row, name);
}

// Every row of a SELECT of a table's columns.
template <typename Row>
SqlStatus add_rows(Database& database, const std::string& sql, std::initializer_list<llvm::StringRef> values,
                   Budget& budget, Contents& contents) {
  Statement rows(database, sql.c_str());
  rows.allow_bytes(budget.left);
  for (llvm::StringRef value : values) rows.bind_text(value);
  std::string name;
  for (Row row; rows.step();) {
    const RowState state = read_row(rows, row, name);
    if (rows.spent()) return Database::damage("its rows have more bytes than it has, so they share pages");
    std::string refusal;
    if (state == RowState::kGood && budget.use == ReadFor::kImport) refusal = refuse_row(row);
    if (state != RowState::kGood)
      contents.damaged.push_back(damage_of(name));
    else if (!refusal.empty())
      contents.damaged.push_back(name + " " + refusal);
    else
      contents.add(std::move(row));
  }
  budget.left = rows.bytes_left();
  return rows.status();
}

SqlStatus add_binaries(Database& database, const char* where, std::initializer_list<llvm::StringRef> values,
                       Budget& budget, Contents& contents) {
  return add_rows<BinaryRow>(database, std::string("SELECT ") + kBinaryColumns + " FROM binaries" + where,
                             values, budget, contents);
}

SqlStatus add_records(Database& database, const char* where, std::initializer_list<llvm::StringRef> values,
                      Budget& budget, Contents& contents) {
  return add_rows<RecordRow>(database, std::string("SELECT ") + kRecordColumns + " FROM records" + where,
                             values, budget, contents);
}

}  // namespace

RecordKey key_of(const Record& r) { return {r.problem, r.arch, r.device, r.sms, r.driver}; }

void Contents::add(BinaryRow row) {
  const std::string key = row.binary.key.digest();
  keep_better(binaries, key, std::move(row));
}

void Contents::add(RecordRow row) {
  const RecordKey key = key_of(row.record);
  keep_better(records, key, std::move(row));
}

void Contents::add(const Contents& other) {
  for (const auto& [key, row] : other.binaries) keep_better(binaries, key, row);
  for (const auto& [key, row] : other.records) keep_better(records, key, row);
  asked.insert(other.asked.begin(), other.asked.end());
  damaged.insert(damaged.end(), other.damaged.begin(), other.damaged.end());
  drop_outdated_predictions();
}

void Contents::take(Contents&& other) {
  for (auto& [key, row] : other.binaries) keep_better(binaries, key, std::move(row));
  for (auto& [key, row] : other.records) keep_better(records, key, std::move(row));
  asked.merge(other.asked);
  damaged.insert(damaged.end(), other.damaged.begin(), other.damaged.end());
}

void Contents::drop_outdated_predictions() {
  // Problem, arch and device that a measurement is of; "" is in it where any device's is.
  std::set<std::tuple<std::string, std::string, std::string>> measured;
  for (const auto& [key, row] : records) {
    if (row.record.provenance != Provenance::kMeasured) continue;
    for (const std::string& device : {row.record.device, std::string()})
      measured.insert({row.record.problem, row.record.arch, device});
  }
  for (auto at = records.begin(); at != records.end();) {
    const Record& r = at->second.record;
    const bool outdated =
        r.provenance == Provenance::kPredicted && measured.count({r.problem, r.arch, r.device}) != 0;
    at = outdated ? records.erase(at) : std::next(at);
  }
}

void Contents::select(const std::vector<std::string>& archs, const std::vector<std::string>& problems) {
  const std::set<std::string> of_archs(archs.begin(), archs.end()),
      of_problems(problems.begin(), problems.end());
  const auto wanted = [&](const std::string& arch, const std::string& problem) {
    return (of_archs.empty() || of_archs.count(arch) != 0) &&
           (of_problems.empty() || of_problems.count(problem) != 0);
  };
  std::set<std::string> there = of_archs;
  for (auto at = records.begin(); at != records.end();) {
    const Record& r = at->second.record;
    const bool keep = wanted(r.arch, r.problem);
    if (keep) there.insert(r.arch);
    at = keep ? std::next(at) : records.erase(at);
  }
  for (auto at = asked.begin(); at != asked.end();)
    at = wanted(at->first, at->second) ? std::next(at) : asked.erase(at);
  for (const std::string& arch : there)
    for (const std::string& problem : of_problems) asked.emplace(arch, problem);
}

void Contents::keep_what_runs(std::vector<std::string>& left_out) {
  std::set<std::string> named;
  for (auto at = records.begin(); at != records.end();) {
    const Record& r = at->second.record;
    const std::string key = r.binary.digest();
    if (binaries.count(key) != 0) {
      named.insert(key);
      ++at;
      continue;
    }
    left_out.push_back("record of " + r.problem + " on " + r.arch + ": its binary is not in the cache");
    at = records.erase(at);
  }
  for (auto at = binaries.begin(); at != binaries.end();)
    at = named.count(at->first) != 0 ? std::next(at) : binaries.erase(at);
}

void Contents::clamp_dates(int64_t latest) {
  for (auto& [key, row] : binaries)
    if (row.binary.stored_at > latest) set_stored_at(row, latest);
  for (auto& [key, row] : records)
    if (row.record.stored_at > latest) set_stored_at(row, latest);
}

const char* Contents::answer(const std::string& arch, const std::string& problem) const {
  const char* best = "none";
  for (auto at = records.lower_bound({problem, arch, "", std::numeric_limits<int>::min(), ""});
       at != records.end() && at->second.record.problem == problem && at->second.record.arch == arch; ++at) {
    if (at->second.record.provenance == Provenance::kMeasured) return "measured";
    best = "predicted";
  }
  return best;
}

std::optional<double> evidence_number(llvm::StringRef evidence, llvm::StringRef key) {
  // Inside a JSON string the quotes would be escaped, so this is a key; the tuner's and the runtime's evidence
  // has these once.
  const std::string name = "\"" + key.str() + "\":";
  const size_t at = evidence.find(name);
  if (at == llvm::StringRef::npos) return std::nullopt;
  const llvm::StringRef rest = evidence.substr(at + name.size()).ltrim(' ');
  if (rest.startswith("true")) return 1;
  if (rest.startswith("false")) return 0;
  double number = 0;
  if (rest.take_until([](char c) { return c == ',' || c == '}' || c == ' '; }).getAsDouble(number))
    return std::nullopt;
  return number;
}

int model_version_of(llvm::StringRef evidence) {
  const double number = evidence_number(evidence, "model").value_or(0);
  return number > 0 && number < std::numeric_limits<int>::max() ? static_cast<int>(number) : 0;
}

SqlStatus read_contents(Database& database, bool bundle, ReadFor use, Contents& contents, Rows rows) {
  contents = {};
  Budget budget{use, database.header().size};
  SqlStatus status;
  if (use != ReadFor::kRun) status = database.check_pages();
  if (status.ok() && rows == Rows::kAll) status = add_binaries(database, "", {}, budget, contents);
  if (status.ok()) status = add_records(database, "", {}, budget, contents);
  if (!status.ok()) return status;
  if (!bundle) {
    for (const auto& [key, row] : contents.records)
      contents.asked.emplace(row.record.arch, row.record.problem);
    return {};
  }
  Statement asked(database, "SELECT arch,problem FROM coverage");
  asked.allow_bytes(budget.left);
  while (!asked.spent() && asked.step()) {
    std::string arch = asked.text();
    contents.asked.emplace(std::move(arch), asked.text());
  }
  return asked.status();
}

SqlStatus read_rivals(Database& database, const Contents& others, Contents& contents) {
  SqlStatus status;
  Budget budget;
  for (const auto& [key, row] : others.binaries)
    if (status.ok()) status = add_binaries(database, " WHERE key=?", {key}, budget, contents);
  std::set<std::pair<std::string, std::string>> problems;
  for (const auto& [key, row] : others.records) problems.emplace(row.record.problem, row.record.arch);
  for (const auto& [problem, arch] : problems)
    if (status.ok())
      status = add_records(database, " WHERE problem=? AND arch=?", {problem, arch}, budget, contents);
  return status;
}

namespace {

llvm::Expected<Contents> read_file(LayerPlan plan, ReadFor use, const Signers& signers, Rows rows) {
  Patience patience(Store::Options().busy_ms);
  Log log({});
  plan.own = plan.own && use != ReadFor::kImport;
  Layer layer(std::move(plan), /*read_only=*/true, &patience, &log, &signers);
  Contents contents;
  const Verdict v = layer.inspect([&](Database& database) {
    return read_contents(database, is_bundle(layer.path()), use, contents, rows);
  });
  if (v.healthy()) return contents;
  return make_error(ErrorKind::kCache, v.absent() ? v.text + "; name a cache file or a bundle" : v.text);
}

// Whose signatures a reader asks for, and of which age.
class Reader {
 public:
  Reader(ReadFor use, const Store::Options& options) {
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

}  // namespace

llvm::Expected<Contents> read_contents(const std::string& path, ReadFor use, const Store::Options& options,
                                       Rows rows) {
  return read_contents(plan_reading(path), use, options, rows);
}

llvm::Expected<Contents> read_contents(LayerPlan plan, ReadFor use, const Store::Options& options,
                                       Rows rows) {
  const Reader reader(use, options);
  return read_file(std::move(plan), use, reader.signers(), rows);
}

llvm::Expected<Contents> read_merged(const std::vector<std::string>& paths, ReadFor use,
                                     const Store::Options& options) {
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
      auto one = read_file(plan_reading(paths[i]), use, signers, Rows::kAll);
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

}  // namespace trigen::cache
