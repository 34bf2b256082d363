// ptxas's report of a binary, and the number of CPUs that may compile at once.
#include <sched.h>

#include <algorithm>
#include <fstream>

#include "llvm/ADT/SmallVector.h"
#include "runtime/compile.h"
#include "runtime/paths.h"

namespace trigen {
namespace {

// The number that stands before `unit`: 168 in "..., 168 bytes spill stores, ..." for " bytes spill stores".
int number_before(llvm::StringRef line, llvm::StringRef unit) {
  const size_t at = line.find(unit);
  if (at == llvm::StringRef::npos) return 0;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int value = 0;
  return line.slice(begin, at).getAsInteger(10, value) ? 0 : value;
}

// CPUs that a control group's quota allows; 0 when there is none.
int quota_cpus() {
  double quota = -1, period = 0;
  std::ifstream second("/sys/fs/cgroup/cpu.max");
  std::string word;
  if (second >> word >> period) {
    if (word == "max") return 0;
    quota = std::strtod(word.c_str(), nullptr);
  } else {
    std::ifstream quota_file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"),
        period_file("/sys/fs/cgroup/cpu/cpu.cfs_period_us");
    quota_file >> quota;
    period_file >> period;
  }
  return quota > 0 && period > 0 ? std::max(1, static_cast<int>(quota / period)) : 0;
}

}  // namespace

Resources parse_resources(llvm::StringRef log) {
  Resources resources;
  llvm::SmallVector<llvm::StringRef, 16> lines;
  log.split(lines, '\n', -1, false);
  for (llvm::StringRef line : lines) {
    resources.registers = std::max(resources.registers, number_before(line, " registers"));
    resources.stack_bytes = std::max(resources.stack_bytes, number_before(line, " bytes stack frame"));
    resources.spill_bytes = std::max(resources.spill_bytes, number_before(line, " bytes spill stores") +
                                                                number_before(line, " bytes spill loads"));
    resources.static_shared = std::max(resources.static_shared, number_before(line, " bytes smem"));
  }
  return resources;
}

Resources resources_of(const Binary& binary) {
  Resources resources;
  resources.registers = binary.registers;
  resources.spill_bytes = binary.spill_bytes;
  resources.stack_bytes = binary.stack_bytes;
  resources.static_shared = binary.static_shared;
  return resources;
}

bool no_jit_from_environment() { return environment_flag("TRIGEN_NO_JIT"); }

int usable_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  int cpus = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
  if (const int quota = quota_cpus(); quota > 0) cpus = std::min(cpus, quota);
  return std::max(1, cpus);
}

}  // namespace trigen
