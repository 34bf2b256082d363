#include "mutants.h"

#include <cstdlib>
#include <map>
#include <regex>
#include <sstream>

#include "generator/candidate.h"

namespace trigen::mutations {
namespace {

std::string trimmed(const std::string& line) {
  const size_t first = line.find_first_not_of(" \t");
  return first == std::string::npos ? "" : line.substr(first, line.find_last_not_of(" \t\r") - first + 1);
}

struct Instruction {
  std::string guard, opcode;
  std::vector<std::string> operands;

  bool is(const char* prefix) const { return opcode.rfind(prefix, 0) == 0; }
  bool has(const char* part) const { return opcode.find(part) != std::string::npos; }
  // With other operands, or as another instruction.
  std::string with(size_t index, const std::string& operand) const {
    std::vector<std::string> all = operands;
    all[index] = operand;
    return as(opcode, all);
  }
  std::string as(const std::string& other, const std::vector<std::string>& all) const {
    std::string text = guard.empty() ? other : guard + " " + other;
    for (size_t i = 0; i < all.size(); ++i) text += (i == 0 ? " " : ", ") + all[i];
    return text + ";";
  }
  // "mov.b32" for "add.s32".
  std::string move() const {
    if (has(".pred")) return "mov.pred";
    return has("64") ? "mov.b64" : has("16") ? "mov.b16" : "mov.b32";
  }
};

// Empty opcode: no instruction, or several in one line.
Instruction parse(const std::string& raw) {
  Instruction out;
  std::string text = trimmed(raw);
  if (text.empty() || text.back() != ';' || text.find(';') + 1 != text.size()) return out;
  if (text[0] == '.' || text[0] == '/' || text[0] == '{') return out;
  text.pop_back();
  if (text[0] == '@') {
    const size_t end = text.find_first_of(" \t");
    out.guard = text.substr(0, end);
    text = trimmed(text.substr(end));
  }
  const size_t end = text.find_first_of(" \t");
  out.opcode = text.substr(0, end);
  if (end == std::string::npos) return out;
  int depth = 0;
  std::string operand;
  for (const char c : text.substr(end)) {
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (c == ',' && depth == 0) {
      out.operands.push_back(trimmed(operand));
      operand.clear();
    } else {
      operand += c;
    }
  }
  out.operands.push_back(trimmed(operand));
  return out;
}

bool is_register(const std::string& operand) { return !operand.empty() && operand[0] == '%'; }
bool is_constant(const std::string& operand) {
  return !operand.empty() && operand.find_first_not_of("-0123456789") == std::string::npos;
}
std::string plus(const std::string& constant, int64_t more) {
  return std::to_string(std::strtoll(constant.c_str(), nullptr, 10) + more);
}
std::string replaced(std::string text, const std::string& from, const std::string& to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
  return text;
}

// Opcodes that synchronise, the longest match first. Those of one row that begin alike are told apart here.
const char* const kSynchronising[] = {"bar.warp.sync",
                                      "bar.sync",
                                      "barrier.sync",
                                      "bar.arrive",
                                      "barrier.cluster.arrive",
                                      "barrier.cluster.wait",
                                      "cp.async.commit_group",
                                      "cp.async.wait_group",
                                      "cp.async.wait_all",
                                      "cp.async.bulk.commit_group",
                                      "cp.async.bulk.wait_group",
                                      "cp.async.mbarrier.arrive",
                                      "mbarrier.arrive.expect_tx",
                                      "mbarrier.arrive",
                                      "mbarrier.expect_tx",
                                      "mbarrier.try_wait",
                                      "mbarrier.test_wait",
                                      "wgmma.fence",
                                      "wgmma.commit_group",
                                      "wgmma.wait_group",
                                      "fence.proxy.async",
                                      "fence.mbarrier_init",
                                      "griddepcontrol.wait",
                                      "fence.acq_rel",
                                      "fence.sc",
                                      "membar"};

class Finder {
 public:
  explicit Finder(const Listing& listing) : listing_(listing) {}

