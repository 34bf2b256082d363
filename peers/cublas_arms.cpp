#include <algorithm>
#include <cmath>

#include "check/text.h"
#include "numerics/numbers.h"
#include "peers/cublas.h"

namespace trigen {

// One product a head, whatever the layout, needs tensors without gaps.
bool CublasPeer::serves(View view) const {
  const Problem& p = bench_.problem();
  if (view == View::kBatched) return true;
  if (view == View::kSplit) return parts(view) > 0;
  for (const Tensor& t : bench_.list().tensors)
    if (t.role != Role::kW && t.role != Role::kBias && t.elements != p.B * p.H * p.T * p.D) return false;
  if (op_row(p.op).takes(kRowsField)) return false;
  if (view > View::kSplit) return parts(view) > 0;
  if (p.K > 1) return view == View::kFlat && !columns_.empty();
  // what the batched calls are already
  if (view == View::kFlat) return p.layout == Layout::kBDT || p.B * p.H > 1;
  return p.layout == Layout::kBTD || p.H > 1;
}

bool CublasPeer::is_exact(View view) const {
  const Problem& p = bench_.problem();
  if (view == View::kBatched || view == View::kSplit) return true;
  if (view > View::kSplit) return p.layout == Layout::kBDT && (p.B == 1 || p.H == 1);
  if (p.K > 1 && makes_weights(p.op)) return false;  // dW is tap-major there
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
    if (all.size() != 1 || all.front().size() != 1 || (!addends_.empty() && parts(view) > 0)) return;
    sets.push_back(all.front().front());
  }
  Epilogue rest = epilogue ? p.epilogue : Epilogue{};
  rest.zero_outside = false;  // the dense product writes there, too
  if (makes_weights(p.op)) rest = {};
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
      product.addend = laid_out(view, set, Role::kResidual);
      product.beta = 1;
    }
    rest.residual = false;
    fused += " residual";
  }
  auto made = LtProduct::create(*library_, handle_, bench_, std::move(sets), terms,
                                device_pointer(workspace_), kWorkspaceBytes);
  const std::string name = p.K > 1                  ? "im2col"
                           : view == View::kBatched ? "batched"
                           : view == View::kFlat    ? "flat"
                           : view == View::kSplit   ? "split"
                           : view > View::kSplit
                               ? format("split, %lld parts", static_cast<long long>(parts(view)))
                               : "transposed";
  if (!made) {
    notes.push_back("cublaslt " + name + fused + ": " + take_error(made.takeError()).message);
    return;
  }
  lt_.push_back(std::move(*made));
  const LtProduct* product = lt_.back().get();
  Arm arm;
  arm.name = "cublaslt " + name + (fused.empty() ? "" : "," + fused);
  arm.note = format("choice %zu of %d timed", product->chosen() + 1, product->choices());
  arm.exact = is_exact(view) && (epilogue || p.epilogue == Epilogue{} || makes_weights(p.op));
  arm.launch = [this, view, product](int set, cuda::CUstream stream) -> llvm::Error {
    if (auto error = product->run(set, stream)) return error;
    return add_parts(view, set, stream);
  };
  finish(arm, rest, notes);
  out.push_back(std::move(arm));
}

std::vector<CublasPeer::Arm> CublasPeer::arms(bool epilogue, std::vector<std::string>& notes) {
  const Problem& p = bench_.problem();
  const bool weight = makes_weights(p.op);
  const bool bare = p.epilogue == Epilogue{} || weight;
  const ContextScope scope(bench_.device().api(), bench_.context());
  std::vector<Arm> out;
  for (const View view : {View::kBatched, View::kFlat, View::kSplit}) {
    if (!serves(view) || !addends_.empty()) continue;
    Arm arm;
    arm.name = view == View::kBatched ? "cublas batched"
               : view == View::kSplit ? "cublas split"
               : p.K > 1              ? "cublas im2col"
                                      : "cublas flat";
    if (view == View::kSplit) arm.note = "a product a batch, and a pass that adds them";
    if (view == View::kFlat) arm.note = "data laid out as [T,B*D], which it is not; for the time alone";
    if (view == View::kFlat && p.K > 1)
      arm.note = "im2col made beforehand, which costs nothing; for the time alone";
    if (view == View::kBatched && p.K > 1) arm.note = "one product per tap over a padded copy";
    arm.launch = [this, view](int set, cuda::CUstream stream) { return run(view, set, stream); };
    arm.exact = is_exact(view) && (epilogue || bare);
    if (epilogue && !bare) finish(arm, p.epilogue, notes);
    out.push_back(std::move(arm));
  }
  if (serves(View::kFlat) && p.K == 1 && p.H == 1 && p.diag == 0 && p.layout == Layout::kBTD &&
      p.dtype == DType::kF32 && !weight && p.math != Math::kTF32) {
    Arm arm;
    arm.name = "cublas strmm";
    arm.note = "data laid out as [T,B*D]; for the time alone";
    arm.launch = [this](int set, cuda::CUstream stream) { return trmm(set, stream); };
    if (epilogue && !bare) finish(arm, p.epilogue, notes);
    out.push_back(std::move(arm));
  }
  for (const View view :
       {View::kBatched, View::kFlat, View::kTransposed, View::kSplit, View::kFewParts, View::kManyParts})
    add_lt(view, epilogue, out, notes);
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
  const Tensor& t = bench_.list().output();
  const Role role = t.role;
  std::vector<std::byte> planes;
  const HostBuffers* buffers = nullptr;
  if (role == Role::kW) {
    planes.resize(static_cast<size_t>(p.H * p.K * plane_elements() * element_size(plane_type_)));
    if (auto error = bench_.device().driver().check(
            bench_.device().api().cuMemcpyDtoH(planes.data(), weights_[0], planes.size()), "cuMemcpyDtoH"))
      return error;
  } else {
    auto downloaded = bench_.download();
    if (!downloaded) return downloaded.takeError();
    buffers = &*downloaded;
  }
  double squares = 0;
  double norm = 0;
  const auto& expected = reference.expected(role);
  const size_t columns = reference.columns().size();
  for (size_t i = 0; i < expected.size(); ++i) {
    const int64_t row = reference.rows()[i / columns];
    const int64_t column = reference.columns()[i % columns];
    const int64_t h = row / p.T;
    double got = 0;
    if (role == Role::kW) {
      const int64_t s = column / p.K;
      if (!in_triangle(p, row % p.T, s)) continue;
      got = load_element(plane_type_, planes.data(),
                         ((h * p.K + column % p.K) * p.T + row % p.T) * plane_row_ + s);
      if (op_row(p.op).takes(kFactorsField) && s == row % p.T)
        got += kCheckedGamma;  // which cuBLAS leaves out
    } else {
      got = load_element(t.dtype, data_of(bench_.list(), t, *buffers), output_index(p, t, row, column));
    }
    squares += (got - expected[i]) * (got - expected[i]);
    norm += expected[i] * expected[i];
  }
  return norm > 0 ? std::sqrt(squares / norm) : 0;
}

}  // namespace trigen
