#include "generator/families/families.h"

namespace trigen {

llvm::ArrayRef<const Family*> families() {
  static const Family* const kFamilies[] = {&wgmma_sm90_family(),
                                            &wgmma_tf32_sm90_family(),
                                            &wgmma_split_sm90_family(),
                                            &wgmma_taps_sm90_family(),
                                            &wgmma_resident_sm90_family(),
                                            &mma_tma_sm90_family(),
                                            &mma_sm80_family(),
                                            &mma_sm75_family(),
                                            &mma_sm70_family(),
                                            &simt_family(),
                                            &decode_family(),
                                            &grad_epilogue_family()};
  return kFamilies;
}

}  // namespace trigen
