// The right to compile one key: a byte of the user layer's lock file, or, where none can be made, a name in
// this process.
#pragma once

#include <memory>
#include <string>

#include "cache/layer.h"
#include "cache/lock.h"
#include "cache/store.h"

namespace trigen::cache {

// One try, without waiting. Null: somebody has it. `layer` may be null (no user layer).
std::unique_ptr<Store::Lease> try_lease(const Layer* layer, const BinaryKey& key);

}  // namespace trigen::cache
