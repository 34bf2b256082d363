// Contents of the messages: a program's own types as JSON values. Both ends are one program of one version.
#pragma once

#include <nlohmann/json.hpp>

#include "cache/store.h"
#include "generator/error.h"
#include "runtime/device.h"
#include "tuner/bench.h"

namespace trigen::worker {

nlohmann::json to_json(const DeviceInfo& info);
DeviceInfo device_info_from(const nlohmann::json& value);
// All of a binary but its source.
nlohmann::json to_json(const Binary& binary);
Binary binary_from(const nlohmann::json& value);
nlohmann::json to_json(const Trial& trial);
Trial trial_from(const nlohmann::json& value);
// {"error": text, "kind": number}; success is {}.
nlohmann::json to_json(llvm::Error error);
llvm::Error error_from(const nlohmann::json& value);

}  // namespace trigen::worker
