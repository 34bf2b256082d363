// The host: environment, clock, paths, files and threads. Every folder above this one uses it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <optional>
#include <string>
#include <thread>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

// "" when unset, and in programs that have privileges their caller lacks (set-uid, file capabilities): there
// the caller's environment must not choose files to read or libraries to load.
inline std::string environment(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

// The same, where a variable that is set to nothing means something.
inline std::optional<std::string> environment_if_set(const char* name) {
  const char* value = ::secure_getenv(name);
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

// Dates (seconds since 1970) after this one, a day ahead of the clock, are not believed: such a date would win over
// every honest date until it comes.
inline int64_t latest_date() { return std::time(nullptr) + int64_t{86400}; }

// Set to "0", "false", "no" or "off" (any case).
inline bool environment_off(const char* name) {
  const std::string value = llvm::StringRef(environment(name)).trim().lower();
  return value == "0" || value == "false" || value == "no" || value == "off";
}

// Set, and to nothing of those: who writes TRIGEN_NO_JIT=2 means it.
inline bool environment_flag(const char* name) {
  return !llvm::StringRef(environment(name)).trim().empty() && !environment_off(name);
}

}  // namespace trigen

namespace trigen::cache {

std::string errno_text(int error);  // lower case, as libc words it
std::string folder_of(const std::string& path);
// The folder itself, or the nearest one above it that exists.
std::string existing_folder(const std::string& folder);
// The folder of the library or program that holds this code; "" when unknown. Links resolved.
const std::string& code_folder();
// Writes a whole file under another name beside it, syncs it and renames it into place, so that everybody sees
// the old file or the new one. 0 or errno; a failure leaves nothing behind.
int write_whole_file(const std::string& path, const std::string& bytes, int mode);
// The same of what `fill` makes in the empty file of that other name; false: nothing is renamed, ECANCELED.
int write_whole_file(const std::string& path, int mode, llvm::function_ref<bool(const std::string&)> fill);
// For an output that a user names: a link is followed to its target, nothing or a regular file is replaced as above,
// and a device or FIFO is written into. 0 or errno.
int write_output(const std::string& path, const std::string& bytes);
// The file that such an output makes or replaces, "" where it writes into what is there. 0 or errno.
int output_file(const std::string& path, std::string& file);
// A text that a user names: a file, a FIFO or, as "-", standard input; zstd's are unpacked. Of at most 64 MiB, for /dev/zero and others'
// FIFOs have no end. The error: "cannot read <what><path>: <reason>; <next>".
llvm::Expected<std::string> read_input(const std::string& path, const char* what, const char* next);
// mkdir -p with mode 0700 for what is made; 0 or errno.
int make_folders(const std::string& folder);
void sync_folder(const std::string& folder);
// The identity of a file on its machine: the machine and the file's inode, which a copy does not share. "" without a
// file.
std::string home_of(const std::string& path);
// "nfs", "lustre" ... for file systems that other machines may write too, "" for local ones.
std::string network_filesystem(const std::string& folder);
// At most `most` bytes of a regular file; "" when it was read, else why not.
std::string read_file(const std::string& path, int64_t most, std::string& bytes);
std::string read_descriptor(int descriptor, int64_t most, std::string& bytes);
std::string sha256_of(llvm::StringRef bytes);  // in hex

}  // namespace trigen::cache

// Threads for work that fewer can do as well: a host may refuse them (`ulimit -u`, a container's limit).
namespace trigen {

// Not joinable where the host makes none.
std::thread start_thread(std::function<void()> work);

// Runs `work` on this thread and on up to `count` - 1 others, and returns when all have ended; the first exception of
// any is thrown then.
void on_threads(size_t count, const std::function<void()>& work);

}  // namespace trigen
