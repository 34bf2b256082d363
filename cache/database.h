// One SQLite connection and its statements: short-lived, or kept between look-ups (cache/index.h). No policy: codes
// go up as they are, cache/verdict.h judges them.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include "cache/trust.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace trigen::cache {

struct SqlStatus {
  int code = 0;   // SQLite's extended result code
  int error = 0;  // errno of the failed system call, 0 if none
  std::string text;
  bool refused = false;  // by the guard: text says which file is not to be trusted
  bool ok() const { return code == 0; }
  int primary() const { return code & 0xff; }
};

// A field, statement or file that is larger than this is refused before it is read: 64 MiB.
constexpr int64_t kMaxFieldBytes = int64_t{64} << 20;

// kFill: an empty file that no other process knows of yet: no locks, no journal on the disk.
enum class OpenMode { kReadWrite, kReadOnly, kImmutable, kFill };

// The facts of a file's first 100 bytes (SQLite file format, section 1.3), read through SQLite's own
// descriptor: opening and closing the file beside it would drop its locks.
struct FileHeader {
  int64_t size = 0;
  bool sqlite = false;  // starts with "SQLite format 3\0"
  bool wal = false;     // somebody switched it to write-ahead logging
  uint32_t application_id = 0;
  uint32_t user_version = 0;
};

class Database {
 public:
  Database() = default;
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  // Hardened: no extensions, triggers, views or double-quoted strings, defensive, schema not trusted, lowered
  // limits.
  SqlStatus open(const std::string& path, OpenMode mode, int busy_ms);
  // The same for a database in memory, to be read.
  SqlStatus open_image(std::string image);
  // The same for bytes that others read, too, and that stay as long as this does.
  SqlStatus open_shared_image(const std::string& image);
  // An empty one in memory, to be filled; image() is its bytes as a file.
  SqlStatus open_memory();
  SqlStatus image(std::string& bytes) const;
  void close();
  SqlStatus run(const char* sql);
  SqlStatus vacuum();
  // SQLite's check of every page, for files that others made; damage where one is used twice.
  SqlStatus check_pages();
  static SqlStatus damage(std::string text);
  SqlStatus status(int code) const;
  FileHeader header() const;
  sqlite3* handle() const { return handle_; }

  // To be used again later, by any thread: statements stay prepared, the pages that were read are let go.
  void rest();
  void resume() { guard_.resume(); }

 private:
  friend class Statement;
  SqlStatus harden(int busy_ms);
  // A statement that an earlier one left here, or a new one.
  sqlite3_stmt* prepare(const std::string& sql, SqlStatus& status);
  void put_back(const std::string& sql, sqlite3_stmt* statement);
  std::map<std::string, sqlite3_stmt*> idle_;  // prepared, by their texts
  sqlite3* handle_ = nullptr;
  Guard guard_;
  std::string image_;
};

// Parameters and columns count from 1 and 0, as SQLite's do; bind() and the readers step through them in
// order.
class Statement {
 public:
  Statement(Database& database, const char* sql);
  ~Statement();
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // The texts must outlive the steps.
  Statement& bind_text(llvm::StringRef value);
  Statement& bind_blob(llvm::StringRef value);
  Statement& bind_int(int64_t value);
  Statement& bind_real(double value);

  bool step();  // true: a row is there
  const SqlStatus& status() const { return status_; }

  // The next column of the row, "" or 0 where its type is another.
  std::string text();
  std::string blob();
  int64_t integer();
  double real();
  int64_t bytes_read() const { return bytes_read_; }  // of the row's texts and blobs so far
  // Limit of all rows together: texts and blobs past it are read as "", so that their rows' digests do not fit.
  void allow_bytes(int64_t bytes) { allowed_bytes_ = bytes; }
  bool spent() const { return allowed_bytes_ < 0; }
  int64_t bytes_left() const { return allowed_bytes_; }

 private:
  std::string bytes(int type);
  Database& database_;
  const std::string sql_;
  SqlStatus status_;
  sqlite3_stmt* statement_ = nullptr;
  int parameter_ = 0;
  int column_ = 0;
  int64_t bytes_read_ = 0;
  int64_t allowed_bytes_ = std::numeric_limits<int64_t>::max();
};

// An operation on a cache file, and the file as index and findings see it: a Layer (cache/layer.h).
using Work = llvm::function_ref<SqlStatus(Database&)>;
class CacheFile {
 public:
  virtual ~CacheFile() = default;
  virtual const std::string& path() const = 0;
  // Opens, checks, runs `work`, closes. False when the file cannot be read, which is logged.
  virtual bool read(Work work) = 0;
  // In one transaction, in a file that is made when it is not there.
  virtual llvm::Error write(Work work) = 0;
};

// A layer whose writer died in the middle of a put, for readers that may not write: the bytes of the layer as SQLite's
// rollback of its journal would leave them; neither file is touched.
// "" when `image` has them, else why not.
std::string read_behind_journal(const std::string& layer, FilePart part, std::string& image);

}  // namespace trigen::cache
