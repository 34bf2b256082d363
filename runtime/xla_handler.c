/* The handler of XLA's FFI: finds the plan of a call's problem, and runs it on the buffers and the stream that
 * XLA gives. trigen_xla.h says what a call looks like. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trigen/trigen_xla.h>

#include "abi/xla_ffi.h"
#include "runtime/api_error.h"

/* A plan that was made. Found without a lock; never freed, since a running program may hold it. */
typedef struct call_plan {
  struct call_plan* next;
  trigen_plan* plan;
  trigen_problem problem;
  size_t workspace; /* bytes */
  int device;
  size_t size;
  char text[];
} call_plan;

enum { BUCKETS = 256 };
static _Atomic(call_plan*) made[BUCKETS];

/* A problem whose plan a thread makes, in that thread's stack. */
typedef struct making {
  struct making* next;
  xla_text text;
  int device;
} making;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards what follows, and what is added to made */
static pthread_cond_t ended = PTHREAD_COND_INITIALIZER;   /* a making was taken from under_way */
static making* under_way;
static trigen_runtime* runtime; /* not replaced while anything is under way */

static unsigned bucket_of(xla_text text, int device) {
  uint64_t hash = 14695981039346656037u ^ (unsigned)device; /* FNV-1a */
  for (size_t i = 0; i < text.size; ++i) hash = (hash ^ (unsigned char)text.data[i]) * 1099511628211u;
  return (unsigned)(hash ^ hash >> 32) % BUCKETS;
}

static const call_plan* find(xla_text text, int device) {
  const call_plan* one = atomic_load_explicit(&made[bucket_of(text, device)], memory_order_acquire);
  while (one &&
         (one->device != device || one->size != text.size || memcmp(one->text, text.data, text.size) != 0))
    one = one->next;
  return one;
}

static int is_under_way(xla_text text, int device) {
  for (const making* one = under_way; one; one = one->next)
    if (one->device == device && one->text.size == text.size &&
        memcmp(one->text.data, text.data, text.size) == 0)
      return 1;
  return 0;
}

/* Without the mutex: compiling takes seconds, and other problems need not wait for it. The caller has the problem under
 * way, which keeps the runtime. */
static trigen_status make(xla_text text, int device, call_plan** result) {
  call_plan* const one = calloc(1, sizeof(call_plan) + text.size + 1);
  trigen_status status;
  if (!one) return trigen_fail(TRIGEN_INTERNAL_ERROR, "out of memory for the plan of an XLA call");
  one->size = text.size;
  one->device = device;
  memcpy(one->text, text.data, text.size);
  one->problem.struct_size = sizeof one->problem;
  status = trigen_problem_parse(one->text, &one->problem);
  const int op = one->problem.op;
  if (status == TRIGEN_OK &&
      (op == TRIGEN_DECODE || op == TRIGEN_GRAD_EPILOGUE || one->problem.accumulate ||
       (op == TRIGEN_GRAM && (one->problem.B != 1 || one->problem.layout != TRIGEN_BTD))))
    status =
        trigen_fail(TRIGEN_UNSUPPORTED,
                    "an XLA call has the op decode or grad_epilogue, accumulate, or gram with B or layout; "
                    "allowed: forward, grad_input and grad_weight without accumulate (add in XLA), gram with "
                    "B=1 and layout=btd, scan, scan_grad_input, scan_grad_weight and newton_schulz");
  if (status == TRIGEN_OK) status = trigen_plan_create(runtime, &one->problem, device, &one->plan);
  if (status != TRIGEN_OK) {
    free(one);
    return status;
  }
  one->workspace = trigen_plan_workspace_size(one->plan);
  *result = one;
  return TRIGEN_OK;
}

