#include "peers/cublas.h"

#include <algorithm>
#include <bit>

#include "check/parallel.h"
#include "check/text.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

constexpr int kOpN = 0, kOpT = 1;  // cublasOperation_t
constexpr int kGemmDefault = -1;

}  // namespace

llvm::Expected<std::unique_ptr<CublasPeer>> CublasPeer::create(Workbench& bench) {
  if (const Op op = bench.problem().op; !is_product(op))
    return make_error(ErrorKind::kUnsupported,
                      "cublas has no product beside " + to_string(op) + "; compare it with a copy");
  if (const Problem& p = bench.problem(); makes_weights(p.op) && p.w != WeightForm::kDense)
    return make_error(ErrorKind::kUnsupported, "cublas makes all of dW, not what w=" + to_string(p.w).str() +
                                                   " keeps of it; compare with w=dense");
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

  if (auto error = prepare_weights()) return error;
  if (auto error = prepare_padded()) return error;
  if (auto error = prepare_columns()) return error;
  if (auto error = prepare_split()) return error;
  if (auto error = prepare_pointers()) return error;
  return prepare_bias();
}

llvm::Error CublasPeer::upload(const void* from, size_t bytes, std::vector<cuda::CUdeviceptr>& to) {
  const DriverApi& api = bench_.device().api();
  for (int set = 0; set < bench_.sets(); ++set) {
    cuda::CUdeviceptr target = 0;
    if (auto error = allocate(static_cast<int64_t>(bytes), target)) return error;
    to.push_back(target);
    const auto copied =
        set == 0 ? api.cuMemcpyHtoD(target, from, bytes) : api.cuMemcpyDtoD(target, to[0], bytes);
    if (auto error = bench_.device().driver().check(copied, "cuMemcpy")) return error;
  }
  return llvm::Error::success();
}

llvm::Error CublasPeer::prepare_weights() {
  const Problem& p = bench_.problem();
  // weights: planes [h][j][T][plane_row_], zero outside the triangle
  const bool weight = makes_weights(p.op);
  plane_type_ = weight ? p.wdtype : p.dtype;
  const int64_t size = element_size(plane_type_);
  constexpr int64_t kRowUnit = 8;
  plane_row_ = (p.T + kRowUnit - 1) / kRowUnit * kRowUnit;
  const auto planes_of = [&](const Tensor* tensor) {
    std::vector<std::byte> planes(static_cast<size_t>(p.H * p.K * plane_elements() * size), std::byte{0});
    if (tensor == nullptr) return planes;
    const Tensor& w = *tensor;
    const std::byte* source = data_of(bench_.list(), w, bench_.inputs());
    parallel_for(p.H * p.T, 8, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t h = i / p.T;
        const int64_t t = i % p.T;
        for (int64_t s = 0; s < p.T; ++s) {
          if (!in_triangle(p, t, s)) continue;
          for (int64_t j = 0; j < p.K; ++j) {
            store_element(plane_type_, planes.data(), ((h * p.K + j) * p.T + t) * plane_row_ + s,
                          load_element(w.dtype, source, weight_index(p, w, h, t, s, j)));
          }
        }
      }
    });
    return planes;
  };
  std::vector<std::byte> planes = planes_of(weight ? nullptr : bench_.list().find(Role::kW));
  if (auto error = upload(planes.data(), planes.size(), weights_)) return error;
  const Tensor* const addend = weight ? bench_.list().find(Role::kResidual) : nullptr;
  if (addend == nullptr) return llvm::Error::success();
  planes = planes_of(addend);
  return upload(planes.data(), planes.size(), addends_);
}

llvm::Error CublasPeer::prepare_padded() {
  const Problem& p = bench_.problem();
  // the operand that taps shift: x, or dy for grad_input; with K - 1 more features for K > 1
  const Tensor& from = *bench_.list().find(op_row(p.op).product->b);
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
  const std::byte* source = data_of(bench_.list(), from, bench_.inputs());
  // tap j reads feature d + j - pad (forward, grad_weight) or d - j + pad (grad_input): feature f stands at f
  // + before
  const int64_t before = transposes(p.op) ? p.K - 1 - p.pad : p.pad;
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
  return upload(padded.data(), padded.size(), padded_);
}

