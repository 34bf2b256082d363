#include "runtime/arguments.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "llvm/ADT/StringExtras.h"

namespace trigen {
namespace {

enum class Use : uint8_t { kUnused, kRead, kWritten };

// A tensor of the problem's op, one of the vectors that are its W, or the workspace. Its name is made for errors alone.
struct Argument {
  Op op;
  Role role;
  const char* other;  // name of what is no tensor of the op, else null
  bool is(Role wanted) const { return other == nullptr && role == wanted; }
  std::string name() const { return other != nullptr ? other : argument_name(op, role); }
};

// One argument as memory: a base and up to three strided axes around a dense innermost run. Filled by
// Binder::add; without initialisers, because clearing eight of them costs more than the checks.
struct View {
  Argument argument;
  Use use;
  uintptr_t begin;
  int64_t bytes;    // from the first to the last element
  int64_t element;  // bytes
  int64_t inner;    // elements of the innermost run
  Use names;        // of an array of pointers: what becomes of the matrices; else kUnused
  int64_t row;      // and their stride from row to row
  struct {
    int64_t stride, extent;  // in elements, longest stride first
  } axes[3];
  int count;
};

bool has_rows_of_weights(const OpTensor& tensor) {
  return tensor.axes == Axes::kWeights || tensor.axes == Axes::kVectors;
}

std::string hex(uintptr_t value) { return "0x" + llvm::utohexstr(value, true); }

void sort_axes(View& view) {
  for (int i = 1; i < view.count; ++i)
    for (int j = i; j > 0 && view.axes[j].stride > view.axes[j - 1].stride; --j)
      std::swap(view.axes[j], view.axes[j - 1]);
}

// Fills bytes, or says which stride makes the tensor larger than an address space.
llvm::Error measure(View& view) {
  int64_t last = view.inner - 1;
  for (int i = 0; i < view.count; ++i) {
    int64_t step = 0;
    if (__builtin_mul_overflow(view.axes[i].stride, view.axes[i].extent - 1, &step) ||
        __builtin_add_overflow(last, step, &last))
      return bad_request(view.argument.name() + " has a stride of " + std::to_string(view.axes[i].stride) +
                         " elements, and its size overflows 64 bits");
  }
  if (__builtin_mul_overflow(last + 1, view.element, &view.bytes))
    return bad_request(view.argument.name() + "'s size overflows 64 bits");
  return llvm::Error::success();
}

// Do different indices of an output name the same element?
bool overlaps_itself(const View& view) {
  int64_t span = view.inner;
  for (int i = view.count - 1; i >= 0; --i) {
    if (view.axes[i].stride < span) return true;
    span = view.axes[i].stride * (view.axes[i].extent - 1) + span;
  }
  return false;
}

// Is there an element of `b` at the address of an element of `a`, both with a's strides, b lying `delta`
// elements behind a? Exact for strides that nest (every view that does not overlap itself).
bool meets(const View& a, int axis, int64_t delta) {
  if (axis >= a.count || axis >= 3) return delta > -a.inner && delta < a.inner;
  const int64_t stride = a.axes[axis].stride, extent = a.axes[axis].extent;
  int64_t quotient = delta / stride;
  if (delta % stride < 0) --quotient;
  for (int64_t q = quotient; q <= quotient + 1; ++q)
    if (q > -extent && q < extent && meets(a, axis + 1, delta - q * stride)) return true;
  return false;
}

bool same_shape(const View& a, const View& b) {
  if (a.count != b.count || a.inner != b.inner || a.element != b.element) return false;
  for (int i = 0; i < a.count; ++i)
    if (a.axes[i].stride != b.axes[i].stride || a.axes[i].extent != b.axes[i].extent) return false;
  return true;
}

bool overlap(const View& a, const View& b) {
  if (a.begin + a.bytes <= b.begin || b.begin + b.bytes <= a.begin) return false;
  const auto difference = static_cast<int64_t>(b.begin - a.begin);
  if (!same_shape(a, b) || overlaps_itself(a) || difference % a.element != 0) return true;
  return meets(a, 0, difference / a.element);  // slices of one buffer may interleave
}

class Binder {
 public:
  Binder(const Problem& problem, Params& params) : problem_(problem), params_(params) {}

