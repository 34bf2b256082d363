/* trigen's XLA handler on XLA's CPU platform, with the emulated device behind it: buffers are copied to emulated memory before a
 * call and back after it, and the two questions that only a GPU's XLA answers (stream, device) are answered here. Everything else
 * is the XLA of the jaxlib that runs. */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "abi/xla_ffi.h"

static void* (*call)(void*);
static int (*set_current)(void*), (*allocate)(uint64_t*, size_t), (*release)(uint64_t),
    (*upload)(uint64_t, const void*, size_t), (*download)(void*, uint64_t, size_t);
static void* context;
static int initialized, executed,
    api_size; /* api_size: what the handler is told XLA's functions are; 0: all */

int shim_open(const char* emulator, void* handler) {
  void* const driver = dlopen(emulator, RTLD_NOW);
  int (*retain)(void**, int);
  if (!driver) return 1;
  call = (void* (*)(void*))handler;
  retain = (int (*)(void**, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
  set_current = (int (*)(void*))dlsym(driver, "cuCtxSetCurrent");
  allocate = (int (*)(uint64_t*, size_t))dlsym(driver, "cuMemAlloc_v2");
  release = (int (*)(uint64_t))dlsym(driver, "cuMemFree_v2");
  upload = (int (*)(uint64_t, const void*, size_t))dlsym(driver, "cuMemcpyHtoD_v2");
  download = (int (*)(void*, uint64_t, size_t))dlsym(driver, "cuMemcpyDtoH_v2");
  return retain(&context, 0);
}
int shim_initialized(void) { return initialized; }
int shim_executed(void) { return executed; }
void shim_api_size(int size) { api_size = size; }

static xla_error* stream_get(xla_stream_get* get) { return get->stream = NULL, NULL; }
static xla_error* ordinal_get(xla_ordinal_get* get) { return get->ordinal = 0, NULL; }

static size_t bytes_of(const xla_buffer* buffer) {
  size_t bytes = buffer->dtype == XLA_F32 ? 4 : buffer->dtype == XLA_U8 ? 1 : 2;
  for (int64_t i = 0; i < buffer->rank; ++i) bytes *= (size_t)buffer->dims[i];
  return bytes;
}

/* Copies of the buffers in emulated memory; ends of memory are exact there, so a kernel that leaves its buffers is caught. */
static void* frame_of(xla_values* values, xla_buffer* buffers, void** pointers, int filled) {
  for (int64_t i = 0; i < values->size; ++i) {
    const size_t bytes = bytes_of(values->values[i]);
    uint64_t address = 0;
    buffers[i] = *(xla_buffer*)values->values[i];
    if (bytes && allocate(&address, bytes)) abort();
    if (bytes && filled && upload(address, buffers[i].data, bytes)) abort();
    buffers[i].data = (void*)(uintptr_t)address;
    pointers[i] = &buffers[i];
  }
  return pointers;
}

void* shim_call(void* given) {
  xla_frame frame = *(xla_frame*)given;
  xla_api api;
  xla_buffer in[8], out[8];
  void *in_pointers[8], *out_pointers[8], *error;
  for (xla_extension* one = frame.extensions; one; one = one->next)
    if (one->type == XLA_EXTENSION_METADATA) return call(given);
  memset(&api, 0, sizeof api);
  memcpy(&api, frame.api, frame.api->struct_size < sizeof api ? frame.api->struct_size : sizeof api);
  api.struct_size = api_size ? (size_t)api_size : sizeof api;
  api.stream_get = stream_get;
  api.ordinal_get = ordinal_get;
  frame.api = &api;
  set_current(context);
  if (frame.stage == XLA_INITIALIZE) return ++initialized, call(&frame);
  if (frame.stage != XLA_EXECUTE || frame.arguments.size > 8 || frame.results.size > 8) abort();
  frame.arguments.values = frame_of(&frame.arguments, in, in_pointers, 1);
  frame.results.values = frame_of(&frame.results, out, out_pointers, 0);
  error = call(&frame);
  for (int64_t i = 0; i < frame.results.size; ++i) {
    const xla_buffer* const theirs = ((xla_frame*)given)->results.values[i];
    const int workspace = theirs->dtype == XLA_U8;
    if (!error && out[i].data && !workspace &&
        download(theirs->data, (uint64_t)(uintptr_t)out[i].data, bytes_of(theirs)))
      abort();
    if (out[i].data) release((uint64_t)(uintptr_t)out[i].data);
  }
  for (int64_t i = 0; i < frame.arguments.size; ++i)
    if (in[i].data) release((uint64_t)(uintptr_t)in[i].data);
  return ++executed, error;
}
