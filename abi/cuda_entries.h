// The Driver API entries that trigen knows, as one list: X(name, exported symbol, parameters).
//
// The exported symbol carries the version suffix that cuda.h's macros add (cuMemAlloc is exported as
// cuMemAlloc_v2). A loader looks up `symbol`; each entry's function type is trigen::cuda::fn::name. All
// return CUresult. Where two versions differ in their parameters, both stand here under their own name.
#pragma once

#include "cuda_abi.h"

#define TRIGEN_CUDA_ENTRIES(X)                                                                               \
  /* errors, version, devices */                                                                             \
  X(cuGetErrorString, cuGetErrorString, (CUresult error, const char** text))                                 \
  X(cuGetErrorName, cuGetErrorName, (CUresult error, const char** name))                                     \
  X(cuInit, cuInit, (unsigned flags))                                                                        \
  X(cuDriverGetVersion, cuDriverGetVersion, (int* version))                                                  \
  X(cuGetProcAddress, cuGetProcAddress_v2,                                                                   \
    (const char* symbol, void** function, int cuda_version, unsigned long long flags,                        \
     CUdriverProcAddressQueryResult* status))                                                                \
  X(cuDeviceGet, cuDeviceGet, (CUdevice * device, int ordinal))                                              \
  X(cuDeviceGetCount, cuDeviceGetCount, (int* count))                                                        \
  X(cuDeviceGetName, cuDeviceGetName, (char* name, int length, CUdevice device))                             \
  X(cuDeviceGetUuid, cuDeviceGetUuid_v2, (CUuuid * uuid, CUdevice device))                                   \
  X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_type * bytes, CUdevice device))                             \
  X(cuDeviceGetAttribute, cuDeviceGetAttribute, (int* value, CUdevice_attribute attribute, CUdevice device)) \
  X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId, (char* text, int length, CUdevice device))                     \
  /* contexts */                                                                                             \
  X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext * context, CUdevice device))              \
  X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (CUdevice device))                              \
  X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (CUdevice device))                                  \
  X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, (CUdevice device, unsigned* flags, int* active)) \
  X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext * context))                                                 \
  X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext context))                                                   \
  X(cuCtxPushCurrent, cuCtxPushCurrent_v2, (CUcontext context))                                              \
  X(cuCtxPopCurrent, cuCtxPopCurrent_v2, (CUcontext * context))                                              \
  X(cuCtxGetDevice, cuCtxGetDevice, (CUdevice * device))                                                     \
  X(cuCtxSynchronize, cuCtxSynchronize, ())                                                                  \
  X(cuCtxGetLimit, cuCtxGetLimit, (size_type * value, CUlimit limit))                                        \
  X(cuCtxSetLimit, cuCtxSetLimit, (CUlimit limit, size_type value))                                          \
  X(cuCtxGetStreamPriorityRange, cuCtxGetStreamPriorityRange, (int* least, int* greatest))                   \
  X(cuCtxResetPersistingL2Cache, cuCtxResetPersistingL2Cache, ())                                            \
  /* memory */                                                                                               \
  X(cuMemGetInfo, cuMemGetInfo_v2, (size_type * free_bytes, size_type * total_bytes))                        \
  X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr * pointer, size_type bytes))                                     \
  X(cuMemFree, cuMemFree_v2, (CUdeviceptr pointer))                                                          \
  X(cuMemAllocAsync, cuMemAllocAsync, (CUdeviceptr * pointer, size_type bytes, CUstream stream))             \
  X(cuMemFreeAsync, cuMemFreeAsync, (CUdeviceptr pointer, CUstream stream))                                  \
  X(cuMemGetAddressRange, cuMemGetAddressRange_v2,                                                           \
    (CUdeviceptr * base, size_type * bytes, CUdeviceptr pointer))                                            \
  X(cuMemAllocHost, cuMemAllocHost_v2, (void** pointer, size_type bytes))                                    \
  X(cuMemHostAlloc, cuMemHostAlloc, (void** pointer, size_type bytes, unsigned flags))                       \
  X(cuMemFreeHost, cuMemFreeHost, (void* pointer))                                                           \
  X(cuPointerGetAttribute, cuPointerGetAttribute,                                                            \
    (void* data, CUpointer_attribute attribute, CUdeviceptr pointer))                                        \
  X(cuPointerGetAttributes, cuPointerGetAttributes,                                                          \
    (unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr pointer))                     \
  X(cuMemcpy, cuMemcpy, (CUdeviceptr target, CUdeviceptr source, size_type bytes))                           \
  X(cuMemcpyHtoD, cuMemcpyHtoD_v2, (CUdeviceptr target, const void* source, size_type bytes))                \
  X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void* target, CUdeviceptr source, size_type bytes))                      \
  X(cuMemcpyDtoD, cuMemcpyDtoD_v2, (CUdeviceptr target, CUdeviceptr source, size_type bytes))                \
  X(cuMemcpyAsync, cuMemcpyAsync,                                                                            \
    (CUdeviceptr target, CUdeviceptr source, size_type bytes, CUstream stream))                              \
  X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2,                                                                 \
    (CUdeviceptr target, const void* source, size_type bytes, CUstream stream))                              \
  X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2,                                                                 \
    (void* target, CUdeviceptr source, size_type bytes, CUstream stream))                                    \
  X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2,                                                                 \
    (CUdeviceptr target, CUdeviceptr source, size_type bytes, CUstream stream))                              \
  X(cuMemcpy2D, cuMemcpy2D_v2, (const CUDA_MEMCPY2D* copy))                                                  \
  X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2, (const CUDA_MEMCPY2D* copy, CUstream stream))                       \
  X(cuMemsetD8, cuMemsetD8_v2, (CUdeviceptr target, unsigned char value, size_type count))                   \
  X(cuMemsetD16, cuMemsetD16_v2, (CUdeviceptr target, unsigned short value, size_type count))                \
  X(cuMemsetD32, cuMemsetD32_v2, (CUdeviceptr target, unsigned value, size_type count))                      \
  X(cuMemsetD8Async, cuMemsetD8Async,                                                                        \
    (CUdeviceptr target, unsigned char value, size_type count, CUstream stream))                             \
  X(cuMemsetD16Async, cuMemsetD16Async,                                                                      \
    (CUdeviceptr target, unsigned short value, size_type count, CUstream stream))                            \
  X(cuMemsetD32Async, cuMemsetD32Async,                                                                      \
    (CUdeviceptr target, unsigned value, size_type count, CUstream stream))                                  \
  X(cuMemsetD2D8Async, cuMemsetD2D8Async,                                                                    \
    (CUdeviceptr target, size_type pitch, unsigned char value, size_type width, size_type height,            \
     CUstream stream))                                                                                       \
  /* streams and events */                                                                                   \
  X(cuStreamCreate, cuStreamCreate, (CUstream * stream, unsigned flags))                                     \
  X(cuStreamCreateWithPriority, cuStreamCreateWithPriority,                                                  \
    (CUstream * stream, unsigned flags, int priority))                                                       \
  X(cuStreamGetPriority, cuStreamGetPriority, (CUstream stream, int* priority))                              \
  X(cuStreamGetFlags, cuStreamGetFlags, (CUstream stream, unsigned* flags))                                  \
  X(cuStreamGetCtx, cuStreamGetCtx, (CUstream stream, CUcontext * context))                                  \
  X(cuStreamGetDevice, cuStreamGetDevice, (CUstream stream, CUdevice * device))                              \
  X(cuStreamGetId, cuStreamGetId, (CUstream stream, unsigned long long* id))                                 \
  X(cuStreamWaitEvent, cuStreamWaitEvent, (CUstream stream, CUevent event, unsigned flags))                  \
  X(cuStreamQuery, cuStreamQuery, (CUstream stream))                                                         \
  X(cuStreamSynchronize, cuStreamSynchronize, (CUstream stream))                                             \
  X(cuStreamDestroy, cuStreamDestroy_v2, (CUstream stream))                                                  \
  X(cuLaunchHostFunc, cuLaunchHostFunc, (CUstream stream, CUhostFn function, void* user_data))               \
  X(cuEventCreate, cuEventCreate, (CUevent * event, unsigned flags))                                         \
  X(cuEventRecord, cuEventRecord, (CUevent event, CUstream stream))                                          \
  X(cuEventRecordWithFlags, cuEventRecordWithFlags, (CUevent event, CUstream stream, unsigned flags))        \
  X(cuEventQuery, cuEventQuery, (CUevent event))                                                             \
  X(cuEventSynchronize, cuEventSynchronize, (CUevent event))                                                 \
  X(cuEventDestroy, cuEventDestroy_v2, (CUevent event))                                                      \
  X(cuEventElapsedTime, cuEventElapsedTime, (float* milliseconds, CUevent start, CUevent end))               \
  /* modules, libraries, kernels, functions */                                                               \
  X(cuModuleLoadData, cuModuleLoadData, (CUmodule * module, const void* image))                              \
  X(cuModuleLoadDataEx, cuModuleLoadDataEx,                                                                  \
    (CUmodule * module, const void* image, unsigned count, CUjit_option* options, void** values))            \
  X(cuModuleUnload, cuModuleUnload, (CUmodule module))                                                       \
  X(cuModuleGetFunction, cuModuleGetFunction, (CUfunction * function, CUmodule module, const char* name))    \
  X(cuModuleGetGlobal, cuModuleGetGlobal_v2,                                                                 \
    (CUdeviceptr * pointer, size_type * bytes, CUmodule module, const char* name))                           \
  X(cuLibraryLoadData, cuLibraryLoadData,                                                                    \
    (CUlibrary * library, const void* code, CUjit_option* jit_options, void** jit_values,                    \
     unsigned jit_count, CUlibraryOption* options, void** values, unsigned count))                           \
  X(cuLibraryUnload, cuLibraryUnload, (CUlibrary library))                                                   \
  X(cuLibraryGetKernel, cuLibraryGetKernel, (CUkernel * kernel, CUlibrary library, const char* name))        \
  X(cuLibraryGetModule, cuLibraryGetModule, (CUmodule * module, CUlibrary library))                          \
  X(cuLibraryGetGlobal, cuLibraryGetGlobal,                                                                  \
    (CUdeviceptr * pointer, size_type * bytes, CUlibrary library, const char* name))                         \
  X(cuKernelGetFunction, cuKernelGetFunction, (CUfunction * function, CUkernel kernel))                      \
  X(cuKernelGetAttribute, cuKernelGetAttribute,                                                              \
    (int* value, CUfunction_attribute attribute, CUkernel kernel, CUdevice device))                          \
  X(cuKernelSetAttribute, cuKernelSetAttribute,                                                              \
    (CUfunction_attribute attribute, int value, CUkernel kernel, CUdevice device))                           \
  X(cuKernelGetName, cuKernelGetName, (const char** name, CUkernel kernel))                                  \
  X(cuFuncGetAttribute, cuFuncGetAttribute,                                                                  \
    (int* value, CUfunction_attribute attribute, CUfunction function))                                       \
  X(cuFuncSetAttribute, cuFuncSetAttribute,                                                                  \
    (CUfunction function, CUfunction_attribute attribute, int value))                                        \
  X(cuFuncSetCacheConfig, cuFuncSetCacheConfig, (CUfunction function, CUfunc_cache config))                  \
  X(cuFuncGetModule, cuFuncGetModule, (CUmodule * module, CUfunction function))                              \
  X(cuFuncGetName, cuFuncGetName, (const char** name, CUfunction function))                                  \
  X(cuFuncGetParamInfo, cuFuncGetParamInfo,                                                                  \
    (CUfunction function, size_type index, size_type * offset, size_type * bytes))                           \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxActiveBlocksPerMultiprocessor,                \
    (int* blocks, CUfunction function, int block_size, size_type dynamic_shared))                            \
  X(cuOccupancyMaxActiveClusters, cuOccupancyMaxActiveClusters,                                              \
    (int* clusters, CUfunction function, const CUlaunchConfig* config))                                      \
  /* launches */                                                                                             \
  X(cuLaunchKernel, cuLaunchKernel,                                                                          \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,               \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters,          \
     void** extra))                                                                                          \
  X(cuLaunchKernelEx, cuLaunchKernelEx,                                                                      \
    (const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra))                    \
  X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel,                                                    \
    (CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,               \
     unsigned block_y, unsigned block_z, unsigned shared_bytes, CUstream stream, void** parameters))         \
  /* graphs by stream capture */                                                                             \
  X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream stream, CUstreamCaptureMode mode))              \
  X(cuStreamEndCapture, cuStreamEndCapture, (CUstream stream, CUgraph * graph))                              \
  X(cuStreamIsCapturing, cuStreamIsCapturing, (CUstream stream, CUstreamCaptureStatus * status))             \
  X(cuStreamGetCaptureInfo_v2, cuStreamGetCaptureInfo_v2,                                                    \
    (CUstream stream, CUstreamCaptureStatus * status, unsigned long long* id, CUgraph* graph,                \
     const CUgraphNode** dependencies, size_type* count))                                                    \
  X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (CUstreamCaptureMode * mode))      \
  X(cuGraphCreate, cuGraphCreate, (CUgraph * graph, unsigned flags))                                         \
  X(cuGraphDestroy, cuGraphDestroy, (CUgraph graph))                                                         \
  X(cuGraphGetNodes, cuGraphGetNodes, (CUgraph graph, CUgraphNode * nodes, size_type * count))               \
  X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags,                                                \
    (CUgraphExec * executable, CUgraph graph, unsigned long long flags))                                     \
  X(cuGraphUpload, cuGraphUpload, (CUgraphExec executable, CUstream stream))                                 \
  X(cuGraphLaunch, cuGraphLaunch, (CUgraphExec executable, CUstream stream))                                 \
  X(cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec executable))                                        \
  /* tensor maps: compute capability 9.0 and later */                                                        \
  X(cuTensorMapEncodeTiled, cuTensorMapEncodeTiled,                                                          \
    (CUtensorMap * map, CUtensorMapDataType type, unsigned rank, void* global_address,                       \
     const unsigned long long* global_dim, const unsigned long long* global_strides,                         \
     const unsigned* box_dim, const unsigned* element_strides, CUtensorMapInterleave interleave,             \
     CUtensorMapSwizzle swizzle, CUtensorMapL2promotion l2_promotion, CUtensorMapFloatOOBfill oob_fill))     \
  X(cuTensorMapReplaceAddress, cuTensorMapReplaceAddress, (CUtensorMap * map, void* global_address))

namespace trigen::cuda::fn {
// NOLINTNEXTLINE(bugprone-macro-parentheses): declarations
#define TRIGEN_CUDA_TYPE(name, symbol, parameters) using name = CUresult parameters;
TRIGEN_CUDA_ENTRIES(TRIGEN_CUDA_TYPE)
#undef TRIGEN_CUDA_TYPE
}  // namespace trigen::cuda::fn
