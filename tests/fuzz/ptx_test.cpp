// Seeded mutations of small modules, loaded and run on the emulated device: the same run everywhere.
// TRIGEN_FUZZ_SECONDS=60 mutates for that long instead.
#include "tests/fuzz/ptx.h"

#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <sstream>

#include "cache/host.h"
#include "tests/fuzz/mutator.h"

namespace trigen::fuzz {
namespace {

using Answer = EmulatedModules::Answer;

std::vector<std::string> corpus() {
  std::vector<std::string> texts;
  for (const auto& entry : std::filesystem::directory_iterator(TRIGEN_SOURCE "/tests/fuzz/ptx")) {
    std::ifstream file(entry.path());
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::sort(texts.begin(), texts.end());  // folders have no order
  return texts;
}

// A line that tests/fuzz/found.py wrote: escapes as C has them stand for bytes.
std::string unescaped(const std::string& line) {
  std::string bytes;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      bytes += line[i];
    } else if (const char c = line[++i]; c == 'x') {
      bytes += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
      i += 2;
    } else {
      bytes += c == 'n' ? '\n' : c == 'r' ? '\r' : c == 't' ? '\t' : c;
    }
  }
  return bytes;
}

const std::vector<std::string> kTokens = {";",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          "(",
                                          ")",
                                          ",",
                                          "@",
                                          "!",
                                          "|",
                                          "-",
                                          "+",
                                          "=",
                                          ".",
                                          ":",
                                          "0",
                                          "1",
                                          "-1",
                                          "33",
                                          "64",
                                          "65536",
                                          "2147483647",
                                          "4294967295",
                                          "9223372036854775807",
                                          "18446744073709551616",
                                          "0f7FC00000",
                                          "0d7FF0000000000000",
                                          "0f",
                                          "1e400",
                                          "0x",
                                          ".align 16",
                                          ".v4",
                                          ".b8",
                                          ".f64",
                                          ".u16",
                                          ".pred",
                                          ".shared",
                                          ".param",
                                          ".global",
                                          ".reg .b32 %q<9>;",
                                          "%r1",
                                          "%d3",
                                          "%p1",
                                          "%f1",
                                          "%laneid",
                                          "%clock64",
                                          "_",
                                          "WARP_SZ",
                                          "ret;",
                                          "bar.sync 0;",
                                          "exit;",
                                          "bra L0;",
                                          "trap;",
                                          "mov.b64 {%r1, %r2}, %d1;",
                                          "ld.global.u64 %d1, [%d1];",
                                          "st.shared.u32 [%r3+-4], %r1;",
                                          "\n",
                                          "//",
                                          "/*",
                                          "\"",
                                          "\xff"};

// Most edits of bytes end at the parser. These exchange lines and words of a kind (registers, numbers, names), so that
// what comes behind it sees modules, too.
class ModuleMutator {
 public:
  ModuleMutator(uint64_t seed, std::vector<std::string> seeds) : random_(seed), seeds_(std::move(seeds)) {
    for (const std::string& text : seeds_) {
      for (const std::string& line : lines_of(text)) lines_.push_back(line);
      for (size_t at = 0; at < text.size();) {
        const size_t length = word_at(text, at);
        if (length > 0) words_[text[at]].push_back(text.substr(at, length));
        at += std::max<size_t>(length, 1);
      }
    }
    for (const char* number : {"0", "1", "3", "31", "255", "65535", "4294967295"})
      words_[kNumber].push_back(number);
  }

  std::string next() {
    std::vector<std::string> lines = lines_of(seeds_[pick(seeds_.size())]);
    for (size_t edits = 1 + pick(3); edits > 0; --edits) {
      const size_t at = pick(lines.size());
      const size_t kind = pick(8);
      if (kind == 0) lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(at));
      if (kind == 1) std::swap(lines[at], lines[pick(lines.size())]);
      if (kind == 2)
        lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(at), lines_[pick(lines_.size())]);
      if (kind > 2) exchange_word(lines[at]);
    }
    std::string text;
    for (const std::string& line : lines) text += line + "\n";
    return text;
  }

 private:
  static constexpr char kNumber = '0';

  static std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find('\n', at), text.size());
      lines.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return lines;
  }
  static bool in_word(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '%' || c == '.';
  }
  static size_t word_at(const std::string& text, size_t at) {
    size_t length = 0;
    while (at + length < text.size() && in_word(text[at + length])) ++length;
    return length;
  }
  size_t pick(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }

  void exchange_word(std::string& line) {
    if (line.empty()) return;
    size_t at = pick(line.size());
    while (at > 0 && in_word(line[at - 1]) && in_word(line[at])) --at;
    const size_t length = word_at(line, at);
    if (length == 0) return;
    const char first = std::isdigit(static_cast<unsigned char>(line[at])) ? kNumber : line[at];
    const std::vector<std::string>& others = words_[first];
    if (!others.empty()) line.replace(at, length, others[pick(others.size())]);
  }

  std::mt19937_64 random_;
  std::vector<std::string> seeds_, lines_;
  std::map<char, std::vector<std::string>> words_;
};

class Ptx : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!modules_.open()) GTEST_SKIP() << "[SKIP] " << trigen_emulator_last_error();
    ASSERT_GE(corpus().size(), 4U);
  }
  EmulatedModules modules_;
};

// Else the mutations would be of texts that are refused at once.
TEST_F(Ptx, TheCorpusRuns) {
  for (const std::string& text : corpus())
    EXPECT_EQ(modules_.run(text), Answer::kRan) << trigen_emulator_last_error() << "\n" << text;
}

// Inputs that coverage led libFuzzer to.
TEST_F(Ptx, WhatLibFuzzerFoundDoesNoHarm) {
  std::istringstream file(
      llvm::cantFail(cache::read_input(TRIGEN_SOURCE "/tests/fuzz/ptx_found.zst", "", "")));
  int of[3] = {};
  for (std::string line; std::getline(file, line);) ++of[static_cast<int>(modules_.run(unescaped(line)))];
  for (const int count : of) EXPECT_GT(count, 10);  // every way out was taken
}

TEST_F(Ptx, MutatedModules) {
  const char* seconds = std::getenv("TRIGEN_FUZZ_SECONDS");
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds ? std::atoi(seconds) : 0);
  constexpr int kIterations = 8000;
  Mutator bytes(6, corpus(), kTokens);
  ModuleMutator words(7, corpus());
  int of[3] = {};
  for (int i = 0; seconds ? std::chrono::steady_clock::now() < end : i < kIterations; ++i) {
    const std::string text = i % 4 == 0 ? bytes.next() : words.next();
    if (const char* file = std::getenv("TRIGEN_FUZZ_LAST"))
      std::ofstream(file) << text;  // what crashed, if it did
    ++of[static_cast<int>(modules_.run(text))];
  }
  RecordProperty("refused", of[0]);
  RecordProperty("faulted", of[1]);
  RecordProperty("ran", of[2]);
  if (seconds) return;
  for (const int count : of) EXPECT_GT(count, kIterations / 100);  // every way out was taken
}

}  // namespace
}  // namespace trigen::fuzz
