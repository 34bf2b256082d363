// A candidate: problem + target + family + config that passed the legality rules, and the source that makes it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "generator/family.h"

namespace trigen {

struct Candidate {
  Problem problem;
  const Target* target = nullptr;
  const Family* family = nullptr;
  Config config{};
  bool generic = false;  // sizes are run-time values
};

// Errors with the family's reason when the config is not legal.
llvm::Expected<Candidate> make_candidate(const Problem& problem, const Target& target, const Family& family,
                                         const Config& config);
// Every legal candidate of every family that serves the target, best first by the cost model (generator/cost.h).
// `family` limits the list to one family. Error when nothing is legal: every family's reason is in the text.
llvm::Expected<std::vector<Candidate>> list_candidates(const Problem& problem, const Target& target,
                                                       const Family* family = nullptr);
// The shape-generic candidate that runs any shape of the problem's kind at once.
llvm::Expected<Candidate> generic_candidate(const Problem& problem, const Target& target);

// "mma_sm80:tile=128x128x32,..." (or "...,generic"), used in records, logs and the CLI.
std::string describe(const Candidate& candidate);

// The emitted source: a preamble with the Kernel value, one include, the extern "C" entries.
struct Source {
  std::string text;      // what NVRTC compiles
  std::string entry;     // the first extern "C" name
  std::string hash;      // SHA-256 (hex) over text and every template file it includes, transitively
};
// Deterministic: the same candidate gives the same bytes. The batch size does not enter.
Source render(const Candidate& candidate);
// The command that prints this source again ("trigen emit ...").
std::string emit_command(const Candidate& candidate);

// The embedded template files, by the name that #include uses ("mma_sm80.cuh", "ptx/ldmatrix.cuh").
struct TemplateFile {
  llvm::StringLiteral name;
  llvm::StringLiteral text;
};
llvm::ArrayRef<TemplateFile> template_files();

}  // namespace trigen