/* Makes what is not there. The caller holds the mutex, which is given back meanwhile. */
static trigen_status add(xla_text text, int device, const call_plan** result) {
  _Atomic(call_plan*)* const bucket = &made[bucket_of(text, device)];
  making own = {under_way, text, device}, **place = &under_way;
  call_plan* one = NULL;
  trigen_status status;
  if (!runtime) {
    trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
    options.skip_pointer_checks = 1; /* XLA's buffers are the device's */
    status = trigen_runtime_create(&options, &runtime);
    if (status != TRIGEN_OK) return status;
  }
  under_way = &own;
  pthread_mutex_unlock(&mutex);
  status = make(text, device, &one);
  pthread_mutex_lock(&mutex);
  while (*place != &own) place = &(*place)->next;
  *place = own.next;
  pthread_cond_broadcast(&ended);
  if (status != TRIGEN_OK) return status;
  one->next = atomic_load_explicit(bucket, memory_order_relaxed);
  atomic_store_explicit(bucket, one, memory_order_release);
  *result = one;
  return TRIGEN_OK;
}

/* Different problems are made side by side. Who asks for what is under way waits for that one alone, and makes it
 * itself where the other thread failed: errors are a thread's own. */
static trigen_status plan_of(xla_text text, int device, const call_plan** result) {
  trigen_status status = TRIGEN_OK;
  *result = find(text, device);
  if (*result) return TRIGEN_OK;
  pthread_mutex_lock(&mutex);
  while (is_under_way(text, device)) pthread_cond_wait(&ended, &mutex);
  *result = find(text, device);
  if (!*result) status = add(text, device, result);
  pthread_mutex_unlock(&mutex);
  return status;
}

trigen_status trigen_xla_configure(const trigen_runtime_options* options) {
  trigen_runtime* fresh = NULL;
  const trigen_status status = trigen_runtime_create(options, &fresh);
  if (status != TRIGEN_OK) return status;
  pthread_mutex_lock(&mutex);
  while (under_way) pthread_cond_wait(&ended, &mutex);
  trigen_runtime_destroy(runtime); /* its plans stay valid */
  runtime = fresh;
  for (int i = 0; i < BUCKETS; ++i) atomic_store_explicit(&made[i], NULL, memory_order_release);
  pthread_mutex_unlock(&mutex);
  return TRIGEN_OK;
}

trigen_status trigen_xla_workspace_size(const char* problem, int device, size_t* bytes) {
  const call_plan* found = NULL;
  trigen_status status;
  if (!problem || !bytes)
    return trigen_fail(TRIGEN_BAD_REQUEST, "trigen_xla_workspace_size: problem or bytes is NULL");
  status = plan_of((xla_text){problem, strlen(problem)}, device, &found);
  if (status == TRIGEN_OK) *bytes = found->workspace;
  return status;
}

/* ---- errors as XLA has them ---- */

static xla_error* refuse(const xla_frame* frame, int code, const char* text) {
  xla_error_create create = {sizeof create, NULL, text, code};
  return frame->api->error_create(&create);
}

static xla_error* refuse_status(const xla_frame* frame, trigen_status status) {
  const int code = status == TRIGEN_BAD_REQUEST                                   ? XLA_INVALID_ARGUMENT
                   : status == TRIGEN_UNSUPPORTED                                 ? XLA_UNIMPLEMENTED
                   : status == TRIGEN_CACHE_ERROR || status == TRIGEN_NO_COMPILER ? XLA_FAILED_PRECONDITION
                                                                                  : XLA_INTERNAL;
  return refuse(frame, code, trigen_last_error());
}

/* ---- buffers ---- */

enum { ACTIVATION, WEIGHT, BIAS, STEPS };

typedef struct slot {
  const char* name;
  int kind;
  void** data; /* of the run's arguments */
} slot;

/* A call's buffers in its problem's order: arguments in `in`, results but the workspace in `out`. */
typedef struct slots {
  slot in[5], out[3];
  int in_count, out_count;
} slots;