  // Bytes of the tensor that was bound last.
  int64_t last_extent() const { return count_ == 0 ? 0 : views_[count_ - 1].bytes; }
  int bound() const { return count_; }

  // `tokens` of the contiguous tensor, of which the run touches the first `touched`; `align` in bytes.
  llvm::Error activation(Role role, const trigen_tensor& tensor, Activations& out, int64_t tokens,
                         int64_t touched, int64_t align) {
    const Use use = use_of(role);
    if (llvm::Error error = presence(role, use, tensor.data)) return error;
    if (use == Use::kUnused) {
      out = {};
      return llvm::Error::success();
    }
    const bool btd = problem_.layout == Layout::kBTD;
    const int64_t inner = btd ? problem_.D : touched, rows = btd ? touched : problem_.D;
    const bool by_head = tensor.batch == TRIGEN_POINTER_ARRAY && problem_.pointers != 0;  // a matrix for each
    out.data = tensor.data;
    out.row = tensor.row != 0 ? tensor.row : !btd ? tokens : by_head ? problem_.D : problem_.H * problem_.D;
    out.head = tensor.head != 0 ? tensor.head : btd ? problem_.D : problem_.D * out.row;
    out.batch = tensor.batch != 0 ? tensor.batch : btd ? tokens * out.row : problem_.H * problem_.D * out.row;
    View& view = add(role, use, tensor.data, element_size(problem_.dtype), inner);
    if (llvm::Error error = axis(view, "row", out.row, rows, align)) return error;
    if (by_head) {
      out.head = tensor.batch, out.batch = 0;
      return pointers(view, "batch");
    }
    if (llvm::Error error = axis(view, "head", out.head, problem_.H, align)) return error;
    if (tensor.batch == TRIGEN_POINTER_ARRAY) return pointers(view, "batch");
    if (llvm::Error error = axis(view, "batch", out.batch, problem_.B, align)) return error;
    // Not used, and below 0 they would name an array of pointers.
    if (problem_.B == 1) out.batch = 0;
    if (problem_.H == 1) out.head = 0;
    return finish(view, align, "align");
  }

  llvm::Error weights(const trigen_args& args) {
    const Use use = is_scan(problem_.op) ? Use::kUnused : use_of(Role::kW);
    if (is_scan(problem_.op) && args.w != nullptr)
      return bad_request("w is given, but the problem's W is vectors: " + to_string(problem_) +
                         "; pass null, and them as source, target, decay and diagonal");
    if (llvm::Error error = presence(Role::kW, use, args.w)) return error;
    params_.w = args.w;
    if (use == Use::kUnused) {
      params_.w_row = params_.w_head = 0;
      return llvm::Error::success();
    }
    if (tensor_of(problem_.op, Role::kW)->axes == Axes::kSteps) {
      params_.w_row = params_.w_head = 0;
      View& view = add(Role::kW, use, args.w, sizeof(float), step_numbers(problem_));
      return finish(view, sizeof(float), nullptr);
    }
    params_.w_row = args.w_row != 0 ? args.w_row : row_elements(Role::kW);
    params_.w_head = args.w_head != 0 ? args.w_head : row_count(Role::kW) * params_.w_row;
    return bind_rows(Role::kW, use, args.w, params_.w_row, params_.w_head, "w_row", "w_head", args.w_head);
  }

