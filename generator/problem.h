// A problem: what to compute. One canonical text form, printed and parsed here, used in the CLI, tests, logs,
// caches and error messages.
//
// The ops and their formulas are the rows of ops.def. An epilogue is a sum of the parts that the op takes, such as
// bias+gelu+gate of forward.
//
// Text form: the op, then key=value pairs, separated by commas (spaces are accepted too). Canonical order;
// sizes always printed, the rest only where it differs from the default:
//
//   forward,dtype=bf16,B=32,H=1,T=512,D=1024,K=1,pad=0
//   forward,dtype=bf16,B=16,H=4,T=1024,D=256,K=1,pad=0,layout=bdt,fill=upper,diag=2,align=2,epilogue=bias+gelu
//   grad_weight,dtype=f32,B=8,H=1,T=2048,D=1024,K=1,pad=0,math=tf32,epilogue=bias+accumulate
//   decode,dtype=bf16,B=256,H=1,T=512,D=1024,K=1,pad=0,rows=4
//   forward,dtype=bf16,B=4,H=1,T=8192,D=1024,K=1,pad=0,w=band,width=256
//
// Keys, their order, defaults and ranges are the rows of problem_fields.def: H=1, K=1, pad=(K-1)/2 ('same' of
// nn.Conv1d), layout=btd, fill=lower, w=dense, wdtype=dtype, math=simt for f32 (or tf32, or f16x3:
// docs/decisions/0042), align and walign as contiguous tensors have them, no epilogue. op, dtype, B, T and D
// have no default, nor has a band's width.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "templates/config.h"

namespace trigen {

struct Epilogue {
  bool bias = false;  // grad_weight: grad_bias as a by-product
  Activation act = Activation::kNone;
  bool pre = false;
  bool gate = false;
  bool residual = false;
  bool accumulate = false;
  bool zero_outside = false;
  bool mirror = false;
  bool grad_input = false;  // scan_grad_weight: dx as a by-product
  bool operator==(const Epilogue&) const = default;
};

struct Problem {
  Op op = Op::kForward;
  DType dtype = DType::kBF16;
  DType wdtype = DType::kBF16;  // dtype, or f32 while dtype is 16-bit
  Math math = Math::kDefault;
  int64_t B = 0, H = 1, T = 0, D = 0, K = 1, pad = 0;
  int64_t rows = 1;  // decode: the most rows of one run; T is the capacity. 1 for the other ops
  Layout layout = Layout::kBTD;
  Fill fill = Fill::kLower;
  int64_t diag = 0;
  WeightForm w = WeightForm::kDense;  // toeplitz, band: K = 1, diag = 0, lower
  int64_t width = 0;                  // band: the tokens of a row of W, 1 to T; 0 for the others
  // Bytes that every pointer and stride (in bytes) is a multiple of: 16, 8, 4 or 2, and no less than an
  // element.
  int64_t align = 16;    // x, y and what has their shape
  int64_t walign = 16;   // W or dW
  int64_t pointers = 0;  // gram: 1 if a run may name matrices by arrays of pointers
  Epilogue epilogue;
  bool operator==(const Problem&) const = default;
};

// Parses and validates. Errors name the token, what is allowed and where it stands.
llvm::Expected<Problem> parse_problem(llvm::StringRef text);
// A list: one problem per line, '#' starts a comment. Errors carry the line number.
llvm::Expected<std::vector<Problem>> parse_problem_list(llvm::StringRef text);
// The canonical text. parse_problem(to_string(p)) == p for every valid p.
std::string to_string(const Problem& problem);
// The same without the keys that have their defaults, for people: it parses back to the same problem.
std::string short_text(const Problem& problem);

// Sizes in range, products that fit the kernels' 32-bit tile coordinates and 63-bit element offsets, dtype
// and epilogue combinations that exist.
llvm::Error validate(const Problem& problem);
// The largest size or flattened coordinate (T, B*D, T*K ...): a tile more still fits 32 bits.
inline constexpr int64_t kMaxCoordinate = (int64_t{1} << 31) - (int64_t{1} << 16);

// Rows of one run of decode.
struct Rows {
  int64_t first = 0, count = 0;
};
// decode: the `rows` rows that read the most tokens, which counts, predictions and measurements are of unless
// they name others. Every row for the other ops.
Rows longest_rows(const Problem& problem);
// The tokens [first, last) that any of the rows reads; {0, 0} when there are none.
struct Tokens {
  int64_t first = 0, last = 0;
};
Tokens tokens_of_rows(const Problem& problem, Rows rows);
// newton_schulz: rows of a matrix, those of every target that has it, and steps.
inline constexpr int64_t kMostStepRows = 256, kUsualStepRows = 128, kMostSteps = 64;
inline constexpr int64_t kMaxDecodeRows = 64;  // more rows of one run are forward's work

// Sets align and walign to what contiguous tensors of these sizes with 16-byte aligned pointers have.
void set_contiguous_alignment(Problem& problem);

// Exact counts for one problem; multiply-adds count as two operations.
struct Totals {
  double triangle_flop;  // products inside the triangle only, without those with x's zero padding
  double dense_flop;     // what a masked dense product does
  double min_bytes;      // every input read once (triangle of W only), every output written once
  double min_written;    // of these, the outputs
};
Totals count_work(const Problem& problem);
Totals count_work(const Problem& problem, Rows rows);  // of a run of decode

int64_t element_size(DType dtype);  // bytes
llvm::StringRef to_string(Op op);
llvm::StringRef to_string(DType dtype);
llvm::StringRef to_string(Math math);
llvm::StringRef to_string(Layout layout);
llvm::StringRef to_string(Fill fill);
llvm::StringRef to_string(WeightForm form);
llvm::StringRef to_string(Activation act);
std::string to_string(const Epilogue& epilogue);  // "bias+gelu", "" when there is none

}  // namespace trigen