static slots slots_of(const trigen_problem* problem, trigen_args* args) {
  slots s = {0};
  switch (problem->op) {
    case TRIGEN_FORWARD:
    case TRIGEN_SCAN:
      s.in[s.in_count++] = (slot){"x", ACTIVATION, &args->x.data};
      s.in[s.in_count++] = (slot){"w", WEIGHT, &args->w};
      if (problem->bias) s.in[s.in_count++] = (slot){"bias", BIAS, &args->bias};
      if (problem->gate) s.in[s.in_count++] = (slot){"gate", ACTIVATION, &args->gate.data};
      s.out[s.out_count++] = (slot){"y", ACTIVATION, &args->y.data};
      if (problem->pre) s.out[s.out_count++] = (slot){"pre", ACTIVATION, &args->pre.data};
      break;
    case TRIGEN_GRAD_INPUT:
    case TRIGEN_SCAN_GRAD_INPUT:
      s.in[s.in_count++] = (slot){"dy", ACTIVATION, &args->y.data};
      s.in[s.in_count++] = (slot){"w", WEIGHT, &args->w};
      s.out[s.out_count++] = (slot){"dx", ACTIVATION, &args->x.data};
      break;
    case TRIGEN_GRAM:
      s.in[s.in_count++] = (slot){"a", ACTIVATION, &args->y.data};
      s.in[s.in_count++] = (slot){"b", ACTIVATION, &args->x.data};
      if (problem->residual) s.in[s.in_count++] = (slot){"c", WEIGHT, &args->residual.data};
      s.out[s.out_count++] = (slot){"d", WEIGHT, &args->w};
      return s;
    case TRIGEN_NEWTON_SCHULZ:
      s.in[s.in_count++] = (slot){"x", ACTIVATION, &args->x.data};
      s.in[s.in_count++] = (slot){"w", STEPS, &args->w};
      s.out[s.out_count++] = (slot){"y", ACTIVATION, &args->y.data};
      break;
    case TRIGEN_SCAN_GRAD_WEIGHT:
      s.in[s.in_count++] = (slot){"dy", ACTIVATION, &args->y.data};
      s.in[s.in_count++] = (slot){"x", ACTIVATION, &args->x.data};
      s.in[s.in_count++] = (slot){"w", WEIGHT, &args->w};
      s.out[s.out_count++] = (slot){"dw", WEIGHT, &args->residual.data};
      if (problem->bias) s.out[s.out_count++] = (slot){"grad_bias", BIAS, &args->bias};
      if (problem->grad_input) s.out[s.out_count++] = (slot){"dx", ACTIVATION, &args->pre.data};
      break;
    default:
      s.in[s.in_count++] = (slot){"dy", ACTIVATION, &args->y.data};
      s.in[s.in_count++] = (slot){"x", ACTIVATION, &args->x.data};
      s.out[s.out_count++] = (slot){"dW", WEIGHT, &args->w};
      if (problem->bias) s.out[s.out_count++] = (slot){"grad_bias", BIAS, &args->bias};
      break;
  }
  if (problem->residual) s.in[s.in_count++] = (slot){"residual", ACTIVATION, &args->residual.data};
  return s;
}

static int is_scan(const trigen_problem* problem) {
  return problem->op == TRIGEN_SCAN || problem->op == TRIGEN_SCAN_GRAD_INPUT ||
         problem->op == TRIGEN_SCAN_GRAD_WEIGHT;
}

/* w [H,4,T] as a scan's vectors. */
static void take_vectors(const trigen_problem* problem, trigen_args* args) {
  trigen_vector* const vectors[] = {&args->source, &args->target, &args->decay, &args->diagonal};
  const int64_t bytes = problem->T * (problem->wdtype == TRIGEN_F32 ? 4 : 2);
  for (int i = 0; i < 4; ++i)
    *vectors[i] = (trigen_vector){(const char*)args->w + i * bytes, 4 * problem->T, 1};
  args->w = NULL;
}

