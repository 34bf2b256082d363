// Bundles: a cache as one immutable file, NAME.trigen, to be shipped (docs/cache-format.md, "Bundles").
#pragma once

#include <map>
#include <string>

#include "cache/contents.h"

namespace trigen::cache {

// The file's bytes: a function of the contents and `meta` alone.
llvm::Expected<std::string> bundle_image(const Contents& contents,
                                         const std::map<std::string, std::string>& meta);
// Writes it under another name and renames it into place.
llvm::Error write_bundle(const std::string& path, const Contents& contents,
                         const std::map<std::string, std::string>& meta);

}  // namespace trigen::cache
