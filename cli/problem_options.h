// The problems of a command line: the same for every subcommand that takes problems.
//
//   trigen verify "forward,dtype=bf16,B=32,T=512,D=1024" ...            text form, any number
//   trigen verify --problems FILE                                       one per line, "-" is standard input;
//                                                                       "core" and "mixers" are shipped lists
//   trigen verify --list core                                           the shipped lists by name alone
//   trigen verify --op forward --dtype bf16 -B 32 -T 512 -D 1024        flags, one problem
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "generator/problem.h"
#include "generator/target.h"

namespace trigen::cli {

// The group of the flags that are a problem's keys: help explains them once, under `trigen help problem`.
inline constexpr const char* kProblemFlags = "Problem in flags";

class ProblemOptions {
 public:
  void add_to(CLI::App& app, bool positional = true);
  bool any() const;  // something was named
  // Everything that was named, in that order: texts, files, lists, flags. `fallback` (a shipped list's name)
  // when nothing was; without one that is an error.
  llvm::Expected<std::vector<Problem>> problems(llvm::StringRef fallback = "") const;
  // Takes out of `list` the problems of the shipped lists that were named (or of `fallback`, when nothing was) that
  // no family makes for the target, as tf32 on sm_70; how many. A list of the user's own stays whole.
  size_t drop_unsupported(std::vector<Problem>& list, const Target& target, llvm::StringRef fallback) const;
  // "--list core in place of --problems core" for a problem that drop_unsupported() takes out with the former; else "".
  std::string list_instead(const Problem& problem, const Target& target) const;
  // Their canonical texts, none when none was named.
  llvm::Expected<std::vector<std::string>> texts() const;
  // For subcommands that take exactly one.
  llvm::Expected<Problem> problem() const;

 private:
  std::vector<std::string> texts_, files_, lists_;
  struct Flag {
    std::string key;  // of the text form
    std::string value;
    CLI::Option* option = nullptr;
  };
  std::vector<Flag> flags_;
  std::string op_;
};

// A problem's text without the keys that have their defaults; other texts as they are.
std::string short_problem(const std::string& text);

}  // namespace trigen::cli