/* Whether the buffer is what the problem has there; then its address is the argument's. */
static int take(const trigen_problem* problem, const slot* slot, const xla_buffer* buffer) {
  static const int dtypes[] = {[TRIGEN_F16] = XLA_F16, [TRIGEN_BF16] = XLA_BF16, [TRIGEN_F32] = XLA_F32};
  const int64_t heads = problem->H, tokens = problem->T;
  const int64_t row = is_scan(problem)                  ? 4 /* of W: elements for each head and token */
                      : problem->w == TRIGEN_W_TOEPLITZ ? 1
                      : problem->w == TRIGEN_W_BAND     ? problem->width
                                                        : tokens * problem->K;
  const int64_t wanted = slot->kind == ACTIVATION ? problem->B * heads * tokens * problem->D
                         : slot->kind == WEIGHT   ? heads * tokens * row
                         : slot->kind == STEPS    ? 3 * problem->K + 1
                                                  : heads * tokens;
  const int dtype = slot->kind == ACTIVATION ? problem->dtype
                    : slot->kind == STEPS    ? TRIGEN_F32
                                             : problem->wdtype;
  int64_t elements = 1;
  for (int64_t i = 0; i < buffer->rank; ++i) elements *= buffer->dims[i];
  if (elements != wanted || buffer->dtype != dtypes[dtype]) return 0;
  *slot->data = buffer->data;
  return 1;
}

static int is_named(const xla_text* name, const char* wanted) {
  return name->size == strlen(wanted) && memcmp(name->data, wanted, name->size) == 0;
}

static int are_buffers(const xla_values* values) {
  for (int64_t i = 0; i < values->size; ++i)
    if (values->types[i] != XLA_BUFFER) return 0;
  return 1;
}

/* gram's matrices, one behind the other, and its factors. */
static int take_factors(const xla_frame* frame, const trigen_problem* problem, trigen_args* args) {
  static const char* const names[] = {"alpha", "beta", "gamma"};
  float* const factors[] = {&args->alpha, &args->beta, &args->gamma};
  for (int64_t i = 0; i < frame->attributes.size; ++i)
    for (int n = 0; n < 3; ++n)
      if (is_named(frame->attributes.names[i], names[n])) {
        const xla_scalar* const scalar = frame->attributes.values[i];
        if (frame->attributes.types[i] != XLA_ATTRIBUTE_SCALAR || scalar->dtype != XLA_F32) return 0;
        *factors[n] = *(const float*)scalar->value;
      }
  args->x.row = args->y.row = problem->D;
  args->x.head = args->y.head = problem->T * problem->D;
  args->x.batch = args->y.batch = problem->H * problem->T * problem->D;
  return 1;
}

