/* Device memory through the runtime's own driver, for programs without the CUDA toolkit and for the emulated
 * device (trigen_runtime_options.driver = "emulated:sm_70", or TRIGEN_DRIVER), whose memory no CUDA library
 * knows. A program that has cudaMalloc or a framework's tensors needs none of this.
 *
 * `device` is a CUDA ordinal or TRIGEN_CURRENT_DEVICE; memory belongs to the context that a plan of that device
 * has. The caller's current context is the same afterwards. */
#ifndef TRIGEN_TRIGEN_MEMORY_H
#define TRIGEN_TRIGEN_MEMORY_H

#include <trigen/trigen.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zero bytes give NULL. */
TRIGEN_API trigen_status trigen_memory_allocate(trigen_runtime* runtime, int device, size_t bytes,
                                                void** pointer) TRIGEN_NOEXCEPT;
/* Waits for the work that uses it. NULL is allowed. */
TRIGEN_API trigen_status trigen_memory_free(trigen_runtime* runtime, int device,
                                            void* pointer) TRIGEN_NOEXCEPT;
/* From host memory to the device, where it has arrived then. */
TRIGEN_API trigen_status trigen_memory_write(trigen_runtime* runtime, int device, void* to, const void* from,
                                             size_t bytes) TRIGEN_NOEXCEPT;
/* From the device to host memory, after waiting for the work of every stream of the context. Here a kernel's
 * own errors show, in words on the emulated device. */
TRIGEN_API trigen_status trigen_memory_read(trigen_runtime* runtime, int device, void* to, const void* from,
                                            size_t bytes) TRIGEN_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TRIGEN_TRIGEN_MEMORY_H */
