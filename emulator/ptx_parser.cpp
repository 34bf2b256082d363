#include <map>

#include "emulator/ptx_variable.h"

namespace trigen::emulator {

namespace {

std::vector<std::string> split_dots(const std::string& word) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= word.size()) {
    size_t stop = word.find('.', begin);
    if (stop == std::string::npos) stop = word.size();
    if (stop > begin) parts.push_back(word.substr(begin, stop - begin));
    begin = stop + 1;
  }
  return parts;
}

class Parser : private PtxCursor {
 public:
  explicit Parser(const std::string& text) : PtxCursor(tokenize(text)), text_(text) {}

  ModuleAst parse() {
    while (peek().kind != Token::Kind::kEnd) parse_module_item();
    return std::move(module_);
  }

 private:
  struct Scope {
    int id = 0;
    std::map<std::string, int> registers;                      // name -> index
    std::map<std::string, std::pair<Type, int64_t>> families;  // "%r" -> type, count (from %r<100>)
  };

  void parse_module_item() {
    const std::string& head = peek().text;
    if (head == ".version") {
      next();
      module_.version = next().text;
    } else if (head == ".target") {
      next();
      module_.target = word();
      while (accept(",")) word();
    } else if (head == ".address_size") {
      next();
      if (integer() != 64) fail("address size is not 64");
    } else if (head == ".file") {
      next();
      integer();
      next();
      while (accept(",")) integer();
    } else if (head == ".section") {
      skip_past("{");
      skip_past("}");
    } else if (head == ".loc") {
      skip_loc();
    } else if (head == ".pragma") {
      skip_past(";");
    } else if (accept(";")) {
    } else {
      parse_declaration();
    }
  }

  void skip_loc() {
    next();
    integer();
    integer();
    integer();
    if (accept(",")) {  // function_name label, inlined_at ...
      while (peek().kind != Token::Kind::kEnd) {
        if (peek().is("inlined_at")) {
          next();
          integer();
          integer();
          integer();
          break;
        }
        next();
      }
    }
  }

  void parse_declaration() {
    bool is_extern = false;
    while (true) {
      if (accept(".visible") || accept(".weak") || accept(".common") || accept(".internal")) continue;
      if (accept(".extern")) {
        is_extern = true;
        continue;
      }
      break;
    }
    if (peek().is(".entry") || peek().is(".func")) {
      parse_function();
    } else {
      Variable variable = parse_variable(*this);
      variable.is_extern = is_extern;
      module_.variables.push_back(variable);
      expect(";");
    }
  }

  std::vector<Variable> parse_parameters() {
    std::vector<Variable> parameters;
    if (!accept("(")) return parameters;
    while (!accept(")")) {
      if (peek().is(".reg")) fail("register parameters of functions are not supported");
      parameters.push_back(parse_variable(*this));
      accept(",");
    }
    return parameters;
  }

  void parse_function() {
    Function function;
    function.line = peek().line;
    function.is_entry = next().text == ".entry";
    if (!function.is_entry && peek().is("(")) function.returns = parse_parameters();
    function.name = word();
    function.parameters = parse_parameters();
    while (!peek().is("{") && !peek().is(";")) parse_function_directive(function);
    if (accept(";")) {
      module_.functions.push_back(function);
      return;
    }
    function.has_body = true;
    function_ = &function;
    scopes_.clear();
    function.scope_parent.clear();
    parse_scope(-1);
    function_ = nullptr;
    // A body replaces an earlier declaration of the same name.
    for (Function& earlier : module_.functions)
      if (earlier.name == function.name && !earlier.has_body) {
        earlier = std::move(function);
        return;
      }
    module_.functions.push_back(std::move(function));
  }

  void parse_dimensions(uint32_t* values) {
    for (int i = 0; i < 3; ++i) values[i] = 1;
    for (int i = 0; i < 3; ++i) {
      values[i] = static_cast<uint32_t>(integer());
      if (!accept(",")) break;
    }
  }

