// Probes: one PTX instruction each over edge values, to be run on a GPU and on the emulated device.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "generator/error.h"
#include "runtime/device.h"

namespace trigen::recorded {

struct Probe {
  std::string name;    // the instruction
  std::string target;  // of the PTX: the oldest that has it
  std::string body;    // the kernel's text between the loads and the stores
  // Words that thread i reads, from inputs[i * in_words]: %a0 %a1 ...; it leaves %o0 %o1 ... All 32 bits.
  int in_words = 1, out_words = 1;
  std::vector<uint32_t> inputs;  // whole warps
  // How far the results may be apart, both ways summed, with the section of the PTX ISA that says so. All 0:
  // bit for bit.
  enum class Result { kBits, kF32 } result = Result::kBits;
  double relative = 0, absolute = 0;
};
std::vector<Probe> all_probes();

/// The whole module with one entry `k`.
std::string probe_ptx(const Probe& probe);
/// Runs it: out_words for each thread. Errors: the device's.
llvm::Expected<std::vector<uint32_t>> run_probe(const Device& device, const Probe& probe);
/// "" when the results agree as the probe demands, else the first difference. `same`: words that agree in all
/// bits are added to it; `worst`: raised to the largest share of an allowed difference.
std::string compare_probe(const Probe& probe, const std::vector<uint32_t>& expected,
                          const std::vector<uint32_t>& found, size_t& same, double& worst);

}  // namespace trigen::recorded
