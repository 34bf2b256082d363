#include <algorithm>
#include <initializer_list>

#include "generator/error.h"
#include "generator/problem.h"

namespace trigen {
namespace {

llvm::Error bad(const llvm::Twine& message) { return make_error(ErrorKind::kBadRequest, message); }

llvm::Error check_range(llvm::StringRef name, int64_t value, int64_t low, int64_t high,
                        llvm::StringRef hint) {
  if (value >= low && value <= high) return llvm::Error::success();
  return bad(name + "=" + llvm::Twine(value) + "; allowed are " + llvm::Twine(low) + " to " +
             llvm::Twine(high) + "; " + hint);
}

// factors > 0. The product, or -1 when it passes `limit`.
int64_t product(std::initializer_list<int64_t> factors, int64_t limit) {
  int64_t result = 1;
  for (int64_t factor : factors) {
    if (factor > limit / result) return -1;
    result *= factor;
  }
  return result;
}

llvm::Error check_sizes(const Problem& p) {
  struct Size {
    llvm::StringLiteral name;
    int64_t value;
    llvm::StringLiteral hint;
  };
  const Size sizes[] = {{"B", p.B, "give the batch size"},
                        {"H", p.H, "give the number of heads, 1 for none"},
                        {"T", p.T, "give the number of tokens"},
                        {"D", p.D, "give the features of one head"},
                        {"K", p.K, "give the number of taps, 1 for a plain product"}};
  for (const Size& size : sizes)
    if (llvm::Error error = check_range(size.name, size.value, 1, kMaxCoordinate, size.hint)) return error;
  if (llvm::Error error = check_range("pad", p.pad, 0, p.K - 1, "give 0 to K-1, (K-1)/2 for 'same'"))
    return error;
  if (p.op != Op::kDecode && p.rows != 1)
    return bad("rows=" + llvm::Twine(p.rows) + " with " + to_string(p.op) +
               "; only decode makes a few rows; leave rows out");
  if (p.op == Op::kDecode)
    if (llvm::Error error = check_range("rows", p.rows, 1, std::min(p.T, kMaxDecodeRows),
                                        "the most rows of one run; use forward for more"))
      return error;
  if (llvm::Error error =
          check_range("diag", p.diag, 1 - p.T, p.T - 1,
                      "outside that the triangle is empty or everything; use a dense product"))
    return error;

  struct Product {
    llvm::StringLiteral name;
    int64_t value;
    llvm::StringLiteral hint;
  };
  const Product coordinates[] = {
      {"B*D", product({p.B, p.D}, kMaxCoordinate), "split the batch"},
      {"H*D", product({p.H, p.D}, kMaxCoordinate), "split the heads"},
      {"T*K", product({p.T, p.K}, kMaxCoordinate), "use fewer tokens or taps"},
  };
  for (const Product& c : coordinates)
    if (c.value < 0)
      return bad(c.name + " is larger than " + llvm::Twine(kMaxCoordinate) +
                 ", what the kernels' 32-bit tile coordinates allow; " + c.hint);
  const int64_t max_bytes = int64_t{1} << 62;
  if (product({p.B, p.H, p.T, p.D, element_size(p.dtype)}, max_bytes) < 0)
    return bad("B*H*T*D elements pass 2^62 bytes; allowed are fewer, split the batch");
  if (product({p.H, p.T, p.T, p.K, element_size(p.wdtype)}, max_bytes) < 0)
    return bad("H*T*T*K weights pass 2^62 bytes; allowed are fewer, split the heads");
  return llvm::Error::success();
}

bool known(const Problem& p) {
  const auto in = [](auto value, int count) {
    return static_cast<int>(value) >= 0 && static_cast<int>(value) < count;
  };
  return in(p.op, 4) && in(p.dtype, 3) && in(p.wdtype, 3) && in(p.math, 4) && in(p.layout, 2) &&
         in(p.fill, 2) && in(p.epilogue.act, 3);
}

llvm::Error check_types(const Problem& p) {
  if (p.wdtype != p.dtype && (p.dtype == DType::kF32 || p.wdtype != DType::kF32))
    return bad("wdtype=" + to_string(p.wdtype) + " with dtype=" + to_string(p.dtype) + "; allowed are " +
               to_string(p.dtype) + (p.dtype == DType::kF32 ? "" : " and f32") + "; convert the weights");
  if (p.dtype == DType::kF32 && p.math == Math::kDefault)
    return bad(
        "math=default with dtype=f32; allowed are simt, tf32 and f16x3; choose simt for full f32 accuracy");
  if (p.op == Op::kDecode && p.math != Math::kSimt && p.dtype == DType::kF32)
    return bad("math=" + to_string(p.math) +
               " with decode; it reads more than it multiplies and has math=simt only; leave math out");
  if (p.dtype != DType::kF32 && p.math != Math::kDefault)
    return bad("math=" + to_string(p.math) + " with dtype=" + to_string(p.dtype) +
               "; it chooses how f32 is multiplied; leave it out");
  struct Alignment {
    llvm::StringLiteral name;
    int64_t value;
    DType dtype;
  };
  for (const Alignment& a : {Alignment{"align", p.align, p.dtype}, Alignment{"walign", p.walign, p.wdtype}}) {
    if (a.value != 16 && a.value != 8 && a.value != 4 && a.value != 2)
      return bad(a.name + "=" + llvm::Twine(a.value) + "; allowed are 16, 8, 4 and 2 bytes");
    if (a.value < element_size(a.dtype))
      return bad(a.name + "=" + llvm::Twine(a.value) + " with " + to_string(a.dtype) +
                 " elements; allowed are " + llvm::Twine(element_size(a.dtype)) +
                 " to 16 bytes; align pointers and strides to their elements");
  }
  return llvm::Error::success();
}

llvm::Error check_epilogue(const Problem& p) {
  Epilogue allowed;
  switch (p.op) {
    case Op::kForward:
    case Op::kDecode:
      allowed = {.bias = true, .act = p.epilogue.act, .pre = true, .gate = true, .residual = true};
      break;
    case Op::kGradInput:
      allowed = {.residual = true};
      break;
    case Op::kGradWeight:
      allowed = {.bias = true, .accumulate = true, .zero_outside = true};
      break;
  }
  const Epilogue& e = p.epilogue;
  Epilogue refused;
  refused.bias = e.bias && !allowed.bias;
  refused.act = allowed.act == e.act ? Activation::kNone : e.act;
  refused.pre = e.pre && !allowed.pre;
  refused.gate = e.gate && !allowed.gate;
  refused.residual = e.residual && !allowed.residual;
  refused.accumulate = e.accumulate && !allowed.accumulate;
  refused.zero_outside = e.zero_outside && !allowed.zero_outside;
  if (refused != Epilogue{}) {
    llvm::StringRef list = p.op == Op::kForward || p.op == Op::kDecode
                               ? "bias, gelu, silu, pre, gate and residual"
                           : p.op == Op::kGradInput ? "residual"
                                                    : "bias, accumulate and zero_outside";
    return bad("epilogue " + to_string(refused) + " with " + to_string(p.op) + "; allowed are " + list +
               "; compute the rest outside");
  }
  if (e.pre && e.act == Activation::kNone && !e.gate)
    return bad(
        "epilogue pre without an activation or a gate stores the output twice; allowed is pre with gelu, "
        "silu or "
        "gate; leave pre out");
  return llvm::Error::success();
}

}  // namespace

llvm::Error validate(const Problem& problem) {
  if (!known(problem))
    return bad(
        "an enumeration of the problem has a value that does not exist; allowed are those of "
        "templates/config.h");
  if (llvm::Error error = check_sizes(problem)) return error;
  if (llvm::Error error = check_types(problem)) return error;
  return check_epilogue(problem);
}

}  // namespace trigen
