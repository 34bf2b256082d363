// Variables and parameters as PTX declares them.
#pragma once

#include "emulator/ptx_cursor.h"

namespace trigen::emulator {

/// .space [.align n] [.type] [.ptr ...] name [dims] [= init], up to what ends it. Throws PtxError.
Variable parse_variable(PtxCursor& at);

}  // namespace trigen::emulator
