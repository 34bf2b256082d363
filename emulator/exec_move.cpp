// mov in all its forms, cvta, isspacep, and the special registers that change while a kernel runs.
#include <time.h>

#include "emulator/exec.h"

namespace trigen::emulator {
namespace {

template <class T>
void move(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  for_lanes(mask, [=](int lane) { d[lane] = a[lane]; });
}

void move_predicate(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t value = warp.predicate(inst.op[1]);
  warp.set_predicate(inst.op[0], inst.aux != 0 ? ~value : value, mask);
}

// mov.b32 %r, {%h, %h}; mov.b64 %rd, {%r, %r} or four halves: list holds the parts, reg_width their size.
void pack(Warp& warp, const Inst& inst, uint32_t mask) {
  uint8_t* d = warp.registers + inst.op[0];
  const int part = inst.reg_width, count = static_cast<int>(inst.list_count), total = part * count;
  for_lanes(mask, [&](int lane) {
    uint8_t value[16];
    for (int i = 0; i < count; ++i)
      std::memcpy(value + i * part, warp.registers + inst.list[i] + lane * part, static_cast<size_t>(part));
    std::memcpy(d + lane * total, value, static_cast<size_t>(total));
  });
}

void unpack(Warp& warp, const Inst& inst, uint32_t mask) {
  const uint8_t* a = warp.registers + inst.op[0];
  const int part = inst.reg_width, count = static_cast<int>(inst.list_count), total = part * count;
  for_lanes(mask, [&](int lane) {
    uint8_t value[16];
    std::memcpy(value, a + lane * total, static_cast<size_t>(total));
    for (int i = 0; i < count; ++i)
      std::memcpy(warp.registers + inst.list[i] + lane * part, value + i * part, static_cast<size_t>(part));
  });
}

uint64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1000000000u + static_cast<uint64_t>(now.tv_nsec);
}

// %clock counts the cluster's warp instructions, so that it is the same on every run; %globaltimer is host
// time.
void read_clock(Warp& warp, const Inst& inst, uint32_t mask) {
  uint64_t value = inst.aux != 0 ? nanoseconds() : warp.block->cluster->instructions * 4;
  if (inst.imm != 0) value >>= 32;
  if (inst.reg_width == 8) {
    uint64_t* d = warp.lanes<uint64_t>(inst.op[0]);
    for_lanes(mask, [=](int lane) { d[lane] = value; });
  } else {
    uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
    for_lanes(mask, [=](int lane) { d[lane] = static_cast<uint32_t>(value); });
  }
}

bool decode_clock(Decoder& decoder, Inst& inst, Type type) {
  const std::string& name = decoder.operand(1).name;
  bool clock = name == "%clock" || name == "%clock64" || name == "%clock_hi";
  bool timer = name == "%globaltimer" || name == "%globaltimer_lo" || name == "%globaltimer_hi";
  if (!clock && !timer) return false;
  inst.fn = read_clock;
  inst.aux = timer ? 1 : 0;
  inst.imm = name.size() > 3 && name.compare(name.size() - 3, 3, "_hi") == 0 ? 1 : 0;
  inst.reg_width = static_cast<uint8_t>(type_bytes(type));
  inst.op[0] = decoder.dest(0, type);
  return true;
}

void decode_move(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kMove;
  Type type = decoder.take_type();
  const Operand& target = decoder.operand(0);
  const Operand& from = decoder.operand(1);
  if (type == Type::kPred) {
    if (from.kind == Operand::Kind::kSpecial) {  // %is_explicit_cluster
      decoder.fail("a special register is moved to a predicate, which is not supported");
    }
    bool negated = false;
    inst.op[0] = decoder.predicate_dest(0);
    inst.op[1] = decoder.predicate(1, &negated);
    inst.aux = negated ? 1 : 0;
    inst.fn = move_predicate;
    return;
  }
  int bytes = type_bytes(type);
  if (bytes < 2 || bytes > 8) decoder.fail("a move of this type is not supported");
  auto parts = [&](const Operand& vector) {
    int part = bytes / static_cast<int>(vector.elements.size());
    if (part < 2) decoder.fail("parts of fewer than 16 bits are not supported");
    Type part_type = part == 2 ? Type::kB16 : part == 4 ? Type::kB32 : Type::kB64;
    std::vector<uint32_t> slots;
    for (const Operand& element : vector.elements)
      slots.push_back(&vector == &target ? decoder.dest_of(element, part_type)
                                         : decoder.source_of(element, part_type));
    inst.reg_width = static_cast<uint8_t>(part);
    decoder.set_list(inst, slots, &vector == &target ? static_cast<uint32_t>(slots.size()) : 0u);
  };
  if (from.kind == Operand::Kind::kVector) {
    inst.op[0] = decoder.dest(0, type);
    parts(from);
    inst.fn = pack;
    return;
  }
  if (target.kind == Operand::Kind::kVector) {
    inst.op[0] = decoder.source(1, type);
    parts(target);
    inst.fn = unpack;
    return;
  }
  if (from.kind == Operand::Kind::kSpecial && decode_clock(decoder, inst, type)) return;
  inst.op[0] = decoder.dest(0, type);
  inst.op[1] = decoder.source(1, type);
  inst.fn = bytes == 2 ? move<uint16_t> : bytes == 4 ? move<uint32_t> : move<uint64_t>;
}

// cvta.space: an address of the space becomes a generic one; cvta.to.space: the other way. inst.imm: the
// window.
template <class T>
void to_generic(Warp& warp, const Inst& inst, uint32_t mask) {
  uint64_t* d = warp.lanes<uint64_t>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  uint64_t window = static_cast<uint64_t>(inst.imm);
  for_lanes(mask, [=](int lane) { d[lane] = a[lane] + window; });
}

void from_generic(Warp& warp, const Inst& inst, uint32_t mask) {
  uint64_t* d = warp.lanes<uint64_t>(inst.op[0]);
  const uint64_t* a = warp.lanes<uint64_t>(inst.op[1]);
  uint64_t window = static_cast<uint64_t>(inst.imm);
  for_lanes(mask, [=](int lane) { d[lane] = a[lane] - window; });
}

uint64_t window_of(Decoder& decoder) {
  int space = decoder.take_any(
      {"shared", "shared::cta", "shared::cluster", "local", "param", "param::entry", "global", "const"});
  switch (space) {
    case 0:
    case 1:
    case 2:
      return kSharedWindow;
    case 3:
      return kLocalWindow;
    case 4:
    case 5:
      return kParamWindow;
    case 6:
    case 7:
      return 0;
    default:
      decoder.fail("a state space is missing");
  }
}

void decode_cvta(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kInteger;
  bool to_space = decoder.take("to");
  inst.imm = static_cast<int64_t>(window_of(decoder));
  Type type = decoder.take_type();
  if (type != Type::kU64) decoder.fail("only 64-bit addresses are supported");
  inst.op[0] = decoder.dest(0, type);
  const Operand& from = decoder.operand(1);
  inst.op[1] = decoder.source_of(from, type);
  inst.fn = to_space ? from_generic : to_generic<uint64_t>;
}

void is_space(Warp& warp, const Inst& inst, uint32_t mask) {
  const uint64_t* a = warp.lanes<uint64_t>(inst.op[1]);
  uint64_t window = static_cast<uint64_t>(inst.imm) >> kWindowShift;
  bool own_only = inst.aux != 0;
  warp.set_predicate(inst.op[0],
                     lane_bits(mask,
                               [&](int lane) {
                                 if ((a[lane] >> kWindowShift) != window) return false;
                                 return !own_only || ((a[lane] >> kRankShift) & 0xff) == 0;
                               }),
                     mask);
}

void decode_isspacep(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kCompare;
  for (const std::string& modifier : decoder.modifiers())
    if (modifier == "shared::cta") inst.aux = 1;
  inst.imm = static_cast<int64_t>(window_of(decoder));
  inst.op[0] = decoder.predicate_dest(0);
  inst.op[1] = decoder.source(1, Type::kU64);
  inst.fn = is_space;
}

// mapa: the address of the same variable in another block of the cluster.
template <class T>
void map_address(Warp& warp, const Inst& inst, uint32_t mask) {
  T* d = warp.lanes<T>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const uint32_t* rank = warp.lanes<uint32_t>(inst.op[2]);
  const uint32_t count = static_cast<uint32_t>(warp.block->cluster->blocks.size());
  for_lanes(mask, [&](int lane) {
    if (rank[lane] >= count)
      warp.abort(Fault::kOutOfBounds, static_cast<uint32_t>(lane),
                 "block rank " + std::to_string(rank[lane]) + " in a cluster of " + std::to_string(count));
    T clear = static_cast<T>(T{0xff} << kRankShift);
    d[lane] = static_cast<T>((a[lane] & ~clear) | (static_cast<T>(rank[lane] + 1) << kRankShift));
  });
}

void decode_mapa(Decoder& decoder, Inst& inst) {
  decoder.require_target(90);
  inst.cls = InstClass::kInteger;
  decoder.ignore({"shared::cluster"});
  Type type = decoder.take_type();
  inst.op[0] = decoder.dest(0, type);
  inst.op[1] = decoder.source(1, type);
  inst.op[2] = decoder.source(2, Type::kU32);
  inst.fn = type == Type::kU32 ? map_address<uint32_t> : map_address<uint64_t>;
}

template <class T>
void get_rank(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t* d = warp.lanes<uint32_t>(inst.op[0]);
  const T* a = warp.lanes<T>(inst.op[1]);
  const uint32_t own = warp.block->rank;
  for_lanes(mask, [=](int lane) {
    uint32_t field = static_cast<uint32_t>(a[lane] >> kRankShift) & 0xff;
    d[lane] = field == 0 ? own : field - 1;
  });
}

void decode_getctarank(Decoder& decoder, Inst& inst) {
  decoder.require_target(90);
  inst.cls = InstClass::kInteger;
  decoder.ignore({"shared::cluster"});
  Type type = decoder.take_type();
  inst.op[0] = decoder.dest(0, Type::kU32);
  inst.op[1] = decoder.source(1, type);
  inst.fn = type == Type::kU32 ? get_rank<uint32_t> : get_rank<uint64_t>;
}

}  // namespace

void register_move(OpcodeTable& table) {
  table["mov"] = decode_move;
  table["cvta"] = decode_cvta;
  table["isspacep"] = decode_isspacep;
  table["mapa"] = decode_mapa;
  table["getctarank"] = decode_getctarank;
}

}  // namespace trigen::emulator
