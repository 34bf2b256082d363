// A user layer on a network file system (docs/cache-format.md, "Network file systems"): what is put goes to a
// spool, a cache file on this node, and is published beside the layer as whole bundles, one a spool, so that
// nothing is ever locked or changed over the network.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace trigen::cache {

// "off" (or 0, no, false): use the file where it lies. Else an absolute folder for spools.
constexpr char kSpoolVariable[] = "TRIGEN_SPOOL";

struct Spool {
  std::string local;   // the cache file on this node
  std::string shared;  // folder of the published bundles: <layer>.d
};
// Nullopt where the layer lies on a local file system, the variable says so, or this node has no place.
std::optional<Spool> spool_for(const std::string& layer);

// Puts a bundle's bytes into the shared folder under the spool's own name. "" or what went wrong.
std::string publish(const Spool& spool, const std::string& image);

}  // namespace trigen::cache
