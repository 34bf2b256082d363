// Words, numbers and punctuation of PTX text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trigen::emulator {

struct Token {
  enum class Kind : uint8_t { kWord, kInteger, kFloat, kString, kPunctuation, kEnd };
  Kind kind = Kind::kEnd;
  int line = 0;
  size_t begin = 0;  // byte range in the text
  size_t end = 0;
  std::string text;
  int64_t integer = 0;
  double real = 0;

  bool is(const char* punctuation_or_word) const {
    return text == punctuation_or_word && kind != Kind::kString;
  }
};

/// Splits PTX text. Comments are dropped. An opcode with its modifiers ("ld.global.u32") is one word, and so
/// is "%tid.x" and "L1::no_allocate". Throws PtxError on a character that PTX does not have.
std::vector<Token> tokenize(const std::string& text);

}  // namespace trigen::emulator
