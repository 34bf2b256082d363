// SQLite's system calls in our copy of it: what it may open and delete for a layer, and its locks.
#pragma once

#include <string>

#include "cache/trust.h"

namespace trigen::cache {

// While one exists, this thread's SQLite opens nothing but the layer, its journal, write-ahead log and shared
// memory, their folder, and temporary files that it makes itself; each is judged through its descriptor
// (cache/trust.h) and never waited for. It deletes none but the layer's journal and log and its own temporary
// files. What a journal or a schema names beyond that is refused.
class Guard {
 public:
  Guard() = default;
  ~Guard() { leave(); }
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;
  void enter(const std::string& layer, FilePart part);
  void leave();
  void resume();  // what enter() said, for the thread that calls
  // What was refused since enter(), "" if nothing: "'/x/c.db-journal' is not a regular file".
  const std::string& refusal() const { return refusal_; }

  int open(const char* path, int flags, int mode);
  int unlink(const char* path);

 private:
  int refuse(const std::string& path, const std::string& reason);
  std::string layer_, folder_, refusal_;
  FilePart part_ = FilePart::kLayer;
};

// The layer's companions: suffixes of its path.
constexpr const char* kBesideSuffixes[] = {"-journal", "-wal", "-shm"};
// "" or the first companion that is not to be trusted, in words, by a look at the path.
std::string distrust_of_companions(const std::string& layer);

// Puts our system calls into SQLite's table, once.
void replace_system_calls();

}  // namespace trigen::cache
