// How far a right kernel's output may be from the double-precision reference.
#pragma once

#include <string>

#include "generator/problem.h"

namespace trigen {

// Two gates, both must hold.
//
//   relative:  ||out - ref|| / ||ref||  <=  relative
//   element:   |out - ref|              <=  1.01 u_out |ref| + floor + 8 sum_error * rms(ref)
//
// with
//   u_out      unit roundoff of the output's format: bf16 2^-8, f16 2^-11, f32 2^-24 (IEEE 754-2019;
//              N. Higham, Accuracy and Stability of Numerical Algorithms, section 2.2). The rounding errors
//              of an output that is rounded once lie in [-u, u] times the value: their root mean square is
//              about 0.4 u, so 0.6 u_out is the share of `relative`.
//   sum_error  relative error of a sum of n products, root mean square, for products of random sign: what
//              adds to it
//     simt        n roundings to nearest of f32, sqrt(n) 2^-24 (Higham and Mary 2019, SIAM J. Sci. Comput.
//                 41(5))
//     tensor core adds to its f32 sum with truncation, once per instruction of at least 4 products (Fasi,
//                 Higham, Mikaitis, Pranesh 2021, PeerJ CS 7:e330), which shrinks sums by up to (n / 4) 2^-23
//                 half of the time: n 2^-26 + sqrt(n) 2^-23
//     scan        f32 everywhere: n roundings of the state and as many of the products of decays, 2 sqrt(n) 2^-24, and of
//                 two states where vectors' gradients multiply them, 4 sqrt(n) 2^-24. (On the emulated device gradients
//                 at T=16384 were off by up to 1.5e-5 of 3.1e-5, outputs by 7.2e-6 of 1.5e-5.)
//     tf32        operands keep 11 significant bits: rounded to nearest each is off by up to 2^-11, cut off
//                 by up to 2^-10. One product's error has a root mean square below 2^-10, and errors of
//                 random sign do not grow relative to the sum: 2^-10. (Measured for tf32 products: 3e-4.)
//     activation  the device's erff and __expf are off by a few units in the last place (CUDA C++ Programming
//                 Guide, mathematical functions): 2^-21. bf16's kernels take a polynomial that is off by up to
//                 1.7e-5 (templates/activation.cuh), a 230th of the output's own roundoff, which a residual that
//                 cancels the activation lays bare: 2^-17
//     newton_schulz  rounds X, and each step R, Z, the products of both and Q, to f16: u = 2^-11, of which the root mean square
//                 is 0.4 u. With the coefficients of checks an error becomes 0.8 times as large a step, so that those of all
//                 steps together are sqrt(5 / (1 - 0.8^2)) 0.4 u = 1.5 u. What small singular values add where R alone is
//                 iterated is not in that sum: of 1,080 random matrices of 27 shapes, T = 1 to 128, 1 to 8 steps, in arithmetic
//                 with the same roundings, the worst had 3.1 u, and one output 11 u of the root mean square: 5 u and 40 u
//     f32 weights with 16-bit data: rounded when they are loaded, in the reference too: no term
//   floor      half of the smallest subnormal of an f16 output, 2^-25, else 0
//
// relative = 0.6 u_out + sum_error; with fewer than 256 outputs, where a root mean square has not settled,
// u_out + sum_error.
//
// A product in n that every output lacks, which costs sqrt(1/n), is seen up to n = 79 000 with bf16. One that a
// single output lacks is not, of long sums: what sees it are inputs of small integers (check/integers.h).
struct Tolerance {
  double relative = 0;
  double output_roundoff = 0;  // u_out
  double sum_error = 0;
  double floor = 0;
};
// For outputs of `dtype` that are sums over `terms` products, of which there are `outputs`.
Tolerance tolerance_of(const Problem& problem, DType dtype, int64_t terms, int64_t outputs);

}  // namespace trigen
