// The names of the enumerations in the text forms, and the parsing helpers that the text forms share.
// Internal to generator/.
#pragma once

#include <cstdint>
#include <iterator>
#include <string>

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "templates/config.h"

namespace trigen {

// The names of an enumeration's value: in the text forms, and of its C++ enumerator (without the k).
struct EnumName {
  llvm::StringLiteral text, cpp;
};
struct Enumeration {
  llvm::StringLiteral type;         // in C++
  llvm::StringLiteral prefix;       // of the enumerators in trigen.h, which go on with the text in capitals
  llvm::ArrayRef<EnumName> values;  // by value
};

#define TRIGEN_OP(name, cpp, ...) {#name, #cpp},
inline constexpr EnumName kOpNames[] = {
#include "generator/ops.def"
};
inline constexpr EnumName kDTypeNames[] = {{"f16", "F16"}, {"bf16", "BF16"}, {"f32", "F32"}};
inline constexpr EnumName kMathNames[] = {
    {"default", "Default"}, {"simt", "Simt"}, {"tf32", "TF32"}, {"f16x3", "F16x3"}};
inline constexpr EnumName kLayoutNames[] = {{"btd", "BTD"}, {"bdt", "BDT"}};
inline constexpr EnumName kFillNames[] = {{"lower", "Lower"}, {"upper", "Upper"}};
inline constexpr EnumName kWeightFormNames[] = {
    {"dense", "Dense"}, {"toeplitz", "Toeplitz"}, {"band", "Band"}};
inline constexpr EnumName kActivationNames[] = {{"none", "None"}, {"gelu", "GELU"}, {"silu", "SiLU"}};

inline constexpr Enumeration kOps = {"Op", "TRIGEN_", kOpNames};
inline constexpr Enumeration kDTypes = {"DType", "TRIGEN_", kDTypeNames};
inline constexpr Enumeration kMaths = {"Math", "TRIGEN_MATH_", kMathNames};
inline constexpr Enumeration kLayouts = {"Layout", "TRIGEN_", kLayoutNames};
inline constexpr Enumeration kFills = {"Fill", "TRIGEN_", kFillNames};
inline constexpr Enumeration kWeightForms = {"WeightForm", "TRIGEN_W_", kWeightFormNames};
inline constexpr Enumeration kActivations = {"Activation", "TRIGEN_ACT_", kActivationNames};
static_assert(std::size(kDTypeNames) == static_cast<size_t>(DType::kF32) + 1);
static_assert(std::size(kMathNames) == static_cast<size_t>(Math::kF16x3) + 1);
static_assert(std::size(kLayoutNames) == static_cast<size_t>(Layout::kBDT) + 1);
static_assert(std::size(kFillNames) == static_cast<size_t>(Fill::kUpper) + 1);
static_assert(std::size(kWeightFormNames) == static_cast<size_t>(WeightForm::kBand) + 1);
static_assert(std::size(kActivationNames) == static_cast<size_t>(Activation::kSiLU) + 1);

template <class E>
llvm::StringRef name_of(const Enumeration& enumeration, E value) {
  const auto at = static_cast<size_t>(value);
  return at < enumeration.values.size() ? llvm::StringRef(enumeration.values[at].text) : "invalid";
}

inline llvm::SmallVector<llvm::StringRef, 16> names_of(const Enumeration& enumeration) {
  llvm::SmallVector<llvm::StringRef, 16> names;
  for (const EnumName& name : enumeration.values) names.push_back(name.text);
  return names;
}

// A token as it appears in messages: quoted, shortened, unprintable bytes escaped.
std::string quoted(llvm::StringRef token);
// Text of a file or of the environment for a terminal: control characters, escape sequences with them, marks
// that turn the direction of text, and bytes that are no UTF-8 become \x1b and the like. `lines`: line ends and tabs stay.
std::string printable(llvm::StringRef text, bool lines = false);
// "; did you mean 'dtype'?" when one of the names is close to the token, else "".
std::string did_you_mean(llvm::StringRef token, llvm::ArrayRef<llvm::StringRef> names);
// "a, b or c"; "a, b and c".
std::string one_of(llvm::ArrayRef<llvm::StringRef> names);
std::string all_of(llvm::ArrayRef<llvm::StringRef> names);
// The line's next word, which the line loses.
llvm::StringRef take_word(llvm::StringRef& line);
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
