// The C boundary: device memory through the runtime's driver.
#include "runtime/api.h"
#include "runtime/include/trigen/trigen_memory.h"

using namespace trigen;
using namespace trigen::api;

namespace {

// body(driver api) in the context of a plan on that device; its result is a driver's, of the call by that name.
template <typename Body>
trigen_status in_context(trigen_runtime* runtime, int ordinal, const char* call, Body&& body) noexcept {
  if (runtime == nullptr)
    return set_error(TRIGEN_BAD_REQUEST, "runtime is null; make one with trigen_runtime_create");
  return guarded_call([&] {
    auto device = device_of(*runtime, ordinal);
    if (!device) return give(device.takeError());
    auto context = (*device)->context();
    if (!context) return give(context.takeError());
    const Driver& driver = (*device)->driver();
    const ContextScope scope(driver.api(), *context);
    if (auto error = driver.check(scope.result(), "cuCtxPushCurrent")) return give(std::move(error));
    return give(driver.check(body(driver.api()), call));
  });
}

cuda::CUdeviceptr address(const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); }

}  // namespace

extern "C" {

trigen_status trigen_memory_allocate(trigen_runtime* runtime, int device, size_t bytes,
                                     void** pointer) noexcept {
  if (pointer == nullptr) return set_error(TRIGEN_BAD_REQUEST, "pointer is null");
  *pointer = nullptr;
  if (bytes == 0) return TRIGEN_OK;
  return in_context(runtime, device, "cuMemAlloc", [&](const DriverApi& api) {
    cuda::CUdeviceptr made = 0;
    const auto result = api.cuMemAlloc(&made, bytes);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): a device address, which the driver gives as an integer
    if (result == cuda::CUDA_SUCCESS) *pointer = reinterpret_cast<void*>(static_cast<uintptr_t>(made));
    return result;
  });
}

trigen_status trigen_memory_free(trigen_runtime* runtime, int device, void* pointer) noexcept {
  if (pointer == nullptr) return TRIGEN_OK;
  return in_context(runtime, device, "cuMemFree",
                    [&](const DriverApi& api) { return api.cuMemFree(address(pointer)); });
}

trigen_status trigen_memory_write(trigen_runtime* runtime, int device, void* to, const void* from,
                                  size_t bytes) noexcept {
  if (bytes == 0) return TRIGEN_OK;
  if (to == nullptr || from == nullptr) return set_error(TRIGEN_BAD_REQUEST, "to or from is null");
  // A copy of pageable memory may be under way when it returns, and streams of their own do not wait for it.
  return in_context(runtime, device, "cuMemcpyHtoD", [&](const DriverApi& api) {
    const auto result = api.cuMemcpyHtoD(address(to), from, bytes);
    return result == cuda::CUDA_SUCCESS ? api.cuStreamSynchronize(nullptr) : result;
  });
}

trigen_status trigen_memory_read(trigen_runtime* runtime, int device, void* to, const void* from,
                                 size_t bytes) noexcept {
  if (bytes == 0) return TRIGEN_OK;
  if (to == nullptr || from == nullptr) return set_error(TRIGEN_BAD_REQUEST, "to or from is null");
  return in_context(runtime, device, "cuMemcpyDtoH", [&](const DriverApi& api) {
    const auto result = api.cuCtxSynchronize();
    return result == cuda::CUDA_SUCCESS ? api.cuMemcpyDtoH(to, address(from), bytes) : result;
  });
}

}  // extern "C"
