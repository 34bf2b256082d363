// The GPU that candidates are timed on, as the machine sees it: who else uses it, what holds its clocks down.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "generator/error.h"
#include "runtime/nvml.h"

namespace trigen {

class GpuWatch {
 public:
  struct Options {
    double wait_s = 60;      // for a busy or throttled GPU
    bool shared_ok = false;  // tune all the same
    const std::atomic<bool>* cancel = nullptr;
  };
  // `own` is the process that times candidates, 0 while it has no context there. Null where NVML does not know
  // the GPU.
  static std::unique_ptr<GpuWatch> open(const std::string& pci, const std::string& name,
                                        std::function<int()> own, const Options& options);
  GpuState read() const { return gpu_->read(); }
  std::optional<double> joules() const { return gpu_->joules(); }
  // Why times taken now would mean little; "" when they are worth their name. To be asked while the own process
  // does nothing there. Other processes count while the GPU is busy: one that waits, such as the Python that
  // called the tune, takes no time from anybody.
  std::string trouble(const GpuState& state) const;
  // Changes between two states, whoever was busy: more processes, throttled clocks. "" for none.
  std::string trouble_since(const GpuState& before, const GpuState& after) const;
  // Waits until the GPU has no trouble. Error (device): the trouble left after wait_s, unless `shared_ok`.
  llvm::Error await_quiet();
  bool refused() const { return refused_; }  // by the last await_quiet

 private:
  std::vector<GpuState::Process> others(const GpuState& state) const;

  bool refused_ = false;
  std::unique_ptr<NvmlGpu> gpu_;
  std::string name_;
  std::function<int()> own_;
  Options options_;
};

}  // namespace trigen