  std::vector<Mutant> find() {
    for (line_ = 0; line_ < listing_.lines.size(); ++line_) {
      at_ = parse(listing_.lines[line_].text);
      if (at_.opcode.empty() || listing_.lines[line_].file.empty()) continue;
      if (synchronises()) continue;
      if (listing_.lines[line_].source.find("mbarrier_wait") != std::string::npos)
        continue;  // the wait's loop
      comparisons();
      clamps();
      integers();
      addresses();
      products();
      roundings();
    }
    return chosen();
  }

 private:
  void add(const std::string& kind, const std::string& change, const std::string& instead, int lines = 1) {
    const Listing::Line& line = listing_.lines[line_];
    Mutant mutant;
    mutant.kind = kind;
    mutant.change = change;
    mutant.file = line.file;
    mutant.source = line.source;
    mutant.edits.push_back({line_, instead, lines});
    auto& group = groups_[mutant.name()];
    if (group.empty()) order_.push_back(mutant.name());
    group.push_back(std::move(mutant));
  }
  void add(const std::string& kind, const std::string& what, const std::string& instead,
           const Instruction& i) {
    add(kind, i.opcode + ": " + what, instead);
  }

  bool synchronises() {
    for (const char* opcode : kSynchronising) {
      if (!at_.is(opcode)) continue;
      std::string name = opcode;
      if (const char* scope = at_.has(".release.cluster") ? ".release." : ".acquire.";
          at_.is("mbarrier.") && at_.has((scope + std::string("cluster")).c_str()))
        add("sync", name + " at scope .cta",
            replaced(listing_.lines[line_].text, scope + std::string("cluster"), scope + std::string("cta")));
      if (name == "mbarrier.try_wait" || name == "mbarrier.test_wait") {
        add("sync", name, "setp.eq.u32 " + at_.operands[0] + ", 0, 0;");
      } else if (name == "mbarrier.arrive.expect_tx") {
        // The arrival stays: the phase then ends before the bytes have come.
        Instruction arrival = at_;
        arrival.opcode = replaced(arrival.opcode, ".expect_tx", "");
        arrival.operands.pop_back();
        add("sync", "expect_tx", arrival.as(arrival.opcode, arrival.operands));
        add("sync", name, "");
      } else if (name == "barrier.cluster.arrive" && line_ + 1 < listing_.lines.size() &&
                 parse(listing_.lines[line_ + 1].text).is("barrier.cluster.wait")) {
        add("sync", "barrier.cluster", "", 2);  // both halves, where they stand together
        ++line_;
      } else {
        add("sync", name, "");
      }
      // Sums of wgmma are whole behind such a wait.
      if (name == "wgmma.wait_group" && at_.operands[0] == "0" && !sums_.empty())
        add("rounding", "sums of f16", listing_.lines[line_].text + rounded_to_f16(sums_), at_);
      return true;
    }
    return false;
  }

  // Of a comparison in this line; "": a loop, a stage, a warp's role.
  std::string kind_of_line() const {
    static const std::regex mask(
        "diag|fill|triang|inside|over|whole|unmasked|k_blocks|panel_steps|halo|distance|crosses|depth|kLower|"
        "kUpper|range|first_|last_|"
        "begin < "
        "end|edge");
    static const std::regex bound(
        "\\bT\\b|\\bD\\b|\\bB\\b|tokens|rows|columns|column|extent|high|limit|valid|features|heads|min\\(|"
        "max\\(|"
        "count|kVec|cut|size|batch");
    const Listing::Line& line = listing_.lines[line_];
    const std::string text = line.file + " " + line.source;
    return std::regex_search(text, mask) ? "mask" : std::regex_search(text, bound) ? "bound" : "";
  }

