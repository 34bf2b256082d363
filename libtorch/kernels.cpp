#include <cstring>

#include "libtorch/memory.h"
#include "libtorch/plain.h"
#include "libtorch/plans.h"
#include "libtorch/signatures.h"

namespace trigen::libtorch::kernels {
namespace {

int dtype_of(ScalarType dtype) {
  return dtype == ScalarType::Half ? TRIGEN_F16 : dtype == ScalarType::BFloat16 ? TRIGEN_BF16 : TRIGEN_F32;
}

int64_t bytes_of(ScalarType dtype) { return dtype == ScalarType::Float ? 4 : 2; }

// PyTorch's switch for TF32 cannot be read through the stable interface: "default" is full precision here.
int math_of(const Options& options, ScalarType dtype) {
  if (dtype != ScalarType::Float) return TRIGEN_MATH_DEFAULT;
  if (options.math == "tf32") return TRIGEN_MATH_TF32;
  return options.math == "f16x3" ? TRIGEN_MATH_F16X3 : TRIGEN_MATH_SIMT;
}

int activation_of(const Options& options) {
  return options.activation == "gelu"   ? TRIGEN_ACT_GELU
         : options.activation == "silu" ? TRIGEN_ACT_SILU
                                        : TRIGEN_ACT_NONE;
}

// The strides of x[B, n, H*D] or [B, H*D, n] in elements; none where a kernel cannot read it in place. Axes
// of size 1 count as contiguous.
std::optional<trigen_tensor> view_of(const Tensor& x, const Sizes& sizes, const Options& options) {
  const Shape shape = x.sizes(), strides = x.strides();
  if (shape[2] > 1 && strides[2] != 1) return std::nullopt;
  const int64_t row = shape[1] > 1 ? strides[1] : shape[2];
  const int64_t batch = shape[0] > 1 ? strides[0] : row * shape[1];
  if (row < shape[2] || batch < 1) return std::nullopt;
  return trigen_tensor{x.data_ptr(), batch, sizes.D * (options.btd() ? 1 : row), row};
}

// The (head, row) strides of W[h,t,s,j], or of the rows that stand for it; none where a row is not contiguous.
std::optional<std::pair<int64_t, int64_t>> weight_strides(const Tensor& weight, const Sizes& sizes,
                                                          const Options& options) {
  const Shape given = weight.strides(), shape = weight.sizes();
  const size_t rank = given.size(), first = has_heads(shape, options) ? 1 : 0;
  const size_t rows = options.toeplitz() ? first : first + 1;  // axes before a row's own
  int64_t elements = 1;
  for (size_t axis = rank; axis-- > rows; elements *= shape[axis])
    if (shape[axis] > 1 && given[axis] != elements) return std::nullopt;
  const bool one = options.toeplitz() || sizes.T == 1;
  const int64_t row = one ? elements : given[first];
  const int64_t head = sizes.H > 1 ? given[0] : row * (options.toeplitz() ? 1 : sizes.T);
  if (row < elements || head < 1) return std::nullopt;
  return std::pair(head, row);
}

int64_t alignment_of(uint64_t bits) { return static_cast<int64_t>((bits | 16) & (~(bits | 16) + 1)); }

// A problem and the arguments of its run, made from the tensors one after the other.
class Call {
 public:
  Call(int op, const Sizes& sizes, const Options& options, ScalarType dtype, ScalarType weight_dtype,
       int64_t diag)
      : sizes_(sizes), options_(options), element_(bytes_of(dtype)), weight_element_(bytes_of(weight_dtype)) {
    std::memset(&problem, 0, sizeof problem);  // its padding is part of a plan's key
    problem.struct_size = sizeof problem;
    problem.op = op;
    problem.dtype = dtype_of(dtype);
    problem.wdtype = dtype_of(weight_dtype);
    problem.math = math_of(options, dtype);
    problem.layout = options.btd() ? TRIGEN_BTD : TRIGEN_BDT;
    problem.fill = options.lower() ? TRIGEN_LOWER : TRIGEN_UPPER;
    problem.B = sizes.B;
    problem.H = sizes.H;
    problem.T = sizes.n;
    problem.D = sizes.D;
    problem.K = sizes.K;
    problem.pad = options.pad;
    problem.w = options.toeplitz() ? TRIGEN_W_TOEPLITZ : options.band() ? TRIGEN_W_BAND : TRIGEN_W_DENSE;
    problem.width = sizes.width;
    problem.rows = 1;
    problem.diag = diag;
  }

