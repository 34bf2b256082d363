/* trigen: triangular convolutions on NVIDIA GPUs. The C interface of libtrigen.so.
 *
 *   forward      y[b,h,t,d]     = act(bias[h,t] + sum W[h,t,s,j] x[b,h,s,d+j-pad])
 *                                 * gate[b,h,t,d] + residual[b,h,t,d]
 *   decode       the rows t in [first_row, first_row + rows) of forward, which each run names
 *   grad_input   dx[b,h,s,d]    = sum W[h,t,s,j] dy[b,h,t,d-j+pad] + residual[b,h,s,d]
 *   grad_weight  dW[h,t,s,j]    = sum dy[b,h,t,d] x[b,h,s,d+j-pad]
 *                grad_bias[h,t] = sum dy[b,h,t,d]
 *
 * with s, t in the triangle (fill lower: s <= t + diag; upper: s >= t + diag). W outside the triangle is
 * never read.
 *
 *   trigen_runtime* runtime;
 *   trigen_problem problem = {.struct_size = sizeof problem};
 *   trigen_plan* plan;
 *   trigen_runtime_create(NULL, &runtime);
 *   trigen_problem_parse("forward,dtype=bf16,B=32,T=512,D=1024,epilogue=bias", &problem);
 *   trigen_plan_create(runtime, &problem, TRIGEN_CURRENT_DEVICE, &plan);  // looks up or compiles, once
 *
 *   trigen_args args = TRIGEN_ARGS_INIT;
 *   args.x.data = x;  args.w = w;  args.bias = bias;  args.y.data = y;  // device memory, yours
 *   args.workspace_size = trigen_plan_workspace_size(plan);
 *   args.workspace = workspace;             // so many bytes, or NULL for 0
 *   trigen_plan_run(plan, &args, stream);   // launches, and nothing else
 *
 * Needs the NVIDIA driver at run time, and a compiler (NVRTC) only where the cache lacks the kernel. Neither
 * is linked.
 *
 * Errors: every function returns a trigen_status, sorted by who must act; trigen_last_error() is the text of
 * this thread's last failed call: what was found, what is allowed, the next step. Nothing aborts, nothing
 * throws.
 *
 * Threads: every function may be called from any thread. trigen_plan_run may run in many threads on one plan
 * at once.
 *
 * Environment: TRIGEN_CACHE (cache files), TRIGEN_NO_JIT=1 (never compile), TRIGEN_LOG=info (a line for each
 * plan on stderr) and others: docs/environment.md. Read when a runtime is created (TRIGEN_LOG: when the library
 * first logs); not at all in programs with privileges that their caller lacks.
 */
#ifndef TRIGEN_TRIGEN_H
#define TRIGEN_TRIGEN_H

#include <stddef.h>
#include <stdint.h>

#define TRIGEN_VERSION_MAJOR 0
#define TRIGEN_VERSION_MINOR 1
#define TRIGEN_VERSION_PATCH 0
#define TRIGEN_VERSION (TRIGEN_VERSION_MAJOR * 10000 + TRIGEN_VERSION_MINOR * 100 + TRIGEN_VERSION_PATCH)

#if defined(__GNUC__)
#define TRIGEN_API __attribute__((visibility("default")))
#else
#define TRIGEN_API
#endif

