/* NVIDIA's management library for a test: two GPUs with what a V100 server and a sliced A100 answer. The entries
 * and their numbers are those of NVML's reference. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { kSuccess = 0, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7 };
struct Pci {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};
static int gpus[2] = {0, 1};
static int live = 0;

static int index_of(const void* gpu) { return (int)((const int*)gpu - gpus); }

int nvmlInit_v2(void) { return ++live, kSuccess; }
int nvmlShutdown(void) { return --live, kSuccess; }
const char* nvmlErrorString(int result) { return result == kSuccess ? "Success" : "Failure"; }
int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  return snprintf(text, size, "550.54.14"), kSuccess;
}
int nvmlSystemGetCudaDriverVersion(int* version) { return *version = 12040, kSuccess; }
int nvmlDeviceGetCount_v2(unsigned* count) { return *count = live > 0 ? 2 : 0, kSuccess; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** gpu) {
  return index < 2 ? (*gpu = &gpus[index], kSuccess) : kNotFound;
}
int nvmlDeviceGetName(void* gpu, char* text, unsigned size) {
  return snprintf(text, size, index_of(gpu) == 0 ? "Tesla V100-SXM2-32GB" : "NVIDIA A100-SXM4-40GB"),
         kSuccess;
}
int nvmlDeviceGetPciInfo_v3(void* gpu, struct Pci* pci) {
  memset(pci, 0, sizeof *pci);
  pci->bus = index_of(gpu) == 0 ? 0x1a : 0xb3;
  snprintf(pci->text, sizeof pci->text, "00000000:%02X:00.0", pci->bus);
  return kSuccess;
}
int nvmlDeviceGetMigMode(void* gpu, unsigned* now, unsigned* pending) {
  return index_of(gpu) == 0 ? kNotSupported : (*now = *pending = 1, kSuccess);
}
int nvmlDeviceGetMaxMigDeviceCount(void* gpu, unsigned* count) { return *count = 7, kSuccess; }
int nvmlDeviceGetMigDeviceHandleByIndex(void* gpu, unsigned index, void** slice) {
  return index < 3 ? (*slice = gpu, kSuccess) : kNotFound;
}
int nvmlDeviceGetTemperature(void* gpu, unsigned sensor, unsigned* celsius) {
  return sensor == 0 ? (*celsius = 40 + 47 * (unsigned)(index_of(gpu) == 0), kSuccess) : kNotSupported;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void* gpu, unsigned long long* reasons) {
  const int hot = index_of(gpu) == 0 && getenv("TRIGEN_TEST_GPU_QUIET") == NULL;
  return *reasons = hot ? 0x4 | 0x40 | 0x1 : 0x1, kSuccess;
}
/* The emulated devices lie on buses 0 and 1. TRIGEN_TEST_GPU_QUIET: nobody else, and cool. */
int nvmlDeviceGetHandleByPciBusId_v2(const char* pci, void** gpu) {
  unsigned domain = 0, bus = 0;
  if (sscanf(pci, "%x:%x:", &domain, &bus) != 2) return kNotFound;
  if (bus != 0 && bus != 1 && bus != 0x1a && bus != 0xb3) return kNotFound;
  return *gpu = &gpus[bus == 1 || bus == 0xb3], kSuccess;
}
int nvmlDeviceGetClockInfo(void* gpu, unsigned type, unsigned* mhz) {
  return type == 1 ? (*mhz = 1380, kSuccess) : type == 2 ? (*mhz = 877, kSuccess) : kNotSupported;
}
int nvmlDeviceGetPowerUsage(void* gpu, unsigned* milliwatts) { return *milliwatts = 250500, kSuccess; }
int nvmlDeviceGetEnforcedPowerLimit(void* gpu, unsigned* milliwatts) {
  return *milliwatts = 300000, kSuccess;
}
int nvmlDeviceGetUtilizationRates(void* gpu, unsigned* two) {
  two[0] = getenv("TRIGEN_TEST_GPU_QUIET") != NULL ? 0 : 98;
  return two[1] = 40, kSuccess;
}
int nvmlDeviceGetTotalEccErrors(void* gpu, int type, int counter, unsigned long long* errors) {
  return type == 1 && counter == 0 ? (*errors = 3, kSuccess) : kNotSupported;
}
/* 250 W, always. */
int nvmlDeviceGetTotalEnergyConsumption(void* gpu, unsigned long long* millijoules) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return *millijoules = 250ull * (now.tv_sec * 1000ull + now.tv_nsec / 1000000ull), kSuccess;
}
struct ProcessInfo {
  unsigned pid;
  unsigned long long bytes;
  unsigned gpu_instance, compute_instance;
};
int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, struct ProcessInfo* list) {
  if (index_of(gpu) == 1) return kNotSupported;
  if (getenv("TRIGEN_TEST_GPU_QUIET") != NULL) return *count = 0, kSuccess;
  if (list == NULL || *count < 2) return *count = 2, kInsufficientSize;
  list[0] = (struct ProcessInfo){4242, 12ull << 30, ~0u, ~0u};
  list[1] = (struct ProcessInfo){4243, ~0ull, ~0u, ~0u};
  return *count = 2, kSuccess;
}
