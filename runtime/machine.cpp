// Facts about the machine that tell apart: no driver, driver without device, container started without GPUs.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cache/host.h"

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

// Permissions of a node say less than an attempt: control groups and namespaces refuse on their own.
std::string refusal_of(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return cache::errno_text(errno);
  ::close(descriptor);
  return "";
}

void read_nodes(const std::string& base, MachineFacts& facts) {
  for (const std::string& name : list_directory(base + "/dev")) {
    const llvm::StringRef number = llvm::StringRef(name).drop_front(std::min<size_t>(name.size(), 6));
    const bool gpu = llvm::StringRef(name).startswith("nvidia") && !number.empty() &&
                     llvm::all_of(number, [](char c) { return llvm::isDigit(c); });
    if (!gpu && name != "nvidiactl" && name != "nvidia-uvm" && name != "dxg") continue;
    DeviceNode node;
    node.path = "/dev/" + name;
    struct stat status {};
    if (::stat((base + node.path).c_str(), &status) == 0) {
      char text[64];
      std::snprintf(text, sizeof text, "%04o %u:%u", static_cast<unsigned>(status.st_mode & 07777),
                    status.st_uid, status.st_gid);
      node.mode = text;
    }
    node.problem = refusal_of(base + node.path);
    facts.device_nodes = facts.device_nodes || gpu || name == "dxg";
    facts.control_node = facts.control_node || name == "nvidiactl";
    facts.nodes.push_back(std::move(node));
  }
}

std::string host_of(const std::string& base, const std::string& environment, const std::string& groups) {
  if (::secure_getenv("KUBERNETES_SERVICE_HOST") != nullptr || groups.find("kubepods") != std::string::npos)
    return "kubernetes";
  if (path_exists(base + "/.singularity.d") || ::secure_getenv("APPTAINER_CONTAINER") != nullptr)
    return "apptainer";
  if (path_exists(base + "/run/.containerenv") || environment.find("container=podman") != std::string::npos ||
      groups.find("libpod") != std::string::npos)
    return "podman";
  if (path_exists(base + "/.dockerenv") || groups.find("/docker") != std::string::npos) return "docker";
  return ::secure_getenv("SLURM_JOB_ID") != nullptr ? "slurm" : "";
}

// The way to bring a GPU into the container or machine that this process runs in.
std::string way_in(const std::string& runs_in) {
  if (runs_in == "podman")
    return "start the container with --device nvidia.com/gpu=all (podman, CDI: nvidia-ctk cdi generate on "
           "the host)";
  if (runs_in == "kubernetes")
    return "ask for one in the pod: resources: {limits: {nvidia.com/gpu: 1}} (the node needs NVIDIA's device "
           "plugin)";
  if (runs_in == "apptainer") return "start the container with apptainer exec --nv";
  return "start the container with --gpus all or --gpus '\"device=0\"' (docker with the NVIDIA Container "
         "Toolkit; --gpus 0 gives none) or --device nvidia.com/gpu=all (podman, CDI)";
}

const DeviceNode* closed_node(const MachineFacts& machine) {
  for (const DeviceNode& node : machine.nodes)
    if (!node.problem.empty()) return &node;
  return nullptr;
}

bool has_node(const MachineFacts& machine, llvm::StringRef path) {
  return llvm::any_of(machine.nodes, [&](const DeviceNode& node) { return node.path == path; });
}

// Volta's last driver branch is 580 (NVIDIA, "Data Center Drivers", 2025).
bool dropped_volta(const std::string& kernel_driver) {
  int branch = 0;
  return !llvm::StringRef(kernel_driver).split('.').first.getAsInteger(10, branch) && branch > 580;
}

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

}  // namespace

// Version of the kernel module; "" without one. Opens no device, unlike read_machine.
std::string kernel_driver_version(const std::string& base) {
  const std::string text = read_text(base + "/proc/driver/nvidia/version");
  return version_in(llvm::StringRef(text).split('\n').first);
}

