// The libFuzzer program over the same checks: the first byte chooses the parser.
#include <cstdio>
#include <cstdlib>

#include "tests/fuzz/parsers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const llvm::StringRef text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto wrong = data[0] % 4 == 0   ? trigen::fuzz::check_problem(text)
                     : data[0] % 4 == 1 ? trigen::fuzz::check_config(text)
                     : data[0] % 4 == 2 ? trigen::fuzz::check_candidate(text)
                                        : trigen::fuzz::check_list(text);
  if (wrong) {
    std::fprintf(stderr, "%s\n", wrong->c_str());
    std::abort();
  }
  return 0;
}
