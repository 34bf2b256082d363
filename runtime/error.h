// Errors of the runtime: a text that says what was found, what is allowed and the next step, and who must act.
#pragma once

#include <string>
#include <system_error>

#include "llvm/Support/Error.h"

namespace trigen {

// The same values as trigen_status in trigen.h: do not renumber.
enum class Status : int {
  kOk = 0,
  kBadRequest = 1,   // the caller: a wrong problem, argument or option
  kUnsupported = 2,  // nobody here: no kernel of this version serves that
  kBuild = 3,        // whoever installs: no compiler for the target, or a compile that failed
  kDevice = 4,       // whoever runs the machine: driver, device, a failed launch
  kCache = 5,        // whoever owns the cache: a miss where a miss is not allowed
  kInternal = 6,     // trigen's authors
};

class Failure : public llvm::ErrorInfo<Failure> {
 public:
  static char ID;
  Failure(Status status, std::string text) : status_(status), text_(std::move(text)) {}
  Status status() const { return status_; }
  void log(llvm::raw_ostream& stream) const override { stream << text_; }
  std::error_code convertToErrorCode() const override { return llvm::inconvertibleErrorCode(); }

 private:
  Status status_;
  std::string text_;
};

llvm::Error fail(Status status, std::string text);
// An error of another part (generator, cache) with the status that it means here; a Failure keeps its own.
llvm::Error as(Status status, llvm::Error error);
// Consumes the error. Several joined errors become one text; the status is the first one's.
std::pair<Status, std::string> take(llvm::Error error, Status otherwise = Status::kInternal);

}  // namespace trigen
