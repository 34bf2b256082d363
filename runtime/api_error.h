/* Errors of the C boundary's parts that are written in C. */
#ifndef TRIGEN_RUNTIME_API_ERROR_H
#define TRIGEN_RUNTIME_API_ERROR_H

#include <trigen/trigen.h>

#ifdef __cplusplus
extern "C"
#endif
    /* status, with its text kept for trigen_last_error. Not exported. */
    __attribute__((visibility("hidden"))) trigen_status
    trigen_fail(trigen_status status, const char* text) TRIGEN_NOEXCEPT;

#endif /* TRIGEN_RUNTIME_API_ERROR_H */
