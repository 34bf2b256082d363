// The families, one file each in this folder.
#pragma once

#include "generator/family.h"

namespace trigen {

// The launch that packs W into the workspace (templates/pack.h) ahead of a product that takes kPackedW.
Launch pack_launch(const Problem& problem);

const Family& wgmma_sm90_family();
const Family& wgmma_tf32_sm90_family();
const Family& wgmma_taps_sm90_family();
const Family& wgmma_split_sm90_family();
const Family& simt_family();
const Family& mma_sm70_family();
const Family& mma_sm75_family();
const Family& mma_sm80_family();
const Family& decode_family();

}  // namespace trigen
