// Kernels that do harm, planted in a cache in the place of a candidate's: hand-written PTX with its entry and
// its parameters.
#pragma once

#include <gtest/gtest.h>

#include "cache/store.h"
#include "generator/candidate.h"
#include "templates/params.h"

namespace trigen::testing {

inline constexpr const char* kEndlessLoop = "L: bra.uni L;\n";
// 16 TiB beyond y.
inline constexpr const char* kWriteOutside =
    "ld.param.u64 %d0, [p+32];\nadd.u64 %d0, %d0, 17592186044416;\nst.global.u32 [%d0], %r0;\n";
inline constexpr const char* kTrap = "trap;\n";

inline void plant(Store& store, const Candidate& candidate, const std::string& body, int spill_bytes = 0) {
  static_assert(sizeof(Activations) == 32, "kWriteOutside reads Params::y.data");
  const Source source = render(candidate);
  Binary binary;
  binary.key = {source.hash, candidate.target->name.str(), "nvrtc 12.0.0", "planted"};
  binary.candidate = describe(candidate);
  binary.problem = to_string(candidate.problem);
  binary.entry = source.entry;
  binary.source = source.text;
  binary.ptx = ".version " + std::string(candidate.target->compute_capability >= 90 ? "8.0" : "6.0") +
               "\n.target " + candidate.target->name.str() + "\n.address_size 64\n.visible .entry " +
               source.entry + "(.param .align 8 .b8 p[" + std::to_string(sizeof(Params)) +
               "]) {\n.reg .b64 %d<2>;\n.reg .b32 %r<2>;\nmov.u32 %r0, 1;\n" + body + "ret;\n}\n";
  binary.registers = 8;
  binary.spill_bytes = spill_bytes;
  auto error = store.put_binary(binary);
  EXPECT_FALSE(static_cast<bool>(error)) << llvm::toString(std::move(error));
}

}  // namespace trigen::testing
