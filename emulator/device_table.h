// The devices that can be emulated: what the driver reports of one GPU per architecture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cuda_abi.h"

namespace trigen::emulator {

struct DeviceModel {
  const char* target;  // "sm_70"; "sm_90a" and "sm_90" are the same chip
  const char* name;    // the GPU that the numbers are of
  int capability;      // 70
  int multiprocessors;
  int shared_per_block_optin;
  int shared_per_multiprocessor;
  int threads_per_multiprocessor;
  int blocks_per_multiprocessor;
  int l2_bytes;
  int clock_khz;
  int memory_clock_khz;
  int memory_bus_bits;
};

/// nullptr for a target that is not known.
const DeviceModel* find_device_model(const std::string& target);
std::string known_targets();
/// False for an attribute that the emulated device does not know.
bool device_attribute(const DeviceModel& model, int ordinal, cuda::CUdevice_attribute attribute, int* value);
int max_cluster_size(const DeviceModel& model);

}  // namespace trigen::emulator
