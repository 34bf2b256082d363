// The families, one function per file of this folder.
#pragma once

#include "generator/family.h"

namespace trigen {

const Family& simt_family();

}  // namespace trigen
