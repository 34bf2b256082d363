// Exchanges between the lanes of a warp: shfl, vote, match, redux, elect, activemask. op[0] is the member
// mask.
#include "emulator/exec.h"

namespace trigen::emulator {
namespace {

// op[1]: d, op[2]: p or none, op[3]: a, op[4]: b, op[5]: c. aux: 0 up, 1 down, 2 bfly, 3 idx. (PTX ISA,
// "shfl.sync")
void shuffle(Warp& warp, const Inst& inst, uint32_t mask) {
  const uint32_t* a = warp.lanes<uint32_t>(inst.op[3]);
  const uint32_t* b = warp.lanes<uint32_t>(inst.op[4]);
  const uint32_t* c = warp.lanes<uint32_t>(inst.op[5]);
  uint32_t out[32], in_range = 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint32_t segment = c[lane] >> 8 & 31, clamp = c[lane] & 31, distance = b[lane] & 31;
    const int last = static_cast<int>((lane & segment) | (clamp & ~segment)),
              first = static_cast<int>(lane & segment);
    int from = 0;
    bool good = false;
    switch (inst.aux) {
      case 0:
        from = static_cast<int>(lane - distance);
        good = from >= last;
        break;
      case 1:
        from = static_cast<int>(lane + distance);
        good = from <= last;
        break;
      case 2:
        from = static_cast<int>(lane ^ distance);
        good = from <= last;
        break;
      default:
        from = first | static_cast<int>(distance & ~segment);
        good = from <= last;
        break;
    }
    if (!good) from = static_cast<int>(lane);
    if ((mask >> from & 1) == 0)
      warp.abort(Fault::kMissingLanes, lane,
                 "reads from lane " + std::to_string(from) + ", which does not take part");
    out[lane] = a[from];
    in_range |= (good ? 1u : 0u) << lane;
  }
  uint32_t* d = warp.lanes<uint32_t>(inst.op[1]);
  for_lanes(mask, [&](int lane) { d[lane] = out[lane]; });
  if (inst.op[2] != kNoSlot) warp.set_predicate(inst.op[2], in_range, mask);
}

void decode_shuffle(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kWarp;
  if (!decoder.take("sync")) decoder.fail("shfl without .sync does not exist on sm_70 and later");
  int mode = decoder.take_any({"up", "down", "bfly", "idx"});
  if (mode < 0) decoder.fail("the mode is missing");
  decoder.take_type();
  inst.aux = static_cast<uint64_t>(mode);
  inst.flow = Flow::kCollective;
  const Operand& target = decoder.operand(0);
  inst.op[1] = decoder.dest(0, Type::kB32);
  inst.op[2] = decoder.second_predicate_dest(target);
  inst.op[3] = decoder.source(1, Type::kB32);
  inst.op[4] = decoder.source(2, Type::kB32);
  inst.op[5] = decoder.source(3, Type::kB32);
  inst.op[0] = decoder.source(4, Type::kB32);
  inst.fn = shuffle;
}

// op[1]: d, op[2]: predicate. aux: 0 all, 1 any, 2 uni, 3 ballot; imm: negated.
void vote(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t bits = warp.predicate(inst.op[2]);
  if (inst.imm != 0) bits = ~bits;
  bits &= mask;
  if (inst.aux == 3) {
    uint32_t* d = warp.lanes<uint32_t>(inst.op[1]);
    for_lanes(mask, [=](int lane) { d[lane] = bits; });
    return;
  }
  bool result = inst.aux == 0 ? bits == mask : inst.aux == 1 ? bits != 0 : bits == 0 || bits == mask;
  warp.set_predicate(inst.op[1], result ? kFullMask : 0, mask);
}

void decode_vote(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kWarp;
  if (!decoder.take("sync")) decoder.fail("vote without .sync does not exist on sm_70 and later");
  int mode = decoder.take_any({"all", "any", "uni", "ballot"});
  if (mode < 0) decoder.fail("the mode is missing");
  decoder.take_type();
  inst.aux = static_cast<uint64_t>(mode);
  inst.flow = Flow::kCollective;
  inst.op[1] = mode == 3 ? decoder.dest(0, Type::kB32) : decoder.predicate_dest(0);
  bool negated = false;
  inst.op[2] = decoder.predicate(1, &negated);
  inst.imm = negated ? 1 : 0;
  inst.op[0] = decoder.source(2, Type::kB32);
  inst.fn = vote;
}

template <class T>
void match(Warp& warp, const Inst& inst, uint32_t mask) {
  const T* a = warp.lanes<T>(inst.op[2]);
  uint32_t* d = warp.lanes<uint32_t>(inst.op[1]);
  const bool all = inst.aux != 0;
  uint32_t out[32];
  bool same = true;
  const T first = a[__builtin_ctz(mask)];
  for_lanes(mask, [&](int lane) {
    out[lane] = 0;
    for (uint32_t rest = mask; rest != 0; rest &= rest - 1)
      if (a[__builtin_ctz(rest)] == a[lane]) out[lane] |= rest & -rest;
    same = same && a[lane] == first;
  });
  for_lanes(mask, [&](int lane) { d[lane] = all ? (same ? mask : 0) : out[lane]; });
  if (inst.op[3] != kNoSlot) warp.set_predicate(inst.op[3], same ? kFullMask : 0, mask);
}

void decode_match(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kWarp;
  int mode = decoder.take_any({"any", "all"});
  decoder.take("sync");
  Type type = decoder.take_type();
  inst.aux = mode == 1 ? 1 : 0;
  inst.flow = Flow::kCollective;
  const Operand& target = decoder.operand(0);
  inst.op[1] = decoder.dest(0, Type::kB32);
  inst.op[3] = decoder.second_predicate_dest(target);
  inst.op[2] = decoder.source(1, type);
  inst.op[0] = decoder.source(2, Type::kB32);
  inst.fn = type_bytes(type) == 8 ? match<uint64_t> : match<uint32_t>;
}

// aux: 0 add, 1 min, 2 max, 3 and, 4 or, 5 xor; imm: signed.
void reduce(Warp& warp, const Inst& inst, uint32_t mask) {
  const uint32_t* a = warp.lanes<uint32_t>(inst.op[2]);
  uint32_t* d = warp.lanes<uint32_t>(inst.op[1]);
  uint32_t result = a[__builtin_ctz(mask)];
  for (uint32_t rest = mask & (mask - 1); rest != 0; rest &= rest - 1) {
    uint32_t b = a[__builtin_ctz(rest)];
    bool less = inst.imm != 0 ? static_cast<int32_t>(b) < static_cast<int32_t>(result) : b < result;
    switch (inst.aux) {
      case 0:
        result += b;
        break;
      case 1:
        result = less ? b : result;
        break;
      case 2:
        result = less ? result : b;
        break;
      case 3:
        result &= b;
        break;
      case 4:
        result |= b;
        break;
      default:
        result ^= b;
        break;
    }
  }
  for_lanes(mask, [=](int lane) { d[lane] = result; });
}

void decode_redux(Decoder& decoder, Inst& inst) {
  decoder.require_target(80);
  inst.cls = InstClass::kWarp;
  decoder.take("sync");
  int op = decoder.take_any({"add", "min", "max", "and", "or", "xor"});
  Type type = decoder.take_type();
  if (op < 0 || !is_integer(type)) decoder.fail("this reduction is not supported");
  inst.aux = static_cast<uint64_t>(op);
  inst.imm = type == Type::kS32 ? 1 : 0;
  inst.flow = Flow::kCollective;
  inst.op[1] = decoder.dest(0, Type::kB32);
  inst.op[2] = decoder.source(1, Type::kB32);
  inst.op[0] = decoder.source(2, Type::kB32);
  inst.fn = reduce;
}

// elect.sync d|p, membermask: one lane, here the lowest, gets a true predicate.
void elect(Warp& warp, const Inst& inst, uint32_t mask) {
  const uint32_t leader = static_cast<uint32_t>(__builtin_ctz(mask));
  uint32_t* d = warp.lanes<uint32_t>(inst.op[1]);
  for_lanes(mask, [=](int lane) { d[lane] = leader; });
  warp.set_predicate(inst.op[2], 1u << leader, mask);
}

void decode_elect(Decoder& decoder, Inst& inst) {
  decoder.require_target(90);
  inst.cls = InstClass::kWarp;
  decoder.take("sync");
  inst.flow = Flow::kCollective;
  const Operand& target = decoder.operand(0);
  inst.op[1] = decoder.dest(0, Type::kB32);
  inst.op[2] = decoder.second_predicate_dest(target);
  if (inst.op[2] == kNoSlot) decoder.fail("the predicate is missing");
  inst.op[0] = decoder.source(1, Type::kB32);
  inst.fn = elect;
}

void active(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
  for_lanes(mask, [=](int lane) { d[lane] = mask; });
}

void decode_activemask(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kWarp;
  decoder.take_type();
  inst.op[0] = decoder.dest(0, Type::kB32);
  inst.fn = active;
}

}  // namespace

void register_warp(OpcodeTable& table) {
  table["shfl"] = decode_shuffle;
  table["vote"] = decode_vote;
  table["match"] = decode_match;
  table["redux"] = decode_redux;
  table["elect"] = decode_elect;
  table["activemask"] = decode_activemask;
}

}  // namespace trigen::emulator
