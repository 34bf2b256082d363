// Trust in a file by its owner and place: who may have put it here. SQLite believes what lies beside a database: a journal is written back into
// it and the file that it names as its super-journal is deleted, so whoever may make files in a layer's
// folder owns the layer and the user's files. Every reason is "" for "trusted", else words that follow a
// path.
#pragma once

#include <string>

#include "llvm/ADT/ArrayRef.h"

namespace trigen::cache {

// Folders (separated by ':') that the user trusts although others may write to them; nothing above them is
// looked at. For volumes of containers, which are often of mode 0777.
constexpr char kTrustedFolders[] = "TRIGEN_TRUSTED_FOLDERS";

enum class FilePart {
  kLayer,    // a cache file
  kShipped,  // a cache file that is only read and has no journal
  kBeside,   // its journal, write-ahead log or shared memory: one link, never of an unknown owner
};
std::string distrust_of_file(int descriptor, FilePart part);

// "folder '/tmp' may be written by everybody (mode 1777)". The folder itself must be the user's or root's and
// writable by no other user; a folder above may be sticky, since no user can move another's folder out of it.
// A folder that is not there yet is judged by those above it.
std::string distrust_of_folder(const std::string& folder, FilePart part);

// For libraries that are searched for, not named: the file and the folders above it must belong to the user
// or root and not be writable by everybody. Folders above `code` (those of the running program and library)
// and their owners are trusted, because who may write there has this process already.
std::string distrust_of_library(const std::string& path, llvm::ArrayRef<std::string> code);

// SQLite's system calls in our copy: what it may open and delete for a layer.
//
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
  // The refusal since enter(), "" if nothing: "'/x/c.db-journal' is not a regular file".
  const std::string& refusal() const { return refusal_; }

  int open(const char* path, int flags, int mode);
  int unlink(const char* path);

 private:
  int refuse(const std::string& path, const std::string& reason);
  std::string layer_, folder_, refusal_;
  FilePart part_ = FilePart::kLayer;
};

// "" or the first companion that is not to be trusted, in words, by a look at the path.
std::string distrust_of_companions(const std::string& layer);

// Puts our system calls into SQLite's table, once.
void replace_system_calls();

}  // namespace trigen::cache
