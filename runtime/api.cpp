// The C boundary: version, errors, problems.
#include "runtime/api.h"

#include <cstring>

#include "llvm/ADT/Twine.h"

namespace trigen::api {
namespace {

thread_local std::string last_error;

llvm::Error bad(const llvm::Twine& text) { return make_error(ErrorKind::kBadRequest, text); }

// Size fields that are too large for the structure's own version are a caller that was built against another
// header.
template <typename T>
llvm::Error check_struct(const T* value, const char* name, const char* advice) {
  if (value == nullptr) return bad(llvm::Twine(name) + " is null");
  if (value->struct_size != sizeof(T))
    return bad(llvm::Twine(name) + " has struct_size " + llvm::Twine(value->struct_size) +
               ", this library's is " + llvm::Twine(sizeof(T)) + "; " + advice);
  return llvm::Error::success();
}

llvm::Error check_enum(const char* field, int value, int count, const char* allowed) {
  if (value >= 0 && value < count) return llvm::Error::success();
  return bad(llvm::Twine("trigen_problem.") + field + " is " + llvm::Twine(value) + "; allowed are " +
             allowed);
}

void store(const Problem& from, trigen_problem* to) {
  *to = {};
  to->struct_size = sizeof(trigen_problem);
  to->op = static_cast<int>(from.op);
  to->dtype = static_cast<int>(from.dtype);
  to->wdtype = static_cast<int>(from.wdtype);
  to->math = static_cast<int>(from.math);
  to->layout = static_cast<int>(from.layout);
  to->fill = static_cast<int>(from.fill);
  to->B = from.B, to->H = from.H, to->T = from.T, to->D = from.D, to->K = from.K, to->pad = from.pad;
  to->rows = from.rows;
  to->diag = from.diag;
  to->align = from.align;
  to->walign = from.walign;
  to->bias = from.epilogue.bias;
  to->activation = static_cast<int>(from.epilogue.act);
  to->pre = from.epilogue.pre;
  to->gate = from.epilogue.gate;
  to->residual = from.epilogue.residual;
  to->accumulate = from.epilogue.accumulate;
  to->zero_outside = from.epilogue.zero_outside;
}

}  // namespace

trigen_status set_error(trigen_status status, std::string text) noexcept {
  last_error = std::move(text);
  return status;
}

trigen_status give(llvm::Error error) noexcept {
  if (!error) return TRIGEN_OK;
  try {
    ErrorText text = take_error(std::move(error));
    return set_error(static_cast<trigen_status>(text.kind), std::move(text.message));
  } catch (...) {
    return TRIGEN_INTERNAL_ERROR;
  }
}

llvm::Expected<Problem> problem_of(const trigen_problem* problem) {
  if (llvm::Error error =
          check_struct(problem, "trigen_problem", "start from trigen_problem_init or trigen_problem_parse"))
    return error;
  if (llvm::Error e = check_enum("op", problem->op, 4,
                                 "TRIGEN_FORWARD, TRIGEN_GRAD_INPUT, TRIGEN_GRAD_WEIGHT and TRIGEN_DECODE"))
    return e;
  if (llvm::Error e = check_enum("dtype", problem->dtype, 3, "TRIGEN_F16, TRIGEN_BF16 and TRIGEN_F32"))
    return e;
  if (llvm::Error e = check_enum("wdtype", problem->wdtype, 3, "TRIGEN_F16, TRIGEN_BF16 and TRIGEN_F32"))
    return e;
  if (llvm::Error e =
          check_enum("math", problem->math, 4,
                     "TRIGEN_MATH_DEFAULT, TRIGEN_MATH_SIMT, TRIGEN_MATH_TF32 and TRIGEN_MATH_F16X3"))
    return e;
  if (llvm::Error e = check_enum("layout", problem->layout, 2, "TRIGEN_BTD and TRIGEN_BDT")) return e;
  if (llvm::Error e = check_enum("fill", problem->fill, 2, "TRIGEN_LOWER and TRIGEN_UPPER")) return e;
  if (llvm::Error e = check_enum("activation", problem->activation, 3,
                                 "TRIGEN_ACT_NONE, TRIGEN_ACT_GELU and TRIGEN_ACT_SILU"))
    return e;
  Problem result;
  result.op = static_cast<Op>(problem->op);
  result.dtype = static_cast<DType>(problem->dtype);
  result.wdtype = static_cast<DType>(problem->wdtype);
  result.math = static_cast<Math>(problem->math);
  if (result.dtype == DType::kF32 && result.math == Math::kDefault) result.math = Math::kSimt;
  result.layout = static_cast<Layout>(problem->layout);
  result.fill = static_cast<Fill>(problem->fill);
  result.B = problem->B, result.H = problem->H, result.T = problem->T, result.D = problem->D,
  result.K = problem->K;
  result.pad = problem->pad, result.diag = problem->diag;
  result.rows = problem->rows != 0 ? problem->rows : 1;
  result.epilogue.bias = problem->bias != 0;
  result.epilogue.act = static_cast<Activation>(problem->activation);
  result.epilogue.pre = problem->pre != 0;
  result.epilogue.gate = problem->gate != 0;
  result.epilogue.residual = problem->residual != 0;
  result.epilogue.accumulate = problem->accumulate != 0;
  result.epilogue.zero_outside = problem->zero_outside != 0;
  set_contiguous_alignment(result);
  if (problem->align != 0) result.align = problem->align;
  if (problem->walign != 0) result.walign = problem->walign;
  if (llvm::Error error = validate(result)) return error;
  return result;
}

}  // namespace trigen::api

