#include "generator/families/families.h"

namespace trigen {

llvm::ArrayRef<const Family*> families() {
#define TRIGEN_FAMILY(name) &name##_family(),
  static const Family* const kFamilies[] = {TRIGEN_FAMILIES(TRIGEN_FAMILY)};
  return kFamilies;
}

}  // namespace trigen
