#include "generator/names.h"

#include <algorithm>

#include "generator/error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ConvertUTF.h"

namespace trigen {

std::string quoted(llvm::StringRef token) {
  constexpr size_t kShown = 40;
  std::string out = "'";
  for (unsigned char c : token.take_front(kShown)) {
    if (llvm::isPrint(static_cast<char>(c)))
      out += static_cast<char>(c);
    else
      out += "\\x" + llvm::toHex(llvm::StringRef(reinterpret_cast<const char*>(&c), 1), /*LowerCase=*/true);
  }
  if (token.size() > kShown) out += "...";
  return out + "'";
}

namespace {

// A character of several bytes that says how others are shown: the second set of control characters, line and
// paragraph separators, and the marks that turn the direction of text, so that what is read is not what is written.
bool commands(llvm::StringRef utf8) {
  const auto in = [&](llvm::StringRef first, llvm::StringRef last) { return utf8 >= first && utf8 <= last; };
  return in("\xC2\x80", "\xC2\x9F") || utf8 == "\xD8\x9C" || in("\xE2\x80\x8E", "\xE2\x80\x8F") ||
         in("\xE2\x80\xA8", "\xE2\x80\xAE") || in("\xE2\x81\xA6", "\xE2\x81\xA9");
}

}  // namespace

std::string printable(llvm::StringRef text, bool lines) {
  std::string out;
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const size_t length = std::min<size_t>(llvm::getNumBytesForUTF8(byte), text.size() - at);
    const auto* const start = reinterpret_cast<const llvm::UTF8*>(text.data() + at);
    const bool whole = length > 1 && llvm::isLegalUTF8Sequence(start, start + length);
    const llvm::StringRef part = text.substr(at, whole ? length : 1);
    const bool plain =
        whole ? !commands(part) : llvm::isPrint(text[at]) || (lines && (byte == '\n' || byte == '\t'));
    for (const char& c : part)
      out += plain ? std::string(1, c) : "\\x" + llvm::toHex(llvm::StringRef(&c, 1), /*LowerCase=*/true);
    at += part.size();
  }
  return out;
}

namespace {

// Names that PyTorch, NumPy and CUDA have for values of the text forms, and other programs for trigen's commands and options.
// The meaning begins with the name that must be known; none: another thing altogether, nothing that is nearly spelt so.
constexpr struct {
  llvm::StringLiteral word, name;
} kSynonyms[] = {{"float16", "f16"},
                 {"fp16", "f16"},
                 {"half", "f16"},
                 {"bfloat16", "bf16"},
                 {"float32", "f32"},
                 {"fp32", "f32"},
                 {"float", "f32"},
                 {"single", "f32"},
                 {"dx", "grad_input"},
                 {"backward", "grad_input"},
                 {"dw", "grad_weight"},
                 {"swish", "silu"},
                 {"relu", ""},
                 {"-V", "--version"},
                 {"--verbose", "--version"},
                 {"--sass", "--cubin -o FILE; nvdisasm FILE"},
                 {"list", "ls"},
                 {"dir", "path"},
                 {"prune", "gc"},
                 {"clean", "rm --all"},
                 {"clear", "rm --all"}};

// "hlep" and "help": two neighbours have changed places, which an edit distance counts as two.
bool neighbours_swapped(llvm::StringRef a, llvm::StringRef b) {
  if (a.size() != b.size()) return false;
  size_t at = 0;
  while (at < a.size() && a[at] == b[at]) ++at;
  return at + 1 < a.size() && a[at] == b[at + 1] && a[at + 1] == b[at] &&
         a.substr(at + 2) == b.substr(at + 2);
}

}  // namespace

