// The table of a problem's fields: every loop over it, for every field. A new row is covered by being there.
#include "generator/problem_fields.h"

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "generator/error.h"
#include "generator/random_problem.h"
#include "runtime/problem_struct.h"

namespace trigen {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Values of a field beside the one that the problem has; not all of them make a valid problem.
std::vector<int64_t> other_values(const ProblemField& field, const Problem& p) {
  const int64_t now = field.get(p);
  std::vector<int64_t> values;
  if (field.kind == ProblemField::kSize) {
    values = {now + 1, now - 1, now * 2, now / 2};
  } else {
    const auto count =
        field.kind == ProblemField::kFlag ? 2 : static_cast<int64_t>(field.names->values.size());
    for (int64_t value = 0; value < count; ++value)
      if (value != now) values.push_back(value);
  }
  return values;
}

bool is_valid(const Problem& p) {
  llvm::Error error = validate(p);
  const bool valid = !error;
  llvm::consumeError(std::move(error));
  return valid;
}

// Texts, structures and plan requests tell any two problems apart that differ in one field, and give each
// back.
TEST(ProblemFields, EachGoesThroughTextAndStructure) {
  RandomProblem random(20261122);
  std::map<std::string, int> seen;
  for (int i = 0; i < 500; ++i) {
    const Problem p = random.next();
    for (const ProblemField& field : problem_fields()) {
      for (const int64_t value : other_values(field, p)) {
        Problem q = p;
        field.set(q, value);
        if (field.get(q) == field.get(p) || !is_valid(q)) continue;
        ++seen[field.key.str()];
        ASSERT_FALSE(p == q) << field.key.str() << " is no part of the comparison";
        const std::string text = to_string(q);
        ASSERT_NE(text, to_string(p)) << field.key.str();
        ASSERT_TRUE(llvm::cantFail(parse_problem(text)) == q) << text;
        const trigen_problem structure = struct_of(q);
        ASSERT_TRUE(llvm::cantFail(problem_of(&structure)) == q) << text;
        ASSERT_NE(words_of(structure), words_of(struct_of(p))) << text;
      }
    }
  }
  for (const ProblemField& field : problem_fields()) EXPECT_GE(seen[field.key.str()], 20) << field.key.str();
}

TEST(ProblemFields, DefaultsAreThoseOfTextAndStructure) {
  for (const char* op : {"forward", "grad_input", "grad_weight", "decode"}) {
    for (const char* rest : {"dtype=bf16,B=2,T=24,D=20", "dtype=f32,B=3,T=9,D=7", "dtype=f16,B=1,T=8,D=8"}) {
      const Problem p = llvm::cantFail(parse_problem(std::string(op) + "," + rest));
      trigen_problem made = struct_of_sizes(static_cast<int>(p.op), static_cast<int>(p.dtype), p.B, p.T, p.D);
      EXPECT_EQ(to_string(llvm::cantFail(problem_of(&made))), to_string(p));
      // changed afterwards: the defaults that depend on it follow, as in the text
      made.K = 6;
      EXPECT_EQ(to_string(llvm::cantFail(problem_of(&made))),
                to_string(llvm::cantFail(parse_problem(std::string(op) + "," + rest + ",K=6"))));
      for (const ProblemField& field : problem_fields()) {
        const int64_t fallback = field.fallback(p);
        if (fallback == ProblemField::kNoValue) continue;
        EXPECT_EQ(field.get(p), fallback) << field.key.str();
      }
    }
  }
}

// An op without taps takes the structure's defaults as they are.
TEST(ProblemFields, DefaultsOfTheStructureAreGramsToo) {
  trigen_problem made = struct_of_sizes(TRIGEN_GRAM, TRIGEN_BF16, 1, 512, 1024);
  made.H = 4, made.residual = made.mirror = 1;
  EXPECT_EQ(to_string(llvm::cantFail(problem_of(&made))),
            "gram,dtype=bf16,B=1,H=4,T=512,D=1024,K=1,pad=0,epilogue=residual+mirror");
  made.K = 2;
  EXPECT_THAT(take_error(problem_of(&made).takeError()).message, HasSubstr("K=2 with gram"));
}

TEST(ProblemFields, OpsThatDoNotTakeOneRefuseItByName) {
  std::set<std::string> refused;
  for (const char* op :
       {"forward", "grad_input", "grad_weight", "decode", "grad_epilogue", "gram", "newton_schulz"}) {
    const std::string sizes = ",dtype=bf16,B=2,T=24,D=24", name = op;
    const Problem p =
        llvm::cantFail(parse_problem(name + sizes + (name == "grad_epilogue" ? ",epilogue=gelu+gate" : "")));
    for (const ProblemField& field : problem_fields()) {
      if (field.takes(p.op)) continue;
      Problem q = p;
      field.set(q, field.get(p) + 1);
      const std::string word = field.kind == ProblemField::kName ? field.text(1) : field.key.str();
      EXPECT_THAT(take_error(validate(q)).message, AllOf(HasSubstr(word), HasSubstr(op)));
      refused.insert(field.key.str());
    }
  }
  EXPECT_THAT(refused, testing::UnorderedElementsAre("K", "pad", "diag", "width", "rows", "bias",
                                                     "activation", "pre", "gate", "residual", "accumulate",
                                                     "zero_outside", "mirror", "grad_input", "pointers"));
}

TEST(ProblemFields, EveryEnumerationIsCheckedByName) {
  const Problem p = llvm::cantFail(parse_problem("forward,dtype=bf16,B=2,T=24,D=24"));
  for (const ProblemField& field : problem_fields()) {
    if (field.kind != ProblemField::kName) continue;
    Problem q = p;
    field.set(q, static_cast<int64_t>(field.names->values.size()));
    EXPECT_THAT(take_error(validate(q)).message, HasSubstr("a value that does not exist")) << field.key.str();
    const trigen_problem structure = struct_of(q);
    EXPECT_THAT(take_error(problem_of(&structure).takeError()).message,
                AllOf(HasSubstr("trigen_problem." + field.key.str() + " is "),
                      HasSubstr(field.names->prefix.str() + field.names->values.front().text.upper())));
  }
}

// The names of trigen.h stand for the values of the generator: a renamed or renumbered one does not build or
// is found.
TEST(ProblemFields, EnumeratorsOfTheHeaderHaveTheSameValues) {
  const std::map<std::string, int> header = {{"TRIGEN_FORWARD", TRIGEN_FORWARD},
                                             {"TRIGEN_GRAD_INPUT", TRIGEN_GRAD_INPUT},
                                             {"TRIGEN_GRAD_WEIGHT", TRIGEN_GRAD_WEIGHT},
                                             {"TRIGEN_DECODE", TRIGEN_DECODE},
                                             {"TRIGEN_GRAD_EPILOGUE", TRIGEN_GRAD_EPILOGUE},
                                             {"TRIGEN_GRAM", TRIGEN_GRAM},
                                             {"TRIGEN_SCAN", TRIGEN_SCAN},
                                             {"TRIGEN_SCAN_GRAD_INPUT", TRIGEN_SCAN_GRAD_INPUT},
                                             {"TRIGEN_SCAN_GRAD_WEIGHT", TRIGEN_SCAN_GRAD_WEIGHT},
                                             {"TRIGEN_NEWTON_SCHULZ", TRIGEN_NEWTON_SCHULZ},
                                             {"TRIGEN_F16", TRIGEN_F16},
                                             {"TRIGEN_BF16", TRIGEN_BF16},
                                             {"TRIGEN_F32", TRIGEN_F32},
                                             {"TRIGEN_MATH_DEFAULT", TRIGEN_MATH_DEFAULT},
                                             {"TRIGEN_MATH_SIMT", TRIGEN_MATH_SIMT},
                                             {"TRIGEN_MATH_TF32", TRIGEN_MATH_TF32},
                                             {"TRIGEN_MATH_F16X3", TRIGEN_MATH_F16X3},
                                             {"TRIGEN_BTD", TRIGEN_BTD},
                                             {"TRIGEN_BDT", TRIGEN_BDT},
                                             {"TRIGEN_LOWER", TRIGEN_LOWER},
                                             {"TRIGEN_UPPER", TRIGEN_UPPER},
                                             {"TRIGEN_W_DENSE", TRIGEN_W_DENSE},
                                             {"TRIGEN_W_TOEPLITZ", TRIGEN_W_TOEPLITZ},
                                             {"TRIGEN_W_BAND", TRIGEN_W_BAND},
                                             {"TRIGEN_ACT_NONE", TRIGEN_ACT_NONE},
                                             {"TRIGEN_ACT_GELU", TRIGEN_ACT_GELU},
                                             {"TRIGEN_ACT_SILU", TRIGEN_ACT_SILU}};
  std::set<std::string> met;
  for (const ProblemField& field : problem_fields()) {
    if (field.kind != ProblemField::kName) continue;
    for (size_t value = 0; value < field.names->values.size(); ++value) {
      const std::string name = field.names->prefix.str() + field.names->values[value].text.upper();
      const auto found = header.find(name);
      ASSERT_NE(found, header.end()) << name;
      EXPECT_EQ(found->second, static_cast<int>(value)) << name;
      met.insert(name);
    }
  }
  EXPECT_EQ(met.size(), header.size());
}

}  // namespace
}  // namespace trigen
