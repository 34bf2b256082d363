// newton_schulz in double precision (generator/ops.def), a matrix at a time.
#pragma once

#include <vector>

#include "numerics/formula.h"

namespace trigen {

// Y of matrix (b, h), T rows of D. w is read as place {0, 0, 0, number}.
std::vector<double> newton_schulz(const Problem& problem, int64_t b, int64_t h, InputReader read);

// w in every check and measurement: triples that differ from step to step, then eps. Checks have random X, whose R has
// eigenvalues up to about 4 / min(T, D): the first triple brings these to about 1, to where x (a + b x^2 + c x^4) has a
// slope of about -0.8 and the others leave them. So no step is without effect, and none amplifies what roundings leave.
std::vector<float> checked_steps(const Problem& problem);

}  // namespace trigen
