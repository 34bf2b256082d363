// Shifts, logic, counts and bit fields.
#include "emulator/integer_types.h"

namespace trigen::emulator {
namespace {

template <class T>
T shift_left(T a, uint32_t b) {
  return b >= 8 * sizeof(T) ? T{0} : static_cast<T>(static_cast<Unsigned<T>>(a) << b);
}
template <class T>
T shift_right(T a, uint32_t b) {
  constexpr uint32_t bits = 8 * sizeof(T);
  if (b >= bits) return std::is_signed_v<T> && a < 0 ? static_cast<T>(-1) : T{0};
  return static_cast<T>(a >> b);
}
template <class T, T (*F)(T, uint32_t)>
void shift(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const uint32_t* b = warp.lanes<uint32_t>(inst.op[2]);
  for_lanes(mask, [=](int lane) { d[lane] = F(a[lane], b[lane]); });
}

template <class T>
T bit_and(T a, T b) {
  return static_cast<T>(a & b);
}
template <class T>
T bit_or(T a, T b) {
  return static_cast<T>(a | b);
}
template <class T>
T bit_xor(T a, T b) {
  return static_cast<T>(a ^ b);
}
template <class T>
T bit_not(T a) {
  return static_cast<T>(~a);
}
template <class T>
T logical_not(T a) {
  return a == 0 ? 1 : 0;
}

template <class T>
uint32_t popcount(T a) {
  return static_cast<uint32_t>(std::popcount(a));
}
template <class T>
uint32_t leading_zeros(T a) {
  return static_cast<uint32_t>(std::countl_zero(a));
}
template <class T>
T reverse_bits(T a) {
  T out = 0;
  for (size_t i = 0; i < 8 * sizeof(T); ++i)
    out = static_cast<T>(out | (((a >> i) & 1) << (8 * sizeof(T) - 1 - i)));
  return out;
}
template <class T, bool kShift>
uint32_t find_leading(T a) {
  using U = Unsigned<T>;
  U value = static_cast<U>(a);
  if (std::is_signed_v<T> && a < 0) value = static_cast<U>(~value);
  if (value == 0) return 0xffffffffu;
  uint32_t place = static_cast<uint32_t>(8 * sizeof(T) - 1) - static_cast<uint32_t>(std::countl_zero(value));
  return kShift ? static_cast<uint32_t>(8 * sizeof(T) - 1) - place : place;
}

template <class T>
T extract(T a, uint32_t b, uint32_t c) {
  using U = Unsigned<T>;
  constexpr uint32_t bits = 8 * sizeof(T);
  uint32_t position = b & 0xff, length = c & 0xff;
  if (length == 0) return 0;
  bool negative = false;
  if (std::is_signed_v<T>) {
    uint32_t sign = std::min(position + length - 1, bits - 1);
    negative = ((static_cast<U>(a) >> sign) & 1) != 0;
  }
  U out = position >= bits ? U{0} : static_cast<U>(static_cast<U>(a) >> position);
  uint32_t available = position >= bits ? 0 : bits - position;
  uint32_t kept = std::min(length, available);
  U keep = kept >= bits ? ~U{0} : static_cast<U>((U{1} << kept) - 1);
  out &= keep;
  if (negative) out |= static_cast<U>(~keep);
  return static_cast<T>(out);
}
template <class T>
void bit_extract(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const uint32_t* b = warp.lanes<uint32_t>(inst.op[2]);
  const uint32_t* c = warp.lanes<uint32_t>(inst.op[3]);
  for_lanes(mask, [=](int lane) { d[lane] = extract<T>(a[lane], b[lane], c[lane]); });
}
template <class T>
void bit_insert(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const T* b = warp.lanes<T>(inst.op[2]);
  const uint32_t* c = warp.lanes<uint32_t>(inst.op[3]);
  const uint32_t* length = warp.lanes<uint32_t>(inst.op[4]);
  constexpr uint32_t bits = 8 * sizeof(T);
  for_lanes(mask, [=](int lane) {
    uint32_t position = c[lane] & 0xff, count = length[lane] & 0xff;
    T keep = count >= bits ? static_cast<T>(~T{0}) : static_cast<T>((T{1} << count) - 1);
    T place = position >= bits ? T{0} : static_cast<T>(keep << position);
    T value = position >= bits ? T{0} : static_cast<T>(a[lane] << position);
    d[lane] = static_cast<T>((b[lane] & ~place) | (value & place));
  });
}

void permute(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
  const uint32_t* a = warp.lanes<uint32_t>(inst.op[1]);
  const uint32_t* b = warp.lanes<uint32_t>(inst.op[2]);
  const uint32_t* c = warp.lanes<uint32_t>(inst.op[3]);
  const int mode = static_cast<int>(inst.aux);
  for_lanes(mask, [=](int lane) {
    uint64_t bytes = static_cast<uint64_t>(b[lane]) << 32 | a[lane];
    uint32_t control = c[lane], out = 0;
    if (mode != 0) {
      uint32_t s = control & 3;
      static constexpr uint16_t kControls[6][4] = {{0x3210, 0x4321, 0x5432, 0x6543},   // f4e
                                                   {0x5670, 0x6701, 0x7012, 0x0123},   // b4e
                                                   {0x0000, 0x1111, 0x2222, 0x3333},   // rc8
                                                   {0x3210, 0x3211, 0x3222, 0x3333},   // ecl
                                                   {0x0000, 0x1110, 0x2210, 0x3210},   // ecr
                                                   {0x1010, 0x3232, 0x1010, 0x3232}};  // rc16
      control = kControls[mode - 1][s];
    }
    for (int i = 0; i < 4; ++i) {
      uint32_t select = (control >> (4 * i)) & 0xf;
      uint32_t byte = static_cast<uint32_t>(bytes >> (8 * (select & 7))) & 0xff;
      if ((select & 8) != 0) byte = (byte & 0x80) != 0 ? 0xff : 0;
      out |= byte << (8 * i);
    }
    d[lane] = out;
  });
}

void lop3(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
  const uint32_t* a = warp.lanes<uint32_t>(inst.op[1]);
  const uint32_t* b = warp.lanes<uint32_t>(inst.op[2]);
  const uint32_t* c = warp.lanes<uint32_t>(inst.op[3]);
  const uint32_t table = static_cast<uint32_t>(inst.imm);
  uint32_t terms[8];
  for (int i = 0; i < 8; ++i) terms[i] = (table >> i & 1) != 0 ? 0xffffffffu : 0;
  for_lanes(mask, [&](int lane) {
    uint32_t x = a[lane], y = b[lane], z = c[lane];
    d[lane] = (terms[0] & ~x & ~y & ~z) | (terms[1] & ~x & ~y & z) | (terms[2] & ~x & y & ~z) |
              (terms[3] & ~x & y & z) | (terms[4] & x & ~y & ~z) | (terms[5] & x & ~y & z) |
              (terms[6] & x & y & ~z) | (terms[7] & x & y & z);
  });
}

void funnel(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
  const uint32_t* a = warp.lanes<uint32_t>(inst.op[1]);
  const uint32_t* b = warp.lanes<uint32_t>(inst.op[2]);
  const uint32_t* c = warp.lanes<uint32_t>(inst.op[3]);
  const bool left = (inst.aux & 1) != 0, wrap = (inst.aux & 2) != 0;
  for_lanes(mask, [=](int lane) {
    uint32_t n = wrap ? c[lane] & 31 : std::min(c[lane], 32u);
    uint64_t both = static_cast<uint64_t>(b[lane]) << 32 | a[lane];
    d[lane] = left ? static_cast<uint32_t>((both << n) >> 32) : static_cast<uint32_t>(both >> n);
  });
}

void decode_shift(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  Type type = decoder.take_type();
  inst.op[0] = decoder.dest(0, type);
  inst.op[1] = decoder.source(1, type);
  inst.op[2] = decoder.source(2, Type::kU32);
  if (decoder.opcode() == "shl") {
    inst.fn = type_bytes(type) == 2   ? shift<uint16_t, shift_left<uint16_t>>
              : type_bytes(type) == 4 ? shift<uint32_t, shift_left<uint32_t>>
                                      : shift<uint64_t, shift_left<uint64_t>>;
    return;
  }
  switch (type) {
    case Type::kU16:
    case Type::kB16:
      inst.fn = shift<uint16_t, shift_right<uint16_t>>;
      break;
    case Type::kS16:
      inst.fn = shift<int16_t, shift_right<int16_t>>;
      break;
    case Type::kU32:
    case Type::kB32:
      inst.fn = shift<uint32_t, shift_right<uint32_t>>;
      break;
    case Type::kS32:
      inst.fn = shift<int32_t, shift_right<int32_t>>;
      break;
    case Type::kU64:
    case Type::kB64:
      inst.fn = shift<uint64_t, shift_right<uint64_t>>;
      break;
    case Type::kS64:
      inst.fn = shift<int64_t, shift_right<int64_t>>;
      break;
    default:
      decoder.fail("this type is not supported here");
  }
}

// and, or, xor, not on predicates: inst.aux bit i: operand i is negated; inst.imm: 0 and, 1 or, 2 xor, 3 not.
void predicate_logic(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t a = warp.predicate(inst.op[1]);
  if ((inst.aux & 1) != 0) a = ~a;
  uint32_t b = inst.op[2] == kNoSlot ? 0 : warp.predicate(inst.op[2]);
  if ((inst.aux & 2) != 0) b = ~b;
  uint32_t value = inst.imm == 0 ? (a & b) : inst.imm == 1 ? (a | b) : inst.imm == 2 ? (a ^ b) : ~a;
  warp.set_predicate(inst.op[0], value, mask);
}

void decode_logic(Decoder& decoder, Inst& inst) {
  const std::string& op = decoder.opcode();
  Type type = decoder.take_type();
  int which = op == "and" ? 0 : op == "or" ? 1 : op == "xor" ? 2 : 3;
  if (type == Type::kPred) {
    inst.cls = InstClass::kCompare;
    bool first = false, second = false;
    inst.op[0] = decoder.predicate_dest(0);
    inst.op[1] = decoder.predicate(1, &first);
    if (which != 3) inst.op[2] = decoder.predicate(2, &second);
    inst.aux = (first ? 1u : 0u) | (second ? 2u : 0u);
    inst.imm = which;
    inst.fn = predicate_logic;
    return;
  }
  inst.cls = InstClass::kInteger;
  decode_same(decoder, inst, type, which == 3 ? 1 : 2);
  inst.fn = which == 0   ? SELECT_INT(decoder, type, bit_and, exec_binary)
            : which == 1 ? SELECT_INT(decoder, type, bit_or, exec_binary)
            : which == 2 ? SELECT_INT(decoder, type, bit_xor, exec_binary)
                         : SELECT_INT(decoder, type, bit_not, exec_unary);
}

void decode_cnot(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  Type type = decoder.take_type();
  decode_same(decoder, inst, type, 1);
  inst.fn = SELECT_INT(decoder, type, logical_not, exec_unary);
}

void decode_count(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  const std::string& op = decoder.opcode();
  bool shift_amount = decoder.take("shiftamt");
  Type type = decoder.take_type();
  inst.op[0] = op == "brev" ? decoder.dest(0, type) : decoder.dest(0, Type::kU32);
  inst.op[1] = decoder.source(1, type);
  bool wide = type_bytes(type) == 8;
  if (op == "popc")
    inst.fn = wide ? exec_unary<uint32_t, uint64_t, popcount<uint64_t>>
                   : exec_unary<uint32_t, uint32_t, popcount<uint32_t>>;
  else if (op == "clz")
    inst.fn = wide ? exec_unary<uint32_t, uint64_t, leading_zeros<uint64_t>>
                   : exec_unary<uint32_t, uint32_t, leading_zeros<uint32_t>>;
  else if (op == "brev")
    inst.fn = wide ? exec_unary<uint64_t, uint64_t, reverse_bits<uint64_t>>
                   : exec_unary<uint32_t, uint32_t, reverse_bits<uint32_t>>;
  else
    switch (type) {
      case Type::kU32:
        inst.fn = shift_amount ? exec_unary<uint32_t, uint32_t, find_leading<uint32_t, true>>
                               : exec_unary<uint32_t, uint32_t, find_leading<uint32_t, false>>;
        break;
      case Type::kS32:
        inst.fn = shift_amount ? exec_unary<uint32_t, int32_t, find_leading<int32_t, true>>
                               : exec_unary<uint32_t, int32_t, find_leading<int32_t, false>>;
        break;
      case Type::kU64:
        inst.fn = shift_amount ? exec_unary<uint32_t, uint64_t, find_leading<uint64_t, true>>
                               : exec_unary<uint32_t, uint64_t, find_leading<uint64_t, false>>;
        break;
      case Type::kS64:
        inst.fn = shift_amount ? exec_unary<uint32_t, int64_t, find_leading<int64_t, true>>
                               : exec_unary<uint32_t, int64_t, find_leading<int64_t, false>>;
        break;
      default:
        decoder.fail("this type is not supported here");
    }
}

void decode_bit_field(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  Type type = decoder.take_type();
  inst.op[0] = decoder.dest(0, type);
  inst.op[1] = decoder.source(1, type);
  bool insert = decoder.opcode() == "bfi";
  size_t next = 2;
  if (insert) inst.op[2] = decoder.source(next++, type);
  inst.op[insert ? 3 : 2] = decoder.source(next++, Type::kU32);
  inst.op[insert ? 4 : 3] = decoder.source(next, Type::kU32);
  if (insert) {
    inst.fn = type_bytes(type) == 4 ? bit_insert<uint32_t> : bit_insert<uint64_t>;
    return;
  }
  inst.fn = type == Type::kU32   ? bit_extract<uint32_t>
            : type == Type::kS32 ? bit_extract<int32_t>
            : type == Type::kU64 ? bit_extract<uint64_t>
                                 : bit_extract<int64_t>;
}

void decode_prmt(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  decoder.take_type();
  const int mode = decoder.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  inst.aux = mode < 0 ? 0 : static_cast<uint64_t>(mode) + 1;
  decode_same(decoder, inst, Type::kB32, 3);
  inst.fn = permute;
}

void decode_lop3(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  decoder.take_type();
  decode_same(decoder, inst, Type::kB32, 3);
  if (decoder.operand(4).kind != Operand::Kind::kInteger) decoder.fail("the look-up table is not a number");
  inst.imm = decoder.operand(4).integer;
  inst.fn = lop3;
}

void decode_funnel(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  int direction = decoder.take_any({"l", "r"});
  int mode = decoder.take_any({"clamp", "wrap"});
  decoder.take_type();
  if (direction < 0 || mode < 0) decoder.fail("direction or mode is missing");
  inst.aux = (direction == 0 ? 1u : 0u) | (mode == 1 ? 2u : 0u);
  decode_same(decoder, inst, Type::kB32, 3);
  inst.fn = funnel;
}

}  // namespace

void register_bits(OpcodeTable& table) {
  table["shl"] = table["shr"] = decode_shift;
  table["and"] = table["or"] = table["xor"] = table["not"] = decode_logic;
  table["cnot"] = decode_cnot;
  table["popc"] = table["clz"] = table["brev"] = table["bfind"] = decode_count;
  table["bfe"] = table["bfi"] = decode_bit_field;
  table["prmt"] = decode_prmt;
  table["lop3"] = decode_lop3;
  table["shf"] = decode_funnel;
}

}  // namespace trigen::emulator
