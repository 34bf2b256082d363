// The ops as rows of a table (ops.def): what everything but the kernels and their families knows of an op.
#pragma once

#include <array>
#include <iterator>
#include <optional>

#include "generator/problem.h"
#include "llvm/ADT/ArrayRef.h"

namespace trigen {

// A tensor's place in trigen_args (trigen.h) and Params (templates/params.h).
enum class Role : int { kX = 0, kY = 1, kW = 2, kBias = 3, kPre = 4, kGate = 5, kResidual = 6 };
inline constexpr size_t kRoles = 7;
const char* to_string(Role role);  // "x", as trigen_args has it

// Axes of a tensor: x's (b,h,t,d), W's (h,t,s,j) of which the triangle alone is used, bias's (h,t), those of a W that is
// vectors (h,i,t) (templates/scan.h), and the numbers of newton_schulz, which all matrices share: K triples and eps, f32.
enum class Axes : int { kActivations, kWeights, kRows, kVectors, kSteps };

// One tensor of an op.
struct OpTensor {
  Role role = Role::kX;
  const char* symbol = nullptr;  // its name in the op's formula: "dx"; null: no tensor
  Axes axes = Axes::kActivations;
  bool written = false;            // else read; with `accumulate` what is written is read, too
  bool Epilogue::*part = nullptr;  // the part of the epilogue that it comes with; null: always there

  constexpr OpTensor with(bool Epilogue::*comes_with) const {
    return {role, symbol, axes, written, comes_with};
  }
  constexpr bool is_in(const Epilogue& e) const { return part == nullptr || e.*part; }
  constexpr bool is_read(const Epilogue& e) const { return !written || e.accumulate; }
};

// C[m,n] = sum over k of A[m,k] B[k,n] for each head. The tensor with W's axes is triangular. m is a token; n and k are
// the other token with its taps, (s,j), or all batches' features, (b,d).
struct ProductForm {
  Role a, b, c;
  bool transposed = false;  // A[m,k] is W[k,m]: the fill is the other one, taps shift the other way
};

// Fields of a problem that not every op takes.
enum OpFields : unsigned {
  kTapFields = 1,            // K, pad
  kDiagonalField = 2,        // diag
  kFillField = 4,            // fill
  kWeightTypeField = 8,      // wdtype
  kMathField = 16,           // math: other ways to multiply f32 than simt
  kRowsField = 32,           // rows: each run names the rows that it makes
  kFactorsField = 64,        // no key: each run names alpha, beta and gamma
  kFormField = 128,          // w, width: numbers that stand for W
  kStepsField = 256,         // K: steps of an iteration
  kPointersField = 512,      // no key: each run may give arrays of pointers (takes_pointers)
  kPointersKeyField = 1024,  // pointers: a run may do that where it is 1
  kWeightFields = kTapFields | kDiagonalField | kFillField | kWeightTypeField
};

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): in the order in which a row is read
struct OpRow {
  Op op;
  llvm::StringLiteral name, cpp, entry;  // in texts, C and Python; of Op's enumerator; of the kernel
  OpTensor tensors[kRoles] = {};  // in the order of a TensorList; the first that is written is the output
  std::optional<ProductForm> product = std::nullopt;
  // Terms of the sum of one output; without a product few enough to be added one by one.
  int64_t (*terms)(const Problem& p) = [](const Problem&) { return int64_t{1}; };
  unsigned fields = 0;          // OpFields
  const char* lacks = nullptr;  // why it takes no taps and diagonal: "OP takes activations alone, ..."
  Epilogue parts = {};          // that it takes, all of them set
  const char* bare = nullptr;   // why its epilogue must not be empty: "OP copies dy; ..."; null: it may be

  constexpr bool takes(unsigned wanted) const { return (fields & wanted) == wanted; }
  // Without symbols there are no more.
  llvm::ArrayRef<OpTensor> list() const {
    size_t count = 0;
    while (count < kRoles && tensors[count].symbol != nullptr) ++count;
    return llvm::ArrayRef(tensors, count);
  }
  constexpr const OpTensor& output() const {
    size_t at = 0;
    while (!tensors[at].written) ++at;
    return tensors[at];
  }
};

