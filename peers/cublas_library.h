// cuBLAS and cuBLASLt, found and opened at run time; nothing of trigen needs them. Values and structures are
// those of cublas_api.h, cublasLt.h and library_types.h, which NVIDIA keeps stable from CUDA 11.8 on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "generator/problem.h"
#include "llvm/Support/Error.h"

namespace trigen {

// cublasLtMatmulAlgo_t and cublasLtMatmulHeuristicResult_t.
struct LtAlgorithm {
  uint64_t data[8];
};
struct LtHeuristic {
  LtAlgorithm algorithm;
  size_t workspace_bytes;
  int state;  // 0: this one can run
  float waves;
  int reserved[4];
};
static_assert(sizeof(LtHeuristic) == 96);

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
    int (*gemm_pointers)(void* handle, int transa, int transb, int m, int n, int k, const void* alpha,
                         const void* const a[], int atype, int lda, const void* const b[], int btype, int ldb,
                         const void* beta, void* const c[], int ctype, int ldc, int batch, int compute,
                         int algorithm) = nullptr;
    int (*strmm)(void* handle, int side, int uplo, int trans, int diag, int m, int n, const float* alpha,
                 const void* a, int lda, const void* b, int ldb, void* c, int ldc) = nullptr;
  };
  const Api& api() const { return api_; }

  struct LtApi {
    int (*desc_create)(void** desc, int compute, int scale_type) = nullptr;
    int (*desc_destroy)(void* desc) = nullptr;
    int (*desc_set)(void* desc, int attribute, const void* value, size_t bytes) = nullptr;
    int (*layout_create)(void** layout, int type, uint64_t rows, uint64_t columns, int64_t ld) = nullptr;
    int (*layout_destroy)(void* layout) = nullptr;
    int (*layout_set)(void* layout, int attribute, const void* value, size_t bytes) = nullptr;
    int (*preference_create)(void** preference) = nullptr;
    int (*preference_destroy)(void* preference) = nullptr;
    int (*preference_set)(void* preference, int attribute, const void* value, size_t bytes) = nullptr;
    int (*heuristic)(void* handle, void* desc, void* a, void* b, void* c, void* d, void* preference,
                     int asked, LtHeuristic* results, int* found) = nullptr;
    int (*matmul)(void* handle, void* desc, const void* alpha, const void* a, void* a_layout, const void* b,
                  void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                  const LtAlgorithm* algorithm, void* workspace, size_t bytes, void* stream) = nullptr;
  };
  // Null where this cuBLAS comes without cuBLASLt. Its handle is cuBLAS's own ("a cublasHandle_t may be cast").
  const LtApi* lt() const { return has_lt_ ? &lt_ : nullptr; }

 private:
  std::string path_;
  Api api_;
  LtApi lt_;
  bool has_lt_ = false;
};

// One call of a dense product: C = alpha op(A) op(B) + beta C, column-major, `batch` of them at constant strides (in
// elements). With `addend`, which cuBLASLt alone takes, it is not in place: C = alpha op(A) op(B) + beta * addend.
struct Product {
  bool transpose_a = false, transpose_b = false;
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  int64_t lda = 0, stride_a = 0;
  const void* b = nullptr;
  int64_t ldb = 0, stride_b = 0;
  float alpha = 1, beta = 0;
  const void* addend = nullptr;
  void* c = nullptr;
  DType ctype = DType::kF32;
  int64_t ldc = 0, stride_c = 0;
  int64_t batch = 1;
};

// cudaDataType and cublasComputeType_t.
int cublas_type(DType dtype);
int cublas_compute(const Problem& problem);

}  // namespace trigen
