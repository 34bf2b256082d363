#include "emulator/emulator_api.h"

#include <algorithm>
#include <cstring>

#include "emulator/driver.h"

using namespace trigen::emulator;

namespace {

unsigned long long give_text(const std::string& text, char* buffer, unsigned long long size) {
  if (buffer != nullptr && size > 0) {
    unsigned long long length = std::min<unsigned long long>(text.size(), size - 1);
    std::memcpy(buffer, text.data(), length);
    buffer[length] = 0;
  }
  return text.size() + 1;
}

Allocation* live_allocation(uint64_t address, Device** device) {
  *device = driver().device_of_address(address);
  Allocation* allocation = *device != nullptr ? (*device)->memory->find(address) : nullptr;
  return allocation == nullptr || allocation->freed || address >= allocation->end() ? nullptr : allocation;
}

}  // namespace

TRIGEN_ENTRY int trigen_emulator_configure(const char* options) try {
  std::lock_guard lock(driver().mutex);
  Driver& state = driver();
  Options changed = state.options;
  std::string error = apply_options(options != nullptr ? options : "", &changed);
  bool rebuild = changed.target != state.options.target || changed.devices != state.options.devices;
  if (error.empty() && rebuild && state.initialised) {
    for (auto& device : state.devices)
      if (device->primary.retained > 0 || !state.modules.empty() || device->memory->used() != 0)
        error = "target and devices cannot change while a context, a module or an allocation lives";
  }
  if (!error.empty()) {
    fail(trigen::cuda::CUDA_ERROR_INVALID_VALUE, error);
    return -1;
  }
  if (rebuild && state.initialised) {
    state.devices.clear();
    state.initialised = false;
    state.options = changed;
    return trigen::cuda::cuInit(0) == trigen::cuda::CUDA_SUCCESS ? 0 : -1;
  }
  state.options = changed;
  return 0;
} catch (...) {
  caught();
  return -1;
}

TRIGEN_ENTRY const char* trigen_emulator_last_error(void) { return thread_state().error.c_str(); }

TRIGEN_ENTRY unsigned long long trigen_emulator_counters(int ordinal, char* buffer,
                                                         unsigned long long size) try {
  std::lock_guard lock(driver().mutex);
  Device* device = driver().device(ordinal);
  if (device == nullptr) return 0;
  uint64_t launches = 0;
  std::string kernels;
  for (const auto& [name, entry] : device->counters) {
    launches += entry.first;
    std::string object = to_json(entry.second);
    object.insert(1, "\"launches\":" + std::to_string(entry.first) + ",");
    kernels.append(kernels.empty() ? "\"" : ",\"").append(name).append("\":").append(object);
  }
  return give_text("{\"launches\":" + std::to_string(launches) + ",\"kernels\":{" + kernels + "}}", buffer,
                   size);
} catch (...) {
  caught();
  return 0;
}

TRIGEN_ENTRY void trigen_emulator_reset_counters(int ordinal) {
  std::lock_guard lock(driver().mutex);
  if (Device* device = driver().device(ordinal)) device->counters.clear();
}

TRIGEN_ENTRY unsigned long long trigen_emulator_reports(int ordinal, char* buffer,
                                                        unsigned long long size) try {
  std::lock_guard lock(driver().mutex);
  Device* device = driver().device(ordinal);
  return device != nullptr ? give_text(to_json(device->log.all()), buffer, size) : 0;
} catch (...) {
  caught();
  return 0;
}

TRIGEN_ENTRY void trigen_emulator_clear_reports(int ordinal) {
  std::lock_guard lock(driver().mutex);
  Device* device = driver().device(ordinal);
  if (device == nullptr) return;
  device->log.clear();
  device->primary.sticky = trigen::cuda::CUDA_SUCCESS;
}

TRIGEN_ENTRY int trigen_emulator_assume_busy(int ordinal) {
  std::lock_guard lock(driver().mutex);
  Device* device = driver().device(ordinal);
  if (device == nullptr) return -1;
  device->running.anything = true;
  return 0;
}

TRIGEN_ENTRY int trigen_emulator_set_read_only(unsigned long long address, int read_only) {
  std::lock_guard lock(driver().mutex);
  Device* device = nullptr;
  Allocation* allocation = live_allocation(address, &device);
  if (allocation == nullptr) return -1;
  allocation->read_only = read_only != 0;
  return 0;
}

TRIGEN_ENTRY int trigen_emulator_forget(unsigned long long address, unsigned long long bytes) {
  std::lock_guard lock(driver().mutex);
  Device* device = nullptr;
  Allocation* allocation = live_allocation(address, &device);
  if (allocation == nullptr || bytes > allocation->end() - address) return -1;
  if (allocation->whole) {
    std::memset(device->memory->written(allocation->base), 1, allocation->bytes);
    allocation->whole = false;
  }
  std::memset(device->memory->written(address), 0, bytes);
  return 0;
}
