#include "generator/problem.h"

#include <algorithm>

#include "generator/error.h"
#include "generator/names.h"
#include "generator/problem_fields.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen {
namespace {

constexpr llvm::StringLiteral kExample = "forward,dtype=bf16,B=32,T=512,D=1024";

constexpr llvm::StringLiteral kEpilogue = "epilogue";

// The rows of the table that are key=value, then the sum of the others.
llvm::SmallVector<llvm::StringRef, 24> keys() {
  llvm::SmallVector<llvm::StringRef, 24> keys;
  for (const ProblemField& field : problem_fields())
    if (field.place == ProblemField::kKey) keys.push_back(field.key);
  keys.push_back(kEpilogue);
  return keys;
}

llvm::Error parse_epilogue(llvm::StringRef text, Problem& problem) {
  llvm::SmallVector<llvm::StringRef, 8> parts;
  text.split(parts, '+');
  for (llvm::StringRef part : parts) {
    bool found = false;
    for (const ProblemField& field : problem_fields()) {
      if (field.place != ProblemField::kPart) continue;
      int64_t value = field.kind == ProblemField::kFlag && field.key == part ? 1 : 0;
      if (field.kind == ProblemField::kName)
        for (size_t i = 1; i < field.names->values.size(); ++i)
          if (field.names->values[i].text == part) value = static_cast<int64_t>(i);
      if (value == 0) continue;
      found = true;
      const int64_t before = field.get(problem);
      if (before != 0 && field.kind == ProblemField::kName)
        return bad_request("epilogue has two activations, " + field.text(before) + " and " + part +
                           "; name one");
      if (before != 0) return bad_request("epilogue has " + quoted(part) + " twice; name it once");
      field.set(problem, value);
    }
    const auto words = epilogue_words();
    if (!found)
      return bad_request("epilogue part " + quoted(part) + " is unknown; allowed are " + one_of(words) +
                         ", joined by '+'" + did_you_mean(part, words));
  }
  return llvm::Error::success();
}

llvm::Error parse_value(const ProblemField& field, llvm::StringRef text, Problem& problem) {
  if (field.kind != ProblemField::kName) {
    auto value = parse_integer(field.key, text);
    if (!value) return value.takeError();
    field.set(problem, *value);
    return llvm::Error::success();
  }
  const auto names = names_of(*field.names);
  const auto* found = llvm::find(names, text);
  if (found == names.end())
    return bad_request(field.key + "=" + quoted(text) + " is unknown; allowed are " + one_of(names) +
                       did_you_mean(text, names));
  field.set(problem, found - names.begin());
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
  // btd: row stride H*D, head stride D. bdt: row stride T. W: row stride T*K, of a band its width; head stride T of a
  // Toeplitz matrix.
  const int64_t size = element_size(problem.dtype), wsize = element_size(problem.wdtype);
  const int64_t row = problem.layout == Layout::kBTD ? problem.D : problem.T;
  problem.align = dividing_power(row, 16 / size) * size;
  const int64_t tokens = problem.w == WeightForm::kBand ? problem.width : problem.T;
  problem.walign = std::min<int64_t>(16, dividing_power(tokens, 16) * dividing_power(problem.K, 16) * wsize);
}

llvm::Expected<Problem> parse_problem(llvm::StringRef text) {
  auto fields = split_fields("problem", text);
  if (!fields) return fields.takeError();
  if (fields->empty()) return bad_request(llvm::Twine("empty problem; write one as ") + kExample);

  Problem problem;
  const llvm::ArrayRef<ProblemField> rows = problem_fields();
  const Field& first = fields->front();
  if (first.has_value)
    return bad_request("the problem starts with " + quoted(first.key) +
                       "; the first field is the op: " + one_of(names_of(kOps)));
  if (llvm::Error error = parse_value(rows.front(), first.key, problem)) return error;

  const auto allowed = keys();
  llvm::SmallVector<llvm::StringRef, 24> given;
  for (const Field& field : llvm::ArrayRef<Field>(*fields).drop_front()) {
    const auto at = [&] { return " at column " + std::to_string(field.column); };
    if (!llvm::is_contained(allowed, field.key))
      return bad_request("unknown key " + quoted(field.key) + at() + "; allowed are " + one_of(allowed) +
                         did_you_mean(field.key, allowed));
    if (!field.has_value || field.value.empty())
      return bad_request("key '" + field.key + "'" + at() + " has no value; write " + field.key + "=value");
    if (llvm::is_contained(given, field.key))
      return bad_request("key '" + field.key + "'" + at() + " is given twice; give it once");
    given.push_back(field.key);
    const auto* row = llvm::find_if(rows, [&](const ProblemField& f) { return f.key == field.key; });
    if (llvm::Error error = field.key == kEpilogue ? parse_epilogue(field.value, problem)
                                                   : parse_value(*row, field.value, problem))
      return with_suffix(std::move(error), " (column " + llvm::Twine(field.column) + ")");
  }

  llvm::SmallVector<llvm::StringRef, 8> missing, needed;
  for (const ProblemField& row : rows) {
    if (row.place != ProblemField::kKey) continue;
    const bool is_given = llvm::is_contained(given, row.key);
    const int64_t fallback = row.fallback(problem);
    if (fallback == ProblemField::kNoValue) {
      needed.push_back(row.key);
      if (!is_given) missing.push_back(row.key);
    } else if (!is_given) {
      row.set(problem, fallback);
    }
  }
  if (!missing.empty())
    return bad_request("the problem has no " + llvm::join(missing, ", ") + "; " + all_of(needed) +
                       " have no default: " + kExample +
                       (problem.w == WeightForm::kBand ? ",w=band,width=64" : ""));
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

namespace {

std::string text_of(const Problem& problem, bool defaults) {
  std::string text;
  for (const ProblemField& field : problem_fields()) {
    const int64_t value = field.get(problem);
    if (field.place == ProblemField::kFirst) text = field.text(value);
    if (field.place == ProblemField::kKey && ((defaults && field.always) || value != field.fallback(problem)))
      text += ("," + field.key + "=" + field.text(value)).str();
  }
  const std::string epilogue = to_string(problem.epilogue);
  if (!epilogue.empty()) text += ("," + kEpilogue + "=" + epilogue).str();
  return text;
}

}  // namespace

std::string to_string(const Problem& problem) { return text_of(problem, /*defaults=*/true); }
std::string short_text(const Problem& problem) { return text_of(problem, /*defaults=*/false); }

std::string to_string(const Epilogue& epilogue) {
  Problem problem;
  problem.epilogue = epilogue;
  llvm::SmallVector<std::string, 8> parts;
  for (const ProblemField& field : problem_fields()) {
    const int64_t value = field.get(problem);
    if (field.place == ProblemField::kPart && value != 0)
      parts.push_back(field.kind == ProblemField::kFlag ? field.key.str() : field.text(value));
  }
  return llvm::join(parts, "+");
}

int64_t element_size(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }
llvm::StringRef to_string(Op op) { return name_of(kOps, op); }
llvm::StringRef to_string(DType dtype) { return name_of(kDTypes, dtype); }
llvm::StringRef to_string(Math math) { return name_of(kMaths, math); }
llvm::StringRef to_string(Layout layout) { return name_of(kLayouts, layout); }
llvm::StringRef to_string(Fill fill) { return name_of(kFills, fill); }
llvm::StringRef to_string(WeightForm form) { return name_of(kWeightForms, form); }
llvm::StringRef to_string(Activation act) { return name_of(kActivations, act); }

}  // namespace trigen
