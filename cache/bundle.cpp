#include "cache/bundle.h"

#include <fstream>
#include <initializer_list>
#include <limits>

#include "cache/folder.h"
#include "cache/host.h"
#include "generator/error.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"

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

// The ranks by which one of two rows of a key stays (docs/cache-format.md, "Merging").
Rank rank_of_row(const RecordRow& row) {
  Rank rank = rank_of(row.record, DeviceQuery());
  const std::string evidence = unpack_evidence(row.evidence);
  rank.evidence = !evidence.empty();
  if (!rank.measured) rank.model = model_version_of(evidence);
  rank.compiler = version_numbers(row.record.binary.compiler);
  rank.digest = row.digest;
  return rank;
}

Rank rank_of_row(const BinaryRow& row) {
  Rank rank;
  rank.stored_at = row.binary.stored_at;
  rank.digest = row.digest;
  return rank;
}

template <typename Map, typename Row>
void keep_better(Map& map, const typename Map::key_type& key, Row row) {
  const auto [there, fresh] = map.try_emplace(key);
  if (fresh || rank_of_row(row) > rank_of_row(there->second)) there->second = std::move(row);
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
  take(Contents(other));
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

SqlStatus fill(Database& database, const Contents& contents, const std::map<std::string, std::string>& meta) {
  // secure_delete: what b-tree pages leave free is zeroed, not what memory held.
  const std::string create = std::string("PRAGMA page_size=4096;PRAGMA secure_delete=ON;BEGIN;") +
                             kCreateSchema + kCreateBundleSchema +
                             "PRAGMA application_id=" + std::to_string(kBundleId) +
                             ";PRAGMA user_version=" + std::to_string(kSchemaVersion);
  SqlStatus status = database.run(create.c_str());
  for (const auto& [key, row] : contents.binaries)
    if (status.ok()) status = insert_binary_row(database, row);
  for (const auto& [key, row] : contents.records)
    if (status.ok()) status = insert_record_row(database, "records", row);
  for (const auto& [arch, problem] : contents.asked) {
    if (!status.ok()) break;
    Statement insert(database, "INSERT INTO coverage(arch,problem,answer) VALUES (?,?,?)");
    insert.bind_text(arch).bind_text(problem).bind_text(contents.answer(arch, problem));
    insert.step();
    status = insert.status();
  }
  for (const auto& [key, value] : meta) {
    if (!status.ok()) break;
    Statement insert(database, "INSERT INTO meta(key,value) VALUES (?,?)");
    insert.bind_text(key).bind_text(value);
    insert.step();
    status = insert.status();
  }
  return status.ok() ? database.run("COMMIT") : status;
}

// Fields of the header that say how the file came about (SQLite file format, section 1.3): the change counter
// and the counter at which the size is valid must be equal, the version of the writing library is information.
constexpr size_t kHeaderBytes = 100;
void normalise_header(char* header) {
  constexpr size_t kChangeCounter = 24, kValidFor = 92, kLibrary = 96;
  constexpr uint32_t kOldestLibrary = 3037000;  // the first with STRICT tables
  llvm::support::endian::write32be(header + kChangeCounter, 1);
  llvm::support::endian::write32be(header + kValidFor, 1);
  llvm::support::endian::write32be(header + kLibrary, kOldestLibrary);
}

bool normalise_file(const std::string& path) {
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  char header[kHeaderBytes];
  if (!file.read(header, sizeof header)) return false;
  normalise_header(header);
  return bool(file.seekp(0)) && bool(file.write(header, sizeof header)) && bool(file.flush());
}

llvm::Error cannot_make(const SqlStatus& status) {
  return make_error(ErrorKind::kCache,
                    "the bundle cannot be made (" + status.text + "); export fewer problems or archs");
}

}  // namespace

llvm::Expected<std::string> bundle_image(const Contents& contents,
                                         const std::map<std::string, std::string>& meta) {
  Database database;
  std::string image;
  SqlStatus status = database.open_memory();
  if (status.ok()) status = fill(database, contents, meta);
  if (status.ok()) status = database.image(image);
  if (!status.ok() || image.size() < kHeaderBytes) return cannot_make(status);
  normalise_header(image.data());
  return image;
}

llvm::Error write_bundle(const std::string& path, const Contents& contents,
                         const std::map<std::string, std::string>& meta) {
  if (!is_bundle(path))
    return make_error(ErrorKind::kBadRequest,
                      "'" + path + "' is no name for a bundle; end it in .trigen, by which layers are known");
  SqlStatus status;
  std::string file;
  int error = output_file(path, file);
  if (error == 0 && file.empty()) {
    auto image = bundle_image(contents, meta);
    if (!image) return image.takeError();
    error = write_output(path, *image);
  } else if (error == 0) {
    // Straight into the file, for a base of a large fleet is larger than what memory has room for twice.
    error = write_whole_file(file, 0644, [&](const std::string& part) {
      Database database;
      llvm::SmallString<256> real;  // SQLite asks for the file by this name, and its guard knows no other
      if (llvm::sys::fs::real_path(part, real)) real = part;
      status = database.open(real.str().str(), OpenMode::kFill, 0);
      if (status.ok()) status = fill(database, contents, meta);
      database.close();
      return status.ok() && normalise_file(part);
    });
  }
  if (!status.ok()) return cannot_make(status);
  if (error != 0)
    return make_error(ErrorKind::kCache, "the bundle '" + path + "' cannot be written (" + errno_text(error) +
                                             "); nothing was left there; name a writable folder with room");
  return llvm::Error::success();
}

}  // namespace trigen::cache
