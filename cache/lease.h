// The right to compile one key, or to do anything else that has a name: a byte of the user layer's lock file, or,
// where none can be made, a name in this process.
#pragma once

#include <memory>
#include <string>

#include "cache/layer.h"
#include "cache/lock.h"
#include "cache/store.h"

namespace trigen::cache {

// One try, without waiting. Null: somebody has it. `digest` is a SHA-256 in hex; `layer` may be null (no user
// layer).
std::unique_ptr<Store::Lease> try_lease(const Layer* layer, const std::string& digest);

}  // namespace trigen::cache
