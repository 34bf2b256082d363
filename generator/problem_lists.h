// The shipped problem lists: the files of problems/, embedded.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

struct ProblemListFile {
  llvm::StringLiteral name;  // "core.txt"
  llvm::StringLiteral text;  // for parse_problem_list
};
llvm::ArrayRef<ProblemListFile> problem_list_files();

// The text of problems/core.txt: what `trigen tune` takes when no problem is named.
llvm::StringRef core_problem_list();
// The text of a shipped list by its name with or without ".txt": "core", "mixers". Error lists the names.
llvm::Expected<llvm::StringRef> shipped_problem_list(llvm::StringRef name);

}  // namespace trigen
