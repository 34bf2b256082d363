#include "generator/target.h"

#include <iterator>
#include <vector>

#include "generator/error.h"
#include "generator/names.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/ErrorHandling.h"

namespace trigen {
namespace {

// Limits: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability" (shared memory,
// threads and blocks of an SM; 1 KiB of shared memory goes to the system with every block from compute
// capability 8.0 on: "Shared Memory" of the 8.x chapter).
constexpr Target kSm90 = {
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
    .model_device = "H200",
};
constexpr Target kSm120 = {
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
    .model_device = "GeForce RTX 5090",
};

// A target of the same limits.
constexpr Target alike(Target target, llvm::StringLiteral name, int capability, llvm::StringLiteral gpu) {
  target.name = name;
  target.compute_capability = capability;
  target.model_device = gpu;
  return target;
}
constexpr Target kSm100 = alike(kSm90, "sm_100", 100, "B200");

// The architecture-specific target of the same compute capability: setmaxnreg and what else has no other name.
constexpr Target specific(Target target, llvm::StringLiteral name, bool wgmma = false) {
  target.name = name;
  target.wgmma = wgmma;
  target.setmaxnreg = true;
  return target;
}

constexpr Target kLimits[] = {
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
        .model_device = "V100-SXM2-16GB",
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
        .model_device = "T4",
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
        .model_device = "A100-SXM4-80GB",
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
        .model_device = "GeForce RTX 3090",
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
        .model_device = "GeForce RTX 4090",
    },
    kSm90,
    specific(kSm90, "sm_90a", true),
    kSm100,
    specific(kSm100, "sm_100a"),
    kSm120,
    specific(kSm120, "sm_120a"),
};

struct Gpu {
  llvm::StringLiteral name, target;
  int64_t sms;
  double clock_mhz;
  int64_t l2_mib;
  double mma16, tf32, fp32;  // TFLOP/s
  double dram, l2;           // GB/s
  bool measured;
};

constexpr Gpu kGpus[] = {
#define TRIGEN_GPU(...) {__VA_ARGS__},
#include "generator/gpus.def"
#undef TRIGEN_GPU
};

Target on(Target target, const Gpu& gpu) {
  target.model_device = gpu.name;
  target.measured_rates = gpu.measured;
  target.sms = static_cast<int>(gpu.sms);
  target.clock_hz = gpu.clock_mhz * 1e6;
  target.l2_bytes = gpu.l2_mib << 20;
  target.mma16_flops = gpu.mma16 * 1e12;
  target.tf32_flops = gpu.tf32 * 1e12;
  target.fp32_flops = gpu.fp32 * 1e12;
  target.dram_bytes_per_s = gpu.dram * 1e9;
  target.l2_bytes_per_s = gpu.l2 * 1e9;
  return target;
}

// Names that either table lacks are a broken build: unit.Target reads every row.
struct Tables {
  std::vector<Target> targets, gpus;
  Tables() {
    for (const Target& limits : kLimits) {
      const Gpu* const gpu =
          llvm::find_if(kGpus, [&](const Gpu& one) { return one.name == limits.model_device; });
      if (gpu == std::end(kGpus))
        llvm::report_fatal_error("gpus.def has no " + llvm::Twine(limits.model_device));
      targets.push_back(on(limits, *gpu));
    }
    for (const Gpu& gpu : kGpus) {
      const Target* const limits =
          llvm::find_if(kLimits, [&](const Target& one) { return one.name == gpu.target; });
      if (limits == std::end(kLimits))
        llvm::report_fatal_error("gpus.def: no target " + llvm::Twine(gpu.target));
      gpus.push_back(on(*limits, gpu));
    }
  }
};

const Tables& tables() {
  static const auto* const kTables = new Tables;
  return *kTables;
}

std::string known_names() {
  llvm::SmallVector<llvm::StringRef, 16> names;
  for (const Target& target : tables().targets) names.push_back(target.name);
  return one_of(names);
}

}  // namespace

llvm::ArrayRef<Target> targets() { return tables().targets; }
llvm::ArrayRef<Target> gpus() { return tables().gpus; }

