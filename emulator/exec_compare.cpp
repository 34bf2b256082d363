// setp, set, selp, slct.
#include "emulator/exec.h"
#include "emulator/real16.h"

namespace trigen::emulator {
namespace {

enum class Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kEqu, kNeu, kLtu, kLeu, kGtu, kGeu, kNum, kNan };

template <class T>
bool compare(Compare op, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    bool nan = a != a || b != b;
    switch (op) {
      case Compare::kEqu:
        return nan || a == b;
      case Compare::kNeu:
        return nan || a != b;
      case Compare::kLtu:
        return nan || a < b;
      case Compare::kLeu:
        return nan || a <= b;
      case Compare::kGtu:
        return nan || a > b;
      case Compare::kGeu:
        return nan || a >= b;
      case Compare::kNum:
        return !nan;
      case Compare::kNan:
        return nan;
      case Compare::kNe:
        return !nan && a != b;
      default:
        break;
    }
  }
  switch (op) {
    case Compare::kEq:
      return a == b;
    case Compare::kNe:
      return a != b;
    case Compare::kLt:
      return a < b;
    case Compare::kLe:
      return a <= b;
    case Compare::kGt:
      return a > b;
    default:
      return a >= b;
  }
}

template <class T>
struct Plain {
  using Register = T;
  static T load(T value, bool) { return value; }
};
struct Single {
  using Register = float;
  static float load(float value, bool ftz) { return ftz ? flush(value) : value; }
};
struct Half {
  using Register = uint16_t;
  static float load(uint16_t value, bool) { return f16_to_f32(value); }
};
struct Brain {
  using Register = uint16_t;
  static float load(uint16_t value, bool) { return bf16_to_f32(value); }
};

// The comparison of every active lane as a mask. op[2], op[3] are compared; imm is the Compare; aux bit 8 is
// ftz.
template <class Format>
uint32_t compare_lanes(Warp& warp, const Inst& inst) {
  const auto* a = warp.lanes<typename Format::Register>(inst.op[2]);
  const auto* b = warp.lanes<typename Format::Register>(inst.op[3]);
  const bool ftz = (inst.aux >> 8 & 1) != 0;
  auto all = [&](auto op) {
    constexpr Compare kOp = decltype(op)::value;
    uint32_t bits = 0;
    for (int lane = 0; lane < 32; ++lane)
      bits |= static_cast<uint32_t>(compare(kOp, Format::load(a[lane], ftz), Format::load(b[lane], ftz)))
              << lane;
    return bits;
  };
  switch (static_cast<Compare>(inst.imm)) {
    case Compare::kEq:
      return all(std::integral_constant<Compare, Compare::kEq>{});
    case Compare::kNe:
      return all(std::integral_constant<Compare, Compare::kNe>{});
    case Compare::kLt:
      return all(std::integral_constant<Compare, Compare::kLt>{});
    case Compare::kLe:
      return all(std::integral_constant<Compare, Compare::kLe>{});
    case Compare::kGt:
      return all(std::integral_constant<Compare, Compare::kGt>{});
    case Compare::kGe:
      return all(std::integral_constant<Compare, Compare::kGe>{});
    default:
      break;
  }
  uint32_t bits = 0;
  for (int lane = 0; lane < 32; ++lane)
    bits |= static_cast<uint32_t>(compare(static_cast<Compare>(inst.imm), Format::load(a[lane], ftz),
                                          Format::load(b[lane], ftz)))
            << lane;
  return bits;
}

// aux bits 0..1: 1 and, 2 or, 3 xor with the predicate op[4]; bit 2: it is negated. op[1]: the second
// destination.
uint32_t combine(Warp& warp, const Inst& inst, uint32_t bits, bool complement) {
  if (complement) bits = ~bits;
  if ((inst.aux & 3) == 0) return bits;
  uint32_t other = warp.predicate(inst.op[4]);
  if ((inst.aux & 4) != 0) other = ~other;
  return (inst.aux & 3) == 1 ? bits & other : (inst.aux & 3) == 2 ? bits | other : bits ^ other;
}

template <class Format>
void set_predicates(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t bits = compare_lanes<Format>(warp, inst);
  uint32_t first = combine(warp, inst, bits, false), second = combine(warp, inst, bits, true);
  warp.set_predicate(inst.op[0], first, mask);
  if (inst.op[1] != kNoSlot) warp.set_predicate(inst.op[1], second, mask);
}

ExecFn set_predicates_fn(Decoder& decoder, Type type) {
  switch (type) {
    case Type::kU16:
    case Type::kB16:
      return set_predicates<Plain<uint16_t>>;
    case Type::kS16:
      return set_predicates<Plain<int16_t>>;
    case Type::kU32:
    case Type::kB32:
      return set_predicates<Plain<uint32_t>>;
    case Type::kS32:
      return set_predicates<Plain<int32_t>>;
    case Type::kU64:
    case Type::kB64:
      return set_predicates<Plain<uint64_t>>;
    case Type::kS64:
      return set_predicates<Plain<int64_t>>;
    case Type::kF32:
      return set_predicates<Single>;
    case Type::kF64:
      return set_predicates<Plain<double>>;
    case Type::kF16:
      return set_predicates<Half>;
    case Type::kBF16:
      return set_predicates<Brain>;
    default:
      decoder.fail("this type is not supported here");
  }
}

