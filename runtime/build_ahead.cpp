#include "runtime/build_ahead.h"

#include <utility>

namespace trigen {

BuildAhead::BuildAhead(std::vector<Candidate> candidates, Store& store, BuildAllOptions options)
    : candidates_(std::move(candidates)) {
  options.cancel = &stop_;
  thread_ = std::thread([this, &store, options] {
    build_all(candidates_, store, options, [this](size_t, llvm::Expected<BuiltBinary> built) {
      if (!built) llvm::consumeError(built.takeError());
      return !stop_.load();
    });
  });
}

BuildAhead::~BuildAhead() {
  stop_.store(true);
  thread_.join();
}

}  // namespace trigen
