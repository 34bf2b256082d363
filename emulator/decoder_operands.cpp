// The decoder's view of modifiers and operands: registers, constants, names and addresses become slots.
#include <algorithm>
#include <cstring>

#include "emulator/decoder.h"

namespace trigen::emulator {
namespace {

struct SpecialName {
  const char* name;
  Special what;
};
constexpr SpecialName kSpecials[] = {{"%tid.x", Special::kTidX},
                                     {"%tid.y", Special::kTidY},
                                     {"%tid.z", Special::kTidZ},
                                     {"%ntid.x", Special::kNtidX},
                                     {"%ntid.y", Special::kNtidY},
                                     {"%ntid.z", Special::kNtidZ},
                                     {"%ctaid.x", Special::kCtaidX},
                                     {"%ctaid.y", Special::kCtaidY},
                                     {"%ctaid.z", Special::kCtaidZ},
                                     {"%nctaid.x", Special::kNctaidX},
                                     {"%nctaid.y", Special::kNctaidY},
                                     {"%nctaid.z", Special::kNctaidZ},
                                     {"%laneid", Special::kLaneId},
                                     {"%warpid", Special::kWarpId},
                                     {"%nwarpid", Special::kNWarpId},
                                     {"%smid", Special::kSmId},
                                     {"%nsmid", Special::kNSmId},
                                     {"%gridid", Special::kGridId},
                                     {"%lanemask_eq", Special::kLanemaskEq},
                                     {"%lanemask_lt", Special::kLanemaskLt},
                                     {"%lanemask_le", Special::kLanemaskLe},
                                     {"%lanemask_gt", Special::kLanemaskGt},
                                     {"%lanemask_ge", Special::kLanemaskGe},
                                     {"%dynamic_smem_size", Special::kDynamicShared},
                                     {"%total_smem_size", Special::kTotalShared},
                                     {"%clusterid.x", Special::kClusterIdX},
                                     {"%clusterid.y", Special::kClusterIdY},
                                     {"%clusterid.z", Special::kClusterIdZ},
                                     {"%nclusterid.x", Special::kNClusterIdX},
                                     {"%nclusterid.y", Special::kNClusterIdY},
                                     {"%nclusterid.z", Special::kNClusterIdZ},
                                     {"%cluster_ctaid.x", Special::kClusterCtaIdX},
                                     {"%cluster_ctaid.y", Special::kClusterCtaIdY},
                                     {"%cluster_ctaid.z", Special::kClusterCtaIdZ},
                                     {"%cluster_nctaid.x", Special::kClusterNCtaIdX},
                                     {"%cluster_nctaid.y", Special::kClusterNCtaIdY},
                                     {"%cluster_nctaid.z", Special::kClusterNCtaIdZ},
                                     {"%cluster_ctarank", Special::kClusterCtaRank},
                                     {"%cluster_nctarank", Special::kClusterNCtaRank},
                                     {"%is_explicit_cluster", Special::kIsExplicitCluster}};

}  // namespace

bool Decoder::take(const std::string& modifier) {
  for (size_t i = 0; i < taken_.size(); ++i)
    if (!taken_[i] && statement_->modifiers[i] == modifier) {
      taken_[i] = true;
      return true;
    }
  return false;
}

int Decoder::take_any(std::initializer_list<const char*> modifiers) {
  int index = 0;
  for (const char* modifier : modifiers) {
    if (take(modifier)) return index;
    ++index;
  }
  return -1;
}

Type Decoder::take_type() {
  for (size_t i = 0; i < taken_.size(); ++i) {
    if (taken_[i]) continue;
    Type type = parse_type(statement_->modifiers[i]);
    if (type != Type::kNone) {
      taken_[i] = true;
      return type;
    }
  }
  return Type::kNone;
}

void Decoder::ignore(std::initializer_list<const char*> modifiers) {
  for (const char* modifier : modifiers) take(modifier);
}

void Decoder::ignore_matching(const std::function<bool(const std::string&)>& test) {
  for (size_t i = 0; i < taken_.size(); ++i)
    if (!taken_[i] && test(statement_->modifiers[i])) taken_[i] = true;
}

uint32_t Decoder::allocate(int bytes_a_lane) {
  uint32_t slot = next_slot_;
  next_slot_ += static_cast<uint32_t>(32 * bytes_a_lane);
  return slot;
}

uint32_t Decoder::allocate_predicate() {
  uint32_t slot = next_slot_;
  next_slot_ += 64;  // keeps the other slots aligned to 64 bytes
  return slot;
}

uint32_t Decoder::scratch(int bytes) {
  auto [found, added] = scratch_.try_emplace(bytes, 0);
  if (added) found->second = bytes == 0 ? allocate_predicate() : allocate(bytes);
  return found->second;
}

uint32_t Decoder::constant(uint64_t bits, int bytes) {
  if (bytes < 8) bits &= (uint64_t{1} << (8 * bytes)) - 1;
  auto key = std::make_pair(bytes, bits);
  auto found = constants_.find(key);
  if (found != constants_.end()) return found->second;
  uint32_t slot = kConstantFlag | next_constant_;
  next_constant_ += static_cast<uint32_t>(32 * bytes);
  next_constant_ = static_cast<uint32_t>(align_up(next_constant_, 64));
  constants_[key] = slot;
  constant_slots_.push_back({slot, key});
  return slot;
}

uint64_t Decoder::real_bits(const Operand& operand, Type type) const {
  uint64_t bits = 0;
  if (type == Type::kF64 || type == Type::kB64) {
    std::memcpy(&bits, &operand.real, 8);
  } else if (type == Type::kF32 || type == Type::kB32 || type == Type::kTF32) {
    float value = static_cast<float>(operand.real);
    std::memcpy(&bits, &value, 4);
    if (value != value) bits = static_cast<uint32_t>(operand.integer);
  } else {
    fail("a real number stands where a value of another type is needed");
  }
  return bits;
}

bool Decoder::find_variable(const std::string& name, Space* space, uint64_t* address) const {
  for (int scope = statement_->scope; scope >= 0;
       scope = frame_->function->scope_parent[static_cast<size_t>(scope)]) {
    auto found = frame_->variables.find({scope, name});
    if (found != frame_->variables.end()) {
      *space = found->second.first;
      *address = found->second.second;
      return true;
    }
  }
  auto parameter = frame_->parameter_offsets.find(name);
  if (parameter != frame_->parameter_offsets.end()) {
    *space = frame_->function->is_entry ? Space::kParam : Space::kLocal;
    *address = parameter->second;
    return true;
  }
  auto shared = shared_variables_.find(name);
  if (shared != shared_variables_.end()) {
    *space = Space::kShared;
    *address = shared->second.second;
    return true;
  }
  *address = symbols_.address_of(name);
  *space = Space::kGlobal;
  return *address != 0;
}

uint32_t Decoder::special(const std::string& name, Type type) {
  for (const SpecialName& entry : kSpecials) {
    if (name != entry.name) continue;
    int bytes = std::max(type_bytes(type), 2);
    auto key = std::make_pair(static_cast<int>(entry.what), bytes);
    auto [found, added] = special_slots_.try_emplace(key, 0);
    if (added) {
      found->second = allocate(bytes);
      program_->specials.push_back({entry.what, found->second, static_cast<uint8_t>(bytes)});
    }
    return found->second;
  }
  fail("unknown special register '" + name + "'");
}

uint32_t Decoder::source_of(const Operand& operand, Type type) {
  int bytes = std::max(type_bytes(type), 2);
  switch (operand.kind) {
    case Operand::Kind::kRegister: {
      int width = register_width(operand);
      if (width != bytes)
        fail("register '" + frame_->function->registers[static_cast<size_t>(operand.reg)].name + "' has " +
             std::to_string(width) + " bytes where " + std::to_string(bytes) + " are needed");
      return frame_->registers[static_cast<size_t>(operand.reg)];
    }
    case Operand::Kind::kInteger: {
      uint64_t bits = static_cast<uint64_t>(operand.integer);
      return constant(bits, bytes);
    }
    case Operand::Kind::kFloat:
      return constant(real_bits(operand, type), bytes);
    case Operand::Kind::kSpecial:
      return special(operand.name, type);
    case Operand::Kind::kName: {
      Space space;
      uint64_t address;
      if (!find_variable(operand.name, &space, &address)) fail("unknown name '" + operand.name + "'");
      return constant(address + static_cast<uint64_t>(operand.integer), bytes);
    }
    default:
      fail("a register or a number is needed here");
  }
}

uint32_t Decoder::source(size_t index, Type type) { return source_of(operand(index), type); }

uint32_t Decoder::dest_of(const Operand& operand, Type type) {
  int bytes = std::max(type_bytes(type), 2);
  if (operand.kind == Operand::Kind::kSink) return scratch(bytes);
  if (operand.kind != Operand::Kind::kRegister) fail("the destination is not a register");
  return source_of(operand, type);
}

uint32_t Decoder::dest(size_t index, Type type) { return dest_of(operand(index), type); }

int Decoder::register_width(const Operand& operand) const {
  if (operand.kind != Operand::Kind::kRegister) return 0;
  Type type = frame_->function->registers[static_cast<size_t>(operand.reg)].type;
  return type == Type::kPred ? 0 : std::max(type_bytes(type), 2);
}

uint32_t Decoder::any_width(const Operand& operand, uint8_t* width, Type immediate_type) {
  if (operand.kind == Operand::Kind::kRegister) {
    *width = static_cast<uint8_t>(register_width(operand));
    if (*width == 0 || *width > 8) fail("a predicate or a 128-bit register stands where a value is needed");
    return frame_->registers[static_cast<size_t>(operand.reg)];
  }
  *width = static_cast<uint8_t>(std::max(type_bytes(immediate_type), 2));
  if (operand.kind == Operand::Kind::kSink) return scratch(*width);
  return source_of(operand, immediate_type);
}

uint32_t Decoder::predicate_of(const Operand& operand, bool* negated) {
  if (operand.kind == Operand::Kind::kInteger) return constant(operand.integer != 0 ? ~uint64_t{0} : 0, 4);
  if (operand.kind != Operand::Kind::kRegister ||
      frame_->function->registers[static_cast<size_t>(operand.reg)].type != Type::kPred)
    fail("a predicate is needed here");
  if (operand.negated) {
    if (negated == nullptr) fail("a negated predicate cannot stand here");
    *negated = true;
  }
  return frame_->registers[static_cast<size_t>(operand.reg)];
}

uint32_t Decoder::predicate(size_t index, bool* negated) { return predicate_of(operand(index), negated); }

uint32_t Decoder::predicate_dest(size_t index) {
  const Operand& target = operand(index);
  return target.kind == Operand::Kind::kSink ? scratch(0) : predicate_of(target, nullptr);
}

uint32_t Decoder::second_predicate_dest(const Operand& operand) {
  if (operand.second < 0) return kNoSlot;
  Operand other;
  other.kind = Operand::Kind::kRegister;
  other.reg = operand.second;
  return predicate_of(other, nullptr);
}

uint32_t Decoder::address_slot(const Operand& operand, Space space, int64_t* offset) {
  if (operand.kind != Operand::Kind::kAddress) fail("an address in brackets is needed");
  const Operand& base = operand.elements[0];
  *offset = operand.integer;
  if (base.kind == Operand::Kind::kRegister) {
    int width = register_width(base);
    uint32_t slot = frame_->registers[static_cast<size_t>(base.reg)];
    if (width == 8) return slot;
    if (width != 4) fail("the address register has neither 32 nor 64 bits");
    if (space == Space::kGlobal || space == Space::kGeneric)
      fail("a 32-bit register addresses global memory");
    return slot | 1u;  // odd: slots are even, so the low bit marks a 32-bit address
  }
  Space found = space;
  uint64_t address = 0;
  if (base.kind == Operand::Kind::kInteger)
    address = static_cast<uint64_t>(base.integer);
  else if (base.kind == Operand::Kind::kName) {
    if (!find_variable(base.name, &found, &address)) fail("unknown name '" + base.name + "'");
  } else
    fail("the address is neither a register nor a name");
  return constant(address, 8);
}

void Decoder::address(const Operand& operand, Inst& inst, int slot_index, Space space) {
  inst.space = space;
  if (operand.kind == Operand::Kind::kAddress && operand.elements[0].kind == Operand::Kind::kName) {
    Space found;
    uint64_t ignored;
    if (find_variable(operand.elements[0].name, &found, &ignored)) {
      if (space == Space::kParam)
        inst.space = found;  // parameters of functions decoded in place are local memory
      else if (space == Space::kGeneric && found != Space::kGlobal)
        fail("a generic access names a variable of another space");
    }
  }
  inst.op[slot_index] = address_slot(operand, inst.space, &inst.imm);
}

void Decoder::set_list(Inst& inst, std::vector<uint32_t> slots, uint32_t written) {
  program_->lists.push_back(std::move(slots));
  inst.list = program_->lists.back().data();
  inst.list_count = static_cast<uint32_t>(program_->lists.back().size());
  inst.list_written = written;
}

uint32_t Decoder::label(const std::string& name) {
  frame_->label_uses.push_back({program_->code.size(), {statement_->scope, name}});
  return 0;
}

const std::vector<std::string>& Decoder::branch_targets(const std::string& name) const {
  auto found = frame_->function->branch_targets.find(name);
  if (found == frame_->function->branch_targets.end()) fail("unknown branch target list '" + name + "'");
  return found->second;
}

void Decoder::label_list(const std::string& name, Inst& inst) {
  const std::vector<std::string>& names = branch_targets(name);
  set_list(inst, std::vector<uint32_t>(names.size()));
  for (size_t i = 0; i < names.size(); ++i)
    frame_->table_uses.push_back({&program_->lists.back(), {i, {statement_->scope, names[i]}}});
}

}  // namespace trigen::emulator
