#include "generator/problem_fields.h"

#include <string_view>

namespace trigen {
namespace {

constexpr int64_t kNoValue = ProblemField::kNoValue;
constexpr bool kAlways = true, kChanged = false;
constexpr unsigned kAllOps = ~0u;

// "forward, grad_input, ...".
#define TRIGEN_OP(name, ...) ", " #name
constexpr const char* kOpList = &(
#include "generator/ops.def"
    )[2];

// Alignment of contiguous tensors; the problem's own while its sizes are none.
Problem contiguous(const Problem& p) {
  Problem result = p;
  if (p.T > 0 && p.D > 0 && p.K > 0) set_contiguous_alignment(result);
  return result;
}

constexpr auto kNone = [](const Problem&) { return kNoValue; };
constexpr auto kZero = [](const Problem&) -> int64_t { return 0; };

constexpr ProblemField::Place place_of(std::string_view key) {
  return key == "op" ? ProblemField::kFirst : ProblemField::kKey;
}

// clang-format off
// NOLINTBEGIN(bugprone-macro-parentheses): rows of a table, not expressions
#define TRIGEN_ROW(key_, kind_, place_) \
  .key = llvm::StringLiteral(#key_), .kind = ProblemField::kind_, .place = place_
#define TRIGEN_MEMBER(member)                                             \
  .get = [](const Problem& p) { return static_cast<int64_t>(p.member); }, \
  .set = [](Problem& p, int64_t value) { p.member = static_cast<decltype(p.member)>(value); }
#define TRIGEN_VALUE(expression) [](const Problem& p) -> int64_t { return expression; }

#define TRIGEN_NAME(key_, names_, print_, fallback_, unset_, flags_, help_)                    \
  {TRIGEN_ROW(key_, kName, place_of(#key_)), .names = &names_, .always = print_,      \
   .unset = unset_, .flags = flags_, .help = help_, TRIGEN_MEMBER(key_),                                \
   .fallback = TRIGEN_VALUE(fallback_), .low = kNone, .high = kNone},
#define TRIGEN_SIZE(key_, ops_, elsewhere_, print_, fallback_, unset_, low_, high_, hint_, flags_, help_) \
  {TRIGEN_ROW(key_, kSize, ProblemField::kKey), .ops = ops_, .always = print_, .elsewhere = elsewhere_, \
   .unset = unset_, .hint = hint_, .flags = flags_, .help = help_, TRIGEN_MEMBER(key_),                 \
   .fallback = TRIGEN_VALUE(fallback_), .low = TRIGEN_VALUE(low_), .high = TRIGEN_VALUE(high_)},
#define TRIGEN_PART(key_)                                                                               \
  {TRIGEN_ROW(key_, kFlag, ProblemField::kPart), .ops = ops_with(&Epilogue::key_), TRIGEN_MEMBER(epilogue.key_), \
   .fallback = kZero, .low = kNone, .high = kNone},
#define TRIGEN_PART_NAME(key_, member_, names_)                                                \
  {TRIGEN_ROW(key_, kName, ProblemField::kPart), .names = &names_, .ops = ops_with(&Epilogue::member_), \
   TRIGEN_MEMBER(epilogue.member_), .fallback = kZero, .low = kNone, .high = kNone},
// clang-format on

constexpr ProblemField kFields[] = {
#include "generator/problem_fields.def"
};
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace

bool ProblemField::takes(Op op) const { return (ops & bit(op)) != 0; }

bool ProblemField::knows(int64_t value) const {
  return value >= 0 && value < static_cast<int64_t>(names->values.size());
}

std::string ProblemField::text(int64_t value) const {
  if (kind != kName) return std::to_string(value);
  return name_of(*names, value).str();
}

llvm::ArrayRef<ProblemField> problem_fields() { return kFields; }

llvm::SmallVector<llvm::StringRef, 16> epilogue_words(unsigned ops) {
  llvm::SmallVector<llvm::StringRef, 16> words;
  for (const ProblemField& field : kFields) {
    if (field.place != ProblemField::kPart || (field.ops & ops) == 0) continue;
    if (field.kind == ProblemField::kFlag) words.push_back(field.key);
    if (field.kind == ProblemField::kName)
      for (const EnumName& name : field.names->values.drop_front()) words.push_back(name.text);
  }
  return words;
}

}  // namespace trigen
