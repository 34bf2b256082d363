#include "emulator/exec.h"
namespace trigen::emulator { void register_wgmma(OpcodeTable&) {} }