namespace op_rows {

constexpr Activation kAnyActivation = Activation::kGELU;
constexpr OpTensor read(Role role, const char* symbol, Axes axes = Axes::kActivations) {
  return {role, symbol, axes};
}
constexpr OpTensor written(Role role, const char* symbol, Axes axes = Axes::kActivations) {
  return {role, symbol, axes, true};
}

// clang-format off
#define TRIGEN_COUNT(expression) [](const Problem& p) -> int64_t { return expression; }
#define TRIGEN_OP(name_, cpp_, ...) \
  {.op = Op::k##cpp_, .name = #name_, .cpp = #cpp_, .entry = "trigen_" #name_, __VA_ARGS__},
// clang-format on
inline constexpr OpRow kRows[] = {
#include "generator/ops.def"
};
#undef TRIGEN_COUNT

// Place + 1 of a role's tensor in the row of an op; 0: it has none.
inline constexpr auto kPlaces = [] {
  std::array<std::array<unsigned char, kRoles>, std::size(kRows)> places = {};
  for (size_t op = 0; op < std::size(kRows); ++op)
    for (size_t i = 0; i < kRoles && kRows[op].tensors[i].symbol != nullptr; ++i)
      places[op][static_cast<size_t>(kRows[op].tensors[i].role)] = static_cast<unsigned char>(i + 1);
  return places;
}();

constexpr bool are_in_order() {
  for (size_t i = 0; i < std::size(kRows); ++i)
    if (kRows[i].op != static_cast<Op>(i)) return false;
  return true;
}
static_assert(are_in_order(), "the rows of ops.def stand in the order of Op");

constexpr bool agree_with_kernels() {
  for (const OpRow& row : kRows)
    if (makes_weights(row.op) != (row.output().axes == Axes::kWeights) ||
        makes_vectors(row.op) != (row.output().axes == Axes::kVectors))
      return false;
  return true;
}
static_assert(
    agree_with_kernels(),
    "makes_weights and makes_vectors (templates/config.h) are of the ops whose output has these axes");

}  // namespace op_rows

constexpr const OpRow& op_row(Op op) { return op_rows::kRows[static_cast<size_t>(op)]; }
// The op's tensor of that role; null: it has none.
constexpr const OpTensor* tensor_of(Op op, Role role) {
  const int place = op_rows::kPlaces[static_cast<size_t>(op)][static_cast<size_t>(role)];
  return place == 0 ? nullptr : &op_row(op).tensors[place - 1];
}
// "x (dx)": role and symbol, where these differ.
std::string argument_name(Op op, Role role);

constexpr unsigned bit(Op op) { return 1u << static_cast<unsigned>(op); }
// The ops that take these fields, or a part of the epilogue.
constexpr unsigned ops_with(unsigned fields) {
  unsigned ops = 0;
  for (const OpRow& row : op_rows::kRows) ops |= row.takes(fields) ? bit(row.op) : 0;
  return ops;
}
template <class Part>
constexpr unsigned ops_with(Part Epilogue::*part) {
  unsigned ops = 0;
  for (const OpRow& row : op_rows::kRows) ops |= row.parts.*part != Part{} ? bit(row.op) : 0;
  return ops;
}

constexpr bool is_product(Op op) { return op_row(op).product.has_value(); }
// A product of all rows: what tiles make.
constexpr bool is_whole_product(Op op) { return is_product(op) && !op_row(op).takes(kRowsField); }
// It multiplies with W transposed.
constexpr bool transposes(Op op) { return is_product(op) && op_row(op).product->transposed; }

// Does a run that makes a few rows have these alone of the tensor, not all tokens as of what is multiplied?
constexpr bool has_rows_alone(Op op, Role role) {
  return op_row(op).takes(kRowsField) && role != op_row(op).product->b;
}

// Its W is vectors.
constexpr bool is_scan(Op op) {
  const OpTensor* w = tensor_of(op, Role::kW);
  return w != nullptr && w->axes == Axes::kVectors;
}
// May a run give an array of pointers in a tensor's place? Of newton_schulz to what each b has of x or y; of gram to a matrix for
// each h of any tensor.
inline bool takes_pointers(const Problem& p) {
  const OpRow& op = op_row(p.op);
  return op.takes(kPointersField) && (!op.takes(kPointersKeyField) || p.pointers != 0);
}
inline bool takes_pointers(const Problem& p, const OpTensor& tensor) {
  return takes_pointers(p) && (p.pointers != 0 || tensor.axes == Axes::kActivations);
}
// Pointers of such an array.
inline int64_t pointer_count(const Problem& p) { return p.pointers != 0 ? p.H : p.B; }

// Numbers of newton_schulz's w.
inline int64_t step_numbers(const Problem& p) { return 3 * p.K + 1; }

inline constexpr const char* kVectorNames[scan::kVectors] = {"source", "target", "decay", "diagonal"};

// Rows and their elements that one head's W has in memory. A Toeplitz matrix is one row, by the distance t - s.
struct WeightRows {
  int64_t count, elements;
};
inline WeightRows weight_rows(const Problem& p) {
  if (p.w == WeightForm::kToeplitz) return {1, p.T};
  return {p.T, p.w == WeightForm::kBand ? p.width : p.T * p.K};
}

// Columns of a head's output of these axes, whose rows are tokens: (b,d), (s,j), a W's vectors, or one of a bias. The
// gradient of a Toeplitz matrix is one column, too, the sums of diagonals that begin at (t, 0).
inline int64_t output_columns(const Problem& p, Axes axes) {
  if (axes == Axes::kActivations) return p.B * p.D;
  if (axes == Axes::kVectors) return scan::kVectors;
  return axes == Axes::kWeights && p.w != WeightForm::kToeplitz ? p.T * p.K : 1;
}
inline int64_t output_columns(const Problem& p) { return output_columns(p, op_row(p.op).output().axes); }

// Terms of the sum of one output.
inline int64_t sum_terms(const Problem& p) { return op_row(p.op).terms(p); }
// Of an output of these axes: dx beside vectors is a sum over tokens alone.
inline int64_t sum_terms(const Problem& p, Axes axes) {
  return makes_vectors(p.op) && axes == Axes::kActivations ? p.T : sum_terms(p);
}

}  // namespace trigen
