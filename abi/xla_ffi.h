/* Our own declarations of XLA's FFI (foreign function interface), the part that a handler needs: what XLA calls
 * and what it may call back. Plain C, no header of XLA's or jaxlib's. Layouts are facts of that interface from
 * its version 0.1 (jaxlib 0.4.36) on; tests/python/test_jax_handler.py compares them with the header in jaxlib. */
#ifndef TRIGEN_ABI_XLA_FFI_H
#define TRIGEN_ABI_XLA_FFI_H

#include <stddef.h>
#include <stdint.h>

/* The oldest version that has all of this. XLA refuses a handler that names a later one than its own. */
#define XLA_ABI_MAJOR 0
#define XLA_ABI_MINOR 1

enum { XLA_EXTENSION_METADATA = 1 };
typedef struct xla_extension {
  size_t struct_size;
  int type;
  struct xla_extension* next;
} xla_extension;

typedef struct xla_version {
  size_t struct_size;
  xla_extension* extensions;
  int major, minor;
} xla_version;

/* Which a handler fills in. Later versions have more fields behind these, zero for "nothing". */
enum { XLA_TRAIT_COMMAND_BUFFER = 1 };
typedef struct xla_metadata {
  size_t struct_size;
  xla_version version;
  uint32_t traits;
} xla_metadata;
typedef struct xla_metadata_extension {
  xla_extension base;
  xla_metadata* metadata;
} xla_metadata_extension;

enum { XLA_F16 = 10, XLA_F32 = 11, XLA_BF16 = 16, XLA_U8 = 6 };
typedef struct xla_buffer {
  size_t struct_size;
  xla_extension* extensions;
  int dtype;
  void* data;
  int64_t rank;
  int64_t* dims;
} xla_buffer;

typedef struct xla_text {
  const char* data;
  size_t size;
} xla_text;

/* Arguments and results: type 1 is a buffer. */
enum { XLA_BUFFER = 1 };
typedef struct xla_values {
  size_t struct_size;
  xla_extension* extensions;
  int64_t size;
  int* types;
  void** values;
} xla_values;

enum { XLA_ATTRIBUTE_SCALAR = 3, XLA_ATTRIBUTE_TEXT = 4 };
typedef struct xla_scalar {
  int dtype;
  void* value;
} xla_scalar;
typedef struct xla_attributes {
  size_t struct_size;
  xla_extension* extensions;
  int64_t size;
  int* types;
  xla_text** names;
  void** values;
} xla_attributes;

typedef struct xla_error xla_error;     /* XLA's */
typedef struct xla_context xla_context; /* XLA's, of one call */

/* absl::StatusCode */
enum { XLA_INVALID_ARGUMENT = 3, XLA_FAILED_PRECONDITION = 9, XLA_UNIMPLEMENTED = 12, XLA_INTERNAL = 13 };
typedef struct xla_error_create {
  size_t struct_size;
  xla_extension* extensions;
  const char* message;
  int code;
} xla_error_create;
typedef struct xla_error_destroy {
  size_t struct_size;
  xla_extension* extensions;
  xla_error* error;
} xla_error_destroy;
typedef struct xla_stream_get {
  size_t struct_size;
  xla_extension* extensions;
  xla_context* context;
  void* stream; /* out: on CUDA the CUstream */
} xla_stream_get;
typedef struct xla_ordinal_get {
  size_t struct_size;
  xla_extension* extensions;
  xla_context* context;
  int32_t ordinal; /* out */
} xla_ordinal_get;

/* XLA's functions, in its order; those that a handler of trigen's never calls have no type here. */
typedef struct xla_api {
  size_t struct_size;
  xla_extension* extensions;
  xla_version version;
  const void* internal;
  xla_error* (*error_create)(xla_error_create*);
  void* error_get_message;
  void (*error_destroy)(xla_error_destroy*);
  void* handler_register;
  xla_error* (*stream_get)(xla_stream_get*);
  void* others[12]; /* types, states, device memory, thread pool, futures, run id */
  xla_error* (*ordinal_get)(xla_ordinal_get*); /* from jaxlib 0.6 on: see struct_size */
} xla_api;

enum { XLA_INSTANTIATE = 0, XLA_PREPARE = 1, XLA_INITIALIZE = 2, XLA_EXECUTE = 3 };
typedef struct xla_frame {
  size_t struct_size;
  xla_extension* extensions;
  const xla_api* api;
  xla_context* context;
  int stage;
  xla_values arguments, results;
  xla_attributes attributes;
} xla_frame;

#endif /* TRIGEN_ABI_XLA_FFI_H */
