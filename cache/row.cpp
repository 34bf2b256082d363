#include "cache/row.h"

#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <ctime>
#include <limits>
#include <memory>

#include "cache/host.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

namespace trigen::cache {
namespace {

// SHA-256 over a list of fields, each with its length before it, so that no two lists give the same bytes.
class Digest {
 public:
  explicit Digest(llvm::StringRef domain) { add(domain); }
  Digest& add(llvm::StringRef field) {
    number(field.size());
    hash_.update(field);
    return *this;
  }
  Digest& add(int64_t value) {
    number(8);
    number(static_cast<uint64_t>(value));
    return *this;
  }
  Digest& add(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    return add(static_cast<int64_t>(bits));
  }
  std::string finish() {  // 32 bytes; LLVM 14 gives them as a StringRef, later ones as an array
    const auto hash = hash_.final();
    return std::string(hash.begin(), hash.end());
  }

 private:
  void number(uint64_t value) {
    uint8_t bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<uint8_t>(value >> (8 * i));
    hash_.update(llvm::ArrayRef<uint8_t>(bytes));
  }
  llvm::SHA256 hash_;
};

std::string binary_digest(const Binary& b, const PackedBinary& packed) {
  Digest digest("trigen binary 1");
  digest.add(b.key.source_hash).add(b.key.arch).add(b.key.compiler).add(b.key.options);
  digest.add(b.candidate).add(b.problem).add(b.entry);
  digest.add(int64_t{b.registers}).add(int64_t{b.spill_bytes}).add(int64_t{b.stack_bytes});
  digest.add(int64_t{b.static_shared}).add(b.stored_at);
  digest.add(packed.source).add(packed.cubin).add(packed.ptx).add(packed.log);
  return digest.finish();
}

std::string record_digest(const Record& r, bool sample, llvm::StringRef packed_evidence) {
  Digest digest(sample ? "trigen sample 1" : "trigen record 1");
  digest.add(r.problem).add(r.arch).add(r.device).add(int64_t{r.sms}).add(r.driver).add(r.candidate);
  digest.add(r.binary.source_hash).add(r.binary.arch).add(r.binary.compiler).add(r.binary.options);
  digest.add(static_cast<int64_t>(r.provenance)).add(r.median_us).add(r.error).add(r.stored_at);
  digest.add(packed_evidence);
  return digest.finish();
}

constexpr char kAhead[] =
    "is dated more than a day ahead of this machine's clock; correct the clock that is wrong, there or here, "
    "and make "
    "it anew";
constexpr char kNoFrame[] = "holds what does not unpack to what a cache takes; make it anew";

bool fits_int(int64_t value) {
  return value >= std::numeric_limits<int>::min() && value <= std::numeric_limits<int>::max();
}

SqlStatus insert_record(Database& database, const char* table, const Record& record, bool sample) {
  RecordRow row{record, pack(record.evidence), ""};
  if (row.record.stored_at == 0) row.record.stored_at = std::time(nullptr);
  row.record.median_us += 0.0;  // -0.0 is stored as 0.0
  row.record.error += 0.0;
  row.digest = record_digest(row.record, sample, row.evidence);
  return insert_record_row(database, table, row);
}

}  // namespace

// Small columns first, so that a look-up by index reads no page of a blob that it does not need.
const char* const kCreateSchema =
    "CREATE TABLE binaries(key TEXT NOT NULL UNIQUE,source_hash TEXT NOT NULL,arch TEXT NOT NULL,"
    "compiler TEXT NOT NULL,options TEXT NOT NULL,candidate TEXT NOT NULL,problem TEXT NOT NULL,"
    "entry TEXT NOT NULL,registers INTEGER NOT NULL,spill_bytes INTEGER NOT NULL,stack_bytes INTEGER NOT "
    "NULL,"
    "static_shared INTEGER NOT NULL,stored_at INTEGER NOT NULL,digest BLOB NOT NULL,cubin BLOB NOT NULL,"
    "ptx BLOB NOT NULL,source BLOB NOT NULL,log BLOB NOT NULL) STRICT;"
    "CREATE INDEX binaries_by_source ON binaries(source_hash,arch,stored_at);"
    "CREATE TABLE records(problem TEXT NOT NULL,arch TEXT NOT NULL,device TEXT NOT NULL,sms INTEGER NOT NULL,"
    "driver TEXT NOT NULL,candidate TEXT NOT NULL,source_hash TEXT NOT NULL,binary_arch TEXT NOT NULL,"
    "compiler TEXT NOT NULL,options TEXT NOT NULL,provenance INTEGER NOT NULL,median_us REAL NOT NULL,"
    "error REAL NOT NULL,stored_at INTEGER NOT NULL,digest BLOB NOT NULL,evidence BLOB NOT NULL,"
    "PRIMARY KEY(problem,arch,device,sms,driver)) STRICT;"
    "CREATE TABLE samples(problem TEXT NOT NULL,arch TEXT NOT NULL,device TEXT NOT NULL,sms INTEGER NOT NULL,"
    "driver TEXT NOT NULL,candidate TEXT NOT NULL,source_hash TEXT NOT NULL,binary_arch TEXT NOT NULL,"
    "compiler TEXT NOT NULL,options TEXT NOT NULL,provenance INTEGER NOT NULL,median_us REAL NOT NULL,"
    "error REAL NOT NULL,stored_at INTEGER NOT NULL,digest BLOB NOT NULL,evidence BLOB NOT NULL,"
    "PRIMARY KEY(problem,arch,device,candidate)) STRICT;";

// The problems asked for and what answers them ("measured", "predicted", "none"); who made the bundle.
const char* const kCreateBundleSchema =
    "CREATE TABLE coverage(arch TEXT NOT NULL,problem TEXT NOT NULL,answer TEXT NOT NULL,"
    "PRIMARY KEY(arch,problem)) STRICT;"
    "CREATE TABLE meta(key TEXT PRIMARY KEY,value TEXT NOT NULL) STRICT;";

const char* const kCreateFindings =
    "CREATE TABLE findings(kind INTEGER NOT NULL,name TEXT NOT NULL,device TEXT NOT NULL,"
    "driver TEXT NOT NULL,value INTEGER NOT NULL,text TEXT NOT NULL,stored_at INTEGER NOT NULL,digest BLOB "
    "NOT NULL,"
    "PRIMARY KEY(kind,name,device,driver)) STRICT";

const char* const kBinaryColumns =
    "key,source_hash,arch,compiler,options,candidate,problem,entry,registers,spill_bytes,stack_bytes,"
    "static_shared,stored_at,digest,cubin,ptx,source,log";
#define TRIGEN_RECORD_HEAD                                                                                  \
  "problem,arch,device,sms,driver,candidate,source_hash,binary_arch,compiler,options,provenance,median_us," \
  "error,stored_at,digest"
const char* const kRecordHead = TRIGEN_RECORD_HEAD;
const char* const kRecordColumns = TRIGEN_RECORD_HEAD ",evidence";

SchemaFit fit_schema(Database& database, bool bundle, SqlStatus& status, std::string& what) {
  // sqlite_schema keeps the text of each statement as it was given.
  llvm::SmallVector<llvm::StringRef, 8> missing;
  llvm::StringRef(kCreateSchema).split(missing, ';', -1, /*KeepEmpty=*/false);
  if (bundle) llvm::StringRef(kCreateBundleSchema).split(missing, ';', -1, /*KeepEmpty=*/false);
  SchemaFit fit = SchemaFit::kOurs;
  Statement select(database, "SELECT sql,type,name FROM sqlite_schema WHERE sql IS NOT NULL");
  select.allow_bytes(kMostTextBytes);
  while (select.step()) {
    const std::string sql = select.text(), type = select.text(), name = select.text();
    if (auto* const ours = llvm::find(missing, sql); ours != missing.end()) {
      missing.erase(ours);
      continue;
    }
    if (sql == kCreateFindings) continue;
    const bool statistics = type == "table" && llvm::StringRef(name).startswith("sqlite_stat");
    const bool index = type == "index" && llvm::StringRef(sql).startswith_insensitive("create index");
    if (statistics || index) continue;
    fit = SchemaFit::kHolds;
    what = "it holds a " + type.substr(0, 16) + " '" + name.substr(0, 64) + "' that trigen did not make";
  }
  status = select.status();
  for (llvm::StringRef statement : missing) {
    if (!statement.startswith("CREATE TABLE")) continue;
    what = "its tables are not those of schema " + std::to_string(kSchemaVersion);
    return SchemaFit::kLacks;
  }
  return fit;
}

std::string pack(llvm::StringRef bytes) {
  std::string packed(ZSTD_compressBound(bytes.size()), '\0');
  const size_t size = ZSTD_compress(packed.data(), packed.size(), bytes.data(), bytes.size(), 3);
  // Cannot fail with a buffer of the bound's size, short of memory; an empty frame is no frame and reads as
  // damaged.
  packed.resize(ZSTD_isError(size) ? 0 : size);
  return packed;
}

std::optional<std::string> unpack(llvm::StringRef packed, int64_t most) {
  const unsigned long long size = ZSTD_getFrameContentSize(packed.data(), packed.size());
  if (size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR ||
      size > static_cast<unsigned long long>(most))
    return std::nullopt;
  // Making zstd's working memory (160 KB) takes longer than a record's evidence does.
  thread_local const std::unique_ptr<ZSTD_DCtx, decltype(&ZSTD_freeDCtx)> context(ZSTD_createDCtx(),
                                                                                  &ZSTD_freeDCtx);
  if (context == nullptr) return std::nullopt;
  std::string bytes(size, '\0');
  const size_t got =
      ZSTD_decompressDCtx(context.get(), bytes.data(), bytes.size(), packed.data(), packed.size());
  if (ZSTD_isError(got) || got != size) return std::nullopt;
  return bytes;
}

std::string unpack_evidence(llvm::StringRef packed) {
  constexpr int64_t kMostTimes = 256, kShort = 16 << 10;  // a short text has no size that could matter
  const int64_t most = kShort + kMostTimes * static_cast<int64_t>(packed.size());
  return unpack(packed, std::min(kMostTextBytes, most)).value_or("");
}

RowState read_binary_row(Statement& row, BinaryRow& out, std::string& name) {
  const std::string key = row.text();
  name = "binary " + key.substr(0, 16);
  out = {};
  Binary& b = out.binary;
  b.key.source_hash = row.text();
  b.key.arch = row.text();
  b.key.compiler = row.text();
  b.key.options = row.text();
  b.candidate = row.text();
  b.problem = row.text();
  b.entry = row.text();
  const int64_t registers = row.integer(), spills = row.integer(), stack = row.integer(),
                shared = row.integer();
  b.stored_at = row.integer();
  out.digest = row.blob();
  out.packed.cubin = row.blob();
  out.packed.ptx = row.blob();
  out.packed.source = row.blob();
  out.packed.log = row.blob();
  if (!fits_int(registers) || !fits_int(spills) || !fits_int(stack) || !fits_int(shared))
    return RowState::kDamaged;
  b.registers = static_cast<int>(registers);
  b.spill_bytes = static_cast<int>(spills);
  b.stack_bytes = static_cast<int>(stack);
  b.static_shared = static_cast<int>(shared);
  return out.digest == binary_digest(b, out.packed) && key == b.key.digest() ? RowState::kGood
                                                                             : RowState::kDamaged;
}

RowState read_binary(Statement& row, Unpack what, Binary& b, std::string& name, int64_t& cubin_bytes) {
  BinaryRow read;
  if (read_binary_row(row, read, name) != RowState::kGood) return RowState::kDamaged;
  b = std::move(read.binary);
  b.digest = llvm::toHex(read.digest, /*LowerCase=*/true);
  const PackedBinary& packed = read.packed;
  const unsigned long long size = ZSTD_getFrameContentSize(packed.cubin.data(), packed.cubin.size());
  if (size > static_cast<unsigned long long>(kMostCodeBytes)) return RowState::kDamaged;  // or no frame
  cubin_bytes = static_cast<int64_t>(size);
  if (what == Unpack::kNothing) return RowState::kGood;
  auto cubin = unpack(packed.cubin, kMostCodeBytes);
  if (!cubin) return RowState::kDamaged;
  b.cubin = std::move(*cubin);
  if (what == Unpack::kCubin) return RowState::kGood;
  auto ptx = unpack(packed.ptx, kMostCodeBytes);
  if (!ptx) return RowState::kDamaged;
  b.ptx = std::move(*ptx);
  b.source = unpack(packed.source, kMostTextBytes).value_or("");
  b.log = unpack(packed.log, kMostTextBytes).value_or("");
  return RowState::kGood;
}

bool read_record_head(Statement& row, Record& r, std::string& digest) {
  r.problem = row.text();
  r.arch = row.text();
  r.device = row.text();
  const int64_t sms = row.integer();
  r.driver = row.text();
  r.candidate = row.text();
  r.binary.source_hash = row.text();
  r.binary.arch = row.text();
  r.binary.compiler = row.text();
  r.binary.options = row.text();
  const int64_t provenance = row.integer();
  r.median_us = row.real();
  r.error = row.real();
  r.stored_at = row.integer();
  digest = row.blob();
  if (!fits_int(sms) || provenance < 0 || provenance > static_cast<int>(Provenance::kMeasured)) return false;
  r.sms = static_cast<int>(sms);
  r.provenance = static_cast<Provenance>(provenance);
  return true;
}

RowState read_record_row(Statement& row, bool sample, RecordRow& out, std::string& name) {
  out = {};
  const Record& r = out.record;
  const bool fits = read_record_head(row, out.record, out.digest);
  out.evidence = row.blob();
  name = std::string(sample ? "sample" : "record") + " of " + r.problem.substr(0, 200) + " on " +
         r.arch.substr(0, 20);
  return fits && out.digest == record_digest(r, sample, out.evidence) ? RowState::kGood : RowState::kDamaged;
}

RowState read_record(Statement& row, Unpack what, bool sample, Record& r, std::string& name) {
  RecordRow read;
  const RowState state = read_record_row(row, sample, read, name);
  r = std::move(read.record);
  if (state == RowState::kGood && what == Unpack::kAll) r.evidence = unpack_evidence(read.evidence);
  return state;
}

std::string refuse_row(const BinaryRow& row) {
  if (row.binary.stored_at > latest_date()) return kAhead;
  Binary whole = row.binary;
  const PackedBinary& packed = row.packed;
  for (const auto& [from, to, most] : {std::tuple(&packed.cubin, &whole.cubin, kMostCodeBytes),
                                       {&packed.ptx, &whole.ptx, kMostCodeBytes},
                                       {&packed.source, &whole.source, kMostTextBytes},
                                       {&packed.log, &whole.log, kMostTextBytes}}) {
    auto bytes = unpack(*from, most);
    if (!bytes) return kNoFrame;
    *to = std::move(*bytes);
  }
  return refuse_binary(whole);
}

std::string refuse_row(const RecordRow& row) {
  if (row.record.stored_at > latest_date()) return kAhead;
  auto evidence = unpack(row.evidence, kMostTextBytes);
  return evidence ? refuse_record(row.record) : kNoFrame;
}

void set_stored_at(BinaryRow& row, int64_t seconds) {
  row.binary.stored_at = seconds;
  row.digest = binary_digest(row.binary, row.packed);
}

void set_stored_at(RecordRow& row, int64_t seconds) {
  row.record.stored_at = seconds;
  row.digest = record_digest(row.record, /*sample=*/false, row.evidence);
}

SqlStatus insert_binary_row(Database& database, const BinaryRow& row) {
  const Binary& b = row.binary;
  const std::string key = b.key.digest();
  const std::string sql = std::string("INSERT OR REPLACE INTO binaries (") + kBinaryColumns +
                          ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
  Statement insert(database, sql.c_str());
  insert.bind_text(key).bind_text(b.key.source_hash).bind_text(b.key.arch).bind_text(b.key.compiler);
  insert.bind_text(b.key.options).bind_text(b.candidate).bind_text(b.problem).bind_text(b.entry);
  insert.bind_int(b.registers).bind_int(b.spill_bytes).bind_int(b.stack_bytes).bind_int(b.static_shared);
  insert.bind_int(b.stored_at).bind_blob(row.digest).bind_blob(row.packed.cubin).bind_blob(row.packed.ptx);
  insert.bind_blob(row.packed.source).bind_blob(row.packed.log);
  insert.step();
  return insert.status();
}

SqlStatus insert_record_row(Database& database, const char* table, const RecordRow& row) {
  const Record& r = row.record;
  const std::string sql = std::string("INSERT OR REPLACE INTO ") + table + " (" + kRecordColumns +
                          ") VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)";
  Statement insert(database, sql.c_str());
  insert.bind_text(r.problem).bind_text(r.arch).bind_text(r.device).bind_int(r.sms).bind_text(r.driver);
  insert.bind_text(r.candidate).bind_text(r.binary.source_hash).bind_text(r.binary.arch);
  insert.bind_text(r.binary.compiler).bind_text(r.binary.options);
  insert.bind_int(static_cast<int>(r.provenance)).bind_real(r.median_us).bind_real(r.error);
  insert.bind_int(r.stored_at).bind_blob(row.digest).bind_blob(row.evidence);
  insert.step();
  return insert.status();
}

std::string refuse_binary(const Binary& b) {
  if (b.key.source_hash.empty() || b.key.arch.empty())
    return "a binary without source hash or arch cannot be found again; fill BinaryKey";
  if (b.cubin.empty() && b.ptx.empty()) return "a binary needs a cubin or PTX, this one has neither";
  const int64_t bytes = static_cast<int64_t>(b.cubin.size() + b.ptx.size() + b.source.size() + b.log.size());
  if (bytes > kMaxFieldBytes / 2)
    return "a binary of " + std::to_string(bytes) + " B, at most " + std::to_string(kMaxFieldBytes / 2) +
           " B are stored; compile without debug information";
  if (static_cast<int64_t>(std::max(b.source.size(), b.log.size())) > kMostTextBytes)
    return "a binary with a source or log of more than " + std::to_string(kMostTextBytes) +
           " B, which is the most that is stored; compile without debug information";
  return {};
}

std::string refuse_record(const Record& r) {
  if (r.problem.empty() || r.arch.empty()) return "a record needs a problem and an arch";
  if (std::isnan(r.median_us) || std::isnan(r.error))
    return "a record's median_us and error must be numbers, found nan";
  if (static_cast<int64_t>(r.evidence.size()) > kMostTextBytes)
    return "evidence of " + std::to_string(r.evidence.size()) + " B, at most " +
           std::to_string(kMostTextBytes) + " B are stored; keep fewer samples";
  return {};
}

SqlStatus put_binary_row(Database& database, const Binary& binary) {
  BinaryRow row;
  row.packed = {pack(binary.source), pack(binary.cubin), pack(binary.ptx), pack(binary.log)};
  row.binary = binary;
  if (row.binary.stored_at == 0) row.binary.stored_at = std::time(nullptr);
  row.digest = binary_digest(row.binary, row.packed);
  return insert_binary_row(database, row);
}

SqlStatus put_record_row(Database& database, const Record& r) {
  // The provenance of the rows that are there counts only where their digest does: a damaged row protects
  // nothing.
  if (r.provenance == Provenance::kPredicted && !r.device.empty()) {
    const std::string sql =
        std::string("SELECT ") + kRecordColumns + " FROM records WHERE problem=? AND arch=? AND device=?";
    Statement select(database, sql.c_str());
    select.bind_text(r.problem).bind_text(r.arch).bind_text(r.device);
    Record found;
    std::string name;
    while (select.step())
      if (read_record(select, Unpack::kNothing, false, found, name) == RowState::kGood &&
          found.provenance == Provenance::kMeasured)
        return {};
    if (!select.status().ok()) return select.status();
  }
  if (r.provenance == Provenance::kMeasured) {
    Statement erase(
        database,
        "DELETE FROM records WHERE problem=? AND arch=? AND (device=? OR device='') AND provenance=0");
    erase.bind_text(r.problem).bind_text(r.arch).bind_text(r.device);
    erase.step();
    if (!erase.status().ok()) return erase.status();
  }
  return insert_record(database, "records", r, false);
}

SqlStatus put_sample_row(Database& database, const Record& sample) {
  return insert_record(database, "samples", sample, true);
}

std::string finding_digest(const Finding& f) {
  Digest digest("trigen finding 1");
  digest.add(static_cast<int64_t>(f.kind)).add(f.name).add(f.device).add(f.driver);
  digest.add(f.value).add(f.text).add(f.stored_at);
  return digest.finish();
}

std::string name_digest(llvm::StringRef name) {
  Digest digest("trigen name 1");
  return llvm::toHex(digest.add(name).finish(), /*LowerCase=*/true);
}

}  // namespace trigen::cache

namespace trigen {

std::string BinaryKey::digest() const {
  cache::Digest digest("trigen key 1");
  return llvm::toHex(digest.add(source_hash).add(arch).add(compiler).add(options).finish(),
                     /*LowerCase=*/true);
}

}  // namespace trigen
