// The one argument of every kernel. Shared by templates (NVRTC) and runtime (host): plain data, the same
// layout in both.
#pragma once

namespace trigen {

// An activation tensor. Strides are in elements. The innermost axis (d for btd, t for bdt) has stride 1;
// `row` is the stride of the other one (t for btd, d for bdt).
struct Activations {
  void* data;
  long long batch;
  long long head;
  long long row;
};

// A vector of a scan: a number for each head and token. Strides are in elements; 0 repeats.
struct TokenVector {
  const void* data;  // null: ones; of the diagonal: source * target
  int head, token;
};

struct Params {
  Activations x;    // forward, grad_weight: x (read); grad_input: dx (written)
  Activations y;    // forward: y (written); grad_input, grad_weight: dy (read)
  Activations pre;  // forward with Shape::pre: written; scan_grad_weight with Shape::grad_input: dx (written)
  Activations gate;  // forward with Shape::gate: read
  Activations
      residual;  // forward, grad_input with Shape::residual: read; gram: C, head and row are its strides
  // forward, grad_input: W[h,t,s,j] (read); grad_weight: dW (written). j has stride 1, s stride K. Or the numbers that
  // stand for it (WeightForm), whose innermost axis has stride 1. A scan has vectors in its place.
  void* w;
  long long w_head;              // stride of h in elements
  long long w_row;               // stride of t in elements, >= T*K; of a band >= width
  void* bias;                    // forward: bias[h,t] (read); grad_weight: grad_bias (written)
  void* workspace;               // split_k partial sums, f32, or packed weights; 16-byte aligned
  int B, H, T, D, K, pad, diag;  // every size, also those that are compiled in
  // Numbers of a run, 0 for the other ops. decode: the rows t in [first_row, first_row + rows) are made; y, pre,
  // gate and residual hold these rows only: their row 0 is t = first_row. gram: D = alpha A B^T + beta C + gamma I.
  // scan: a decay is clip(decay, decay_low, decay_high).
  union {
    int first_row;
    float alpha;
    float decay_low;
  };
  union {
    int rows;
    float beta;
    float decay_high;
  };
  union {
    float gamma;
    int width;  // of a band, compiled in or not; 0 elsewhere
  };
  TokenVector vectors[4];  // scan: source, target, decay, diagonal (scan::Vector)
};

}  // namespace trigen
