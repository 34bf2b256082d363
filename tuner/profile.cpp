#include "tuner/profile.h"

#include <dlfcn.h>

#include "generator/error.h"

namespace trigen {
namespace {

using nlohmann::ordered_json;

// Entries of emulator/emulator_api.h in the driver library that is loaded.
struct CounterApi {
  unsigned long long (*counters)(int device, char* buffer, unsigned long long size) = nullptr;
  void (*reset)(int device) = nullptr;
};

llvm::Expected<CounterApi> counter_api(const Device& device) {
  if (!device.info().emulated) {
    return make_error(ErrorKind::kBadRequest,
                      device.info().name +
                          " has no counters to read; allowed is the emulated device, as in --device "
                          "emulated:sm_70");
  }
  const std::string& path = device.driver().path();
  CounterApi api;
  if (void* handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    api.counters = reinterpret_cast<decltype(api.counters)>(::dlsym(handle, "trigen_emulator_counters"));
    api.reset = reinterpret_cast<decltype(api.reset)>(::dlsym(handle, "trigen_emulator_reset_counters"));
    ::dlclose(handle);  // the driver keeps it loaded
  }
  if (api.counters == nullptr || api.reset == nullptr) {
    return make_error(ErrorKind::kDevice,
                      path + " has no trigen_emulator_counters; use the emulated device of this release");
  }
  return api;
}

}  // namespace

llvm::Expected<std::vector<KernelProfile>> profile(const Plan& plan, Workbench& bench) {
  const Device& device = bench.device();
  auto api = counter_api(device);
  if (!api) return api.takeError();
  auto args = bench.args(0, plan.workspace_bytes());
  if (!args) return args.takeError();
  if (auto error = bench.poison()) return error;
  const int ordinal = device.info().ordinal;
  api->reset(ordinal);
  if (auto error = plan.run(*args, bench.stream())) return error;
  if (auto error = bench.synchronize()) return error;

  std::string text(api->counters(ordinal, nullptr, 0), '\0');
  api->counters(ordinal, text.data(), text.size());
  const ordered_json all = ordered_json::parse(text.c_str(), nullptr, false);
  std::vector<KernelProfile> out;
  for (const Launch& launch : plan.executable().launch_plan().launches) {
    const ordered_json* counters = nullptr;
    if (all.is_object() && all.contains("kernels") && all["kernels"].contains(launch.entry))
      counters = &all["kernels"][launch.entry];
    if (counters == nullptr || counters->value("launches", 0) != 1) {
      return make_error(ErrorKind::kDevice, device.driver().path() + " did not count one launch of " +
                                                launch.entry + "; use the emulated device of this release");
    }
    out.push_back({launch, *counters});
    out.back().counters.erase("launches");
  }
  return out;
}

}  // namespace trigen
