// The findings of a store (cache/store.h): the user layer's, read once, and what came since.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "cache/layer.h"

namespace trigen::cache {

class Findings {
 public:
  // `user`: the layer that keeps them; null when there is none.
  void keep_in(Layer* user) { user_ = user; }

  std::optional<Finding> find(FindingKind kind, llvm::StringRef name, llvm::StringRef device,
                              llvm::StringRef driver);
  // Digests of rows: binaries that are not to be used, and what the layer holds but others made.
  struct Marks {
    std::set<std::string> quarantined, imported;
  };
  std::shared_ptr<const Marks> marks();
  // Canaries that went well are written once in a while and with flush(): what is lost runs once more.
  llvm::Error put(const Finding& finding);
  llvm::Error flush();
  std::vector<Finding> list();
  llvm::Error clear(FindingKind kind);

 private:
  using Key = std::tuple<FindingKind, std::string, std::string, std::string>;
  void add(const Finding& finding);
  // Calls `use` with the lock held and the layer's findings read; not in a process that was forked in the
  // middle of an operation.
  template <typename Use>
  void with(Use use);

  Layer* user_ = nullptr;
  std::mutex mutex_;
  bool loaded_ = false;
  std::map<Key, Finding> known_;
  std::shared_ptr<Marks> marks_ = std::make_shared<Marks>();  // whoever has a copy keeps it as it is
  std::vector<Finding> unwritten_;
  Clock::time_point write_after_{};
};

// Signers that remember in these findings. A date that no signature may have now was remembered while a clock was
// wrong, and does not count.
Signers signers_of(TrustedKeys trusted, Findings& findings);

// The user layer of a store's options, opened alone, and what it keeps.
class UserLayer {
 public:
  explicit UserLayer(const Store::Options& options);
  llvm::Expected<Layer*> get();
  const Signers& signers() const { return signers_; }
  const std::string& stands_for() const { return stands_for_; }  // LayerPlan's

 private:
  Patience patience_;
  Log log_;
  Findings findings_;
  Signers signers_;
  std::optional<Layer> layer_;
  std::string stands_for_;
};

}  // namespace trigen::cache