  void comparisons() {
    const bool joins = at_.is("and.pred") || at_.is("or.pred");
    // The kind of a line takes longest, and most instructions are none of these.
    if (!joins && !at_.is("setp.")) return;
    if (kind_of_line().empty()) return;
    if (joins && at_.operands.size() == 3) {
      for (const size_t kept : {1, 2})
        add(kind_of_line(), kept == 1 ? "only its first condition" : "only its second condition",
            at_.as("mov.pred", {at_.operands[0], at_.operands[kept]}), at_);
      return;
    }
    // Not those that combine a predicate, nor of floats.
    static const std::regex plain("setp\\.(lt|le|gt|ge|eq|ne|lo|ls|hi|hs)\\.[sub](16|32|64)");
    std::smatch match;
    if (!std::regex_match(at_.opcode, match, plain) || at_.operands.size() != 3) return;
    static const std::map<std::string, std::string> next = {{"lt", "le"}, {"le", "lt"}, {"gt", "ge"},
                                                            {"ge", "gt"}, {"lo", "ls"}, {"ls", "lo"},
                                                            {"hi", "hs"}, {"hs", "hi"}};
    static const std::map<std::string, std::string> other = {
        {"lt", "ge"}, {"le", "gt"}, {"gt", "le"}, {"ge", "lt"}, {"eq", "ne"},
        {"ne", "eq"}, {"lo", "hs"}, {"hs", "lo"}, {"hi", "ls"}, {"ls", "hi"}};
    const std::string kind = kind_of_line(), compare = match[1];
    const auto compared = [&](const std::string& with) {
      return at_.as(replaced(at_.opcode, "." + compare + ".", "." + with + "."), at_.operands);
    };
    if (next.count(compare) != 0) add(kind, "off by one", compared(next.at(compare)), at_);
    add(kind, "the other way round", compared(other.at(compare)), at_);
    add(kind, "always", at_.as("setp.eq.u32", {at_.operands[0], "0", "0"}), at_);
    add(kind, "never", at_.as("setp.ne.u32", {at_.operands[0], "0", "0"}), at_);
  }

  void clamps() {
    if ((at_.is("min.s") || at_.is("min.u") || at_.is("max.s") || at_.is("max.u")) &&
        at_.operands.size() == 3) {
      for (const size_t kept : {1, 2})
        if (is_register(at_.operands[kept]))
          add(kind_of_line() == "mask" ? "mask" : "bound", kept == 1 ? "its first alone" : "its second alone",
              at_.as(at_.move(), {at_.operands[0], at_.operands[kept]}), at_);
    }
    // Copies that fill with zeros behind the bytes that they read.
    if (at_.is("cp.async.c") && at_.operands.size() == 4 && is_register(at_.operands[3]))
      add("bound", "no zeros", at_.with(3, at_.operands[2]), at_);
  }

  void integers() {
    static const std::regex arithmetic(
        "(add|sub|shl|shr|and|or|xor|mul\\.lo|mul\\.wide|mad\\.lo)\\.[sub](32|64)");
    if (!std::regex_match(at_.opcode, arithmetic)) return;
    const size_t count = at_.operands.size();
    for (size_t i = 1; i < count; ++i)
      if (is_constant(at_.operands[i])) {
        const bool bits = at_.is("and") || at_.is("or.") || at_.is("xor");
        if (bits)
          add("index", "missing", at_.as(at_.move(), {at_.operands[0], at_.operands[i == 1 ? 2 : 1]}), at_);
        else
          add("index", "constant + 1", at_.with(i, plus(at_.operands[i], 1)), at_);
        return;
      }
    if (at_.is("mad.lo"))
      add("index", "without its last term",
          at_.as(replaced(at_.opcode, "mad.lo", "mul.lo"),
                 {at_.operands[0], at_.operands[1], at_.operands[2]}),
          at_);
    else if (count == 3 && !at_.is("mul.wide"))
      add("index", "its first alone", at_.as(at_.move(), {at_.operands[0], at_.operands[1]}), at_);
  }

