// The entries of cuBLAS and cuBLASLt that peers/ calls, computed on the CPU from their documentation: column-major
// matrices, strides between batches in elements, pointer arrays, epilogues in cuBLASLt's order. On the emulated
// device, whose memory is the host's, it shows that the arguments ask for the products that they should.
// Sizes that no call of peers/ uses are refused with a status, as a library would.
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "numerics/numbers.h"

namespace {

using trigen::DType;

constexpr int kOk = 0, kInvalid = 7;
constexpr uint32_t kAddBias = 4, kGelu = 32;

DType dtype_of(int type) { return type == 0 ? DType::kF32 : type == 2 ? DType::kF16 : DType::kBF16; }

struct Matrix {
  int type = 0;
  int64_t rows = 0, columns = 0, ld = 0;
  int32_t batch = 1;
  int64_t stride = 0;
};

struct Desc {
  int32_t transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = 1;
  const void* bias = nullptr;
  int64_t bias_stride = 0;
  int32_t bias_type = -1;
};

float element(const Matrix& m, const void* base, int64_t row, int64_t column) {
  return trigen::load_element(dtype_of(m.type), static_cast<const std::byte*>(base), row + column * m.ld);
}

const void* at(const Matrix& m, const void* base, int64_t batch) {
  return static_cast<const std::byte*>(base) + batch * m.stride * trigen::element_size(dtype_of(m.type));
}

int64_t narrow = 0;

int multiply(const Desc& desc, float alpha, const Matrix& a, const void* a_data, const Matrix& b,
             const void* b_data, float beta, const Matrix& c, const void* c_data, void* d_data,
             int64_t batch) {
  const bool ta = desc.transpose_a != 0, tb = desc.transpose_b != 0;
  const int64_t k = ta ? a.rows : a.columns;
  if ((ta ? a.columns : a.rows) != c.rows || (tb ? b.columns : b.rows) != k ||
      (tb ? b.rows : b.columns) != c.columns || a.ld < a.rows || b.ld < b.rows || c.ld < c.rows)
    return kInvalid;
  for (const auto& [matrix, data] : {std::pair{&a, a_data}, std::pair{&b, b_data}, std::pair{&c, c_data}})
    narrow += matrix->ld % 8 != 0 || reinterpret_cast<uintptr_t>(data) % 16 != 0 ? 1 : 0;
  for (int64_t n = 0; n < c.columns; ++n) {
    for (int64_t m = 0; m < c.rows; ++m) {
      double sum = 0;
      for (int64_t i = 0; i < k; ++i)
        sum += static_cast<double>(ta ? element(a, a_data, i, m) : element(a, a_data, m, i)) *
               static_cast<double>(tb ? element(b, b_data, n, i) : element(b, b_data, i, n));
      double value = alpha * sum;
      if (beta != 0) value += beta * element(c, c_data, m, n);
      if ((desc.epilogue & kAddBias) != 0)
        value += trigen::load_element(dtype_of(desc.bias_type), static_cast<const std::byte*>(desc.bias),
                                      batch * desc.bias_stride + m);
      if ((desc.epilogue & kGelu) != 0)
        value = 0.5 * value * (1 + std::tanh(0.7978845608 * (value + 0.044715 * value * value * value)));
      trigen::store_element(dtype_of(c.type), static_cast<std::byte*>(d_data), m + n * c.ld,
                            static_cast<float>(value));
    }
  }
  return kOk;
}

Matrix operand(int type, bool transposed, int rows, int columns, int ld, long long stride) {
  return {type, transposed ? columns : rows, transposed ? rows : columns, ld, 1, stride};
}

}  // namespace

#define STAND_IN extern "C" __attribute__((visibility("default")))

// Matrices since the last call that wide loads cannot take: rows of no multiple of 8 elements, or a pointer of none of 16 bytes.
STAND_IN int64_t cublas_stand_in_narrow() { return std::exchange(narrow, 0); }

STAND_IN int cublasCreate_v2(void** handle) { return *handle = new int(0), kOk; }
STAND_IN int cublasDestroy_v2(void* handle) { return delete static_cast<int*>(handle), kOk; }
STAND_IN int cublasGetVersion_v2(void* /*handle*/, int* version) { return *version = 130100, kOk; }
STAND_IN int cublasSetStream_v2(void* /*handle*/, void* /*stream*/) { return kOk; }
STAND_IN int cublasSetWorkspace_v2(void* /*handle*/, void* /*workspace*/, size_t /*bytes*/) { return kOk; }
STAND_IN int cublasStrmm_v2(void*, int, int, int, int, int, int, const float*, const void*, int, const void*,
                            int, void*, int) {
  return kInvalid;
}

STAND_IN int cublasGemmStridedBatchedEx(void* /*handle*/, int transa, int transb, int m, int n, int k,
                                        const void* alpha, const void* a, int atype, int lda,
                                        long long stride_a, const void* b, int btype, int ldb,
                                        long long stride_b, const void* beta, void* c, int ctype, int ldc,
                                        long long stride_c, int batch, int /*compute*/, int /*algorithm*/) {
  const Desc desc{transa, transb};
  const Matrix left = operand(atype, transa != 0, m, k, lda, stride_a);
  const Matrix right = operand(btype, transb != 0, k, n, ldb, stride_b);
  const Matrix out{ctype, m, n, ldc, batch, stride_c};
  for (int64_t i = 0; i < batch; ++i) {
    void* to = const_cast<void*>(at(out, c, i));  // NOLINT: the caller's own
    if (const int status = multiply(desc, *static_cast<const float*>(alpha), left, at(left, a, i), right,
                                    at(right, b, i), *static_cast<const float*>(beta), out, to, to, i))
      return status;
  }
  return kOk;
}