  // A tensor that is read, copied first where a kernel cannot read it.
  trigen_tensor read(Tensor& tensor) {
    std::optional<trigen_tensor> view = view_of(tensor, sizes_, options_);
    if (!view) {
      tensor = dense(tensor);
      view = view_of(tensor, sizes_, options_);
    }
    count(*view);
    return *view;
  }

  // A contiguous output of x's shape.
  trigen_tensor written(const Tensor& tensor) {
    const trigen_tensor view = *view_of(tensor, sizes_, options_);
    count(view);
    return view;
  }

  void weight(Tensor& tensor) {
    auto strides = weight_strides(tensor, sizes_, options_);
    if (!strides) {
      tensor = dense(tensor);
      strides = weight_strides(tensor, sizes_, options_);
    }
    args.w = tensor.data_ptr();
    args.w_head = strides->first;
    args.w_row = strides->second;
    weight_bits_ = (reinterpret_cast<uintptr_t>(args.w) & 15) |
                   static_cast<uint64_t>((args.w_head | args.w_row) * weight_element_);
  }

  // Launches on the current stream of x's device.
  void run(const Tensor& x) {
    problem.align = alignment_of(bits_);
    problem.walign = alignment_of(weight_bits_);
    const int device = x.get_device_index();
    const Plan plan = plan_of(problem, device);
    Tensor scratch;
    if (plan.workspace > 0) {
      scratch = empty(std::vector<int64_t>{static_cast<int64_t>(plan.workspace)}, ScalarType::Byte, x);
      args.workspace = scratch.data_ptr();
      args.workspace_size = plan.workspace;
    }
    check(trigen_plan_run(plan.handle, &args, current_stream(device)), problem);
  }

  trigen_problem problem;
  trigen_args args = TRIGEN_ARGS_INIT;

 private:
  void count(const trigen_tensor& view) {
    bits_ |= (reinterpret_cast<uintptr_t>(view.data) & 15) |
             static_cast<uint64_t>((view.batch | view.head | view.row) * element_);
  }

