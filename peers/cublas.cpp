#include "peers/cublas.h"

#include <dlfcn.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <set>

#include "check/parallel.h"
#include "check/text.h"
#include "numerics/numbers.h"
#include "runtime/nvrtc.h"
#include "runtime/paths.h"

namespace trigen {
namespace {

// Values of cublas_api.h and library_types.h, which NVIDIA keeps stable.
constexpr int kOpN = 0, kOpT = 1;
constexpr int kCudaR32F = 0, kCudaR16F = 2, kCudaR16BF = 14;
constexpr int kCompute32F = 68, kCompute32FFastTF32 = 77;
constexpr int kGemmDefault = -1;
constexpr size_t kWorkspaceBytes = size_t{32} << 20;  // what cuBLAS itself takes on compute capability 9.0

int cuda_type(DType dtype) {
  return dtype == DType::kF32 ? kCudaR32F : dtype == DType::kF16 ? kCudaR16F : kCudaR16BF;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash);
}

// Files that may be cuBLAS, newest major first within a folder.
std::vector<std::string> places() {
  std::vector<std::string> out;
  if (const std::string named = environment("TRIGEN_CUBLAS"); !named.empty()) return {named};
  std::set<std::string> folders;
  auto add_folder = [&](const std::string& folder) {
    if (!folders.insert(folder).second) return;
    for (const char* name : {"/libcublas.so.13", "/libcublas.so.12"}) out.push_back(folder + name);
  };
  for (const bool environment : {true, false}) {
    NvrtcSearch search;
    search.use_environment = environment;
    for (const NvrtcFile& file : find_nvrtc(search)) {
      if (!file.distrust.empty()) continue;
      const std::string folder = folder_of(file.path);
      add_folder(folder);
      add_folder(folder +
                 "/../../cublas/lib");  // wheels of CUDA 12: nvidia/cuda_nvrtc/lib beside nvidia/cublas/lib
    }
  }
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"}) out.emplace_back(name);
  return out;
}

}  // namespace

llvm::Expected<const CublasLibrary*> CublasLibrary::load() {
  static std::mutex mutex;
  static CublasLibrary* loaded = nullptr;
  const std::lock_guard<std::mutex> lock(mutex);
  if (loaded != nullptr) return loaded;
  std::string tried;
  const auto note = [&](const std::string& path, const std::string& why) {
    tried.append("\n  ").append(path).append(": ").append(why);
  };
  const bool named = !environment("TRIGEN_CUBLAS").empty();
  for (const std::string& path : places()) {
    if (const std::string real = real_path(path); !named && path[0] == '/' && !real.empty()) {
      if (const std::string reason = distrust_of_search(real); !reason.empty()) {
        note(path, "not taken, " + reason);
        continue;
      }
    }
    // libcublas.so names libcublasLt.so by its soname only: open the one beside it first
    const size_t at = path.find("libcublas.so");
    if (at != std::string::npos && path.find('/') != std::string::npos) {
      ::dlopen((path.substr(0, at) + "libcublasLt.so" + path.substr(at + 12)).c_str(),
               RTLD_NOW | RTLD_GLOBAL);
    }
    void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      if (path.find('/') == std::string::npos || named) {
        const char* why = ::dlerror();
        note(path, why != nullptr ? why : "not found");
      }
      continue;
    }
    auto* made = new CublasLibrary;  // never unloaded
    bool complete = true;
    auto find = [&](auto& entry, const char* name) {
      entry = reinterpret_cast<std::remove_reference_t<decltype(entry)>>(::dlsym(library, name));
      complete = complete && entry != nullptr;
    };
    find(made->api_.create, "cublasCreate_v2");
    find(made->api_.destroy, "cublasDestroy_v2");
    find(made->api_.get_version, "cublasGetVersion_v2");
    find(made->api_.set_stream, "cublasSetStream_v2");
    find(made->api_.set_workspace, "cublasSetWorkspace_v2");
    find(made->api_.gemm, "cublasGemmStridedBatchedEx");
    find(made->api_.strmm, "cublasStrmm_v2");
    if (!complete) {
      note(path, "lacks entries of cuBLAS 11.2 or newer");
      delete made;
      continue;
    }
    made->path_ = path;
    loaded = made;
    return loaded;
  }
  return make_error(
      ErrorKind::kUnsupported,
      "cublas is not on this machine, so there is nothing to compare with; install a CUDA toolkit or the "
      "nvidia-cublas wheel, or name the file in TRIGEN_CUBLAS; tried:" +
          tried);
}

