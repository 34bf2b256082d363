#include "emulator/ptx_variable.h"

#include <algorithm>
#include <cstring>

namespace trigen::emulator {
namespace {

Space parse_space(PtxCursor& at, const std::string& text) {
  if (text == ".global") return Space::kGlobal;
  if (text == ".shared") return Space::kShared;
  if (text == ".local") return Space::kLocal;
  if (text == ".const") return Space::kConst;
  if (text == ".param") return Space::kParam;
  at.fail("expected a state space, found '" + text + "'");
}

constexpr uint64_t kMostAlign = 4096;

// Of one variable: what devices have (CUDA C++ Programming Guide, "Technical Specifications"; PTX ISA, "Kernel
// Function Parameters"), and of global memory more than any module of trigen's.
uint64_t most_bytes(Space space) {
  switch (space) {
    case Space::kShared:
      return 256 << 10;
    case Space::kLocal:
      return 512 << 10;
    case Space::kParam:
      return 32764;
    case Space::kConst:
      return 64 << 10;
    default:
      return 256 << 20;
  }
}

void append_value(PtxCursor& at, Variable& variable, Type type) {
  bool minus = at.accept("-");
  const Token& token = at.next();
  int bytes = type_bytes(type);
  uint64_t bits = 0;
  if (token.kind == Token::Kind::kInteger) {
    bits = static_cast<uint64_t>(token.integer);
    if (minus) bits = 0 - bits;
    if (type == Type::kF32) {
      float value = static_cast<float>(static_cast<int64_t>(bits));
      std::memcpy(&bits, &value, 4);
    }
  } else if (token.kind == Token::Kind::kFloat) {
    double real = minus ? -token.real : token.real;
    if (type == Type::kF64)
      std::memcpy(&bits, &real, 8);
    else if (type == Type::kF32) {
      float value = static_cast<float>(real);
      std::memcpy(&bits, &value, 4);
    } else
      bits = static_cast<uint64_t>(token.integer);
  } else {
    at.fail("initial value '" + token.text +
            "' is not a number; addresses in initial values are not supported");
  }
  for (int i = 0; i < bytes; ++i) variable.init.push_back(static_cast<uint8_t>(bits >> (8 * i)));
}

void parse_initialiser(PtxCursor& at, Variable& variable, Type type) {
  if (at.accept("{")) {
    int depth = 1;
    while (depth > 0) {
      if (at.accept("{"))
        ++depth;
      else if (at.accept("}"))
        --depth;
      else if (!at.accept(","))
        append_value(at, variable, type);
    }
  } else {
    append_value(at, variable, type);
  }
  if (variable.bytes == 0) variable.bytes = variable.init.size();
  variable.init.resize(variable.bytes, 0);
}

}  // namespace

Variable parse_variable(PtxCursor& at) {
  Variable variable;
  variable.space = parse_space(at, at.word());
  Type type = Type::kNone;
  uint64_t vector = 1;
  bool align_given = false;
  while (at.peek().text.size() > 1 && at.peek().text[0] == '.') {
    std::string item = at.word();
    if (item == ".align") {
      const uint64_t align = static_cast<uint64_t>(at.integer());
      if (align == 0 || align > kMostAlign || (align & (align - 1)) != 0)
        at.fail("an alignment of " + std::to_string(align) + " bytes; allowed are powers of two to " +
                std::to_string(kMostAlign));
      if (!align_given) variable.align = align;
      align_given = true;
    } else if (item == ".ptr") {
      while (at.peek().text.size() > 1 && at.peek().text[0] == '.') {
        if (at.word() == ".align") at.integer();  // describes what it points at, not the parameter itself
      }
      break;
    } else if (item == ".v2" || item == ".v4") {
      vector = item == ".v2" ? 2 : 4;
    } else if (item == ".attribute") {
      at.expect("(");
      at.skip_past(")");
    } else {
      type = parse_type(item.substr(1));
      if (type == Type::kNone) at.fail("unknown type '" + item + "' in a declaration");
    }
  }
  variable.name = at.word();
  uint64_t element = static_cast<uint64_t>(type_bytes(type)) * vector;
  uint64_t count = 1;
  while (at.accept("[")) {
    if (at.accept("]")) {
      count = 0;
      break;
    }
    const uint64_t extent = static_cast<uint64_t>(at.integer());
    // Checked at each extent, so that no product overflows: limits are far below 2^32.
    if (extent > most_bytes(variable.space) ||
        (count *= extent) * std::max<uint64_t>(element, 1) > most_bytes(variable.space))
      at.fail("'" + variable.name + "' is larger than the " + std::to_string(most_bytes(variable.space)) +
              " bytes that its state space has");
    at.expect("]");
  }
  variable.bytes = element * count;
  if (!align_given) variable.align = element;
  if (at.accept("=")) parse_initialiser(at, variable, type);
  return variable;
}

}  // namespace trigen::emulator
