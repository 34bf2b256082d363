// Findings (cache/record.h): their rows in a user layer, and those of a store: the user layer's, read once, and what
// came since.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <tuple>
#include <vector>

#include "cache/database.h"
#include "cache/lock.h"
#include "cache/record.h"
#include "cache/signature.h"

namespace trigen::cache {

SqlStatus put_finding_row(Database& database, const Finding& finding);
// Findings with a fitting digest; none without the table. Every row of a layer with another home (a file that was
// copied here) counts as imported, and no canary ran.
SqlStatus read_findings(Database& database, const std::string& home, std::vector<Finding>& findings);
// The same, written down, in a transaction of the layer that `home` is.
SqlStatus settle(Database& database, const std::string& home);
// Is this the home that the layer names? A layer that names none and has no rows is at home everywhere.
bool is_at_home(Database& database, const std::string& home);

class Findings {
 public:
  // `user`: the layer that keeps them; null when there is none.
  void keep_in(CacheFile* user) { user_ = user; }

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

  CacheFile* user_ = nullptr;
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

}  // namespace trigen::cache