llvm::Expected<std::unique_ptr<CublasPeer>> CublasPeer::create(Workbench& bench) {
  auto library = CublasLibrary::load();
  if (!library) return library.takeError();
  std::unique_ptr<CublasPeer> peer(new CublasPeer(bench));
  peer->library_ = *library;
  const ContextScope scope(bench.device().api(), bench.context());
  if (auto error = peer->prepare()) return error;
  return peer;
}

CublasPeer::~CublasPeer() {
  const ContextScope scope(bench_.device().api(), bench_.context());
  if (handle_ != nullptr) library_->api().destroy(handle_);
  for (const cuda::CUdeviceptr pointer : allocations_) bench_.device().api().cuMemFree(pointer);
}

llvm::Error CublasPeer::allocate(int64_t bytes, cuda::CUdeviceptr& out) {
  const auto result = bench_.device().api().cuMemAlloc(&out, static_cast<cuda::size_type>(bytes));
  if (result == cuda::CUDA_SUCCESS) allocations_.push_back(out);
  return bench_.device().driver().check(result, "cuMemAlloc",
                                        format_bytes(static_cast<double>(bytes)) + " for cublas");
}

llvm::Error CublasPeer::prepare() {
  const Problem& p = bench_.problem();
  const Driver& driver = bench_.device().driver();
  const DriverApi& api = driver.api();
  const auto& blas = library_->api();
  if (const int status = blas.create(&handle_); status != 0) {
    return make_error(ErrorKind::kDevice, "cublasCreate in " + library_->path() + " failed with status " +
                                              std::to_string(status) +
                                              "; is it of a CUDA version that this driver serves?");
  }
  int number = 0;
  blas.get_version(handle_, &number);
  version_ = number >= 100000 ? format("%d.%d.%d", number / 10000, number / 100 % 100, number % 100)
                              : format("%d.%d.%d", number / 1000, number / 100 % 10, number % 100);
  if (auto error = allocate(kWorkspaceBytes, workspace_)) return error;
  if (auto error = use(bench_.stream())) return error;

  // weights: planes [h][j][T][T], zero outside the triangle
  const bool weight = p.op == Op::kGradWeight;
  plane_type_ = weight ? p.wdtype : p.dtype;
  const int64_t size = element_size(plane_type_);
  std::vector<std::byte> planes(static_cast<size_t>(p.H * p.K * p.T * p.T * size), std::byte{0});
  if (!weight) {
    const Tensor& w = *bench_.list().find(Role::kW);
    const auto at = static_cast<size_t>(&w - bench_.list().tensors.data());
    const std::byte* source = bench_.inputs()[at].data() + w.offset_bytes;
    parallel_for(p.H * p.T, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t h = i / p.T;
        const int64_t t = i % p.T;
        for (int64_t s = 0; s < p.T; ++s) {
          if (!in_triangle(p, t, s)) continue;
          for (int64_t j = 0; j < p.K; ++j) {
            store_element(plane_type_, planes.data(), ((h * p.K + j) * p.T + t) * p.T + s,
                          load_element(w.dtype, source, weight_index(p, w, h, t, s, j)));
          }
        }
      }
    });
  }
  for (int set = 0; set < bench_.sets(); ++set) {
    cuda::CUdeviceptr target = 0;
    if (auto error = allocate(static_cast<int64_t>(planes.size()), target)) return error;
    weights_.push_back(target);
    const auto copied = set == 0 ? api.cuMemcpyHtoD(target, planes.data(), planes.size())
                                 : api.cuMemcpyDtoD(target, weights_[0], planes.size());
    if (auto error = driver.check(copied, "cuMemcpy")) return error;
  }

  // the operand that taps shift: x, or dy for grad_input; with K - 1 more features for K > 1
  const Tensor& from = *bench_.list().find(p.op == Op::kGradInput ? Role::kY : Role::kX);
  operand_ = from;
  if (p.K == 1) return llvm::Error::success();
  const int64_t wide = p.D + p.K - 1;
  const int64_t unit = 16 / element_size(p.dtype);
  if (p.layout == Layout::kBTD) {
    operand_.row = (wide + unit - 1) / unit * unit;
    operand_.head = p.T * operand_.row;
  } else {
    operand_.head = wide * operand_.row;
  }
  operand_.batch = p.H * operand_.head;
  operand_.elements = p.B * operand_.batch;
  std::vector<std::byte> padded(static_cast<size_t>(operand_.bytes()), std::byte{0});
  const auto at = static_cast<size_t>(&from - bench_.list().tensors.data());
  const std::byte* source = bench_.inputs()[at].data() + from.offset_bytes;
  // tap j reads feature d + j - pad (forward, grad_weight) or d - j + pad (grad_input): feature f stands at f
  // + before
  const int64_t before = p.op == Op::kGradInput ? p.K - 1 - p.pad : p.pad;
  parallel_for(p.B * p.H, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t t = 0; t < p.T; ++t) {
        for (int64_t d = 0; d < p.D; ++d) {
          const float value =
              load_element(p.dtype, source, activation_index(p, from, i / p.H, i % p.H, t, d));
          const int64_t base = i / p.H * operand_.batch + i % p.H * operand_.head;
          const int64_t to =
              p.layout == Layout::kBTD ? t * operand_.row + d + before : (d + before) * operand_.row + t;
          store_element(p.dtype, padded.data(), base + to, value);
        }
      }
    }
  });
  for (int set = 0; set < bench_.sets(); ++set) {
    cuda::CUdeviceptr target = 0;
    if (auto error = allocate(static_cast<int64_t>(padded.size()), target)) return error;
    padded_.push_back(target);
    const auto copied = set == 0 ? api.cuMemcpyHtoD(target, padded.data(), padded.size())
                                 : api.cuMemcpyDtoD(target, padded_[0], padded.size());
    if (auto error = driver.check(copied, "cuMemcpy")) return error;
  }
  return llvm::Error::success();
}