// im2col: a copy a batch and tap, set 0 first.
llvm::Error CublasPeer::prepare_columns() {
  const Problem& p = bench_.problem();
  if (p.K == 1 || p.H > 1 || p.layout != Layout::kBTD || op_row(p.op).takes(kRowsField))
    return llvm::Error::success();
  const Driver& driver = bench_.device().driver();
  const DriverApi& api = driver.api();
  const int64_t size = element_size(p.dtype), row = p.B * p.D * size;
  const auto copy = [&](cuda::CUdeviceptr from, int64_t from_pitch, cuda::CUdeviceptr to, int64_t to_pitch,
                        int64_t width) {
    cuda::CUDA_MEMCPY2D request = {};
    request.srcMemoryType = request.dstMemoryType = cuda::CU_MEMORYTYPE_DEVICE;
    request.srcDevice = from;
    request.srcPitch = static_cast<size_t>(from_pitch);
    request.dstDevice = to;
    request.dstPitch = static_cast<size_t>(to_pitch);
    request.WidthInBytes = static_cast<size_t>(width);
    request.Height = static_cast<size_t>(p.T);
    return driver.check(api.cuMemcpy2DAsync(&request, bench_.stream()), "cuMemcpy2DAsync");
  };
  const auto fill = [&](std::vector<cuda::CUdeviceptr>& sets, int64_t bytes, auto first) -> llvm::Error {
    for (int set = 0; set < bench_.sets(); ++set) {
      cuda::CUdeviceptr target = 0;
      if (auto error = allocate(bytes, target)) return error;
      sets.push_back(target);
      if (auto error = set == 0 ? first(target)
                                : driver.check(api.cuMemcpyDtoDAsync(target, sets[0],
                                                                     static_cast<cuda::size_type>(bytes),
                                                                     bench_.stream()),
                                               "cuMemcpyDtoDAsync"))
        return error;
    }
    return bench_.synchronize();
  };
  if (auto error = fill(columns_, p.K * p.T * row, [&](cuda::CUdeviceptr target) -> llvm::Error {
        for (int64_t j = 0; j < p.K; ++j) {
          for (int64_t b = 0; b < p.B; ++b) {
            const auto from = std::bit_cast<cuda::CUdeviceptr>(operand(0, 0, j) + b * operand_.batch * size);
            const auto to = target + static_cast<cuda::CUdeviceptr>(j * p.T * row + b * p.D * size);
            if (auto error = copy(from, operand_.row * size, to, row, p.D * size)) return error;
          }
        }
        return llvm::Error::success();
      }))
    return error;
  if (!makes_rows(p.op)) return llvm::Error::success();
  const int64_t line = p.T * size, pitch = p.K * plane_row_ * size;
  return fill(tap_major_, p.T * pitch, [&](cuda::CUdeviceptr target) -> llvm::Error {
    for (int64_t j = 0; j < p.K; ++j) {
      const auto from = std::bit_cast<cuda::CUdeviceptr>(plane(0, 0, j));
      const auto to = target + static_cast<cuda::CUdeviceptr>(j * line);
      if (auto error = copy(from, plane_row_ * size, to, pitch, line)) return error;
    }
    return llvm::Error::success();
  });
}

// grad_weight of few rows and a long k: as many parts of k as fill the device, in whole products of 128 x 128.
// The data as it lies has a part a batch, whose sums are not to be more bytes than the activations.
llvm::Error CublasPeer::prepare_split() {
  const Problem& p = bench_.problem();
  if (!makes_weights(p.op) || p.K > 1) return llvm::Error::success();
  constexpr int64_t kTile = 128, kLeastDepth = 64;
  const int64_t tiles = (p.T + kTile - 1) / kTile;
  const int64_t room = bench_.device().info().sms / (p.H * tiles * tiles);
  if (room < 2) return llvm::Error::success();
  const int64_t depth = p.B * p.D, sum_bytes = 4 * p.H * plane_elements();
  if (p.B > 1 && p.B * sum_bytes <= 2 * depth * p.H * p.T * element_size(p.dtype)) parts_[0] = p.B;
  const auto fitting = [&](int64_t most) {
    int64_t parts = std::min(most, depth / kLeastDepth);
    while (parts > 1 && depth % parts != 0) --parts;
    return parts > 1 ? parts : 0;
  };
  parts_[1] = fitting(room);
  parts_[2] = fitting(4 * room);
  if (parts_[2] == parts_[1]) parts_[2] = 0;
  const int64_t most = *std::max_element(parts_.begin(), parts_.end());
  if (most == 0) return llvm::Error::success();
  if (auto error = allocate(most * sum_bytes, sums_)) return error;
  // rows' padding is added, too, and written by no product
  if (auto error = bench_.device().driver().check(
          bench_.device().api().cuMemsetD8Async(sums_, 0, static_cast<cuda::size_type>(most * sum_bytes),
                                                bench_.stream()),
          "cuMemsetD8Async"))
    return error;
  if (auto error = bench_.synchronize()) return error;
  auto pass = SumPass::create(bench_, plane_type_, plane_elements());
  if (!pass) return pass.takeError();
  sum_pass_ = std::move(*pass);
  return llvm::Error::success();
}

