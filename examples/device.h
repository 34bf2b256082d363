/* Device memory for the examples, through trigen_memory.h, so that they build without a toolkit and run on the
 * emulated device (TRIGEN_DRIVER=emulated:sm_70). An application may use what it has already: cudaMalloc, a
 * framework's tensors. */
#ifndef TRIGEN_EXAMPLES_DEVICE_H
#define TRIGEN_EXAMPLES_DEVICE_H

#include <stdio.h>
#include <stdlib.h>
#include <trigen/trigen_memory.h>

#define EXAMPLE_SKIPPED 77

static trigen_runtime* device_runtime;

static void device_check(trigen_status status) {
  if (status == TRIGEN_OK) return;
  fprintf(stderr, "%s: %s\n", trigen_status_name(status), trigen_last_error());
  exit(1);
}

static void* device_allocate(size_t bytes) {
  void* pointer = NULL;
  device_check(trigen_memory_allocate(device_runtime, 0, bytes, &pointer));
  return pointer;
}

static void device_free(void* pointer) { device_check(trigen_memory_free(device_runtime, 0, pointer)); }

static void device_upload(void* target, const void* source, size_t bytes) {
  device_check(trigen_memory_write(device_runtime, 0, target, source, bytes));
}

/* Waits for the work on every stream before it copies. */
static void device_download(void* target, const void* source, size_t bytes) {
  device_check(trigen_memory_read(device_runtime, 0, target, source, bytes));
}

/* Leaves with EXAMPLE_SKIPPED where there is no device. */
static void device_open(void) {
  void* pointer = NULL;
  trigen_status status;
  device_check(trigen_runtime_create(NULL, &device_runtime));
  status = trigen_memory_allocate(device_runtime, 0, 1, &pointer);
  if (status == TRIGEN_DEVICE_ERROR) {
    printf("[SKIP] %s\n", trigen_last_error());
    exit(EXAMPLE_SKIPPED);
  }
  device_check(status);
  device_free(pointer);
}

#endif /* TRIGEN_EXAMPLES_DEVICE_H */
