// A place in the tokens of a module, and the words that a parser asks there.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "emulator/ptx_ast.h"
#include "emulator/ptx_lexer.h"

namespace trigen::emulator {

class PtxCursor {
 public:
  explicit PtxCursor(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ < tokens_.size() - 1 ? at_++ : at_]; }
  bool accept(const char* text) {
    if (!peek().is(text)) return false;
    next();
    return true;
  }
  void expect(const char* text) {
    if (!accept(text)) fail(std::string("expected '") + text + "', found " + found());
  }
  /// Up to this word and past it.
  void skip_past(const char* text) {
    for (; !accept(text); next())
      if (peek().kind == Token::Kind::kEnd) expect(text);
  }
  [[noreturn]] void fail(const std::string& what) const { throw PtxError(peek().line, what); }
  /// The next word, for messages.
  std::string found() const {
    return peek().kind == Token::Kind::kEnd ? "the end of the text" : "'" + peek().text + "'";
  }
  std::string word() {
    if (peek().kind != Token::Kind::kWord) fail("expected a name, found " + found());
    return next().text;
  }
  int64_t integer() {
    bool minus = accept("-");
    if (peek().kind != Token::Kind::kInteger) fail("expected a number, found " + found());
    const uint64_t value = static_cast<uint64_t>(next().integer);
    return static_cast<int64_t>(minus ? 0 - value : value);  // the smallest has no positive counterpart
  }

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

}  // namespace trigen::emulator
