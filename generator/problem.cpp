#include "generator/problem.h"

#include <algorithm>
#include <iterator>

#include "generator/error.h"
#include "generator/names.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

namespace trigen {
namespace {

constexpr llvm::StringRef kKeys[] = {"dtype", "B",     "H",      "T",       "D",    "K",
                                     "pad",   "rows",  "layout", "fill",    "diag", "wdtype",
                                     "math",  "align", "walign", "epilogue"};
constexpr llvm::StringLiteral kExample = "forward,dtype=bf16,B=32,T=512,D=1024";

llvm::Error bad(const llvm::Twine& message) { return make_error(ErrorKind::kBadRequest, message); }

template <class E, size_t N>
llvm::Error parse_name(const Named<E> (&table)[N], llvm::StringRef key, llvm::StringRef text, E& value) {
  for (const Named<E>& entry : table) {
    if (entry.name == text) {
      value = entry.value;
      return llvm::Error::success();
    }
  }
  const auto names = names_of(table);
  return bad(key + "=" + quoted(text) + " is unknown; allowed are " + one_of(names) +
             did_you_mean(text, names));
}

llvm::Error parse_epilogue(llvm::StringRef text, Epilogue& epilogue) {
  const llvm::StringRef names[] = {"bias", "gelu",     "silu",       "pre",
                                   "gate", "residual", "accumulate", "zero_outside"};
  llvm::SmallVector<llvm::StringRef, 8> parts;
  text.split(parts, '+');
  for (llvm::StringRef part : parts) {
    if (part == "gelu" || part == "silu") {
      if (epilogue.act != Activation::kNone)
        return bad("epilogue has two activations, " + to_string(epilogue.act) + " and " + part +
                   "; name one");
      epilogue.act = part == "gelu" ? Activation::kGELU : Activation::kSiLU;
      continue;
    }
    bool* flag = llvm::StringSwitch<bool*>(part)
                     .Case("bias", &epilogue.bias)
                     .Case("pre", &epilogue.pre)
                     .Case("gate", &epilogue.gate)
                     .Case("residual", &epilogue.residual)
                     .Case("accumulate", &epilogue.accumulate)
                     .Case("zero_outside", &epilogue.zero_outside)
                     .Default(nullptr);
    if (!flag)
      return bad("epilogue part " + quoted(part) + " is unknown; allowed are " + one_of(names) +
                 ", joined by '+'" + did_you_mean(part, names));
    if (*flag) return bad("epilogue has " + quoted(part) + " twice; name it once");
    *flag = true;
  }
  return llvm::Error::success();
}

llvm::Error parse_value(const Field& field, Problem& problem) {
  if (field.key == "dtype") return parse_name(kDTypes, field.key, field.value, problem.dtype);
  if (field.key == "wdtype") return parse_name(kDTypes, field.key, field.value, problem.wdtype);
  if (field.key == "layout") return parse_name(kLayouts, field.key, field.value, problem.layout);
  if (field.key == "fill") return parse_name(kFills, field.key, field.value, problem.fill);
  if (field.key == "math") return parse_name(kMaths, field.key, field.value, problem.math);
  if (field.key == "epilogue") return parse_epilogue(field.value, problem.epilogue);
  int64_t* size = llvm::StringSwitch<int64_t*>(field.key)
                      .Case("B", &problem.B)
                      .Case("H", &problem.H)
                      .Case("T", &problem.T)
                      .Case("D", &problem.D)
                      .Case("K", &problem.K)
                      .Case("pad", &problem.pad)
                      .Case("rows", &problem.rows)
                      .Case("diag", &problem.diag)
                      .Case("align", &problem.align)
                      .Case("walign", &problem.walign)
                      .Default(nullptr);
  if (!size)
    return make_error(ErrorKind::kInternal, "key " + field.key + " is listed and not parsed; report this");
  auto value = parse_integer(field.key, field.value);
  if (!value) return value.takeError();
  *size = *value;
  return llvm::Error::success();
}

llvm::Error with_suffix(llvm::Error error, const llvm::Twine& suffix) {
  const ErrorText text = take_error(std::move(error));
  return make_error(text.kind, text.message + suffix);
}

// The power of two, at most `limit`, that divides `value`.
int64_t dividing_power(int64_t value, int64_t limit) {
  int64_t power = 1;
  while (power < limit && value % (power * 2) == 0) power *= 2;
  return power;
}

}  // namespace

void set_contiguous_alignment(Problem& problem) {
  // btd: row stride H*D, head stride D. bdt: row stride T. W: row stride T*K.
  const int64_t size = element_size(problem.dtype), wsize = element_size(problem.wdtype);
  const int64_t row = problem.layout == Layout::kBTD ? problem.D : problem.T;
  problem.align = dividing_power(row, 16 / size) * size;
  problem.walign =
      std::min<int64_t>(16, dividing_power(problem.T, 16) * dividing_power(problem.K, 16) * wsize);
}

llvm::Expected<Problem> parse_problem(llvm::StringRef text) {
  auto fields = split_fields("problem", text);
  if (!fields) return fields.takeError();
  if (fields->empty()) return bad(llvm::Twine("empty problem; write one as ") + kExample);

  Problem problem;
  const Field& first = fields->front();
  const auto ops = names_of(kOps);
  if (first.has_value)
    return bad("the problem starts with " + quoted(first.key) +
               "; the first field is the op: " + one_of(ops));
  if (llvm::Error error = parse_name(kOps, "op", first.key, problem.op)) return error;

  bool given[std::size(kKeys)] = {};
  const auto is_given = [&](llvm::StringRef key) {
    return given[llvm::find(kKeys, key) - std::begin(kKeys)];
  };
  for (const Field& field : llvm::ArrayRef<Field>(*fields).drop_front()) {
    const auto at = [&] { return " at column " + std::to_string(field.column); };
    const auto known = llvm::find(kKeys, field.key);
    if (known == std::end(kKeys))
      return bad("unknown key " + quoted(field.key) + at() + "; allowed are " + one_of(kKeys) +
                 did_you_mean(field.key, kKeys));
    if (!field.has_value || field.value.empty())
      return bad("key '" + field.key + "'" + at() + " has no value; write " + field.key + "=value");
    bool& seen = given[known - std::begin(kKeys)];
    if (seen) return bad("key '" + field.key + "'" + at() + " is given twice; give it once");
    seen = true;

    if (llvm::Error error = parse_value(field, problem))
      return with_suffix(std::move(error), " (column " + llvm::Twine(field.column) + ")");
  }

  std::string missing;
  for (llvm::StringRef key :
       {llvm::StringRef("dtype"), llvm::StringRef("B"), llvm::StringRef("T"), llvm::StringRef("D")})
    if (!is_given(key)) missing += (missing.empty() ? llvm::Twine(key) : ", " + key).str();
  if (!missing.empty())
    return bad("the problem has no " + missing + "; dtype, B, T and D have no default: " + kExample);
  if (!is_given("wdtype")) problem.wdtype = problem.dtype;
  if (!is_given("math")) problem.math = problem.dtype == DType::kF32 ? Math::kSimt : Math::kDefault;
  if (!is_given("pad") && problem.K > 0) problem.pad = (problem.K - 1) / 2;
  Problem contiguous = problem;
  if (problem.T > 0 && problem.D > 0 && problem.K > 0) set_contiguous_alignment(contiguous);
  if (!is_given("align")) problem.align = contiguous.align;
  if (!is_given("walign")) problem.walign = contiguous.walign;
  if (llvm::Error error = validate(problem)) return error;
  return problem;
}

llvm::Expected<std::vector<Problem>> parse_problem_list(llvm::StringRef text) {
  std::vector<Problem> problems;
  for (size_t line_number = 1; !text.empty(); ++line_number) {
    auto [line, rest] = text.split('\n');
    text = rest;
    line = line.take_until([](char c) { return c == '#'; }).trim();
    if (line.empty()) continue;
    auto problem = parse_problem(line);
    if (!problem) return with_prefix(problem.takeError(), "line " + llvm::Twine(line_number));
    problems.push_back(*problem);
  }
  return problems;
}

std::string to_string(const Problem& problem) {
  std::string text = to_string(problem.op).str();
  const auto add = [&](llvm::StringRef key, const llvm::Twine& value) {
    text += ("," + key + "=" + value).str();
  };
  add("dtype", to_string(problem.dtype));
  add("B", llvm::Twine(problem.B));
  add("H", llvm::Twine(problem.H));
  add("T", llvm::Twine(problem.T));
  add("D", llvm::Twine(problem.D));
  add("K", llvm::Twine(problem.K));
  add("pad", llvm::Twine(problem.pad));
  if (problem.rows != 1) add("rows", llvm::Twine(problem.rows));
  if (problem.layout != Layout::kBTD) add("layout", to_string(problem.layout));
  if (problem.fill != Fill::kLower) add("fill", to_string(problem.fill));
  if (problem.diag != 0) add("diag", llvm::Twine(problem.diag));
  if (problem.wdtype != problem.dtype) add("wdtype", to_string(problem.wdtype));
  const Math usual = problem.dtype == DType::kF32 ? Math::kSimt : Math::kDefault;
  if (problem.math != usual) add("math", to_string(problem.math));
  Problem contiguous = problem;
  if (problem.T > 0 && problem.D > 0 && problem.K > 0) set_contiguous_alignment(contiguous);
  if (problem.align != contiguous.align) add("align", llvm::Twine(problem.align));
  if (problem.walign != contiguous.walign) add("walign", llvm::Twine(problem.walign));
  const std::string epilogue = to_string(problem.epilogue);
  if (!epilogue.empty()) add("epilogue", epilogue);
  return text;
}

std::string to_string(const Epilogue& epilogue) {
  std::string text;
  const auto add = [&](bool on, llvm::StringRef name) {
    if (!on) return;
    if (!text.empty()) text += '+';
    text += name;
  };
  add(epilogue.bias, "bias");
  add(epilogue.act != Activation::kNone, to_string(epilogue.act));
  add(epilogue.pre, "pre");
  add(epilogue.gate, "gate");
  add(epilogue.residual, "residual");
  add(epilogue.accumulate, "accumulate");
  add(epilogue.zero_outside, "zero_outside");
  return text;
}

int64_t element_size(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
llvm::StringRef to_string(Op op) { return name_of(kOps, op); }
llvm::StringRef to_string(DType dtype) { return name_of(kDTypes, dtype); }
llvm::StringRef to_string(Math math) { return name_of(kMaths, math); }
llvm::StringRef to_string(Layout layout) { return name_of(kLayouts, layout); }
llvm::StringRef to_string(Fill fill) { return name_of(kFills, fill); }
llvm::StringRef to_string(Activation act) { return name_of(kActivations, act); }

}  // namespace trigen
