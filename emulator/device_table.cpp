#include "emulator/device_table.h"

namespace trigen::emulator {
namespace {

// Shared memory, threads and blocks: CUDA programming guide, "Technical specifications per compute
// capability". Processor counts, clocks, caches and buses: the data sheets of the named GPUs (boost clocks,
// as the driver reports them).
constexpr DeviceModel kModels[] = {
    {"sm_70", "V100-SXM2-16GB", 70, 80, 98304, 98304, 2048, 32, 6291456, 1530000, 877000, 4096},
    {"sm_75", "T4", 75, 40, 65536, 65536, 1024, 16, 4194304, 1590000, 5001000, 256},
    {"sm_80", "A100-SXM4-80GB", 80, 108, 166912, 167936, 2048, 32, 41943040, 1410000, 1593000, 5120},
    {"sm_86", "RTX 3090", 86, 82, 101376, 102400, 1536, 16, 6291456, 1695000, 9751000, 384},
    {"sm_87", "Jetson AGX Orin", 87, 16, 166912, 167936, 1536, 16, 4194304, 1300000, 1300000, 256},
    {"sm_89", "L40S", 89, 142, 101376, 102400, 1536, 24, 100663296, 2520000, 9001000, 384},
    {"sm_90", "H200", 90, 132, 232448, 233472, 2048, 32, 62914560, 1980000, 3201000, 6144},
    {"sm_90a", "H200", 90, 132, 232448, 233472, 2048, 32, 62914560, 1980000, 3201000, 6144},
    {"sm_100", "B200", 100, 148, 232448, 233472, 2048, 32, 132644864, 1965000, 3996000, 8192},
    {"sm_100a", "B200", 100, 148, 232448, 233472, 2048, 32, 132644864, 1965000, 3996000, 8192},
    {"sm_103", "B300", 103, 148, 232448, 233472, 2048, 32, 132644864, 2032000, 3996000, 8192},
    {"sm_103a", "B300", 103, 148, 232448, 233472, 2048, 32, 132644864, 2032000, 3996000, 8192},
    {"sm_120", "RTX 5090", 120, 170, 101376, 102400, 1536, 24, 100663296, 2407000, 14001000, 512},
    {"sm_120a", "RTX 5090", 120, 170, 101376, 102400, 1536, 24, 100663296, 2407000, 14001000, 512},
    {"sm_121", "GB10", 121, 48, 101376, 102400, 1536, 24, 25165824, 2418000, 8533000, 256}};

// The target whose kernels a chip runs that is no target of trigen's; "" of the others.
const char* kernels_of(const DeviceModel& model) {
  switch (model.capability) {
    case 87:
      return "sm_86";
    case 103:
      return "sm_100";
    case 121:
      return "sm_120";
    default:
      return "";
  }
}

}  // namespace

const DeviceModel* find_device_model(const std::string& target) {
  for (const DeviceModel& model : kModels)
    if (target == model.target) return &model;
  return nullptr;
}

std::string known_targets() {
  std::string targets, others;
  for (const DeviceModel& model : kModels) {
    const std::string name = model.target, kernels = kernels_of(model);
    if (kernels.empty())
      targets += (targets.empty() ? "" : ", ") + name;
    else
      others += (others.empty() ? "" : ", ") + name + " (" + kernels + "'s)";
  }
  return targets + "; with another target's kernels " + others;
}

int max_cluster_size(const DeviceModel& model) {
  return model.capability >= 90 && model.capability < 120 ? 16 : model.capability >= 120 ? 8 : 1;
}

bool device_attribute(const DeviceModel& model, int ordinal, cuda::CUdevice_attribute attribute, int* value) {
  using namespace cuda;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
      *value = 1024;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      *value = 64;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
      *value = 2147483647;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      *value = 65535;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      *value = 49152;
      break;
    case CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_WARP_SIZE:
      *value = 32;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_PITCH:
      *value = 2147483647;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK:
    case CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR:
      *value = 65536;
      break;
    case CU_DEVICE_ATTRIBUTE_CLOCK_RATE:
      *value = model.clock_khz;
      break;
    case CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT:
      *value = 512;
      break;
    case CU_DEVICE_ATTRIBUTE_GPU_OVERLAP:
    case CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY:
    case CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS:
    case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING:
    case CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      *value = 1;
      break;
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = model.multiprocessors;
      break;
    case CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT:
    case CU_DEVICE_ATTRIBUTE_INTEGRATED:
    case CU_DEVICE_ATTRIBUTE_COMPUTE_MODE:
    case CU_DEVICE_ATTRIBUTE_ECC_ENABLED:
    case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID:
    case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID:
    case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      *value = 0;
      break;
    case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID:
      *value = ordinal;
      break;
    case CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE:
      *value = model.memory_clock_khz;
      break;
    case CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH:
      *value = model.memory_bus_bits;
      break;
    case CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE:
      *value = model.l2_bytes;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = model.threads_per_multiprocessor;
      break;
    case CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT:
      *value = 2;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = model.capability / 10;
      break;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      *value = model.capability % 10;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR:
      *value = model.shared_per_multiprocessor;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      *value = model.shared_per_block_optin;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR:
      *value = model.blocks_per_multiprocessor;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_PERSISTING_L2_CACHE_SIZE:
      *value = model.capability >= 80 ? model.l2_bytes / 4 * 3 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_MAX_ACCESS_POLICY_WINDOW_SIZE:
      *value = model.capability >= 80 ? 134213632 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK:
      *value = model.capability >= 80 ? 1024 : 0;
      break;
    case CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH:
    case CU_DEVICE_ATTRIBUTE_TENSOR_MAP_ACCESS_SUPPORTED:
      *value = model.capability >= 90 ? 1 : 0;
      break;
    default:
      return false;
  }
  return true;
}

}  // namespace trigen::emulator
