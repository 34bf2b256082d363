#include "generator/problem_lists.h"

#include "generator/error.h"
#include "generator/names.h"

namespace trigen {

llvm::StringRef core_problem_list() {
  for (const ProblemListFile& file : problem_list_files())
    if (file.name == "core.txt") return file.text;
  return "";
}

llvm::Expected<llvm::StringRef> shipped_problem_list(llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef, 8> names;
  for (const ProblemListFile& file : problem_list_files()) {
    llvm::StringRef stem = file.name;
    stem.consume_back(".txt");
    if (name == file.name || name == stem) return llvm::StringRef(file.text);
    names.push_back(stem);
  }
  return make_error(ErrorKind::kBadRequest, "unknown problem list " + quoted(name) + "; shipped are " +
                                                one_of(names) + did_you_mean(name, names));
}

}  // namespace trigen
