// Folders and files of layers: which files are layers, in which order; the bundles that stand beside a layer on a
// network file system; when a binary of the user layer was last used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

#include "llvm/ADT/StringRef.h"

namespace trigen {

// The lookup order that an empty StoreOptions::layers stands for, existing or not.
std::vector<std::string> default_layers();
// Does StoreOptions::layers, or TRIGEN_CACHE in its stead, say that there is to be no cache?
bool is_no_cache(const std::vector<std::string>& layers);

namespace cache {

struct LayerPlan {
  std::string path;
  bool user = false;        // puts go here
  bool by_default = false;  // trigen chose the path, no user named it
  bool own = false;         // where this user's trigen writes: what it wrote there needs no signature
  bool unlocked = false;    // read without locks, though a lock file lies beside it: a network file system
  std::string stands_for = {};  // of a spool: the user layer's own path
};

// A bundle by its name, *.trigen: one immutable file, which is never locked, written or journalled.
bool is_bundle(llvm::StringRef path);

// The layers that StoreOptions::layers stands for; the first one that is no bundle is the user layer. None where
// `none` alone is named, there or in TRIGEN_CACHE: no cache file is read or written.
std::vector<LayerPlan> plan_layers(const std::vector<std::string>& named);
// One file that is only read, whatever would be written in its stead.
LayerPlan plan_reading(const std::string& path);
// The bundles and cache files (*.db) of a folder, by name, without those that are being written.
std::vector<std::string> layers_in(const std::string& folder, std::error_code& error);
// The installation prefixes that a folder of code lies below, nearest first: what is above "lib" or "bin".
std::vector<std::string> prefixes_of(llvm::StringRef folder);

// A user layer on a network file system (docs/cache-format.md, "Network file systems"): what is put goes to a
// spool, a cache file on this node, and is published beside the layer as whole bundles, one a spool, so that
// nothing is ever locked or changed over the network.
struct Spool {
  std::string local;   // the cache file on this node
  std::string shared;  // folder of the published bundles: <layer>.d
};
// Nullopt where the layer lies on a local file system, TRIGEN_SPOOL says so, or this node has no place.
std::optional<Spool> spool_for(const std::string& layer);
// Puts a bundle's bytes into the shared folder under the spool's own name. "" or what went wrong.
std::string publish(const Spool& spool, const std::string& image);

// The day on which a binary was last looked up, for gc, in `<layer>.used` and never in the layer: a look-up begins no
// transaction and syncs nothing.
//
// Makes the file beside a layer that is written. What fails is left: gc then goes by the time of storing.
void begin_usage(const std::string& layer);
// Notes today for a key (BinaryKey::digest()), once a day and key: two bytes of the file, if there is one.
void note_use(const std::string& layer, const std::string& key);
// The day last noted for a key, since 1970 in UTC, 0 when none is. Keys that share a slot (1 of 65536) are as used as
// the later.
int last_use(const std::string& layer, const std::string& key);

}  // namespace cache
}  // namespace trigen
