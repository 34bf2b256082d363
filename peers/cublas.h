// cuBLAS as a peer: the dense products that people run today, with the mask applied to the weights
// beforehand.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "check/reference.h"
#include "peers/cublas_library.h"
#include "peers/cublas_lt.h"
#include "peers/pass.h"
#include "peers/sum_pass.h"
#include "tuner/measure.h"

namespace trigen {

// Dense products for one workbench. Weights are cast to the data's type, zeroed outside the triangle and padded
// to rows of a multiple of 8 elements when the peer is made (dW has such rows, too), so that none of it costs time
// in a run; K > 1 is K shifted products over a padded copy of the input, made beforehand too.
class CublasPeer {
 public:
  static llvm::Expected<std::unique_ptr<CublasPeer>> create(Workbench& bench);
  ~CublasPeer();
  CublasPeer(const CublasPeer&) = delete;
  CublasPeer& operator=(const CublasPeer&) = delete;

  const std::string& version() const { return version_; }  // "12.9.1"

  struct Arm {
    std::string name;  // "cublas batched"
    std::string note;
    LaunchOn launch;
    bool exact = false;  // its result is the problem's, and can be checked
    bool whole = true;   // it runs the epilogue, too
  };
  // How the data lies: as the problem says; as [T, B*D] or as [B*D, T] (a head each), which it does not where
  // that is another layout: those are one product without a loop, and their results are for the time alone.
  //
  //   cublas batched, flat     cublasGemmStridedBatchedEx; heads as one array of pointers (cublasGemmBatchedEx);
  //                            taps flat: one product with all shifted copies of the input (im2col), which are
  //                            made beforehand and so cost nothing, as they would
  //   cublaslt batched, flat, transposed    the fastest of the heuristic's choices
  //   cublas, cublaslt split   grad_weight of few rows and a long k: parts of k, of a batch each or, of data as
  //                            [B*D, T], as many as fill the device, with sums of their own, and a pass that adds
  //   cublas strmm             the triangular product that cuBLAS has for f32, in the flat layout
  //
  // With `epilogue` cuBLASLt runs what it can of the problem's (bias where C's rows are tokens, GELU, the
  // residual as beta = 1), and one elementwise pass the rest. Where no arm can do all of it, every arm leaves
  // it out. What could not be made is in `notes`, once. A launch may be captured into any stream of the
  // context.
  std::vector<Arm> arms(bool epilogue, std::vector<std::string>& notes);
  // Relative error of an exact arm's result on set 0 against the reference, over the reference's elements.
  llvm::Expected<double> error_of(const Arm& arm, const Reference& reference);

 private:
  // cuBLAS itself takes 32 MiB on compute capability 9.0; cuBLASLt's choices are asked for with as much.
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;
  // The last three are products of parts of k: of a batch each, and of data as in kTransposed.
  enum class View { kBatched, kFlat, kTransposed, kSplit, kFewParts, kManyParts };
  // Products of the same sizes, which one call makes: a head each, or one.
  using Call = std::vector<Product>;

  explicit CublasPeer(Workbench& bench) : bench_(bench) {}
  llvm::Error prepare();
  llvm::Error prepare_weights();
  llvm::Error prepare_padded();
  llvm::Error prepare_columns();
  llvm::Error prepare_split();
  llvm::Error prepare_pointers();
  llvm::Error prepare_bias();
  llvm::Error upload(const void* from, size_t bytes, std::vector<cuda::CUdeviceptr>& to);  // once a set
  std::vector<Call> calls(View view, int set) const;
  Call call_of_tap(int set, int64_t j) const;
  void add_weight_calls(int set, int64_t j, std::vector<Call>& out) const;
  Call call_of_parts(int set) const;
  void* laid_out(View view, int set, Role role) const;
  Product one_product(View view, int set) const;
  // Parts that the view cuts each head's k into; 0: it does not, or is not served.
  int64_t parts(View view) const { return view < View::kSplit ? 0 : parts_[static_cast<size_t>(view) - 3]; }
  llvm::Error add_parts(View view, int set, cuda::CUstream stream) const;
  llvm::Error run(View view, int set, cuda::CUstream stream);
  llvm::Error trmm(int set, cuda::CUstream stream);
  llvm::Error use(cuda::CUstream stream);
  llvm::Error gemm(const Product& product);
  llvm::Error gemm_of_heads(const Call& call, cuda::CUdeviceptr pointers);
  llvm::Error allocate(int64_t bytes, cuda::CUdeviceptr& out);
  int64_t plane_elements() const { return bench_.problem().T * plane_row_; }
  void* plane(int set, int64_t h, int64_t j) const;
  void* sum_of(int64_t h, int64_t parts) const {
    return device_pointer(sums_ + static_cast<cuda::CUdeviceptr>(4 * h * parts * plane_elements()));
  }
  // First element of the activations that are multiplied, for (set, head, tap).
  const std::byte* operand(int set, int64_t h, int64_t j) const;
  bool serves(View view) const;
  bool is_exact(View view) const;
  Arm lt_arm(View view, const LtProduct* product) const;
  void add_lt(View view, bool epilogue, std::vector<Arm>& out, std::vector<std::string>& notes);
  // The arm with a pass for these terms behind it, where there is one; else it is not whole.
  void finish(Arm& arm, const Epilogue& rest, std::vector<std::string>& notes);

  Workbench& bench_;
  const CublasLibrary* library_ = nullptr;
  void* handle_ = nullptr;
  cuda::CUstream stream_ = nullptr;  // that the handle is set to
  cuda::CUdeviceptr workspace_ = 0;
  std::string version_;
  std::vector<cuda::CUdeviceptr> allocations_;
  // One a set:
  std::vector<cuda::CUdeviceptr> weights_;    // planes [h][j][T][plane_row_] of the data's type, or of dW
  std::vector<cuda::CUdeviceptr> addends_;    // gram with C: its planes
  std::vector<cuda::CUdeviceptr> padded_;     // K > 1: the shifted operand with K - 1 zero features
  std::vector<cuda::CUdeviceptr> columns_;    // K > 1: the operand of every tap, [K][T][B*D]
  std::vector<cuda::CUdeviceptr> tap_major_;  // K > 1, forward: weights [T][K][T], in rows of K * plane_row_
  std::vector<cuda::CUdeviceptr> pointers_;   // H > 1: of each call a, b and c of every head and batch
  cuda::CUdeviceptr bias_ = 0;                // [h][T] of the data's type
  cuda::CUdeviceptr sums_ = 0;                // f32 planes [h][part]
  std::array<int64_t, 3> parts_ = {};         // of the views from kSplit on
  std::optional<SumPass> sum_pass_;
  int64_t plane_row_ = 0;
  Tensor operand_;  // strides of the shifted operand
  DType plane_type_ = DType::kF32;
  std::vector<std::unique_ptr<LtProduct>> lt_;
  std::vector<std::unique_ptr<EpiloguePass>> passes_;
};

}  // namespace trigen
