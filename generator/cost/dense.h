// Time of the dense product on a masked weight: the product that people run without trigen, and the figure beside
// every time of a kernel.
#pragma once

#include <string>

#include "generator/cost/cost.h"

namespace trigen {

// An estimate of the fastest library call for the problem, over both triangles, on a weight that was masked, cast and
// padded before: of all heads and batches at once, of several taps on an input that im2col laid out before. Epilogues are
// inside: what a library adds in its product (bias, GELU, a residual alone) by the bytes that it reads, the rest as one
// elementwise pass. grad_bias is not. bf16 and TF32 run on the FP32 units where the target has no tensor cores for
// them, as they do in PyTorch; f16x3 stands beside full f32. 0 for decode and grad_epilogue, which have no such peer.
//
//   seconds  start + (products^3 + memory^3)^(1/3) + pass
//   products over rounds of output tiles on the SMs, of the tile and the number of parts of k that take least
//   memory   operands and output once
//
// [dense] of the device's rates (generator/rates.h) has the numbers, fitted to recorded cuBLAS times
// (lab/dense_check.h); docs/cost-model.md says how well they hold.
double dense_seconds(const Problem& problem, const Target& target, const DeviceModel& device);

// The faster one of a kernel and dense. Where a time is no measurement the answer has a margin, in which it is
// kClose: time both.
enum class DenseVerdict { kUnknown, kTriangle, kClose, kDense };
struct BesideDense {
  double seconds = 0;           // of the kernel
  bool measured = false;        // else predicted
  double dense_s = 0;           // 0: unknown
  bool dense_measured = false;  // else estimated
};
// Times as long that one must be for an answer: two measurements of one run; one beside an estimate of dense; a
// prediction beside an estimate.
inline constexpr double kSureMeasured = 1.02, kSureEstimated = 1.1, kSurePredicted = 1.2;
DenseVerdict verdict_of(const BesideDense& times);
// What dense is: "a dense product on the masked weight", of gram, which has none, "a dense product of both triangles".
std::string dense_product(Op op);
// "<dense_product> is faster: 177 us (estimated) beside 224 us (predicted)", "is as fast" where both were measured, "may
// be as fast: ...; time both" within the margin; "" where the kernel is faster or nothing is known.
std::string dense_remark(Op op, const BesideDense& times);

}  // namespace trigen
