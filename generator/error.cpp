#include "generator/error.h"

#include "llvm/Support/raw_ostream.h"

namespace trigen {

char TrigenError::ID = 0;

void TrigenError::log(llvm::raw_ostream& out) const { out << message_; }

llvm::Error make_error(ErrorKind kind, const llvm::Twine& message) {
  return llvm::make_error<TrigenError>(kind, message.str());
}

ErrorText take_error(llvm::Error error) {
  ErrorText result;
  bool first = true;
  llvm::handleAllErrors(std::move(error), [&](const llvm::ErrorInfoBase& info) {
    if (first && info.isA<TrigenError>()) result.kind = static_cast<const TrigenError&>(info).kind();
    if (!first) result.message += "\n";
    result.message += info.message();
    first = false;
  });
  return result;
}

llvm::Error with_prefix(llvm::Error error, const llvm::Twine& prefix) {
  if (!error) return error;
  ErrorText text = take_error(std::move(error));
  return make_error(text.kind, prefix + ": " + text.message);
}

}  // namespace trigen
