// mma.sync: warp-wide matrix products. Products of 16-bit and tf32 inputs are exact; the sum of one
// instruction is formed in double and rounded once to the accumulator's type. The ISA leaves order and
// rounding of the sum open, so results may differ from a GPU's in the last bits. (PTX ISA, "Matrix
// multiply-accumulate operation using mma instruction")
#include "emulator/exec.h"
#include "emulator/real16.h"

namespace trigen::emulator {
namespace {

// tf32 operands: the machine ignores the lower 13 bits.
inline float input_tf32(uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }

template <int kM, int kN, int kK>
void multiply(const float (&a)[kM][kK], const float (&b)[kK][kN], double (&c)[kM][kN]) {
  for (int m = 0; m < kM; ++m)
    for (int k = 0; k < kK; ++k) {
      const double x = a[m][k];
      for (int n = 0; n < kN; ++n) c[m][n] += x * static_cast<double>(b[k][n]);
    }
}

// list: D registers, A, B, C. aux: bit 0: C is f16, bit 1: D is f16. imm: Input.
// m16n8: lane = 4 * group + pair; the fragments' rows and columns follow from group and pair.
template <int kK, bool kSingles>
void mma_m16n8(Warp& warp, const Inst& inst, uint32_t mask) {
  need_whole_warp(warp, mask, "a matrix product");
  const Input kind = static_cast<Input>(inst.imm);
  const bool c16 = (inst.aux & 1) != 0, d16 = (inst.aux & 2) != 0;
  constexpr int kA = kSingles ? kK / 2 : kK / 4, kB = kSingles ? kK / 4 : kK / 8;  // registers
  const int d_count = d16 ? 2 : 4;
  const uint32_t* d_slots = inst.list;
  const uint32_t* a_slots = d_slots + d_count;
  const uint32_t* b_slots = a_slots + kA;
  const uint32_t* c_slots = b_slots + kB;
  float a[16][kK], b[kK][8];
  double c[16][8];
  for (int i = 0; i < kA; ++i) {
    const uint32_t* reg = warp.lanes<uint32_t>(a_slots[i]);
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4, pair = lane % 4, row = group + 8 * (i & 1);
      if constexpr (kSingles) {
        a[row][pair + 4 * (i / 2)] = input_tf32(reg[lane]);
      } else {
        a[row][2 * pair + 8 * (i / 2)] = input16(kind, static_cast<uint16_t>(reg[lane]));
        a[row][2 * pair + 8 * (i / 2) + 1] = input16(kind, static_cast<uint16_t>(reg[lane] >> 16));
      }
    }
  }
  for (int i = 0; i < kB; ++i) {
    const uint32_t* reg = warp.lanes<uint32_t>(b_slots[i]);
    for (int lane = 0; lane < 32; ++lane) {
      const int group = lane / 4, pair = lane % 4;
      if constexpr (kSingles) {
        b[pair + 4 * i][group] = input_tf32(reg[lane]);
      } else {
        b[2 * pair + 8 * i][group] = input16(kind, static_cast<uint16_t>(reg[lane]));
        b[2 * pair + 8 * i + 1][group] = input16(kind, static_cast<uint16_t>(reg[lane] >> 16));
      }
    }
  }
  for (int i = 0; i < 4; ++i) {
    const uint32_t* reg = warp.lanes<uint32_t>(c_slots[c16 ? i / 2 : i]);
    for (int lane = 0; lane < 32; ++lane) {
      float value = c16 ? f16_to_f32(static_cast<uint16_t>(reg[lane] >> (16 * (i & 1))))
                        : std::bit_cast<float>(reg[lane]);
      c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + (i & 1)] = value;
    }
  }
  multiply<16, 8, kK>(a, b, c);
  for (int i = 0; i < 4; ++i) {
    uint32_t* reg = warp.lanes<uint32_t>(d_slots[d16 ? i / 2 : i]);
    for (int lane = 0; lane < 32; ++lane) {
      double value = c[lane / 4 + 8 * (i / 2)][2 * (lane % 4) + (i & 1)];
      if (d16) {
        uint32_t half = f32_to_f16(round_to_odd(value));
        reg[lane] = (i & 1) == 0 ? half : reg[lane] | half << 16;
      } else {
        reg[lane] = std::bit_cast<uint32_t>(static_cast<float>(value));
      }
    }
  }
  ++warp.counters->matrix_operations;
  warp.counters->matrix_flops += 2u * 16 * 8 * kK;
}

