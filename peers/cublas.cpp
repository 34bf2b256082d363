#include "peers/cublas.h"

#include <algorithm>
#include <cmath>

#include "check/parallel.h"
#include "check/text.h"
#include "numerics/numbers.h"

namespace trigen {
namespace {

constexpr int kOpN = 0, kOpT = 1;  // cublasOperation_t
constexpr int kGemmDefault = -1;
// cuBLAS itself takes 32 MiB on compute capability 9.0; cuBLASLt's choices are asked for with as much.
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

}  // namespace

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
  return upload(planes.data(), planes.size(), weights_);
}

llvm::Error CublasPeer::prepare_padded() {
  const Problem& p = bench_.problem();
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
  return upload(padded.data(), padded.size(), padded_);
}

// Heads of forward and its like: one call takes the pointers of every head and batch.
llvm::Error CublasPeer::prepare_pointers() {
  const Problem& p = bench_.problem();
  if (p.H == 1 || p.op == Op::kGradWeight) return llvm::Error::success();
  for (int set = 0; set < bench_.sets(); ++set) {
    std::vector<const void*> all;
    for (const Call& call : calls(View::kBatched, set)) {
      const auto add = [&](const void* first, int64_t stride, const Product& head) {
        for (int64_t b = 0; b < head.batch; ++b)
          all.push_back(static_cast<const std::byte*>(first) + b * stride * element_size(p.dtype));
      };
      for (const Product& head : call) add(head.a, head.stride_a, head);
      for (const Product& head : call) add(head.b, head.stride_b, head);
      for (const Product& head : call) add(head.c, head.stride_c, head);
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
  if (from == nullptr || !from->read || p.op != Op::kForward) return llvm::Error::success();
  const auto at = static_cast<size_t>(from - bench_.list().tensors.data());
  const std::byte* source = bench_.inputs()[at].data() + from->offset_bytes;
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

llvm::Error CublasPeer::gemm(const Product& q) {
  const Problem& p = bench_.problem();
  const float alpha = 1;
  const int type = cublas_type(p.dtype);
  const int status = library_->api().gemm(
      handle_, q.transpose_a ? kOpT : kOpN, q.transpose_b ? kOpT : kOpN, static_cast<int>(q.m),
      static_cast<int>(q.n), static_cast<int>(q.k), &alpha, q.a, type, static_cast<int>(q.lda), q.stride_a,
      q.b, type, static_cast<int>(q.ldb), q.stride_b, &q.beta, q.c, cublas_type(q.ctype),
      static_cast<int>(q.ldc), q.stride_c, static_cast<int>(q.batch), cublas_compute(p), kGemmDefault);
  if (status == 0) return llvm::Error::success();
  return make_error(ErrorKind::kDevice, "cublasGemmStridedBatchedEx failed with status " +
                                            std::to_string(status) + " for " + to_string(p));
}

llvm::Error CublasPeer::gemm_of_heads(const Call& call, cuda::CUdeviceptr pointers) {
  const Problem& p = bench_.problem();
  const Product& q = call.front();
  const float alpha = 1;
  const int type = cublas_type(p.dtype);
  const auto count = static_cast<int64_t>(call.size()) * q.batch;
  const auto array = [&](int64_t number) {
    const auto bytes = static_cast<cuda::CUdeviceptr>(number * count) * sizeof(void*);
    return static_cast<void**>(device_pointer(pointers + bytes));
  };
  const int status = library_->api().gemm_pointers(
      handle_, q.transpose_a ? kOpT : kOpN, q.transpose_b ? kOpT : kOpN, static_cast<int>(q.m),
      static_cast<int>(q.n), static_cast<int>(q.k), &alpha, array(0), type, static_cast<int>(q.lda), array(1),
      type, static_cast<int>(q.ldb), &q.beta, array(2), cublas_type(q.ctype), static_cast<int>(q.ldc),
      static_cast<int>(count), cublas_compute(p), kGemmDefault);
  if (status == 0) return llvm::Error::success();
  return make_error(ErrorKind::kDevice, "cublasGemmBatchedEx failed with status " + std::to_string(status) +
                                            " for " + to_string(p));
}

// Row-major matrices are the transposes of column-major ones. btd: x_b is column-major [D, T]; bdt: x_b is
// column-major [T, D]; a plane W[t][s] is column-major [s, t]. One product a head.
CublasPeer::Call CublasPeer::call_of_tap(int set, int64_t j) const {
  const Problem& p = bench_.problem();
  const bool btd = p.layout == Layout::kBTD;
  const bool forward = p.op != Op::kGradInput;
  // decode: the run's rows, and the tokens that they read.
  const Rows rows = bench_.list().rows;
  const Tokens read = p.op == Op::kDecode ? tokens_of_rows(p, rows) : Tokens{0, p.T};
  const int64_t size = element_size(p.dtype);
  const Tensor& out = *bench_.list().find(forward ? Role::kY : Role::kX);
  Call call;
  for (int64_t h = 0; h < p.H; ++h) {
    const std::byte* in = operand(set, h, j) + read.first * (btd ? operand_.row : 1) * size;
    const auto* weights =
        static_cast<const std::byte*>(plane(set, h, j)) + (rows.first * p.T + read.first) * size;
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
      q.b = weights, q.ldb = p.T;
    } else {
      q.transpose_a = forward;
      // without padding between batches: one product over (b, d)
      const bool dense = out.batch == p.D * out.row && operand_.batch == p.D * operand_.row;
      q.n = dense ? p.B * p.D : p.D;
      q.batch = dense ? 1 : p.B;
      q.a = weights, q.lda = p.T;
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
    q.ldc = p.T, q.stride_c = p.K * p.T * p.T;
    q.batch = p.H;
    out.push_back({q});
  }
}

// The same memory read as [T, B*D] or [B*D, T] for each head: one product a head, of the size that it has.
Product CublasPeer::one_product(View view, int set) const {
  const Problem& p = bench_.problem();
  const bool flat = view == View::kFlat;
  const bool forward = p.op != Op::kGradInput;
  const int64_t n = p.B * p.D;
  const int64_t ld = flat ? n : p.T;
  Product q;
  q.batch = p.H;
  q.ctype = plane_type_;
  const void* in = bench_.data(set, forward ? Role::kX : Role::kY);
  void* out = bench_.data(set, forward ? Role::kY : Role::kX);
  if (p.op == Op::kGradWeight) {
    q.transpose_a = flat, q.transpose_b = !flat;
    q.m = q.n = p.T, q.k = n;
    q.a = in, q.lda = ld, q.stride_a = p.T * n;
    q.b = out, q.ldb = ld, q.stride_b = p.T * n;
    q.c = plane(set, 0, 0), q.ldc = p.T, q.stride_c = p.T * p.T;
    return q;
  }
  q.k = p.T;
  q.c = out, q.ldc = ld, q.stride_c = p.T * n;
  if (flat) {
    q.transpose_b = !forward;
    q.m = n, q.n = p.T;
    q.a = in, q.lda = ld, q.stride_a = p.T * n;
    q.b = plane(set, 0, 0), q.ldb = p.T, q.stride_b = p.T * p.T;
  } else {
    q.transpose_a = forward;
    q.m = p.T, q.n = n;
    q.a = plane(set, 0, 0), q.lda = p.T, q.stride_a = p.T * p.T;
    q.b = in, q.ldb = ld, q.stride_b = p.T * n;
  }
  return q;
}

std::vector<CublasPeer::Call> CublasPeer::calls(View view, int set) const {
  const Problem& p = bench_.problem();
  if (view != View::kBatched) return {{one_product(view, set)}};
  std::vector<Call> out;
  for (int64_t j = 0; j < p.K; ++j) {
    if (p.op == Op::kGradWeight)
      add_weight_calls(set, j, out);
    else
      out.push_back(call_of_tap(set, j));
  }
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

// One product a head, whatever the layout, needs tensors without gaps.
bool CublasPeer::serves(View view) const {
  const Problem& p = bench_.problem();
  if (view == View::kBatched) return true;
  for (const Tensor& t : bench_.list().tensors)
    if (t.role != Role::kW && t.role != Role::kBias && t.elements != p.B * p.H * p.T * p.D) return false;
  if (p.op == Op::kDecode || p.K > 1) return false;
  // what the batched calls are already
  if (view == View::kFlat) return p.layout == Layout::kBDT || p.B * p.H > 1;
  return p.layout == Layout::kBTD || p.H > 1;
}

bool CublasPeer::is_exact(View view) const {
  const Problem& p = bench_.problem();
  if (view == View::kBatched) return true;
  return p.B == 1 && (p.layout == Layout::kBTD ? view == View::kFlat && p.H == 1 : view == View::kTransposed);
}

void CublasPeer::finish(Arm& arm, const Epilogue& rest, std::vector<std::string>& notes) {
  if (rest == Epilogue{}) return;
  auto pass = EpiloguePass::create(bench_, rest);
  if (!pass) {
    const std::string why = take_error(pass.takeError()).message;
    if (std::find(notes.begin(), notes.end(), why) == notes.end()) notes.push_back(why);
    arm.whole = arm.exact = false;
    return;
  }
  passes_.push_back(std::move(*pass));
  arm.name += " + pass";
  arm.launch = [product = std::move(arm.launch), pass = passes_.back().get()](
                   int set, cuda::CUstream stream) -> llvm::Error {
    if (auto error = product(set, stream)) return error;
    return pass->run(set, stream);
  };
}

void CublasPeer::add_lt(View view, bool epilogue, std::vector<Arm>& out, std::vector<std::string>& notes) {
  const Problem& p = bench_.problem();
  if (!serves(view)) return;
  std::vector<Product> sets;
  for (int set = 0; set < bench_.sets(); ++set) {
    const std::vector<Call> all = calls(view, set);
    if (all.size() != 1 || all.front().size() != 1) return;
    sets.push_back(all.front().front());
  }
  Epilogue rest = epilogue ? p.epilogue : Epilogue{};
  rest.zero_outside = false;  // the dense product writes there, too
  if (p.op == Op::kGradWeight) rest = {};
  LtTerms terms;
  std::string fused;
  // C's rows are tokens where W is the left factor
  if (rest.bias && bias_ != 0 && sets.front().m == p.T && sets.front().a == plane(0, 0, 0)) {
    terms.bias = device_pointer(bias_);
    terms.bias_stride = p.T;
    rest.bias = false;
    fused += " bias";
  }
  if (rest.act == Activation::kGELU && !rest.bias && !rest.pre) {
    terms.gelu = true;
    rest.act = Activation::kNone;
    fused += " gelu";
  } else if (rest.residual && rest.act == Activation::kNone && !rest.gate && !rest.pre && !terms.gelu) {
    for (int set = 0; set < bench_.sets(); ++set) {
      Product& product = sets[static_cast<size_t>(set)];
      product.addend = bench_.data(set, Role::kResidual);
      product.beta = 1;
    }
    rest.residual = false;
    fused += " residual";
  }
  auto made = LtProduct::create(*library_, handle_, bench_, std::move(sets), terms,
                                device_pointer(workspace_), kWorkspaceBytes);
  const char* name = view == View::kBatched ? "batched" : view == View::kFlat ? "flat" : "transposed";
  if (!made) {
    notes.push_back(std::string("cublaslt ") + name + fused + ": " + take_error(made.takeError()).message);
    return;
  }
  lt_.push_back(std::move(*made));
  const LtProduct* product = lt_.back().get();
  Arm arm;
  arm.name = std::string("cublaslt ") + name + (fused.empty() ? "" : "," + fused);
  arm.note = format("choice %zu of %d timed", product->chosen() + 1, product->choices());
  arm.exact = is_exact(view) && (epilogue || p.epilogue == Epilogue{} || p.op == Op::kGradWeight);
  arm.launch = [product](int set, cuda::CUstream stream) { return product->run(set, stream); };
  finish(arm, rest, notes);
  out.push_back(std::move(arm));
}

std::vector<CublasPeer::Arm> CublasPeer::arms(bool epilogue, std::vector<std::string>& notes) {
  const Problem& p = bench_.problem();
  const bool weight = p.op == Op::kGradWeight;
  const bool bare = p.epilogue == Epilogue{} || weight;
  const ContextScope scope(bench_.device().api(), bench_.context());
  std::vector<Arm> out;
  for (const View view : {View::kBatched, View::kFlat}) {
    if (!serves(view)) continue;
    Arm arm;
    arm.name = view == View::kBatched ? "cublas batched" : "cublas flat";
    if (view == View::kFlat) arm.note = "data laid out as [T,B*D], which it is not; for the time alone";
    if (view == View::kBatched && p.K > 1) arm.note = "one product per tap over a padded copy";
    arm.launch = [this, view](int set, cuda::CUstream stream) { return run(view, set, stream); };
    arm.exact = is_exact(view) && (epilogue || bare);
    if (epilogue && !bare) finish(arm, p.epilogue, notes);
    out.push_back(std::move(arm));
  }
  if (serves(View::kFlat) && p.H == 1 && p.diag == 0 && p.layout == Layout::kBTD && p.dtype == DType::kF32 &&
      !weight && p.math != Math::kTF32) {
    Arm arm;
    arm.name = "cublas strmm";
    arm.note = "data laid out as [T,B*D]; for the time alone";
    arm.launch = [this](int set, cuda::CUstream stream) { return trmm(set, stream); };
    if (epilogue && !bare) finish(arm, p.epilogue, notes);
    out.push_back(std::move(arm));
  }
  for (const View view : {View::kBatched, View::kFlat, View::kTransposed}) add_lt(view, epilogue, out, notes);
  if (std::none_of(out.begin(), out.end(), [](const Arm& arm) { return arm.whole; }))
    return arms(false, notes);
  out.erase(std::remove_if(out.begin(), out.end(), [](const Arm& arm) { return !arm.whole; }), out.end());
  if (weight && p.epilogue.bias) notes.emplace_back("cublas runs without grad_bias");
  if (!bare && !epilogue) notes.push_back("cublas runs without the epilogue " + to_string(p.epilogue));
  return out;
}

llvm::Expected<double> CublasPeer::error_of(const Arm& arm, const Reference& reference) {
  const Problem& p = bench_.problem();
  const ContextScope scope(bench_.device().api(), bench_.context());
  if (auto error = bench_.poison()) return error;
  if (auto error = arm.launch(0, bench_.stream())) return error;
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
