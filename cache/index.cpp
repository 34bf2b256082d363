#include "cache/index.h"

#include <sys/stat.h>

#include <cerrno>

#include "cache/lock.h"

namespace trigen::cache {
namespace {

// A process with one plan asks a layer some three times: reading a whole file for it would cost more.
constexpr int kAskedBefore = 3;
// The most that an index may cost: rows, and the bytes whose digests are checked (0.5 GB/s). Larger files are asked.
constexpr int64_t kMostRows = 20000, kMostBytes = int64_t{4} << 20;
constexpr int64_t kSettled = 50'000'000;  // ns

// Null: too large, or the file could not be read.
std::shared_ptr<const Index> read_index(CacheFile& layer,
                                        llvm::function_ref<void(const std::string&)> damaged) {
  auto index = std::make_shared<Index>();
  bool fits = true;
  const bool read = layer.read([&](Database& database) {
    *index = {};
    Statement size(database,
                   "SELECT (SELECT count(*) FROM records)+(SELECT count(*) FROM binaries),"
                   "(SELECT total(length(evidence)) FROM records)");
    if (!size.step()) return size.status();
    const int64_t rows = size.integer();
    fits = rows <= kMostRows && size.real() <= static_cast<double>(kMostBytes);
    if (!fits) return SqlStatus{};
    Statement records(database, (std::string("SELECT ") + kRecordColumns + " FROM records").c_str());
    records.allow_bytes(2 * kMostBytes);
    RecordRow row;
    std::string name;
    while (records.step()) {
      if (read_record_row(records, false, row, name) != RowState::kGood)
        damaged(name);
      else
        index->records[index_key(row.record.problem, row.record.arch)].push_back(std::move(row));
    }
    if (!records.status().ok()) return records.status();
    fits = !records.spent();
    Statement binaries(database, "SELECT key,source_hash,arch FROM binaries");
    binaries.allow_bytes(kMostBytes);
    while (binaries.step()) {
      index->binaries.insert(binaries.text());
      const std::string source = binaries.text();
      index->sources.insert(index_key(source, binaries.text()));
    }
    fits = fits && !binaries.spent();
    return binaries.status();
  });
  return read && fits ? index : nullptr;
}

}  // namespace

std::string index_key(llvm::StringRef first, llvm::StringRef second) {
  std::string key = first.str();
  key += '\n';
  key += second;
  return key;
}

FileIdentity FileIdentity::of(const std::string& path) {
  struct stat status = {};
  FileIdentity file;
  if (::stat(path.c_str(), &status) != 0)
    file.error = errno;
  else
    file = {status.st_dev, status.st_ino, status.st_size, status.st_mtim, status.st_ctim};
  return file;
}

bool FileIdentity::absent() const { return inode == 0 && (error == ENOENT || error == ENOTDIR); }

bool FileIdentity::operator==(const FileIdentity& other) const {
  const auto same = [](const timespec& a, const timespec& b) {
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
  };
  return device == other.device && inode == other.inode && bytes == other.bytes &&
         same(modified, other.modified) && same(changed, other.changed);
}

bool FileIdentity::settled() const {
  timespec now = {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  const auto age = [&](const timespec& time) {
    return (static_cast<int64_t>(now.tv_sec) - time.tv_sec) * 1'000'000'000 + now.tv_nsec - time.tv_nsec;
  };
  return age(modified) > kSettled && age(changed) > kSettled;
}

std::shared_ptr<const Index> IndexKeeper::get(CacheFile& layer,
                                              llvm::function_ref<void(const std::string&)> damaged) {
  static const auto kEmpty = std::make_shared<const Index>();
  const FileIdentity now = FileIdentity::of(layer.path());
  if (now.absent()) return kEmpty;
  {
    const Operation operation;
    if (!operation.allowed()) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!(now == file_)) {
      file_ = now;
      asked_ = 0;
      refused_ = false;
      index_.reset();
    }
    if (index_) return index_;
    if (now.inode == 0 || refused_ || busy_ || ++asked_ <= kAskedBefore || !now.settled()) return nullptr;
    busy_ = true;
  }
  std::shared_ptr<const Index> made = read_index(layer, damaged);
  // The file that was read is the one that was looked at?
  const bool same = FileIdentity::of(layer.path()) == now;
  const Operation operation;
  if (!operation.allowed()) return nullptr;
  const std::lock_guard<std::mutex> lock(mutex_);
  busy_ = false;
  if (!same || !(now == file_)) return nullptr;
  refused_ = made == nullptr;
  index_ = std::move(made);
  return index_;
}

void IndexKeeper::forget() {
  const Operation operation;
  if (!operation.allowed()) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  file_ = {};
  index_.reset();
}

KeptConnection::KeptConnection() {
  close_before_fork(this, [this] {
    const std::lock_guard<std::mutex> lock(mutex_);
    database_.reset();
  });
}

KeptConnection::~KeptConnection() {
  forget_before_fork(this);
  const Operation operation;
  if (operation.allowed())
    database_.reset();
  else
    (void)database_.release();  // in a child that was forked in the middle of an operation: not to be touched
}

std::unique_ptr<Database> KeptConnection::take(const ConnectionOf& wanted) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::unique_ptr<Database> taken = std::move(database_);
  if (taken == nullptr || !(of_ == wanted)) return nullptr;
  taken->resume();
  return taken;
}

void KeptConnection::give(std::unique_ptr<Database> database, const ConnectionOf& of) {
  database->rest();
  const std::lock_guard<std::mutex> lock(mutex_);
  database_ = std::move(database);
  of_ = of;
}

}  // namespace trigen::cache
