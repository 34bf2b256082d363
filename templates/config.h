// Kernel: shape and config that a kernel is specialised on. Kernel templates (NVRTC) and generator (host)
// include this file, so that a field means the same to both. Plain C++20 aggregates without any include: a
// Kernel is a non-type template parameter, and the emitted source spells one with designated initialisers, so
// a misspelt field does not compile.
#pragma once

#if defined(__CUDACC__)
#define TRIGEN_HOST_DEVICE __host__ __device__
#else
#define TRIGEN_HOST_DEVICE
#endif

namespace trigen {

// The values below are stored in caches: do not renumber.
// decode is forward for a few rows t that each run names (Params::first_row, rows). scan, scan_grad_input and
// scan_grad_weight are the products with a W that is four vectors (templates/scan.h).
enum class Op : int {
  kForward = 0,
  kGradInput = 1,
  kGradWeight = 2,
  kDecode = 3,
  kGradEpilogue = 4,
  kGram = 5,
  kScan = 6,
  kScanGradInput = 7,
  kScanGradWeight = 8,
  kNewtonSchulz = 9
};
// Ops whose output has W's axes: sums over (b,d) of products of two activation tensors.
TRIGEN_HOST_DEVICE constexpr bool makes_weights(Op op) { return op == Op::kGradWeight || op == Op::kGram; }
// Ops whose output is the vectors that stand for a W.
TRIGEN_HOST_DEVICE constexpr bool makes_vectors(Op op) { return op == Op::kScanGradWeight; }
// Ops that make rows of y, with every part of an epilogue.
TRIGEN_HOST_DEVICE constexpr bool makes_rows(Op op) {
  return op == Op::kForward || op == Op::kDecode || op == Op::kScan;
}
enum class DType : int { kF16 = 0, kBF16 = 1, kF32 = 2 };
// Multiplication of f32 data: by FP32 units, rounded to tf32, or as three products of f16 planes, which keeps
// f32's accuracy. 16-bit data has one way only (products exact, sums in f32) and says kDefault.
enum class Math : int { kDefault = 0, kSimt = 1, kTF32 = 2, kF16x3 = 3 };
// btd: x[B,T,H*D], a head is a slice of the last axis. bdt: x[B,H*D,T].
enum class Layout : int { kBTD = 0, kBDT = 1 };
// lower: W[t,s] takes part where s <= t + diag. upper: where s >= t + diag.
enum class Fill : int { kLower = 0, kUpper = 1 };
// What W's numbers are. dense: one for each (t, s, j). toeplitz: W[h,t,s] = v[h][t - s], a tensor of [H, T]. band:
// W[h,t,s] = w[h][t][s - t + width - 1] where t - s < width, else 0, a tensor of [H, T, width].
enum class WeightForm : int { kDense = 0, kToeplitz = 1, kBand = 2 };
enum class Activation : int { kNone = 0, kGELU = 1, kSiLU = 2 };
// The vectors of a scan's W, and the rows of their gradients [h, row, t].
namespace scan {
enum Vector : int { kSource = 0, kTarget = 1, kDecay = 2, kDiagonal = 3 };
inline constexpr int kVectors = 4;
}  // namespace scan
// Source of an operand: the tensor that the caller passed, or the workspace, where a launch ahead of the
// product packed it.
enum class Access : int { kDirect = 0, kPacked = 1 };

// The part of a problem that is compiled into a kernel. T, D, H, K equal to 0 mean "taken from Params at run
// time"; then pad, diag and width are taken from there too. B always is a run-time value.
struct Shape {
  Op op;
  DType dtype;   // x, y, dx, dy, residual, gate, pre-activation
  DType wdtype;  // W, dW, bias, grad_bias
  Math math;
  Layout layout;
  Fill fill;
  int T;              // tokens
  int D;              // features of one head
  int H;              // heads
  int K;              // taps; newton_schulz: steps
  int pad;            // tap j of output feature d reads input feature d + j - pad
  int diag;           // diagonal offset of the fill
  WeightForm w;       // toeplitz, band: K = 1, diag = 0, the lower triangle
  int width;          // band: tokens of a row; the others' is 0
  bool bias;          // forward, decode: add bias[h,t]; grad_weight: also write grad_bias[h,t]
  Activation act;     // forward, decode; grad_epilogue: its derivative
  bool pre;           // forward, decode: also store the value before the activation
  bool gate;          // forward, decode: multiply by gate after the activation; grad_epilogue: was multiplied
  bool residual;      // forward, decode, grad_input: add residual last; gram: add beta C
  bool accumulate;    // grad_weight: dW += (and grad_bias +=)
  bool zero_outside;  // grad_weight: write zeros outside the triangle (default: never touched)
  bool mirror;        // gram: D[s,t] = D[t,s], the other triangle holds the same bits
  bool grad_input;    // scan_grad_weight: also store dx
  bool pointers;      // gram: tensors may be arrays of pointers (matrices.cuh)
};

// The tunable part. Fields that a family does not use are 0, and are left out of the text form. The family
// decode reads some of them in its own way: templates/decode.h.
struct Config {
  int tile_m;   // rows of the output tile: t (forward, grad_weight) or s (grad_input)
  int tile_n;   // columns of the output tile: flattened (b,d), or flattened (s,j) for grad_weight
  int tile_k;   // depth of one step of the main loop
  int warps_m;  // warps along tile_m (simt: threads along m are 8 * warps_m)
  int warps_n;
  int stages;   // tiles in flight in shared memory
  int split_k;  // grad_weight: parts of the (b,d) sum, added in a fixed order from the workspace; 1 = none
  int raster;  // column tiles in one L2 section, which is walked longest row first; 0 = one section; 1 in persistent families: a
               // cluster takes all rows of a column
  int vec_a;   // elements of one global access to operand A (W, or dy for grad_weight)
  int vec_b;   // operand B (x, or dy for grad_input)
  int vec_c;   // output, residual, gate, pre
  int cluster;  // thread blocks of a cluster (sm_90 and later)
  int box;      // features of a bulk copy's box where fewer than 64, so that few columns of a tile are empty
  int blocks;   // thread blocks on one SM that the register budget must allow (__launch_bounds__), 0 =
                // compiler's choice
  // Only for families that can read an operand in place or as a packed copy.
  Access weights =
      Access::kDirect;  // forward, grad_input: W. vec_a: elements of one access by the launch that reads W
  Access activations = Access::kDirect;  // x, y and tensors of their shape; packed outputs are copied back
};

struct Kernel {
  Shape shape;
  Config config;
};

}  // namespace trigen
