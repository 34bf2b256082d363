#include "doctor/environment.h"

#include <type_traits>
#include <utility>

#include "llvm/ADT/Twine.h"
#include "runtime/json.h"

namespace trigen::doctor {
namespace {

using nlohmann::json;

// One list of fields a structure for both directions: `visit(key, member)`.
template <typename Visit>
void fields(Visit visit, DeviceNode& v) {
  visit("path", v.path);
  visit("mode", v.mode);
  visit("problem", v.problem);
}
template <typename Visit>
void fields(Visit visit, MachineFacts& v) {
  visit("device_nodes", v.device_nodes);
  visit("control_node", v.control_node);
  visit("kernel_module", v.kernel_module);
  visit("container", v.container);
  visit("runs_in", v.runs_in);
  visit("wsl", v.wsl);
  visit("nodes", v.nodes);
  visit("kernel_driver", v.kernel_driver);
  visit("visible", v.visible);
  visit("cuda_visible", v.cuda_visible);
  visit("cuda_visible_set", v.cuda_visible_set);
}
template <typename Visit>
void fields(Visit visit, DriverFinding& v) {
  visit("state", v.state);
  visit("path", v.path);
  visit("version", v.version);
  visit("cuda_version", v.cuda_version);
  visit("device_count", v.device_count);
  visit("emulated", v.emulated);
  visit("problem", v.text);
}
template <typename Visit>
void fields(Visit visit, DeviceFacts& v) {
  visit("ordinal", v.info.ordinal);
  visit("name", v.info.name);
  visit("major", v.info.major);
  visit("minor", v.info.minor);
  visit("sms", v.info.sms);
  visit("memory_bytes", v.info.memory_bytes);
  visit("l2_bytes", v.info.l2_bytes);
  visit("emulated", v.info.emulated);
  visit("pci", v.pci);
  visit("compute_mode", v.compute_mode);
}
template <typename Visit>
void fields(Visit visit, NvmlDevice& v) {
  visit("name", v.name);
  visit("pci", v.pci);
  visit("mig", v.mig);
  visit("mig_slices", v.mig_slices);
  visit("celsius", v.celsius);
  visit("processes", v.processes);
  visit("slowdown", v.slowdown);
}
template <typename Visit>
void fields(Visit visit, NvmlFacts& v) {
  visit("path", v.path);
  visit("driver", v.driver);
  visit("cuda_version", v.cuda_version);
  visit("problem", v.problem);
  visit("devices", v.devices);
}
template <typename Visit>
void fields(Visit visit, NvrtcFinding& v) {
  visit("path", v.file.path);
  visit("origin", v.file.origin);
  visit("major", v.file.major);
  visit("minor", v.file.minor);
  visit("version", v.version);
  visit("archs", v.archs);
  visit("problem", v.problem);
}
template <typename Visit>
void fields(Visit visit, TorchFacts& v) {
  visit("path", v.path);
  visit("version", v.version);
  visit("cuda", v.cuda);
  visit("archs", v.archs);
}
template <typename Visit>
void fields(Visit visit, LayerInfo& v) {
  visit("path", v.path);
  visit("exists", v.exists);
  visit("writable", v.writable);
  visit("user_layer", v.user_layer);
  visit("problem", v.problem);
  visit("note", v.note);
  visit("records", v.records);
  visit("binaries", v.binaries);
  visit("bytes", v.bytes);
}
template <typename Visit>
void fields(Visit visit, CachedCode& v) {
  visit("compiler", v.compiler);
  visit("arch", v.arch);
  visit("binaries", v.binaries);
}
template <typename Visit>
void fields(Visit visit, ProblemFacts& v) {
  visit("problem", v.problem);
  visit("target", v.target);
  visit("match", v.match);
  visit("difference", v.difference);
  visit("candidate", v.candidate);
  visit("provenance", v.provenance);
  visit("layer", v.layer);
  visit("binary", v.binary);
}
template <typename Visit>
void fields(Visit visit, Environment& v) {
  visit("trigen", v.trigen);
  visit("machine", v.machine);
  visit("glibc", v.glibc);
  visit("glibc_needed", v.glibc_needed);
  visit("variables", v.variables);
  visit("driver", v.driver);
  visit("devices", v.devices);
  visit("nvml", v.nvml);
  visit("emulator", v.emulator);
  visit("toolkits", v.toolkits);
  visit("nvrtc", v.nvrtc);
  visit("torch", v.torch);
  visit("caches", v.caches);
  visit("cached", v.cached);
  visit("problems", v.problems);
  visit("no_jit", v.no_jit);
  visit("no_cache", v.no_cache);
  visit("bundles_alone", v.bundles_alone);
}

template <typename T>
concept HasFields = requires(T& value) {
  fields([](const char*, auto&) {}, value);
};

constexpr std::pair<const char*, DriverState> kStates[] = {{"ready", DriverState::kReady},
                                                           {"no library", DriverState::kNoLibrary},
                                                           {"container", DriverState::kContainerNoGpu},
                                                           {"unusable", DriverState::kUnusable},
                                                           {"too old", DriverState::kTooOld},
                                                           {"no device", DriverState::kNoDevice},
                                                           {"mismatch", DriverState::kMismatch},
                                                           {"broken", DriverState::kBroken}};
constexpr std::pair<const char*, ComputeMode> kModes[] = {{"default", ComputeMode::kDefault},
                                                          {"prohibited", ComputeMode::kProhibited},
                                                          {"exclusive", ComputeMode::kExclusive}};

template <typename T>
struct Names;
template <>
struct Names<DriverState> {
  static constexpr auto& table = kStates;
};
template <>
struct Names<ComputeMode> {
  static constexpr auto& table = kModes;
};

template <typename T>
constexpr bool kIsList = false;
template <typename T>
constexpr bool kIsList<std::vector<T>> = true;

template <typename T>
json write(T& value) {
  if constexpr (HasFields<T>) {
    json out = json::object();
    fields([&](const char* key, auto& member) { out[key] = write(member); }, value);
    return out;
  } else if constexpr (std::is_enum_v<T>) {
    for (const auto& [name, known] : Names<T>::table)
      if (known == value) return name;
    return "";
  } else if constexpr (kIsList<T>) {
    json out = json::array();
    for (auto& each : value) out.push_back(write(each));
    return out;
  } else {
    return value;
  }
}

// The first thing that does not fit, with the way to it: "devices.0.sms is no number".
class Reader {
 public:
  template <typename T>
  void read(const json& in, T& value, const std::string& at) {
    if constexpr (HasFields<T>) {
      if (!in.is_object()) return refuse(at, "an object");
      std::map<std::string, bool> known;
      fields(
          [&](const char* key, auto& member) {
            known[key] = true;
            if (const auto found = in.find(key); found != in.end())
              read(*found, member, at.empty() ? key : at + "." + key);
          },
          value);
      for (const auto& [key, unused] : in.items())
        if (known.count(key) == 0 && error_.empty())
          error_ = (llvm::Twine("unknown key '") + (at.empty() ? "" : at + ".") + key + "'").str();
    } else if constexpr (std::is_enum_v<T>) {
      std::string allowed;
      for (const auto& [name, known] : Names<T>::table) {
        if (in.is_string() && in.get<std::string>() == name) return void(value = known);
        if (!allowed.empty()) allowed += ", ";
        allowed += name;
      }
      refuse(at, "one of " + allowed);
    } else if constexpr (std::is_same_v<T, std::map<std::string, std::string>>) {
      if (!in.is_object()) return refuse(at, "an object");
      for (const auto& [key, text] : in.items()) read(text, value[key], at + "." + key);
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (!in.is_string()) return refuse(at, "a text");
      value = in.get<std::string>();
    } else if constexpr (std::is_same_v<T, bool>) {
      if (!in.is_boolean()) return refuse(at, "true or false");
      value = in.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      if (!in.is_number_integer()) return refuse(at, "a whole number");
      value = in.get<T>();
    } else {
      if (!in.is_array()) return refuse(at, "a list");
      value.clear();
      for (size_t i = 0; i < in.size(); ++i) {
        value.emplace_back();
        read(in[i], value.back(), at + "." + std::to_string(i));
      }
    }
  }
  const std::string& error() const { return error_; }

