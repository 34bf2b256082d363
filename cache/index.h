// The index of a layer's file, kept for as long as the file stays as it is: in memory the keys of its binaries and
// its records, each checked, and for a read-only file its connection. A look-up in memory costs a stat() of the
// file, where a connection costs 0.1 ms.
#pragma once

#include <ctime>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cache/database.h"
#include "cache/row.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen::cache {

struct Index {
  std::unordered_map<std::string, std::vector<RecordRow>> records;  // by index_key(problem, arch)
  std::unordered_set<std::string> binaries;                         // BinaryKey::digest()
  std::unordered_set<std::string> sources;                          // index_key(source hash, arch)
};
std::string index_key(llvm::StringRef first, llvm::StringRef second);

// A file as stat() knows it. Every change of a file changes one of these, but for two within the clock tick
// of the file system.
struct FileIdentity {
  uint64_t device = 0, inode = 0;
  int64_t bytes = 0;
  timespec modified = {}, changed = {};
  int error = 0;  // of stat(), where there is no inode; not compared
  static FileIdentity of(const std::string& path);
  bool absent() const;
  bool operator==(const FileIdentity& other) const;
  // A file system's clock may tick every 10 ms: a file that changed just now may change again unseen.
  bool settled() const;
};

// One layer's index: made once a process has asked that file a few times, dropped when the file changes.
class IndexKeeper {
 public:
  // Null: ask the file. One without rows where there is none.
  std::shared_ptr<const Index> get(CacheFile& layer, llvm::function_ref<void(const std::string&)> damaged);
  // After a put of this process.
  void forget();

 private:
  std::mutex mutex_;
  FileIdentity file_;
  int asked_ = 0;
  bool refused_ = false, busy_ = false;
  std::shared_ptr<const Index> index_;
};

// A connection's source: a file as it was when it was opened, or its bytes in memory.
struct ConnectionOf {
  FileIdentity file;
  const void* image = nullptr;
  bool operator==(const ConnectionOf& other) const { return image == other.image && file == other.file; }
};

// The connection to a layer without writers, kept between look-ups: opening one and reading its schema takes
// longer than a look-up. A connection in use is not here; a second thread opens its own. Used within an Operation.
class KeptConnection {
 public:
  KeptConnection();
  ~KeptConnection();
  KeptConnection(const KeptConnection&) = delete;
  KeptConnection& operator=(const KeptConnection&) = delete;
  // Null: none is here that reads that. One that reads something else is closed.
  std::unique_ptr<Database> take(const ConnectionOf& wanted);
  void give(std::unique_ptr<Database> database, const ConnectionOf& of);

 private:
  std::mutex mutex_;
  std::unique_ptr<Database> database_;
  ConnectionOf of_;
};

}  // namespace trigen::cache
