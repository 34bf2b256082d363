#include "runtime/canary_tensors.h"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <thread>

#include "numerics/numbers.h"
#include "runtime/arguments.h"

namespace trigen {

using namespace cuda;

namespace {

constexpr int64_t kGuard = 4 << 10;  // bytes on both sides of each tensor, which no kernel may write
constexpr int64_t kImage = 1 << 20;  // bytes; tensors that small are made on the host and come back whole
constexpr std::chrono::milliseconds kSpin{1};  // of a run's wait, before the first pause
constexpr std::chrono::microseconds kPause{100};

}  // namespace

Cage::~Cage() {
  if (stream_ != nullptr) {
    api_.cuStreamSynchronize(stream_);
    api_.cuStreamDestroy(stream_);
  }
  if (memory_ != 0) api_.cuMemFree(memory_);
}

CUresult Cage::open(int64_t bytes) {
  if (const CUresult result = api_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING); result != CUDA_SUCCESS)
    return result;
  return api_.cuMemAlloc(&memory_, static_cast<size_type>(bytes));
}

CUresult Cage::wait() const {
  for (const auto since = std::chrono::steady_clock::now();;) {
    const CUresult result = api_.cuStreamQuery(stream_);
    const auto waited = std::chrono::steady_clock::now() - since;
    if (result != CUDA_ERROR_NOT_READY || waited > kDeadline) return result;
    if (waited > kSpin) std::this_thread::sleep_for(kPause);
  }
}

CUresult Cage::fill(CUdeviceptr target, const std::vector<std::byte>& pattern, int64_t bytes) const {
  int64_t done = std::min(static_cast<int64_t>(pattern.size()), bytes);
  CUresult result = api_.cuMemcpyHtoDAsync(target, pattern.data(), static_cast<size_type>(done), stream_);
  while (result == CUDA_SUCCESS && done < bytes) {
    const int64_t more = std::min(done, bytes - done);
    result = api_.cuMemcpyDtoDAsync(target + static_cast<CUdeviceptr>(done), target,
                                    static_cast<size_type>(more), stream_);
    done += more;
  }
  return result;
}

CanaryTensors::CanaryTensors(const Plan& plan, int64_t gathered_bytes)
    : api_(plan.executable().device().api()),
      problem_(plan.problem()),
      workspace_bytes_(plan.workspace_bytes()),
      list_(tensors_of(problem_)),
      inputs_(problem_, list_),
      every_(ExpectedOutputs::takes(problem_, list_)) {
  bytes_ = kGuard;
  for (const Tensor& t : list_.tensors) {
    offsets_.push_back(bytes_ + t.offset_bytes);
    bytes_ = round_up(bytes_ + t.offset_bytes + t.bytes() + kGuard, 256);
  }
  guarded_ = workspace_ = bytes_;
  bytes_ = round_up(bytes_ + workspace_bytes_, 256);
  gathered_ = bytes_;
  if (!every_) bytes_ += gathered_bytes;
  if (every_ && guarded_ <= kImage) make_image();
}

// The guarded memory as it begins: NaN where nothing is read, so that what is not written is seen, and what is
// read beside the inputs or above the diagonal.
void CanaryTensors::make_image() {
  image_.assign(static_cast<size_t>(guarded_), std::byte{kPoison});
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const Tensor& t = list_.tensors[i];
    if (!t.read) continue;
    const std::vector<std::byte>& period = inputs_.bytes(t.role);
    std::byte* const data = image_.data() + offsets_[i];
    const auto put = [&](int64_t begin, int64_t end) {  // bytes
      const auto size = static_cast<int64_t>(period.size());
      for (int64_t at = begin, count = 0; at < end; at += count) {
        count = std::min(end - at, size - at % size);
        std::memcpy(data + at, period.data() + at % size, static_cast<size_t>(count));
      }
    };
    if (t.axes != Axes::kWeights || problem_.w == WeightForm::kToeplitz) {
      put(0, t.bytes());
      continue;
    }
    const int64_t size = element_size(t.dtype);
    for (int64_t h = 0; h < problem_.H; ++h)
      for (int64_t row = list_.rows.first; row < list_.rows.first + list_.rows.count; ++row) {
        const auto [first, last] = tokens_of_weights(problem_, row);
        put(weight_index(problem_, t, h, row, first, 0) * size,
            weight_index(problem_, t, h, row, last, 0) * size);
      }
  }
}

