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

// The same with an empty file beside the layer, "<layer>.begun-" and 32 digits of the digest. It is not synced: it
// outlives its process, not the machine's power.
std::unique_ptr<Store::Lease> try_mark(const Layer* layer, const std::string& digest, bool& unended);

}  // namespace trigen::cache
