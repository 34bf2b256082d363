// atom and red, scalar and vector.
#include <mutex>

#include "emulator/access.h"
#include "emulator/exec.h"
#include "emulator/real16.h"

namespace trigen::emulator {
namespace {

enum class AtomicOp : uint8_t { kAdd, kMin, kMax, kInc, kDec, kAnd, kOr, kXor, kExchange, kCas };

// Blocks run on several host threads: one lock per stripe of global addresses makes an atomic atomic.
std::mutex& stripe(uint64_t address) {
  static std::mutex mutexes[256];
  return mutexes[(address >> 4) & 255];
}

template <class T>
T apply_integer(AtomicOp op, T old, T b, T c) {
  switch (op) {
    case AtomicOp::kAdd:
      return static_cast<T>(static_cast<std::make_unsigned_t<T>>(old) +
                            static_cast<std::make_unsigned_t<T>>(b));
    case AtomicOp::kMin:
      return old < b ? old : b;
    case AtomicOp::kMax:
      return old > b ? old : b;
    case AtomicOp::kInc:
      return old >= b ? T{0} : static_cast<T>(old + 1);
    case AtomicOp::kDec:
      return old == 0 || old > b ? b : static_cast<T>(old - 1);
    case AtomicOp::kAnd:
      return static_cast<T>(old & b);
    case AtomicOp::kOr:
      return static_cast<T>(old | b);
    case AtomicOp::kXor:
      return static_cast<T>(old ^ b);
    case AtomicOp::kExchange:
      return b;
    default:
      return old == b ? c : old;
  }
}

template <class F>
F apply_real(AtomicOp op, F old, F b) {
  switch (op) {
    case AtomicOp::kMin:
      return std::fmin(old, b);
    case AtomicOp::kMax:
      return std::fmax(old, b);
    case AtomicOp::kExchange:
      return b;
    default:
      return old + b;
  }
}

template <class T>
T as(const void* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}
template <class T>
uint64_t bits_of(T value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  return bits;
}

uint64_t combine(Type type, AtomicOp op, const uint8_t* at, uint64_t b, uint64_t c) {
  switch (type) {
    case Type::kS32:
      return bits_of(apply_integer(op, as<int32_t>(at), static_cast<int32_t>(b), static_cast<int32_t>(c)));
    case Type::kS64:
      return bits_of(apply_integer(op, as<int64_t>(at), static_cast<int64_t>(b), static_cast<int64_t>(c)));
    case Type::kU64:
    case Type::kB64:
      return apply_integer(op, as<uint64_t>(at), b, c);
    case Type::kF32:
      return bits_of(apply_real(op, as<float>(at), as<float>(&b)));
    case Type::kF64:
      return bits_of(apply_real(op, as<double>(at), as<double>(&b)));
    case Type::kU16:
    case Type::kB16:
      return bits_of(apply_integer(op, as<uint16_t>(at), static_cast<uint16_t>(b), static_cast<uint16_t>(c)));
    case Type::kF16:
    case Type::kF16x2:
    case Type::kBF16:
    case Type::kBF16x2: {
      bool brain = type == Type::kBF16 || type == Type::kBF16x2;
      uint64_t out = 0;
      for (int i = 0; i < type_bytes(type) / 2; ++i) {
        uint16_t x = as<uint16_t>(at + 2 * i), y = static_cast<uint16_t>(b >> (16 * i));
        uint16_t r = brain ? f32_to_bf16(apply_real(op, bf16_to_f32(x), bf16_to_f32(y)))
                           : f32_to_f16(apply_real(op, f16_to_f32(x), f16_to_f32(y)));
        out |= static_cast<uint64_t>(r) << (16 * i);
      }
      return out;
    }
    default:
      return bits_of(apply_integer(op, as<uint32_t>(at), static_cast<uint32_t>(b), static_cast<uint32_t>(c)));
  }
}

// list: destinations (vec of them, or none for red), then operands b (vec), then c for cas.
// aux: Type | op << 8 | has destination << 16.
void atomic(Warp& warp, const Inst& inst, uint32_t mask) {
  const Type type = static_cast<Type>(inst.aux & 0xff);
  const AtomicOp op = static_cast<AtomicOp>(inst.aux >> 8 & 0xff);
  const bool returns = (inst.aux >> 16 & 1) != 0;
  const uint32_t width = inst.width, bytes = width * inst.vec, reg = inst.reg_width;
  ++warp.counters->atomic_requests;
  const uint32_t* sources = inst.list + (returns ? inst.vec : 0);
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint64_t address = lane_address(warp, inst.op[1], inst.imm, lane);
    Place at = place(warp, inst.space, address, bytes, Access::kAtomic, lane);
    note_unwritten(warp, at, bytes, lane);
    note_atomic(warp, at, bytes, lane);
    std::unique_lock<std::mutex> lock;
    if (at.shared == nullptr) lock = std::unique_lock<std::mutex>(stripe(address));
    for (uint32_t i = 0; i < inst.vec; ++i) {
      uint64_t b = 0, c = 0, old = 0;
      std::memcpy(&b, warp.registers + sources[i] + lane * reg, width);
      if (op == AtomicOp::kCas) std::memcpy(&c, warp.registers + sources[inst.vec] + lane * reg, width);
      std::memcpy(&old, at.at + i * width, width);
      uint64_t value = combine(type, op, at.at + i * width, b, c);
      std::memcpy(at.at + i * width, &value, width);
      if (returns) std::memcpy(warp.registers + inst.list[i] + lane * reg, &old, reg);
    }
    if (at.written != nullptr) std::memset(at.written, 1, bytes);
  }
}

void decode_atomic(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kAtomic;
  for (const char* ordered : {"acquire", "release", "acq_rel"})
    decoder.program().orders_threads = decoder.take(ordered) || decoder.program().orders_threads;
  const bool returns = decoder.opcode() == "atom";
  if (decoder.take("async")) decoder.fail("red.async is not supported");
  decoder.ignore({"relaxed", "weak", "cta", "cluster", "gpu", "sys", "noftz"});
  int space = decoder.take_any({"global", "shared", "shared::cta", "shared::cluster"});
  decoder.ignore_matching([](const std::string& m) { return m.rfind("L2::", 0) == 0; });
  int op = decoder.take_any({"add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas"});
  if (op < 0) decoder.fail("the operation is missing or not supported");
  int vec = decoder.take_any({"v2", "v4", "v8"});
  inst.vec = static_cast<uint8_t>(vec < 0 ? 1 : 2 << vec);
  if (vec >= 0) decoder.require_target(90);
  Type type = decoder.take_type();
  int bytes = type_bytes(type);
  if (bytes < 2 || bytes > 8) decoder.fail("this type is not supported here");
  if (type == Type::kBF16x2 || type == Type::kBF16) decoder.require_target(90);
  inst.width = inst.reg_width = static_cast<uint8_t>(bytes);
  inst.aux = static_cast<uint64_t>(type) | static_cast<uint64_t>(op) << 8 | (returns ? 1u << 16 : 0u);
  size_t next = 0;
  std::vector<uint32_t> slots;
  auto add = [&](const Operand& operand, bool target) {
    if (operand.kind == Operand::Kind::kVector) {
      if (operand.elements.size() != inst.vec) decoder.fail("the vector's length differs from the modifier");
      for (const Operand& element : operand.elements)
        slots.push_back(target ? decoder.dest_of(element, type) : decoder.source_of(element, type));
    } else {
      slots.push_back(target ? decoder.dest_of(operand, type) : decoder.source_of(operand, type));
    }
  };
  if (returns) add(decoder.operand(next++), true);
  decoder.address(decoder.operand(next++), inst, 1,
                  space < 0    ? Space::kGeneric
                  : space == 0 ? Space::kGlobal
                               : Space::kShared);
  add(decoder.operand(next++), false);
  if (op == static_cast<int>(AtomicOp::kCas)) add(decoder.operand(next), false);
  decoder.set_list(inst, slots, returns ? inst.vec : 0u);
  inst.fn = atomic;
}

}  // namespace

void register_atomic(OpcodeTable& table) { table["atom"] = table["red"] = decode_atomic; }

}  // namespace trigen::emulator
