#include "emulator/exec.h"
namespace trigen::emulator { void register_bulk(OpcodeTable&) {} void decode_bulk(Decoder& d, Inst&) { d.fail("bulk"); } }
