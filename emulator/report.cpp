#include "emulator/report.h"

#include <cstdio>

namespace trigen::emulator {
namespace {

std::string escape(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    if (static_cast<unsigned char>(c) < 32) {
      char code[8];
      std::snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  return out;
}

std::string triple(const uint32_t* v) {
  return std::to_string(v[0]) + "," + std::to_string(v[1]) + "," + std::to_string(v[2]);
}

}  // namespace

const char* fault_name(Fault fault) {
  static const char* const names[] = {"out of bounds access",
                                      "misaligned access",
                                      "use after free",
                                      "write to a read-only allocation",
                                      "read of uninitialised memory",
                                      "shared memory race",
                                      "collective with missing lanes",
                                      "barrier deadlock",
                                      "bad instruction",
                                      "trap",
                                      "asynchronous hazard",
                                      "global memory race",
                                      "no end in sight",
                                      "barrier race"};
  return names[static_cast<int>(fault)];
}

std::string to_string(const Report& report) {
  return std::string(fault_name(report.fault)) + ": kernel " + report.kernel + ", ptx line " +
         std::to_string(report.line) + " '" + report.instruction + "', block (" + triple(report.block) +
         "), thread (" + triple(report.thread) + "): " + report.detail;
}

void ReportLog::add(Report report) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (Report& earlier : reports_)
    if (earlier.fault == report.fault && earlier.line == report.line && earlier.kernel == report.kernel) {
      ++earlier.count;
      return;
    }
  if (reports_.size() < kLimit) reports_.push_back(std::move(report));
}

std::vector<Report> ReportLog::all() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reports_;
}

size_t ReportLog::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return reports_.size();
}

void ReportLog::clear() {
  std::lock_guard<std::mutex> lock(mutex_);
  reports_.clear();
}

std::string to_json(const std::vector<Report>& reports) {
  std::string text = "[";
  for (const Report& report : reports) {
    if (text.size() > 1) text += ",";
    text += std::string("{\"fault\":\"") + fault_name(report.fault) + "\",\"kernel\":\"" +
            escape(report.kernel) + "\",\"line\":" + std::to_string(report.line) + ",\"instruction\":\"" +
            escape(report.instruction) + "\",\"block\":[" + triple(report.block) + "],\"thread\":[" +
            triple(report.thread) + "],\"count\":" + std::to_string(report.count) + ",\"detail\":\"" +
            escape(report.detail) + "\"}";
  }
  return text + "]";
}

}  // namespace trigen::emulator