using namespace trigen;
using namespace trigen::api;

extern "C" {

int trigen_version(void) noexcept { return TRIGEN_VERSION; }

const char* trigen_version_string(void) noexcept { return TRIGEN_VERSION_TEXT; }

const char* trigen_status_name(trigen_status status) noexcept {
  switch (status) {
    case TRIGEN_OK:
      return "ok";
    case TRIGEN_BAD_REQUEST:
      return "bad request";
    case TRIGEN_UNSUPPORTED:
      return "unsupported";
    case TRIGEN_BUILD_ERROR:
      return "build error";
    case TRIGEN_DEVICE_ERROR:
      return "device error";
    case TRIGEN_CACHE_ERROR:
      return "cache error";
    case TRIGEN_INTERNAL_ERROR:
      return "internal error";
    case TRIGEN_NO_COMPILER:
      return "no compiler";
  }
  return "unknown status";
}

const char* trigen_last_error(void) noexcept { return last_error.c_str(); }

trigen_status trigen_problem_init(trigen_problem* problem, trigen_op op, trigen_dtype dtype, int64_t B,
                                  int64_t T, int64_t D) noexcept {
  if (problem == nullptr) return set_error(TRIGEN_BAD_REQUEST, "problem is null");
  *problem = {};
  problem->struct_size = sizeof(trigen_problem);
  problem->op = op;
  problem->dtype = dtype;
  problem->wdtype = dtype;
  problem->B = B, problem->H = 1, problem->T = T, problem->D = D, problem->K = 1, problem->rows = 1;
  return guarded([&] {
    auto checked = problem_of(problem);
    return checked ? TRIGEN_OK : give(checked.takeError());
  });
}

trigen_status trigen_problem_parse(const char* text, trigen_problem* problem) noexcept {
  if (text == nullptr || problem == nullptr)
    return set_error(TRIGEN_BAD_REQUEST, text == nullptr ? "text is null" : "problem is null");
  return guarded([&] {
    auto parsed = parse_problem(text);
    if (!parsed) return give(parsed.takeError());
    store(*parsed, problem);
    return TRIGEN_OK;
  });
}

trigen_status trigen_problem_format(const trigen_problem* problem, char* buffer, size_t size,
                                    size_t* needed) noexcept {
  return guarded([&] {
    auto checked = problem_of(problem);
    if (!checked) return give(checked.takeError());
    const std::string text = to_string(*checked);
    if (needed != nullptr) *needed = text.size() + 1;
    if (size > 0 && buffer == nullptr) return set_error(TRIGEN_BAD_REQUEST, "buffer is null");
    if (size > 0) {
      const size_t count = std::min(size - 1, text.size());
      std::memcpy(buffer, text.data(), count);
      buffer[count] = '\0';
    }
    return TRIGEN_OK;
  });
}

}  // extern "C"
