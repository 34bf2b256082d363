// survivors.txt, the kill table: mutants that nothing notices, each beneath the reason why, and how many of
// each kind there are.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "mutations.h"

namespace trigen::mutations {

struct Survivor {
  // Two kinds of reasons are claims that a run checks: "never: TEXT", the mutant's instructions never run, and
  // "found by KERNEL: TEXT", the same mutant of that kernel of mutations.txt is found.
  std::string reason, subject;
  std::string name;           // Mutant::name()
  int number = 0, count = 0;  // as in Mutant
  Verdict::Kind kind = Verdict::kSame;
  int line = 0;  // of survivors.txt

  bool never_runs() const { return reason.rfind("never: ", 0) == 0; }
  std::string finder() const;  // KERNEL; "": the reason is another one
  // But for the reason and the line.
  bool operator==(const Survivor& other) const;
};
struct Rate {
  int made = 0, killed = 0;
  bool operator==(const Rate& other) const { return made == other.made && killed == other.killed; }
};
inline constexpr char kUnexplained[] = "(unexplained)";

struct SurvivorTable {
  std::string compiler;
  std::vector<std::string> reasons;  // in the file's order
  std::vector<Survivor> survivors;
  std::map<std::string, std::map<std::string, Rate>> rates;  // by subject and kind of mutant

  std::vector<Survivor> of(const std::string& subject) const;
  // Puts what a whole run found in the place of the subject's entries. Reasons are taken over: those of the
  // same mutant, else of one with the same name in another subject.
  void replace(const std::string& subject, std::vector<Survivor> found,
               const std::map<std::string, Rate>& rate);
};
llvm::Expected<SurvivorTable> read_survivors(const std::string& path);
llvm::Error write_survivors(const std::string& path, const SurvivorTable& table);

}  // namespace trigen::mutations
