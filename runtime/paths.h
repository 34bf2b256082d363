// Small questions to the file system: where this library and this program are, what exists.
#pragma once

#include <string>
#include <vector>

#include "cache/host.h"
#include "llvm/ADT/StringRef.h"

namespace trigen {

bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
// Absolute, links resolved; "" when it does not exist.
std::string real_path(const std::string& path);
std::string parent_path(llvm::StringRef path);
std::string file_name(llvm::StringRef path);
// Names in a directory, sorted; empty when it cannot be read.
std::vector<std::string> list_directory(const std::string& path);
// Directory of the library (or program) that holds this code, and of the program that runs. Links resolved.
const std::string& library_directory();
const std::string& program_directory();
// "a:b:c" -> {a, b, c}, without empty parts.
std::vector<std::string> split_path_list(llvm::StringRef text);
// Why a library that was searched for is not to be loaded, "" when it may: it or a folder above it belongs to
// somebody else, or everybody may write there.
std::string distrust_of_search(const std::string& path);

}  // namespace trigen
