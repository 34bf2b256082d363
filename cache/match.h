// Which of several records answers a device best, and what differs.
#pragma once

#include <optional>
#include <string>

#include "cache/store.h"

namespace trigen::cache {

struct DeviceQuery {
  std::string device;
  int sms = 0;
  std::string driver;
};

// What differs between here and the record, "" when nothing does: "driver 580.159 here, 575.57 in the
// record".
std::string difference(const Record& record, const DeviceQuery& query);

// Whether `a` answers the query better than `b`, of the same layer: of equals the newer one.
bool is_better(const Record& a, const Record& b, const DeviceQuery& query);
// Replaces `best` by `record` when that answers `query` better; of equals the earlier layer's stays, within a
// layer the newer one wins.
void keep_better(std::optional<FoundRecord>& best, Record record, const DeviceQuery& query,
                 const std::string& layer);

}  // namespace trigen::cache
