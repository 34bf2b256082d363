// The estimate of the dense product (generator/cost/dense.h) held against recorded peers, and its rates fitted to them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "generator/cost/dense.h"

namespace trigen {

// A problem that a GPU timed beside cuBLAS.
struct DenseRow {
  Problem problem;
  const Target* gpu = nullptr;  // of gpus.def
  std::string device, file, peer;
  double dense_us = 0;      // the fastest dense arm
  double untuned_us = 0;    // of trigen, 0: not timed
  double predicted_us = 0;  // of that kernel, 0: it is no longer the model's choice
  double tuned_us = 0;
  // Its file is none of those that [dense] of the rates names as its source. Of sizes that these have, such rows are
  // left out.
  bool held = false;
};
// Lines of `trigen-lab tables` and `sweep` that compare with cuBLAS; a problem's untuned and tuned row of
// one file and GPU are one. Several taps count where a product over im2col was among the peers. Errors: a file that cannot
// be read, or no such row.
llvm::Expected<std::vector<DenseRow>> read_dense_rows(const std::vector<std::string>& paths);

// Figures of the rows of one GPU and half.
struct DenseFigures {
  std::string gpu;
  bool held = false;
  size_t rows = 0;
  double error = 0, bias = 0, nine_in_ten = 0;  // medians of |log| and log of estimate / measured; a quantile
  double within = 0;                            // share of rows within 15 %
  // The faster side, said for kernels that were timed with today's model's choice (`untuned`) or tuned: predictions and times
  // beside the estimate. Wrong: the other one was faster by more than 2 %.
  struct Verdicts {
    size_t rows = 0, close = 0;
    size_t wrong_triangle = 0;  // said to be faster than dense, and slower
    size_t wrong_dense = 0;     // the reverse
  };
  Verdicts predicted, timed;
};
std::vector<DenseFigures> dense_figures(const std::vector<DenseRow>& rows, const Rates* rates = nullptr);
double estimated_us(const DenseRow& row, const Rates* rates);

// The table with [dense]'s fitted rates moved to where the rows that are not held out ask: coordinate descent over the
// mean of |log(estimate / measured)|, each at 0.5 at most. Errors: a table that is none.
struct DenseFit {
  double before = 0, after = 0;
  std::string table;
};
llvm::Expected<DenseFit> fit_dense(const std::string& table, const std::vector<DenseRow>& rows);

}  // namespace trigen