  // The next element of an access.
  void addresses() {
    static const std::regex access("(ld|st)\\.(global|shared|param)?.*");
    if (at_.is("ld.param") || !std::regex_match(at_.opcode, access)) {
      if (!at_.is("ldmatrix") && !at_.is("stmatrix")) return;
    }
    static const std::regex type("\\.[busf](8|16|32|64)$");
    static const std::regex vector("\\.v(2|4)\\.");
    std::smatch match;
    int bytes = 16;
    if (std::regex_search(at_.opcode, match, type) && at_.opcode.find("matrix") == std::string::npos) {
      bytes = std::stoi(match[1]) / 8;
      if (std::regex_search(at_.opcode, match, vector)) bytes *= std::stoi(match[1]);
    }
    for (size_t i = 0; i < at_.operands.size(); ++i) {
      const std::string& operand = at_.operands[i];
      if (operand.empty() || operand[0] != '[') continue;
      const size_t sign = operand.find('+');
      const std::string moved =
          sign == std::string::npos
              ? operand.substr(0, operand.size() - 1) + "+" + std::to_string(bytes) + "]"
              : operand.substr(0, sign + 1) +
                    plus(operand.substr(sign + 1, operand.size() - sign - 2), bytes) + "]";
      add("index", "next address", at_.with(i, moved), at_);
      return;
    }
  }

  static std::vector<std::string> listed(const std::string& braces) {
    std::vector<std::string> out;
    std::istringstream words(braces.substr(1, braces.size() - 2));
    for (std::string word; std::getline(words, word, ',');) out.push_back(trimmed(word));
    return out;
  }
  static std::string rounded_to_f16(const std::vector<std::string>& sums) {
    std::string text;
    for (const std::string& sum : sums)
      text += " { .reg .b16 halved; cvt.rn.f16.f32 halved, " + sum + "; cvt.f32.f16 " + sum + ", halved; }";
    return text;
  }

  void products() {
    if (at_.is("wgmma.mma_async") && at_.has(".f32.")) sums_ = listed(at_.operands[0]);
    if (!at_.is("mma.sync") && !at_.is("wgmma.mma_async")) return;
    // The sums that an instruction adds to must still be handed on where its results are other registers.
    std::string instead;
    if (at_.is("mma.sync") && at_.operands[0] != at_.operands[3]) {
      const auto to = listed(at_.operands[0]), from = listed(at_.operands[3]);
      for (size_t i = 0; i < to.size(); ++i)
        instead += (to[0][1] == 'f' ? "mov.f32 " : "mov.b32 ") + to[i] + ", " + from[i] + "; ";
    }
    add("product", "missing", instead, at_);
  }

  void roundings() {
    const std::string whole = listing_.lines[line_].text;
    if (at_.is("cvt.rn.")) add("rounding", "cut off", replaced(whole, "cvt.rn.", "cvt.rz."), at_);
    if (at_.is("cvt.rna.tf32"))
      add("rounding", "cut off", at_.as("and.b32", {at_.operands[0], at_.operands[1], "-8192"}), at_);
    static const std::regex sum("(add|sub|mul|fma)(\\.rn)?\\.f32");
    if (std::regex_match(at_.opcode, sum))
      add("rounding", "cut off", at_.as(at_.opcode.substr(0, 3) + ".rz.f32", at_.operands), at_);
    if (at_.is("mma.sync") && at_.has(".f32.") && listed(at_.operands[0])[0].rfind("%f", 0) == 0)
      add("rounding", "sums of f16", whole + rounded_to_f16(listed(at_.operands[0])), at_);
  }

  std::vector<Mutant> chosen() {
    std::vector<Mutant> out;
    for (const std::string& name : order_) {
      auto& group = groups_[name];
      const bool all = group[0].kind == "sync";
      for (size_t i = 0; i < group.size(); ++i) {
        group[i].number = static_cast<int>(i);
        group[i].count = static_cast<int>(group.size());
        if (all) out.push_back(group[i]);
      }
      if (all) continue;
      Mutant one = group[group.size() / 2];
      if (one.kind == "rounding") {
        one = group[0];
        for (size_t i = 1; i < group.size(); ++i) one.edits.push_back(group[i].edits[0]);
      }
      out.push_back(std::move(one));
    }
    return out;
  }

