#include "cache/match.h"

#include <tuple>
#include <utility>

namespace trigen::cache {
namespace {

// Larger is better, field by field.
std::tuple<bool, bool, bool, bool, bool> rank(const Record& record, const DeviceQuery& query) {
  const bool exact = difference(record, query).empty();
  return {record.provenance == Provenance::kMeasured, exact, record.device == query.device,
          record.sms == query.sms, record.driver == query.driver};
}

void add(std::string& text, const std::string& what, const std::string& here, const std::string& there) {
  if (!text.empty()) text += "; ";
  text += what + " " + (here.empty() ? "unknown" : here) + " here, " + (there.empty() ? "none" : there) +
          " in the record";
}

}  // namespace

std::string difference(const Record& record, const DeviceQuery& query) {
  std::string text;
  if (record.device != query.device) add(text, "device", query.device, record.device);
  // The details of another device, or of none, say nothing more.
  if (record.device.empty() || query.device.empty()) return text;
  if (record.sms != query.sms) add(text, "SMs", std::to_string(query.sms), std::to_string(record.sms));
  if (record.driver != query.driver) add(text, "driver", query.driver, record.driver);
  return text;
}

bool is_better(const Record& a, const Record& b, const DeviceQuery& query) {
  return std::make_pair(rank(a, query), a.stored_at) > std::make_pair(rank(b, query), b.stored_at);
}

void keep_better(std::optional<FoundRecord>& best, Record record, const DeviceQuery& query,
                 const std::string& layer) {
  if (best) {
    const auto theirs = rank(best->record, query), ours = rank(record, query);
    if (ours < theirs) return;
    if (ours == theirs && (best->layer != layer || record.stored_at <= best->record.stored_at)) return;
  }
  FoundRecord found;
  found.difference = difference(record, query);
  found.match = found.difference.empty() ? Match::kExact : Match::kNear;
  found.layer = layer;
  found.record = std::move(record);
  best = std::move(found);
}

}  // namespace trigen::cache