#ifdef __cplusplus
extern "C" {
#define TRIGEN_NOEXCEPT noexcept
#else
#define TRIGEN_NOEXCEPT
#endif

/* Values are part of the binary interface: do not renumber. */
typedef enum trigen_status {
  TRIGEN_OK = 0,
  TRIGEN_BAD_REQUEST = 1,  /* the caller: a wrong problem, argument or option */
  TRIGEN_UNSUPPORTED = 2,  /* no kernel of this version serves that problem on that device */
  TRIGEN_BUILD_ERROR = 3,  /* a compile that failed */
  TRIGEN_DEVICE_ERROR = 4, /* driver, device, or a failed launch */
  TRIGEN_CACHE_ERROR = 5,  /* a cache miss where compiling is forbidden */
  TRIGEN_INTERNAL_ERROR = 6,
  TRIGEN_NO_COMPILER = 7 /* no NVRTC of this machine makes the target */
} trigen_status;

typedef enum trigen_op {
  TRIGEN_FORWARD = 0,
  TRIGEN_GRAD_INPUT = 1,
  TRIGEN_GRAD_WEIGHT = 2,
  TRIGEN_DECODE = 3,
  TRIGEN_GRAD_EPILOGUE = 4,
  TRIGEN_GRAM = 5,
  TRIGEN_SCAN = 6,
  TRIGEN_SCAN_GRAD_INPUT = 7,
  TRIGEN_SCAN_GRAD_WEIGHT = 8,
  TRIGEN_NEWTON_SCHULZ = 9
} trigen_op;
typedef enum trigen_dtype { TRIGEN_F16 = 0, TRIGEN_BF16 = 1, TRIGEN_F32 = 2 } trigen_dtype;
/* How f32 data is multiplied: SIMT and F16X3 at full accuracy (F16X3: three products of f16 planes on
   Hopper's tensor cores, what SIMT does elsewhere), TF32 rounded to 11 bits. 16-bit data:
   TRIGEN_MATH_DEFAULT. */
typedef enum trigen_math {
  TRIGEN_MATH_DEFAULT = 0,
  TRIGEN_MATH_SIMT = 1,
  TRIGEN_MATH_TF32 = 2,
  TRIGEN_MATH_F16X3 = 3
} trigen_math;
/* btd: x[B,T,H*D]; bdt: x[B,H*D,T]. */
typedef enum trigen_layout { TRIGEN_BTD = 0, TRIGEN_BDT = 1 } trigen_layout;
typedef enum trigen_fill { TRIGEN_LOWER = 0, TRIGEN_UPPER = 1 } trigen_fill;
/* What w's numbers are.
 *   dense     W[h,t,s,j] itself
 *   toeplitz  w[H,T] with W[h,t,s] = w[h][t - s]; dW is w[h][i] = sum over t of dW[h,t,t-i]
 *   band      w[H,T,width] with W[h,t,s] = w[h][t][s - t + width - 1] where t - s < width, else 0; dW lies as W does.
 *             Elements of the first rows that stand for tokens before token 0 are never read. grad_weight leaves
 *             them as they are, or writes zeros there with zero_outside
 * The last two are of forward, grad_input and grad_weight with K=1, diag=0 and the lower fill. */
typedef enum trigen_weight_form {
  TRIGEN_W_DENSE = 0,
  TRIGEN_W_TOEPLITZ = 1,
  TRIGEN_W_BAND = 2
} trigen_weight_form;
typedef enum trigen_activation {
  TRIGEN_ACT_NONE = 0,
  TRIGEN_ACT_GELU = 1,
  TRIGEN_ACT_SILU = 2
} trigen_activation;
/* The answer when the cache has no record for a problem. */
typedef enum trigen_miss_policy {
  TRIGEN_MISS_FIRST_CHOICE = 0, /* compile the cost model's first choice, once, and store it */
  TRIGEN_MISS_GENERIC = 1,      /* the shape-generic kernel: compiled once for all shapes of its kind */
  TRIGEN_MISS_ERROR = 2
} trigen_miss_policy;

typedef struct trigen_runtime trigen_runtime;
typedef struct trigen_plan trigen_plan;

/* ---- version and errors ---- */

TRIGEN_API int trigen_version(void) TRIGEN_NOEXCEPT; /* TRIGEN_VERSION of the library that runs */
TRIGEN_API const char* trigen_version_string(void) TRIGEN_NOEXCEPT;              /* "0.1.0" */
TRIGEN_API const char* trigen_status_name(trigen_status status) TRIGEN_NOEXCEPT; /* "bad request" */
/* Text of this thread's last failed call, "" when there was none. Valid until this thread's next failed call.
 */
TRIGEN_API const char* trigen_last_error(void) TRIGEN_NOEXCEPT;

/* ---- problems ---- */

/* As trigen_problem.pad: (K-1)/2, the 'same' padding of nn.Conv1d. */
#define TRIGEN_PAD_SAME (-1)

/* The problem to compute. Set struct_size, fill the rest with trigen_problem_init or trigen_problem_parse, then
 * change fields. */
typedef struct trigen_problem {
  size_t struct_size; /* sizeof(trigen_problem), set by the caller before any call */
  int op;             /* trigen_op */
  int dtype;          /* trigen_dtype of x, y, pre, gate, residual and their gradients */
  int wdtype;         /* trigen_dtype of w, bias and their gradients: dtype, or f32 while dtype is 16-bit */
  int math;           /* trigen_math */
  int layout;         /* trigen_layout */
  int fill;           /* trigen_fill */
  int w;              /* trigen_weight_form, what the tensor w is */
  int64_t B, H, T, D, K; /* batch, heads, tokens, features of a head, taps (newton_schulz: steps) */
  int64_t pad;           /* left padding of the taps: 0 to K-1, or TRIGEN_PAD_SAME */
  int64_t rows;          /* decode: the most rows of one run, 1 to 64 and to T. 1, or 0 for 1, elsewhere */
  int64_t diag;          /* diagonal offset of the fill */
  int64_t width;         /* band: tokens of a row, 1 to T. 0 elsewhere */
  /* Bytes that every pointer is a multiple of, and every stride too: 16, 8, 4 or 2. 0: as contiguous tensors
   * have it whose pointers are multiples of 16. */
  int64_t align;  /* x, y and what has their shape */
  int64_t walign; /* w, gram's C, the gradients of a scan's vectors */
  int64_t
      pointers; /* gram: 1 where runs may give arrays of pointers (TRIGEN_POINTER_ARRAY), B is 1 then. 0 elsewhere */
  int bias; /* forward, decode, scan: add bias[h,t]; grad_weight, scan_grad_weight: write grad_bias[h,t] */
  int activation;   /* trigen_activation, forward, decode, scan; grad_epilogue: its derivative */
  int pre;          /* forward, decode, scan: store the value before the activation */
  int gate;         /* forward, decode, scan; grad_epilogue: the forward's, and write grad_gate */
  int residual;     /* forward, decode, grad_input, scan, scan_grad_input; gram: there is a C */
  int accumulate;   /* grad_weight: dW += and grad_bias += */
  int zero_outside; /* grad_weight: write zeros outside the triangle (else it is never touched) */
  int mirror;       /* gram: write both triangles, with the same bits (else the other is never touched) */
  int grad_input;   /* scan_grad_weight: write dx, too, which scan_grad_input makes otherwise */
} trigen_problem;

/* Defaults for everything else, those of the text form: H=1, K=1, pad=TRIGEN_PAD_SAME, one row, btd, lower,
 * diag=0, a dense w, wdtype=dtype, math of the dtype (f32: simt), contiguous alignment, no epilogue. A K that is
 * changed afterwards so gives the problem that the text with that K gives. */
TRIGEN_API trigen_status trigen_problem_init(trigen_problem* problem, trigen_op op, trigen_dtype dtype,
                                             int64_t B, int64_t T, int64_t D) TRIGEN_NOEXCEPT;
/* From text: "forward,dtype=bf16,B=32,T=512,D=1024,K=4,epilogue=bias+gelu". Errors name the token and what is
 * allowed. */
TRIGEN_API trigen_status trigen_problem_parse(const char* text, trigen_problem* problem) TRIGEN_NOEXCEPT;
/* The canonical text, with its final zero, into buffer[size] (cut when it is too small). *needed (may be
 * NULL) is the size that holds all of it. */
TRIGEN_API trigen_status trigen_problem_format(const trigen_problem* problem, char* buffer, size_t size,
                                               size_t* needed) TRIGEN_NOEXCEPT;

/* trigen_problem and the text form, described for other languages, which compare their own view with it: JSON
 * {"struct_size":176,"fields":[{"name":"op","bytes":4,"offset":8,"place":"first","values":["forward",...]},...]},
 * the fields in the order of the text form; place is "first", "key" or "part" (of epilogue=). Never NULL;
 * valid while the library is loaded. */
TRIGEN_API const char* trigen_problem_fields(void) TRIGEN_NOEXCEPT;

/* ---- runtime: cache layers, policy, plans made so far ---- */

typedef struct trigen_runtime_options {
  size_t struct_size; /* sizeof(trigen_runtime_options) */
  const char* const*
      layers; /* cache files in lookup order; the first writable one is written. NULL: the default order;
                 "none" alone: no cache, no file is read or written (TRIGEN_CACHE=none in general) */
  size_t layer_count;
  int read_only;           /* never write a cache */
  int miss;                /* trigen_miss_policy */
  int no_jit;              /* never compile, as TRIGEN_NO_JIT=1 */
  int skip_pointer_checks; /* do not ask the driver who owns a pointer (saves up to a microsecond of host time
                              a run) */
  int skip_canary; /* do not run kernels that no tune checked here (of layers that this one does not write, or
                      compiled for the model's choice) once, on a small batch, before the first plan with them is
                      given out; as TRIGEN_CANARY=0 */
  const char* target; /* "sm_70": kernels of that target, from PTX where the device needs it. NULL: the
                              device's own */
  const char* driver; /* driver library, or "emulated:sm_70" for the emulated device. NULL: TRIGEN_DRIVER,
                         else libcuda */
  const char* trusted_keys; /* whose signatures cache files need that this user's trigen did not write, as
                               TRIGEN_TRUSTED_KEYS has them (docs/signing.md). NULL: TRIGEN_TRUSTED_KEYS; "" names
                               no key, so that no such file is read */
} trigen_runtime_options;
#define TRIGEN_RUNTIME_OPTIONS_INIT \
  { sizeof(trigen_runtime_options), NULL, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL }

/* options may be NULL. Opens no cache, driver or compiler yet. */
TRIGEN_API trigen_status trigen_runtime_create(const trigen_runtime_options* options,
                                               trigen_runtime** runtime) TRIGEN_NOEXCEPT;
/* Plans stay valid until they are destroyed themselves. NULL is allowed. */
TRIGEN_API void trigen_runtime_destroy(trigen_runtime* runtime) TRIGEN_NOEXCEPT;

/* ---- plans ---- */

/* The device of this thread's current context; device 0 when none is current. */
#define TRIGEN_CURRENT_DEVICE (-1)

/* Resolves a problem for a device (CUDA ordinal): looks the kernel up in the cache, or compiles it as the
 * policy says, and loads it. Slow the first time, a fast lookup after that: a runtime keeps the plans it made
 * (make a new runtime to see records that were tuned meanwhile). The plan belongs to the context
 * that is current, when it is of that device, else to the device's primary context (the one of the CUDA
 * runtime and PyTorch). What is current does not change. Make plans outside stream capture. Release with
 * trigen_plan_destroy. */
TRIGEN_API trigen_status trigen_plan_create(trigen_runtime* runtime, const trigen_problem* problem,
                                            int device, trigen_plan** plan) TRIGEN_NOEXCEPT;
/* The caller waits for its runs to finish first. NULL is allowed. */
TRIGEN_API void trigen_plan_destroy(trigen_plan* plan) TRIGEN_NOEXCEPT;
/* Bytes of device memory, 16-byte aligned, that each run needs as args.workspace. May be 0. Two runs that may
 * overlap in time need two workspaces. */
TRIGEN_API size_t trigen_plan_workspace_size(const trigen_plan* plan) TRIGEN_NOEXCEPT;

typedef struct trigen_plan_info {
  size_t struct_size; /* sizeof(trigen_plan_info), set by the caller */
  /* Texts belong to the plan. */
  const char* problem;     /* canonical text */
  const char* device;      /* "NVIDIA H200" */
  const char* target;      /* "sm_90a" */
  const char* candidate;   /* "mma_sm80:tile=128x128x32,..." */
  const char* provenance;  /* "measured" or "predicted" */
  const char* match;       /* "exact", "near" (predicted: ranked by near records), or "none" without any */
  const char* difference;  /* for "near": what differs, or whose times ranked the choice; else "" */
  const char* layer;       /* the cache file of the record; "" when there was none */
  const char* binary_from; /* "cache" or "compiled" */
  const char* compiler;    /* "nvrtc 12.9.86" */
  const char* slow;        /* why it is far slower than the GPU could be, and what to use instead; else "" */
  const char* dense;       /* that a dense product is faster, or may be, with both times; else "" */
  double expected_us;      /* the record's median, or the model's prediction; 0 when unknown */
  double
      dense_us; /* estimate of a library's dense product on the masked weight (gram: of both triangles); 0: unknown */
  size_t workspace_bytes;
  int loaded_ptx; /* 1 when the driver made the machine code from PTX */
  int device_ordinal;
  /* What a run makes of w in the workspace before its product, and one with trigen_args.w_unchanged does not: its bytes, and a text that
     says what it is. 0 and "" where kernels read w as it lies. */
  size_t prepared_bytes;
  const char* prepared;
} trigen_plan_info;
TRIGEN_API trigen_status trigen_plan_describe(const trigen_plan* plan,
                                              trigen_plan_info* info) TRIGEN_NOEXCEPT;

/* ---- running ---- */

/* As trigen_tensor.batch: data is an array of pointers in device memory, aligned to 8 bytes, to matrices anywhere in device
 * memory. Each tensor by itself may be given so:
 *
 *   newton_schulz  x, y: B pointers, to what each b has; head and row are the strides of all
 *   gram           of a problem with pointers=1: x, y, residual, and w with it as w_head: H pointers, to the matrix of each h; row
 *                  (w_row) is the stride of all, 0 that of a contiguous matrix
 *
 * Kernels read the array, so it stays until they have run, of a graph as long as the graph. What it names is not checked: each
 * pointer is a multiple of the problem's align (residual, w: walign), and nothing that is written overlaps anything else, but
 * gram's D exactly C, matrix by matrix. */
#define TRIGEN_POINTER_ARRAY (-1)

/* An activation tensor in device memory. Strides count elements. The innermost axis (d for btd, t for bdt)
 * has stride 1. A zero stride means contiguous, given the row stride:
 *
 *   btd [B,T,H*D]: row (t) = H*D, head = D,       batch = T * row
 *   bdt [B,H*D,T]: row (d) = T,   head = D * row, batch = H * D * row
 */
typedef struct trigen_tensor {
  void* data;
  int64_t batch, head, row;
} trigen_tensor;

/* A vector of a scan in device memory: a number for each head and token, of wdtype. Strides count elements; a stride
 * of 0 repeats: {data, T, 1} is [H,T], {data, 0, 1} one vector for all heads, {data, 1, 0} a number for each head,
 * {data, 0, 0} one number. An element's alignment will do. */
typedef struct trigen_vector {
  const void* data;
  int64_t head, token; /* at least 0 */
} trigen_vector;

/* One run's arguments. Unused tensors are NULL.
 *   forward:     x, w read; y written; bias, gate, residual read and pre written where the problem has them
 *   grad_input:  y (= dy), w read; x (= dx) written; residual read where the problem has it
 *   grad_weight: x, y (= dy) read; w (= dW) written, bias (= grad_bias) written where the problem has it
 *   decode:      as forward. x has all T tokens of the problem (the capacity of a sequence). Only those
 *                that the rows reach are used, tokens to first_row + rows - 1 + diag for a lower fill; the
 *                rest may hold anything. y, pre, gate and residual have `rows` tokens: their token 0 is row
 *                first_row. To write rows in place of a [B,T,H*D] tensor, pass its address at row first_row
 *                and its strides.
 *   grad_epilogue: y (= dy) and pre read, x (= dz) written, which grad_input and grad_weight take for dy:
 *                dz = dy * gate * act'(pre). Where the problem has a gate, gate is read, too, and residual
 *                (= grad_gate) written: grad_gate = dy * act(pre). Computed in f32 and rounded once. It has no w
 *   gram:        y (= A) and x (= B) read, w (= D, H matrices of T x T) written; residual (= C, such matrices,
 *                too: row and head as w_row and w_head, batch unused, wdtype and walign) read where the problem
 *                has it.
 *                  D[h,t,s] = alpha * sum over b, d of A[b,h,t,d] B[b,h,s,d] + beta * C[h,t,s] + gamma * (t == s)
 *                The triangle of `fill` is computed, with its diagonal, so B is A (x = y is allowed), or known to
 *                make D symmetric. C's elements of that triangle alone are read, none where beta is 0. alpha,
 *                beta and gamma are those of the run; products are summed and C is added in f32, then rounded
 *                once. alpha must not be 0, nor beta other than 1 or 0 without C; that they are finite is not
 *                checked. n matrices A[n,T,D] one behind the other are H = n, row = D, head = T * D in btd, and
 *                A[n,D,T] contiguous tensors in bdt
 *   scan:        as forward, with a W that is four vectors in w's place:
 *                  W[h,t,s] = target[t] * decay[t] * decay[t-1] * ... * decay[s+1] * source[s] for s < t,
 *                  W[h,t,t] = diagonal[t], 0 for s > t.
 *                Each may be left out, data NULL: the first three are ones then, the diagonal is source * target. A
 *                decay is taken as clip(decay, decay_low, decay_high), a NaN as it is.
 *                Computed as a recurrence in f32, the vectors not rounded to dtype. decay[0] does not count
 *   scan_grad_input:  y (= dy), the vectors (as scan's) read; x (= dx) written; residual read where the problem has it
 *   scan_grad_weight: x, y (= dy), the vectors (as scan's) read; residual (= the vectors' gradients [h,i,t], i = 0 to 3
 *                of source, target, decay, diagonal: strides head, row, 1, of which 0 = 4 * row and T; batch unused,
 *                wdtype and walign) written; bias (= grad_bias) and pre (= dx, as scan_grad_input's) written where the
 *                problem has them. The gradients are of the vectors as they are given, a number for each head and
 *                token: where one repeats their sum is the caller's. That of a decay beyond its bounds, not at them, is
 *                0, as that of decay[0]. Where the diagonal is source * target, its share is in those of source and
 *                target, and its own row is written as if it were given
 *
 *   newton_schulz: x, w read; y written. Of every b and h a matrix of T rows and D columns by itself, at most 128 rows,
 *                on sm_90a 256: X = x / max(|x|, eps), Frobenius norm, then for each of the K triples (a, b, c) of w
 *                X = (a I + b R + c R R) X, R = X X^T, and y = X.
 *                w is 3 K + 1 f32 in device memory, a, b, c of each step and then eps, with an f32's alignment; w_head and
 *                w_row are not used. An eps below 0 leaves x undivided, whose singular values are at most 1 then.
 *                Products of f16 whatever dtype is, summed in f32. n matrices x[n,T,D] one behind the other are
 *                B = n; in bdt their columns are contiguous. n matrices anywhere: TRIGEN_POINTER_ARRAY
 *
 * Outputs must not overlap each other, the inputs or the workspace, with one exception: residual and gate may
 * be the same view as y (forward, scan), residual the same view as x (grad_input, scan_grad_input) or w (gram), gate that of x
 * (grad_epilogue). Inputs may overlap. */
typedef struct trigen_args {
  size_t struct_size; /* sizeof(trigen_args) */
  trigen_tensor x, y, pre, gate, residual;
  /* w: W[h,t,s,j], strides w_head, w_row, K, 1; of a Toeplitz matrix w[h,t-s]: w_head, 1; of a band
   * w[h,t,s-t+width-1]: w_head, w_row, 1. Strides in elements; 0 = contiguous: T * w_row and T * K; toeplitz: w_row and
   * T; band: T * w_row and width. NULL for a scan, whose W is the vectors below */
  void* w;
  int64_t w_head, w_row;
  void* bias;            /* bias[h,t], contiguous */
  void* workspace;       /* trigen_plan_workspace_size bytes; NULL when that is 0 */
  size_t workspace_size; /* bytes */
  /* decode: the rows of this run, 1 to the problem's rows, all below T. 0 for the other ops. One plan serves
   * every first_row. Zero strides of y, pre, gate and residual mean a contiguous tensor of `rows` tokens.
   * With bdt, where those tokens are the innermost axis, their strides and addresses need an element's
   * alignment only. */
  int64_t first_row, rows;
  trigen_vector source, target, decay, diagonal; /* scans */
  float alpha, beta, gamma;    /* gram. The other ops take 1, 1, 0, which TRIGEN_ARGS_INIT sets, or zeros */
  float decay_low, decay_high; /* scans: bounds of the decay, low <= high. Both 0: none */
  /* Ops that read w. 1: an earlier run of this plan had this w, with the same numbers in it, and this workspace, which only such runs have
   * written since. What they made of w is used again, and the launch that makes it left out (trigen_plan_info.prepared_bytes): w is not
   * read. Plans that prepare nothing run as ever.
   * Where prepared_bytes is all of the workspace, these runs only read it, so that they may overlap in time with one workspace, and another
   * plan whose `prepared` is the same text may take it: forward's for grad_input, say.
   * That it is so is the caller's word. A graph that captured such a run takes what stands in the workspace when it is replayed. */
  int w_unchanged;
} trigen_args;
#define TRIGEN_ARGS_INIT                                                                                   \
  {                                                                                                        \
    sizeof(trigen_args), {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, 0, 0, 0, 0, \
        0, 0, 0, 0, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, {0, 0, 0}, 1, 1, 0, 0, 0, 0                           \
  }

/* Checks the arguments, then launches on `stream` (a CUstream or cudaStream_t of the plan's context; NULL =
 * the legacy default stream) and returns. Takes no lock, allocates nothing, synchronises nothing, touches no
 * file; works under stream capture. The caller's current context is the same afterwards. Errors of the kernel
 * itself show at the caller's next synchronisation, or here with CUDA_LAUNCH_BLOCKING=1. */
TRIGEN_API trigen_status trigen_plan_run(const trigen_plan* plan, const trigen_args* args,
                                         void* stream) TRIGEN_NOEXCEPT;

/* ---- seeing it work ---- */

/* Values are part of the binary interface: do not renumber. A level includes those before it. */
typedef enum trigen_log_level {
  TRIGEN_LOG_OFF = 0,
  TRIGEN_LOG_WARNING = 1, /* what is wrong though calls succeed: a cache that cannot be used */
  TRIGEN_LOG_NOTICE = 2,  /* once in a process: the first untuned plan, the first near one */
  TRIGEN_LOG_INFO = 3,    /* one line for each plan made */
  TRIGEN_LOG_DEBUG = 4    /* and for each compile */
} trigen_log_level;

/* Takes one line without its end. The text is valid during the call. */
typedef void (*trigen_log_fn)(trigen_log_level level, const char* line, void* user);

/* Destination and level of the process's log lines. fn NULL: to stderr, with "trigen: " before them. Until the first
 * call: stderr, at the level that TRIGEN_LOG names, or TRIGEN_LOG_NOTICE. A line for a plan is
 *
 *   plan problem=forward,... device=cuda:0 answer=exact provenance=measured layer=/x/cache.db target=sm_90a
 *        kernel=mma_sm90:tile=... code=cache ms=1.93
 *
 * with answer=exact, near or miss and code=cache or compiled; a value with a blank in it stands in quotes.
 *
 * Threads: fn is called on the threads that make plans, on several at once, while the library holds a lock of
 * its log: fn calls no function of trigen. When trigen_set_log returns, no thread is in the fn before it, so
 * that `user` may be freed. */
TRIGEN_API trigen_status trigen_set_log(trigen_log_level level, trigen_log_fn fn, void* user) TRIGEN_NOEXCEPT;

/* Counters of this process since it loaded the library. Every plan made is one of exact, near, predicted and
 * misses; requests that an earlier plan of the runtime answered are not counted. */
typedef struct trigen_counts {
  size_t struct_size; /* sizeof(trigen_counts), set by the caller */
  uint64_t exact;     /* plans from a record measured on such a device */
  uint64_t near;      /* ... measured on another device, SM count or driver */
  uint64_t predicted; /* ... not measured: the cost model's choice, stored earlier */
  uint64_t misses;    /* plans without a record: compiled, or the generic kernel */
  uint64_t compiles;  /* kernels that NVRTC made in this process */
  uint64_t canaries;  /* kernels that no tune checked here, tried before their first use */
  double plan_ms;     /* spent making plans, compiling included */
  double compile_ms;  /* spent in NVRTC, of all threads together */
} trigen_counts;
TRIGEN_API trigen_status trigen_counters(trigen_counts* counts) TRIGEN_NOEXCEPT;

#ifdef __cplusplus
} /* extern "C" */
#endif
#endif /* TRIGEN_TRIGEN_H */