// m8n8k4: four products at once, one per quad pair (lanes 4q..4q+3 with 4q+16..4q+19).
// aux: bits 0, 1 as above; bit 2: A is column-major; bit 3: B is column-major.
void mma_m8n8k4(Warp& warp, const Inst& inst, uint32_t mask) {
  need_whole_warp(warp, mask, "a matrix product");
  const bool c16 = (inst.aux & 1) != 0, d16 = (inst.aux & 2) != 0, a_col = (inst.aux & 4) != 0,
             b_col = (inst.aux & 8) != 0;
  const int d_count = d16 ? 4 : 8;
  const uint32_t* d_slots = inst.list;
  const uint32_t* a_slots = d_slots + d_count;
  const uint32_t* b_slots = a_slots + 2;
  const uint32_t* c_slots = b_slots + 2;
  auto accumulator = [](bool half, int lane, int i, int* row, int* column) {
    const int upper = lane < 16 ? 0 : 4;
    if (half) {
      *row = lane % 4 + upper;
      *column = i;
    } else {
      *row = (lane & 1) + (i & 2) + upper;
      *column = (i & 4) + (lane & 2) + (i & 1);
    }
  };
  for (int quad = 0; quad < 4; ++quad) {
    float a[8][4], b[4][8];
    double c[8][8];
    for (int member = 0; member < 8; ++member) {
      const int lane = 4 * quad + member % 4 + (member < 4 ? 0 : 16), upper = member < 4 ? 0 : 4;
      for (int i = 0; i < 4; ++i) {
        uint16_t a_bits = static_cast<uint16_t>(warp.lanes<uint32_t>(a_slots[i / 2])[lane] >> (16 * (i & 1)));
        uint16_t b_bits = static_cast<uint16_t>(warp.lanes<uint32_t>(b_slots[i / 2])[lane] >> (16 * (i & 1)));
        (a_col ? a[i + upper][lane % 4] : a[lane % 4 + upper][i]) = f16_to_f32(a_bits);
        (b_col ? b[i][lane % 4 + upper] : b[lane % 4][i + upper]) = f16_to_f32(b_bits);
      }
      for (int i = 0; i < 8; ++i) {
        uint32_t bits = warp.lanes<uint32_t>(c_slots[c16 ? i / 2 : i])[lane];
        int row, column;
        accumulator(c16, lane, i, &row, &column);
        c[row][column] =
            c16 ? f16_to_f32(static_cast<uint16_t>(bits >> (16 * (i & 1)))) : std::bit_cast<float>(bits);
      }
    }
    multiply<8, 8, 4>(a, b, c);
    for (int member = 0; member < 8; ++member) {
      const int lane = 4 * quad + member % 4 + (member < 4 ? 0 : 16);
      for (int i = 0; i < 8; ++i) {
        int row, column;
        accumulator(d16, lane, i, &row, &column);
        uint32_t& reg = warp.lanes<uint32_t>(d_slots[d16 ? i / 2 : i])[lane];
        if (d16) {
          uint32_t half = f32_to_f16(round_to_odd(c[row][column]));
          reg = (i & 1) == 0 ? half : reg | half << 16;
        } else {
          reg = std::bit_cast<uint32_t>(static_cast<float>(c[row][column]));
        }
      }
    }
  }
  ++warp.counters->matrix_operations;
  warp.counters->matrix_flops += 4u * 2 * 8 * 8 * 4;
}

// Do A and B lie by columns? The two layouts stand in order: the first "row" or "col" is A's.
std::pair<bool, bool> take_layouts(Decoder& decoder) {
  bool columns[2] = {false, false};
  int found = 0;
  for (const std::string& modifier : decoder.modifiers())
    if ((modifier == "row" || modifier == "col") && found < 2) columns[found++] = modifier == "col";
  if (found != 2) decoder.fail("the layouts of A and B are missing");
  for (const char* layout : {"row", "row", "col", "col"}) decoder.take(layout);
  return {columns[0], columns[1]};
}

