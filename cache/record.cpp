#include "cache/record.h"

namespace trigen::cache {
namespace {

void add(std::string& text, const std::string& what, const std::string& here, const std::string& there) {
  if (!text.empty()) text += "; ";
  text += what + " " + (here.empty() ? "unknown" : here) + " here, " + (there.empty() ? "none" : there) +
          " in the record";
}

}  // namespace

Rank rank_of(const Record& record, const DeviceQuery& query) {
  Rank rank;
  rank.measured = record.provenance == Provenance::kMeasured;
  rank.exact = difference(record, query).empty();
  rank.device = record.device == query.device;
  rank.sms = record.sms == query.sms;
  rank.driver = record.driver == query.driver;
  rank.stored_at = record.stored_at;
  return rank;
}

std::string difference(const Record& record, const DeviceQuery& query) {
  std::string text;
  if (record.device != query.device) add(text, "device", query.device, record.device);
  // The details of another device, or of none, say nothing more.
  if (record.device.empty() || query.device.empty()) return text;
  if (record.sms != query.sms) add(text, "SMs", std::to_string(query.sms), std::to_string(record.sms));
  if (record.driver != query.driver) add(text, "driver", query.driver, record.driver);
  return text;
}

}  // namespace trigen::cache
