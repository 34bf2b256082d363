// ld, st, prefetch and the cache-policy instructions.
#include "emulator/access.h"
#include "emulator/exec.h"

namespace trigen::emulator {

void decode_store_async(Decoder& decoder, Inst& inst);

namespace {

// list: destination registers; op[1]: address; width, vec: of memory; reg_width: of the registers; aux:
// sign-extend.
void load_lanes(Warp& warp, const Inst& inst, uint32_t mask) {
  uint64_t addresses[32];
  lane_addresses(warp, inst.op[1], inst.imm, mask, addresses);
  const uint32_t width = inst.width, bytes = width * inst.vec, reg = inst.reg_width;
  count_access(warp, inst.space, addresses, mask, bytes, false);
  for_lanes(mask, [&](int lane) {
    Place from = place(warp, inst.space, addresses[lane], bytes, Access::kLoad, static_cast<uint32_t>(lane));
    if (from.written != nullptr || from.global) note_read(warp, from, bytes, static_cast<uint32_t>(lane));
    for (uint32_t i = 0; i < inst.vec; ++i) {
      uint64_t value = 0;
      std::memcpy(&value, from.at + i * width, width);
      if (inst.aux != 0 && width < 8 && (value >> (8 * width - 1)) != 0) value |= ~uint64_t{0} << (8 * width);
      std::memcpy(warp.registers + inst.list[i] + static_cast<uint32_t>(lane) * reg, &value, reg);
    }
  });
}

void store_lanes(Warp& warp, const Inst& inst, uint32_t mask) {
  uint64_t addresses[32];
  lane_addresses(warp, inst.op[1], inst.imm, mask, addresses);
  const uint32_t width = inst.width, bytes = width * inst.vec, reg = inst.reg_width;
  count_access(warp, inst.space, addresses, mask, bytes, true);
  for_lanes(mask, [&](int lane) {
    Place to = place(warp, inst.space, addresses[lane], bytes, Access::kStore, static_cast<uint32_t>(lane));
    uint8_t value[32];
    for (uint32_t i = 0; i < inst.vec; ++i)
      std::memcpy(value + i * width, warp.registers + inst.list[i] + static_cast<uint32_t>(lane) * reg,
                  width);
    store_bytes(warp, to, value, bytes, static_cast<uint32_t>(lane));
  });
}

// Parameters at a constant address: the same for all lanes.
void load_param(Warp& warp, const Inst& inst, uint32_t mask) {
  const uint32_t width = inst.width, reg = inst.reg_width;
  const uint32_t first = static_cast<uint32_t>(__builtin_ctz(mask));
  const uint64_t address = lane_address(warp, inst.op[1], inst.imm, first);
  Place from = place(warp, Space::kParam, address, width * inst.vec, Access::kLoad, first);
  for (uint32_t i = 0; i < inst.vec; ++i) {
    uint64_t value = 0;
    std::memcpy(&value, from.at + i * width, width);
    if (inst.aux != 0 && width < 8 && (value >> (8 * width - 1)) != 0) value |= ~uint64_t{0} << (8 * width);
    uint8_t* d = warp.registers + inst.list[i];
    for_lanes(mask, [=](int lane) { std::memcpy(d + static_cast<uint32_t>(lane) * reg, &value, reg); });
  }
}

Space take_space(Decoder& decoder) {
  int space = decoder.take_any({"global", "shared", "shared::cta", "shared::cluster", "local", "const",
                                "param", "param::entry", "param::func"});
  switch (space) {
    case 0:
      return Space::kGlobal;
    case 1:
    case 2:
    case 3:
      return Space::kShared;
    case 4:
      return Space::kLocal;
    case 5:
      return Space::kConst;
    case 6:
    case 7:
    case 8:
      return Space::kParam;
    default:
      return Space::kGeneric;
  }
}

bool is_cache_hint(const std::string& modifier) {
  return modifier.rfind("L1::", 0) == 0 || modifier.rfind("L2::", 0) == 0;
}

void decode_access(Decoder& decoder, Inst& inst) {
  if (decoder.take("async")) return decode_store_async(decoder, inst);
  const bool is_load = decoder.opcode() == "ld" || decoder.opcode() == "ldu";
  inst.cls = is_load ? InstClass::kLoad : InstClass::kStore;
  for (const char* ordered : {"volatile", "relaxed", "acquire", "release", "mmio"})
    decoder.program().orders_threads = decoder.take(ordered) || decoder.program().orders_threads;
  decoder.ignore({"weak", "cta", "cluster", "gpu", "sys", "ca", "cg", "cs", "cv", "lu", "wb", "wt", "nc"});
  Space space = take_space(decoder);
  bool hint = false;
  for (const std::string& modifier : decoder.modifiers()) hint = hint || modifier == "L2::cache_hint";
  decoder.ignore_matching(is_cache_hint);
  int vec = decoder.take_any({"v2", "v4", "v8"});
  inst.vec = static_cast<uint8_t>(vec < 0 ? 1 : 2 << vec);
  Type type = decoder.take_type();
  if (type == Type::kNone || type == Type::kPred) decoder.fail("the type is missing or not supported");
  if (type == Type::kB128) decoder.fail("128-bit scalars are not supported");
  inst.width = static_cast<uint8_t>(type_bytes(type));
  if (inst.width * inst.vec > 32) decoder.fail("more than 32 bytes a lane");
  inst.aux = is_signed(type) ? 1 : 0;
  const Operand& data = decoder.operand(is_load ? 0 : 1);
  decoder.address(decoder.operand(is_load ? 1 : 0), inst, 1, space);
  if (hint) decoder.source(2, Type::kB64);
  std::vector<uint32_t> slots;
  auto add = [&](const Operand& element) {
    uint8_t width = 0;
    uint32_t slot = decoder.any_width(element, &width, type);
    if (width < inst.width) decoder.fail("a register is too small for its type");
    if (element.kind == Operand::Kind::kSink && !slots.empty()) width = inst.reg_width;
    if (inst.reg_width != 0 && inst.reg_width != width) {
      if (element.kind != Operand::Kind::kInteger && element.kind != Operand::Kind::kFloat)
        decoder.fail("registers of different sizes in one vector");
      slot = decoder.constant(static_cast<uint64_t>(element.integer), inst.reg_width);
      width = inst.reg_width;
    }
    inst.reg_width = width;
    slots.push_back(slot);
  };
  if (data.kind == Operand::Kind::kVector) {
    if (data.elements.size() != inst.vec) decoder.fail("the vector's length differs from the modifier");
    for (const Operand& element : data.elements) add(element);
  } else {
    if (inst.vec != 1) decoder.fail("a vector of registers is needed");
    add(data);
  }
  decoder.set_list(inst, slots, is_load ? inst.vec : 0u);
  // A parameter at a constant address is the same for all lanes.
  const bool constant = (inst.op[1] & kConstantFlag) != 0;
  inst.fn = !is_load ? store_lanes : inst.space == Space::kParam && constant ? load_param : load_lanes;
}

// prefetch, applypriority, discard and createpolicy move no data; a bad prefetch address is no error on the
// machine either (H100, 2026-11-28: addresses of nothing and such as there cannot be, into L1 and L2).
void decode_prefetch(Decoder& decoder, Inst& inst) {
  decoder.ignore({"global", "local", "param", "const", "tensormap", "L1", "L2", "uniform"});
  decoder.ignore_matching(is_cache_hint);
  int64_t offset;
  decoder.address_slot(decoder.operand(0), Space::kGeneric, &offset);
  inst.fn = exec_nothing;
}

void zero64(Warp& warp, const Inst& inst, uint32_t mask) {
  uint64_t* d = warp.lanes<uint64_t>(inst.op[0]);
  for_lanes(mask, [=](int lane) { d[lane] = 0; });
}

void decode_createpolicy(Decoder& decoder, Inst& inst) {
  decoder.require_target(80);
  decoder.ignore({"fractional", "range", "cvt", "global", "L2"});
  decoder.ignore_matching(is_cache_hint);
  decoder.take_type();
  inst.op[0] = decoder.dest(0, Type::kB64);
  inst.fn = zero64;
}

}  // namespace

void register_memory(OpcodeTable& table) {
  table["ld"] = table["ldu"] = table["st"] = decode_access;
  table["prefetch"] = table["prefetchu"] = table["applypriority"] = table["discard"] = decode_prefetch;
  table["createpolicy"] = decode_createpolicy;
}

}  // namespace trigen::emulator
