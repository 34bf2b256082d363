// The connection to a layer that nobody writes, kept between look-ups: to open one and to read its schema takes
// longer than a look-up. One that is in use is not here; a second thread opens its own.
#pragma once

#include <memory>
#include <mutex>

#include "cache/database.h"
#include "cache/index.h"

namespace trigen::cache {

// What a connection reads: a file as it was when it was opened, or its bytes in memory.
struct ConnectionOf {
  FileIdentity file;
  const void* image = nullptr;
  bool operator==(const ConnectionOf& other) const { return image == other.image && file == other.file; }
};

// Used within an Operation.
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