  const Listing& listing_;
  size_t line_ = 0;
  Instruction at_;
  std::vector<std::string> sums_;  // of the wgmma above
  std::map<std::string, std::vector<Mutant>> groups_;
  std::vector<std::string> order_;
};

// Text of a line of an embedded template; "" for another file.
std::string template_line(const std::string& file, int line) {
  for (const TemplateFile& one : template_files()) {
    if (one.name != file) continue;
    llvm::StringRef rest = one.text;
    for (int i = 1; i < line; ++i) rest = rest.split('\n').second;
    return rest.split('\n').first.trim().str();
  }
  return "";
}

// A line that says nothing without its caller.
bool is_helper(const std::string& file, const std::string& source) {
  static const std::regex general("constexpr int (min|max|ceil_div)\\(|^return value < low");
  return file.empty() || file.rfind("ptx/", 0) == 0 || std::regex_search(source, general);
}

}  // namespace

std::string Listing::ptx() const {
  std::string out;
  for (const Line& line : lines) out += line.text + "\n";
  return out;
}

Listing read_listing(const std::string& ptx) {
  std::map<int, std::string> files;  // declared at the end
  static const std::regex declared("\\s*\\.file\\s+(\\d+) \"(.*)\".*");
  static const std::regex location(
      "\\s*\\.loc\\s+(\\d+) (\\d+) \\d+(, function_name \\S+, inlined_at (\\d+) (\\d+).*)?.*");
  std::vector<std::string> raw;
  std::istringstream in(ptx);
  for (std::string line; std::getline(in, line);) raw.push_back(line);
  std::smatch match;
  for (const std::string& line : raw) {
    if (line.find(".file") == std::string::npos || !std::regex_match(line, match, declared)) continue;
    const std::string path = match[2];
    std::string name;  // the longest: reduce.cuh, persistent/reduce.cuh
    for (const TemplateFile& one : template_files())
      if (llvm::StringRef(path).endswith("/" + one.name.str()) && one.name.size() > name.size())
        name = one.name.str();
    if (name.empty()) name = "kernel";  // the preamble
    files[std::stoi(match[1])] = name;
  }
  Listing listing;
  std::string file, source;
  for (const std::string& line : raw) {
    if (line.find(".loc") != std::string::npos && std::regex_match(line, match, location)) {
      std::string found = files[std::stoi(match[1])];
      int number = std::stoi(match[2]);
      if (match[4].matched && is_helper(found, template_line(found, number))) {
        found = files[std::stoi(match[4])];
        number = std::stoi(match[5]);
      }
      if (number == 0) continue;  // no line of its own
      file = found;
      source = template_line(found, number);
      continue;
    }
    if (line.find(".section") != std::string::npos && line.find(".debug") != std::string::npos) break;
    if (line.rfind("\t.file", 0) == 0) continue;
    if (line.rfind(".visible", 0) == 0) file.clear();  // the next kernel begins
    listing.lines.push_back({line, file, source});
  }
  return listing;
}

std::vector<Mutant> find_mutants(const Listing& listing) { return Finder(listing).find(); }

Mutant as_traps(const Listing& listing, Mutant mutant) {
  for (Mutant::Edit& edit : mutant.edits) edit.instead = parse(listing.lines[edit.line].text).as("trap", {});
  return mutant;
}

std::string mutated(const Listing& listing, const Mutant& mutant) {
  std::vector<const std::string*> instead(listing.lines.size(), nullptr);
  static const std::string nothing;
  for (const Mutant::Edit& edit : mutant.edits) {
    instead[edit.line] = &edit.instead;
    for (int i = 1; i < edit.lines; ++i) instead[edit.line + i] = &nothing;
  }
  std::string out;
  for (size_t i = 0; i < listing.lines.size(); ++i)
    out += (instead[i] != nullptr ? *instead[i] : listing.lines[i].text) + "\n";
  return out;
}

}  // namespace trigen::mutations
