// The emitted source of a candidate: preamble, include, entries.
#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

#include "generator/candidate.h"
#include "generator/problem_fields.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

namespace trigen {
namespace {

// The bytes that the config's accesses to an operand need. No more of the alignment enters the source.
int64_t needed_alignment(int vec, DType dtype) {
  const int64_t size = element_size(dtype);
  int64_t bytes = size;
  while (bytes < 16 && bytes < vec * size) bytes *= 2;
  return bytes;
}

// The candidate's problem without what does not enter its source: the batch size, alignment that the config
// does not use, and the sizes of a generic kernel. So equal kernels have equal texts.
Problem source_problem(const Candidate& candidate) {
  Problem p = candidate.problem;
  const Config& c = candidate.config;
  if (candidate.generic) {
    p.H = p.K = p.rows = 1;
    p.T = p.D = 1024;
    p.pad = p.diag = 0;
    p.width = p.w == WeightForm::kBand ? p.T : 0;
  }
  const int64_t a = needed_alignment(c.vec_a, makes_weights(p.op) ? p.dtype : p.wdtype);
  const int64_t b = needed_alignment(c.vec_b, p.dtype);
  const int64_t output = needed_alignment(c.vec_c, makes_weights(p.op) ? p.wdtype : p.dtype);
  p.align = std::max(b, makes_weights(p.op) ? a : output);
  p.walign = makes_weights(p.op) ? output : a;
  // A config may need a least B*D (split_k): the smallest power of two that it is legal for.
  p.rows = 1;  // a geometry, as the batch is
  for (p.B = 1; p.B < (1 << 20); p.B *= 2)
    if (!candidate.family->reject(p, *candidate.target, c)) return p;
  p.B = candidate.problem.B;
  return p;
}

// One designated initialiser, wrapped to the line width of the project.
class Initialiser {
 public:
  Initialiser(llvm::StringRef name) : text_(("    ." + name + " = {").str()) { column_ = text_.size(); }
  void add(llvm::StringRef field, llvm::StringRef value) {
    const std::string item = ("." + field + " = " + value).str();
    if (!first_) text_ += ',';
    if (!first_ && column_ + item.size() + 3 > 110) {
      text_ += "\n        ";
      column_ = 8;
    } else if (!first_) {
      text_ += ' ';
      ++column_;
    }
    text_ += item;
    column_ += item.size() + 1;
    first_ = false;
  }
  void add(llvm::StringRef field, int64_t value) { add(field, std::to_string(value)); }
  void add(llvm::StringRef field, bool value) { add(field, llvm::StringRef(value ? "true" : "false")); }
  std::string finish() { return text_ + "},\n"; }

