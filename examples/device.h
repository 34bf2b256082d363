/* Device memory for the examples, through the CUDA driver opened at run time, so that they build without a
 * toolkit. An application uses what it has already: cudaMalloc, a framework's tensors. */
#ifndef TRIGEN_EXAMPLES_DEVICE_H
#define TRIGEN_EXAMPLES_DEVICE_H

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXAMPLE_SKIPPED 77

typedef struct device_api {
  int (*init)(unsigned);
  int (*get)(int*, int);
  int (*retain)(void**, int);
  int (*set_current)(void*);
  int (*synchronize)(void);
  int (*allocate)(unsigned long long*, size_t);
  int (*release)(unsigned long long);
  int (*upload)(unsigned long long, const void*, size_t);
  int (*download)(void*, unsigned long long, size_t);
} device_api;

static device_api device;

static void device_check(int result, const char* call) {
  if (result == 0) return;
  fprintf(stderr, "%s failed: CUDA error %d\n", call, result);
  exit(1);
}

static void* device_symbol(void* library, const char* name) {
  void* symbol = dlsym(library, name);
  if (symbol == NULL) {
    fprintf(stderr, "the driver lacks %s\n", name);
    exit(1);
  }
  return symbol;
}

/* Opens the driver and makes device 0 current; leaves with EXAMPLE_SKIPPED where there is none. */
static void device_open(void) {
  const char* path = getenv("TRIGEN_DRIVER");
  void* library = dlopen(path != NULL ? path : "libcuda.so.1", RTLD_NOW);
  int ordinal = 0;
  void* context = NULL;
  if (library == NULL) {
    printf("[SKIP] no driver here: %s\n", dlerror());
    exit(EXAMPLE_SKIPPED);
  }
  *(void**)&device.init = device_symbol(library, "cuInit");
  *(void**)&device.get = device_symbol(library, "cuDeviceGet");
  *(void**)&device.retain = device_symbol(library, "cuDevicePrimaryCtxRetain");
  *(void**)&device.set_current = device_symbol(library, "cuCtxSetCurrent");
  *(void**)&device.synchronize = device_symbol(library, "cuCtxSynchronize");
  *(void**)&device.allocate = device_symbol(library, "cuMemAlloc_v2");
  *(void**)&device.release = device_symbol(library, "cuMemFree_v2");
  *(void**)&device.upload = device_symbol(library, "cuMemcpyHtoD_v2");
  *(void**)&device.download = device_symbol(library, "cuMemcpyDtoH_v2");
  if (device.init(0) != 0 || device.get(&ordinal, 0) != 0) {
    printf("[SKIP] the driver shows no device\n");
    exit(EXAMPLE_SKIPPED);
  }
  device_check(device.retain(&context, ordinal), "cuDevicePrimaryCtxRetain");
  device_check(device.set_current(context), "cuCtxSetCurrent");
}

static void* device_allocate(size_t bytes) {
  unsigned long long pointer = 0;
  if (bytes == 0) return NULL;
  device_check(device.allocate(&pointer, bytes), "cuMemAlloc");
  return (void*)(size_t)pointer;
}

static void device_free(void* pointer) {
  if (pointer != NULL) device_check(device.release((unsigned long long)(size_t)pointer), "cuMemFree");
}

static void device_upload(void* target, const void* source, size_t bytes) {
  device_check(device.upload((unsigned long long)(size_t)target, source, bytes), "cuMemcpyHtoD");
}

/* Waits for the work on every stream before it copies. */
static void device_download(void* target, const void* source, size_t bytes) {
  device_check(device.synchronize(), "cuCtxSynchronize");
  device_check(device.download(target, (unsigned long long)(size_t)source, bytes), "cuMemcpyDtoH");
}

#endif /* TRIGEN_EXAMPLES_DEVICE_H */