// Heads of products that no constant stride leads over: one call takes the pointers of every head and batch.
llvm::Error CublasPeer::prepare_pointers() {
  const Problem& p = bench_.problem();
  const View view = makes_weights(p.op) ? View::kSplit : View::kBatched;
  if (p.H == 1 || (view == View::kSplit && parts(view) == 0)) return llvm::Error::success();
  for (int set = 0; set < bench_.sets(); ++set) {
    std::vector<const void*> all;
    for (const Call& call : calls(view, set)) {
      const auto add = [&](const void* first, int64_t stride, DType type, const Product& head) {
        for (int64_t b = 0; b < head.batch; ++b)
          all.push_back(static_cast<const std::byte*>(first) + b * stride * element_size(type));
      };
      for (const Product& head : call) add(head.a, head.stride_a, p.dtype, head);
      for (const Product& head : call) add(head.b, head.stride_b, p.dtype, head);
      for (const Product& head : call) add(head.c, head.stride_c, head.ctype, head);
    }
    cuda::CUdeviceptr target = 0;
    const size_t bytes = all.size() * sizeof(all[0]);
    if (auto error = allocate(static_cast<int64_t>(bytes), target)) return error;
    pointers_.push_back(target);
    if (auto error = bench_.device().driver().check(
            bench_.device().api().cuMemcpyHtoD(target, all.data(), bytes), "cuMemcpyHtoD"))
      return error;
  }
  return llvm::Error::success();
}