  // Vector i of a scan; the other ops have none.
  llvm::Error vector(int i, const trigen_vector& given) {
    TokenVector& out = params_.vectors[i] = {};
    if (given.data == nullptr) return llvm::Error::success();
    const char* const name = kVectorNames[i];
    if (!is_scan(problem_.op))
      return bad_request(std::string(name) + " is given, but only a scan has a use for it: " +
                         to_string(problem_) + "; start from TRIGEN_ARGS_INIT");
    out = {given.data, static_cast<int>(given.head), static_cast<int>(given.token)};
    const int64_t element = element_size(problem_.wdtype);
    View& view = add(Role::kW, Use::kRead, given.data, element, 1);
    view.argument.other = name;
    const struct {
      const char* name;
      int64_t stride, extent;
    } axes[] = {{"head", given.head, problem_.H}, {"token", given.token, problem_.T}};
    for (const auto& [axis_name, stride, extent] : axes) {
      if (stride < 0)
        return bad_request(std::string(name) + "'s " + axis_name + " stride is " + std::to_string(stride) +
                           "; pass a positive number of elements, or 0 to repeat");
      if (stride > std::numeric_limits<int>::max())
        return bad_request(std::string(name) + "'s " + axis_name + " stride is " + std::to_string(stride) +
                           "; allowed are strides below 2^31: pass a contiguous copy");
      if (stride == 0) continue;
      if (llvm::Error error = axis(view, axis_name, stride, extent, element)) return error;
    }
    return finish(view, element, nullptr);
  }

  // A tensor with W's axes, or vectors, in an activation's place.
  llvm::Error matrix(Role role, const trigen_tensor& tensor, Activations& out) {
    const Use use = use_of(role);
    if (llvm::Error error = presence(role, use, tensor.data)) return error;
    out = {};
    if (use == Use::kUnused) return llvm::Error::success();
    out.data = tensor.data;
    out.row = tensor.row != 0 ? tensor.row : row_elements(role);
    out.head = tensor.head != 0 ? tensor.head : row_count(role) * out.row;
    return bind_rows(role, use, tensor.data, out.row, out.head, "row", "head", tensor.batch);
  }

  llvm::Error bias(void* data) {
    const Use use = use_of(Role::kBias);
    if (llvm::Error error = presence(Role::kBias, use, data)) return error;
    params_.bias = data;
    if (use == Use::kUnused) return llvm::Error::success();
    const int64_t element = element_size(problem_.wdtype);
    View& view = add(Role::kBias, use, data, element, problem_.H * problem_.T);
    return finish(view, element, nullptr);
  }

  llvm::Error workspace(int64_t needed, const trigen_args& args) {
    params_.workspace = nullptr;
    if (needed == 0) return llvm::Error::success();
    if (args.workspace == nullptr)
      return bad_request("workspace is null, the plan needs " + std::to_string(needed) +
                         " bytes of device memory; allocate trigen_plan_workspace_size bytes");
    if (static_cast<uint64_t>(args.workspace_size) < static_cast<uint64_t>(needed))
      return bad_request("workspace has " + std::to_string(args.workspace_size) + " bytes, the plan needs " +
                         std::to_string(needed) + "; allocate trigen_plan_workspace_size bytes");
    params_.workspace = args.workspace;
    View& view = add(Role::kX, Use::kWritten, args.workspace, 1, needed);
    view.argument.other = "workspace";
    return finish(view, 16, nullptr);
  }

  // Outputs against everything. An output may be the same view as residual and gate, which each thread reads
  // at an element before it writes that element.
  llvm::Error aliasing() const {
    for (int i = 0; i < count_; ++i) {
      const View& output = views_[i];
      if (output.names == Use::kWritten)
        if (llvm::Error error = same_array(output)) return error;
      if (output.use != Use::kWritten) continue;
      if (overlaps_itself(output)) return overlaps_itself_error(output);
      for (int j = 0; j < count_; ++j) {
        const View& other = views_[j];
        if (j == i || (other.use == Use::kWritten && j < i) || !overlap(output, other)) continue;
        if (in_place(output, other)) continue;
        const std::string name = output.argument.name(), others = other.argument.name();
        return bad_request(name + " overlaps " + others + ": " + name + " is [" + hex(output.begin) + ", " +
                           hex(output.begin + output.bytes) + "), " + others + " is [" + hex(other.begin) +
                           ", " + hex(other.begin + other.bytes) + "); give " + name + " memory of its own" +
                           (is_residual(other) ? ", or exactly the same view" : ""));
      }
    }
    return llvm::Error::success();
  }

