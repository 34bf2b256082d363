// Integer arithmetic. Shifts, logic and bit fields: exec_bits.cpp.
#include "emulator/integer_types.h"

namespace trigen::emulator {
namespace {

template <class T>
struct Wider;
template <>
struct Wider<uint16_t> {
  using type = uint32_t;
};
template <>
struct Wider<int16_t> {
  using type = int32_t;
};
template <>
struct Wider<uint32_t> {
  using type = uint64_t;
};
template <>
struct Wider<int32_t> {
  using type = int64_t;
};
template <>
struct Wider<uint64_t> {
  using type = unsigned __int128;
};
template <>
struct Wider<int64_t> {
  using type = __int128;
};
template <class T>
using WiderT = typename Wider<T>::type;

template <class T>
T add(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b));
}
template <class T>
T sub(T a, T b) {
  return static_cast<T>(static_cast<Unsigned<T>>(a) - static_cast<Unsigned<T>>(b));
}
template <class T>
T mul_lo(T a, T b) {
  return static_cast<T>(static_cast<WiderT<Unsigned<T>>>(static_cast<Unsigned<T>>(a)) *
                        static_cast<Unsigned<T>>(b));
}
template <class T>
T mul_hi(T a, T b) {
  return static_cast<T>((static_cast<WiderT<T>>(a) * static_cast<WiderT<T>>(b)) >> (8 * sizeof(T)));
}
template <class T>
T mad_lo(T a, T b, T c) {
  return add(mul_lo(a, b), c);
}
template <class T>
T mad_hi(T a, T b, T c) {
  return add(mul_hi(a, b), c);
}
template <class T>
T divide(T a, T b) {
  if (b == 0) return static_cast<T>(-1);  // "unspecified" in the ISA; the machine gives all ones
  if constexpr (std::is_signed_v<T>)
    if (a == std::numeric_limits<T>::min() && b == -1) return a;
  return static_cast<T>(a / b);
}
template <class T>
T remainder(T a, T b) {
  if (b == 0) return a;
  if constexpr (std::is_signed_v<T>)
    if (b == -1) return 0;
  return static_cast<T>(a % b);
}
template <class T>
T minimum(T a, T b) {
  return a < b ? a : b;
}
template <class T>
T maximum(T a, T b) {
  return a > b ? a : b;
}
template <class T>
T absolute(T a) {
  return a < 0 ? sub<T>(0, a) : a;
}
template <class T>
T negate(T a) {
  return sub<T>(0, a);
}
int32_t add_saturated(int32_t a, int32_t b) {
  int64_t sum = static_cast<int64_t>(a) + b;
  return static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX));
}
int32_t sub_saturated(int32_t a, int32_t b) {
  int64_t sum = static_cast<int64_t>(a) - b;
  return static_cast<int32_t>(std::min<int64_t>(std::max<int64_t>(sum, INT32_MIN), INT32_MAX));
}

template <class T>
void mul_wide(Warp& warp, const Inst& inst, uint32_t mask) {
  using W = WiderT<T>;
  W* d = warp.lanes<W>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const T* b = warp.lanes<T>(inst.op[2]);
  for_lanes(mask, [=](int lane) { d[lane] = static_cast<W>(a[lane]) * static_cast<W>(b[lane]); });
}
template <class T>
void mad_wide(Warp& warp, const Inst& inst, uint32_t mask) {
  using W = WiderT<T>;
  W* d = warp.lanes<W>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const T* b = warp.lanes<T>(inst.op[2]);
  const W* c = warp.lanes<W>(inst.op[3]);
  for_lanes(mask,
            [=](int lane) { d[lane] = add<W>(static_cast<W>(a[lane]) * static_cast<W>(b[lane]), c[lane]); });
}

