// Facts about the machine that tell apart: no driver, driver without device, container started without GPUs.
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "llvm/ADT/StringExtras.h"
#include "runtime/driver.h"
#include "runtime/paths.h"

namespace trigen {
namespace {

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.03  Release Build ..." -> "580.159.03".
std::string version_in(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef, 16> words;
  text.split(words, ' ', -1, false);
  for (llvm::StringRef word : words) {
    word = word.trim();
    if (word.count('.') >= 1 && word.find_first_not_of("0123456789.") == llvm::StringRef::npos &&
        llvm::isDigit(word.front()))
      return word.str();
  }
  return "";
}

MachineFacts read_machine(llvm::StringRef root) {
  const std::string base = root.rtrim('/').str();
  MachineFacts facts;
  for (int i = 0; i < 64 && !facts.device_nodes; ++i)
    facts.device_nodes = path_exists(base + "/dev/nvidia" + std::to_string(i));
  facts.device_nodes = facts.device_nodes || path_exists(base + "/dev/dxg");
  facts.control_node = path_exists(base + "/dev/nvidiactl");
  const std::string version = read_text(base + "/proc/driver/nvidia/version");
  facts.kernel_module = !version.empty();
  facts.kernel_driver = version_in(llvm::StringRef(version).split('\n').first);
  const std::string groups = read_text(base + "/proc/1/cgroup");
  const std::string environment = read_text(base + "/proc/1/environ");
  facts.container =
      path_exists(base + "/.dockerenv") || path_exists(base + "/run/.containerenv") ||
      path_exists(base + "/.singularity.d") || ::secure_getenv("container") != nullptr ||
      ::secure_getenv("KUBERNETES_SERVICE_HOST") != nullptr ||
      environment.find("container=") != std::string::npos || groups.find("/docker") != std::string::npos ||
      groups.find("kubepods") != std::string::npos || groups.find("libpod") != std::string::npos;
  if (const char* visible = ::secure_getenv("NVIDIA_VISIBLE_DEVICES")) facts.visible = visible;
  if (const char* visible = ::secure_getenv("CUDA_VISIBLE_DEVICES")) {
    facts.cuda_visible = visible;
    facts.cuda_visible_set = true;
  }
  return facts;
}

std::string driver_advice(DriverState state, const MachineFacts& machine) {
  switch (state) {
    case DriverState::kReady:
      return "";
    case DriverState::kContainerNoGpu:
      if (!machine.visible.empty() && machine.visible != "void" && machine.visible != "none")
        return "NVIDIA_VISIBLE_DEVICES=" + machine.visible +
               " is set, but no GPU was passed in: start the container with --gpus all (docker, with the "
               "NVIDIA Container "
               "Toolkit installed on the host) or --device nvidia.com/gpu=all (podman, CDI)";
      return "start the container with --gpus all (docker, with the NVIDIA Container Toolkit installed on "
             "the host) or "
             "--device nvidia.com/gpu=all (podman, CDI)";
    case DriverState::kNoLibrary:
      if (machine.kernel_module || machine.device_nodes)
        return std::string("the kernel module") +
               (machine.kernel_driver.empty() ? "" : " (" + machine.kernel_driver + ")") +
               " is there but libcuda.so.1 is not: in a container set "
               "NVIDIA_DRIVER_CAPABILITIES=compute,utility; on a "
               "host install the driver's libcuda package (Debian: libcuda1), or name the file in "
               "TRIGEN_DRIVER";
      return "install NVIDIA's driver (Debian: nvidia-driver libcuda1), name its libcuda in TRIGEN_DRIVER, "
             "or use "
             "--device emulated:sm_70";
    case DriverState::kUnusable:
      return "this is not a working libcuda.so.1 (a toolkit's stubs folder is for linking only): take it off "
             "the loader "
             "path, or name the real one in TRIGEN_DRIVER";
    case DriverState::kTooOld:
      return "install a driver of branch 470 (CUDA 11.4) or newer";
    case DriverState::kNoDevice:
      if (machine.cuda_visible_set)
        return "CUDA_VISIBLE_DEVICES=\"" + machine.cuda_visible +
               "\" hides devices: unset it, or name one that exists "
               "(nvidia-smi -L)";
      if (!machine.device_nodes)
        return "there is no /dev/nvidia0: load the kernel module (modprobe nvidia, nvidia-modprobe -u) or "
               "use "
               "--device emulated:sm_70";
      return "check nvidia-smi -L; without a GPU use --device emulated:sm_70";
    case DriverState::kMismatch:
      return "libcuda and the kernel module" +
             (machine.kernel_driver.empty() ? std::string() : " (" + machine.kernel_driver + ")") +
             " are of different versions: reboot after a driver update, or remove the cuda-compat library "
             "from the loader path";
    case DriverState::kBroken:
      return "check nvidia-smi and the kernel log (dmesg | grep NVRM)";
  }
  return "";
}

}  // namespace trigen
