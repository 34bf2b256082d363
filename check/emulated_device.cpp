#include "check/emulated_device.h"

#include <dlfcn.h>

#include "generator/error.h"

namespace trigen {

llvm::Expected<EmulatedDevice> EmulatedDevice::of(const Device& device) {
  if (!device.info().emulated) {
    return make_error(ErrorKind::kBadRequest,
                      device.info().name +
                          " has no counters to read; allowed is the emulated device, as in --device "
                          "emulated:sm_70");
  }
  const std::string& path = device.driver().path();
  EmulatedDevice out;
  out.ordinal_ = device.info().ordinal;
  if (void* handle = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD)) {
    const auto find = [&](auto& entry, const char* name) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(::dlsym(handle, name));
    };
    find(out.counters_, "trigen_emulator_counters");
    find(out.reset_, "trigen_emulator_reset_counters");
    find(out.assume_busy_, "trigen_emulator_assume_busy");
    find(out.set_read_only_, "trigen_emulator_set_read_only");
    find(out.forget_, "trigen_emulator_forget");
    ::dlclose(handle);  // the driver keeps it loaded
  }
  if (out.counters_ == nullptr || out.reset_ == nullptr || out.assume_busy_ == nullptr ||
      out.set_read_only_ == nullptr || out.forget_ == nullptr) {
    return make_error(ErrorKind::kDevice,
                      path + " lacks entries of trigen_emulator_*; use the emulated device of this release");
  }
  return out;
}

std::string EmulatedDevice::counters() const {
  std::string text(counters_(ordinal_, nullptr, 0), '\0');
  counters_(ordinal_, text.data(), text.size());
  return text;
}

}  // namespace trigen