MachineFacts read_machine(llvm::StringRef root) {
  const std::string base = root.rtrim('/').str();
  MachineFacts facts;
  read_nodes(base, facts);
  facts.kernel_module = path_exists(base + "/proc/driver/nvidia/version");
  facts.kernel_driver = kernel_driver_version(base);
  const std::string groups = read_text(base + "/proc/1/cgroup");
  const std::string environment = read_text(base + "/proc/1/environ");
  facts.container =
      path_exists(base + "/.dockerenv") || path_exists(base + "/run/.containerenv") ||
      path_exists(base + "/.singularity.d") || ::secure_getenv("container") != nullptr ||
      ::secure_getenv("KUBERNETES_SERVICE_HOST") != nullptr ||
      environment.find("container=") != std::string::npos || groups.find("/docker") != std::string::npos ||
      groups.find("kubepods") != std::string::npos || groups.find("libpod") != std::string::npos;
  facts.runs_in = host_of(base, environment, groups);
  facts.wsl = read_text(base + "/proc/sys/kernel/osrelease").find("icrosoft") != std::string::npos;
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
      if (machine.visible == "void" || machine.visible == "none")
        return "NVIDIA_VISIBLE_DEVICES=" + machine.visible + " asks for no GPU: " + way_in(machine.runs_in);
      if (!machine.visible.empty())
        return "NVIDIA_VISIBLE_DEVICES=" + machine.visible +
               " is set, but no GPU was passed in: " + way_in(machine.runs_in);
      return way_in(machine.runs_in);
    case DriverState::kNoLibrary:
      if (machine.wsl)
        return "install NVIDIA's Windows driver, which brings /usr/lib/wsl/lib/libcuda.so.1 (no driver goes "
               "into WSL itself), then: wsl --update, wsl --shutdown";
      if (machine.kernel_module || machine.device_nodes)
        return std::string("the kernel module") +
               (machine.kernel_driver.empty() ? "" : " (" + machine.kernel_driver + ")") +
               " is there but libcuda.so.1 is not: in a container set "
               "NVIDIA_DRIVER_CAPABILITIES=compute,utility; on a "
               "host install the driver's libcuda package (Debian: libcuda1), or name the file in "
               "TRIGEN_DRIVER";
      return "install NVIDIA's driver (Debian: nvidia-driver libcuda1), name its libcuda in TRIGEN_DRIVER, "
             "or set TRIGEN_DRIVER=emulated:sm_70";
    case DriverState::kUnusable:
      return "this is not a working libcuda.so.1 (a toolkit's stubs folder is for linking only): take it off "
             "the loader "
             "path, or name the real one in TRIGEN_DRIVER";
    case DriverState::kTooOld:
      return "install a driver of branch 470 (CUDA 11.4) or newer";
    case DriverState::kNoDevice:
      if (machine.cuda_visible_set)
        return "CUDA_VISIBLE_DEVICES=\"" + machine.cuda_visible +
               "\" hides devices: unset it, or name one that exists (nvidia-smi -L)";
      if (machine.runs_in == "slurm" && !machine.device_nodes)
        return "this job has no GPU: ask for one with srun --gres=gpu:1 (or --gpus=1)";
      if (const DeviceNode* node = closed_node(machine))
        return node->path + " (" + node->mode + ") cannot be opened: " + node->problem +
               "; ask whoever runs this machine to let your user (group) read and write it";
      if (!machine.device_nodes)
        return "there is no /dev/nvidia0: load the kernel module (modprobe nvidia, nvidia-modprobe -u) or "
               "set TRIGEN_DRIVER=emulated:sm_70";
      if (dropped_volta(machine.kernel_driver))
        return "check nvidia-smi -L; a V100 and older GPUs need driver branch 580, the last one that serves "
               "them (" +
               machine.kernel_driver + " is here)";
      return "check nvidia-smi -L; without a GPU set TRIGEN_DRIVER=emulated:sm_70";
    case DriverState::kMismatch:
      return "libcuda and the kernel module" +
             (machine.kernel_driver.empty() ? std::string() : " (" + machine.kernel_driver + ")") +
             " are of different versions: reboot after a driver update, or remove the cuda-compat library "
             "from the loader path";
    case DriverState::kBroken:
      if (const DeviceNode* node = closed_node(machine))
        return node->path + " (" + node->mode + ") cannot be opened: " + node->problem +
               "; ask whoever runs this machine to let your user (group) read and write it";
      if (machine.device_nodes && !machine.wsl && !has_node(machine, "/dev/nvidia-uvm"))
        return "there is no /dev/nvidia-uvm, which CUDA needs: nvidia-modprobe -u -c=0 as root, on the host";
      return "check nvidia-smi and the kernel log (dmesg | grep NVRM)";
  }
  return "";
}

}  // namespace trigen