namespace {

// Nicknames of targets: generations, lower case. GPUs are gpus.def's.
constexpr struct {
  llvm::StringLiteral word, target;
} kNicknames[] = {
    {"volta", "sm_70"}, {"turing", "sm_75"}, {"ampere", "sm_80"}, {"ada", "sm_89"}, {"hopper", "sm_90a"},
};

// Lower case, without marks and makers: "NVIDIA GeForce RTX 4090" -> "rtx4090".
std::string plain_name(llvm::StringRef name) {
  std::string plain;
  for (const char c : name.take_front(64).lower())
    if (c != '_' && c != '-' && c != '.' && c != ' ') plain += c;
  for (const llvm::StringRef maker : {"nvidia", "geforce", "tesla"})
    if (const size_t at = plain.find(maker.str()); at != std::string::npos) plain.erase(at, maker.size());
  return plain == "h10080gbhbm3" ? "h100sxm" : plain;  // the driver's name of it
}

// GPUs that the name may mean: the GPU of that very name, else all whose names have it as a part.
std::vector<const Target*> gpus_called(llvm::StringRef name) {
  std::vector<const Target*> out;
  const std::string plain = plain_name(name);
  for (const Target& gpu : gpus()) {
    const std::string own = plain_name(gpu.model_device);
    if (own == plain) return {&gpu};
    if (plain.size() > 1 && own.find(plain) != std::string::npos) out.push_back(&gpu);
  }
  return out;
}

std::string names_of(llvm::ArrayRef<const Target*> list) {
  llvm::SmallVector<llvm::StringRef, 32> names;
  for (const Target* gpu : list) names.push_back(gpu->model_device);
  return one_of(names);
}

// "V100", "70", "7.0", "sm70", "compute_70", "RTX 4090" -> "; did you mean 'sm_70'?"
std::string nickname_hint(llvm::StringRef name) {
  const std::string plain = plain_name(name);
  for (const auto& [word, target] : kNicknames)
    if (plain == word) return ("; did you mean '" + target + "'?").str();
  if (const auto called = gpus_called(name); !called.empty())
    return ("; did you mean '" + called.front()->name + "'?").str();
  llvm::StringRef number = plain;
  if (!number.consume_front("sm")) number.consume_front("compute");
  int capability = 0;
  const Target& oldest = tables().targets.front();
  if (!number.getAsInteger(10, capability) && capability >= 10 && capability < oldest.compute_capability)
    return ("; it is older than trigen serves: Volta (" + oldest.name + ") is the oldest").str();
  for (const Target& target : tables().targets)
    if (!number.empty() && target.name.drop_front(3) == number)
      return ("; did you mean '" + target.name + "'?").str();
  return "";
}

}  // namespace

llvm::Expected<const Target*> find_target(llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef, 16> names;
  for (const Target& target : tables().targets) {
    if (target.name == name) return &target;
    names.push_back(target.name);
  }
  const std::string hint = nickname_hint(name);
  return make_error(ErrorKind::kBadRequest, "unknown arch " + quoted(name) + "; allowed are " +
                                                one_of(names) +
                                                (hint.empty() ? did_you_mean(name, names) : hint));
}

llvm::Expected<const Target*> find_gpu(llvm::StringRef name) {
  const std::vector<const Target*> called = gpus_called(name);
  if (called.size() == 1) return called.front();
  if (!called.empty())
    return make_error(ErrorKind::kBadRequest,
                      "gpu " + quoted(name) + " may be " + names_of(called) + "; name one of them");
  std::vector<const Target*> all;
  llvm::SmallVector<llvm::StringRef, 32> names;
  for (const Target& gpu : gpus()) {
    all.push_back(&gpu);
    names.push_back(gpu.model_device);
  }
  return make_error(ErrorKind::kBadRequest, "unknown gpu " + quoted(name) + "; allowed are " + names_of(all) +
                                                "; or name its architecture with --arch" +
                                                did_you_mean(name, names));
}

const Target& gpu_named_by_driver(llvm::StringRef name, const Target& target) {
  const std::string plain = plain_name(name);
  for (const Target& gpu : gpus())
    if (gpu.name == target.name && plain_name(gpu.model_device) == plain) return gpu;
  return target;
}

llvm::Expected<const Target*> target_for_capability(int major, int minor) {
  const Target* best = nullptr;
  for (const Target& target : tables().targets) {
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