// Sum of absolute differences, and the carry-free 24-bit forms.
template <class T>
void sad(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const T* b = warp.lanes<T>(inst.op[2]);
  const T* c = warp.lanes<T>(inst.op[3]);
  for_lanes(mask, [=](int lane) {
    d[lane] = add<T>(c[lane], a[lane] < b[lane] ? sub<T>(b[lane], a[lane]) : sub<T>(a[lane], b[lane]));
  });
}
template <class T>
T low24(T a) {
  return std::is_signed_v<T> ? static_cast<T>(static_cast<int32_t>(static_cast<uint32_t>(a) << 8) >> 8)
                             : static_cast<T>(a & 0xffffff);
}
template <class T>
T mul24_lo(T a, T b) {
  return static_cast<T>(static_cast<WiderT<T>>(low24(a)) * low24(b));
}
template <class T>
T mul24_hi(T a, T b) {
  return static_cast<T>((static_cast<WiderT<T>>(low24(a)) * low24(b)) >> 16);
}
template <class T>
T mad24_lo(T a, T b, T c) {
  return add(mul24_lo(a, b), c);
}

// dp2a: two products of halves of a and bytes of b, the lower or the upper ones. The sum wraps.
template <class A, class B, int kFirst>
void dot_two(Warp& warp, const Inst& inst, uint32_t mask) {
  auto* d = warp.lanes<uint32_t>(inst.op[0]);
  const auto* a = warp.lanes<uint32_t>(inst.op[1]);
  const auto* b = warp.lanes<uint32_t>(inst.op[2]);
  const auto* c = warp.lanes<uint32_t>(inst.op[3]);
  for_lanes(mask, [=](int lane) {
    uint32_t sum = c[lane];
    for (int i = 0; i < 2; ++i)
      sum += static_cast<uint32_t>(static_cast<A>(a[lane] >> (16 * i)) *
                                   static_cast<B>(b[lane] >> (8 * (kFirst + i))));
    d[lane] = sum;
  });
}

// mul.wide and mad.wide: sums of twice the width.
void decode_wide(Decoder& decoder, Inst& inst, Type type, bool mad) {
  const Type wide = type == Type::kU16   ? Type::kU32
                    : type == Type::kS16 ? Type::kS32
                    : type == Type::kU32 ? Type::kU64
                                         : Type::kS64;
  inst.op[0] = decoder.dest(0, wide);
  inst.op[1] = decoder.source(1, type);
  inst.op[2] = decoder.source(2, type);
  if (mad) inst.op[3] = decoder.source(3, wide);
  switch (type) {
    case Type::kU16:
      inst.fn = mad ? mad_wide<uint16_t> : mul_wide<uint16_t>;
      return;
    case Type::kS16:
      inst.fn = mad ? mad_wide<int16_t> : mul_wide<int16_t>;
      return;
    case Type::kU32:
      inst.fn = mad ? mad_wide<uint32_t> : mul_wide<uint32_t>;
      return;
    case Type::kS32:
      inst.fn = mad ? mad_wide<int32_t> : mul_wide<int32_t>;
      return;
    default:
      decoder.fail("this type has no wide product");
  }
}

void decode_product(Decoder& decoder, Inst& inst, Type type, bool mad) {
  if (decoder.take("wide")) return decode_wide(decoder, inst, type, mad);
  const bool high = decoder.take("hi");
  if (!high) decoder.take("lo");
  decode_same(decoder, inst, type, mad ? 3 : 2);
  if (mad)
    inst.fn = high ? SELECT_INT(decoder, type, mad_hi, exec_ternary)
                   : SELECT_INT(decoder, type, mad_lo, exec_ternary);
  else
    inst.fn = high ? SELECT_INT(decoder, type, mul_hi, exec_binary)
                   : SELECT_INT(decoder, type, mul_lo, exec_binary);
}

ExecFn absolute_of(const Decoder& decoder, Type type) {
  if (type == Type::kS16) return exec_unary<int16_t, int16_t, absolute<int16_t>>;
  if (type == Type::kS32) return exec_unary<int32_t, int32_t, absolute<int32_t>>;
  if (type == Type::kS64) return exec_unary<int64_t, int64_t, absolute<int64_t>>;
  decoder.fail("this type has no absolute value");
}

}  // namespace