  void parse_function_directive(Function& function) {
    std::string item = word();
    if (item == ".maxntid")
      parse_dimensions(function.max_threads);
    else if (item == ".reqntid")
      parse_dimensions(function.required_threads);
    else if (item == ".reqnctapercluster")
      parse_dimensions(function.required_cluster);
    else if (item == ".maxnreg")
      function.max_registers = static_cast<uint32_t>(integer());
    else if (item == ".minnctapersm" || item == ".maxnctapersm" || item == ".maxclusterrank")
      integer();
    else if (item == ".explicitcluster")
      function.explicit_cluster = true;
    else if (item == ".blocksareclusters" || item == ".noreturn") {
    } else if (item == ".pragma") {
      skip_past(";");
    } else
      fail("unknown directive '" + item + "' of a function");
  }

  // Scopes and operands that hold others are read by functions that call themselves.
  class Nested {
   public:
    explicit Nested(Parser& parser) : depth_(parser.depth_) {
      if (++depth_ > kMostDepth)
        parser.fail("brackets are nested more than " + std::to_string(kMostDepth) + " deep");
    }
    ~Nested() { --depth_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    static constexpr int kMostDepth = 64;
    int& depth_;
  };

  void parse_scope(int parent) {
    const Nested nested(*this);
    expect("{");
    Scope scope;
    scope.id = static_cast<int>(function_->scope_parent.size());
    function_->scope_parent.push_back(parent);
    scopes_.push_back(scope);
    int id = scope.id;
    while (!accept("}")) {
      if (peek().kind == Token::Kind::kEnd) fail("function '" + function_->name + "' is not closed");
      if (peek().is("{"))
        parse_scope(id);
      else
        parse_body_item(id);
    }
    scopes_.pop_back();
  }

  void parse_body_item(int scope) {
    const std::string head = peek().text;
    if (head == ".reg") return parse_registers();
    if (head == ".shared" || head == ".local" || head == ".param" || head == ".const" || head == ".global") {
      Variable variable = parse_variable(*this);
      variable.scope = scope;
      function_->variables.push_back(variable);
      expect(";");
      return;
    }
    if (head == ".loc") return skip_loc();
    if (head == ".pragma") {
      skip_past(";");
      return;
    }
    if (accept(";")) return;
    if (peek().kind == Token::Kind::kWord && peek(1).is(":")) return parse_label(scope);
    parse_instruction(scope);
  }

  void parse_label(int scope) {
    Statement statement;
    statement.line = peek().line;
    statement.scope = scope;
    statement.label = word();
    expect(":");
    if (accept(".branchtargets")) {
      std::vector<std::string>& targets = function_->branch_targets[statement.label];
      do targets.push_back(word());
      while (accept(","));
      expect(";");
      return;
    }
    if (peek().is(".callprototype")) {
      skip_past(";");
      return;
    }
    function_->statements.push_back(statement);
  }

  void parse_registers() {
    next();
    Type type = parse_type(word().substr(1));
    if (type == Type::kNone) fail("unknown register type");
    do {
      std::string name = word();
      if (accept("<")) {
        scopes_.back().families[name] = {type, integer()};
        expect(">");
      } else {
        scopes_.back().registers[name] = add_register(type, name);
      }
    } while (accept(","));
    expect(";");
  }

  int add_register(Type type, const std::string& name) {
    function_->registers.push_back({type, name});
    return static_cast<int>(function_->registers.size()) - 1;
  }

