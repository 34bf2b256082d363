#include "check/profile.h"

#include "check/emulated_device.h"
#include "generator/error.h"

namespace trigen {

using nlohmann::ordered_json;

llvm::Expected<std::vector<KernelProfile>> profile(const Plan& plan, Workbench& bench) {
  const Device& device = bench.device();
  auto emulated = EmulatedDevice::of(device);
  if (!emulated) return emulated.takeError();
  auto args = bench.args(0, plan.workspace_bytes());
  if (!args) return args.takeError();
  if (auto error = bench.poison()) return error;
  emulated->reset_counters();
  if (auto error = plan.run(*args, bench.stream())) return error;
  if (auto error = bench.synchronize()) return error;

  const ordered_json all = ordered_json::parse(emulated->counters().c_str(), nullptr, false);
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