// add, sub, mul, mad, div, rem, min, max, abs and neg also have real forms: exec_float.cpp and exec_half.cpp
// call these.
void decode_integer_arithmetic(Decoder& decoder, Inst& inst, Type type) {
  inst.cls = InstClass::kInteger;
  const std::string& op = decoder.opcode();
  if (op == "mul" || op == "mad") return decode_product(decoder, inst, type, op == "mad");
  const bool saturate = decoder.take("sat");
  decode_same(decoder, inst, type, op == "abs" || op == "neg" ? 1 : 2);
  if (op == "add")
    inst.fn =
        saturate ? exec_binary<int32_t, int32_t, add_saturated> : SELECT_INT(decoder, type, add, exec_binary);
  else if (op == "sub")
    inst.fn =
        saturate ? exec_binary<int32_t, int32_t, sub_saturated> : SELECT_INT(decoder, type, sub, exec_binary);
  else if (op == "div")
    inst.fn = SELECT_INT(decoder, type, divide, exec_binary);
  else if (op == "rem")
    inst.fn = SELECT_INT(decoder, type, remainder, exec_binary);
  else if (op == "min")
    inst.fn = SELECT_INT(decoder, type, minimum, exec_binary);
  else if (op == "max")
    inst.fn = SELECT_INT(decoder, type, maximum, exec_binary);
  else if (op == "neg")
    inst.fn = SELECT_INT(decoder, type, negate, exec_unary);
  else if (op == "abs")
    inst.fn = absolute_of(decoder, type);
  else
    decoder.fail("this instruction has no integer form");
  if (saturate && type != Type::kS32) decoder.fail("only s32 saturates");
}

namespace {

void decode_integer(Decoder& decoder, Inst& inst) {
  decode_integer_arithmetic(decoder, inst, decoder.take_type());
}

void decode_24(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  bool high = decoder.take("hi");
  decoder.take("lo");
  Type type = decoder.take_type();
  bool mad = decoder.opcode() == "mad24", sign = type == Type::kS32;
  decode_same(decoder, inst, type, mad ? 3 : 2);
  if (mad && high) decoder.fail("mad24.hi is not supported");
  if (mad)
    inst.fn = sign ? exec_ternary<int32_t, int32_t, mad24_lo<int32_t>>
                   : exec_ternary<uint32_t, uint32_t, mad24_lo<uint32_t>>;
  else if (high)
    inst.fn = sign ? exec_binary<int32_t, int32_t, mul24_hi<int32_t>>
                   : exec_binary<uint32_t, uint32_t, mul24_hi<uint32_t>>;
  else
    inst.fn = sign ? exec_binary<int32_t, int32_t, mul24_lo<int32_t>>
                   : exec_binary<uint32_t, uint32_t, mul24_lo<uint32_t>>;
}

template <class A, class B>
ExecFn dot_two_of(bool high) {
  return high ? dot_two<A, B, 2> : dot_two<A, B, 0>;
}
void decode_dp2a(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  const bool high = decoder.take("hi");
  if (!high) decoder.take("lo");
  const Type a = decoder.take_type(), b = decoder.take_type();
  const Type sum = a == Type::kU32 && b == Type::kU32 ? Type::kU32 : Type::kS32;
  inst.op[0] = decoder.dest(0, sum);
  inst.op[1] = decoder.source(1, a);
  inst.op[2] = decoder.source(2, b);
  inst.op[3] = decoder.source(3, sum);
  if (a == Type::kS32)
    inst.fn = b == Type::kS32 ? dot_two_of<int16_t, int8_t>(high) : dot_two_of<int16_t, uint8_t>(high);
  else
    inst.fn = b == Type::kS32 ? dot_two_of<uint16_t, int8_t>(high) : dot_two_of<uint16_t, uint8_t>(high);
}

void decode_sad(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  Type type = decoder.take_type();
  decode_same(decoder, inst, type, 3);
  switch (type) {
    case Type::kU16:
      inst.fn = sad<uint16_t>;
      break;
    case Type::kS16:
      inst.fn = sad<int16_t>;
      break;
    case Type::kU32:
      inst.fn = sad<uint32_t>;
      break;
    case Type::kS32:
      inst.fn = sad<int32_t>;
      break;
    case Type::kU64:
      inst.fn = sad<uint64_t>;
      break;
    case Type::kS64:
      inst.fn = sad<int64_t>;
      break;
    default:
      decoder.fail("this type is not supported here");
  }
}

}  // namespace

void register_integer(OpcodeTable& table) {
  table["rem"] = decode_integer;
  table["mul24"] = table["mad24"] = decode_24;
  table["dp2a"] = decode_dp2a;
  table["sad"] = decode_sad;
}

}  // namespace trigen::emulator