  int find_register(const std::string& name) {
    for (size_t i = scopes_.size(); i-- > 0;) {
      auto found = scopes_[i].registers.find(name);
      if (found != scopes_[i].registers.end()) return found->second;
      size_t digits = name.size();
      while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1]))) --digits;
      if (digits == name.size()) continue;
      auto family = scopes_[i].families.find(name.substr(0, digits));
      if (family == scopes_[i].families.end()) continue;
      if (name.size() - digits > 9 || std::stoll(name.substr(digits)) >= family->second.second) continue;
      int index = add_register(family->second.first, name);
      scopes_[i].registers[name] = index;
      return index;
    }
    return -1;
  }

  Operand parse_word_operand() {
    Operand operand;
    std::string name = word();
    operand.reg = find_register(name);
    if (operand.reg >= 0) {
      operand.kind = Operand::Kind::kRegister;
      if (accept("|")) {
        std::string other = word();
        operand.second = other == "_" ? -2 : find_register(other);
        if (operand.second == -1) fail("unknown register '" + other + "'");
      }
    } else if (name == "_") {
      operand.kind = Operand::Kind::kSink;
      if (accept("|")) {
        std::string other = word();
        operand.second = find_register(other);
      }
    } else if (name == "WARP_SZ") {
      operand.kind = Operand::Kind::kInteger;
      operand.integer = 32;
    } else if (name[0] == '%') {
      operand.kind = Operand::Kind::kSpecial;
      operand.name = name;
    } else {
      operand.kind = Operand::Kind::kName;
      operand.name = name;
      if (accept("+") || peek().is("-")) operand.integer = integer();
    }
    return operand;
  }

  Operand parse_operand() {
    const Nested nested(*this);
    Operand operand;
    if (accept("[")) {
      operand.kind = Operand::Kind::kAddress;
      operand.elements.push_back(parse_operand());
      Operand& base = operand.elements[0];
      if (base.kind == Operand::Kind::kName) std::swap(operand.integer, base.integer);
      if (accept("+")) operand.integer += integer();
      while (accept(",")) operand.elements.push_back(parse_operand());
      expect("]");
      return operand;
    }
    if (peek().is("{") || peek().is("(")) {
      bool vector = next().is("{");
      operand.kind = vector ? Operand::Kind::kVector : Operand::Kind::kList;
      while (!accept(vector ? "}" : ")")) {
        operand.elements.push_back(parse_operand());
        accept(",");
      }
      return operand;
    }
    if (accept("!")) {
      operand = parse_word_operand();
      operand.negated = true;
      return operand;
    }
    bool minus = accept("-");
    if (peek().kind == Token::Kind::kInteger) {
      operand.kind = Operand::Kind::kInteger;
      operand.integer = integer();
      if (minus) operand.integer = static_cast<int64_t>(0 - static_cast<uint64_t>(operand.integer));
      return operand;
    }
    if (peek().kind == Token::Kind::kFloat) {
      operand.kind = Operand::Kind::kFloat;
      const Token& token = next();
      operand.real = minus ? -token.real : token.real;
      operand.integer = token.integer;
      return operand;
    }
    if (minus) fail("a minus sign stands before " + found());
    return parse_word_operand();
  }

  void parse_instruction(int scope) {
    Statement statement;
    statement.line = peek().line;
    statement.scope = scope;
    size_t begin = peek().begin;
    if (accept("@")) {
      statement.guard_negated = accept("!");
      std::string name = word();
      statement.guard = find_register(name);
      if (statement.guard < 0) fail("unknown predicate '" + name + "'");
    }
    const std::string name = word();
    const std::vector<std::string> parts = split_dots(name);
    if (parts.empty()) fail("expected an instruction, found '" + name + "'");
    statement.opcode = parts[0];
    statement.modifiers.assign(parts.begin() + 1, parts.end());
    while (!peek().is(";")) {
      statement.operands.push_back(parse_operand());
      if (!accept(",") && !peek().is(";")) fail("expected ',' or ';', found " + found());
    }
    statement.text = text_.substr(begin, peek().begin - begin);
    for (char& c : statement.text)
      if (c == '\n' || c == '\t') c = ' ';
    expect(";");
    function_->statements.push_back(std::move(statement));
  }

  const std::string& text_;
  ModuleAst module_;
  Function* function_ = nullptr;
  std::vector<Scope> scopes_;
  int depth_ = 0;
};

}  // namespace

ModuleAst parse_ptx(const std::string& text) { return Parser(text).parse(); }

}  // namespace trigen::emulator
