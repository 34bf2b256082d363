#include "generator/families/families.h"

#include <string>

#include "generator/error.h"

namespace trigen {

llvm::ArrayRef<const Family*> families() {
  static const Family* const kFamilies[] = {&simt_family()};
  return kFamilies;
}

llvm::Expected<const Family*> find_family(llvm::StringRef name) {
  std::string known;
  for (const Family* family : families()) {
    if (family->name() == name) return family;
    known += (known.empty() ? "" : ", ") + family->name().str();
  }
  return make_error(ErrorKind::kBadRequest, "unknown family '" + name + "': known are " + known);
}

}  // namespace trigen
