// The problem lists that are shipped with the program: problems/*.txt, embedded.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace trigen {

struct ProblemList {
  llvm::StringLiteral name;  // "core.txt"
  llvm::StringLiteral text;
};
llvm::ArrayRef<ProblemList> problem_lists();

}  // namespace trigen
