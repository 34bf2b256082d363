#include "cache/database.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>

#include "cache/host.h"
#include "cache/trust.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Endian.h"

namespace trigen::cache {
namespace {

// SQLite's URI form of a path: '%', '?' and '#' are escaped, an absolute path needs no more.
std::string to_uri(const std::string& path, OpenMode mode) {
  std::string uri = "file:";
  for (char c : path) {
    switch (c) {
      case '%':
        uri += "%25";
        break;
      case '?':
        uri += "%3f";
        break;
      case '#':
        uri += "%23";
        break;
      default:
        uri += c;
    }
  }
  switch (mode) {
    case OpenMode::kReadWrite:
      return uri + "?mode=rw";
    case OpenMode::kReadOnly:
      return uri + "?mode=ro";
    case OpenMode::kFill:
      return uri + "?mode=rw&nolock=1";
    case OpenMode::kImmutable:
      return uri + "?mode=ro&immutable=1";
  }
  return uri;
}

struct Limit {
  int id, value;
};
constexpr Limit kLimits[] = {
    {SQLITE_LIMIT_LENGTH, static_cast<int>(kMaxFieldBytes)},
    {SQLITE_LIMIT_SQL_LENGTH, 64 << 10},
    {SQLITE_LIMIT_COLUMN, 40},
    {SQLITE_LIMIT_EXPR_DEPTH, 20},
    {SQLITE_LIMIT_COMPOUND_SELECT, 3},
    {SQLITE_LIMIT_VDBE_OP, 25000},
    {SQLITE_LIMIT_FUNCTION_ARG, 8},
    {SQLITE_LIMIT_ATTACHED, 0},
    {SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 64},
    {SQLITE_LIMIT_VARIABLE_NUMBER, 32},
    {SQLITE_LIMIT_TRIGGER_DEPTH, 1},
    {SQLITE_LIMIT_WORKER_THREADS, 0},
};

struct Switch {
  int id, value;
};
constexpr Switch kSwitches[] = {
    {SQLITE_DBCONFIG_DEFENSIVE, 1},
    {SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0},
    {SQLITE_DBCONFIG_ENABLE_TRIGGER, 0},
    {SQLITE_DBCONFIG_ENABLE_VIEW, 0},
    {SQLITE_DBCONFIG_DQS_DML, 0},
    {SQLITE_DBCONFIG_DQS_DDL, 0},
    {SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 0},
};

uint32_t big_endian(const unsigned char* bytes) {
  return static_cast<uint32_t>(bytes[0]) << 24 | static_cast<uint32_t>(bytes[1]) << 16 |
         static_cast<uint32_t>(bytes[2]) << 8 | static_cast<uint32_t>(bytes[3]);
}

}  // namespace

Database::~Database() { close(); }

void Database::close() {
  for (const auto& [sql, statement] : idle_) sqlite3_finalize(statement);
  idle_.clear();
  sqlite3_close_v2(handle_);
  handle_ = nullptr;
  guard_.leave();
}

SqlStatus Database::status(int code) const {
  if (code == SQLITE_OK || code == SQLITE_ROW || code == SQLITE_DONE) return {};
  SqlStatus status;
  status.code = code;
  status.text = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  const int primary = code & 0xff;
  if (!guard_.refusal().empty()) {
    status.text = guard_.refusal();
    status.refused = true;
    return status;
  }
  if (handle_ != nullptr && (primary == SQLITE_CANTOPEN || primary == SQLITE_IOERR || primary == SQLITE_FULL))
    status.error = sqlite3_system_errno(handle_);
  // A failed COMMIT leaves no errno there; the file remembers its own.
  if (handle_ != nullptr && primary == SQLITE_IOERR && status.error == 0)
    sqlite3_file_control(handle_, "main", SQLITE_FCNTL_LAST_ERRNO, &status.error);
  return status;
}

SqlStatus Database::open(const std::string& path, OpenMode mode, int busy_ms) {
  close();
  replace_system_calls();
  guard_.enter(path, mode == OpenMode::kImmutable ? FilePart::kShipped : FilePart::kLayer);
  const bool writes = mode == OpenMode::kReadWrite || mode == OpenMode::kFill;
  const int flags = (writes ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY) | SQLITE_OPEN_URI |
                    SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  int code = sqlite3_open_v2(to_uri(path, mode).c_str(), &handle_, flags, nullptr);
  if (code != SQLITE_OK) return status(code);
  SqlStatus hardened = harden(busy_ms);
  if (mode != OpenMode::kFill || !hardened.ok()) return hardened;
  return run("PRAGMA journal_mode=MEMORY;PRAGMA synchronous=OFF;PRAGMA cache_size=-65536");
}

SqlStatus Database::open_image(std::string image) {
  close();
  image_ = std::move(image);
  return open_shared_image(image_);
}

SqlStatus Database::open_shared_image(const std::string& image) {
  close();
  replace_system_calls();
  int code = sqlite3_open_v2(":memory:", &handle_,
                             SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  if (code == SQLITE_OK)
    // Read only: SQLite writes nothing into it.
    code = sqlite3_deserialize(
        handle_, "main", const_cast<unsigned char*>(reinterpret_cast<const unsigned char*>(image.data())),
        static_cast<sqlite3_int64>(image.size()), static_cast<sqlite3_int64>(image.size()),
        SQLITE_DESERIALIZE_READONLY);
  return code == SQLITE_OK ? harden(0) : status(code);
}

SqlStatus Database::open_memory() {
  close();
  const int code = sqlite3_open_v2(
      ":memory:", &handle_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  return code == SQLITE_OK ? harden(0) : status(code);
}

SqlStatus Database::image(std::string& bytes) const {
  sqlite3_int64 size = 0;
  unsigned char* const data = sqlite3_serialize(handle_, "main", &size, 0);
  if (data == nullptr) return status(SQLITE_NOMEM);
  bytes.assign(reinterpret_cast<const char*>(data), static_cast<size_t>(size));
  sqlite3_free(data);
  return {};
}

SqlStatus Database::harden(int busy_ms) {
  for (const Limit& limit : kLimits) sqlite3_limit(handle_, limit.id, limit.value);
  for (const Switch& one : kSwitches) sqlite3_db_config(handle_, one.id, one.value, nullptr);
  sqlite3_busy_timeout(handle_, busy_ms);
  return run("PRAGMA mmap_size=0; PRAGMA cell_size_check=ON");
}

void Database::rest() {
  sqlite3_db_release_memory(handle_);
  guard_.leave();
}

sqlite3_stmt* Database::prepare(const std::string& sql, SqlStatus& status) {
  if (const auto at = idle_.find(sql); at != idle_.end()) {
    sqlite3_stmt* const statement = at->second;
    idle_.erase(at);
    return statement;
  }
  sqlite3_stmt* statement = nullptr;
  status = this->status(sqlite3_prepare_v2(handle_, sql.c_str(), -1, &statement, nullptr));
  return statement;
}

void Database::put_back(const std::string& sql, sqlite3_stmt* statement) {
  if (statement == nullptr) return;
  sqlite3_reset(statement);
  sqlite3_clear_bindings(statement);
  if (!idle_.emplace(sql, statement).second) sqlite3_finalize(statement);  // two of one text were in use
}

SqlStatus Database::vacuum() {
  sqlite3_limit(handle_, SQLITE_LIMIT_ATTACHED, 1);  // the copy that it writes back
  SqlStatus status = run("PRAGMA synchronous=FULL;VACUUM");
  sqlite3_limit(handle_, SQLITE_LIMIT_ATTACHED, 0);
  return status;
}

SqlStatus Database::check_pages() {
  Statement check(*this, "PRAGMA quick_check(1)");
  if (!check.step()) return check.status();
  std::string found = check.text();
  return found == "ok" ? SqlStatus() : damage(std::move(found));
}

SqlStatus Database::damage(std::string text) {
  SqlStatus status;
  status.code = SQLITE_CORRUPT;
  status.text = std::move(text);
  return status;
}

SqlStatus Database::run(const char* sql) {
  return status(sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr));
}

FileHeader Database::header() const {
  FileHeader header;
  sqlite3_file* file = nullptr;
  if (sqlite3_file_control(handle_, "main", SQLITE_FCNTL_FILE_POINTER, &file) != SQLITE_OK ||
      file == nullptr || file->pMethods == nullptr)
    return header;
  sqlite3_int64 size = 0;
  if (file->pMethods->xFileSize(file, &size) != SQLITE_OK) return header;
  header.size = size;
  unsigned char bytes[100] = {};
  const int code = file->pMethods->xRead(file, bytes, sizeof bytes, 0);  // a short read fills with zeros
  if (code != SQLITE_OK && code != SQLITE_IOERR_SHORT_READ) return header;
  header.sqlite = std::memcmp(bytes, "SQLite format 3", 16) == 0;
  header.wal = bytes[18] == 2 || bytes[19] == 2;
  header.user_version = big_endian(bytes + 60);
  header.application_id = big_endian(bytes + 68);
  return header;
}

Statement::Statement(Database& database, const char* sql)
    : database_(database), sql_(sql), statement_(database.prepare(sql_, status_)) {}

Statement::~Statement() { database_.put_back(sql_, statement_); }

Statement& Statement::bind_text(llvm::StringRef value) {
  if (status_.ok())
    status_ =
        database_.status(sqlite3_bind_text64(statement_, ++parameter_, value.empty() ? "" : value.data(),
                                             value.size(), SQLITE_STATIC, SQLITE_UTF8));
  return *this;
}

Statement& Statement::bind_blob(llvm::StringRef value) {
  if (status_.ok())
    status_ = database_.status(sqlite3_bind_blob64(
        statement_, ++parameter_, value.empty() ? "" : value.data(), value.size(), SQLITE_STATIC));
  return *this;
}

Statement& Statement::bind_int(int64_t value) {
  if (status_.ok()) status_ = database_.status(sqlite3_bind_int64(statement_, ++parameter_, value));
  return *this;
}

Statement& Statement::bind_real(double value) {
  if (status_.ok()) status_ = database_.status(sqlite3_bind_double(statement_, ++parameter_, value));
  return *this;
}

bool Statement::step() {
  if (!status_.ok()) return false;
  column_ = 0;
  bytes_read_ = 0;
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code != SQLITE_DONE) status_ = database_.status(code);
  return false;
}

std::string Statement::bytes(int type) {
  const int column = column_++;
  if (sqlite3_column_type(statement_, column) != type) return {};
  const void* data = sqlite3_column_blob(statement_, column);
  const int size = sqlite3_column_bytes(statement_, column);
  bytes_read_ += size;
  if (allowed_bytes_ >= 0) allowed_bytes_ -= size;
  if (spent()) return {};
  return data == nullptr ? std::string()
                         : std::string(static_cast<const char*>(data), static_cast<size_t>(size));
}

std::string Statement::text() { return bytes(SQLITE_TEXT); }
std::string Statement::blob() { return bytes(SQLITE_BLOB); }

int64_t Statement::integer() {
  const int column = column_++;
  return sqlite3_column_type(statement_, column) == SQLITE_INTEGER ? sqlite3_column_int64(statement_, column)
                                                                   : 0;
}

double Statement::real() {
  const int column = column_++;
  return sqlite3_column_type(statement_, column) == SQLITE_FLOAT ? sqlite3_column_double(statement_, column)
                                                                 : 0;
}

namespace {

// Two of these are held in memory at once; a cache of 1000 binaries has 40 MB.
constexpr off_t kMostJournalBytes = off_t{256} << 20;

// The whole file, through the guard; `facts` of the opened one.
std::string read_whole(Guard& guard, const std::string& path, std::string& bytes, struct stat& facts) {
  const int descriptor = guard.open(path.c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (descriptor < 0)
    return guard.refusal().empty() ? "'" + path + "': " + errno_text(errno) : guard.refusal();
  ::fstat(descriptor, &facts);
  const std::string reason = read_descriptor(descriptor, kMostJournalBytes, bytes);
  ::close(descriptor);
  return reason.empty() ? "" : "'" + path + "': " + reason;
}

bool is_size(uint32_t value, uint32_t least) {
  return value >= least && value <= 65536 && (value & (value - 1)) == 0;
}

// SQLite's pager_playback() (file format, section 3): segments of a header and the pages as they were, each
// with a sum of every 200th byte; the first thing that does not fit ends it.
bool play_back(llvm::StringRef journal, std::string& image) {
  constexpr size_t kHeader = 28;
  constexpr char kMagic[] = "\xd9\xd5\x05\xf9\x20\xa1\x63\xd7";
  const auto number = [&](size_t at) { return llvm::support::endian::read32be(journal.data() + at); };
  uint32_t sector = 0, page = 0, pages = 0;
  for (size_t at = 0;;) {
    if (at > 0) at = (at + sector - 1) / sector * sector;
    if (at + kHeader > journal.size() || journal.substr(at, 8) != llvm::StringRef(kMagic, 8))
      return page != 0;
    uint32_t records = number(at + 8);
    const uint32_t seed = number(at + 12);
    if (at == 0) {
      pages = number(16), sector = number(20), page = number(24);
      if (!is_size(page, 512) || !is_size(sector, 32) ||
          static_cast<uint64_t>(pages) * page > static_cast<uint64_t>(kMostJournalBytes))
        return false;
      image.resize(static_cast<size_t>(pages) * page, '\0');
    }
    at += sector;
    const size_t record = page + 8, room = journal.size() > at ? (journal.size() - at) / record : 0;
    if (records == 0xffffffffu) records = static_cast<uint32_t>(room);
    for (uint32_t i = 0; i < records; ++i, at += record) {
      if (i >= room) return true;
      const uint32_t which = number(at);
      uint32_t sum = seed;
      for (size_t byte = page - 200; byte > 0 && byte < page; byte -= 200)
        sum += static_cast<unsigned char>(journal[at + 4 + byte]);
      if (which == 0 || which == (1u << 30) / page + 1 || sum != number(at + 4 + page)) return true;
      if (which <= pages)
        std::memcpy(image.data() + static_cast<size_t>(which - 1) * page, journal.data() + at + 4, page);
    }
  }
}

}  // namespace

std::string read_behind_journal(const std::string& layer, FilePart part, std::string& image) {
  const std::string path = layer + "-journal";
  Guard guard;
  guard.enter(layer, part);
  std::string journal;
  struct stat database_facts = {}, before = {}, after = {};
  std::string reason = read_whole(guard, path, journal, before);
  if (reason.empty()) reason = read_whole(guard, layer, image, database_facts);
  if (!reason.empty()) return reason;
  // A writer may have come meanwhile if the lock file could not be locked.
  if (::lstat(path.c_str(), &after) != 0 || after.st_ino != before.st_ino ||
      after.st_size != before.st_size || after.st_mtim.tv_sec != before.st_mtim.tv_sec ||
      after.st_mtim.tv_nsec != before.st_mtim.tv_nsec)
    return "it is being repaired at this moment";
  return play_back(journal, image) ? "" : "'" + path + "' has no header that fits";
}

}  // namespace trigen::cache
