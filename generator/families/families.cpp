#include "generator/families/families.h"

namespace trigen {

llvm::ArrayRef<const Family*> families() {
  static const Family* const kFamilies[] = {&simt_family()};
  return kFamilies;
}

}  // namespace trigen
