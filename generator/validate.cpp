#include <initializer_list>

#include "generator/error.h"
#include "generator/problem_fields.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 62;

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
  const OpRow& op = op_row(p.op);
  for (const ProblemField& field : problem_fields()) {
    if (field.kind != ProblemField::kSize) continue;
    const int64_t value = field.get(p), low = field.low(p), high = field.high(p);
    if (!field.takes(p.op) && value != field.fallback(p)) {
      const std::string own = (op.name + " " + llvm::StringRef(op.lacks)).str();
      return bad_request(field.key + "=" + llvm::Twine(value) + " with " + op.name + "; " +
                         (field.elsewhere.empty() ? own : field.elsewhere) + "; leave " + field.key + " out");
    }
    if (field.takes(p.op) && low != ProblemField::kNoValue && (value < low || value > high))
      return bad_request(field.key + "=" + llvm::Twine(value) + "; allowed are " + llvm::Twine(low) + " to " +
                         llvm::Twine(high) + "; " + field.hint);
  }

  if (op.takes(kStepsField) && p.T > kMostStepRows)
    return bad_request("T=" + llvm::Twine(p.T) + " with " + op.name + "; allowed are 1 to " +
                       llvm::Twine(kMostStepRows) +
                       ", a matrix's shorter side; give larger ones to gram, product by product");
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
      return bad_request(c.name + " is larger than " + llvm::Twine(kMaxCoordinate) +
                         ", what the kernels' 32-bit tile coordinates allow; " + c.hint);
  if (product({p.B, p.H, p.T, p.D, element_size(p.dtype)}, kMaxBytes) < 0)
    return bad_request("B*H*T*D elements pass 2^62 bytes; allowed are fewer, split the batch");
  return llvm::Error::success();
}

llvm::Error check_weights(const Problem& p) {
  const std::string form = "w=" + to_string(p.w).str();
  if (p.w != WeightForm::kDense && !op_row(p.op).takes(kFormField))
    return bad_request(
        form + " with " + to_string(p.op) +
        "; only forward, grad_input and grad_weight take numbers that stand for W; leave w out");
  if (p.w == WeightForm::kBand && (p.width < 1 || p.width > p.T))
    return bad_request("width=" + llvm::Twine(p.width) + " with w=band; allowed are 1 to T=" +
                       llvm::Twine(p.T) + "; give the tokens of a row of the band, its diagonal included");
  if (p.w != WeightForm::kBand && p.width != 0)
    return bad_request("width=" + llvm::Twine(p.width) + " with " + form +
                       "; only a band has one; add w=band or leave width out");
  const WeightRows rows = weight_rows(p);
  if (product({p.H, rows.count, rows.elements, element_size(p.wdtype)}, kMaxBytes) < 0)
    return bad_request((p.w == WeightForm::kDense ? "H*T*T*K" : "H*T*width") +
                       llvm::Twine(" weights pass 2^62 bytes; allowed are fewer, split the heads"));
  if (p.w == WeightForm::kDense) return llvm::Error::success();
  const auto refuse = [&](const llvm::Twine& found, const char* allowed) {
    return bad_request(found + " with " + form + "; allowed is " + allowed + "; use w=dense for the others");
  };
  if (p.K != 1) return refuse("K=" + llvm::Twine(p.K) + " taps", "K=1");
  if (p.diag != 0) return refuse("diag=" + llvm::Twine(p.diag), "diag=0");
  if (p.fill != Fill::kLower) return refuse("fill=" + to_string(p.fill), "fill=lower");
  return llvm::Error::success();
}

bool known(const Problem& p) {
  return llvm::all_of(problem_fields(), [&](const ProblemField& field) {
    return field.kind != ProblemField::kName || field.knows(field.get(p));
  });
}

llvm::Error check_types(const Problem& p) {
  if (p.wdtype != p.dtype && (p.dtype == DType::kF32 || p.wdtype != DType::kF32))
    return bad_request("wdtype=" + to_string(p.wdtype) + " with dtype=" + to_string(p.dtype) +
                       "; allowed are " + to_string(p.dtype) + (p.dtype == DType::kF32 ? "" : " and f32") +
                       "; convert the weights");
  if (p.dtype == DType::kF32 && p.math == Math::kDefault)
    return bad_request(
        "math=default with dtype=f32; allowed are simt, tf32 and f16x3; choose simt for full f32 accuracy");
  const OpRow& op = op_row(p.op);
  const bool other_math = !op.takes(kMathField) && p.math != Math::kSimt && p.dtype == DType::kF32;
  if (op.product && other_math)
    return bad_request("math=" + to_string(p.math) + " with " + to_string(p.op) +
                       "; it reads more than it multiplies and has math=simt only; leave math out");
  if (other_math || (!op.takes(kWeightTypeField) && p.wdtype != p.dtype) ||
      (!op.takes(kFillField) && p.fill != Fill::kLower))
    return bad_request("fill, wdtype or math with " + to_string(p.op) +
                       "; it has no choice of these; leave them out");
  if (p.dtype != DType::kF32 && p.math != Math::kDefault)
    return bad_request("math=" + to_string(p.math) + " with dtype=" + to_string(p.dtype) +
                       "; it chooses how f32 is multiplied; leave it out");
  struct Alignment {
    llvm::StringLiteral name;
    int64_t value;
    DType dtype;
  };
  for (const Alignment& a : {Alignment{"align", p.align, p.dtype}, Alignment{"walign", p.walign, p.wdtype}}) {
    if (a.value != 16 && a.value != 8 && a.value != 4 && a.value != 2)
      return bad_request(a.name + "=" + llvm::Twine(a.value) + "; allowed are 16, 8, 4 and 2 bytes");
    if (a.value < element_size(a.dtype))
      return bad_request(a.name + "=" + llvm::Twine(a.value) + " with " + to_string(a.dtype) +
                         " elements; allowed are " + llvm::Twine(element_size(a.dtype)) +
                         " to 16 bytes; align pointers and strides to their elements");
  }
  return llvm::Error::success();
}

llvm::Error check_epilogue(const Problem& p) {
  Problem refused;
  for (const ProblemField& field : problem_fields())
    if (field.place == ProblemField::kPart && !field.takes(p.op)) field.set(refused, field.get(p));
  if (refused.epilogue != Epilogue{})
    return bad_request("epilogue " + to_string(refused.epilogue) + " with " + to_string(p.op) +
                       "; allowed are " + all_of(epilogue_words(bit(p.op))) + "; compute the rest outside");
  const Epilogue& e = p.epilogue;
  if (e.pre && e.act == Activation::kNone && !e.gate)
    return bad_request(
        "epilogue pre without an activation or a gate stores the output twice; allowed is pre with gelu, "
        "silu or "
        "gate; leave pre out");
  if (const char* bare = op_row(p.op).bare; bare != nullptr && e.act == Activation::kNone && !e.gate)
    return bad_request(to_string(p.op) + " without an activation or a gate " + bare);
  return llvm::Error::success();
}

}  // namespace

llvm::Error validate(const Problem& problem) {
  if (!known(problem))
    return bad_request(
        "an enumeration of the problem has a value that does not exist; allowed are those of "
        "templates/config.h");
  if (llvm::Error error = check_sizes(problem)) return error;
  if (llvm::Error error = check_weights(problem)) return error;
  if (llvm::Error error = check_types(problem)) return error;
  return check_epilogue(problem);
}

}  // namespace trigen
