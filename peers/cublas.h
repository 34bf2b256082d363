// cuBLAS as a peer: the dense products that people run today, with the mask applied to the weights
// beforehand. Found and opened at run time; nothing of trigen needs it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "check/reference.h"
#include "tuner/measure.h"

namespace trigen {

class CublasLibrary {
 public:
  // TRIGEN_CUBLAS (a file), else the folders where compilers are found (toolkits and Python wheels keep
  // both), else the loader path. Opened once per process. The error lists what was tried and what to install.
  static llvm::Expected<const CublasLibrary*> load();
  const std::string& path() const { return path_; }

  struct Api {
    int (*create)(void** handle) = nullptr;
    int (*destroy)(void* handle) = nullptr;
    int (*get_version)(void* handle, int* version) = nullptr;
    int (*set_stream)(void* handle, void* stream) = nullptr;
    int (*set_workspace)(void* handle, void* workspace, size_t bytes) = nullptr;
    int (*gemm)(void* handle, int transa, int transb, int m, int n, int k, const void* alpha, const void* a,
                int atype, int lda, long long stride_a, const void* b, int btype, int ldb, long long stride_b,
                const void* beta, void* c, int ctype, int ldc, long long stride_c, int batch, int compute,
                int algorithm) = nullptr;
    int (*strmm)(void* handle, int side, int uplo, int trans, int diag, int m, int n, const float* alpha,
                 const void* a, int lda, const void* b, int ldb, void* c, int ldc) = nullptr;
  };
  const Api& api() const { return api_; }

 private:
  std::string path_;
  Api api_;
};

// Dense products for one workbench. Weights are cast to the data's type and zeroed outside the triangle when
// the peer is made, so that neither costs time in a run; K > 1 is K shifted products over a padded copy of
// the input, made beforehand too.
class CublasPeer {
 public:
  static llvm::Expected<std::unique_ptr<CublasPeer>> create(Workbench& bench);
  ~CublasPeer();
  CublasPeer(const CublasPeer&) = delete;
  CublasPeer& operator=(const CublasPeer&) = delete;

  const std::string& version() const { return version_; }  // "12.9.1"
  // What a run leaves out, in words: epilogue terms. "" when nothing.
  std::string missing() const;

  struct Arm {
    std::string name;  // "cublas batched"
    std::string note;
    LaunchOn launch;
  };
  // "cublas batched": the tensors as they are. "cublas flat": one product over all batches, as it were if the
  // caller's layout were the one that cuBLAS likes ([T, B*D] for btd); its result is not the problem's where
  // the layout differs. "cublas strmm": the triangular product that cuBLAS has for f32, in the flat layout.
  // A launch may be captured into any stream of the context.
  std::vector<Arm> arms();
  // Relative error of the batched arm's result on set 0 against the reference, over the reference's elements,
  // without epilogue.
  llvm::Expected<double> error_of_batched(const Reference& reference);

 private:
  explicit CublasPeer(Workbench& bench) : bench_(bench) {}
  llvm::Error prepare();
  llvm::Error batched(int set, cuda::CUstream stream);
  llvm::Error flat(int set, cuda::CUstream stream);
  llvm::Error trmm(int set, cuda::CUstream stream);
  llvm::Error use(cuda::CUstream stream);
  // C = op(A) op(B) + beta C, column-major.
  llvm::Error gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k, const void* a,
                   int64_t lda, int64_t stride_a, const void* b, int64_t ldb, int64_t stride_b, float beta,
                   void* c, DType ctype, int64_t ldc, int64_t stride_c, int64_t batch);
  llvm::Error allocate(int64_t bytes, cuda::CUdeviceptr& out);
  void* plane(int set, int64_t h, int64_t j) const;
  // First element of the activations that are multiplied, for (set, head, tap).
  const std::byte* operand(int set, int64_t h, int64_t j) const;

  Workbench& bench_;
  const CublasLibrary* library_ = nullptr;
  void* handle_ = nullptr;
  cuda::CUstream stream_ = nullptr;  // that the handle is set to
  cuda::CUdeviceptr workspace_ = 0;
  std::string version_;
  std::vector<cuda::CUdeviceptr> allocations_;
  std::vector<cuda::CUdeviceptr> weights_;  // per set: planes [h][j][T][T] of the data's type, or of dW
  std::vector<cuda::CUdeviceptr> padded_;   // per set, K > 1: the shifted operand with K - 1 zero features
  Tensor operand_;                          // strides of the shifted operand
  DType plane_type_ = DType::kF32;
};

}  // namespace trigen
