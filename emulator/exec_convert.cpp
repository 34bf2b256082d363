// cvt: between integers, f16, bf16, tf32, f32 and f64, and the packed forms that take two f32.
#include <cfenv>

#include "emulator/exec.h"
#include "emulator/real16.h"

namespace trigen::emulator {
namespace {

bool is_real(Type type) {
  return type == Type::kF16 || type == Type::kBF16 || type == Type::kTF32 || type == Type::kF32 ||
         type == Type::kF64;
}

// inst.aux of a general conversion.
enum : uint64_t { kFtz = 1, kSat = 2, kRelu = 4 };

// How a source value travels: integers as int64/uint64 bits, reals as double (exact for all of them).
struct Value {
  bool real = false;
  bool is_unsigned = false;
  double r = 0;
  uint64_t bits = 0;
};

Value load(const uint8_t* at, Type type, bool ftz) {
  Value value;
  switch (type) {
    case Type::kU8:
    case Type::kB8:
      value.bits = *at;
      value.is_unsigned = true;
      break;
    case Type::kS8:
      value.bits = static_cast<uint64_t>(static_cast<int64_t>(static_cast<int8_t>(*at)));
      break;
    case Type::kU16:
    case Type::kB16: {
      uint16_t v;
      std::memcpy(&v, at, 2);
      value.bits = v;
      value.is_unsigned = true;
      break;
    }
    case Type::kS16: {
      int16_t v;
      std::memcpy(&v, at, 2);
      value.bits = static_cast<uint64_t>(static_cast<int64_t>(v));
      break;
    }
    case Type::kU32:
    case Type::kB32: {
      uint32_t v;
      std::memcpy(&v, at, 4);
      value.bits = v;
      value.is_unsigned = true;
      break;
    }
    case Type::kS32: {
      int32_t v;
      std::memcpy(&v, at, 4);
      value.bits = static_cast<uint64_t>(static_cast<int64_t>(v));
      break;
    }
    case Type::kU64:
    case Type::kB64:
      std::memcpy(&value.bits, at, 8);
      value.is_unsigned = true;
      break;
    case Type::kS64:
      std::memcpy(&value.bits, at, 8);
      break;
    case Type::kF16: {
      uint16_t v;
      std::memcpy(&v, at, 2);
      value.real = true;
      value.r = static_cast<double>(f16_to_f32(v));
      break;
    }
    case Type::kBF16: {
      uint16_t v;
      std::memcpy(&v, at, 2);
      value.real = true;
      value.r = static_cast<double>(bf16_to_f32(v));
      break;
    }
    case Type::kF32: {
      float v;
      std::memcpy(&v, at, 4);
      value.real = true;
      value.r = static_cast<double>(ftz ? flush(v) : v);
      break;
    }
    default:
      std::memcpy(&value.r, at, 8);
      value.real = true;
      break;
  }
  return value;
}

double round_integral(double value, int mode) {  // rni, rzi, rmi, rpi
  switch (mode) {
    case 0:
      return std::nearbyint(value);
    case 1:
      return std::trunc(value);
    case 2:
      return std::floor(value);
    default:
      return std::ceil(value);
  }
}

int bits_of(Type type) { return 8 * type_bytes(type); }

// A real to an integer: rounds, and clamps to the range; NaN gives 0 (f64 and 64-bit targets: the lowest
// value).
uint64_t to_integer(double value, Type type, int mode) {
  if (value != value) {
    if (type_bytes(type) == 8) return uint64_t{1} << 63;
    return 0;
  }
  double rounded = round_integral(value, mode);
  int bits = bits_of(type);
  if (is_signed(type)) {
    double low = -std::ldexp(1.0, bits - 1), high = std::ldexp(1.0, bits - 1);
    if (rounded < low) rounded = low;
    if (rounded >= high) return (uint64_t{1} << (bits - 1)) - 1;
    return static_cast<uint64_t>(static_cast<int64_t>(rounded));
  }
  if (rounded < 0) return 0;
  if (rounded >= std::ldexp(1.0, bits)) return bits == 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
  return static_cast<uint64_t>(rounded);
}

uint64_t clamp_integer(const Value& value, Type type) {
  __int128 v = value.is_unsigned ? static_cast<__int128>(value.bits)
                                 : static_cast<__int128>(static_cast<int64_t>(value.bits));
  int bits = bits_of(type);
  __int128 low = is_signed(type) ? -(__int128{1} << (bits - 1)) : 0;
  __int128 high = is_signed(type) ? (__int128{1} << (bits - 1)) - 1 : (__int128{1} << bits) - 1;
  return static_cast<uint64_t>(v < low ? low : v > high ? high : v);
}

// A double to f32 with a directed rounding.
float to_f32(double value, int mode) {
  if (mode <= 0) return static_cast<float>(value);
  const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  int before = std::fegetround();
  std::fesetround(modes[mode]);
  volatile double in = value;
  volatile float out = static_cast<float>(in);
  std::fesetround(before);
  return out;
}

float integer_to_f32(const Value& value, int mode) {
  const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
  int before = std::fegetround();
  std::fesetround(modes[mode < 0 ? 0 : mode]);
  volatile uint64_t u = value.bits;
  volatile int64_t s = static_cast<int64_t>(value.bits);
  volatile float out = value.is_unsigned ? static_cast<float>(u) : static_cast<float>(s);
  std::fesetround(before);
  return out;
}

Rounding rounding_of(int mode) {
  const Rounding table[] = {Rounding::kNearest, Rounding::kZero, Rounding::kDown, Rounding::kUp,
                            Rounding::kNearestAway};
  return table[mode < 0 ? 0 : mode];
}

// inst.imm: source type | target type << 8 | (rounding + 1) << 16 | (integral + 1) << 24, 0: none given.
// reg_width: target register's bytes; width: source register's bytes.
void convert(Warp& warp, const Inst& inst, uint32_t mask) {
  const Type from = static_cast<Type>(inst.imm & 0xff), to = static_cast<Type>(inst.imm >> 8 & 0xff);
  const int mode = static_cast<int>(inst.imm >> 16 & 0xff) - 1;
  const int integral = static_cast<int>(inst.imm >> 24 & 0xff) - 1;
  const bool ftz = (inst.aux & kFtz) != 0, sat = (inst.aux & kSat) != 0, relu = (inst.aux & kRelu) != 0;
  const uint8_t* a = warp.registers + inst.op[1];
  uint8_t* d = warp.registers + inst.op[0];
  for_lanes(mask, [&](int lane) {
    Value value = load(a + lane * inst.width, from, ftz);
    uint64_t out = 0;
    if (is_real(to)) {
      double r = value.r;
      if (value.real && integral >= 0) r = round_integral(r, integral);
      if (!value.real)
        r = value.is_unsigned ? static_cast<double>(value.bits)
                              : static_cast<double>(static_cast<int64_t>(value.bits));
      if (sat) r = r != r ? 0 : r < 0 ? 0 : r > 1 ? 1 : r;
      if (relu && r < 0) r = 0;
      if (to == Type::kF64) {
        std::memcpy(&out, &r, 8);
      } else if (to == Type::kF32) {
        float f = value.real ? to_f32(r, mode) : integer_to_f32(value, mode);
        if (sat) f = static_cast<float>(r);
        if (ftz) f = flush(f);
        if (f != f) f = std::bit_cast<float>(0x7fffffffu);
        std::memcpy(&out, &f, 4);
      } else if (to == Type::kTF32) {
        out = f32_to_tf32(static_cast<float>(r), rounding_of(mode));
      } else {
        float f = round_to_odd(r);
        out = to == Type::kF16 ? f32_to_f16(f, rounding_of(mode)) : f32_to_bf16(f, rounding_of(mode));
      }
    } else if (value.real) {
      out = to_integer(value.r, to, integral < 0 ? 1 : integral);
    } else {
      out = sat ? clamp_integer(value, to) : value.bits;
      // The result has the target's size; a wider register takes it extended by the target's sign.
      int bits = bits_of(to);
      if (bits < 64) {
        out &= (uint64_t{1} << bits) - 1;
        if (is_signed(to) && (out >> (bits - 1)) != 0) out |= ~((uint64_t{1} << bits) - 1);
      }
    }
    std::memcpy(d + lane * inst.reg_width, &out, inst.reg_width);
  });
}

// Fast paths of the conversions that kernels do most.
void f16_from_f32(Warp& warp, const Inst& inst, uint32_t mask) {
  uint16_t* d = warp.lanes<uint16_t>(inst.op[0]);
  const float* a = warp.lanes<float>(inst.op[1]);
  for_lanes(mask, [=](int lane) { d[lane] = f32_to_f16(a[lane]); });
}
void f32_from_f16(Warp& warp, const Inst& inst, uint32_t mask) {
  float* d = warp.lanes<float>(inst.op[0]);
  const uint16_t* a = warp.lanes<uint16_t>(inst.op[1]);
  // NaN has one form, as in all f32 results.
  for_lanes(mask, [=](int lane) {
    const float value = f16_to_f32(a[lane]);
    d[lane] = value != value ? std::bit_cast<float>(0x7fffffffu) : value;
  });
}
template <Rounding kRounding>
void tf32_from_f32(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
  const float* a = warp.lanes<float>(inst.op[1]);
  for_lanes(mask, [=](int lane) { d[lane] = f32_to_tf32(a[lane], kRounding); });
}
void bf16_from_f32(Warp& warp, const Inst& inst, uint32_t mask) {
  uint16_t* d = warp.lanes<uint16_t>(inst.op[0]);
  const float* a = warp.lanes<float>(inst.op[1]);
  for_lanes(mask, [=](int lane) { d[lane] = f32_to_bf16(a[lane]); });
}
template <class D, class A>
void integers(Warp& warp, const Inst& inst, uint32_t mask) {
  D* d = warp.lanes<D>(inst.op[0]);
  const A* a = warp.lanes<A>(inst.op[1]);
  for_lanes(mask, [=](int lane) { d[lane] = static_cast<D>(a[lane]); });
}

// cvt.rn.f16x2.f32 d, a, b: a goes to the upper half. op[1] = a, op[2] = b.
template <class Format, bool kBrain>
void pack_pair(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
  const float* a = warp.lanes<float>(inst.op[1]);
  const float* b = warp.lanes<float>(inst.op[2]);
  const Rounding rounding = rounding_of(static_cast<int>(inst.imm));
  const bool relu = (inst.aux & kRelu) != 0;
  auto one = [&](float v) -> uint32_t {
    if (relu && v < 0) v = 0;
    return kBrain ? f32_to_bf16(v, rounding) : f32_to_f16(v, rounding);
  };
  for_lanes(mask, [&](int lane) { d[lane] = one(a[lane]) << 16 | one(b[lane]); });
}

ExecFn fast_integers(Type to, Type from, int to_width, int from_width) {
  if (to_width != type_bytes(to) || from_width != type_bytes(from)) return nullptr;
  bool sign = is_signed(from);
  int t = type_bytes(to), f = type_bytes(from);
  if (t == 8 && f == 4) return sign ? integers<int64_t, int32_t> : integers<uint64_t, uint32_t>;
  if (t == 4 && f == 8) return integers<uint32_t, uint64_t>;
  if (t == 4 && f == 2) return sign ? integers<int32_t, int16_t> : integers<uint32_t, uint16_t>;
  if (t == 2 && f == 4) return integers<uint16_t, uint32_t>;
  return nullptr;
}

void decode_convert(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kConvert;
  int mode = decoder.take_any({"rn", "rz", "rm", "rp", "rna"});
  int integral = decoder.take_any({"rni", "rzi", "rmi", "rpi"});
  if (decoder.take("ftz")) inst.aux |= kFtz;
  bool saturate = decoder.take("sat");
  if (saturate) inst.aux |= kSat;
  if (decoder.take("relu")) inst.aux |= kRelu;
  Type to = decoder.take_type(), from = decoder.take_type();
  if (to == Type::kNone || from == Type::kNone) decoder.fail("a type is missing or not supported");
  if (to == Type::kF16x2 || to == Type::kBF16x2) {
    decoder.require_target(80);
    if (from != Type::kF32 || saturate) decoder.fail("this packed conversion is not supported");
    inst.op[0] = decoder.dest(0, to);
    inst.op[1] = decoder.source(1, Type::kF32);
    inst.op[2] = decoder.source(2, Type::kF32);
    inst.imm = mode;
    inst.fn = to == Type::kF16x2 ? pack_pair<F16, false> : pack_pair<BF16, true>;
    return;
  }
  if (to == Type::kTF32 || to == Type::kBF16 || from == Type::kBF16) decoder.require_target(80);
  if (from == Type::kF16x2 || from == Type::kBF16x2 || from == Type::kTF32)
    decoder.fail("this conversion is not supported");
  uint8_t to_width, from_width;
  inst.op[0] = decoder.any_width(decoder.operand(0), &to_width, to == Type::kTF32 ? Type::kB32 : to);
  inst.op[1] = decoder.any_width(decoder.operand(1), &from_width, from);
  inst.reg_width = to_width;
  inst.width = from_width;
  if (from_width < type_bytes(from) || to_width < type_bytes(to))
    decoder.fail("a register is too small for its type");
  // PTX lets f32 to f32 and f16 to f16 with an integral rounding, and nothing else, keep the type.
  inst.imm = static_cast<int64_t>(from) | static_cast<int64_t>(to) << 8 |
             static_cast<int64_t>(mode + 1) << 16 | static_cast<int64_t>(integral + 1) << 24;
  inst.fn = convert;
  if (inst.aux == 0 && integral < 0) {
    if (to == Type::kF16 && from == Type::kF32 && mode == 0)
      inst.fn = f16_from_f32;
    else if (to == Type::kF32 && from == Type::kF16)
      inst.fn = f32_from_f16;
    else if (to == Type::kTF32 && from == Type::kF32 && (mode == 0 || mode == 4))
      inst.fn = mode == 0 ? tf32_from_f32<Rounding::kNearest> : tf32_from_f32<Rounding::kNearestAway>;
    else if (to == Type::kBF16 && from == Type::kF32 && mode == 0)
      inst.fn = bf16_from_f32;
    else if (!is_real(to) && !is_real(from)) {
      ExecFn fast = fast_integers(to, from, to_width, from_width);
      if (fast != nullptr) inst.fn = fast;
    }
  }
}

}  // namespace

void register_convert(OpcodeTable& table) { table["cvt"] = decode_convert; }

}  // namespace trigen::emulator
