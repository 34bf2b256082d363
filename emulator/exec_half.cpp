// f16, f16x2, bf16 and bf16x2 arithmetic. Each operation is computed exactly enough in f32 or double and
// rounded once.
#include "emulator/exec.h"
#include "emulator/real16.h"

namespace trigen::emulator {
namespace {

struct HalfAdd {
  static float apply(float a, float b, float) { return a + b; }
};
struct HalfSub {
  static float apply(float a, float b, float) { return a - b; }
};
struct HalfMul {
  static float apply(float a, float b, float) { return a * b; }
};
struct HalfFma {
  static float apply(float a, float b, float c) {
    return round_to_odd(std::fma(static_cast<double>(a), static_cast<double>(b), static_cast<double>(c)));
  }
};
struct HalfMin {
  static float apply(float a, float b, float) {
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
struct HalfMax {
  static float apply(float a, float b, float) {
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
};
struct HalfMinNan {
  static float apply(float a, float b, float c) { return a != a ? a : b != b ? b : HalfMin::apply(a, b, c); }
};
struct HalfMaxNan {
  static float apply(float a, float b, float c) { return a != a ? a : b != b ? b : HalfMax::apply(a, b, c); }
};
struct HalfEx2 {
  static float apply(float a, float, float) { return round_to_odd(std::exp2(static_cast<double>(a))); }
};
struct HalfTanh {
  static float apply(float a, float, float) { return round_to_odd(std::tanh(static_cast<double>(a))); }
};

// inst.aux: 1 ftz (f16 subnormals), 2 sat, 4 relu. kLanes: 1 or 2 values in a register.
template <class Format, class Op, int kCount>
void half(Warp& warp, const Inst& inst, uint32_t mask) {
  uint16_t* d = warp.lanes<uint16_t>(inst.op[0]);
  const uint16_t* a = warp.lanes<uint16_t>(inst.op[1]);
  const uint16_t* b = warp.lanes<uint16_t>(inst.op[2]);
  const uint16_t* c = warp.lanes<uint16_t>(inst.op[3]);
  const bool ftz = (inst.aux & 1) != 0, sat = (inst.aux & 2) != 0, relu = (inst.aux & 4) != 0;
  auto read = [&](uint16_t bits) {
    if (ftz && (bits & 0x7c00) == 0) bits &= 0x8000;
    return Format::load(bits);
  };
  for_lanes(mask, [&](int lane) {
    for (int i = lane * kCount; i < (lane + 1) * kCount; ++i) {
      float r = Op::apply(read(a[i]), read(b[i]), read(c[i]));
      if (sat) r = r != r ? 0.0f : r < 0 ? 0.0f : r > 1 ? 1.0f : r;
      if (relu && r < 0) r = 0;
      uint16_t bits = Format::store(r);
      if (ftz && (bits & 0x7c00) == 0) bits &= 0x8000;
      d[i] = bits;
    }
  });
}

// abs and neg change the sign bit alone, NaN payloads included.
template <bool kNegate>
void sign_bits(Warp& warp, const Inst& inst, uint32_t mask) {
  const bool pair = inst.imm != 0;
  const uint32_t bits = pair ? 0x80008000u : 0x8000u;
  if (pair) {
    uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
    const uint32_t* a = warp.lanes<uint32_t>(inst.op[1]);
    for_lanes(mask, [=](int lane) { d[lane] = kNegate ? a[lane] ^ bits : a[lane] & ~bits; });
  } else {
    uint16_t* d = warp.lanes<uint16_t>(inst.op[0]);
    const uint16_t* a = warp.lanes<uint16_t>(inst.op[1]);
    for_lanes(mask,
              [=](int lane) { d[lane] = static_cast<uint16_t>(kNegate ? a[lane] ^ bits : a[lane] & ~bits); });
  }
}

template <class Op>
ExecFn select(Type type) {
  switch (type) {
    case Type::kF16:
      return half<F16, Op, 1>;
    case Type::kF16x2:
      return half<F16, Op, 2>;
    case Type::kBF16:
      return half<BF16, Op, 1>;
    default:
      return half<BF16, Op, 2>;
  }
}

}  // namespace

bool decode_half_arithmetic(Decoder& decoder, Inst& inst, Type type) {
  bool f16 = type == Type::kF16 || type == Type::kF16x2, bf16 = type == Type::kBF16 || type == Type::kBF16x2;
  if (!f16 && !bf16) return false;
  inst.cls = InstClass::kHalf;
  const std::string& op = decoder.opcode();
  decoder.ignore({"rn", "approx"});
  if (decoder.take("ftz") && f16) inst.aux |= 1;
  if (decoder.take("sat")) inst.aux |= 2;
  if (decoder.take("relu")) inst.aux |= 4;
  bool nan = decoder.take("NaN");
  int sources = op == "fma" ? 3 : op == "abs" || op == "neg" || op == "ex2" || op == "tanh" ? 1 : 2;
  int least = 70;
  if (op == "ex2" || op == "tanh") least = 75;
  if (bf16 || op == "min" || op == "max") least = 80;
  if (bf16 && (op == "add" || op == "sub" || op == "mul")) least = 90;
  decoder.require_target(least);
  decode_same(decoder, inst, type, sources);
  for (int i = sources + 1; i <= 3; ++i) inst.op[i] = inst.op[1];
  inst.imm = type == Type::kF16x2 || type == Type::kBF16x2 ? 1 : 0;
  if (op == "add")
    inst.fn = select<HalfAdd>(type);
  else if (op == "sub")
    inst.fn = select<HalfSub>(type);
  else if (op == "mul")
    inst.fn = select<HalfMul>(type);
  else if (op == "fma")
    inst.fn = select<HalfFma>(type);
  else if (op == "min")
    inst.fn = nan ? select<HalfMinNan>(type) : select<HalfMin>(type);
  else if (op == "max")
    inst.fn = nan ? select<HalfMaxNan>(type) : select<HalfMax>(type);
  else if (op == "abs")
    inst.fn = sign_bits<false>;
  else if (op == "neg")
    inst.fn = sign_bits<true>;
  else if (op == "ex2")
    inst.fn = select<HalfEx2>(type);
  else if (op == "tanh")
    inst.fn = select<HalfTanh>(type);
  else
    decoder.fail("this instruction has no 16-bit form");
  return true;
}

}  // namespace trigen::emulator