// The workspace is set again: a new stream takes cuBLAS back to its own.
llvm::Error CublasPeer::use(cuda::CUstream stream) {
  if (stream == stream_) return llvm::Error::success();
  const auto& blas = library_->api();
  if (blas.set_stream(handle_, stream) != 0 ||
      blas.set_workspace(handle_, device_pointer(workspace_), kWorkspaceBytes) != 0)
    return make_error(ErrorKind::kDevice, "cublasSetStream failed");
  stream_ = stream;
  return llvm::Error::success();
}

std::string CublasPeer::missing() const {
  const std::string epilogue = to_string(bench_.problem().epilogue);
  return epilogue.empty() ? "" : "without the epilogue " + epilogue;
}

void* CublasPeer::plane(int set, int64_t h, int64_t j) const {
  const Problem& p = bench_.problem();
  const int64_t offset = (h * p.K + j) * p.T * p.T * element_size(plane_type_);
  return device_pointer(weights_[static_cast<size_t>(set)] + static_cast<cuda::CUdeviceptr>(offset));
}

const std::byte* CublasPeer::operand(int set, int64_t h, int64_t j) const {
  const Problem& p = bench_.problem();
  const void* base = p.K > 1 ? device_pointer(padded_[static_cast<size_t>(set)])
                             : bench_.data(set, p.op == Op::kGradInput ? Role::kY : Role::kX);
  const int64_t shift = p.op == Op::kGradInput ? p.K - 1 - j : j;
  const int64_t step = p.layout == Layout::kBTD ? 1 : operand_.row;
  return static_cast<const std::byte*>(base) + (h * operand_.head + shift * step) * element_size(p.dtype);
}

llvm::Error CublasPeer::gemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                             const void* a, int64_t lda, int64_t stride_a, const void* b, int64_t ldb,
                             int64_t stride_b, float beta, void* c, DType ctype, int64_t ldc,
                             int64_t stride_c, int64_t batch) {
  const Problem& p = bench_.problem();
  const float alpha = 1;
  const int compute = p.math == Math::kTF32 ? kCompute32FFastTF32 : kCompute32F;
  const int status = library_->api().gemm(
      handle_, transpose_a ? kOpT : kOpN, transpose_b ? kOpT : kOpN, static_cast<int>(m), static_cast<int>(n),
      static_cast<int>(k), &alpha, a, cuda_type(p.dtype), static_cast<int>(lda), stride_a, b,
      cuda_type(p.dtype), static_cast<int>(ldb), stride_b, &beta, c, cuda_type(ctype), static_cast<int>(ldc),
      stride_c, static_cast<int>(batch), compute, kGemmDefault);
  if (status == 0) return llvm::Error::success();
  return make_error(ErrorKind::kDevice, "cublasGemmStridedBatchedEx failed with status " +
                                            std::to_string(status) + " for " + to_string(p));
}

