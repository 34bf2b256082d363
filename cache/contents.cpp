#include "cache/contents.h"

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <limits>
#include <mutex>
#include <thread>

#include "cache/environment.h"
#include "cache/layer.h"
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
    const std::string evidence = unpack(row.evidence, kMostTextBytes).value_or("");
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

SqlStatus add_binaries(Database& database, const char* where, std::initializer_list<llvm::StringRef> values,
                       Contents& contents) {
  Statement rows(database, (std::string("SELECT ") + kBinaryColumns + " FROM binaries" + where).c_str());
  for (llvm::StringRef value : values) rows.bind_text(value);
  std::string name;
  for (BinaryRow row; rows.step();) {
    if (read_binary_row(rows, row, name) == RowState::kGood)
      contents.add(std::move(row));
    else
      contents.damaged.push_back(damage_of(name));
  }
  return rows.status();
}

SqlStatus add_records(Database& database, const char* where, std::initializer_list<llvm::StringRef> values,
                      Contents& contents) {
  Statement rows(database, (std::string("SELECT ") + kRecordColumns + " FROM records" + where).c_str());
  for (llvm::StringRef value : values) rows.bind_text(value);
  std::string name;
  for (RecordRow row; rows.step();) {
    if (read_record_row(rows, /*sample=*/false, row, name) == RowState::kGood)
      contents.add(std::move(row));
    else
      contents.damaged.push_back(damage_of(name));
  }
  return rows.status();
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

SqlStatus read_contents(Database& database, bool bundle, Contents& contents, Rows rows) {
  SqlStatus status;
  if (rows == Rows::kAll) status = add_binaries(database, "", {}, contents);
  if (status.ok()) status = add_records(database, "", {}, contents);
  if (!status.ok()) return status;
  if (!bundle) {
    for (const auto& [key, row] : contents.records)
      contents.asked.emplace(row.record.arch, row.record.problem);
    return {};
  }
  Statement asked(database, "SELECT arch,problem FROM coverage");
  while (asked.step()) {
    std::string arch = asked.text();
    contents.asked.emplace(std::move(arch), asked.text());
  }
  return asked.status();
}

SqlStatus read_rivals(Database& database, const Contents& others, Contents& contents) {
  SqlStatus status;
  for (const auto& [key, row] : others.binaries)
    if (status.ok()) status = add_binaries(database, " WHERE key=?", {key}, contents);
  std::set<std::pair<std::string, std::string>> problems;
  for (const auto& [key, row] : others.records) problems.emplace(row.record.problem, row.record.arch);
  for (const auto& [problem, arch] : problems)
    if (status.ok()) status = add_records(database, " WHERE problem=? AND arch=?", {problem, arch}, contents);
  return status;
}

llvm::Expected<Contents> read_contents(const std::string& path, bool to_run, Rows rows) {
  LayerPlan plan = plan_reading(path);
  plan.own = plan.own && !to_run;
  return read_contents(std::move(plan), rows);
}

llvm::Expected<Contents> read_contents(LayerPlan plan, Rows rows) {
  Patience patience(Store::Options().busy_ms);
  Log log({});
  Signers signers;
  signers.trusted = parse_trusted_keys(environment(kTrustedKeys));
  Layer layer(std::move(plan), /*read_only=*/true, &patience, &log, &signers);
  Contents contents;
  const Verdict v = layer.inspect([&](Database& database) {
    contents = {};
    return read_contents(database, is_bundle(layer.path()), contents, rows);
  });
  if (v.healthy()) return contents;
  return make_error(ErrorKind::kCache, v.absent() ? v.text + "; name a cache file or a bundle" : v.text);
}

llvm::Expected<Contents> read_merged(const std::vector<std::string>& paths) {
  // Most of the time goes into the rows' digests, so that every core takes files; rows that meet are judged
  // alike in any order.
  const size_t threads =
      std::clamp<size_t>(std::min<size_t>(std::thread::hardware_concurrency(), paths.size()), 1, 16);
  std::vector<Contents> parts(threads);
  std::mutex mutex;
  std::atomic<size_t> next{0};
  std::map<size_t, ErrorText> failed;
  const auto work = [&](Contents& part) {
    for (size_t i = next++; i < paths.size(); i = next++) {
      auto one = read_contents(paths[i]);
      if (one) {
        part.take(std::move(*one));
        continue;
      }
      const std::lock_guard<std::mutex> lock(mutex);
      failed.emplace(i, take_error(one.takeError()));
    }
  };
  std::vector<std::thread> others;
  for (size_t i = 1; i < threads; ++i) others.emplace_back(work, std::ref(parts[i]));
  work(parts[0]);
  for (std::thread& other : others) other.join();
  if (!failed.empty()) return make_error(failed.begin()->second.kind, failed.begin()->second.message);
  for (size_t i = 1; i < threads; ++i) parts[0].take(std::move(parts[i]));
  std::sort(parts[0].damaged.begin(), parts[0].damaged.end());
  parts[0].drop_outdated_predictions();  // once: with each of a thousand files it would be most of the time
  return std::move(parts[0]);
}

}  // namespace trigen::cache
