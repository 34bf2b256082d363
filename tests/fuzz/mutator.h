// Seeded mutations of real texts.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace trigen::fuzz {

class Mutator {
 public:
  // `tokens` are put in; the rest is bytes, cuts, repetitions and splices of `seeds`.
  Mutator(uint64_t seed, std::vector<std::string> seeds, std::vector<std::string> tokens)
      : random_(seed), seeds_(std::move(seeds)), tokens_(std::move(tokens)) {}

  std::string next() {
    std::string text = seeds_[pick(seeds_.size())];
    for (size_t edits = 1 + pick(4); edits > 0; --edits) edit(text);
    return text;
  }

 private:
  size_t pick(size_t count) { return std::uniform_int_distribution<size_t>(0, count - 1)(random_); }

  void edit(std::string& text) {
    const size_t at = pick(text.size() + 1), length = pick(8);
    switch (pick(6)) {
      case 0:
        text.erase(std::min(at, text.size()), length);
        break;
      case 1:
        text.insert(at, tokens_[pick(tokens_.size())]);
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>(pick(256));
        break;
      case 3:
        text.insert(at, text.substr(std::min(at, text.size()), 1 + pick(30)));
        break;
      case 4:
        text.resize(at);
        break;
      case 5: {  // the head of one text, the tail of another
        const std::string& other = seeds_[pick(seeds_.size())];
        text = text.substr(0, at) + other.substr(std::min(other.size(), at));
        break;
      }
    }
  }

  std::mt19937_64 random_;
  std::vector<std::string> seeds_, tokens_;
};

}  // namespace trigen::fuzz
