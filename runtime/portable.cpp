// Linked into libtrigen.so and the trigen program, so that they load where glibc is older than the one they
// were built with and where no terminfo is installed: LLVM's Support and libstdc++ ask for these, and none of
// what they ask for matters here.
#include <sys/random.h>

#include <cstdint>

extern "C" {

// glibc has it since 2.36; Ubuntu 22.04 ships 2.35. Used for names of temporary files and for back-off times.
__attribute__((visibility("hidden"))) uint32_t arc4random() noexcept {
  uint32_t value = 0;
  while (getrandom(&value, sizeof value, 0) != static_cast<ssize_t>(sizeof value)) {
  }
  return value;
}

// terminfo, for LLVM's coloured output, which trigen never asks for: no terminal is known.
__attribute__((visibility("hidden"))) int setupterm(char*, int, int* error) noexcept {
  if (error != nullptr) *error = 0;
  return -1;
}
__attribute__((visibility("hidden"))) int tigetnum(char*) noexcept { return -1; }
__attribute__((visibility("hidden"))) void* set_curterm(void*) noexcept { return nullptr; }
__attribute__((visibility("hidden"))) int del_curterm(void*) noexcept { return -1; }

}  // extern "C"
