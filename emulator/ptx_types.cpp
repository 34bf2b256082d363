#include <map>

#include "emulator/ptx_ast.h"

namespace trigen::emulator {

int type_bytes(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kS8:
    case Type::kB8:
      return 1;
    case Type::kU16:
    case Type::kS16:
    case Type::kB16:
    case Type::kF16:
    case Type::kBF16:
      return 2;
    case Type::kU32:
    case Type::kS32:
    case Type::kB32:
    case Type::kF32:
    case Type::kTF32:
    case Type::kF16x2:
    case Type::kBF16x2:
      return 4;
    case Type::kU64:
    case Type::kS64:
    case Type::kB64:
    case Type::kF64:
    case Type::kF32x2:
      return 8;
    case Type::kB128:
      return 16;
    default:
      return 0;
  }
}

Type parse_type(const std::string& text) {
  static const std::map<std::string, Type> types = {
      {"pred", Type::kPred},   {"u8", Type::kU8},     {"s8", Type::kS8},       {"b8", Type::kB8},
      {"u16", Type::kU16},     {"s16", Type::kS16},   {"b16", Type::kB16},     {"f16", Type::kF16},
      {"bf16", Type::kBF16},   {"u32", Type::kU32},   {"s32", Type::kS32},     {"b32", Type::kB32},
      {"f32", Type::kF32},     {"tf32", Type::kTF32}, {"f16x2", Type::kF16x2}, {"bf16x2", Type::kBF16x2},
      {"u64", Type::kU64},     {"s64", Type::kS64},   {"b64", Type::kB64},     {"f64", Type::kF64},
      {"f32x2", Type::kF32x2}, {"b128", Type::kB128}};
  auto found = types.find(text);
  return found == types.end() ? Type::kNone : found->second;
}

}  // namespace trigen::emulator
