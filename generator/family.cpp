#include "generator/family.h"

#include "generator/error.h"
#include "generator/names.h"

namespace trigen {

llvm::StringRef entry_name(Op op) { return op_row(op).entry; }

const Launch& product_launch(const LaunchPlan& plan, Op op) {
  for (const Launch& launch : plan.launches)
    if (launch.entry == entry_name(op)) return launch;
  return plan.launches.front();
}

llvm::Expected<const Family*> find_family(llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef, 16> names;
  for (const Family* family : families()) {
    if (family->name() == name) return family;
    names.push_back(family->name());
  }
  return make_error(ErrorKind::kBadRequest, "unknown family " + quoted(name) + "; allowed are " +
                                                one_of(names) + did_you_mean(name, names));
}

}  // namespace trigen
