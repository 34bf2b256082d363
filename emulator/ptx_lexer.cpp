#include "emulator/ptx_lexer.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>

#include "emulator/ptx_ast.h"

namespace trigen::emulator {
namespace {

bool starts_word(char c) {
  return std::isalpha(static_cast<unsigned char>(c)) || c == '_' || c == '$' || c == '%' || c == '.';
}
bool in_word(char c) { return starts_word(c) || std::isdigit(static_cast<unsigned char>(c)); }

Token read_number(const std::string& text, size_t& at, int line) {
  Token token;
  token.line = line;
  token.begin = at;
  const char* begin = text.c_str() + at;
  char* end = nullptr;
  if (begin[0] == '0' && (begin[1] == 'f' || begin[1] == 'F' || begin[1] == 'd' || begin[1] == 'D')) {
    // 0f<8 hex digits> or 0d<16 hex digits>: the bits of an IEEE number.
    bool single = begin[1] == 'f' || begin[1] == 'F';
    const std::string digits = text.substr(at + 2, single ? 8 : 16);
    if (digits.size() != (single ? 8 : 16) ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos)
      throw PtxError(line, "'" + text.substr(at, 2) + "' needs " + (single ? "8" : "16") +
                               " hexadecimal digits, found '" + digits + "'");
    uint64_t bits = std::strtoull(digits.c_str(), nullptr, 16);
    token.kind = Token::Kind::kFloat;
    if (single) {
      uint32_t low = static_cast<uint32_t>(bits);
      float value;
      std::memcpy(&value, &low, 4);
      token.real = value;
      token.integer = low;  // keeps NaN payloads that a conversion would change
    } else {
      std::memcpy(&token.real, &bits, 8);
      token.integer = static_cast<int64_t>(bits);
    }
    end = const_cast<char*>(begin) + 2 + digits.size();
  } else {
    token.integer = static_cast<int64_t>(std::strtoull(begin, &end, 0));
    token.kind = Token::Kind::kInteger;
    if ((*end == '.' || *end == 'e' || *end == 'E') &&
        !(begin[0] == '0' && (begin[1] == 'x' || begin[1] == 'X'))) {
      token.real = std::strtod(begin, &end);
      token.kind = Token::Kind::kFloat;
      std::memcpy(&token.integer, &token.real, 8);
    } else if (*end == 'U') {
      ++end;
    }
  }
  token.text.assign(begin, static_cast<size_t>(end - begin));
  at += static_cast<size_t>(end - begin);
  token.end = at;
  return token;
}

}  // namespace

std::vector<Token> tokenize(const std::string& text) {
  std::vector<Token> tokens;
  size_t at = 0;
  int line = 1;
  while (at < text.size()) {
    char c = text[at];
    if (c == '\n') {
      ++line;
      ++at;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      ++at;
    } else if (c == '/' && at + 1 < text.size() && text[at + 1] == '/') {
      while (at < text.size() && text[at] != '\n') ++at;
    } else if (c == '/' && at + 1 < text.size() && text[at + 1] == '*') {
      size_t stop = text.find("*/", at + 2);
      if (stop == std::string::npos) stop = text.size();
      for (; at < stop; ++at) line += text[at] == '\n';
      at = std::min(text.size(), stop + 2);
    } else if (starts_word(c)) {
      Token token;
      token.kind = Token::Kind::kWord;
      token.line = line;
      token.begin = at;
      while (at < text.size()) {
        if (in_word(text[at])) {
          ++at;
        } else if (text[at] == ':' && at + 2 < text.size() && text[at + 1] == ':' && in_word(text[at + 2])) {
          at += 2;
        } else {
          break;
        }
      }
      token.end = at;
      token.text = text.substr(token.begin, at - token.begin);
      tokens.push_back(token);
    } else if (std::isdigit(static_cast<unsigned char>(c))) {
      tokens.push_back(read_number(text, at, line));
    } else if (c == '"') {
      Token token;
      token.kind = Token::Kind::kString;
      token.line = line;
      token.begin = at++;
      while (at < text.size() && text[at] != '"') token.text += text[at++];
      if (at == text.size()) throw PtxError(token.line, "a string is not closed");
      token.end = ++at;
      tokens.push_back(token);
    } else if (std::strchr(",;[]{}()!|@+-*<>=:", c) != nullptr && c != 0) {
      Token token;
      token.kind = Token::Kind::kPunctuation;
      token.line = line;
      token.begin = at;
      token.end = ++at;
      token.text = std::string(1, c);
      tokens.push_back(token);
    } else if (c == 0) {
      break;
    } else {
      throw PtxError(line, std::string("unexpected character '") + c + "'");
    }
  }
  Token end;
  end.line = line;
  end.begin = end.end = text.size();
  tokens.push_back(end);
  return tokens;
}

}  // namespace trigen::emulator
