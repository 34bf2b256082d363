// The table of a problem's fields (problem_fields.def), for everything that goes through all of them.
#pragma once

#include <climits>
#include <string>

#include "generator/names.h"
#include "generator/ops.h"

namespace trigen {

struct ProblemField {
  enum Kind { kName, kSize, kFlag };   // a value of an enumeration, an integer, yes or no
  enum Place { kFirst, kKey, kPart };  // of the text form: its first word, key=value, a part of epilogue=

  static constexpr int64_t kNoValue = INT64_MIN;

  llvm::StringRef key;
  Kind kind;
  Place place;
  const Enumeration* names = nullptr;  // kName
  unsigned ops = ~0u;                  // bit(op): those that take another value than the default
  bool always = false;                 // printed where it has its default, too
  llvm::StringRef elsewhere = {};      // what the other ops are told; empty: OpRow::lacks
  int64_t unset = kNoValue;            // trigen_problem: stands for the default; kNoValue: nothing does
  llvm::StringRef hint = {};           // of the range
  const char *flags = nullptr, *help = nullptr;  // of the command line; null for the parts of the epilogue

  int64_t (*get)(const Problem&);
  void (*set)(Problem&, int64_t);
  int64_t (*fallback)(const Problem&);  // the default; kNoValue: it must be given
  int64_t (*low)(const Problem&);       // kSize: the range, both included; kNoValue: validate.cpp has a rule
  int64_t (*high)(const Problem&);

  bool takes(Op op) const;
  bool knows(int64_t value) const;  // kName: the enumeration has it
  // The value in the text form: "bf16", "512".
  std::string text(int64_t value) const;
};

// NOLINTBEGIN(bugprone-macro-parentheses): terms of a sum
inline constexpr size_t kProblemFields = 0
#define TRIGEN_NAME(...) +1
#define TRIGEN_SIZE(...) +1
#define TRIGEN_PART(...) +1
#define TRIGEN_PART_NAME(...) +1
#include "generator/problem_fields.def"
    ;
// NOLINTEND(bugprone-macro-parentheses)
// In the order of the text form; a default depends on fields before its own alone.
llvm::ArrayRef<ProblemField> problem_fields();

// The words of epilogue=: "bias", "gelu", "silu", "pre" ... Those of ops that `ops` names.
llvm::SmallVector<llvm::StringRef, 16> epilogue_words(unsigned ops = ~0u);

}  // namespace trigen