 private:
  void refuse(const std::string& at, const std::string& allowed) {
    if (error_.empty()) error_ = "'" + at + "' must be " + allowed;
  }
  std::string error_;
};

}  // namespace

std::string to_json(const Environment& environment) {
  Environment copy = environment;  // the visitors take members to read and to write
  return write(copy).dump(2, ' ', true, json::error_handler_t::replace);
}

llvm::Expected<Environment> from_json(llvm::StringRef text) {
  json in = read_json(text);
  if (in.is_object() && in.contains("environment")) in = json(in["environment"]);
  if (in.is_null())
    return make_error(ErrorKind::kBadRequest,
                      "the environment is no JSON of at most 1 MiB; `trigen doctor --json` writes one");
  Environment environment;
  Reader reader;
  reader.read(in, environment, "");
  if (!reader.error().empty())
    return make_error(ErrorKind::kBadRequest,
                      "environment: " + reader.error() + "; `trigen doctor --json` writes one that is right");
  // A recording names versions once.
  for (NvrtcFinding& found : environment.nvrtc) {
    if (found.file.major != 0 || found.version.empty()) continue;
    llvm::SmallVector<llvm::StringRef, 4> parts;
    llvm::StringRef(found.version).split(parts, '.');
    if (parts.size() < 2 || parts[0].getAsInteger(10, found.file.major) ||
        parts[1].getAsInteger(10, found.file.minor))
      return make_error(ErrorKind::kBadRequest, "environment: nvrtc version '" + found.version +
                                                    "'; allowed are texts such as 12.9.86");
  }
  for (DeviceFacts& device : environment.devices) device.info.driver = environment.driver.version;
  return environment;
}

}  // namespace trigen::doctor