 private:
  // Makes `view`, of the strides within a matrix, the array of pointers that lies there. Where they point to is known on the
  // device alone. `stride`: the one that says so.
  llvm::Error pointers(View& view, const char* stride) const {
    if (!takes_pointers(problem_))
      return bad_request(
          view.argument.name() + "'s " + stride + " stride is TRIGEN_POINTER_ARRAY, but " +
          (op_row(problem_.op).takes(kPointersKeyField)
               ? "the plan's kernels take strides: " + to_string(problem_) +
                     "; make the plan with pointers=1, of B=1, or pass"
               : "only newton_schulz and gram take pointers: " + to_string(problem_) + "; pass") +
          " the tensor's own stride, or 0 for contiguous");
    sort_axes(view);
    if (llvm::Error error = measure(view)) return error;
    if (view.use == Use::kWritten && overlaps_itself(view)) return overlaps_itself_error(view);
    view.row = view.count == 0 ? 0 : view.axes[0].stride;
    view.names = view.use;
    view.use = Use::kRead;
    view.element = sizeof(void*), view.inner = pointer_count(problem_), view.count = 0;
    return finish(view, sizeof(void*), nullptr);
  }
  // gram's output by the array that names an operand, too. Whether other arrays name the same memory is the caller's to know.
  llvm::Error same_array(const View& output) const {
    if (problem_.pointers == 0) return llvm::Error::success();
    for (int i = 0; i < count_; ++i) {
      const View& other = views_[i];
      if (other.names != Use::kRead || other.begin != output.begin) continue;
      if (is_residual(other) && other.row == output.row) continue;
      return bad_request(output.argument.name() + " and " + other.argument.name() +
                         " are one array of pointers, at " + hex(output.begin) +
                         ", so that matrices are written which others still read; give " +
                         output.argument.name() + " memory of its own" +
                         (is_residual(other) ? ", or exactly the same strides" : ""));
    }
    return llvm::Error::success();
  }
  static llvm::Error overlaps_itself_error(const View& view) {
    return bad_request(view.argument.name() +
                       " overlaps itself: its strides give one address to several elements; pass larger "
                       "strides, or 0 for contiguous");
  }
  // For each head a matrix of T rows of T*K elements, what stands for one, or vectors of T.
  bool is_vectors(Role role) const { return tensor_of(problem_.op, role)->axes == Axes::kVectors; }
  int64_t row_count(Role role) const {
    return is_vectors(role) ? int64_t{scan::kVectors} : weight_rows(problem_).count;
  }
  int64_t row_elements(Role role) const {
    return is_vectors(role) ? problem_.T : weight_rows(problem_).elements;
  }
  // `batch`: TRIGEN_POINTER_ARRAY where `data` is an array of pointers.
  llvm::Error bind_rows(Role role, Use use, const void* data, int64_t row, long long& head,
                        const char* row_name, const char* head_name, int64_t batch) {
    const int64_t rows = row_count(role), elements = row_elements(role);
    if (row < elements && rows > 1)
      return bad_request(
          (role == Role::kW ? row_name : argument_name(problem_.op, role) + "'s " + row_name + " stride") +
          " is " + std::to_string(row) + ", a row of " + argument_name(problem_.op, role) + " has " +
          (is_vectors(role)                  ? "T="
           : problem_.w == WeightForm::kBand ? "width="
                                             : "T*K=") +
          std::to_string(elements) + " elements; pass at least that, or 0 for contiguous");
    View& view = add(role, use, data, element_size(problem_.wdtype), elements);
    if (llvm::Error error = axis(view, row_name, row, rows, problem_.walign)) return error;
    if (batch == TRIGEN_POINTER_ARRAY && is_matrix(role) && !is_vectors(role)) {
      head = batch;
      return pointers(view, role == Role::kW ? head_name : "batch");
    }
    if (llvm::Error error = axis(view, head_name, head, problem_.H, problem_.walign)) return error;
    if (problem_.H == 1) head = 0;  // as in activation()
    return finish(view, problem_.walign, "walign");
  }

