// Lane-wise handlers as templates over the operation, shared by the exec_*.cpp files.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "emulator/block.h"
#include "emulator/decoder.h"

namespace trigen::emulator {

template <class D, class A, D (*F)(A)>
void exec_unary(Warp& warp, const Inst& inst, uint32_t mask) {
  D* d = warp.lanes<D>(inst.op[0]);
  const A* a = warp.lanes<A>(inst.op[1]);
  for_lanes(mask, [=](int lane) { d[lane] = F(a[lane]); });
}

template <class D, class A, D (*F)(A, A)>
void exec_binary(Warp& warp, const Inst& inst, uint32_t mask) {
  D* d = warp.lanes<D>(inst.op[0]);
  const A* a = warp.lanes<A>(inst.op[1]);
  const A* b = warp.lanes<A>(inst.op[2]);
  for_lanes(mask, [=](int lane) { d[lane] = F(a[lane], b[lane]); });
}

template <class D, class A, D (*F)(A, A, A)>
void exec_ternary(Warp& warp, const Inst& inst, uint32_t mask) {
  D* d = warp.lanes<D>(inst.op[0]);
  const A* a = warp.lanes<A>(inst.op[1]);
  const A* b = warp.lanes<A>(inst.op[2]);
  const A* c = warp.lanes<A>(inst.op[3]);
  for_lanes(mask, [=](int lane) { d[lane] = F(a[lane], b[lane], c[lane]); });
}

// The handler of what needs no action here.
inline void exec_nothing(Warp&, const Inst&, uint32_t) {}

// An instruction that the whole warp executes together: `what` names it ("a matrix product").
inline void need_whole_warp(Warp& warp, uint32_t mask, const char* what) {
  if (mask != kFullMask)
    warp.abort(Fault::kMissingLanes, static_cast<uint32_t>(__builtin_ctz(mask)),
               "lane " + std::to_string(__builtin_ctz(~mask)) + " does not take part in " + what +
                   " of the whole warp");
}

// A lane mask from a per-lane test.
template <class F>
inline uint32_t lane_bits(uint32_t mask, F&& test) {
  uint32_t bits = 0;
  for (int lane = 0; lane < 32; ++lane) bits |= static_cast<uint32_t>(test(lane) ? 1u : 0u) << lane;
  return bits & mask;
}

// Decodes "op d, a, b, ..." with all operands of one type.
inline void decode_same(Decoder& decoder, Inst& inst, Type type, int sources) {
  inst.op[0] = decoder.dest(0, type);
  for (int i = 1; i <= sources; ++i) inst.op[i] = decoder.source(static_cast<size_t>(i), type);
}

inline float flush(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  return (bits & 0x7f800000u) == 0 ? std::bit_cast<float>(bits & 0x80000000u) : value;
}

// Type sets by signedness and size, for tables of handlers.
inline bool is_signed(Type type) {
  return type == Type::kS8 || type == Type::kS16 || type == Type::kS32 || type == Type::kS64;
}
inline bool is_integer(Type type) {
  switch (type) {
    case Type::kU8:
    case Type::kS8:
    case Type::kB8:
    case Type::kU16:
    case Type::kS16:
    case Type::kB16:
    case Type::kU32:
    case Type::kS32:
    case Type::kB32:
    case Type::kU64:
    case Type::kS64:
    case Type::kB64:
      return true;
    default:
      return false;
  }
}

}  // namespace trigen::emulator
