// The names of the enumerations in the text forms, and the parsing helpers that the text forms share.
// Internal to generator/.
#pragma once

#include <cstdint>
#include <string>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "templates/config.h"

namespace trigen {

template <class E>
struct Named {
  llvm::StringLiteral name;
  E value;
};

inline constexpr Named<Op> kOps[] = {{"forward", Op::kForward},
                                     {"grad_input", Op::kGradInput},
                                     {"grad_weight", Op::kGradWeight},
                                     {"decode", Op::kDecode}};
inline constexpr Named<DType> kDTypes[] = {
    {"f16", DType::kF16}, {"bf16", DType::kBF16}, {"f32", DType::kF32}};
inline constexpr Named<Math> kMaths[] = {
    {"default", Math::kDefault}, {"simt", Math::kSimt}, {"tf32", Math::kTF32}, {"f16x3", Math::kF16x3}};
inline constexpr Named<Layout> kLayouts[] = {{"btd", Layout::kBTD}, {"bdt", Layout::kBDT}};
inline constexpr Named<Fill> kFills[] = {{"lower", Fill::kLower}, {"upper", Fill::kUpper}};
inline constexpr Named<Activation> kActivations[] = {
    {"none", Activation::kNone}, {"gelu", Activation::kGELU}, {"silu", Activation::kSiLU}};

template <class E, size_t N>
llvm::StringRef name_of(const Named<E> (&table)[N], E value) {
  for (const Named<E>& entry : table)
    if (entry.value == value) return entry.name;
  return "invalid";
}

template <class E, size_t N>
llvm::SmallVector<llvm::StringRef, 16> names_of(const Named<E> (&table)[N]) {
  llvm::SmallVector<llvm::StringRef, 16> names;
  for (const Named<E>& entry : table) names.push_back(entry.name);
  return names;
}

// A token as it appears in messages: quoted, shortened, unprintable bytes escaped.
std::string quoted(llvm::StringRef token);
// Text of a file or of the environment for a terminal: control characters, escape sequences with them, and
// bytes that are no UTF-8 become \x1b and the like. `lines`: line ends and tabs stay.
std::string printable(llvm::StringRef text, bool lines = false);
// "; did you mean 'dtype'?" when one of the names is close to the token, else "".
std::string did_you_mean(llvm::StringRef token, llvm::ArrayRef<llvm::StringRef> names);
// "a, b or c".
std::string one_of(llvm::ArrayRef<llvm::StringRef> names);
// Decimal with an optional sign; the whole token. Errors name the key.
llvm::Expected<int64_t> parse_integer(llvm::StringRef key, llvm::StringRef token);

// One "key=value" or bare token of a text form, with the column (from 1) where it starts.
struct Field {
  llvm::StringRef key;  // all of it when there is no '='
  llvm::StringRef value;
  bool has_value = false;
  size_t column = 0;
};
// Splits at commas and white space. Errors: an empty field, text longer than 4096 bytes.
llvm::Expected<llvm::SmallVector<Field, 24>> split_fields(llvm::StringRef what, llvm::StringRef text);

}  // namespace trigen