std::string did_you_mean(llvm::StringRef token, llvm::ArrayRef<llvm::StringRef> names) {
  for (const auto& [word, name] : kSynonyms)
    if (token.equals_insensitive(word) && (name.empty() || llvm::is_contained(names, name.split(' ').first)))
      return name.empty() ? "" : ("; did you mean '" + name + "'?").str();
  token = token.take_front(64);  // no name is longer
  llvm::StringRef best;
  unsigned best_distance = ~0u;
  const unsigned allowed =
      token.size() < 3 ? 0 : std::max<unsigned>(1, static_cast<unsigned>(token.size()) / 3);
  for (llvm::StringRef name : names) {
    if (token.equals_insensitive(name)) return ("; did you mean '" + name + "'?").str();
    const unsigned distance =
        neighbours_swapped(token, name) ? 1 : token.edit_distance(name, true, allowed + 1);
    if (distance <= allowed && distance < best_distance) {
      best = name;
      best_distance = distance;
    }
  }
  return best.empty() ? "" : ("; did you mean '" + best + "'?").str();
}

namespace {

std::string joined(llvm::ArrayRef<llvm::StringRef> names, llvm::StringRef last) {
  std::string out;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) out += i + 1 == names.size() ? last.str() : ", ";
    out += names[i].str();
  }
  return out;
}

}  // namespace

std::string one_of(llvm::ArrayRef<llvm::StringRef> names) { return joined(names, " or "); }
std::string all_of(llvm::ArrayRef<llvm::StringRef> names) { return joined(names, " and "); }

llvm::StringRef take_word(llvm::StringRef& line) {
  line = line.ltrim();
  const llvm::StringRef found = line.take_until([](char c) { return c == ' ' || c == '\t'; });
  line = line.drop_front(found.size()).ltrim();
  return found;
}

llvm::Expected<int64_t> parse_integer(llvm::StringRef key, llvm::StringRef token) {
  llvm::StringRef digits = token;
  digits.consume_front("-");
  const bool is_number = !digits.empty() && llvm::all_of(digits, [](char c) { return llvm::isDigit(c); });
  if (!is_number)
    return make_error(
        ErrorKind::kBadRequest,
        key + "=" + quoted(token) + " is not a number; give decimal digits, as in " + key + "=1024");
  int64_t value = 0;
  if (token.getAsInteger(10, value))
    return make_error(ErrorKind::kBadRequest,
                      key + "=" + quoted(token) + " does not fit 64 bits; give a smaller number");
  return value;
}

llvm::Expected<llvm::SmallVector<Field, 24>> split_fields(llvm::StringRef what, llvm::StringRef text) {
  constexpr size_t kLongest = 4096;
  if (text.size() > kLongest)
    return make_error(ErrorKind::kBadRequest, what + " text of " + llvm::Twine(text.size()) +
                                                  " bytes; allowed are 4096, check that it is one " + what);
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
  llvm::SmallVector<Field, 24> fields;
  bool after_comma = false;  // a comma wants a field after it
  size_t at = 0;
  const auto empty_field = [&](size_t column) {
    return make_error(ErrorKind::kBadRequest, "empty field at column " + llvm::Twine(column) + " of the " +
                                                  what +
                                                  "; put one comma between two fields and none at the ends");
  };
  while (at < text.size()) {
    if (is_space(text[at])) {
      ++at;
      continue;
    }
    if (text[at] == ',') {
      if (after_comma || fields.empty()) return empty_field(at + 1);
      after_comma = true;
      ++at;
      continue;
    }
    size_t end = at;
    while (end < text.size() && text[end] != ',' && !is_space(text[end])) ++end;
    const llvm::StringRef token = text.slice(at, end);
    const size_t equals = token.find('=');
    Field field;
    field.column = at + 1;
    field.key = token.take_front(equals);
    field.has_value = equals != llvm::StringRef::npos;
    if (field.has_value) field.value = token.drop_front(equals + 1);
    fields.push_back(field);
    after_comma = false;
    at = end;
  }
  if (after_comma) return empty_field(text.size());
  return fields;
}

}  // namespace trigen
