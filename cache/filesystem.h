// Small facts about paths and file systems, for layer.cpp and paths.cpp.
#pragma once

#include <string>

#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/Error.h"

namespace trigen::cache {

std::string errno_text(int error);  // lower case, as libc words it
std::string folder_of(const std::string& path);
// The folder itself, or the nearest one above it that exists.
std::string existing_folder(const std::string& folder);
// Of the library or program that holds this code; "" when unknown. Links resolved.
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
// Of a file where it was made: this machine and the file's inode, which a copy of it has not. "" when it is not
// there.
std::string home_of(const std::string& path);
// "nfs", "lustre" ... for file systems that other machines may write too, "" for local ones.
std::string network_filesystem(const std::string& folder);

}  // namespace trigen::cache
