// From facts to findings: a pure function, so that every machine that somebody described is a test.
#pragma once

#include <string>
#include <vector>

#include "doctor/environment.h"
#include "llvm/ADT/ArrayRef.h"

namespace trigen::doctor {

enum class Severity { kNote, kWarning, kError };
const char* name_of(Severity severity);

struct Finding {
  Severity severity = Severity::kNote;
  std::string id;     // stable: "driver.container", for programs and tests
  std::string about;  // "driver", "cuda:0", "nvrtc", "cache /path"
  std::string what;   // what was found
  std::string why;    // why it matters; may be ""
  std::string type;   // what to type or do; "" when there is nothing to do
};

// The question. Targets: those named; none: those of the devices that are here, or with neither, all.
struct Question {
  std::vector<const Target*> targets;
  bool here = false;  // kernels must run here now: no driver or device is an error then
};

struct TargetAnswer {
  const Target* target = nullptr;
  std::vector<std::string> makers;  // compilers that can make it: "nvrtc 12.9.86"
  std::string chosen;               // the one that a compile would use, "" when there is none
  std::string path;                 // of its file
  std::string why;                  // why that one
};

struct Diagnosis {
  std::vector<TargetAnswer> targets;
  std::vector<Finding> findings;  // worst first
};
// The exit code's meaning: kFailed for any error, kNoCompiler where the only errors are missing compilers.
enum class Outcome { kReady, kFailed, kNoCompiler };
Outcome outcome(const Diagnosis& diagnosis);

Diagnosis diagnose(const Environment& environment, const Question& question);

// The targets that a question stands for.
std::vector<const Target*> targets_asked(const Environment& environment, const Question& question);
// TRIGEN_* variables that trigen reads, in alphabetical order (docs/environment.md).
llvm::ArrayRef<const char*> known_variables();

}  // namespace trigen::doctor
