#include "lab/clock/machine_code.h"

#include <map>

#include "generator/error.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen {
namespace {

uint64_t field(uint64_t word, int from, int bits) { return word >> from & ((uint64_t{1} << bits) - 1); }

// "/*0x...*/" or "/*2170*/" at the line's head: its text, and the line behind it.
bool comment(llvm::StringRef& line, llvm::StringRef& inside) {
  line = line.ltrim();
  if (!line.consume_front("/*")) return false;
  const size_t end = line.find("*/");
  if (end == llvm::StringRef::npos) return false;
  inside = line.take_front(end).trim();
  line = line.drop_front(end + 2);
  return true;
}

bool hexadecimal(llvm::StringRef text, uint64_t& value) {
  text.consume_front("0x");
  return !text.getAsInteger(16, value);
}

// "@!P0 BRA `(.L_x_3) ?trans5" -> guard, opcode, operands. Newer releases print the control word too, behind
// '?' and '&'.
Instruction instruction_of(llvm::StringRef text) {
  Instruction out;
  for (const llvm::StringRef mark : {" ?", " &", "\t?", "\t&"}) text = text.take_front(text.find(mark));
  text = text.trim();
  if (text.startswith("@")) {
    auto [guard, rest] = text.split(' ');
    out.guard = guard.str();
    text = rest.ltrim();
  }
  auto [opcode, operands] = text.split(' ');
  out.opcode = opcode.str();
  out.operands = operands.trim().str();
  return out;
}

struct MachineCodeParser {
  std::vector<MachineFunction> functions;
  std::map<std::string, size_t> labels;               // of the current function
  std::vector<std::pair<size_t, std::string>> jumps;  // instruction, label
  bool second_word = false;

  void close() {
    for (const auto& [at, label] : jumps) {
      const auto found = labels.find(label);
      if (found != labels.end())
        functions.back().instructions[at].target = static_cast<int64_t>(found->second);
    }
    labels.clear(), jumps.clear();
  }

  llvm::Error line(llvm::StringRef text) {
    llvm::StringRef rest = text;
    llvm::StringRef inside;
    if (second_word) {
      uint64_t word = 0;
      if (!comment(rest, inside) || !hexadecimal(inside, word))
        return bad_request("machine code: an instruction's second word is missing in '" + text.trim() +
                           "'; print it with nvdisasm -c -hex");
      functions.back().instructions.back().control = Control::of(word);
      second_word = false;
      return llvm::Error::success();
    }
    text = text.trim();
    if (text.consume_front(".section")) {
      text = text.ltrim();
      if (!text.consume_front(".text.")) return llvm::Error::success();
      if (!functions.empty()) close();
      functions.push_back({text.take_until([](char c) { return c == ','; }).str(), {}});
      return llvm::Error::success();
    }
    if (functions.empty()) return llvm::Error::success();
    std::vector<Instruction>& instructions = functions.back().instructions;
    if (text.startswith(".L") && text.endswith(":")) {
      labels[text.drop_back().str()] = instructions.size();
      return llvm::Error::success();
    }
    uint64_t address = 0;
    if (!comment(rest, inside) || !hexadecimal(inside, address)) return llvm::Error::success();
    const size_t end = rest.find(';');
    if (end == llvm::StringRef::npos) return llvm::Error::success();  // data
    Instruction one = instruction_of(rest.take_front(end));
    one.address = static_cast<uint32_t>(address);
    const llvm::StringRef operands = one.operands;
    const size_t label = operands.find("`(");
    if (one.is("BRA") && label != llvm::StringRef::npos)
      jumps.emplace_back(instructions.size(), operands.drop_front(label + 2).split(')').first.str());
    instructions.push_back(std::move(one));
    second_word = true;
    return llvm::Error::success();
  }
};

}  // namespace

Control Control::of(uint64_t upper_word) {
  Control out;
  out.stall = static_cast<int>(field(upper_word, 41, 4));
  out.yield = field(upper_word, 45, 1) == 0;
  out.write_barrier = static_cast<int>(field(upper_word, 46, 3));
  out.read_barrier = static_cast<int>(field(upper_word, 49, 3));
  out.wait = static_cast<int>(field(upper_word, 52, 6));
  out.reuse = static_cast<int>(field(upper_word, 58, 4));
  return out;
}

bool Instruction::is(llvm::StringRef name) const {
  llvm::StringRef text = opcode;
  return text.consume_front(name) && (text.empty() || text.startswith("."));
}

bool Instruction::has(llvm::StringRef modifier) const {
  llvm::SmallVector<llvm::StringRef, 8> parts;
  llvm::StringRef(opcode).split(parts, '.');
  return llvm::is_contained(llvm::ArrayRef<llvm::StringRef>(parts).drop_front(), modifier);
}

std::vector<int> Instruction::sources() const {
  std::vector<int> out;
  llvm::SmallVector<llvm::StringRef, 8> parts;
  llvm::StringRef(operands).split(parts, ',');
  for (const llvm::StringRef part :
       llvm::ArrayRef<llvm::StringRef>(parts).drop_front(parts.empty() ? 0 : 1)) {
    llvm::StringRef name = part.trim();
    name.consume_front("-"), name.consume_front("~");
    int number = 0;
    if (name.consume_front("R") && !name.consumeInteger(10, number)) out.push_back(number);
  }
  return out;
}

llvm::Expected<std::vector<MachineFunction>> parse_machine_code(llvm::StringRef text) {
  MachineCodeParser parser;
  while (!text.empty()) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    if (parser.second_word && line.trim().empty()) continue;
    if (llvm::Error error = parser.line(line)) return error;
  }
  if (parser.functions.empty())
    return bad_request("machine code: the text has no .text section; print it with nvdisasm -c -hex");
  if (parser.second_word) return bad_request("machine code: the text ends in the middle of an instruction");
  parser.close();
  return parser.functions;
}

}  // namespace trigen
