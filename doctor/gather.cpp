#include "doctor/gather.h"

#include <gnu/libc-version.h>
#include <unistd.h>

#include "runtime/compile.h"
#include "runtime/paths.h"

namespace trigen::doctor {

std::string glibc_of_program();  // files.cpp

namespace {

void read_variables(Environment& environment) {
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const auto [name, value] = llvm::StringRef(*entry).split('=');
    if (name.startswith("TRIGEN_") || name.startswith("CUDA_") || name.startswith("NVIDIA_") ||
        name == "SLURM_JOB_ID" || name == "VIRTUAL_ENV" || name == "CONDA_PREFIX" ||
        name == "LD_LIBRARY_PATH")
      environment.variables[name.str()] = value.str();
  }
}

void read_devices(Environment& environment, llvm::StringRef path) {
  auto driver = Driver::load(path);
  if (!driver) {
    llvm::consumeError(driver.takeError());
    return;
  }
  const DriverApi& api = (*driver)->api();
  std::vector<std::string> problems;
  for (DeviceInfo& info : list_devices(**driver, problems)) {
    DeviceFacts device;
    device.info = std::move(info);
    int mode = 0;
    if (api.cuDeviceGetAttribute(&mode, cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_MODE, device.info.ordinal) ==
        cuda::CUDA_SUCCESS)
      device.compute_mode = mode == 2   ? ComputeMode::kProhibited
                            : mode == 3 ? ComputeMode::kExclusive
                                        : ComputeMode::kDefault;
    char pci[32] = {};
    if (!device.info.emulated && api.cuDeviceGetPCIBusId != nullptr &&
        api.cuDeviceGetPCIBusId(pci, sizeof pci - 1, device.info.ordinal) == cuda::CUDA_SUCCESS)
      device.pci = llvm::StringRef(pci).lower();
    environment.devices.push_back(std::move(device));
  }
  for (const std::string& problem : problems)
    environment.driver.text += (environment.driver.text.empty() ? "" : "; ") + problem;
}

std::vector<CachedCode> cached_code(Store& store) {
  std::map<std::pair<std::string, std::string>, int64_t> counts;
  for (const BinaryInfo& binary : store.list_binaries()) ++counts[{binary.key.compiler, binary.key.arch}];
  std::vector<CachedCode> list;
  list.reserve(counts.size());
  for (const auto& [key, count] : counts) list.push_back({key.first, key.second, count});
  return list;
}

// The cache's code for a record, or for a candidate that some plan would take.
bool has_binary(const Problem& problem, const Target& target, const Record& record, Store& store) {
  auto candidate = parse_candidate(problem, target, record.candidate);
  if (!candidate) {
    llvm::consumeError(candidate.takeError());
    return false;
  }
  const std::string hash = render(*candidate).hash;
  return store.find_binary_any_compiler(hash, target.name) ||
         store.find_binary_any_compiler(hash, "compute" + target.name.drop_front(2).str());
}

}  // namespace

Environment gather(Store& store, llvm::StringRef driver) {
  Environment environment;
  environment.trigen = TRIGEN_VERSION_TEXT;
  read_variables(environment);
  environment.driver = probe_driver(driver);
  if (environment.driver.state == DriverState::kReady) read_devices(environment, driver);
  if (!environment.driver.emulated) environment.nvml = ask_nvml();
  read_files(environment, "/");  // after the driver, which keeps the devices open
  environment.glibc = ::gnu_get_libc_version();
  environment.glibc_needed = glibc_of_program();
  environment.emulator = find_emulator();
  environment.nvrtc = list_nvrtc();
  environment.torch = find_torch(python_sites());
  environment.caches = store.layers();
  environment.cached = cached_code(store);
  environment.no_jit = no_jit_from_environment();
  environment.no_cache = is_no_cache({});
  return environment;
}

std::vector<ProblemFacts> look_up(const Environment& environment, llvm::ArrayRef<Problem> problems,
                                  llvm::ArrayRef<const Target*> targets, Store& store) {
  std::vector<ProblemFacts> list;
  for (const Target* target : targets) {
    const DeviceInfo none;
    const DeviceInfo* device = &none;
    for (const DeviceFacts& each : environment.devices)
      if (device == &none && each.info.major * 10 + each.info.minor == target->compute_capability)
        device = &each.info;
    for (const Problem& problem : problems) {
      ProblemFacts facts;
      facts.problem = to_string(problem);
      facts.target = target->name.str();
      facts.match = "none";
      if (auto found =
              store.find_record(facts.problem, {target->name}, {device->name, device->sms, device->driver})) {
        facts.difference = device == &none ? "" : found->difference;
        facts.candidate = found->record.candidate;
        facts.provenance = found->record.provenance == Provenance::kMeasured ? "measured" : "predicted";
        facts.match = found->match == Match::kExact && device != &none ? "exact"
                      : facts.provenance == "predicted"                ? "predicted"
                                                                       : "near";
        facts.layer = found->layer;
        facts.binary = has_binary(problem, *target, found->record, store);
      }
      list.push_back(std::move(facts));
    }
  }
  return list;
}

}  // namespace trigen::doctor