CUresult CanaryTensors::fill(const Cage& cage) const {
  const CUstream stream = cage.stream();
  CUresult result = CUDA_SUCCESS;
  if (!image_.empty()) {
    result = api_.cuMemcpyHtoDAsync(cage.at(0), image_.data(), static_cast<size_type>(guarded_), stream);
    if (result == CUDA_SUCCESS && bytes_ > guarded_)
      result =
          api_.cuMemsetD8Async(cage.at(guarded_), kPoison, static_cast<size_type>(bytes_ - guarded_), stream);
  } else {
    result = api_.cuMemsetD8Async(cage.at(0), kPoison, static_cast<size_type>(bytes_), stream);
    for (size_t i = 0; i < offsets_.size() && result == CUDA_SUCCESS; ++i) {
      const Tensor& t = list_.tensors[i];
      if (t.read) result = cage.fill(cage.at(offsets_[i]), inputs_.bytes(t.role), t.bytes());
      if (result == CUDA_SUCCESS && t.read && t.axes == Axes::kWeights && problem_.w == WeightForm::kDense)
        result = poison_outside(cage, t, offsets_[i]);
    }
  }
  return result == CUDA_SUCCESS ? api_.cuStreamSynchronize(stream) : result;
}

// NaN in W outside the triangle of the first and the last head. Rectangles that lean with the diagonal, each as wide
// as all before it, and upright ones where these end: two calls for each power of two.
CUresult CanaryTensors::poison_outside(const Cage& cage, const Tensor& w, int64_t offset) const {
  const Problem& p = problem_;
  const bool lower = p.fill == Fill::kLower;
  // Rows u count along the triangle, columns v away from the diagonal: what lies outside is v > u - skipped.
  const int64_t skipped = std::max<int64_t>(0, lower ? -p.diag : p.diag), size = element_size(w.dtype);
  const int64_t n = p.T - std::max<int64_t>(0, lower ? p.diag : -p.diag);  // columns
  const int64_t right = lower ? p.T - n : 0;
  CUresult result = CUDA_SUCCESS;
  for (const int64_t h : {int64_t{0}, p.H - 1}) {
    // Rows [u, end) of `width` columns, the first of which begins at column v and each further one `lean` later.
    const auto put = [&](int64_t u, int64_t end, int64_t v, int64_t width, int64_t lean) {
      end = std::min(end, p.T);
      if (u >= end || width <= 0 || result != CUDA_SUCCESS) return;
      const int64_t row = lower ? u : p.T - end, last = v + (end - 1 - u) * lean;
      const int64_t column = lower ? v + right : n - (last + width);
      result = api_.cuMemsetD2D8Async(cage.at(offset + weight_index(p, w, h, row, column, 0) * size),
                                      static_cast<size_type>((w.row + lean * p.K) * size), kPoison,
                                      static_cast<size_type>(width * p.K * size),
                                      static_cast<size_type>(end - u), cage.stream());
    };
    put(0, skipped, 0, n, 0);
    for (int64_t wide = 1; wide < n; wide *= 2) {
      put(skipped, skipped + n - 2 * wide + 1, wide, wide, 1);
      put(skipped + std::max<int64_t>(0, n - 2 * wide), skipped + n - wide, n - wide, wide, 0);
    }
    if (p.H == 1) break;
  }
  return result;
}

trigen_args CanaryTensors::arguments(const Cage& cage) const {
  trigen_args args = TRIGEN_ARGS_INIT;
  const auto pointer = [&](int64_t offset) { return std::bit_cast<void*>(cage.at(offset)); };
  for (size_t i = 0; i < offsets_.size(); ++i) set_argument(args, list_.tensors[i], pointer(offsets_[i]));
  if (op_row(problem_.op).takes(kRowsField)) args.first_row = list_.rows.first, args.rows = list_.rows.count;
  if (op_row(problem_.op).takes(kFactorsField)) {
    args.alpha = kCheckedAlpha;
    args.gamma = kCheckedGamma;
    if (problem_.epilogue.residual) args.beta = kCheckedBeta;
  }
  if (workspace_bytes_ > 0)
    args.workspace = pointer(workspace_), args.workspace_size = static_cast<size_t>(workspace_bytes_);
  return args;
}

}  // namespace trigen
