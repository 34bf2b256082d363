// Errors, initialisation, devices, contexts.
#ifdef __x86_64__
#include <cpuid.h>
#endif

#include <algorithm>
#include <cstring>

#include "emulator/driver.h"

using namespace trigen::cuda;
using namespace trigen::emulator;

namespace {

constexpr unsigned long long kMemoryBytes = 16ull << 30;

#ifdef __x86_64__
// Asked of the processor itself: the library behind zig's __builtin_cpu_supports answers no on every one (0.17.1).
bool has_vector_instructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  const unsigned wanted = bit_FMA | bit_F16C | bit_OSXSAVE | bit_AVX;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & wanted) != wanted) return false;
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6) != 6) return false;  // the system keeps the wide registers
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (b & bit_AVX2) != 0;
}
#endif

struct ErrorName {
  CUresult code;
  const char* name;
  const char* text;
};
#define E(code, text) \
  { code, #code, text }
constexpr ErrorName kErrors[] = {
    E(CUDA_SUCCESS, "no error"),
    E(CUDA_ERROR_INVALID_VALUE, "invalid argument"),
    E(CUDA_ERROR_OUT_OF_MEMORY, "out of memory"),
    E(CUDA_ERROR_NOT_INITIALIZED, "initialization error"),
    E(CUDA_ERROR_NO_DEVICE, "no CUDA-capable device is detected"),
    E(CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"),
    E(CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"),
    E(CUDA_ERROR_INVALID_CONTEXT, "invalid device context"),
    E(CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    E(CUDA_ERROR_UNSUPPORTED_LIMIT, "limit is not supported on this architecture"),
    E(CUDA_ERROR_INVALID_PTX, "a PTX JIT compilation failed"),
    E(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain"),
    E(CUDA_ERROR_FILE_NOT_FOUND, "file not found"),
    E(CUDA_ERROR_SYSTEM_NOT_READY, "system not yet initialized"),
    E(CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"),
    E(CUDA_ERROR_ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    E(CUDA_ERROR_NOT_FOUND, "named symbol not found"),
    E(CUDA_ERROR_NOT_READY, "device not ready"),
    E(CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    E(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"),
    E(CUDA_ERROR_LAUNCH_TIMEOUT, "the launch timed out and was terminated"),
    E(CUDA_ERROR_CONTEXT_IS_DESTROYED, "context is destroyed"),
    E(CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"),
    E(CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"),
    E(CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"),
    E(CUDA_ERROR_NOT_PERMITTED, "operation not permitted"),
    E(CUDA_ERROR_NOT_SUPPORTED, "operation not supported"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"),
    E(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"),
    E(CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would result in a merge of separate capture sequences"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the same stream as it began"),
    E(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"),
    E(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency created on uncaptured work in another stream"),
    E(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
      "operation would make the legacy stream depend on a capturing blocking stream"),
    E(CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on an event last recorded in a capturing stream"),
    E(CUDA_ERROR_INVALID_CLUSTER_SIZE, "the cluster size is not supported by the device"),
    E(CUDA_ERROR_UNKNOWN, "unknown error")};
#undef E

// nullptr before cuInit and for a number that no device has; bad_device is the error to return then.
Device* known_device(CUdevice device) { return driver().initialised ? driver().device(device) : nullptr; }

CUresult bad_device(CUdevice device) {
  if (!driver().initialised)
    return fail(CUDA_ERROR_NOT_INITIALIZED, "the driver is not initialised; call cuInit first");
  return fail(CUDA_ERROR_INVALID_DEVICE,
              "device " + std::to_string(device) + " of " + std::to_string(driver().devices.size()));
}

}  // namespace

namespace trigen::cuda {

TRIGEN_ENTRY CUresult cuGetErrorString(CUresult error, const char** text) try {
  for (const ErrorName& entry : kErrors)
    if (entry.code == error) {
      *text = entry.text;
      return CUDA_SUCCESS;
    }
  *text = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGetErrorName(CUresult error, const char** name) try {
  for (const ErrorName& entry : kErrors)
    if (entry.code == error) {
      *name = entry.name;
      return CUDA_SUCCESS;
    }
  *name = nullptr;
  return CUDA_ERROR_INVALID_VALUE;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuInit(unsigned flags) try {
  Driver& state = driver();
  std::lock_guard lock(state.mutex);
  if (flags != 0) return fail(CUDA_ERROR_INVALID_VALUE, "cuInit takes no flags");
  if (state.initialised) return CUDA_SUCCESS;
#ifdef __x86_64__
  if (!has_vector_instructions())
    return fail(CUDA_ERROR_SYSTEM_NOT_READY,
                "the emulated device needs a processor with AVX2 (with F16C) and FMA");
#endif
  const DeviceModel* model = find_device_model(state.options.target);
  if (model == nullptr)
    return fail(CUDA_ERROR_NO_DEVICE,
                "unknown target '" + state.options.target + "', known: " + known_targets());
  state.model = *model;
  if (state.options.sms > 0) state.model.multiprocessors = state.options.sms;
  for (int ordinal = 0; ordinal < state.options.devices; ++ordinal) {
    auto device = std::make_unique<Device>();
    device->ordinal = ordinal;
    device->model = &state.model;
    try {
      device->memory = std::make_unique<DeviceMemory>(ordinal, kMemoryBytes);
    } catch (const std::bad_alloc&) {  // ulimit -v, or a system that promises no more than it has
      state.devices.clear();
      return fail(CUDA_ERROR_OUT_OF_MEMORY,
                  "no address space for the memory of an emulated device: " +
                      std::to_string(DeviceMemory::reserved_bytes(kMemoryBytes) >> 30) +
                      " GiB are reserved, not used; raise `ulimit -v` or the system's overcommit limit");
    }
    device->primary.device = ordinal;
    device->default_stream.context = &device->primary;
    state.devices.push_back(std::move(device));
  }
  state.initialised = true;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDriverGetVersion(int* version) try {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = 13000;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGetProcAddress_v2(const char* symbol, void** function, int, unsigned long long,
                                          CUdriverProcAddressQueryResult* status) try {
  static const std::map<std::string, void*> table = {
#define TRIGEN_CUDA_ROW(name, symbol, parameters) \
  {#name, reinterpret_cast<void*>(symbol)}, {#symbol, reinterpret_cast<void*>(symbol)},
      TRIGEN_CUDA_ENTRIES(TRIGEN_CUDA_ROW)
#undef TRIGEN_CUDA_ROW
  };
  if (symbol == nullptr || function == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "a null argument");
  auto found = table.find(symbol);
  *function = found == table.end() ? nullptr : found->second;
  if (status != nullptr)
    *status = found == table.end() ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_SUCCESS;
  return found == table.end() ? fail(CUDA_ERROR_NOT_FOUND, std::string("no entry ") + symbol) : CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDeviceGet(CUdevice* device, int ordinal) try {
  Device* found = known_device(ordinal);
  if (found == nullptr) return bad_device(ordinal);
  *device = ordinal;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDeviceGetCount(int* count) try {
  if (!driver().initialised)
    return fail(CUDA_ERROR_NOT_INITIALIZED, "the driver is not initialised; call cuInit first");
  *count = static_cast<int>(driver().devices.size());
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDeviceGetName(char* name, int length, CUdevice device) try {
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  if (name == nullptr || length <= 0) return fail(CUDA_ERROR_INVALID_VALUE, "no room for a name");
  std::snprintf(name, static_cast<size_t>(length), "Emulated %s (%s)", driver().options.target.c_str(),
                found->model->name);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDeviceGetUuid_v2(CUuuid* uuid, CUdevice device) try {
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  const std::string text = std::string("emul") + found->model->target + "." + std::to_string(device);
  std::memcpy(uuid->bytes, text.data(), std::min(text.size(), sizeof uuid->bytes));
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDeviceTotalMem_v2(size_type* bytes, CUdevice device) try {
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  *bytes = found->memory->capacity();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) try {
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  if (value == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "a null argument");
  if (!device_attribute(*found->model, device, attribute, value))
    return fail(CUDA_ERROR_INVALID_VALUE,
                "the emulated device has no attribute " + std::to_string(attribute));
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDeviceGetPCIBusId(char* text, int length, CUdevice device) try {
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  std::snprintf(text, static_cast<size_t>(length), "0000:%02X:00.0", device);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

// --- contexts ----------------------------------------------------------------------------------------------

TRIGEN_ENTRY CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) try {
  std::lock_guard lock(driver().mutex);
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  ++found->primary.retained;
  *context = &found->primary;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device) try {
  std::lock_guard lock(driver().mutex);
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  if (found->primary.retained == 0)
    return fail(CUDA_ERROR_INVALID_CONTEXT, "the primary context is not retained");
  if (--found->primary.retained == 0) found->primary.sticky = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDevicePrimaryCtxReset_v2(CUdevice device) try {
  std::lock_guard lock(driver().mutex);
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  found->primary.sticky = CUDA_SUCCESS;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) try {
  Device* found = known_device(device);
  if (found == nullptr) return bad_device(device);
  if (flags != nullptr) *flags = 0;
  if (active != nullptr) *active = found->primary.retained > 0 ? 1 : 0;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxGetCurrent(CUcontext* context) try {
  if (!driver().initialised)
    return fail(CUDA_ERROR_NOT_INITIALIZED, "the driver is not initialised; call cuInit first");
  *context = thread_state().contexts.empty() ? nullptr : thread_state().contexts.back();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxSetCurrent(CUcontext context) try {
  if (!driver().initialised)
    return fail(CUDA_ERROR_NOT_INITIALIZED, "the driver is not initialised; call cuInit first");
  std::vector<CUctx_st*>& stack = thread_state().contexts;
  if (!stack.empty()) stack.pop_back();
  if (context != nullptr) stack.push_back(context);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxPushCurrent_v2(CUcontext context) try {
  if (context == nullptr) return fail(CUDA_ERROR_INVALID_CONTEXT, "a null context");
  thread_state().contexts.push_back(context);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxPopCurrent_v2(CUcontext* context) try {
  std::vector<CUctx_st*>& stack = thread_state().contexts;
  if (stack.empty()) return fail(CUDA_ERROR_INVALID_CONTEXT, "the context stack is empty");
  if (context != nullptr) *context = stack.back();
  stack.pop_back();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxGetDevice(CUdevice* device) try {
  if (thread_state().contexts.empty()) return fail(CUDA_ERROR_INVALID_CONTEXT, "no context is current");
  *device = thread_state().contexts.back()->device;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxSynchronize() try {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  driver().settle();
  return refuse_during_capture("cuCtxSynchronize");
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxGetLimit(size_type* value, CUlimit limit) try {
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  auto found = context->limits.find(limit);
  *value = found != context->limits.end()       ? found->second
           : limit == CU_LIMIT_STACK_SIZE       ? 1024
           : limit == CU_LIMIT_MALLOC_HEAP_SIZE ? 8u << 20
                                                : 0;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxSetLimit(CUlimit limit, size_type value) try {
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  context->limits[limit] = value;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) try {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = -5;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuCtxResetPersistingL2Cache() { return CUDA_SUCCESS; }

}  // namespace trigen::cuda