// Row-major matrices are the transposes of column-major ones. btd: x_b is column-major [D, T]; bdt: x_b is
// column-major [T, D]; a plane W[t][s] is column-major [s, t].
llvm::Error CublasPeer::batched(int set, cuda::CUstream stream) {
  if (auto error = use(stream)) return error;
  const Problem& p = bench_.problem();
  const bool btd = p.layout == Layout::kBTD;
  const bool forward = p.op == Op::kForward || p.op == Op::kDecode;
  // decode: the run's rows, and the tokens that they read.
  const Rows rows = bench_.list().rows;
  const Tokens read = p.op == Op::kDecode ? tokens_of_rows(p, rows) : Tokens{0, p.T};
  const int64_t m = rows.count, k = read.last - read.first, size_in = element_size(p.dtype);
  for (int64_t h = 0; h < p.H; ++h) {
    for (int64_t j = 0; j < p.K; ++j) {
      const std::byte* in = operand(set, h, j) + read.first * (btd ? operand_.row : 1) * size_in;
      const auto* weights = static_cast<const std::byte*>(plane(set, h, j)) +
                            (rows.first * p.T + read.first) * element_size(plane_type_);
      if (p.op == Op::kGradWeight) {
        const Tensor& dy = *bench_.list().find(Role::kY);
        const int64_t size = element_size(p.dtype);
        const auto* dy_data = static_cast<const std::byte*>(bench_.data(set, Role::kY)) + h * dy.head * size;
        // bdt without padding between batches: one product over (b, d)
        const bool whole = !btd && dy.batch == p.D * dy.row && operand_.batch == p.D * operand_.row;
        const int64_t products = whole ? 1 : p.B;
        for (int64_t b = 0; b < products; ++b) {
          if (auto error = gemm(btd, !btd, p.T, p.T, whole ? p.B * p.D : p.D, in + b * operand_.batch * size,
                                operand_.row, 0, dy_data + b * dy.batch * size, dy.row, 0,
                                b == 0 ? 0.0F : 1.0F, plane(set, h, j), plane_type_, p.T, 0, 1))
            return error;
        }
        continue;
      }
      const Tensor& out = *bench_.list().find(forward ? Role::kY : Role::kX);
      auto* to = static_cast<std::byte*>(bench_.data(set, out.role)) + h * out.head * element_size(p.dtype);
      const float beta = j == 0 ? 0 : 1;
      if (btd) {
        if (auto error = gemm(false, !forward, p.D, m, k, in, operand_.row, operand_.batch, weights, p.T, 0,
                              beta, to, p.dtype, out.row, out.batch, p.B))
          return error;
        continue;
      }
      const bool whole = out.batch == p.D * out.row && operand_.batch == p.D * operand_.row;
      if (auto error = gemm(forward, false, m, whole ? p.B * p.D : p.D, k, weights, p.T, 0, in, operand_.row,
                            operand_.batch, beta, to, p.dtype, out.row, out.batch, whole ? 1 : p.B))
        return error;
    }
  }
  return llvm::Error::success();
}

// The same memory read as [T, B*D]: one product per head and tap, of the size that the problem has.
llvm::Error CublasPeer::flat(int set, cuda::CUstream stream) {
  if (auto error = use(stream)) return error;
  const Problem& p = bench_.problem();
  const int64_t n = p.B * p.D;
  const int64_t size = element_size(p.dtype);
  for (int64_t h = 0; h < p.H; ++h) {
    const auto* in =
        static_cast<const std::byte*>(bench_.data(set, p.op == Op::kGradInput ? Role::kY : Role::kX)) +
        h * p.T * n * size;
    auto* out = static_cast<std::byte*>(bench_.data(set, p.op == Op::kGradInput ? Role::kX : Role::kY)) +
                h * p.T * n * size;
    if (p.op == Op::kGradWeight) {
      if (auto error = gemm(true, false, p.T, p.T, n, in, n, 0, out, n, 0, 0, plane(set, h, 0), plane_type_,
                            p.T, 0, 1))
        return error;
    } else if (auto error = gemm(false, p.op == Op::kGradInput, n, p.T, p.T, in, n, 0, plane(set, h, 0), p.T,
                                 0, 0, out, p.dtype, n, 0, 1)) {
      return error;
    }
  }
  return llvm::Error::success();
}

