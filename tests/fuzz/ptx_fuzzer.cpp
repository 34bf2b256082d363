// The libFuzzer program over the same check.
#include "tests/fuzz/ptx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static trigen::fuzz::EmulatedModules modules;
  static const bool open = modules.open();
  if (open) modules.run(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
