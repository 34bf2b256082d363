#include "check/memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

#include "check/tensors.h"

namespace trigen {
namespace {

// Of each byte of the device's memory: itself, whether it was written (emulator/memory.h), who accessed it
// (12 bytes, emulator/global_race.h), and the cluster's own record (32 bytes for 16, emulator/race.h).
constexpr double kDeviceBytes = 1 + 1 + 12 + 2;
constexpr double kHostCopies = 3;       // both kinds of inputs, and what a run left
constexpr double kReferenceBytes = 24;  // of an output: doubles, of the sums, a part of them, and pre
constexpr double kSampled = 0x1p25;     // outputs; more are not computed one by one (check/reference.cpp)

}  // namespace

double emulated_bytes(const Problem& p, int64_t workspace, int gap, bool full) {
  double tensors = 0;
  for (const Tensor& tensor : tensors_of(p, gap).tensors)
    tensors += static_cast<double>(tensor.buffer_bytes());
  const auto columns = static_cast<double>(
      output_columns(p) + (p.epilogue.grad_input ? output_columns(p, Axes::kActivations) : 0));
  const double outputs = static_cast<double>(p.H) * static_cast<double>(p.T) * columns;
  return kDeviceBytes * (tensors + static_cast<double>(workspace)) + kHostCopies * tensors +
         kReferenceBytes * (full ? outputs : std::min(outputs, kSampled));
}

double available_memory() {
  std::ifstream file("/proc/meminfo");
  for (std::string name, rest; file >> name; std::getline(file, rest))
    if (double kilobytes = 0; name == "MemAvailable:" && file >> kilobytes) return 1024 * kilobytes;
  return std::numeric_limits<double>::infinity();  // not known: --memory says it
}

}  // namespace trigen