STAND_IN int cublasGemmBatchedEx(void* handle, int transa, int transb, int m, int n, int k, const void* alpha,
                                 const void* const a[], int atype, int lda, const void* const b[], int btype,
                                 int ldb, const void* beta, void* const c[], int ctype, int ldc, int batch,
                                 int compute, int algorithm) {
  for (int i = 0; i < batch; ++i)
    if (const int status =
            cublasGemmStridedBatchedEx(handle, transa, transb, m, n, k, alpha, a[i], atype, lda, 0, b[i],
                                       btype, ldb, 0, beta, c[i], ctype, ldc, 0, 1, compute, algorithm))
      return status;
  return kOk;
}

STAND_IN int cublasLtMatmulDescCreate(void** desc, int /*compute*/, int /*scale*/) {
  return *desc = new Desc, kOk;
}
STAND_IN int cublasLtMatmulDescDestroy(void* desc) { return delete static_cast<Desc*>(desc), kOk; }
STAND_IN int cublasLtMatmulDescSetAttribute(void* opaque, int attribute, const void* value, size_t bytes) {
  Desc& desc = *static_cast<Desc*>(opaque);
  const auto set = [&](auto& member) {
    if (bytes != sizeof member) return kInvalid;
    std::memcpy(&member, value, bytes);
    return kOk;
  };
  if (attribute == 3) return set(desc.transpose_a);
  if (attribute == 4) return set(desc.transpose_b);
  if (attribute == 7) return set(desc.epilogue);
  if (attribute == 8) return set(desc.bias);
  if (attribute == 10) return set(desc.bias_stride);
  if (attribute == 26) return set(desc.bias_type);
  return kInvalid;
}
STAND_IN int cublasLtMatrixLayoutCreate(void** layout, int type, uint64_t rows, uint64_t columns,
                                        int64_t ld) {
  *layout = new Matrix{type, static_cast<int64_t>(rows), static_cast<int64_t>(columns), ld, 1, 0};
  return kOk;
}
STAND_IN int cublasLtMatrixLayoutDestroy(void* layout) { return delete static_cast<Matrix*>(layout), kOk; }
STAND_IN int cublasLtMatrixLayoutSetAttribute(void* opaque, int attribute, const void* value, size_t bytes) {
  Matrix& layout = *static_cast<Matrix*>(opaque);
  if (attribute == 5 && bytes == sizeof layout.batch) return std::memcpy(&layout.batch, value, bytes), kOk;
  if (attribute == 6 && bytes == sizeof layout.stride) return std::memcpy(&layout.stride, value, bytes), kOk;
  return kInvalid;
}
STAND_IN int cublasLtMatmulPreferenceCreate(void** preference) { return *preference = new int(0), kOk; }
STAND_IN int cublasLtMatmulPreferenceDestroy(void* preference) {
  return delete static_cast<int*>(preference), kOk;
}
STAND_IN int cublasLtMatmulPreferenceSetAttribute(void* /*preference*/, int attribute, const void* value,
                                                  size_t bytes) {
  if (attribute == 1) return bytes == sizeof(uint64_t) ? kOk : kInvalid;
  if (attribute < 5 || attribute > 8 || bytes != sizeof(uint32_t)) return kInvalid;
  uint32_t alignment = 0;
  std::memcpy(&alignment, value, bytes);
  return alignment > 0 && (alignment & (alignment - 1)) == 0 ? kOk : kInvalid;
}

struct StandInHeuristic {
  uint64_t algorithm[8];
  size_t workspace_bytes;
  int state;
  float waves;
  int reserved[4];
};
// Two choices, the first of which does not run.
STAND_IN int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int asked,
                                            void* results, int* found) {
  auto* out = static_cast<StandInHeuristic*>(results);
  *found = asked < 2 ? asked : 2;
  for (int i = 0; i < *found; ++i) out[i] = {{static_cast<uint64_t>(i)}, 0, 0, 1.0F, {}};
  return kOk;
}
STAND_IN int cublasLtMatmul(void* /*handle*/, void* desc, const void* alpha, const void* a, void* a_layout,
                            const void* b, void* b_layout, const void* beta, const void* c, void* c_layout,
                            void* d, void* /*d_layout*/, const void* algorithm, void* /*workspace*/,
                            size_t /*bytes*/, void* /*stream*/) {
  if (*static_cast<const uint64_t*>(algorithm) == 0) return 15;  // CUBLAS_STATUS_NOT_SUPPORTED
  const Matrix& left = *static_cast<Matrix*>(a_layout);
  const Matrix& right = *static_cast<Matrix*>(b_layout);
  const Matrix& out = *static_cast<Matrix*>(c_layout);
  for (int64_t i = 0; i < out.batch; ++i)
    if (const int status =
            multiply(*static_cast<Desc*>(desc), *static_cast<const float*>(alpha), left, at(left, a, i),
                     right, at(right, b, i), *static_cast<const float*>(beta), out, at(out, c, i),
                     const_cast<void*>(at(out, d, i)), i))  // NOLINT: the caller's own
      return status;
  return kOk;
}
