/* Tuning from C, and caches as files that one ships: what `trigen tune` and `trigen cache export|import|merge`
 * do. docs/cache-format.md has the rules. */
#ifndef TRIGEN_TRIGEN_TUNE_H
#define TRIGEN_TRIGEN_TUNE_H

#include <trigen/trigen.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct trigen_tune_options {
  size_t struct_size; /* sizeof(trigen_tune_options) */
  const char* target; /* "sm_70"; NULL: the device's own */
  int device;         /* CUDA ordinal, or TRIGEN_CURRENT_DEVICE */
  int predict;        /* use no device: choices are the cost model's. Needs a target */
  int threads;        /* that compile; 0: one for each CPU */
  int force;          /* measure again what was measured before */
  double budget_s;    /* for one problem, for what follows its first measured candidate; 0: 60 */
} trigen_tune_options;
#define TRIGEN_TUNE_OPTIONS_INIT \
  { sizeof(trigen_tune_options), NULL, TRIGEN_CURRENT_DEVICE, 0, 0, 0, 0 }

/* The outcome of one problem. Texts are valid during the call that hands them out. */
typedef struct trigen_tune_result {
  size_t struct_size;
  trigen_status status;   /* TRIGEN_OK: there is a choice */
  const char* problem;    /* canonical text */
  const char* target;     /* "sm_70" */
  const char* candidate;  /* "mma_sm70:tile=..."; "" without a choice */
  const char* provenance; /* "measured" or "predicted"; "" without a choice */
  const char* message;    /* the error, or notes (a line each); "" when there is nothing to say */
  double seconds;         /* of one run: median, or prediction */
  int stored;             /* 0: the cache could not be written; message says why */
} trigen_tune_result;
/* Called after each problem, from the thread that called trigen_tune. Not zero: stop here. */
typedef int (*trigen_tune_callback)(const trigen_tune_result* result, void* user);

/* Finds the best kernel of each problem (texts) and stores it in the runtime's writable cache file. Goes on
 * after a problem that fails; the result is TRIGEN_OK when each one tried has a stored choice, else the first
 * failure's status. Plans that a runtime has made stay as they are: make a new runtime to use what was tuned.
 * options and callback may be NULL. */
TRIGEN_API trigen_status trigen_tune(trigen_runtime* runtime, const char* const* problems, size_t count,
                                     const trigen_tune_options* options, trigen_tune_callback callback,
                                     void* user) TRIGEN_NOEXCEPT;

/* Writes the records of the runtime's cache files, with their kernels, as one bundle (NAME.trigen), whole or
 * not at all. Only of these targets and problems where any are named (NULL and 0: all). A problem without a
 * record is TRIGEN_CACHE_ERROR, and nothing is written. */
TRIGEN_API trigen_status trigen_cache_export(trigen_runtime* runtime, const char* bundle,
                                             const char* const* targets, size_t target_count,
                                             const char* const* problems,
                                             size_t problem_count) TRIGEN_NOEXCEPT;
/* Takes bundles and cache files into the runtime's writable cache file, signed ones where its trusted_keys or
 * TRIGEN_TRUSTED_KEYS ask for them; the better of two rows stays, and what was measured or made there.
 * TRIGEN_BAD_REQUEST for a read_only runtime. */
TRIGEN_API trigen_status trigen_cache_import(trigen_runtime* runtime, const char* const* files,
                                             size_t count) TRIGEN_NOEXCEPT;
/* Makes one bundle of bundles and cache files, in any order, signed ones where TRIGEN_TRUSTED_KEYS is set. */
TRIGEN_API trigen_status trigen_cache_merge(const char* bundle, const char* const* files,
                                            size_t count) TRIGEN_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TRIGEN_TRIGEN_TUNE_H */
