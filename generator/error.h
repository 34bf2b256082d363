// The project's errors: a kind, sorted by who must act, and a text. Texts are lower case without a final stop
// and say what was found, what is allowed and the next step.
#pragma once

#include <string>
#include <system_error>

#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"

namespace trigen {

// These are the codes of the C API (0 is success there): do not renumber.
enum class ErrorKind : int {
  kBadRequest = 1,   // the caller's argument or text
  kUnsupported = 2,  // a correct request that nothing here can serve
  kBuild = 3,        // the compiler does not load, or refused a source
  kDevice = 4,       // driver or GPU
  kCache = 5,        // a cache file
  kInternal = 6,     // a defect of trigen
  kNoCompiler = 7,   // no compiler of this machine makes the target
};

class TrigenError : public llvm::ErrorInfo<TrigenError> {
 public:
  static char ID;
  TrigenError(ErrorKind kind, std::string message) : kind_(kind), message_(std::move(message)) {}
  ErrorKind kind() const { return kind_; }
  std::string message() const override { return message_; }
  void log(llvm::raw_ostream& out) const override;
  std::error_code convertToErrorCode() const override { return llvm::inconvertibleErrorCode(); }

 private:
  ErrorKind kind_;
  std::string message_;
};

llvm::Error make_error(ErrorKind kind, const llvm::Twine& message);
inline llvm::Error bad_request(const llvm::Twine& message) {
  return make_error(ErrorKind::kBadRequest, message);
}

// The kind and text of an error, which is consumed. Several joined errors give the first kind and all texts,
// one per line; an error of another class is kInternal.
struct ErrorText {
  ErrorKind kind = ErrorKind::kInternal;
  std::string message;
};
ErrorText take_error(llvm::Error error);
// The same error with "prefix: " before its text; success stays success.
llvm::Error with_prefix(llvm::Error error, const llvm::Twine& prefix);

}  // namespace trigen
