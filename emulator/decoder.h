// One statement as an instruction class's decode function sees it. Every modifier must be taken: a modifier left over
// makes the whole module fail to load, with the instruction's text and line.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "emulator/program.h"

namespace trigen::emulator {

class Decoder;
// Provisional slot of a constant, until the register count is known.
inline constexpr uint32_t kConstantFlag = 0x80000000u;
using DecodeFn = void (*)(Decoder& decoder, Inst& inst);
inline uint64_t align_up(uint64_t value, uint64_t align) { return (value + align - 1) / align * align; }
using OpcodeTable = std::unordered_map<std::string, DecodeFn>;

class Decoder {
 public:
  Decoder(const ModuleAst& module, const SymbolTable& symbols, int target, int device, bool arch_specific);
  std::unique_ptr<Program> decode(const Function& kernel);

  // --- for decode functions --------------------------------------------------------------------------------
  const std::string& opcode() const { return statement_->opcode; }
  const std::vector<std::string>& modifiers() const { return statement_->modifiers; }
  size_t operand_count() const { return statement_->operands.size(); }
  const Operand& operand(size_t index) const;
  [[noreturn]] void fail(const std::string& what) const;
  /// Fails unless the module's target has at least this compute capability (times ten).
  void require_target(int minimum);
  /// Fails unless the module's target is exactly this one with the suffix `a` (sm_90a for wgmma).
  void require_specific(int target);

  /// True when the modifier is there; takes it.
  bool take(const std::string& modifier);
  /// Takes the first of these that is there and returns its index, or -1.
  int take_any(std::initializer_list<const char*> modifiers);
  /// Takes the next type modifier from the left; kNone when there is none left.
  Type take_type();
  /// Takes modifiers for which there is nothing to do (cache hints, scopes, alignment of execution ...).
  void ignore(std::initializer_list<const char*> modifiers);
  void ignore_matching(const std::function<bool(const std::string&)>& test);

  /// Slot of a source operand of `bytes` a lane. Integers, reals (converted to `type`), names and special
  /// registers become constant slots.
  uint32_t source(size_t index, Type type);
  uint32_t source_of(const Operand& operand, Type type);
  uint32_t dest(size_t index, Type type);
  uint32_t dest_of(const Operand& operand, Type type);
  uint32_t predicate(size_t index, bool* negated = nullptr);
  uint32_t predicate_of(const Operand& operand, bool* negated);
  uint32_t predicate_dest(size_t index);
  uint32_t second_predicate_dest(const Operand& operand);
  /// Width in bytes of a register operand's lane (0: not a register).
  int register_width(const Operand& operand) const;
  /// Slot whatever the register's width is (loads, stores and conversions accept wider registers); width out.
  uint32_t any_width(const Operand& operand, uint8_t* width, Type immediate_type);
  uint32_t constant(uint64_t bits, int bytes);
  /// Decodes [base+offset]: inst.op[slot_index] = address slot (64-bit) and inst.imm = offset.
  void address(const Operand& operand, Inst& inst, int slot_index, Space space);
  uint32_t address_slot(const Operand& operand, Space space, int64_t* offset);
  /// Keeps a list of slots alive as long as the program and hangs it on the instruction. `written`: its
  /// first slots, which the instruction writes.
  void set_list(Inst& inst, std::vector<uint32_t> slots, uint32_t written = 0);
  uint32_t label(const std::string& name);
  const std::vector<std::string>& branch_targets(const std::string& name) const;
  void label_list(const std::string& name, Inst& inst);
  Program& program() { return *program_; }
  uint32_t scratch(int bytes);

 private:
  struct Frame {  // the kernel itself, or one call of a function, which is decoded in place
    const Function* function = nullptr;
    std::vector<uint32_t> registers;                         // slot by register index
    std::map<std::pair<int, std::string>, uint32_t> labels;  // scope and name -> code index
    std::map<std::string, uint32_t>
        parameter_offsets;  // kernel: in the parameter buffer; function: in local memory
    std::map<std::pair<int, std::string>, std::pair<Space, uint64_t>> variables;
    std::vector<std::pair<size_t, std::pair<int, std::string>>> label_uses;
    std::vector<size_t> returns;  // code indices of `ret`, which jump to the call's end
    std::vector<std::pair<std::vector<uint32_t>*, std::pair<size_t, std::pair<int, std::string>>>> table_uses;
  };

  void decode_body(Frame& frame, int depth);
  void decode_statement(Frame& frame, int depth);
  void decode_call(Frame& frame, int depth);
  void declare_variables(Frame& frame);
  void finish_constants();
  uint32_t allocate(int bytes_a_lane);
  uint32_t allocate_predicate();
  bool find_variable(const std::string& name, Space* space, uint64_t* address) const;
  uint64_t real_bits(const Operand& operand, Type type) const;
  uint32_t special(const std::string& name, Type type);

  const ModuleAst& module_;
  const SymbolTable& symbols_;
  int target_;
  int device_;
  bool arch_specific_;
  std::unique_ptr<Program> program_;
  std::map<std::string, std::pair<Space, uint64_t>> shared_variables_;
  const Statement* statement_ = nullptr;
  Frame* frame_ = nullptr;
  std::vector<bool> taken_;
  std::map<std::pair<int, uint64_t>, uint32_t> constants_;  // -> marker index
  std::vector<std::pair<uint32_t, std::pair<int, uint64_t>>> constant_slots_;
  std::map<std::pair<int, int>, uint32_t> special_slots_;
  std::map<int, uint32_t> scratch_;
  uint32_t next_slot_ = 0;
  uint32_t next_constant_ = 0;
  uint32_t local_top_ = 0;
};

// One function per exec_*.cpp file.
void register_move(OpcodeTable& table);
void register_integer(OpcodeTable& table);
void register_bits(OpcodeTable& table);
void register_float(OpcodeTable& table);
void register_convert(OpcodeTable& table);
void register_compare(OpcodeTable& table);
void register_control(OpcodeTable& table);
void register_memory(OpcodeTable& table);
void register_atomic(OpcodeTable& table);
void register_warp(OpcodeTable& table);
void register_matrix(OpcodeTable& table);
void register_mma(OpcodeTable& table);
void register_async(OpcodeTable& table);
void register_mbarrier(OpcodeTable& table);
void register_wgmma(OpcodeTable& table);

}  // namespace trigen::emulator
