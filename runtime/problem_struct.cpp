#include "runtime/problem_struct.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "generator/error.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen {
namespace {

// A field's place in trigen_problem: an int or an int64_t.
struct Member {
  size_t offset, size;
};

// NOLINTBEGIN(bugprone-macro-parentheses): rows of a table, not expressions
#define TRIGEN_MEMBER(key) {offsetof(trigen_problem, key), sizeof(trigen_problem::key)},
#define TRIGEN_NAME(key, ...) TRIGEN_MEMBER(key)
#define TRIGEN_SIZE(key, ...) TRIGEN_MEMBER(key)
#define TRIGEN_PART(key, ...) TRIGEN_MEMBER(key)
#define TRIGEN_PART_NAME(key, ...) TRIGEN_MEMBER(key)
constexpr Member kMembers[] = {
#include "generator/problem_fields.def"
};
// NOLINTEND(bugprone-macro-parentheses)

// Of a structure with these members in the order of their places.
constexpr size_t size_of_members() {
  const auto aligned = [](size_t size, size_t to) { return (size + to - 1) / to * to; };
  std::array<Member, std::size(kMembers)> members = std::to_array(kMembers);
  std::sort(members.begin(), members.end(),
            [](const Member& a, const Member& b) { return a.offset < b.offset; });
  size_t size = sizeof(trigen_problem::struct_size);
  for (const Member& member : members) size = aligned(size, member.size) + member.size;
  return aligned(size, alignof(trigen_problem));
}
static_assert(size_of_members() == sizeof(trigen_problem),
              "a field of trigen_problem has no row in the table");

int64_t read(const trigen_problem& problem, const Member& member) {
  const char* from = reinterpret_cast<const char*>(&problem) + member.offset;
  if (member.size == sizeof(int)) {
    int value = 0;
    std::memcpy(&value, from, sizeof value);
    return value;
  }
  int64_t value = 0;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void write(trigen_problem& problem, const Member& member, int64_t value) {
  char* to = reinterpret_cast<char*>(&problem) + member.offset;
  const int narrow = static_cast<int>(value);
  if (member.size == sizeof narrow)
    std::memcpy(to, &narrow, sizeof narrow);
  else
    std::memcpy(to, &value, sizeof value);
}

// "TRIGEN_F16, TRIGEN_BF16 and TRIGEN_F32".
std::string enumerators(const ProblemField& field) {
  llvm::SmallVector<std::string, 8> names;
  for (const EnumName& name : field.names->values)
    names.push_back(field.names->prefix.str() + name.text.upper());
  llvm::SmallVector<llvm::StringRef, 8> views(names.begin(), names.end());
  return all_of(views);
}

}  // namespace

llvm::Error check_struct_size(const trigen_problem* problem) {
  if (problem == nullptr) return bad_request("trigen_problem is null");
  if (problem->struct_size == sizeof(trigen_problem)) return llvm::Error::success();
  return bad_request(
      "trigen_problem has struct_size " + llvm::Twine(problem->struct_size) + ", this library's is " +
      llvm::Twine(sizeof(trigen_problem)) +
      "; set it to sizeof(trigen_problem) of this version's header, then call trigen_problem_init or "
      "trigen_problem_parse");
}

llvm::Expected<Problem> problem_of(const trigen_problem* problem) {
  if (llvm::Error error = check_struct_size(problem)) return error;
  Problem result;
  const auto fields = problem_fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    const ProblemField& field = fields[i];
    const int64_t value = read(*problem, kMembers[i]);
    if (field.kind == ProblemField::kName && !field.knows(value))
      return bad_request("trigen_problem." + field.key + " is " + llvm::Twine(value) + "; allowed are " +
                         enumerators(field));
    const bool unset = value == field.unset && value != ProblemField::kNoValue;
    field.set(result, unset ? field.fallback(result) : value);
  }
  if (llvm::Error error = validate(result)) return error;
  return result;
}

trigen_problem struct_of(const Problem& problem) {
  trigen_problem result = {};
  result.struct_size = sizeof result;
  const auto fields = problem_fields();
  for (size_t i = 0; i < fields.size(); ++i) write(result, kMembers[i], fields[i].get(problem));
  return result;
}

trigen_problem struct_of_sizes(int op, int dtype, int64_t B, int64_t T, int64_t D) {
  Problem given;
  given.op = static_cast<Op>(op), given.dtype = static_cast<DType>(dtype);
  given.B = B, given.T = T, given.D = D;
  trigen_problem result = {};
  result.struct_size = sizeof result;
  const auto fields = problem_fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    int64_t value = fields[i].unset;
    if (value == ProblemField::kNoValue) value = fields[i].fallback(given);
    if (value == ProblemField::kNoValue) value = fields[i].get(given);
    write(result, kMembers[i], value);
  }
  return result;
}

ProblemWords words_of(const trigen_problem& problem) {
  ProblemWords words;
  for (size_t i = 0; i < words.size(); ++i) words[i] = read(problem, kMembers[i]);
  return words;
}

std::string describe_problem_fields() {
  constexpr llvm::StringLiteral places[] = {"first", "key", "part"};
  llvm::SmallVector<std::string, kProblemFields> rows;
  const auto fields = problem_fields();
  for (size_t i = 0; i < fields.size(); ++i) {
    llvm::SmallVector<std::string, 8> values;
    if (fields[i].kind == ProblemField::kName)
      for (llvm::StringRef name : names_of(*fields[i].names)) values.push_back(("\"" + name + "\"").str());
    rows.push_back((R"({"name":")" + fields[i].key + R"(","bytes":)" + llvm::Twine(kMembers[i].size) +
                    R"(,"offset":)" + llvm::Twine(kMembers[i].offset) + R"(,"place":")" +
                    places[fields[i].place] + R"(","values":[)" + llvm::join(values, ",") + "]}")
                       .str());
  }
  return R"({"struct_size":)" + std::to_string(sizeof(trigen_problem)) + R"(,"fields":[)" +
         llvm::join(rows, ",") + "]}";
}

}  // namespace trigen
