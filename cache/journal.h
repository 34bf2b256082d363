// A layer whose writer died in the middle of a put, for readers that may not write.
#pragma once

#include <string>

#include "cache/trust.h"

namespace trigen::cache {

// The bytes of the layer as SQLite's rollback of its journal would leave them; neither file is touched.
// "" when `image` has them, else why not.
std::string read_behind_journal(const std::string& layer, FilePart part, std::string& image);

}  // namespace trigen::cache
