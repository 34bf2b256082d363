// The environment variables that trigen reads; docs/environment.md says what each does, and a test holds this
// list, that page and the sources together.
#include "doctor/diagnose.h"

namespace trigen::doctor {

llvm::ArrayRef<const char*> known_variables() {
  static const char* const names[] = {
      "TRIGEN_CACHE",
      "TRIGEN_CANARY",
      "TRIGEN_CUBLAS",
      "TRIGEN_DRIVER",
      "TRIGEN_EMULATED_ASYNC",
      "TRIGEN_EMULATED_CHECKS",
      "TRIGEN_EMULATED_DEVICES",
      "TRIGEN_EMULATED_LANES",
      "TRIGEN_EMULATED_REPORTS",
      "TRIGEN_EMULATED_SMS",
      "TRIGEN_EMULATED_STEPS",
      "TRIGEN_EMULATED_TARGET",
      "TRIGEN_EMULATED_THREADS",
      "TRIGEN_FALLBACK",
      "TRIGEN_LIBRARY",
      "TRIGEN_LOG",
      "TRIGEN_NO_JIT",
      "TRIGEN_NVDISASM",
      "TRIGEN_NVML",
      "TRIGEN_NVRTC",
      "TRIGEN_PROGRAM",
      "TRIGEN_SPOOL",
      "TRIGEN_TARGET",
      "TRIGEN_THREADS",
      "TRIGEN_TRUSTED_FOLDERS",
      "TRIGEN_TRUSTED_KEYS",
  };
  return names;
}

}  // namespace trigen::doctor
