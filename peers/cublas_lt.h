// One dense product through cuBLASLt: its heuristic's choices are timed on the workbench's rotating sets, and
// the fastest one is what runs. What cuBLASLt can do in the product's own epilogue is asked there.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "peers/cublas_library.h"
#include "tuner/measure.h"

namespace trigen {

struct LtTerms {
  const void* bias = nullptr;  // a row of C each, of C's type; `bias_stride` elements between batches
  int64_t bias_stride = 0;
  bool gelu = false;  // the tanh form
};

class LtProduct {
 public:
  static constexpr int kAsked = 8;  // choices that the heuristic is asked for

  // `sets`: the product on each set of the workbench; they differ in their pointers alone. Errors: unsupported
  // (no choice for these sizes or terms), device.
  static llvm::Expected<std::unique_ptr<LtProduct>> create(const CublasLibrary& library, void* handle,
                                                           Workbench& bench, std::vector<Product> sets,
                                                           const LtTerms& terms, void* workspace,
                                                           size_t workspace_bytes);
  ~LtProduct();
  LtProduct(const LtProduct&) = delete;
  LtProduct& operator=(const LtProduct&) = delete;

  llvm::Error run(int set, cuda::CUstream stream) const;
  int choices() const { return static_cast<int>(found_.size()); }  // that ran, of those asked for
  size_t chosen() const { return chosen_; }                        // in the heuristic's order

 private:
  LtProduct(const CublasLibrary& library, void* handle, Workbench& bench, std::vector<Product> sets)
      : library_(library), handle_(handle), bench_(bench), sets_(std::move(sets)) {}
  llvm::Error describe(const LtTerms& terms);
  llvm::Expected<std::vector<LtHeuristic>> ask() const;
  llvm::Error choose(const std::vector<LtHeuristic>& offered);
  llvm::Expected<double> seconds_of(const LtAlgorithm& algorithm) const;
  llvm::Error run_with(const LtAlgorithm& algorithm, int set, cuda::CUstream stream) const;
  llvm::Error failed(const char* call, int status) const;

  const CublasLibrary& library_;
  void* handle_;
  Workbench& bench_;
  std::vector<Product> sets_;
  void *desc_ = nullptr, *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
  void* workspace_ = nullptr;
  size_t workspace_bytes_ = 0;
  std::vector<LtAlgorithm> found_;
  size_t chosen_ = 0;
};

}  // namespace trigen