static xla_error* run(const xla_frame* frame, const call_plan* found) {
  trigen_args args = TRIGEN_ARGS_INIT;
  const trigen_problem* const problem = &found->problem;
  const slots s = slots_of(problem, &args);
  const xla_buffer* workspace;
  xla_stream_get stream = {sizeof stream, NULL, frame->context, NULL};
  xla_error* error;
  trigen_status status;
  char text[512];
  if (frame->arguments.size != s.in_count || frame->results.size != s.out_count + 1 ||
      !are_buffers(&frame->arguments) || !are_buffers(&frame->results)) {
    snprintf(text, sizeof text,
             "trigen_call of %s has %lld arguments and %lld results; allowed: %d and %d buffers", found->text,
             (long long)frame->arguments.size, (long long)frame->results.size, s.in_count, s.out_count + 1);
    return refuse(frame, XLA_INVALID_ARGUMENT, text);
  }
  for (int i = 0; i < s.in_count + s.out_count; ++i) {
    const slot* const slot = i < s.in_count ? &s.in[i] : &s.out[i - s.in_count];
    const xla_buffer* const buffer =
        i < s.in_count ? frame->arguments.values[i] : frame->results.values[i - s.in_count];
    if (take(problem, slot, buffer)) continue;
    snprintf(text, sizeof text, "trigen_call of %s: %s has another size or dtype than the problem",
             found->text, slot->name);
    return refuse(frame, XLA_INVALID_ARGUMENT, text);
  }
  if (problem->op == TRIGEN_GRAM && !take_factors(frame, problem, &args)) {
    snprintf(text, sizeof text, "trigen_call of %s: alpha, beta or gamma is not an f32 scalar", found->text);
    return refuse(frame, XLA_INVALID_ARGUMENT, text);
  }
  if (is_scan(problem)) take_vectors(problem, &args);
  workspace = frame->results.values[s.out_count];
  args.workspace_size = workspace->rank == 1 && workspace->dtype == XLA_U8 ? (size_t)workspace->dims[0] : 0;
  if (args.workspace_size < found->workspace) {
    snprintf(
        text, sizeof text,
        "trigen_call of %s has %zu bytes of workspace, its kernel needs %zu: the cache was tuned after this "
        "program was compiled; compile it again (jax.clear_caches(), an empty JAX_COMPILATION_CACHE_DIR)",
        found->text, args.workspace_size, found->workspace);
    return refuse(frame, XLA_FAILED_PRECONDITION, text);
  }
  args.workspace = found->workspace ? workspace->data : NULL;
  error = frame->api->stream_get(&stream);
  if (error) return error;
  status = trigen_plan_run(found->plan, &args, stream.stream);
  return status == TRIGEN_OK ? NULL : refuse_status(frame, status);
}

/* ---- the handler ---- */

static int describe(const xla_frame* frame) {
  for (xla_extension* one = frame->extensions; one; one = one->next)
    if (one->type == XLA_EXTENSION_METADATA) {
      xla_metadata* const metadata = ((xla_metadata_extension*)one)->metadata;
      metadata->version.major = XLA_ABI_MAJOR;
      metadata->version.minor = XLA_ABI_MINOR;
      metadata->traits = XLA_TRAIT_COMMAND_BUFFER;
      return 1;
    }
  return 0;
}

/* The device that the call runs on, as a CUDA ordinal; -1 with an error of XLA's, or without where it cannot say. */
static int device_of(const xla_frame* frame, xla_error** error) {
  xla_ordinal_get get = {sizeof get, NULL, frame->context, -1};
  *error = NULL;
  if (frame->api->struct_size < offsetof(xla_api, ordinal_get) + sizeof frame->api->ordinal_get) return -1;
  *error = frame->api->ordinal_get(&get);
  return *error ? -1 : get.ordinal;
}

void* trigen_xla_call(void* call_frame) {
  const xla_frame* const frame = call_frame;
  const call_plan* found = NULL;
  xla_text problem = {NULL, 0};
  xla_error* error;
  trigen_status status;
  int device;
  if (frame == NULL || describe(frame)) return NULL; /* without a frame there is no place for an error */
  if (frame->stage != XLA_INITIALIZE && frame->stage != XLA_EXECUTE) return NULL;
  for (int64_t i = 0; i < frame->attributes.size; ++i) {
    const xla_text* const name = frame->attributes.names[i];
    if (frame->attributes.types[i] == XLA_ATTRIBUTE_TEXT && is_named(name, "problem"))
      problem = *(const xla_text*)frame->attributes.values[i];
  }
  if (!problem.data)
    return refuse(frame, XLA_INVALID_ARGUMENT,
                  "trigen_call has no attribute `problem`; allowed: the text of a problem");
  device = device_of(frame, &error);
  if (error) return error;
  if (device < 0)
    return refuse(frame, XLA_UNIMPLEMENTED,
                  "this XLA does not say which device a call runs on; install jaxlib 0.6 or later");
  status = plan_of(problem, device, &found);
  if (status != TRIGEN_OK) return refuse_status(frame, status);
  return frame->stage == XLA_EXECUTE ? run(frame, found) : NULL;
}
