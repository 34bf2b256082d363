// f32 and f64 arithmetic. IEEE operations round as asked; approximations are computed correctly rounded from
// double, which lies inside the error that the PTX ISA states for each ("Floating Point Instructions": ex2 2
// ulp, lg2 2^-22, rcp 1 ulp, sqrt 2^-23, rsqrt 2^-22.9, tanh 2^-11, div 2 ulp, sin and cos 2^-20.5; all of
// them, with their ranges, in tests/emulated/approximations.h).
#include <cfenv>

#include "emulator/exec.h"

namespace trigen::emulator {

void decode_integer_arithmetic(Decoder& decoder, Inst& inst, Type type);
bool decode_half_arithmetic(Decoder& decoder, Inst& inst, Type type);

namespace {

float quiet_nan() { return std::bit_cast<float>(0x7fffffffu); }

struct Add {
  template <class T>
  static T apply(T a, T b, T) {
    return a + b;
  }
};
struct Sub {
  template <class T>
  static T apply(T a, T b, T) {
    return a - b;
  }
};
struct Mul {
  template <class T>
  static T apply(T a, T b, T) {
    return a * b;
  }
};
struct Fma {
  template <class T>
  static T apply(T a, T b, T c) {
    return std::fma(a, b, c);
  }
};
struct Div {
  template <class T>
  static T apply(T a, T b, T) {
    return a / b;
  }
};
// div.approx: a divisor beyond 2^126 has no reciprocal, so the quotient is 0, or NaN of an infinity.
struct DivApprox {
  template <class T>
  static T apply(T a, T b, T) {
    if (!(std::fabs(b) > static_cast<T>(0x1p126)) || !std::isfinite(b)) return a / b;
    if (!std::isfinite(a)) return static_cast<T>(quiet_nan());
    return std::copysign(static_cast<T>(0), std::signbit(a) != std::signbit(b) ? T{-1} : T{1});
  }
};
struct Min {
  template <class T>
  static T apply(T a, T b, T) {
    if (a != a) return b;
    if (b != b) return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
  }
};
struct Max {
  template <class T>
  static T apply(T a, T b, T) {
    if (a != a) return b;
    if (b != b) return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
  }
};
struct MinNan {
  template <class T>
  static T apply(T a, T b, T c) {
    return a != a || b != b ? static_cast<T>(quiet_nan()) : Min::apply(a, b, c);
  }
};
struct MaxNan {
  template <class T>
  static T apply(T a, T b, T c) {
    return a != a || b != b ? static_cast<T>(quiet_nan()) : Max::apply(a, b, c);
  }
};
struct Abs {
  template <class T>
  static T apply(T a, T, T) {
    return std::fabs(a);
  }
};
struct Neg {
  template <class T>
  static T apply(T a, T, T) {
    return -a;
  }
};
struct Rcp {
  template <class T>
  static T apply(T a, T, T) {
    return static_cast<T>(1) / a;
  }
};
struct Sqrt {
  template <class T>
  static T apply(T a, T, T) {
    return std::sqrt(a);
  }
};
struct Rsqrt {
  template <class T>
  static T apply(T a, T, T) {
    return static_cast<T>(1.0 / std::sqrt(static_cast<double>(a)));
  }
};
struct Ex2 {
  template <class T>
  static T apply(T a, T, T) {
    return static_cast<T>(std::exp2(static_cast<double>(a)));
  }
};
struct Lg2 {
  template <class T>
  static T apply(T a, T, T) {
    return static_cast<T>(std::log2(static_cast<double>(a)));
  }
};
struct Sin {
  template <class T>
  static T apply(T a, T, T) {
    return static_cast<T>(std::sin(static_cast<double>(a)));
  }
};
struct Cos {
  template <class T>
  static T apply(T a, T, T) {
    return static_cast<T>(std::cos(static_cast<double>(a)));
  }
};
struct Tanh {
  template <class T>
  static T apply(T a, T, T) {
    return static_cast<T>(std::tanh(static_cast<double>(a)));
  }
};

inline float saturate(float v) { return v != v ? 0.0f : v < 0 ? 0.0f : v > 1 ? 1.0f : v; }

template <class Op, bool kFlush, bool kSaturate, bool kCanonical>
void f32(Warp& warp, const Inst& inst, uint32_t mask) {
  float* d = warp.lanes<float>(inst.op[0]);
  const float* a = warp.lanes<float>(inst.op[1]);
  const float* b = warp.lanes<float>(inst.op[2]);
  const float* c = warp.lanes<float>(inst.op[3]);
  for_lanes(mask, [=](int lane) {
    float x = a[lane], y = b[lane], z = c[lane];
    if (kFlush) {
      x = flush(x);
      y = flush(y);
      z = flush(z);
    }
    float r = Op::template apply<float>(x, y, z);
    if (kFlush) r = flush(r);
    if (kSaturate) r = saturate(r);
    if (kCanonical) r = r != r ? quiet_nan() : r;
    d[lane] = r;
  });
}

// Directed rounding, through the host's rounding mode. inst.aux: FE_* mode, with 1 << 16 for ftz, 1 << 17 for
// sat.
template <class T, class Op>
__attribute__((noinline)) void directed(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const T* b = warp.lanes<T>(inst.op[2]);
  const T* c = warp.lanes<T>(inst.op[3]);
  const bool ftz = (inst.aux >> 16 & 1) != 0, sat = (inst.aux >> 17 & 1) != 0;
  const int before = std::fegetround();
  std::fesetround(static_cast<int>(inst.aux & 0xffff));
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    int lane = __builtin_ctz(rest);
    volatile T x = a[lane], y = b[lane], z = c[lane];
    if constexpr (sizeof(T) == 4)
      if (ftz) {
        x = flush(x);
        y = flush(y);
        z = flush(z);
      }
    volatile T r = Op::template apply<T>(x, y, z);
    T out = r;
    if constexpr (sizeof(T) == 4) {
      if (ftz) out = flush(out);
      if (sat) out = saturate(out);
      if (out != out) out = quiet_nan();
    }
    d[lane] = out;
  }
  std::fesetround(before);
}

template <class Op>
void f64(Warp& warp, const Inst& inst, uint32_t mask) {
  double* d = warp.lanes<double>(inst.op[0]);
  const double* a = warp.lanes<double>(inst.op[1]);
  const double* b = warp.lanes<double>(inst.op[2]);
  const double* c = warp.lanes<double>(inst.op[3]);
  for_lanes(mask, [=](int lane) { d[lane] = Op::template apply<double>(a[lane], b[lane], c[lane]); });
}

template <class Op, bool kCanonical = true>
void select_f32(Inst& inst, bool ftz, bool sat) {
  inst.fn = ftz ? (sat ? f32<Op, true, true, kCanonical> : f32<Op, true, false, kCanonical>)
                : (sat ? f32<Op, false, true, kCanonical> : f32<Op, false, false, kCanonical>);
}

template <class Op>
void select(Decoder& decoder, Inst& inst, Type type, int sources, int mode, bool ftz, bool sat) {
  decode_same(decoder, inst, type, sources);
  for (int i = sources + 1; i <= 3; ++i) inst.op[i] = inst.op[1];
  inst.cls = type == Type::kF64 ? InstClass::kDouble : InstClass::kFloat;
  if (mode > 0) {
    const int modes[] = {FE_TONEAREST, FE_TOWARDZERO, FE_DOWNWARD, FE_UPWARD};
    inst.aux = static_cast<uint64_t>(modes[mode]) | (ftz ? 1u << 16 : 0u) | (sat ? 1u << 17 : 0u);
    inst.fn = type == Type::kF64 ? directed<double, Op> : directed<float, Op>;
  } else if (type == Type::kF64) {
    inst.fn = f64<Op>;
  } else {
    select_f32<Op>(inst, ftz, sat);
  }
}

// add, sub, mul, fma, mad, div, min, max, abs, neg: the type decides whose instruction it is.
void decode_arithmetic(Decoder& decoder, Inst& inst) {
  Type type = decoder.take_type();
  if (is_integer(type)) return decode_integer_arithmetic(decoder, inst, type);
  if (decode_half_arithmetic(decoder, inst, type)) return;
  if (type != Type::kF32 && type != Type::kF64) decoder.fail("this type is not supported here");
  const std::string& op = decoder.opcode();
  const bool approx = decoder.take("approx");
  decoder.ignore({"full"});
  int mode = decoder.take_any({"rn", "rz", "rm", "rp"});
  bool ftz = decoder.take("ftz"), sat = decoder.take("sat");
  if (op == "add")
    select<Add>(decoder, inst, type, 2, mode, ftz, sat);
  else if (op == "sub")
    select<Sub>(decoder, inst, type, 2, mode, ftz, sat);
  else if (op == "mul")
    select<Mul>(decoder, inst, type, 2, mode, ftz, sat);
  else if (op == "fma" || op == "mad")
    select<Fma>(decoder, inst, type, 3, mode, ftz, sat);
  else if (op == "div" && approx)
    select<DivApprox>(decoder, inst, type, 2, mode, ftz, sat);
  else if (op == "div")
    select<Div>(decoder, inst, type, 2, mode, ftz, sat);
  else if (op == "min" || op == "max") {
    bool nan = decoder.take("NaN");
    int sources = decoder.operand_count() == 4 ? 3 : 2;
    if (sources == 3) decoder.fail("the three-operand form is not supported");
    if (op == "min")
      nan ? select<MinNan>(decoder, inst, type, 2, 0, ftz, false)
          : select<Min>(decoder, inst, type, 2, 0, ftz, false);
    else
      nan ? select<MaxNan>(decoder, inst, type, 2, 0, ftz, false)
          : select<Max>(decoder, inst, type, 2, 0, ftz, false);
  } else {
    decode_same(decoder, inst, type, 1);
    inst.op[2] = inst.op[3] = inst.op[1];
    inst.cls = InstClass::kFloat;
    if (op == "abs")
      type == Type::kF64 ? void(inst.fn = f64<Abs>) : select_f32<Abs, false>(inst, ftz, false);
    else
      type == Type::kF64 ? void(inst.fn = f64<Neg>) : select_f32<Neg, false>(inst, ftz, false);
  }
}

void decode_function(Decoder& decoder, Inst& inst) {
  const std::string& op = decoder.opcode();
  bool approx = decoder.take("approx");
  Type type = decoder.take_type();
  if (decode_half_arithmetic(decoder, inst, type)) return;
  if (type != Type::kF32 && type != Type::kF64) decoder.fail("this type is not supported here");
  int mode = decoder.take_any({"rn", "rz", "rm", "rp"});
  bool ftz = decoder.take("ftz");
  if (!approx && mode < 0) decoder.fail("neither .approx nor a rounding is given");
  if (op == "rcp")
    select<Rcp>(decoder, inst, type, 1, mode, ftz, false);
  else if (op == "sqrt")
    select<Sqrt>(decoder, inst, type, 1, mode, ftz, false);
  else if (op == "rsqrt")
    select<Rsqrt>(decoder, inst, type, 1, 0, ftz, false);
  else if (op == "ex2")
    select<Ex2>(decoder, inst, type, 1, 0, ftz, false);
  else if (op == "lg2")
    select<Lg2>(decoder, inst, type, 1, 0, ftz, false);
  else if (op == "sin")
    select<Sin>(decoder, inst, type, 1, 0, ftz, false);
  else if (op == "cos")
    select<Cos>(decoder, inst, type, 1, 0, ftz, false);
  else {
    decoder.require_target(75);
    select<Tanh>(decoder, inst, type, 1, 0, ftz, false);
  }
}

float copy_sign(float a, float b) { return std::copysign(b, a); }

void decode_copysign(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kFloat;
  if (decoder.take_type() != Type::kF32) decoder.fail("only f32 is supported");
  decode_same(decoder, inst, Type::kF32, 2);
  inst.fn = exec_binary<float, float, copy_sign>;
}

// testp.mode: inst.imm selects.
void test_property(Warp& warp, const Inst& inst, uint32_t mask) {
  const float* a = warp.lanes<float>(inst.op[1]);
  const int mode = static_cast<int>(inst.imm);
  warp.set_predicate(inst.op[0],
                     lane_bits(mask,
                               [&](int lane) {
                                 int kind = std::fpclassify(a[lane]);
                                 switch (mode) {
                                   case 0:
                                     return kind != FP_INFINITE && kind != FP_NAN;
                                   case 1:
                                     return kind == FP_INFINITE;
                                   case 2:
                                     return kind != FP_NAN;
                                   case 3:
                                     return kind == FP_NAN;
                                   case 4:
                                     return kind == FP_NORMAL || kind == FP_ZERO;
                                   default:
                                     return kind == FP_SUBNORMAL;
                                 }
                               }),
                     mask);
}

void decode_testp(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kCompare;
  inst.imm = decoder.take_any({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
  if (decoder.take_type() != Type::kF32) decoder.fail("only f32 is supported");
  inst.op[0] = decoder.predicate_dest(0);
  inst.op[1] = decoder.source(1, Type::kF32);
  inst.fn = test_property;
}

}  // namespace

void register_float(OpcodeTable& table) {
  for (const char* op : {"add", "sub", "mul", "fma", "mad", "div", "min", "max", "abs", "neg"})
    table[op] = decode_arithmetic;
  for (const char* op : {"rcp", "sqrt", "rsqrt", "ex2", "lg2", "sin", "cos", "tanh"})
    table[op] = decode_function;
  table["copysign"] = decode_copysign;
  table["testp"] = decode_testp;
}

}  // namespace trigen::emulator