  const Sizes& sizes_;
  const Options& options_;
  const int64_t element_, weight_element_;
  uint64_t bits_ = 0, weight_bits_ = 0;
};

// The diagonal of the problem, or none where ATen's operations serve.
std::optional<int64_t> served(const Sizes& sizes, const Options& options, ScalarType dtype) {
  if (dtype == ScalarType::Double || sizes.B == 0) return std::nullopt;
  return effective_diagonal(options, sizes.n);
}

// (y, pre); pre where it is wanted.
std::pair<Tensor, MaybeTensor> run_forward(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate,
                                           MaybeTensor residual, const Options& options, bool want_pre) {
  const Sizes sizes = check_forward(x, weight, bias, gate, residual, options);
  if (want_pre && options.activation == "none" &&
      !gate) {  // the sum itself: nothing that a kernel stores twice
    const Tensor pre = run_forward(x, weight, bias, std::nullopt, std::nullopt, options, false).first;
    return {residual ? add(pre, *residual) : torch::stable::clone(pre), pre};
  }
  const ScalarType dtype = x.scalar_type();
  const auto diag = served(sizes, options, dtype);
  if (!diag) return plain::forward(x, weight, bias, gate, residual, sizes, options);
  Call call(TRIGEN_FORWARD, sizes, options, dtype, weight.scalar_type(), *diag);
  call.problem.activation = activation_of(options);
  call.args.x = call.read(x);
  call.weight(weight);
  if (bias) {
    if (sizes.H > 1 && sizes.n < sizes.T) bias = torch::stable::narrow(*bias, 1, 0, sizes.n);
    bias = dense(*bias);
    call.problem.bias = 1;
    call.args.bias = bias->data_ptr();
  }
  if (gate) {
    call.problem.gate = 1;
    call.args.gate = call.read(*gate);
  }
  if (residual) {
    call.problem.residual = 1;
    call.args.residual = call.read(*residual);
  }
  const Tensor y = empty(x.sizes(), dtype, x);
  call.args.y = call.written(y);
  MaybeTensor pre;
  if (want_pre) {
    pre = empty(x.sizes(), dtype, x);
    call.problem.pre = 1;
    call.args.pre = call.written(*pre);
  }
  call.run(x);
  return {y, pre};
}

}  // namespace

Tensor forward(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate, MaybeTensor residual, int64_t pad,
               std::string layout, std::string fill, int64_t diag, std::string activation, std::string math,
               std::string form) {
  const Options options{pad, layout, fill, diag, activation, math, form};
  return run_forward(std::move(x), std::move(weight), std::move(bias), std::move(gate), std::move(residual),
                     options, false)
      .first;
}

std::tuple<Tensor, Tensor> forward_pre(Tensor x, Tensor weight, MaybeTensor bias, MaybeTensor gate,
                                       MaybeTensor residual, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string activation,
                                       std::string math, std::string form) {
  const Options options{pad, layout, fill, diag, activation, math, form};
  auto [y, pre] = run_forward(std::move(x), std::move(weight), std::move(bias), std::move(gate),
                              std::move(residual), options, true);
  return {y, *pre};
}

Tensor grad_input(Tensor grad, Tensor weight, MaybeTensor residual, int64_t pad, std::string layout,
                  std::string fill, int64_t diag, std::string math, std::string form) {
  const Options options{pad, layout, fill, diag, "none", math, form};
  const Sizes sizes = check_grad_input(grad, weight, residual, options);
  const ScalarType dtype = grad.scalar_type();
  const auto inside = served(sizes, options, dtype);
  if (!inside) return plain::grad_input(grad, weight, residual, sizes, options);
  Call call(TRIGEN_GRAD_INPUT, sizes, options, dtype, weight.scalar_type(), *inside);
  call.args.y = call.read(grad);
  call.weight(weight);
  if (residual) {
    call.problem.residual = 1;
    call.args.residual = call.read(*residual);
  }
  const Tensor dx = empty(grad.sizes(), dtype, grad);
  call.args.x = call.written(dx);
  call.run(grad);
  return dx;
}

std::tuple<Tensor, Tensor> grad_weight(Tensor grad, Tensor x, std::vector<int64_t> weight_size,
                                       ScalarType weight_dtype, bool bias, int64_t pad, std::string layout,
                                       std::string fill, int64_t diag, std::string math, std::string form) {
  const Options options{pad, layout, fill, diag, "none", math, form};
  const Sizes sizes = check_grad_weight(grad, x, weight_size, weight_dtype, options);
  const auto inside = served(sizes, options, x.scalar_type());
  if (!inside) return plain::grad_weight(grad, x, weight_size, weight_dtype, bias, sizes, options);
  const bool prefix = sizes.n < sizes.T;
  Call call(TRIGEN_GRAD_WEIGHT, sizes, options, x.scalar_type(), weight_dtype, *inside);
  call.args.x = call.read(x);
  call.args.y = call.read(grad);
  Tensor dw = empty(weight_size, weight_dtype, x);
  if (prefix) torch::stable::zero_(dw);  // a kernel writes the prefix alone
  call.problem.zero_outside = !prefix && !options.toeplitz();
  call.weight(dw);
  const std::vector<int64_t> size = bias ? bias_size(weight_size, options) : std::vector<int64_t>{0};
  Tensor db = empty(size, weight_dtype, x), written = db;
  if (bias) {
    std::vector<int64_t> part = size;
    part.back() = sizes.n;
    if (prefix) written = empty(part, weight_dtype, x);
    call.problem.bias = 1;
    call.args.bias = written.data_ptr();
  }
  call.run(x);
  if (bias && prefix) {
    torch::stable::zero_(db);
    Tensor part = torch::stable::narrow(db, db.dim() - 1, 0, sizes.n);
    torch::stable::copy_(part, written);
  }
  return {dw, db};
}

}  // namespace trigen::libtorch::kernels