 private:
  std::string text_;
  size_t column_ = 0;
  bool first_ = true;
};

// A field of the problem that is compiled into kernels: a member of Shape has its name.
struct ShapeMember {
  const ProblemField* field;
  llvm::StringRef name;
  struct Place {
    size_t offset;
    bool flag;  // yes or no
  } place;
};
constexpr size_t kNoMember = ~size_t{0};

// NOLINTBEGIN(bugprone-macro-parentheses): rows of a table, not expressions
#define TRIGEN_MEMBER(member)                                                   \
  {nullptr, #member, []<class S>(S*) -> ShapeMember::Place {                    \
     if constexpr (requires(S shape) { shape.member; })                         \
       return {offsetof(S, member), std::is_same_v<decltype(S::member), bool>}; \
     else                                                                       \
       return {kNoMember, false};                                               \
   }(static_cast<Shape*>(nullptr))},
#define TRIGEN_NAME(key, ...) TRIGEN_MEMBER(key)
#define TRIGEN_SIZE(key, ...) TRIGEN_MEMBER(key)
#define TRIGEN_PART(key, ...) TRIGEN_MEMBER(key)
#define TRIGEN_PART_NAME(key, member, ...) TRIGEN_MEMBER(member)

// In the order of Shape's declaration, which designated initialisers keep.
std::vector<ShapeMember> list_shape_members() {
  std::vector<ShapeMember> members = {
#include "generator/problem_fields.def"
  };
  // NOLINTEND(bugprone-macro-parentheses)
  for (size_t i = 0; i < members.size(); ++i) members[i].field = &problem_fields()[i];
  llvm::erase_if(members, [](const ShapeMember& member) { return member.place.offset == kNoMember; });
  llvm::sort(members,
             [](const ShapeMember& a, const ShapeMember& b) { return a.place.offset < b.place.offset; });
  return members;
}

std::string shape_text(const Candidate& candidate) {
  static const std::vector<ShapeMember> members = list_shape_members();
  Initialiser shape("shape");
  for (const ShapeMember& member : members) {
    const ProblemField& field = *member.field;
    const int64_t value = field.get(candidate.problem);
    if (field.kind == ProblemField::kName) {
      const EnumName& name = field.names->values[static_cast<size_t>(value)];
      shape.add(member.name, ("trigen::" + field.names->type + "::k" + name.cpp).str());
    } else if (field.kind == ProblemField::kFlag) {
      shape.add(member.name, value != 0);
    } else if (member.place.flag) {
      if (value != 0) shape.add(member.name, true);
    } else {
      shape.add(member.name, candidate.generic ? int64_t{0} : value);  // 0: taken from Params at run time
    }
  }
  return shape.finish();
}

std::string config_text(const Config& c) {
  Initialiser config("config");
  for (const ConfigMember& member : config_members()) {
    if (member.path == nullptr)
      config.add(member.name, int64_t{member.get(c)});
    else if (c.*member.path == Access::kPacked)
      config.add(member.name, llvm::StringRef("trigen::Access::kPacked"));
  }
  return config.finish();
}

std::string entry_text(const Candidate& candidate, const Launch& launch) {
  // The op itself is run(), trigen_reduce is reduce().
  llvm::StringRef function = launch.entry;
  const bool run = function == entry_name(candidate.problem.op);
  if (run)
    function = "run";
  else
    function.consume_front("trigen_");
  std::string bounds =
      std::to_string(std::max(launch.block[0] * launch.block[1] * launch.block[2], launch.register_threads));
  if (run && candidate.config.blocks > 0) bounds += ", " + std::to_string(candidate.config.blocks);
  std::string text = "\nextern \"C\" __global__ void __launch_bounds__(", arguments = "p";
  text += bounds + ")\n" + launch.entry + "(const __grid_constant__ trigen::Params p";
  for (size_t i = 0; i < launch.maps.size(); ++i) {
    const std::string map = "map" + std::to_string(i);
    text += ",\n    const __grid_constant__ trigen::TensorMap " + map;
    arguments += ", " + map;
  }
  text += ") {\n  trigen::" + candidate.family->name().str() + "::" + function.str();
  return text + "<kKernel>(" + arguments + ");\n}\n";
}

// A template's, with all that it includes.
llvm::StringRef template_digest(llvm::StringRef name) {
  for (const TemplateFile& file : template_files())
    if (file.name == name) return file.digest;
  return "missing";
}

}  // namespace

std::vector<llvm::StringRef> included_files(llvm::StringRef text) {
  std::vector<llvm::StringRef> names;
  while (!text.empty()) {
    auto [line, rest] = text.split('\n');
    text = rest;
    line = line.ltrim();
    if (!line.consume_front("#")) continue;
    line = line.ltrim();
    if (!line.consume_front("include")) continue;
    line = line.ltrim();
    if (line.consume_front("\"")) names.push_back(line.take_until([](char c) { return c == '"'; }));
  }
  return names;
}

std::string emit_command(const Candidate& candidate) {
  return "trigen emit --arch " + candidate.target->name.str() + " --candidate " + describe(candidate) + " " +
         to_string(source_problem(candidate));
}

Source render(const Candidate& candidate) {
  const LaunchPlan plan =
      candidate.family->launch_plan(candidate.problem, *candidate.target, candidate.config);
  Source source;
  source.text = "// " + emit_command(candidate) + "\n#include \"" + candidate.family->template_file().str() +
                "\"\n\nconstexpr trigen::Kernel kKernel{\n" + shape_text(candidate) +
                config_text(candidate.config) + "};\n";
  for (const Launch& launch : plan.launches) source.text += entry_text(candidate, launch);
  source.entry = entry_name(candidate.problem.op).str();
  llvm::SHA256 hash;
  hash.update(source.text);
  hash.update(template_digest(candidate.family->template_file()));
  source.hash = llvm::toHex(hash.final(), /*LowerCase=*/true);
  return source;
}

}  // namespace trigen
