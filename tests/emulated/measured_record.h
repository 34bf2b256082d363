// Records as a tune on the device would leave them, and layers with them: what an image or a bundle brings.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "runtime/device.h"
#include "tests/unit/cache_testing.h"

namespace trigen::testing {

inline Record measured_record(const Candidate& candidate, const Device& device) {
  Record record;
  record.problem = to_string(candidate.problem);
  record.arch = candidate.target->name.str();
  record.device = device.info().name;
  record.sms = device.info().sms;
  record.driver = device.info().driver;
  record.candidate = describe(candidate);
  record.provenance = Provenance::kMeasured;
  record.median_us = 12.5;
  return record;
}

// This kernel, and a record that chooses it for the candidate's problem on this device.
inline void ship(const std::string& layer, const Candidate& candidate, const Binary& binary,
                 const Device& device) {
  const OpenStore maker = open_store({layer});
  ASSERT_EQ(message(maker->put_binary(binary)), "");
  Record record = measured_record(candidate, device);
  record.binary = binary.key;
  ASSERT_EQ(message(maker->put_record(record)), "");
}

}  // namespace trigen::testing
