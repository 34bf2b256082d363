// The families, one file each in this folder.
#pragma once

#include "generator/family.h"

namespace trigen {

const Family& wgmma_sm90_family();
const Family& wgmma_tf32_sm90_family();
const Family& simt_family();
const Family& mma_sm70_family();
const Family& mma_sm75_family();
const Family& mma_sm80_family();
const Family& decode_family();

}  // namespace trigen
