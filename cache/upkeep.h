// What `trigen cache` does to the user layer as a whole.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cache/contents.h"

namespace trigen::cache {

struct ImportReport {
  int64_t records = 0, binaries = 0;  // new here, or better than what was here
  int64_t known = 0;                  // rows that are here already, or better ones
  std::string layer;                  // path
};
// Adds the rows to the user layer of Options::layers in one transaction, by the rules of merging. What the
// layer has and the contents lack stays.
llvm::Expected<ImportReport> import_contents(const std::vector<std::string>& layers,
                                             const Contents& contents);

}  // namespace trigen::cache
