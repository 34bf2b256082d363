#include "runtime/device.h"

#include <map>
#include <mutex>

#include "generator/names.h"
#include "llvm/ADT/StringExtras.h"

namespace trigen {

using namespace cuda;

namespace {

// How much of the pin rate a long copy reaches: 4.25 TB/s of 4.92 TB/s on an H200 (driver 580).
constexpr double kCopyShareOfPeak = 0.86;

int read_attribute(const DriverApi& api, CUdevice device, CUdevice_attribute which) {
  int value = 0;
  return api.cuDeviceGetAttribute(&value, which, device) == CUDA_SUCCESS ? value : 0;
}

llvm::Expected<DeviceInfo> read_info(const Driver& driver, int ordinal) {
  const DriverApi& api = driver.api();
  DeviceInfo info;
  info.ordinal = ordinal;
  info.driver = driver.version();
  info.emulated = driver.emulated();
  CUdevice device = 0;
  if (llvm::Error error = driver.check(api.cuDeviceGet(&device, ordinal), "cuDeviceGet")) return error;
  char name[256] = {};
  if (llvm::Error error = driver.check(api.cuDeviceGetName(name, sizeof name - 1, device), "cuDeviceGetName"))
    return error;
  info.name = name;
  size_type bytes = 0;
  api.cuDeviceTotalMem(&bytes, device);
  info.memory_bytes = static_cast<int64_t>(bytes);
  const auto attribute = [&](CUdevice_attribute which) { return read_attribute(api, device, which); };
  info.major = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  info.minor = attribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  info.sms = attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  info.bus_bits = attribute(CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
  info.l2_bytes = attribute(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
  info.max_shared_per_block = attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
  char pci[32];
  std::snprintf(pci, sizeof pci, "%04x:%02x:%02x.0", attribute(CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID),
                attribute(CU_DEVICE_ATTRIBUTE_PCI_BUS_ID), attribute(CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID));
  info.pci = pci;
  return info;
}

}  // namespace

// Devices live as long as the process: plans and callers keep plain pointers to them.
struct DeviceTable {
  std::mutex mutex;
  std::map<std::pair<const Driver*, int>, std::unique_ptr<Device>> devices;
  std::map<std::pair<const Driver*, int>, CUcontext> primary;

  static DeviceTable& get() {
    static DeviceTable* const table = new DeviceTable;
    return *table;
  }

  llvm::Expected<const Device*> open(const Driver& driver, int ordinal) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<Device>& device = devices[{&driver, ordinal}];
    if (device) return device.get();
    auto info = read_info(driver, ordinal);
    if (!info) return info.takeError();
    auto target = target_for_capability(info->major, info->minor);
    if (!target)
      return with_prefix(target.takeError(), "device " + std::to_string(ordinal) + " (" + info->name + ")");
    device = std::make_unique<Device>();
    device->driver_ = &driver;
    device->info_ = *info;
    device->target_ = *target;
    return device.get();
  }
};

std::string DeviceInfo::spec() const {
  if (emulated) return "emulated:sm_" + std::to_string(major * 10 + minor);
  return "cuda:" + std::to_string(ordinal);
}

llvm::Expected<const Device*> Device::open(const Driver& driver, int ordinal) {
  if (ordinal < 0 || ordinal >= driver.device_count())
    return make_error(
        ErrorKind::kBadRequest,
        "device " + std::to_string(ordinal) + " does not exist: this driver shows " +
            (driver.device_count() == 1 ? std::string("device 0 only")
                                        : "devices 0 to " + std::to_string(driver.device_count() - 1)));
  return DeviceTable::get().open(driver, ordinal);
}

llvm::Expected<const Device*> Device::open(llvm::StringRef spec) {
  const std::string given = spec.trim().str();
  llvm::StringRef text = given;
  if (text.consume_front("emulated:")) {
    if (text.find_if([](char c) { return !llvm::isAlnum(c) && c != '_'; }) != llvm::StringRef::npos)
      return make_error(
          ErrorKind::kBadRequest,
          quoted(given) + " is not a device: after emulated: comes one target, as in emulated:sm_70");
    auto driver = Driver::load_emulated(text);
    if (!driver) return driver.takeError();
    return open(**driver, 0);
  }
  if (text.consume_front("cuda:") && text.empty()) text = "?";
  int ordinal = -1;
  const bool automatic = text.empty() || text == "auto" || text == "cuda";
  if (!automatic && (text.getAsInteger(10, ordinal) || ordinal < 0))
    return make_error(
        ErrorKind::kBadRequest,
        "'" + given + "' is not a device: write a CUDA ordinal (0, cuda:1), auto, or emulated:sm_70");
  auto driver = Driver::load();
  if (!driver) return driver.takeError();
  if (!automatic) return open(**driver, ordinal);
  CUdevice current = 0;
  CUcontext context = nullptr;
  const DriverApi& api = (*driver)->api();
  if (api.cuCtxGetCurrent(&context) == CUDA_SUCCESS && context != nullptr &&
      api.cuCtxGetDevice(&current) == CUDA_SUCCESS)
    return open(**driver, current);
  return open(**driver, 0);
}

llvm::Expected<std::unique_ptr<const Device>> Device::describe(const DeviceInfo& info) {
  auto target = target_for_capability(info.major, info.minor);
  if (!target) return target.takeError();
  auto device = std::make_unique<Device>();
  device->info_ = info;
  device->target_ = *target;
  return device;
}

const DeviceInfo& Device::info_with_clocks() const {
  std::call_once(clocks_asked_, [this] {
    with_clocks_ = info_;
    CUdevice device = 0;
    if (driver_ == nullptr || api().cuDeviceGet(&device, info_.ordinal) != CUDA_SUCCESS) return;
    const auto hz = [&](CUdevice_attribute which) { return read_attribute(api(), device, which) * 1e3; };
    with_clocks_.clock_hz = hz(CU_DEVICE_ATTRIBUTE_CLOCK_RATE);  // kHz
    with_clocks_.memory_clock_hz = hz(CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
  });
  return with_clocks_;
}

// An emulated device has the shape of its target's model device.
const Target& Device::gpu() const {
  return info_.emulated ? *target_ : gpu_named_by_driver(info_.name, *target_);
}

DeviceModel Device::model() const {
  DeviceModel model = model_of(gpu());
  if (info_.sms > 0) model.sms = info_.sms;
  if (model.gpu != target_ || info_.emulated) return model;
  const DeviceInfo& info = info_with_clocks();
  if (info.clock_hz > 0) model.clock_hz = info.clock_hz;
  if (info.l2_bytes > 0) model.l2_bytes = info.l2_bytes;
  // Both edges of the memory clock carry data.
  const double peak = 2.0 * info.memory_clock_hz * info.bus_bits / 8;
  if (peak > 0) model.dram_bytes_per_s = kCopyShareOfPeak * peak;
  return model;
}

namespace {
// sm_90a, sm_100a: code that runs on exactly its own capability.
bool is_specific(const Target& target) { return target.name.endswith("a") || target.name.endswith("f"); }
}  // namespace

bool Device::runs_cubin_of(const Target& target) const {
  if (info_.emulated) return false;
  const int own = info_.major * 10 + info_.minor;
  if (is_specific(target)) return target.compute_capability == own;
  return target.compute_capability / 10 == info_.major && target.compute_capability <= own;
}

bool Device::runs_ptx_of(const Target& target) const {
  const int own = info_.major * 10 + info_.minor;
  return is_specific(target) ? target.compute_capability == own : target.compute_capability <= own;
}

llvm::Expected<CUcontext> Device::context() const {
  CUcontext current = nullptr;
  CUdevice device = 0;
  if (api().cuCtxGetCurrent(&current) == CUDA_SUCCESS && current != nullptr &&
      api().cuCtxGetDevice(&device) == CUDA_SUCCESS && device == info_.ordinal)
    return current;
  DeviceTable& table = DeviceTable::get();
  const std::lock_guard<std::mutex> lock(table.mutex);
  CUcontext& primary = table.primary[{driver_, info_.ordinal}];
  if (primary == nullptr) {
    if (llvm::Error error = driver_->check(
            api().cuDevicePrimaryCtxRetain(&primary, info_.ordinal), "cuDevicePrimaryCtxRetain",
            "the device may be in exclusive mode or out of memory: check nvidia-smi")) {
      primary = nullptr;
      return error;
    }
  }
  return primary;
}

std::vector<DeviceInfo> list_devices(const Driver& driver, std::vector<std::string>& problems) {
  std::vector<DeviceInfo> devices;
  for (int ordinal = 0; ordinal < driver.device_count(); ++ordinal) {
    auto info = read_info(driver, ordinal);
    if (info) {
      devices.push_back(*info);
    } else {
      const std::string text = take_error(info.takeError()).message;
      problems.push_back("device " + std::to_string(ordinal) + ": " + text);
    }
  }
  return devices;
}

}  // namespace trigen
