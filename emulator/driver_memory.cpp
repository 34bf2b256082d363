// Memory: allocation, copies, fills, pointer queries. Host memory from cuMemAllocHost lies in the device's
// range too, so that kernels may use it and its bounds are checked.
#include <cstring>

#include "emulator/driver.h"

using namespace trigen::cuda;
using namespace trigen::emulator;

namespace {

std::unordered_set<uint64_t>& host_allocations() {
  static std::unordered_set<uint64_t> set;
  return set;
}

// Live allocation that holds [address, address + bytes), or an error. Host memory that the driver knows
// nothing of gives nullptr without an error where `host_allowed`.
CUresult check_range(uint64_t address, size_type bytes, bool host_allowed, Device** device,
                     const char* what) {
  *device = driver().device_of_address(address);
  if (*device == nullptr)
    return host_allowed ? CUDA_SUCCESS
                        : fail(CUDA_ERROR_INVALID_VALUE, std::string(what) + " is no device address");
  Allocation* allocation = (*device)->memory->find(address);
  if (allocation == nullptr || allocation->freed || address < allocation->base ||
      address >= allocation->end() || bytes > allocation->end() - address)
    return fail(CUDA_ERROR_INVALID_VALUE, std::string(what) + ": " + std::to_string(bytes) +
                                              " B do not lie inside one live allocation");
  return CUDA_SUCCESS;
}

// What a call does before it returns (`what` it is), and what a stream does next.
template <class Work>
CUresult now(const char* what, Work work) {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  if (CUresult error = refuse_during_capture(what)) return error;
  return work();
}

template <class Work>
CUresult later(CUstream handle, Work work) {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  return submit(stream, std::move(work));
}

CUresult copy(uint64_t target, uint64_t source, size_type bytes) {
  if (bytes == 0) return CUDA_SUCCESS;
  driver().settle();
  Device *to = nullptr, *from = nullptr;
  if (CUresult error = check_range(target, bytes, true, &to, "the copy's target")) return error;
  if (CUresult error = check_range(source, bytes, true, &from, "the copy's source")) return error;
  std::memmove(host_pointer(target), host_pointer(source), bytes);
  if (to == nullptr) return CUDA_SUCCESS;
  if (from == nullptr || from->memory->find(source)->whole) {
    to->memory->mark_written(target, bytes);
  } else {  // copies what is known of the source
    Allocation* allocation = to->memory->find(target);
    if (allocation->whole) {
      std::memset(to->memory->written(allocation->base), 1, allocation->bytes);
      allocation->whole = false;
    }
    std::memmove(to->memory->written(target), from->memory->written(source), bytes);
  }
  return CUDA_SUCCESS;
}

CUresult copy_now(uint64_t target, uint64_t source, size_type bytes) {
  return now("a blocking copy", [=] { return copy(target, source, bytes); });
}

CUresult copy_later(uint64_t target, uint64_t source, size_type bytes, CUstream handle) {
  return later(handle, [=] { return copy(target, source, bytes); });
}

template <class T>
CUresult fill(uint64_t target, T value, size_type count) {
  driver().settle();
  if (count == 0) return CUDA_SUCCESS;
  if (count > ~size_type{0} / sizeof(T))
    return fail(CUDA_ERROR_INVALID_VALUE, std::to_string(count) + " elements are more than memory has");
  Device* device = nullptr;
  if (CUresult error = check_range(target, count * sizeof(T), false, &device, "the fill's target"))
    return error;
  if (target % sizeof(T) != 0)
    return fail(CUDA_ERROR_INVALID_VALUE, "the fill's target is not aligned to its element");
  T* at = reinterpret_cast<T*>(host_pointer(target));
  std::fill(at, at + count, value);
  device->memory->mark_written(target, count * sizeof(T));
  return CUDA_SUCCESS;
}

template <class T>
CUresult fill_now(uint64_t target, T value, size_type count) {
  return now("a blocking fill", [=] { return fill(target, value, count); });
}

template <class T>
CUresult fill_later(uint64_t target, T value, size_type count, CUstream handle) {
  return later(handle, [=] { return fill(target, value, count); });
}

CUresult copy_2d(const CUDA_MEMCPY2D& c) {
  driver().settle();
  if (c.srcMemoryType == CU_MEMORYTYPE_ARRAY || c.dstMemoryType == CU_MEMORYTYPE_ARRAY)
    return fail(CUDA_ERROR_NOT_SUPPORTED, "the emulated device has no arrays");
  uint64_t source =
      c.srcMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(c.srcHost) : c.srcDevice;
  uint64_t target =
      c.dstMemoryType == CU_MEMORYTYPE_HOST ? reinterpret_cast<uint64_t>(c.dstHost) : c.dstDevice;
  for (size_type row = 0; row < c.Height; ++row)
    if (CUresult error = copy(target + c.dstXInBytes + (c.dstY + row) * c.dstPitch,
                              source + c.srcXInBytes + (c.srcY + row) * c.srcPitch, c.WidthInBytes))
      return error;
  return CUDA_SUCCESS;
}

CUresult allocate(CUdeviceptr* pointer, size_type bytes) {
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  if (pointer == nullptr || bytes == 0) return fail(CUDA_ERROR_INVALID_VALUE, "an allocation of 0 bytes");
  *pointer = driver().device(context->device)->memory->allocate(bytes);
  return *pointer != 0 ? CUDA_SUCCESS
                       : fail(CUDA_ERROR_OUT_OF_MEMORY, std::to_string(bytes) + " B are not available");
}

CUresult release(CUdeviceptr pointer) {
  if (pointer == 0) return CUDA_SUCCESS;
  Device* device = driver().device_of_address(pointer);
  if (device == nullptr || !device->memory->free(pointer))
    return fail(CUDA_ERROR_INVALID_VALUE, "not the start of a live allocation");
  host_allocations().erase(pointer);
  return CUDA_SUCCESS;
}

}  // namespace

