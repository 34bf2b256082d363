// When a binary of the user layer was last looked up, for gc. Noted in `<layer>.used`, never in the layer: a
// look-up begins no transaction and syncs nothing.
#pragma once

#include <cstdint>
#include <string>

namespace trigen::cache {

// Days since 1970, in UTC.
int today();
// Makes the file beside a layer that is written. What fails is left: gc then goes by the time of storing.
void begin_usage(const std::string& layer);
// Notes today for a key (BinaryKey::digest()), once a day and key: two bytes of the file, if there is one.
void note_use(const std::string& layer, const std::string& key);
// The day last noted for a key, 0 when none is. Keys that share a slot (1 of 65536) are as used as the later.
int last_use(const std::string& layer, const std::string& key);

}  // namespace trigen::cache
