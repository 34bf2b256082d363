// ldmatrix, stmatrix and movmatrix: 8x8 matrices of 16-bit elements between shared memory and registers.
// (PTX ISA, "Warp-level matrix load instruction: ldmatrix")
#include "emulator/access.h"
#include "emulator/exec.h"

namespace trigen::emulator {
namespace {

// list: registers, one per matrix; op[1]: address; vec: matrices; aux: transposed.
void load_matrix(Warp& warp, const Inst& inst, uint32_t mask) {
  need_whole_warp(warp, mask, "an instruction");
  const uint32_t count = inst.vec;
  const uint32_t users = count == 4 ? kFullMask : (1u << (8 * count)) - 1;
  uint64_t addresses[32];
  lane_addresses(warp, inst.op[1], inst.imm, users, addresses);
  count_access(warp, Space::kShared, addresses, users, 16, false);
  uint16_t rows[32][8] = {};
  for (uint32_t lane = 0; lane < 8 * count; ++lane) {
    Place from = place(warp, Space::kShared, addresses[lane], 16, Access::kLoad, lane);
    note_read(warp, from, 16, lane);
    std::memcpy(rows[lane], from.at, 16);
  }
  for (uint32_t matrix = 0; matrix < count; ++matrix) {
    uint32_t* d = warp.lanes<uint32_t>(inst.list[matrix]);
    const uint16_t(*m)[8] = rows + 8 * matrix;
    for (int lane = 0; lane < 32; ++lane) {
      int major = lane / 4, minor = 2 * (lane % 4);
      uint32_t low = inst.aux != 0 ? m[minor][major] : m[major][minor];
      uint32_t high = inst.aux != 0 ? m[minor + 1][major] : m[major][minor + 1];
      d[lane] = low | high << 16;
    }
  }
}

void store_matrix(Warp& warp, const Inst& inst, uint32_t mask) {
  need_whole_warp(warp, mask, "an instruction");
  const uint32_t count = inst.vec;
  const uint32_t users = count == 4 ? kFullMask : (1u << (8 * count)) - 1;
  uint64_t addresses[32];
  lane_addresses(warp, inst.op[1], inst.imm, users, addresses);
  count_access(warp, Space::kShared, addresses, users, 16, true);
  for (uint32_t matrix = 0; matrix < count; ++matrix) {
    const uint32_t* a = warp.lanes<uint32_t>(inst.list[matrix]);
    uint16_t m[8][8] = {};
    for (int lane = 0; lane < 32; ++lane) {
      int major = lane / 4, minor = 2 * (lane % 4);
      (inst.aux != 0 ? m[minor][major] : m[major][minor]) = static_cast<uint16_t>(a[lane]);
      (inst.aux != 0 ? m[minor + 1][major] : m[major][minor + 1]) = static_cast<uint16_t>(a[lane] >> 16);
    }
    for (uint32_t row = 0; row < 8; ++row) {
      uint32_t lane = 8 * matrix + row;
      Place to = place(warp, Space::kShared, addresses[lane], 16, Access::kStore, lane);
      store_bytes(warp, to, m[row], 16, lane);
    }
  }
}

void decode_matrix_access(Decoder& decoder, Inst& inst) {
  const bool is_load = decoder.opcode() == "ldmatrix";
  decoder.require_target(is_load ? 75 : 90);
  inst.cls = InstClass::kMatrixMove;
  inst.flow = Flow::kCollective;
  decoder.ignore({"sync", "aligned", "shared", "shared::cta"});
  if (!decoder.take("m8n8")) decoder.fail("only the shape m8n8 is supported");
  int count = decoder.take_any({"x1", "x2", "x4"});
  if (count < 0) decoder.fail("the number of matrices is missing");
  inst.vec = static_cast<uint8_t>(1 << count);
  inst.aux = decoder.take("trans") ? 1 : 0;
  if (decoder.take_type() != Type::kB16) decoder.fail("only b16 elements are supported");
  const Operand& data = decoder.operand(is_load ? 0 : 1);
  const Operand& where = decoder.operand(is_load ? 1 : 0);
  std::vector<uint32_t> slots;
  if (data.kind == Operand::Kind::kVector)
    for (const Operand& element : data.elements)
      slots.push_back(is_load ? decoder.dest_of(element, Type::kB32)
                              : decoder.source_of(element, Type::kB32));
  else
    slots.push_back(is_load ? decoder.dest_of(data, Type::kB32) : decoder.source_of(data, Type::kB32));
  if (slots.size() != inst.vec) decoder.fail("the number of registers differs from the number of matrices");
  decoder.set_list(inst, slots, is_load ? inst.vec : 0u);
  inst.op[1] = decoder.address_slot(where, Space::kShared, &inst.imm);
  inst.fn = is_load ? load_matrix : store_matrix;
}

void transpose_matrix(Warp& warp, const Inst& inst, uint32_t mask) {
  need_whole_warp(warp, mask, "an instruction");
  uint32_t* d = warp.lanes<uint32_t>(inst.op[1]);
  const uint32_t* a = warp.lanes<uint32_t>(inst.op[2]);
  uint16_t m[8][8] = {};
  for (int lane = 0; lane < 32; ++lane) {
    m[lane / 4][2 * (lane % 4)] = static_cast<uint16_t>(a[lane]);
    m[lane / 4][2 * (lane % 4) + 1] = static_cast<uint16_t>(a[lane] >> 16);
  }
  for (int lane = 0; lane < 32; ++lane)
    d[lane] = static_cast<uint32_t>(m[2 * (lane % 4)][lane / 4]) |
              static_cast<uint32_t>(m[2 * (lane % 4) + 1][lane / 4]) << 16;
}

void decode_movmatrix(Decoder& decoder, Inst& inst) {
  decoder.require_target(75);
  inst.cls = InstClass::kMatrixMove;
  inst.flow = Flow::kCollective;
  decoder.ignore({"sync", "aligned", "m8n8", "trans"});
  decoder.take_type();
  inst.op[1] = decoder.dest(0, Type::kB32);
  inst.op[2] = decoder.source(1, Type::kB32);
  inst.fn = transpose_matrix;
}

}  // namespace

void register_matrix(OpcodeTable& table) {
  table["ldmatrix"] = table["stmatrix"] = decode_matrix_access;
  table["movmatrix"] = decode_movmatrix;
}

}  // namespace trigen::emulator
