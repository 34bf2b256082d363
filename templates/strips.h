// Strips: numbers that stand for W (WeightForm) as squares of W for TMA, written by a launch of their own ahead of the
// product. Sizes that host and kernel agree on. Plain C++, like config.h.
//
// A strip has 64 rows, and as many columns as the row tile of W that it stands for has between its first token and the
// square on its diagonal: column c of row r is W's element at the distance t - s = r + reach - c, zero where there is
// none. All row tiles of a Toeplitz matrix are one strip; a band has one for each 64 tokens. So the square of W's columns
// s and rows t, both multiples of 64, is the strips' at column reach + s - t, of row t, or of row 0. Where a square lies
// beside its strip TMA brings zeros, which it is.
//
// P[h][row][column] of x's 16-bit type in the workspace: 128 bytes a token of a Toeplitz matrix, 2 * (width + 127) at most
// of a band.
#pragma once

#include "config.h"
#include "schedule.h"

namespace trigen::strips {

inline constexpr int kEdge = 64;  // rows and columns of a square, which a block writes
inline constexpr int kThreads = 256;

TRIGEN_HOST_DEVICE constexpr int reach(WeightForm form, int T, int width) {
  return (schedule::ceil_div(form == WeightForm::kBand ? width - 1 : T - 1, kEdge)) * kEdge;
}
TRIGEN_HOST_DEVICE constexpr int pitch(WeightForm form, int T, int width) {
  return reach(form, T, width) + kEdge;
}
TRIGEN_HOST_DEVICE constexpr int rows(WeightForm form, int T) {
  return form == WeightForm::kBand ? schedule::ceil_div(T, kEdge) * kEdge : kEdge;
}
// Squares of one head. The launch counts them along x: columns innermost, heads outermost.
TRIGEN_HOST_DEVICE constexpr long long squares(WeightForm form, int T, int width) {
  return static_cast<long long>(pitch(form, T, width) / kEdge) * (rows(form, T) / kEdge);
}
TRIGEN_HOST_DEVICE constexpr long long workspace_bytes(WeightForm form, int T, int width, int heads) {
  return 2ll * heads * rows(form, T) * pitch(form, T, width);
}

// The place of the square of W's columns s and rows t in the product's map of W.
template <WeightForm kForm>
struct Place {
  int reach;
  TRIGEN_HOST_DEVICE constexpr int column(int s, int t) const {
    return kForm == WeightForm::kDense ? s : reach + s - t;
  }
  TRIGEN_HOST_DEVICE constexpr int row(int t) const { return kForm == WeightForm::kToeplitz ? 0 : t; }
};

}  // namespace trigen::strips