Input input_of(const Decoder& decoder, Type type) {
  if (type == Type::kF16) return Input::kF16;
  if (type == Type::kBF16) return Input::kBF16;
  if (type == Type::kTF32) return Input::kTF32;
  decoder.fail("this input type is not supported");
}

// 16 x 8 sums.
ExecFn mma_m16n8_of(const Decoder& decoder, int k, bool singles) {
  if (k == 4 && singles) return mma_m16n8<4, true>;
  if (k == 8) return singles ? mma_m16n8<8, true> : mma_m16n8<8, false>;
  if (k == 16 && !singles) return mma_m16n8<16, false>;
  decoder.fail("this shape does not exist for the type");
}

// The registers of an operand, `count` of them.
std::vector<const Operand*> registers_of(const Decoder& decoder, size_t index, size_t count) {
  const Operand& operand = decoder.operand(index);
  std::vector<const Operand*> registers;
  if (operand.kind == Operand::Kind::kVector)
    for (const Operand& element : operand.elements) registers.push_back(&element);
  else
    registers.push_back(&operand);
  if (registers.size() != count)
    decoder.fail("operand " + std::to_string(index + 1) + " needs " + std::to_string(count) + " registers");
  return registers;
}

void decode_mma(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kMatrix;
  inst.flow = Flow::kCollective;
  decoder.ignore({"sync", "aligned"});
  const int shape = decoder.take_any({"m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"});
  if (shape < 0) decoder.fail("this shape is not supported");
  const bool quads = shape == 0;
  const size_t k = quads ? 4 : size_t{2} << shape;
  const auto [a_columns, b_columns] = take_layouts(decoder);
  const Type d = decoder.take_type(), a = decoder.take_type(), b = decoder.take_type(),
             c = decoder.take_type();
  if (a != b) decoder.fail("A and B have different types, which is not supported");
  const bool d16 = d == Type::kF16, c16 = c == Type::kF16, singles = a == Type::kTF32;
  if ((!d16 && d != Type::kF32) || (!c16 && c != Type::kF32))
    decoder.fail("this accumulator type is not supported");
  inst.imm = static_cast<int64_t>(input_of(decoder, a));
  inst.aux = (c16 ? 1u : 0u) | (d16 ? 2u : 0u);
  if (quads) {
    if (a != Type::kF16) decoder.fail("m8n8k4 takes f16 here");
    decoder.require_target(70);
    inst.aux |= (a_columns ? 4u : 0u) | (b_columns ? 8u : 0u);
    inst.fn = mma_m8n8k4;
  } else {
    if (a_columns || !b_columns) decoder.fail("this shape needs .row.col");
    decoder.require_target(k == 8 && a == Type::kF16 ? 75 : 80);
    inst.fn = mma_m16n8_of(decoder, static_cast<int>(k), singles);
  }
  // Registers of D, A, B and C. Those of sums hold one f32 or two f16, those of A and B one tf32 or two halves.
  const size_t sums = quads ? 8 : 4;
  const size_t counts[4] = {d16 ? sums / 2 : sums,
                            quads     ? 2
                            : singles ? k / 2
                                      : k / 4,
                            quads     ? 2
                            : singles ? k / 4
                                      : k / 8,
                            c16 ? sums / 2 : sums};
  std::vector<uint32_t> slots;
  for (size_t i = 0; i < 4; ++i)
    for (const Operand* reg : registers_of(decoder, i, counts[i]))
      slots.push_back(i == 0 ? decoder.dest_of(*reg, Type::kB32)
                             : decoder.source_of(*reg, i == 3 ? Type::kF32 : Type::kB32));
  decoder.set_list(inst, slots, static_cast<uint32_t>(counts[0]));
}

}  // namespace

void register_mma(OpcodeTable& table) { table["mma"] = decode_mma; }

}  // namespace trigen::emulator
