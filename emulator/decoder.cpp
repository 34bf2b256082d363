#include "emulator/decoder.h"

#include <algorithm>
#include <cstring>

namespace trigen::emulator {
namespace {

const OpcodeTable& opcode_table() {
  static const OpcodeTable table = [] {
    OpcodeTable t;
    register_move(t);
    register_integer(t);
    register_bits(t);
    register_float(t);
    register_convert(t);
    register_compare(t);
    register_control(t);
    register_memory(t);
    register_atomic(t);
    register_warp(t);
    register_matrix(t);
    register_mma(t);
    register_async(t);
    register_mbarrier(t);
    register_wgmma(t);
    return t;
  }();
  return table;
}

}  // namespace

Decoder::Decoder(const ModuleAst& module, const SymbolTable& symbols, int target, int device,
                 bool arch_specific)
    : module_(module), symbols_(symbols), target_(target), device_(device), arch_specific_(arch_specific) {}

void Decoder::fail(const std::string& what) const {
  throw PtxError(statement_ != nullptr ? statement_->line : 0,
                 what + (statement_ != nullptr ? " in '" + statement_->text + "'" : ""));
}

void Decoder::require_target(int minimum) {
  if (target_ < minimum)
    fail("needs sm_" + std::to_string(minimum) + " or later, the module is for sm_" +
         std::to_string(target_));
}

void Decoder::require_specific(int target) {
  if (target_ != target || !arch_specific_)
    fail("needs the target sm_" + std::to_string(target) + "a, the module is for sm_" +
         std::to_string(target_));
}

const Operand& Decoder::operand(size_t index) const {
  if (index >= statement_->operands.size()) fail("operand " + std::to_string(index + 1) + " is missing");
  return statement_->operands[index];
}

void Decoder::declare_variables(Frame& frame) {
  for (const Variable& variable : frame.function->variables) {
    auto key = std::make_pair(variable.scope, variable.name);
    uint64_t align = std::max<uint64_t>(variable.align, 1);
    if (variable.space == Space::kShared) {
      // One copy per kernel, however often the function is decoded in place.
      auto shared = shared_variables_.find(frame.function->name + "::" + variable.name);
      if (shared == shared_variables_.end()) {
        program_->static_shared = static_cast<uint32_t>(align_up(program_->static_shared, align));
        shared = shared_variables_
                     .insert({frame.function->name + "::" + variable.name,
                              {Space::kShared, program_->shared_base + program_->static_shared}})
                     .first;
        program_->static_shared += static_cast<uint32_t>(variable.bytes);
      }
      frame.variables[key] = shared->second;
    } else if (variable.space == Space::kLocal || variable.space == Space::kParam) {
      local_top_ = static_cast<uint32_t>(align_up(local_top_, std::max<uint64_t>(align, 16)));
      frame.variables[key] = {Space::kLocal, local_top_};
      local_top_ += static_cast<uint32_t>(variable.bytes);
    } else {
      throw PtxError(frame.function->line,
                     "variable '" + variable.name + "' inside a function is neither shared nor local");
    }
  }
}

void Decoder::decode_call(Frame& frame, int depth) {
  ignore({"uni"});
  size_t index = 0;
  std::vector<std::string> returns, arguments;
  if (operand(index).kind == Operand::Kind::kList)
    for (const Operand& item : operand(index++).elements) returns.push_back(item.name);
  const Operand& callee = operand(index++);
  if (callee.kind != Operand::Kind::kName) fail("indirect calls are not supported");
  if (index < operand_count() && operand(index).kind == Operand::Kind::kList)
    for (const Operand& item : operand(index).elements) {
      if (item.kind != Operand::Kind::kName) fail("an argument of a call is not a .param variable");
      arguments.push_back(item.name);
    }
  const Function* function = nullptr;
  for (const Function& candidate : module_.functions)
    if (candidate.name == callee.name) function = &candidate;
  if (function == nullptr || !function->has_body)
    fail("call of '" + callee.name + "', which has no body in this module");
  if (depth > 16) fail("calls are nested more than 16 deep or recursive");
  Frame inner;
  inner.function = function;
  auto bind = [&](const std::vector<Variable>& formal, const std::vector<std::string>& actual) {
    if (formal.size() != actual.size()) fail("the call's arguments do not match the function's parameters");
    for (size_t i = 0; i < formal.size(); ++i) {
      Space space;
      uint64_t address;
      if (!find_variable(actual[i], &space, &address)) fail("unknown argument '" + actual[i] + "'");
      inner.parameter_offsets[formal[i].name] = static_cast<uint32_t>(address);
    }
  };
  bind(function->returns, returns);
  bind(function->parameters, arguments);
  if (statement_->guard >= 0) {  // jump over the body where the guard is false
    Inst skip;
    skip.flow = Flow::kBranch;
    skip.cls = InstClass::kControl;
    skip.guard = frame.registers[static_cast<size_t>(statement_->guard)];
    skip.guard_negated = !statement_->guard_negated;
    skip.line = statement_->line;
    program_->code.push_back(skip);
  }
  size_t skip_at = program_->code.size() - 1;
  const Statement* here = statement_;
  Frame* outer = frame_;
  std::vector<bool> taken = taken_;
  decode_body(inner, depth + 1);
  statement_ = here;
  frame_ = outer;
  taken_ = taken;
  uint32_t end = static_cast<uint32_t>(program_->code.size());
  for (size_t at : inner.returns) program_->code[at].target = end;
  if (here->guard >= 0) program_->code[skip_at].target = end;
}

void Decoder::decode_statement(Frame& frame, int depth) {
  const Statement& statement = *statement_;
  taken_.assign(statement.modifiers.size(), false);
  if (statement.opcode == "call") {
    decode_call(frame, depth);
    return;
  }
  auto found = opcode_table().find(statement.opcode);
  if (found == opcode_table().end()) fail("unknown instruction '" + statement.opcode + "'");
  Inst inst;
  inst.line = statement.line;
  if (statement.guard >= 0) {
    inst.guard = frame.registers[static_cast<size_t>(statement.guard)];
    inst.guard_negated = statement.guard_negated;
  }
  if (statement.opcode == "ret" && depth > 0) {
    inst.flow = Flow::kBranch;
    inst.cls = InstClass::kControl;
    taken_.assign(statement.modifiers.size(), true);
    frame.returns.push_back(program_->code.size());
  } else {
    found->second(*this, inst);
    for (size_t i = 0; i < taken_.size(); ++i)
      if (!taken_[i]) fail("unknown modifier '." + statement.modifiers[i] + "'");
    if (inst.fn == nullptr &&
        (inst.flow == Flow::kNext || inst.flow == Flow::kCollective || inst.flow == Flow::kBlocking))
      return;  // nothing to do at run time (pragma-like instructions)
  }
  inst.text = static_cast<uint32_t>(program_->texts.size());
  program_->texts.push_back(statement.text);
  program_->code.push_back(inst);
}

void Decoder::decode_body(Frame& frame, int depth) {
  frame_ = &frame;
  for (const RegisterDecl& reg : frame.function->registers)
    frame.registers.push_back(reg.type == Type::kPred ? allocate_predicate()
                                                      : allocate(std::max(type_bytes(reg.type), 2)));
  declare_variables(frame);
  for (const Statement& statement : frame.function->statements) {
    statement_ = &statement;
    frame_ = &frame;
    if (!statement.label.empty()) {
      frame.labels[{statement.scope, statement.label}] = static_cast<uint32_t>(program_->code.size());
      continue;
    }
    decode_statement(frame, depth);
  }
  if (depth == 0) {  // falling off the end is exit
    Inst end;
    end.flow = Flow::kExit;
    end.cls = InstClass::kControl;
    end.line =
        frame.function->statements.empty() ? frame.function->line : frame.function->statements.back().line;
    end.text = static_cast<uint32_t>(program_->texts.size());
    program_->texts.push_back("(end of the kernel)");
    program_->code.push_back(end);
  }
  auto resolve = [&](const std::pair<int, std::string>& use) {
    for (int scope = use.first; scope >= 0;
         scope = frame.function->scope_parent[static_cast<size_t>(scope)]) {
      auto found = frame.labels.find({scope, use.second});
      if (found != frame.labels.end()) return found->second;
    }
    throw PtxError(frame.function->line,
                   "unknown label '" + use.second + "' in '" + frame.function->name + "'");
  };
  for (const auto& [at, use] : frame.label_uses) program_->code[at].target = resolve(use);
  for (const auto& [list, use] : frame.table_uses) (*list)[use.first] = resolve(use.second);
}

void Decoder::finish_constants() {
  Program& program = *program_;
  program.constant_begin = next_slot_;
  program.register_bytes = next_slot_ + next_constant_;
  program.constants.assign(next_constant_, 0);
  for (const auto& [slot, key] : constant_slots_) {
    uint8_t* at = program.constants.data() + (slot & ~kConstantFlag);
    for (int lane = 0; lane < 32; ++lane)
      std::memcpy(at + lane * key.first, &key.second, static_cast<size_t>(key.first));
  }
  auto patch = [&](uint32_t& slot) {
    if (slot != kNoSlot && (slot & kConstantFlag) != 0)
      slot = program.constant_begin + (slot & ~kConstantFlag);
  };
  for (Inst& inst : program.code) {
    for (uint32_t& slot : inst.op) patch(slot);
    patch(inst.guard);
  }
  for (std::vector<uint32_t>& list : program.lists)
    for (uint32_t& slot : list) patch(slot);
}

std::unique_ptr<Program> Decoder::decode(const Function& kernel) {
  program_ = std::make_unique<Program>();
  Program& program = *program_;
  program.name = kernel.name;
  program.shared_base = device_ >= 80 ? 1024 : 0;  // the system's reserved bytes come first
  Frame frame;
  frame.function = &kernel;
  uint64_t offset = 0;
  for (const Variable& parameter : kernel.parameters) {
    offset = align_up(offset, std::max<uint64_t>(parameter.align, 1));
    frame.parameter_offsets[parameter.name] = static_cast<uint32_t>(offset);
    program.parameters.push_back({static_cast<uint32_t>(offset), static_cast<uint32_t>(parameter.bytes)});
    offset += parameter.bytes;
  }
  program.parameter_bytes = static_cast<uint32_t>(offset);
  // Module-level shared variables: sized ones first, then the extern arrays, which all start where the others
  // end.
  uint64_t dynamic_align = 16;
  for (const Variable& variable : module_.variables)
    if (variable.space == Space::kShared && variable.bytes != 0) {
      program.static_shared =
          static_cast<uint32_t>(align_up(program.static_shared, std::max<uint64_t>(variable.align, 1)));
      shared_variables_[variable.name] = {Space::kShared, program.shared_base + program.static_shared};
      program.static_shared += static_cast<uint32_t>(variable.bytes);
    } else if (variable.space == Space::kShared) {
      dynamic_align = std::max(dynamic_align, variable.align);
    }
  // Function-level static shared memory must be known before the extern arrays' address is.
  uint64_t inner = program.static_shared;
  for (const Function& function : module_.functions)
    if (&function == &kernel || !function.is_entry)
      for (const Variable& variable : function.variables)
        if (variable.space == Space::kShared)
          inner = align_up(inner, std::max<uint64_t>(variable.align, 1)) + variable.bytes;
  uint64_t dynamic_begin = align_up(program.shared_base + inner, dynamic_align);
  for (const Variable& variable : module_.variables)
    if (variable.space == Space::kShared && variable.bytes == 0)
      shared_variables_[variable.name] = {Space::kShared, dynamic_begin};
  decode_body(frame, 0);
  program.static_shared = static_cast<uint32_t>(dynamic_begin - program.shared_base);
  program.dynamic_align = static_cast<uint32_t>(dynamic_align);
  program.local_bytes = static_cast<uint32_t>(align_up(local_top_, 16));
  std::copy(kernel.required_threads, kernel.required_threads + 3, program.required_threads);
  std::copy(kernel.required_cluster, kernel.required_cluster + 3, program.required_cluster);
  if (kernel.max_threads[0] != 0)
    program.max_threads = kernel.max_threads[0] * kernel.max_threads[1] * kernel.max_threads[2];
  if (kernel.required_threads[0] != 0)
    program.max_threads =
        kernel.required_threads[0] * kernel.required_threads[1] * kernel.required_threads[2];
  finish_constants();
  order_blocks(program);
  find_product_registers(program);
  return std::move(program_);
}

std::unique_ptr<Program> decode_kernel(const ModuleAst& module, const Function& kernel,
                                       const SymbolTable& symbols, int target, int device,
                                       bool arch_specific) {
  return Decoder(module, symbols, target, device, arch_specific).decode(kernel);
}

}  // namespace trigen::emulator
