// The gradient of a Toeplitz matrix, all of its numbers: sums along diagonals as correlations over the tokens. Long ones by
// Fourier transforms in double precision, in T log T of each column in place of T T.
#pragma once

#include <vector>

#include "check/operands.h"

namespace trigen {

// out[i] = sum over t and (b, d) of dy[b,h,t,d] x[b,h,t-i,d], 0 <= i < T. Multithreaded, the same in every run.
std::vector<double> correlate(const Problem& problem, const Operands& operands, int64_t h);

}  // namespace trigen