  // A role that the problem's op gives a tensor of the weights' alignment.
  bool is_matrix(Role role) const { return has_rows_of_weights(*tensor_of(problem_.op, role)); }
  static bool is_residual(const View& view) {
    return view.argument.is(Role::kResidual) || view.argument.is(Role::kGate);
  }
  bool in_place(const View& output, const View& input) const {
    return input.use == Use::kRead && is_residual(input) &&
           output.argument.is(op_row(problem_.op).output().role) && input.begin == output.begin &&
           same_shape(input, output);
  }

  Use use_of(Role role) const {
    const OpTensor* tensor = tensor_of(problem_.op, role);
    if (tensor == nullptr || !tensor->is_in(problem_.epilogue)) return Use::kUnused;
    return tensor->written ? Use::kWritten : Use::kRead;
  }

  llvm::Error presence(Role role, Use use, const void* data) const {
    if (use == Use::kUnused && data != nullptr)
      return bad_request(argument_name(problem_.op, role) + " is given, but the problem has no use for it: " +
                         to_string(problem_) + "; pass null, or add it to the problem's epilogue");
    if (use != Use::kUnused && data == nullptr)
      return bad_request(argument_name(problem_.op, role) +
                         " is null; the problem needs it: " + to_string(problem_));
    return llvm::Error::success();
  }

  View& add(Role role, Use use, const void* data, int64_t element, int64_t inner) {
    View& view = views_[count_++];
    view.bytes = 0;
    view.count = 0;
    view.argument = {problem_.op, role, nullptr};
    view.use = use;
    view.names = Use::kUnused;
    view.begin = reinterpret_cast<uintptr_t>(data);
    view.element = element;
    view.inner = inner;
    return view;
  }

  llvm::Error axis(View& view, const char* axis_name, int64_t stride, int64_t extent, int64_t align) const {
    if (extent == 1) return llvm::Error::success();
    if (stride < 1 || stride > INT64_MAX / 16)
      return bad_request(
          view.argument.name() + "'s " + axis_name + " stride is " + std::to_string(stride) +
          "; pass a positive number of elements that fits an address space, or 0 for contiguous");
    if ((stride * view.element & (align - 1)) != 0)  // align is a power of two
      return bad_request(view.argument.name() + "'s " + axis_name + " stride is " + std::to_string(stride) +
                         " elements (" + std::to_string(stride * view.element) +
                         " bytes), the problem promises multiples of " + std::to_string(align) +
                         " bytes; make the plan with a smaller " +
                         (is_matrix(view.argument.role) ? "walign" : "align"));
    view.axes[view.count++] = {stride, extent};
    return llvm::Error::success();
  }

  llvm::Error finish(View& view, int64_t align, const char* field) const {
    if ((view.begin & static_cast<uintptr_t>(align - 1)) != 0)
      return bad_request(
          view.argument.name() + " is at " + hex(view.begin) + ", " + std::to_string(align) +
          "-byte alignment is needed; " +
          (field == nullptr
               ? std::string("pass an aligned pointer")
               : std::string("pass an aligned pointer, or make the plan with a smaller ") + field));
    sort_axes(view);
    return measure(view);
  }