// cublasStrmm out of place, in f32, over the same flat view: y^T = x^T W^T, where the plane W[t][s] is the
// column-major upper (lower fill) or lower triangle of W^T.
llvm::Error CublasPeer::trmm(int set, cuda::CUstream stream) {
  if (auto error = use(stream)) return error;
  const Problem& p = bench_.problem();
  constexpr int kRight = 1, kLowerPart = 0, kUpperPart = 1, kNonUnit = 0;
  const bool grad = p.op == Op::kGradInput;
  const int part = p.fill == Fill::kLower ? kUpperPart : kLowerPart;
  const int n = static_cast<int>(p.B * p.D), tokens = static_cast<int>(p.T);
  const float alpha = 1;
  const void* in = bench_.data(set, grad ? Role::kY : Role::kX);
  void* out = bench_.data(set, grad ? Role::kX : Role::kY);
  const int status = library_->api().strmm(handle_, kRight, part, grad ? kOpT : kOpN, kNonUnit, n, tokens,
                                           &alpha, plane(set, 0, 0), tokens, in, n, out, n);
  if (status == 0) return llvm::Error::success();
  return make_error(ErrorKind::kDevice,
                    "cublasStrmm failed with status " + std::to_string(status) + " for " + to_string(p));
}

std::vector<CublasPeer::Arm> CublasPeer::arms() {
  const Problem& p = bench_.problem();
  std::vector<Arm> out;
  out.push_back({"cublas batched", p.K > 1 ? "one product per tap over a padded copy" : "",
                 [this](int set, cuda::CUstream stream) { return batched(set, stream); }});
  const Tensor& x = *bench_.list().find(Role::kX);
  const bool dense = x.elements == p.B * p.H * p.T * p.D;
  if (p.op != Op::kDecode && p.K == 1 && dense && p.layout == Layout::kBTD && p.B > 1) {
    out.push_back({"cublas flat", "data laid out as [T,B*D], which it is not; for the time alone",
                   [this](int set, cuda::CUstream stream) { return flat(set, stream); }});
  }
  if (p.K == 1 && p.H == 1 && p.diag == 0 && dense && p.layout == Layout::kBTD && p.dtype == DType::kF32 &&
      p.op != Op::kGradWeight && p.math != Math::kTF32) {
    out.push_back({"cublas strmm", "data laid out as [T,B*D]; for the time alone",
                   [this](int set, cuda::CUstream stream) { return trmm(set, stream); }});
  }
  return out;
}

llvm::Expected<double> CublasPeer::error_of_batched(const Reference& reference) {
  const Problem& p = bench_.problem();
  const ContextScope scope(bench_.device().api(), bench_.context());
  if (auto error = bench_.poison()) return error;
  if (auto error = batched(0, bench_.stream())) return error;
  if (auto error = bench_.synchronize()) return error;
  const Role role = p.op == Op::kGradInput ? Role::kX : p.op == Op::kGradWeight ? Role::kW : Role::kY;
  std::vector<std::byte> planes;
  HostBuffers buffers;
  if (role == Role::kW) {
    planes.resize(static_cast<size_t>(p.H * p.K * p.T * p.T * element_size(plane_type_)));
    if (auto error = bench_.device().driver().check(
            bench_.device().api().cuMemcpyDtoH(planes.data(), weights_[0], planes.size()), "cuMemcpyDtoH"))
      return error;
  } else {
    auto downloaded = bench_.download();
    if (!downloaded) return downloaded.takeError();
    buffers = std::move(*downloaded);
  }
  double squares = 0;
  double norm = 0;
  const auto& expected = reference.expected(role);
  const size_t columns = reference.columns().size();
  const Tensor& t = *bench_.list().find(role);
  const auto at = static_cast<size_t>(&t - bench_.list().tensors.data());
  for (size_t i = 0; i < expected.size(); ++i) {
    const int64_t row = reference.rows()[i / columns];
    const int64_t column = reference.columns()[i % columns];
    const int64_t h = row / p.T;
    double got = 0;
    if (role == Role::kW) {
      const int64_t s = column / p.K;
      if (!in_triangle(p, row % p.T, s)) continue;
      got = load_element(plane_type_, planes.data(), ((h * p.K + column % p.K) * p.T + row % p.T) * p.T + s);
    } else {
      got = load_element(t.dtype, buffers[at].data() + t.offset_bytes,
                         activation_index(p, t, column / p.D, h, row % p.T, column % p.D));
    }
    squares += (got - expected[i]) * (got - expected[i]);
    norm += expected[i] * expected[i];
  }
  return norm > 0 ? std::sqrt(squares / norm) : 0;
}

}  // namespace trigen