// The bias as cuBLASLt adds it: of C's type.
llvm::Error CublasPeer::prepare_bias() {
  const Problem& p = bench_.problem();
  const Tensor* from = bench_.list().find(Role::kBias);
  if (from == nullptr || !from->read || !is_whole_product(p.op)) return llvm::Error::success();
  const std::byte* source = data_of(bench_.list(), *from, bench_.inputs());
  std::vector<std::byte> cast(static_cast<size_t>(p.H * p.T * element_size(p.dtype)));
  for (int64_t i = 0; i < p.H * p.T; ++i)
    store_element(p.dtype, cast.data(), i, load_element(from->dtype, source, i));
  if (auto error = allocate(static_cast<int64_t>(cast.size()), bias_)) return error;
  return bench_.device().driver().check(bench_.device().api().cuMemcpyHtoD(bias_, cast.data(), cast.size()),
                                        "cuMemcpyHtoD");
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

void* CublasPeer::plane(int set, int64_t h, int64_t j) const {
  const Problem& p = bench_.problem();
  const int64_t offset = (h * p.K + j) * plane_elements() * element_size(plane_type_);
  return device_pointer(weights_[static_cast<size_t>(set)] + static_cast<cuda::CUdeviceptr>(offset));
}

const std::byte* CublasPeer::operand(int set, int64_t h, int64_t j) const {
  const Problem& p = bench_.problem();
  const void* base =
      p.K > 1 ? device_pointer(padded_[static_cast<size_t>(set)]) : bench_.data(set, op_row(p.op).product->b);
  const int64_t shift = transposes(p.op) ? p.K - 1 - j : j;
  const int64_t step = p.layout == Layout::kBTD ? 1 : operand_.row;
  return static_cast<const std::byte*>(base) + (h * operand_.head + shift * step) * element_size(p.dtype);
}

llvm::Error CublasPeer::gemm(const Product& q) {
  const Problem& p = bench_.problem();
  const int type = cublas_type(p.dtype);
  const int status = library_->api().gemm(
      handle_, q.transpose_a ? kOpT : kOpN, q.transpose_b ? kOpT : kOpN, static_cast<int>(q.m),
      static_cast<int>(q.n), static_cast<int>(q.k), &q.alpha, q.a, type, static_cast<int>(q.lda), q.stride_a,
      q.b, type, static_cast<int>(q.ldb), q.stride_b, &q.beta, q.c, cublas_type(q.ctype),
      static_cast<int>(q.ldc), q.stride_c, static_cast<int>(q.batch), cublas_compute(p), kGemmDefault);
  if (status == 0) return llvm::Error::success();
  return make_error(ErrorKind::kDevice, "cublasGemmStridedBatchedEx failed with status " +
                                            std::to_string(status) + " for " + to_string(p));
}

llvm::Error CublasPeer::gemm_of_heads(const Call& call, cuda::CUdeviceptr pointers) {
  const Problem& p = bench_.problem();
  const Product& q = call.front();
  const int type = cublas_type(p.dtype);
  const auto count = static_cast<int64_t>(call.size()) * q.batch;
  const auto array = [&](int64_t number) {
    const auto bytes = static_cast<cuda::CUdeviceptr>(number * count) * sizeof(void*);
    return static_cast<void**>(device_pointer(pointers + bytes));
  };
  const int status = library_->api().gemm_pointers(
      handle_, q.transpose_a ? kOpT : kOpN, q.transpose_b ? kOpT : kOpN, static_cast<int>(q.m),
      static_cast<int>(q.n), static_cast<int>(q.k), &q.alpha, array(0), type, static_cast<int>(q.lda),
      array(1), type, static_cast<int>(q.ldb), &q.beta, array(2), cublas_type(q.ctype),
      static_cast<int>(q.ldc), static_cast<int>(count), cublas_compute(p), kGemmDefault);
  if (status == 0) return llvm::Error::success();
  return make_error(ErrorKind::kDevice, "cublasGemmBatchedEx failed with status " + std::to_string(status) +
                                            " for " + to_string(p));
}

// Row-major matrices are the transposes of column-major ones. btd: x_b is column-major [D, T]; bdt: x_b is
// column-major [T, D]; a plane W[t][s] is column-major [s, t]. One product a head.
CublasPeer::Call CublasPeer::call_of_tap(int set, int64_t j) const {
  const Problem& p = bench_.problem();
  const bool btd = p.layout == Layout::kBTD;
  const bool forward = !transposes(p.op);
  // decode: the run's rows, and the tokens that they read.
  const Rows rows = bench_.list().rows;
  const Tokens read = op_row(p.op).takes(kRowsField) ? tokens_of_rows(p, rows) : Tokens{0, p.T};
  const int64_t size = element_size(p.dtype);
  const Tensor& out = bench_.list().output();
  Call call;
  for (int64_t h = 0; h < p.H; ++h) {
    const std::byte* in = operand(set, h, j) + read.first * (btd ? operand_.row : 1) * size;
    const auto* weights =
        static_cast<const std::byte*>(plane(set, h, j)) + (rows.first * plane_row_ + read.first) * size;
    Product q;
    q.m = rows.count;
    q.k = read.last - read.first;
    q.beta = j == 0 ? 0 : 1;
    q.c = static_cast<std::byte*>(bench_.data(set, out.role)) + h * out.head * size;
    q.ctype = p.dtype;
    q.ldc = out.row;
    q.stride_c = out.batch;
    q.batch = p.B;
    if (btd) {
      q.transpose_b = !forward;
      q.n = q.m, q.m = p.D;
      q.a = in, q.lda = operand_.row, q.stride_a = operand_.batch;
      q.b = weights, q.ldb = plane_row_;
    } else {
      q.transpose_a = forward;
      // without padding between batches: one product over (b, d)
      const bool dense = out.batch == p.D * out.row && operand_.batch == p.D * operand_.row;
      q.n = dense ? p.B * p.D : p.D;
      q.batch = dense ? 1 : p.B;
      q.a = weights, q.lda = plane_row_;
      q.b = in, q.ldb = operand_.row, q.stride_b = operand_.batch;
    }
    call.push_back(q);
  }
  return call;
}

// A batch after the other, whose sum beta = 1 makes; every head of it in one call.
void CublasPeer::add_weight_calls(int set, int64_t j, std::vector<Call>& out) const {
  const Problem& p = bench_.problem();
  const bool btd = p.layout == Layout::kBTD;
  const Tensor& dy = *bench_.list().find(Role::kY);
  const int64_t size = element_size(p.dtype);
  const bool dense = !btd && dy.batch == p.D * dy.row && operand_.batch == p.D * operand_.row;
  for (int64_t b = 0; b < (dense ? 1 : p.B); ++b) {
    Product q;
    q.transpose_a = btd, q.transpose_b = !btd;
    q.m = q.n = p.T;
    q.k = dense ? p.B * p.D : p.D;
    q.a = operand(set, 0, j) + b * operand_.batch * size;
    q.lda = operand_.row, q.stride_a = operand_.head;
    q.b = static_cast<const std::byte*>(bench_.data(set, Role::kY)) + b * dy.batch * size;
    q.ldb = dy.row, q.stride_b = dy.head;
    q.beta = b == 0 ? 0 : 1;
    q.c = plane(set, 0, j);
    q.ctype = plane_type_;
    q.ldc = plane_row_, q.stride_c = p.K * plane_elements();
    q.batch = p.H;
    out.push_back({q});
  }
}

// A part a batch, each with a sum of its own.
CublasPeer::Call CublasPeer::call_of_parts(int set) const {
  const Problem& p = bench_.problem();
  const bool btd = p.layout == Layout::kBTD;
  const Tensor& dy = *bench_.list().find(Role::kY);
  const int64_t size = element_size(p.dtype);
  Call call;
  for (int64_t h = 0; h < p.H; ++h) {
    Product q;
    q.transpose_a = btd, q.transpose_b = !btd;
    q.m = q.n = p.T, q.k = p.D, q.batch = p.B;
    q.a = operand(set, h, 0), q.lda = operand_.row, q.stride_a = operand_.batch;
    q.b = static_cast<const std::byte*>(bench_.data(set, Role::kY)) + h * dy.head * size;
    q.ldb = dy.row, q.stride_b = dy.batch;
    q.c = sum_of(h, p.B), q.ldc = plane_row_, q.stride_c = plane_elements();
    call.push_back(q);
  }
  return call;
}

// A product of data that it does not have (for the time alone) has it aligned, too.
void* CublasPeer::laid_out(View view, int set, Role role) const {
  auto* first = static_cast<std::byte*>(bench_.data(set, role));
  return is_exact(view) ? first : first - bench_.list().find(role)->offset_bytes;
}

// The same memory read as [T, B*D] or [B*D, T] for each head: one product a head, of the size that it has.
Product CublasPeer::one_product(View view, int set) const {
  const Problem& p = bench_.problem();
  const bool flat = view == View::kFlat;
  const bool forward = !transposes(p.op);
  const int64_t n = p.B * p.D;
  const int64_t ld = flat ? n : p.T;
  Product q;
  q.batch = p.H;
  q.ctype = plane_type_;
  if (p.K > 1) {  // H is 1
    const auto at = static_cast<size_t>(set);
    const bool weight = makes_weights(p.op);
    q.transpose_a = weight;
    q.a = device_pointer(columns_[at]), q.lda = n;
    if (weight) {  // of [T][K*T]
      q.m = p.K * p.T, q.n = p.T, q.k = n;
      q.b = laid_out(view, set, Role::kY), q.ldb = n;
      q.c = plane(set, 0, 0), q.ldc = p.K * plane_row_;
    } else {
      q.transpose_b = !forward;
      q.m = n, q.n = p.T, q.k = p.K * p.T;
      q.b = forward ? device_pointer(tap_major_[at]) : plane(set, 0, 0);
      q.ldb = (forward ? p.K : 1) * plane_row_;
      q.c = laid_out(view, set, forward ? Role::kY : Role::kX), q.ldc = n;
    }
    return q;
  }
  const void* in = laid_out(view, set, forward ? Role::kX : Role::kY);
  void* out = laid_out(view, set, forward ? Role::kY : Role::kX);
  if (makes_weights(p.op)) {
    q.transpose_a = flat, q.transpose_b = !flat;
    q.m = q.n = p.T, q.k = n;
    q.a = in, q.lda = ld, q.stride_a = p.T * n;
    q.b = out, q.ldb = ld, q.stride_b = p.T * n;
    q.c = plane(set, 0, 0), q.ldc = plane_row_, q.stride_c = plane_elements();
    if (const int64_t count = parts(view); count > 0) {  // heads and their parts follow each other
      q.batch = p.H * count, q.k = n / count;
      q.stride_a = q.stride_b = p.T * q.k;
      q.c = sum_of(0, count), q.ctype = DType::kF32;
    }
    return q;
  }
  q.k = p.T;
  q.c = out, q.ldc = ld, q.stride_c = p.T * n;
  if (flat) {
    q.transpose_b = !forward;
    q.m = n, q.n = p.T;
    q.a = in, q.lda = ld, q.stride_a = p.T * n;
    q.b = plane(set, 0, 0), q.ldb = plane_row_, q.stride_b = plane_elements();
  } else {
    q.transpose_a = forward;
    q.m = p.T, q.n = n;
    q.a = plane(set, 0, 0), q.lda = plane_row_, q.stride_a = plane_elements();
    q.b = in, q.ldb = ld, q.stride_b = p.T * n;
  }
  return q;
}

std::vector<CublasPeer::Call> CublasPeer::calls(View view, int set) const {
  const Problem& p = bench_.problem();
  std::vector<Call> out;
  if (view == View::kSplit) {
    out = {call_of_parts(set)};
  } else if (view != View::kBatched) {
    out = {{one_product(view, set)}};
  } else {
    for (int64_t j = 0; j < p.K; ++j) {
      if (makes_weights(p.op))
        add_weight_calls(set, j, out);
      else
        out.push_back(call_of_tap(set, j));
    }
  }
  if (!op_row(p.op).takes(kFactorsField)) return out;
  for (Call& call : out)
    for (Product& product : call) product.alpha = kCheckedAlpha;
  if (addends_.empty()) return out;
  Product& first = out.front().front();  // the rest is added to it
  first.addend = device_pointer(addends_[static_cast<size_t>(set)]);
  first.beta = kCheckedBeta;
  return out;
}

llvm::Error CublasPeer::run(View view, int set, cuda::CUstream stream) {
  if (auto error = use(stream)) return error;
  cuda::CUdeviceptr pointers = pointers_.empty() ? 0 : pointers_[static_cast<size_t>(set)];
  for (const Call& call : calls(view, set)) {
    if (call.size() == 1) {
      if (auto error = gemm(call.front())) return error;
      continue;
    }
    if (auto error = gemm_of_heads(call, pointers)) return error;
    pointers += call.size() * static_cast<size_t>(call.front().batch) * 3 * sizeof(void*);
  }
  return add_parts(view, set, stream);
}

llvm::Error CublasPeer::add_parts(View view, int set, cuda::CUstream stream) const {
  const int64_t count = parts(view);
  if (count == 0) return llvm::Error::success();
  return sum_pass_->run(sums_, count, weights_[static_cast<size_t>(set)], bench_.problem().H, stream);
}

// cublasStrmm out of place, in f32, over the same flat view: y^T = x^T W^T, where the plane W[t][s] is the
// column-major upper (lower fill) or lower triangle of W^T.
llvm::Error CublasPeer::trmm(int set, cuda::CUstream stream) {
  if (auto error = use(stream)) return error;
  const Problem& p = bench_.problem();
  constexpr int kRight = 1, kLowerPart = 0, kUpperPart = 1, kNonUnit = 0;
  const bool grad = transposes(p.op);
  const int part = p.fill == Fill::kLower ? kUpperPart : kLowerPart;
  const int n = static_cast<int>(p.B * p.D), tokens = static_cast<int>(p.T);
  const int row = static_cast<int>(plane_row_);
  const float alpha = 1;
  const void* in = bench_.data(set, grad ? Role::kY : Role::kX);
  void* out = bench_.data(set, grad ? Role::kX : Role::kY);
  const int status = library_->api().strmm(handle_, kRight, part, grad ? kOpT : kOpN, kNonUnit, n, tokens,
                                           &alpha, plane(set, 0, 0), row, in, n, out, n);
  if (status == 0) return llvm::Error::success();
  return make_error(ErrorKind::kDevice,
                    "cublasStrmm failed with status " + std::to_string(status) + " for " + to_string(p));
}

}  // namespace trigen
