#include "doctor/diagnose.h"

#include <algorithm>

#include "doctor/judge.h"

namespace trigen::doctor {
namespace {

// A driver's finding in the words of the loader, without the advice that ends it.
std::string without(std::string text, const std::string& advice) {
  if (!advice.empty() && llvm::StringRef(text).endswith("; " + advice))
    text.resize(text.size() - advice.size() - 2);
  return text;
}

const char* id_of(DriverState state) {
  switch (state) {
    case DriverState::kReady:
      return "driver.ready";
    case DriverState::kNoLibrary:
      return "driver.none";
    case DriverState::kContainerNoGpu:
      return "driver.container";
    case DriverState::kUnusable:
      return "driver.unusable";
    case DriverState::kTooOld:
      return "driver.too-old";
    case DriverState::kNoDevice:
      return "driver.no-device";
    case DriverState::kMismatch:
      return "driver.mismatch";
    case DriverState::kBroken:
      return "driver.broken";
  }
  return "driver.broken";
}

// CUDA numbers the same device in NVML otherwise; the bus address is common.
const NvmlDevice* nvml_of(const Environment& environment, const DeviceFacts& device) {
  for (const NvmlDevice& each : environment.nvml.devices)
    if (!each.pci.empty() && each.pci == device.pci) return &each;
  return nullptr;
}

// MIG mode without an instance: the GPU is there and CUDA shows nothing.
const NvmlDevice* unsliced(const Environment& environment) {
  for (const NvmlDevice& each : environment.nvml.devices)
    if (each.mig && each.mig_slices == 0) return &each;
  return nullptr;
}

void judge_absence(Judge& judge) {
  const Environment& e = judge.environment;
  const DriverFinding& driver = e.driver;
  const bool absent = driver.state == DriverState::kNoLibrary ||
                      driver.state == DriverState::kContainerNoGpu || driver.state == DriverState::kNoDevice;
  const Severity severity = absent && !judge.question.here ? Severity::kWarning : Severity::kError;
  const std::string why = absent ? "kernels cannot run here; compiling, ranking and emulated devices work"
                                 : "no kernel can run here";
  if (const NvmlDevice* gpu = unsliced(e); gpu != nullptr && driver.state == DriverState::kNoDevice) {
    judge.add(severity, "device.mig-empty", gpu->name,
              "MIG mode is on and no slice exists, so CUDA shows no device", why,
              "have slices made (as root: nvidia-smi mig -cgi 19 -C), or MIG mode switched off (nvidia-smi "
              "-mig 0)");
    return;
  }
  const std::string advice = driver_advice(driver.state, e.machine);
  std::string id = id_of(driver.state);
  if (driver.state == DriverState::kNoDevice || driver.state == DriverState::kBroken)
    for (const DeviceNode& node : e.machine.nodes)
      if (!node.problem.empty() && !e.machine.cuda_visible_set) id = "driver.permission";
  if (driver.state == DriverState::kNoDevice && e.machine.cuda_visible_set) id = "driver.hidden";
  judge.add(severity, id, "driver", without(driver.text, advice), why, advice);
}

}  // namespace

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "note";
}

std::string cuda_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string arch_of(const DeviceInfo& device) {
  return "sm_" + std::to_string(device.major * 10 + device.minor);
}

bool at_least(const std::string& have, int major, int minor) {
  const auto [first, rest] = llvm::StringRef(have).split('.');
  int found_major = 0, found_minor = 0;
  if (first.getAsInteger(10, found_major) || rest.split('.').first.getAsInteger(10, found_minor)) return true;
  return std::make_pair(found_major, found_minor) >= std::make_pair(major, minor);
}

void judge_driver(Judge& judge) {
  const Environment& e = judge.environment;
  const DriverFinding& driver = e.driver;
  if (driver.state != DriverState::kReady) {
    judge_absence(judge);
    return;
  }
  if (driver.emulated) {
    if (judge.question.here)
      judge.add(Severity::kError, "driver.emulated", "driver",
                "TRIGEN_DRIVER names the emulated device: no GPU is used", "it checks kernels, on the CPU",
                "unset TRIGEN_DRIVER");
    return;
  }
  if (!driver.text.empty())
    judge.add(Severity::kError, "device.unreadable", "driver", driver.text, "those devices cannot be used",
              "check nvidia-smi and the kernel log (dmesg | grep NVRM)");
  judge.add(Severity::kNote, "driver.cuda", "driver",
            "nvidia-smi's \"CUDA Version\" is " + cuda_text(driver.cuda_version) +
                ": the newest CUDA that driver " + driver.version + " serves",
            "it says nothing of what is installed, and trigen needs nothing of that version", "");
  if (llvm::StringRef(driver.path).contains("/compat/"))
    judge.add(
        Severity::kNote, "driver.compat", "driver",
        driver.path + " is a forward-compatibility libcuda over kernel module " + e.machine.kernel_driver,
        "NVIDIA supports that on data-center GPUs alone",
        "where CUDA fails with 'forward compatibility was attempted', take its folder off "
        "LD_LIBRARY_PATH");
}

