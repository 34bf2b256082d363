#include "peers/cublas_lt.h"

#include <algorithm>

#include "check/text.h"

namespace trigen {
namespace {

// cublasLtMatmulDescAttributes_t
constexpr int kTransposeA = 3, kTransposeB = 4, kEpilogue = 7, kBiasPointer = 8, kBiasBatchStride = 10,
              kBiasType = 26;
// cublasLtEpilogue_t
constexpr uint32_t kNoEpilogue = 1, kAddBias = 4, kGelu = 32;
// cublasLtMatrixLayoutAttribute_t
constexpr int kBatchCount = 5, kBatchOffset = 6;
// cublasLtMatmulPreferenceAttributes_t
constexpr int kMaxWorkspace = 1, kMinAlignmentA = 5, kMinAlignmentB = 6, kMinAlignmentC = 7,
              kMinAlignmentD = 8;
constexpr uint64_t kMostAlignment = 256;  // more is not asked about

// Bytes that the pointer of every set and batch is a multiple of.
uint32_t alignment(const std::vector<Product>& sets, const void* Product::*pointer, int64_t stride_bytes) {
  uint64_t all = kMostAlignment | static_cast<uint64_t>(stride_bytes);
  for (const Product& product : sets) all |= reinterpret_cast<uint64_t>(product.*pointer);
  return static_cast<uint32_t>(all & (~all + 1));
}

}  // namespace

llvm::Error LtProduct::failed(const char* call, int status) const {
  return make_error(ErrorKind::kDevice, std::string(call) + " failed with status " + std::to_string(status) +
                                            " for " + to_string(bench_.problem()));
}

llvm::Expected<std::unique_ptr<LtProduct>> LtProduct::create(const CublasLibrary& library, void* handle,
                                                             Workbench& bench, std::vector<Product> sets,
                                                             const LtTerms& terms, void* workspace,
                                                             size_t workspace_bytes) {
  if (library.lt() == nullptr)
    return make_error(ErrorKind::kUnsupported,
                      library.path() + " comes without cublaslt of CUDA 11.8 or newer");
  std::unique_ptr<LtProduct> made(new LtProduct(library, handle, bench, std::move(sets)));
  made->workspace_ = workspace;
  made->workspace_bytes_ = workspace_bytes;
  if (auto error = made->describe(terms)) return error;
  auto offered = made->ask();
  if (!offered) return offered.takeError();
  if (auto error = made->choose(*offered)) return error;
  return made;
}

LtProduct::~LtProduct() {
  const CublasLibrary::LtApi& lt = *library_.lt();
  for (void* layout : {a_, b_, c_})
    if (layout != nullptr) lt.layout_destroy(layout);
  if (desc_ != nullptr) lt.desc_destroy(desc_);
}

llvm::Error LtProduct::describe(const LtTerms& terms) {
  const CublasLibrary::LtApi& lt = *library_.lt();
  const Problem& p = bench_.problem();
  const Product& product = sets_.front();
  if (const int status = lt.desc_create(&desc_, cublas_compute(p), cublas_type(DType::kF32)))
    return failed("cublasLtMatmulDescCreate", status);
  int status = 0;
  const auto set = [&](int attribute, const auto& value) {
    if (status == 0) status = lt.desc_set(desc_, attribute, &value, sizeof value);
  };
  set(kTransposeA, static_cast<int32_t>(product.transpose_a));
  set(kTransposeB, static_cast<int32_t>(product.transpose_b));
  const uint32_t epilogue = (terms.gelu ? kGelu : 0) | (terms.bias != nullptr ? kAddBias : 0);
  set(kEpilogue, epilogue != 0 ? epilogue : kNoEpilogue);
  if (terms.bias != nullptr) {
    set(kBiasPointer, terms.bias);
    set(kBiasType, static_cast<int32_t>(cublas_type(product.ctype)));
    if (product.batch > 1) set(kBiasBatchStride, terms.bias_stride);
  }
  if (status != 0) return failed("cublasLtMatmulDescSetAttribute", status);

  const auto layout = [&](void** made, DType type, int64_t rows, int64_t columns, int64_t ld,
                          int64_t stride) {
    if (status == 0)
      status = lt.layout_create(made, cublas_type(type), static_cast<uint64_t>(rows),
                                static_cast<uint64_t>(columns), ld);
    const auto batch = static_cast<int32_t>(product.batch);
    if (status == 0) status = lt.layout_set(*made, kBatchCount, &batch, sizeof batch);
    if (status == 0) status = lt.layout_set(*made, kBatchOffset, &stride, sizeof stride);
  };
  const bool ta = product.transpose_a, tb = product.transpose_b;
  layout(&a_, p.dtype, ta ? product.k : product.m, ta ? product.m : product.k, product.lda, product.stride_a);
  layout(&b_, p.dtype, tb ? product.n : product.k, tb ? product.k : product.n, product.ldb, product.stride_b);
  layout(&c_, product.ctype, product.m, product.n, product.ldc, product.stride_c);
  return status == 0 ? llvm::Error::success() : failed("cublasLtMatrixLayoutCreate", status);
}

llvm::Expected<std::vector<LtHeuristic>> LtProduct::ask() const {
  const CublasLibrary::LtApi& lt = *library_.lt();
  const Product& product = sets_.front();
  const int64_t size = element_size(bench_.problem().dtype);
  const int64_t size_c = element_size(product.ctype);
  void* preference = nullptr;
  int status = lt.preference_create(&preference);
  const auto set = [&](int attribute, const auto& value) {
    if (status == 0) status = lt.preference_set(preference, attribute, &value, sizeof value);
  };
  set(kMaxWorkspace, static_cast<uint64_t>(workspace_bytes_));
  std::vector<Product> outputs = sets_;
  for (Product& of : outputs) of.b = of.c, of.a = of.addend != nullptr ? of.addend : of.c;
  set(kMinAlignmentA, alignment(sets_, &Product::a, product.stride_a * size));
  set(kMinAlignmentB, alignment(sets_, &Product::b, product.stride_b * size));
  set(kMinAlignmentC, alignment(outputs, &Product::a, product.stride_c * size_c));
  set(kMinAlignmentD, alignment(outputs, &Product::b, product.stride_c * size_c));
  std::vector<LtHeuristic> offered(kAsked);
  int found = 0;
  if (status == 0)
    status = lt.heuristic(handle_, desc_, a_, b_, c_, c_, preference, kAsked, offered.data(), &found);
  if (preference != nullptr) lt.preference_destroy(preference);
  if (status != 0 || found == 0)
    return make_error(ErrorKind::kUnsupported,
                      format("cublaslt has no product of these sizes and terms (status %d)", status));
  offered.resize(static_cast<size_t>(found));
  return offered;
}

// Replays of a small graph over several sets; the first ones warm up.
llvm::Expected<double> LtProduct::seconds_of(const LtAlgorithm& algorithm) const {
  constexpr int kLeast = 4, kMost = 32, kWarm = 2, kTimed = 3;
  auto graph =
      TimedGraph::capture(bench_, std::clamp(bench_.sets(), kLeast, kMost),
                          [&](int set, cuda::CUstream stream) { return run_with(algorithm, set, stream); });
  if (!graph) return graph.takeError();
  double best = 0;
  for (int i = 0; i < kWarm + kTimed; ++i) {
    auto seconds = (*graph)->replay();
    if (!seconds) return seconds.takeError();
    if (i >= kWarm && (best == 0 || *seconds < best)) best = *seconds;
  }
  return best;
}

llvm::Error LtProduct::choose(const std::vector<LtHeuristic>& offered) {
  const ContextScope scope(bench_.device().api(), bench_.context());
  double least = 0;
  std::string why;
  for (const LtHeuristic& choice : offered) {
    if (choice.state != 0 || choice.workspace_bytes > workspace_bytes_) continue;
    // once outside any capture: libraries load their kernels at the first call
    auto error = run_with(choice.algorithm, 0, bench_.stream());
    if (!error) error = bench_.synchronize();
    double seconds = 0;
    if (!error && !bench_.device().info().emulated) {
      auto timed = seconds_of(choice.algorithm);
      if (timed)
        seconds = *timed;
      else
        error = timed.takeError();
    }
    if (error) {
      why = take_error(std::move(error)).message;
      continue;
    }
    found_.push_back(choice.algorithm);
    if (found_.size() == 1 || seconds < least) least = seconds, chosen_ = found_.size() - 1;
  }
  if (!found_.empty()) return llvm::Error::success();
  return make_error(ErrorKind::kUnsupported,
                    "none of cublaslt's choices runs" + (why.empty() ? "" : ": " + why));
}

llvm::Error LtProduct::run_with(const LtAlgorithm& algorithm, int set, cuda::CUstream stream) const {
  const Product& product = sets_[static_cast<size_t>(set)];
  const int status =
      library_.lt()->matmul(handle_, desc_, &product.alpha, product.a, a_, product.b, b_, &product.beta,
                            product.addend != nullptr ? product.addend : product.c, c_, product.c, c_,
                            &algorithm, workspace_, workspace_bytes_, stream);
  return status == 0 ? llvm::Error::success() : failed("cublasLtMatmul", status);
}

llvm::Error LtProduct::run(int set, cuda::CUstream stream) const {
  return run_with(found_[chosen_], set, stream);
}

}  // namespace trigen
