#include "runtime/build_ahead.h"

#include <utility>

#include "cache/host.h"

namespace trigen {

BuildAhead::BuildAhead(std::vector<Candidate> candidates, Store& store, BuildAllOptions options)
    : candidates_(std::move(candidates)) {
  options.cancel = &stop_;
  thread_ = start_thread([this, &store, options] {
    build_all(candidates_, store, options, [this](size_t, llvm::Expected<BuiltBinary> built) {
      if (!built) llvm::consumeError(built.takeError());
      return !stop_.load();
    });
  });
}

BuildAhead::~BuildAhead() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

}  // namespace trigen
