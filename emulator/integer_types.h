// Handlers by integer type, for the two files of integer instructions.
#pragma once

#include <type_traits>

#include "emulator/exec.h"

namespace trigen::emulator {

template <class T>
using Unsigned = std::make_unsigned_t<T>;

// The handler `shape` (exec_unary ...) of the function template F for a type.
// NOLINTBEGIN(bugprone-macro-parentheses): types and templates
#define SELECT_INT(decoder, type, F, shape)              \
  [&]() -> ExecFn {                                      \
    switch (type) {                                      \
      case Type::kU16:                                   \
      case Type::kB16:                                   \
        return shape<uint16_t, uint16_t, F<uint16_t>>;   \
      case Type::kS16:                                   \
        return shape<int16_t, int16_t, F<int16_t>>;      \
      case Type::kU32:                                   \
      case Type::kB32:                                   \
        return shape<uint32_t, uint32_t, F<uint32_t>>;   \
      case Type::kS32:                                   \
        return shape<int32_t, int32_t, F<int32_t>>;      \
      case Type::kU64:                                   \
      case Type::kB64:                                   \
        return shape<uint64_t, uint64_t, F<uint64_t>>;   \
      case Type::kS64:                                   \
        return shape<int64_t, int64_t, F<int64_t>>;      \
      default:                                           \
        decoder.fail("this type is not supported here"); \
    }                                                    \
  }()

// NOLINTEND(bugprone-macro-parentheses)

}  // namespace trigen::emulator