Compare take_compare(Decoder& decoder) {
  static const char* const names[] = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                      "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
  for (int i = 0; i < 14; ++i)
    if (decoder.take(names[i])) return static_cast<Compare>(i);
  if (decoder.take("lo")) return Compare::kLt;
  if (decoder.take("ls")) return Compare::kLe;
  if (decoder.take("hi")) return Compare::kGt;
  if (decoder.take("hs")) return Compare::kGe;
  decoder.fail("the comparison is missing");
}

void decode_setp(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kCompare;
  inst.imm = static_cast<int64_t>(take_compare(decoder));
  int boolean = decoder.take_any({"and", "or", "xor"});
  if (decoder.take("ftz")) inst.aux |= 256;
  Type type = decoder.take_type();
  if (type == Type::kF16x2 || type == Type::kBF16x2) decoder.fail("packed comparisons are not supported");
  const Operand& target = decoder.operand(0);
  inst.op[0] = decoder.predicate_dest(0);
  inst.op[1] = decoder.second_predicate_dest(target);
  inst.op[2] = decoder.source(1, type);
  inst.op[3] = decoder.source(2, type);
  if (boolean >= 0) {
    bool negated = false;
    inst.op[4] = decoder.predicate(3, &negated);
    inst.aux |= static_cast<uint64_t>(boolean + 1) | (negated ? 4u : 0u);
  }
  inst.fn = set_predicates_fn(decoder, type);
}

// set.cmp.dtype.stype: all ones or 1.0.
template <class Format, bool kReal>
void set_value(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t bits = combine(warp, inst, compare_lanes<Format>(warp, inst), false);
  uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
  for_lanes(mask, [=](int lane) {
    d[lane] = (bits >> lane & 1) == 0 ? 0 : kReal ? 0x3f800000u : 0xffffffffu;
  });
}

void decode_set(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kCompare;
  inst.imm = static_cast<int64_t>(take_compare(decoder));
  int boolean = decoder.take_any({"and", "or", "xor"});
  if (decoder.take("ftz")) inst.aux |= 256;
  Type to = decoder.take_type(), from = decoder.take_type();
  if (type_bytes(to) != 4 || to == Type::kF16x2) decoder.fail("only 32-bit results are supported");
  inst.op[0] = decoder.dest(0, to);
  inst.op[2] = decoder.source(1, from);
  inst.op[3] = decoder.source(2, from);
  if (boolean >= 0) {
    bool negated = false;
    inst.op[4] = decoder.predicate(3, &negated);
    inst.aux |= static_cast<uint64_t>(boolean + 1) | (negated ? 4u : 0u);
  }
  bool real = to == Type::kF32;
  switch (from) {
    case Type::kU32:
    case Type::kB32:
      inst.fn = real ? set_value<Plain<uint32_t>, true> : set_value<Plain<uint32_t>, false>;
      break;
    case Type::kS32:
      inst.fn = real ? set_value<Plain<int32_t>, true> : set_value<Plain<int32_t>, false>;
      break;
    case Type::kF32:
      inst.fn = real ? set_value<Single, true> : set_value<Single, false>;
      break;
    case Type::kU64:
    case Type::kB64:
      inst.fn = real ? set_value<Plain<uint64_t>, true> : set_value<Plain<uint64_t>, false>;
      break;
    case Type::kS64:
      inst.fn = real ? set_value<Plain<int64_t>, true> : set_value<Plain<int64_t>, false>;
      break;
    default:
      decoder.fail("this type is not supported here");
  }
}

template <class T>
void select_lanes(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const T* b = warp.lanes<T>(inst.op[2]);
  uint32_t choice = warp.predicate(inst.op[3]);
  if (inst.aux != 0) choice = ~choice;
  for_lanes(mask, [=](int lane) { d[lane] = (choice >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

void decode_selp(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kCompare;
  Type type = decoder.take_type();
  decode_same(decoder, inst, type, 2);
  bool negated = false;
  inst.op[3] = decoder.predicate(3, &negated);
  inst.aux = negated ? 1 : 0;
  int bytes = type_bytes(type);
  inst.fn = bytes == 2   ? select_lanes<uint16_t>
            : bytes == 4 ? select_lanes<uint32_t>
                         : select_lanes<uint64_t>;
}

template <class T, class S>
void select_by_sign(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const T* b = warp.lanes<T>(inst.op[2]);
  const S* c = warp.lanes<S>(inst.op[3]);
  for_lanes(mask, [=](int lane) { d[lane] = c[lane] >= 0 ? a[lane] : b[lane]; });
}

void decode_slct(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kCompare;
  decoder.take("ftz");
  Type type = decoder.take_type(), by = decoder.take_type();
  decode_same(decoder, inst, type, 2);
  inst.op[3] = decoder.source(3, by);
  bool real = by == Type::kF32;
  switch (type_bytes(type)) {
    case 2:
      inst.fn = real ? select_by_sign<uint16_t, float> : select_by_sign<uint16_t, int32_t>;
      break;
    case 4:
      inst.fn = real ? select_by_sign<uint32_t, float> : select_by_sign<uint32_t, int32_t>;
      break;
    default:
      inst.fn = real ? select_by_sign<uint64_t, float> : select_by_sign<uint64_t, int32_t>;
      break;
  }
}

}  // namespace

void register_compare(OpcodeTable& table) {
  table["setp"] = decode_setp;
  table["set"] = decode_set;
  table["selp"] = decode_selp;
  table["slct"] = decode_slct;
}

}  // namespace trigen::emulator
