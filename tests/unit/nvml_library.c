/* NVIDIA's management library for a test: two GPUs with what a V100 server and a sliced A100 answer. The entries
 * and their numbers are those of NVML's reference. */
#include <stdio.h>
#include <string.h>

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
  return *reasons = index_of(gpu) == 0 ? 0x4 | 0x40 | 0x1 : 0x1, kSuccess;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void* gpu, unsigned* count, void* list) {
  if (index_of(gpu) == 1) return kNotSupported;
  const int enough = list != NULL && *count >= 2;
  return *count = 2, enough ? kSuccess : kInsufficientSize;
}