  const Problem& problem_;
  Params& params_;
  View views_[8 + scan::kVectors];
  int count_ = 0;
};

// What has x's shape, in the order of checks.
struct ActivationArgument {
  Role role;
  trigen_tensor trigen_args::*given;
  Activations Params::*out;
  int64_t ArgumentExtents::*extent;
};
constexpr ActivationArgument kActivationArguments[] = {
    {Role::kX, &trigen_args::x, &Params::x, &ArgumentExtents::x},
    {Role::kY, &trigen_args::y, &Params::y, &ArgumentExtents::y},
    {Role::kPre, &trigen_args::pre, &Params::pre, &ArgumentExtents::pre},
    {Role::kGate, &trigen_args::gate, &Params::gate, &ArgumentExtents::gate},
    {Role::kResidual, &trigen_args::residual, &Params::residual, &ArgumentExtents::residual}};

// The rows of a run of decode; none for the other ops.
llvm::Error check_rows(const Problem& problem, const trigen_args& args) {
  if (!op_row(problem.op).takes(kRowsField)) {
    if (args.first_row == 0 && args.rows == 0) return llvm::Error::success();
    return bad_request("first_row=" + std::to_string(args.first_row) +
                       " and rows=" + std::to_string(args.rows) +
                       " are given, but the problem makes all rows: " + to_string(problem) +
                       "; pass 0, or make a plan for decode");
  }
  if (args.rows < 1 || args.rows > problem.rows)
    return bad_request("rows is " + std::to_string(args.rows) + "; this plan makes 1 to " +
                       std::to_string(problem.rows) +
                       " rows a run; make the plan with a larger rows, or use several runs or forward");
  if (args.first_row < 0 || args.first_row > problem.T - args.rows)
    return bad_request("first_row is " + std::to_string(args.first_row) + " for " +
                       std::to_string(args.rows) + " rows; allowed are 0 to " +
                       std::to_string(problem.T - args.rows) +
                       ", the problem has T=" + std::to_string(problem.T) + " tokens");
  return llvm::Error::success();
}

// alpha, beta and gamma; where the problem has no use for them what TRIGEN_ARGS_INIT sets, or zeros.
llvm::Error check_factors(const Problem& problem, const trigen_args& args) {
  const auto refuse = [&](const char* name, float value, const char* why) {
    return bad_request(std::string(name) + " is " + std::to_string(value) + ", " + why + ": " +
                       to_string(problem));
  };
  if (!op_row(problem.op).takes(kFactorsField)) {
    for (const auto& [name, value] :
         {std::pair("alpha", args.alpha), std::pair("beta", args.beta), std::pair("gamma", args.gamma)})
      if (value != 0 && (value != 1 || name[0] == 'g'))
        return refuse(name, value, "but only gram has a use for it; start from TRIGEN_ARGS_INIT");
    return llvm::Error::success();
  }
  if (args.alpha == 0)
    return refuse("alpha", args.alpha,
                  "which leaves nothing to compute; start from TRIGEN_ARGS_INIT, which sets 1");
  if (!problem.epilogue.residual && args.beta != 1 && args.beta != 0)
    return refuse("beta", args.beta,
                  "but the problem has no C; add residual to its epilogue, or leave beta 1");
  return llvm::Error::success();
}

// Bounds of a scan's decays, none where both are 0; the other ops have none.
llvm::Error check_decays(const Problem& problem, const trigen_args& args) {
  if (args.decay_low == 0 && args.decay_high == 0) return llvm::Error::success();
  const auto found = [&] {
    return "decay_low=" + std::to_string(args.decay_low) +
           " and decay_high=" + std::to_string(args.decay_high);
  };
  if (!is_scan(problem.op))
    return bad_request(found() + " are given, but only a scan has a use for them: " + to_string(problem) +
                       "; start from TRIGEN_ARGS_INIT");
  if (!(args.decay_low <= args.decay_high))
    return bad_request(found() + "; pass numbers with decay_low <= decay_high, or 0 and 0 for no bounds");
  return llvm::Error::success();
}

// A scan's W is its vectors.
llvm::Error check_w_unchanged(const Problem& problem, const trigen_args& args) {
  if (args.w_unchanged == 0) return llvm::Error::success();
  if (args.w_unchanged != 1)
    return bad_request("w_unchanged is " + std::to_string(args.w_unchanged) +
                       "; allowed are 0 and 1; start from TRIGEN_ARGS_INIT");
  const OpTensor* w = tensor_of(problem.op, Role::kW);
  if (w == nullptr || w->written || is_scan(problem.op))
    return bad_request("w_unchanged is 1, but the problem reads no w: " + to_string(problem) + "; pass 0");
  return llvm::Error::success();
}

// In the order of scan::Vector.
constexpr trigen_vector trigen_args::*kVectorArguments[scan::kVectors] = {
    &trigen_args::source, &trigen_args::target, &trigen_args::decay, &trigen_args::diagonal};

// The vectors that lie in `t` as rows, given as the tensor says.
void set_vectors(trigen_args& args, const Tensor& t, void* data) {
  for (int i = 0; i < scan::kVectors; ++i) {
    const VectorForm& form = t.vectors.of[i];
    if (!form.given) continue;
    const std::byte* const row = static_cast<std::byte*>(data) + i * t.row * element_size(t.dtype);
    args.*kVectorArguments[i] = {row, form.heads ? t.head : 0, form.tokens ? 1 : 0};
  }
  args.decay_low = t.vectors.low, args.decay_high = t.vectors.high;
}

}  // namespace

void set_argument(trigen_args& args, const Tensor& t, void* data) {
  for (const ActivationArgument& argument : kActivationArguments)
    if (argument.role == t.role) args.*argument.given = {data, t.batch, t.head, t.row};
  if (t.role == Role::kW && t.axes == Axes::kVectors) return set_vectors(args, t, data);
  if (t.role == Role::kW) args.w = data, args.w_head = t.head, args.w_row = t.row;
  if (t.role == Role::kBias) args.bias = data;
}

void set_pointers(trigen_args& args, const Tensor& t, void* array) {
  Tensor named = t;
  named.batch = TRIGEN_POINTER_ARRAY;
  if (t.role == Role::kW) named.head = TRIGEN_POINTER_ARRAY;  // w has no batch
  set_argument(args, named, array);
}

llvm::Error bind_arguments(const Problem& problem, int64_t workspace_bytes, const trigen_args& args,
                           Params& params, ArgumentExtents* extents) {
  if (args.struct_size != sizeof(trigen_args))
    return bad_request("trigen_args has struct_size " + std::to_string(args.struct_size) +
                       ", this library's is " + std::to_string(sizeof(trigen_args)) +
                       "; start from TRIGEN_ARGS_INIT, and build against this version's header");
  if (llvm::Error e = check_rows(problem, args)) return e;
  if (llvm::Error e = check_factors(problem, args)) return e;
  if (llvm::Error e = check_decays(problem, args)) return e;
  if (llvm::Error e = check_w_unchanged(problem, args)) return e;
  Binder binder(problem, params);
  int bound = 0;
  // A few rows: what is multiplied to the last token that they reach; what else has x's shape holds the rows only.
  const bool few = op_row(problem.op).takes(kRowsField);
  const int64_t reach =
      few ? std::max<int64_t>(1, tokens_of_rows(problem, {args.first_row, args.rows}).last) : problem.T;
  // The extent of a tensor that has just been bound goes to `extents`.
  const auto noted = [&](int64_t ArgumentExtents::*of, llvm::Error error) {
    if (!error && extents != nullptr && binder.bound() > bound) extents->*of = binder.last_extent();
    bound = binder.bound();
    return error;
  };
  for (const auto& [role, given, out, extent] : kActivationArguments) {
    const bool rows = few && has_rows_alone(problem.op, role);
    const int64_t align =
        rows && problem.layout == Layout::kBDT ? element_size(problem.dtype) : problem.align;
    if (const OpTensor* tensor = tensor_of(problem.op, role);
        tensor != nullptr && has_rows_of_weights(*tensor)) {
      if (llvm::Error e = noted(extent, binder.matrix(role, args.*given, params.*out))) return e;
      continue;
    }
    if (llvm::Error e =
            noted(extent, binder.activation(role, args.*given, params.*out, rows ? args.rows : problem.T,
                                            rows ? args.rows : reach, align)))
      return e;
  }
  if (llvm::Error e = noted(&ArgumentExtents::w, binder.weights(args))) return e;
  for (int i = 0; i < scan::kVectors; ++i) {
    if (llvm::Error e = binder.vector(i, args.*kVectorArguments[i])) return e;
    if (extents != nullptr && binder.bound() > bound) extents->vectors[i] = binder.last_extent();
    bound = binder.bound();
  }
  if (llvm::Error e = noted(&ArgumentExtents::bias, binder.bias(args.bias))) return e;
  if (llvm::Error e = noted(&ArgumentExtents::workspace, binder.workspace(workspace_bytes, args))) return e;
  if (llvm::Error e = binder.aliasing()) return e;
  params.B = static_cast<int>(problem.B);
  params.H = static_cast<int>(problem.H);
  params.T = static_cast<int>(problem.T);
  params.D = static_cast<int>(problem.D);
  params.K = static_cast<int>(problem.K);
  params.pad = static_cast<int>(problem.pad);
  params.diag = static_cast<int>(problem.diag);
  params.first_row = static_cast<int>(args.first_row);
  params.rows = static_cast<int>(args.rows);
  if (op_row(problem.op).takes(kFactorsField)) params.alpha = args.alpha, params.beta = args.beta;
  params.gamma = args.gamma;
  if (is_scan(problem.op)) {
    const bool clips = args.decay_low != 0 || args.decay_high != 0;
    params.decay_low = clips ? args.decay_low : -std::numeric_limits<float>::infinity();
    params.decay_high = clips ? args.decay_high : std::numeric_limits<float>::infinity();
  }
  if (problem.w == WeightForm::kBand) params.width = static_cast<int>(problem.width);
  return llvm::Error::success();
}

llvm::Error check_pointers(const Device& device, const trigen_args& args, const ArgumentExtents& extents,
                           SeenPointers* seen) {
  using namespace cuda;
  const struct {
    const char* name;
    const void* pointer;
    int64_t extent;
  } pointers[] = {{"x", args.x.data, extents.x},
                  {"y", args.y.data, extents.y},
                  {"pre", args.pre.data, extents.pre},
                  {"gate", args.gate.data, extents.gate},
                  {"residual", args.residual.data, extents.residual},
                  {"w", args.w, extents.w},
                  {"bias", args.bias, extents.bias},
                  {"workspace", args.workspace, extents.workspace},
                  {"source", args.source.data, extents.vectors[scan::kSource]},
                  {"target", args.target.data, extents.vectors[scan::kTarget]},
                  {"decay", args.decay.data, extents.vectors[scan::kDecay]},
                  {"diagonal", args.diagonal.data, extents.vectors[scan::kDiagonal]}};
  for (int i = 0; i < SeenPointers::kArguments; ++i) {
    const auto [name, pointer, extent] = pointers[i];
    if (pointer == nullptr) continue;
    const auto address = reinterpret_cast<uintptr_t>(pointer);
    std::atomic<const void*>* slot =
        seen == nullptr ? nullptr : &seen->slots[i][(address >> 9 ^ address >> 21) % SeenPointers::kSlots];
    if (slot != nullptr && slot->load(std::memory_order_relaxed) == pointer) continue;
    int memory = 0, ordinal = -1, managed = 0, whole = 0;
    CUdeviceptr begin = 0;
    size_type size = 0;
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_IS_MANAGED,       CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE};
    void* values[] = {&memory, &ordinal, &managed, &whole, &begin, &size};
    const CUresult result = device.api().cuPointerGetAttributes(6, wanted, values, address);
    const auto here = [&] { return "device " + std::to_string(device.info().ordinal); };
    if (result != CUDA_SUCCESS || memory == 0)
      return bad_request(std::string(name) + " (" + hex(address) +
                         ") is not device memory: it is a host pointer, or was freed; pass memory of " +
                         here());
    if (managed == 0 && memory == CU_MEMORYTYPE_HOST)
      return bad_request(std::string(name) + " (" + hex(address) +
                         ") is page-locked host memory; copy it to memory of " + here());
    if (managed == 0 && ordinal != device.info().ordinal)
      return bad_request(std::string(name) + " (" + hex(address) + ") is memory of device " +
                         std::to_string(ordinal) + ", the plan is for " + here() +
                         "; copy it there, or make a plan for device " + std::to_string(ordinal));
    const uint64_t behind = begin + size - address;  // bytes from here to the end of the allocation
    if (whole != 0 && managed == 0 && size > 0 &&
        address - begin<size&& static_cast<uint64_t>(extent)> behind)
      return bad_request(std::string(name) + " (" + hex(address) + ") reaches over " +
                         std::to_string(extent) + " bytes, its allocation ends after " +
                         std::to_string(behind) +
                         "; pass memory of the problem's sizes and of the strides that the call names");
    if (slot != nullptr) slot->store(pointer, std::memory_order_relaxed);
  }
  return llvm::Error::success();
}

}  // namespace trigen