void judge_devices(Judge& judge) {
  for (const DeviceFacts& device : judge.environment.devices) {
    const std::string about = device.info.spec();
    auto target = target_for_capability(device.info.major, device.info.minor);
    if (!target) {
      judge.add(Severity::kWarning, "device.unsupported", about,
                device.info.name + ": " + take_error(target.takeError()).message,
                "no kernel of this version runs on it", "use another device");
      continue;
    }
    if (device.compute_mode == ComputeMode::kProhibited)
      judge.add(Severity::kError, "device.prohibited", about,
                device.info.name + " is in compute mode 'prohibited'",
                "the driver refuses every context on it",
                "as root, on the host: nvidia-smi -i " + std::to_string(device.info.ordinal) +
                    " -c DEFAULT; or hide it with CUDA_VISIBLE_DEVICES");
    if (device.compute_mode == ComputeMode::kExclusive)
      judge.add(
          Severity::kNote, "device.exclusive", about,
          device.info.name + " is in compute mode 'exclusive process'",
          "one process at a time may use it; a second one fails with 'out of memory' or 'unavailable'",
          "where several ranks share a GPU, have it set to DEFAULT (nvidia-smi -c DEFAULT), or use MPS");
    if (llvm::StringRef(device.info.name).contains(" MIG "))
      judge.add(Severity::kNote, "device.mig", about,
                device.info.name + ": a slice with " + std::to_string(device.info.sms) + " multiprocessors",
                "its records are its own: those of the whole GPU count as near",
                "tune on the slice where it matters: trigen tune --device " + about + " ...");
    const NvmlDevice* gpu = nvml_of(judge.environment, device);
    if (gpu == nullptr) continue;
    std::string reasons;
    for (const std::string& reason : gpu->slowdown) reasons += (reasons.empty() ? "" : ", ") + reason;
    if (!reasons.empty())
      judge.add(Severity::kWarning, "device.throttled", about,
                "its clocks are held down now: " + reasons +
                    (gpu->celsius >= 0 ? " (" + std::to_string(gpu->celsius) + " C)" : ""),
                "times measured now are not the device's",
                "nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER; do "
                "not tune meanwhile");
    if (gpu->processes > 0)
      judge.add(Severity::kNote, "device.busy", about,
                std::to_string(gpu->processes) + " other process" + (gpu->processes == 1 ? "" : "es") +
                    " compute on it",
                "kernels run; times measured now are not the device's", "tune while it is idle");
  }
}

std::vector<const Target*> targets_asked(const Environment& environment, const Question& question) {
  if (!question.targets.empty()) return question.targets;
  std::vector<const Target*> list;
  for (const DeviceFacts& device : environment.devices) {
    auto target = target_for_capability(device.info.major, device.info.minor);
    if (!target)
      llvm::consumeError(target.takeError());
    else if (!llvm::is_contained(list, *target))
      list.push_back(*target);
  }
  if (list.empty())
    for (const Target& target : targets()) list.push_back(&target);
  return list;
}

Outcome outcome(const Diagnosis& diagnosis) {
  Outcome so_far = Outcome::kReady;
  for (const Finding& finding : diagnosis.findings) {
    if (finding.severity != Severity::kError) continue;
    if (finding.id != "nvrtc.none" && finding.id != "nvrtc.target") return Outcome::kFailed;
    so_far = Outcome::kNoCompiler;
  }
  return so_far;
}

Diagnosis diagnose(const Environment& environment, const Question& question) {
  Diagnosis diagnosis;
  Judge judge{environment, question, targets_asked(environment, question), diagnosis};
  judge_driver(judge);
  judge_devices(judge);
  judge_compilers(judge);
  judge_torch(judge);
  judge_caches(judge);
  judge_problems(judge);
  judge_surroundings(judge);
  std::stable_sort(diagnosis.findings.begin(), diagnosis.findings.end(),
                   [](const Finding& a, const Finding& b) { return a.severity > b.severity; });
  return diagnosis;
}

}  // namespace trigen::doctor
