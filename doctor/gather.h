// The facts of the machine that runs.
#pragma once

#include "doctor/environment.h"
#include "generator/problem.h"

namespace trigen::doctor {

// Opens driver, NVML, compilers and caches; makes no context, compiles nothing but what names a compiler's
// version. `driver`: as of Driver::load.
Environment gather(Store& store, llvm::StringRef driver = "");
// Facts from files below `root`, the root of an image or of this machine: device nodes, kernel module, container,
// toolkits, PyTorch.
void read_files(Environment& environment, const std::string& root);
// PyTorch in the site-packages folders, each once.
std::vector<TorchFacts> find_torch(const std::vector<std::string>& sites);
// Look-ups of these problems for the targets: on the first device whose own target it is, else
// for no device in particular.
std::vector<ProblemFacts> look_up(const Environment& environment, llvm::ArrayRef<Problem> problems,
                                  llvm::ArrayRef<const Target*> targets, Store& store);
// Of NVIDIA's management library, found at run time. `path`: "" for libnvidia-ml.so.1.
NvmlFacts ask_nvml(const std::string& path = "");

}  // namespace trigen::doctor