namespace trigen::cuda {

TRIGEN_ENTRY CUresult cuMemGetInfo_v2(size_type* free_bytes, size_type* total_bytes) try {
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  const DeviceMemory& memory = *driver().device(context->device)->memory;
  *total_bytes = memory.capacity();
  *free_bytes = memory.capacity() - memory.used();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemAlloc_v2(CUdeviceptr* pointer, size_type bytes) try {
  std::lock_guard lock(driver().mutex);
  if (CUresult error = refuse_during_capture("cuMemAlloc")) return error;
  return allocate(pointer, bytes);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemFree_v2(CUdeviceptr pointer) try {
  std::lock_guard lock(driver().mutex);
  if (CUresult error = refuse_during_capture("cuMemFree")) return error;
  return release(pointer);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemAllocAsync(CUdeviceptr* pointer, size_type bytes, CUstream handle) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  if (stream->capture != nullptr)
    return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "allocation nodes are not supported");
  return allocate(pointer, bytes);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemFreeAsync(CUdeviceptr pointer, CUstream handle) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  if (stream->capture != nullptr)
    return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "free nodes are not supported");
  return release(pointer);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemGetAddressRange_v2(CUdeviceptr* base, size_type* bytes, CUdeviceptr pointer) try {
  std::lock_guard lock(driver().mutex);
  Device* device = nullptr;
  if (CUresult error = check_range(pointer, 0, false, &device, "the pointer")) return error;
  Allocation* allocation = device->memory->find(pointer);
  if (base != nullptr) *base = allocation->base;
  if (bytes != nullptr) *bytes = allocation->bytes;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemHostAlloc(void** pointer, size_type bytes, unsigned) try {
  std::lock_guard lock(driver().mutex);
  if (CUresult error = refuse_during_capture("cuMemHostAlloc")) return error;
  CUdeviceptr address = 0;
  if (CUresult error = allocate(&address, bytes)) return error;
  Device* device = driver().device_of_address(address);
  device->memory->find(address)->whole = true;  // the host writes it without the device's knowledge
  host_allocations().insert(address);
  *pointer = host_pointer(address);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemAllocHost_v2(void** pointer, size_type bytes) try {
  return cuMemHostAlloc(pointer, bytes, 0);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemFreeHost(void* pointer) try {
  return cuMemFree_v2(reinterpret_cast<CUdeviceptr>(pointer));
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute,
                                            CUdeviceptr pointer) try {
  std::lock_guard lock(driver().mutex);
  Device* device = driver().device_of_address(pointer);
  Allocation* allocation = device != nullptr ? device->memory->find(pointer) : nullptr;
  if (allocation == nullptr || allocation->freed || pointer >= allocation->end())
    return fail(CUDA_ERROR_INVALID_VALUE, "no device address");
  const bool host = host_allocations().count(allocation->base) != 0;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_CONTEXT:
      *static_cast<CUcontext*>(data) = &device->primary;
      break;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(data) = pointer;
      break;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!host) return fail(CUDA_ERROR_INVALID_VALUE, "device memory has no host pointer");
      *static_cast<void**>(data) = host_pointer(pointer);
      break;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
      *static_cast<unsigned long long*>(data) = allocation->id;
      break;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
      *static_cast<unsigned*>(data) = 0;
      break;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<unsigned*>(data) = host ? 0 : 1;  // one allocation of cuMemAlloc
      break;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(data) = device->ordinal;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(data) = allocation->base;
      break;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<size_type*>(data) = allocation->bytes;
      break;
    case CU_POINTER_ATTRIBUTE_MAPPED:
      *static_cast<unsigned*>(data) = 1;
      break;
    default:
      return fail(CUDA_ERROR_INVALID_VALUE, "unknown pointer attribute " + std::to_string(attribute));
  }
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data,
                                             CUdeviceptr pointer) try {
  for (unsigned i = 0; i < count; ++i)
    if (cuPointerGetAttribute(data[i], attributes[i], pointer) != CUDA_SUCCESS) {
      // As the driver does: a pointer it does not know gives zeros and no error.
      const bool narrow = attributes[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE ||
                          attributes[i] == CU_POINTER_ATTRIBUTE_MAPPED;
      if (attributes[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
        *static_cast<int*>(data[i]) = -2;
      else
        std::memset(data[i], 0, narrow ? 4 : 8);
    }
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemcpy(CUdeviceptr target, CUdeviceptr source, size_type bytes) try {
  return copy_now(target, source, bytes);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void* source, size_type bytes) try {
  return copy_now(target, reinterpret_cast<uint64_t>(source), bytes);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemcpyDtoH_v2(void* target, CUdeviceptr source, size_type bytes) try {
  return copy_now(reinterpret_cast<uint64_t>(target), source, bytes);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_type bytes) try {
  return copy_now(target, source, bytes);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemcpyAsync(CUdeviceptr target, CUdeviceptr source, size_type bytes,
                                    CUstream stream) try {
  return copy_later(target, source, bytes, stream);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void* source, size_type bytes,
                                           CUstream stream) try {
  return copy_later(target, reinterpret_cast<uint64_t>(source), bytes, stream);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemcpyDtoHAsync_v2(void* target, CUdeviceptr source, size_type bytes,
                                           CUstream stream) try {
  return copy_later(reinterpret_cast<uint64_t>(target), source, bytes, stream);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_type bytes,
                                           CUstream stream) try {
  return copy_later(target, source, bytes, stream);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D* copy) try {
  return now("a blocking copy", [=] { return copy_2d(*copy); });
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D* copy, CUstream handle) try {
  return later(handle, [c = *copy] { return copy_2d(c); });
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_type count) try {
  return fill_now(target, value, count);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemsetD16_v2(CUdeviceptr target, unsigned short value, size_type count) try {
  return fill_now(target, value, count);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned value, size_type count) try {
  return fill_now(target, value, count);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_type count,
                                      CUstream stream) try {
  return fill_later(target, value, count, stream);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemsetD16Async(CUdeviceptr target, unsigned short value, size_type count,
                                       CUstream stream) try {
  return fill_later(target, value, count, stream);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemsetD32Async(CUdeviceptr target, unsigned value, size_type count,
                                       CUstream stream) try {
  return fill_later(target, value, count, stream);
}
TRIGEN_CATCH
TRIGEN_ENTRY CUresult cuMemsetD2D8Async(CUdeviceptr target, size_type pitch, unsigned char value,
                                        size_type width, size_type height, CUstream handle) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  if (width > pitch && height > 1)
    return fail(CUDA_ERROR_INVALID_VALUE, "rows that are wider than their pitch");
  return submit(stream, [=] {
    for (size_type row = 0; row < height; ++row)
      if (CUresult error = fill(target + row * pitch, value, width)) return error;
    return CUDA_SUCCESS;
  });
}
TRIGEN_CATCH

}  // namespace trigen::cuda
