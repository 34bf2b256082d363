// The PTX of one module as read: names resolved to registers where declared, everything else still text.
// Source of the grammar: PTX ISA, chapters "Syntax", "State Spaces, Types, and Variables", "Directives".
#pragma once

#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace trigen::emulator {

/// Reading or decoding PTX failed. Caught at the driver entry that loads a module; what() is the whole
/// message.
struct PtxError : std::runtime_error {
  PtxError(int line, const std::string& what)
      : std::runtime_error("ptx line " + std::to_string(line) + ": " + what) {}
};

enum class Type : uint8_t {
  kNone,
  kPred,
  kU8,
  kS8,
  kB8,
  kU16,
  kS16,
  kB16,
  kF16,
  kBF16,
  kU32,
  kS32,
  kB32,
  kF32,
  kTF32,
  kF16x2,
  kBF16x2,
  kU64,
  kS64,
  kB64,
  kF64,
  kF32x2,
  kB128
};

/// Size of a value of the type in bytes; a predicate and kNone have none (0).
int type_bytes(Type type);
/// The type that a modifier such as "u32" names, or kNone when it names no type.
Type parse_type(const std::string& text);

struct Operand {
  enum class Kind : uint8_t { kRegister, kInteger, kFloat, kName, kSpecial, kVector, kList, kAddress, kSink };
  Kind kind = Kind::kSink;
  bool negated = false;           // !%p
  int reg = -1;                   // kRegister: index into Function::registers
  int second = -1;                // %p|%q: the second destination, -1 when absent, -2 for `_`
  int64_t integer = 0;            // kInteger: value; kAddress and kName: byte offset
  double real = 0;                // kFloat
  std::string name;               // kName, kSpecial
  std::vector<Operand> elements;  // kVector, kList: the items; kAddress: base, then any further parts
};

struct Statement {
  int line = 0;
  int scope = 0;
  std::string label;                   // a label stands alone: no opcode
  std::string opcode;                  // "ld"
  std::vector<std::string> modifiers;  // "global", "nc", "v4", "u32"
  int guard = -1;                      // predicate register, -1 for none
  bool guard_negated = false;
  std::vector<Operand> operands;
  std::string text;  // the instruction as written, for messages
};

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kConst, kParam };

struct Variable {
  std::string name;
  Space space = Space::kGlobal;
  uint64_t align = 1;
  uint64_t bytes = 0;  // 0 for an unsized extern array
  bool is_extern = false;
  std::vector<uint8_t> init;  // empty: zeros (global, const) or nothing (shared, local)
  int scope = 0;
};

struct RegisterDecl {
  Type type = Type::kNone;
  std::string name;
};

struct Function {
  std::string name;
  bool is_entry = false;
  bool has_body = false;
  int line = 0;
  std::vector<Variable> parameters;
  std::vector<Variable> returns;
  std::vector<Variable> variables;  // shared, local and param variables declared inside
  std::vector<RegisterDecl> registers;
  std::vector<int> scope_parent;  // scope 0 is the body
  std::vector<Statement> statements;
  std::map<std::string, std::vector<std::string>> branch_targets;
  uint32_t max_threads[3] = {0, 0, 0};
  uint32_t required_threads[3] = {0, 0, 0};
  uint32_t required_cluster[3] = {0, 0, 0};
  uint32_t max_registers = 0;
  bool explicit_cluster = false;
};

struct ModuleAst {
  std::string version;
  std::string target;
  std::vector<Variable> variables;
  std::vector<Function> functions;
};

/// Reads a whole PTX module. Throws PtxError, which names the line and what was found.
ModuleAst parse_ptx(const std::string& text);

}  // namespace trigen::emulator
