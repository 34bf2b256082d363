#include "generator/target.h"

#include <iterator>

#include "generator/error.h"
#include "generator/names.h"

namespace trigen {
namespace {

// Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (shared memory,
// threads and blocks of an SM; 1 KiB of shared memory goes to the system with every block from compute
// capability 8.0 on: "Shared Memory" of the 8.x chapter). SMs, clocks, L2 and rates: the data sheets and
// white papers named at each row. l2_bytes_per_s is what kernels measured, where somebody did: V100 and T4
// from Jia et al. (arXiv 1804.06826 and 1903.07486), A100, RTX 4090 and H100 from Luo et al. (arXiv
// 2402.13499); the others scale it by SMs and clock within the generation, and say so.
constexpr Target kTargets[] = {
    {
        .name = "sm_70",
        .max_shared_per_block = 96 << 10,
        .shared_per_sm = 96 << 10,
        .reserved_shared_per_block = 0,
        .registers_per_sm = 65536,
        .compute_capability = 70,
        .max_threads_per_sm = 2048,
        .max_blocks_per_sm = 32,
        .cp_async = false,
        .ldmatrix = false,
        .bf16_mma = false,
        .tf32_mma = false,
        .wgmma = false,
        // V100 data sheet: 125 TFLOP/s tensor, 15.7 fp32, 900 GB/s
        .sms = 80,
        .model_device = "V100-SXM2-16GB",
        .clock_hz = 1.53e9,
        .l2_bytes = 6 << 20,
        .mma16_flops = 125e12,
        .tf32_flops = 0,
        .fp32_flops = 15.7e12,
        .dram_bytes_per_s = 0.9e12,
        .l2_bytes_per_s = 2.16e12,  // arXiv 1804.06826: 2155 GB/s
    },
    {
        .name = "sm_75",
        .max_shared_per_block = 64 << 10,
        .shared_per_sm = 64 << 10,
        .reserved_shared_per_block = 0,
        .registers_per_sm = 65536,
        .compute_capability = 75,
        .max_threads_per_sm = 1024,
        .max_blocks_per_sm = 16,
        .cp_async = false,
        .ldmatrix = true,
        .bf16_mma = false,
        .tf32_mma = false,
        .wgmma = false,
        // T4 data sheet: 65 TFLOP/s tensor, 8.1 fp32, 320 GB/s (the card throttles at 70 W)
        .sms = 40,
        .model_device = "T4",
        .clock_hz = 1.59e9,
        .l2_bytes = 4 << 20,
        .mma16_flops = 65e12,
        .tf32_flops = 0,
        .fp32_flops = 8.1e12,
        .dram_bytes_per_s = 0.32e12,
        .l2_bytes_per_s = 1.27e12,  // arXiv 1903.07486: 1270 GB/s
    },
    {
        .name = "sm_80",
        .max_shared_per_block = 163 << 10,
        .shared_per_sm = 164 << 10,
        .reserved_shared_per_block = 1 << 10,
        .registers_per_sm = 65536,
        .compute_capability = 80,
        .max_threads_per_sm = 2048,
        .max_blocks_per_sm = 32,
        .cp_async = true,
        .ldmatrix = true,
        .bf16_mma = true,
        .tf32_mma = true,
        .wgmma = false,
        // A100 data sheet: 312, 156, 19.5 TFLOP/s, 2039 GB/s
        .sms = 108,
        .model_device = "A100-SXM4-80GB",
        .clock_hz = 1.41e9,
        .l2_bytes = 40 << 20,
        .mma16_flops = 312e12,
        .tf32_flops = 156e12,
        .fp32_flops = 19.5e12,
        .dram_bytes_per_s = 2.039e12,
        .l2_bytes_per_s = 3.1e12,  // arXiv 2402.13499: about 2200 B/clk
    },
    {
        .name = "sm_86",
        .max_shared_per_block = 99 << 10,
        .shared_per_sm = 100 << 10,
        .reserved_shared_per_block = 1 << 10,
        .registers_per_sm = 65536,
        .compute_capability = 86,
        .max_threads_per_sm = 1536,
        .max_blocks_per_sm = 16,
        .cp_async = true,
        .ldmatrix = true,
        .bf16_mma = true,
        .tf32_mma = true,
        .wgmma = false,
        // GA102 white paper: 71 (f16 with f32 sums), 35.6, 35.6 TFLOP/s, 936 GB/s
        .sms = 82,
        .model_device = "GeForce RTX 3090",
        .clock_hz = 1.695e9,
        .l2_bytes = 6 << 20,
        .mma16_flops = 71e12,
        .tf32_flops = 35.6e12,
        .fp32_flops = 35.6e12,
        .dram_bytes_per_s = 0.936e12,
        .l2_bytes_per_s = 2.2e12,  // scaled: 16 B/clk of each SM as on Ada
    },
    {
        .name = "sm_89",
        .max_shared_per_block = 99 << 10,
        .shared_per_sm = 100 << 10,
        .reserved_shared_per_block = 1 << 10,
        .registers_per_sm = 65536,
        .compute_capability = 89,
        .max_threads_per_sm = 1536,
        .max_blocks_per_sm = 24,
        .cp_async = true,
        .ldmatrix = true,
        .bf16_mma = true,
        .tf32_mma = true,
        .wgmma = false,
        // Ada white paper: 165.2 (f16 with f32 sums), 82.6, 82.6 TFLOP/s, 1008 GB/s
        .sms = 128,
        .model_device = "GeForce RTX 4090",
        .clock_hz = 2.52e9,
        .l2_bytes = 72 << 20,
        .mma16_flops = 165.2e12,
        .tf32_flops = 82.6e12,
        .fp32_flops = 82.6e12,
        .dram_bytes_per_s = 1.008e12,
        .l2_bytes_per_s = 4.1e12,  // arXiv 2402.13499: about 1620 B/clk
    },
    {
        .name = "sm_90",
        .max_shared_per_block = 227 << 10,
        .shared_per_sm = 228 << 10,
        .reserved_shared_per_block = 1 << 10,
        .registers_per_sm = 65536,
        .compute_capability = 90,
        .max_threads_per_sm = 2048,
        .max_blocks_per_sm = 32,
        .cp_async = true,
        .ldmatrix = true,
        .bf16_mma = true,
        .tf32_mma = true,
        .wgmma = false,
        .measured_rates = true,
        // measured, one H200, driver 580, CUDA 13.0: bf16 8192^3 802 TFLOP/s, copy 4.25 TB/s
        .sms = 132,
        .model_device = "H200",
        .clock_hz = 1.98e9,  // the boost clock that 66.9 TFLOP/s of fp32 on 132 SMs means
        .l2_bytes = 50 << 20,
        .mma16_flops = 802e12,
        .tf32_flops = 417e12,  // measured, same device: cuBLAS at T=4096, N=4096
        .fp32_flops = 66.9e12,
        .dram_bytes_per_s = 4.25e12,
        .l2_bytes_per_s = 7.3e12,  // arXiv 2402.13499: 3.9 to 4.5 kB/clk
    },
    {
        .name = "sm_90a",
        .max_shared_per_block = 227 << 10,
        .shared_per_sm = 228 << 10,
        .reserved_shared_per_block = 1 << 10,
        .registers_per_sm = 65536,
        .compute_capability = 90,
        .max_threads_per_sm = 2048,
        .max_blocks_per_sm = 32,
        .cp_async = true,
        .ldmatrix = true,
        .bf16_mma = true,
        .tf32_mma = true,
        .wgmma = true,
        .measured_rates = true,
        // as sm_90
        .sms = 132,
        .model_device = "H200",
        .clock_hz = 1.98e9,
        .l2_bytes = 50 << 20,
        .mma16_flops = 802e12,
        .tf32_flops = 417e12,
        .fp32_flops = 66.9e12,
        .dram_bytes_per_s = 4.25e12,
        .l2_bytes_per_s = 7.3e12,
    },
    {
        .name = "sm_100",
        .max_shared_per_block = 227 << 10,
        .shared_per_sm = 228 << 10,
        .reserved_shared_per_block = 1 << 10,
        .registers_per_sm = 65536,
        .compute_capability = 100,
        .max_threads_per_sm = 2048,
        .max_blocks_per_sm = 32,
        .cp_async = true,
        .ldmatrix = true,
        .bf16_mma = true,
        .tf32_mma = true,
        .wgmma = false,
        // Blackwell data sheet: 2250, 1125, 75 TFLOP/s dense, 7.7 TB/s
        .sms = 148,
        .model_device = "B200",
        .clock_hz = 1.965e9,
        .l2_bytes = 126 << 20,
        .mma16_flops = 2250e12,
        .tf32_flops = 1125e12,
        .fp32_flops = 75e12,
        .dram_bytes_per_s = 7.7e12,
        .l2_bytes_per_s = 8.8e12,  // scaled from the H100 by SMs and clock
    },
    {
        .name = "sm_100a",
        .max_shared_per_block = 227 << 10,
        .shared_per_sm = 228 << 10,
        .reserved_shared_per_block = 1 << 10,
        .registers_per_sm = 65536,
        .compute_capability = 100,
        .max_threads_per_sm = 2048,
        .max_blocks_per_sm = 32,
        .cp_async = true,
        .ldmatrix = true,
        .bf16_mma = true,
        .tf32_mma = true,
        .wgmma = false,
        // as sm_100
        .sms = 148,
        .model_device = "B200",
        .clock_hz = 1.965e9,
        .l2_bytes = 126 << 20,
        .mma16_flops = 2250e12,
        .tf32_flops = 1125e12,
        .fp32_flops = 75e12,
        .dram_bytes_per_s = 7.7e12,
        .l2_bytes_per_s = 8.8e12,
    },
    {
        .name = "sm_120",
        .max_shared_per_block = 99 << 10,
        .shared_per_sm = 100 << 10,
        .reserved_shared_per_block = 1 << 10,
        .registers_per_sm = 65536,
        .compute_capability = 120,
        .max_threads_per_sm = 1536,
        .max_blocks_per_sm = 24,
        .cp_async = true,
        .ldmatrix = true,
        .bf16_mma = true,
        .tf32_mma = true,
        .wgmma = false,
        // RTX Blackwell white paper: 209.5 (f16 with f32 sums), 104.8, 104.8, 1792 GB/s
        .sms = 170,
        .model_device = "GeForce RTX 5090",
        .clock_hz = 2.407e9,
        .l2_bytes = 96 << 20,
        .mma16_flops = 209.5e12,
        .tf32_flops = 104.8e12,
        .fp32_flops = 104.8e12,
        .dram_bytes_per_s = 1.792e12,
        .l2_bytes_per_s = 5.2e12,  // scaled from the RTX 4090 by SMs and clock
    },
};

std::string known_names() {
  llvm::SmallVector<llvm::StringRef, 16> names;
  for (const Target& target : kTargets) names.push_back(target.name);
  return one_of(names);
}

}  // namespace

llvm::ArrayRef<Target> targets() { return kTargets; }

namespace {

// What people call a target: the names of GPUs and of their generations, lower case.
constexpr struct {
  llvm::StringLiteral word, target;
} kNicknames[] = {
    {"volta", "sm_70"},   {"v100", "sm_70"},     {"turing", "sm_75"},  {"t4", "sm_75"},
    {"rtx2080", "sm_75"}, {"ampere", "sm_80"},   {"a100", "sm_80"},    {"a30", "sm_80"},
    {"a10", "sm_86"},     {"a40", "sm_86"},      {"rtx3090", "sm_86"}, {"ada", "sm_89"},
    {"l4", "sm_89"},      {"l40", "sm_89"},      {"l40s", "sm_89"},    {"rtx4090", "sm_89"},
    {"hopper", "sm_90a"}, {"h100", "sm_90a"},    {"h200", "sm_90a"},   {"gh200", "sm_90a"},
    {"b200", "sm_100"},   {"rtx5090", "sm_120"},
};

// "V100", "70", "7.0", "sm70", "compute_70", "RTX 4090" -> "; did you mean 'sm_70'?"
std::string nickname_hint(llvm::StringRef name) {
  std::string plain;
  for (const char c : name.take_front(64).lower())
    if (c != '_' && c != '-' && c != '.' && c != ' ') plain += c;
  for (const auto& [word, target] : kNicknames)
    if (plain == word) return ("; did you mean '" + target + "'?").str();
  llvm::StringRef number = plain;
  if (!number.consume_front("sm")) number.consume_front("compute");
  for (const Target& target : kTargets)
    if (!number.empty() && target.name.drop_front(3) == number)
      return ("; did you mean '" + target.name + "'?").str();
  return "";
}

}  // namespace

llvm::Expected<const Target*> find_target(llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef, 16> names;
  for (const Target& target : kTargets) {
    if (target.name == name) return &target;
    names.push_back(target.name);
  }
  const std::string hint = nickname_hint(name);
  return make_error(ErrorKind::kBadRequest, "unknown arch " + quoted(name) + "; allowed are " +
                                                one_of(names) +
                                                (hint.empty() ? did_you_mean(name, names) : hint));
}

llvm::Expected<const Target*> target_for_capability(int major, int minor) {
  const Target* best = nullptr;
  for (const Target& target : kTargets) {
    const int target_major = target.compute_capability / 10, target_minor = target.compute_capability % 10;
    if (target_major != major || target_minor > minor) continue;
    // An 'a' target runs on its own compute capability alone (PTX ISA, "Target directive":
    // architecture-specific).
    const bool specific = target.name.endswith("a");
    if (specific && target_minor != minor) continue;
    if (!best || target.compute_capability > best->compute_capability || specific) best = &target;
  }
  if (best) return best;
  return make_error(ErrorKind::kUnsupported, "compute capability " + llvm::Twine(major) + "." +
                                                 llvm::Twine(minor) + " has no target; supported are " +
                                                 known_names() + "; use a device of one of these");
}

}  // namespace trigen
