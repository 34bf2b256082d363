#include "runtime/canary.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "numerics/expected.h"
#include "numerics/numbers.h"
#include "numerics/tolerance.h"
#include "runtime/log.h"

namespace trigen {

using namespace cuda;

namespace {

constexpr int64_t kFewBatches = 2;  // the fewest that have a batch stride
constexpr int kPlaces = 64;         // outputs of large problems that are compared
constexpr int64_t kMostSamples = 2 * kPlaces, kSampleBytes = 4;  // a place's output, and its pre or bias
constexpr int64_t kMemoryShare = 4;  // at most this part of the device's free memory
constexpr int64_t kGuard = 4 << 10;  // bytes on both sides of each tensor, which nobody may write
constexpr int64_t kImage = 1 << 20;  // bytes; tensors that small are made on the host and come back whole
constexpr std::chrono::seconds kDeadline{10};  // of a run, which takes milliseconds
constexpr std::chrono::milliseconds kSpin{1};  // of its wait, before the first pause
constexpr std::chrono::microseconds kPause{100};

std::atomic<int64_t> counts[3];  // by CanaryResult

std::optional<cache::Finding> find_finding(const Binary& binary, const Device& device, Store& store) {
  return store.find_finding(cache::FindingKind::kCanary, binary.finding_name(), device.info().name,
                            device.info().driver);
}

CanaryReport counted(CanaryReport report) {
  ++counts[static_cast<int>(report.result)];
  return report;
}

CanaryReport skipped(std::string why) { return {CanaryResult::kSkipped, std::move(why)}; }

bool is_capture(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

// The canary's tensors in one allocation, and a stream of its own.
class Cage {
 public:
  explicit Cage(const DriverApi& api) : api_(api) {}
  ~Cage() {
    if (stream_ != nullptr) {
      api_.cuStreamSynchronize(stream_);
      api_.cuStreamDestroy(stream_);
    }
    if (memory_ != 0) api_.cuMemFree(memory_);
  }
  Cage(const Cage&) = delete;
  Cage& operator=(const Cage&) = delete;

  CUresult open(int64_t bytes) {
    if (const CUresult result = api_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING); result != CUDA_SUCCESS)
      return result;
    return api_.cuMemAlloc(&memory_, static_cast<size_type>(bytes));
  }
  // A kernel runs on in it: to free anything would wait for that.
  void abandon() { stream_ = nullptr, memory_ = 0; }
  CUdeviceptr at(int64_t offset) const { return memory_ + static_cast<CUdeviceptr>(offset); }
  CUstream stream() const { return stream_; }

  // Until all is done, as cuStreamSynchronize, but CUDA_ERROR_NOT_READY after the deadline.
  CUresult wait() const {
    for (const auto since = std::chrono::steady_clock::now();;) {
      const CUresult result = api_.cuStreamQuery(stream_);
      const auto waited = std::chrono::steady_clock::now() - since;
      if (result != CUDA_ERROR_NOT_READY || waited > kDeadline) return result;
      if (waited > kSpin) std::this_thread::sleep_for(kPause);
    }
  }

  // `bytes` of memory become repetitions of `pattern`: each copy doubles what is there.
  CUresult fill(CUdeviceptr target, const std::vector<std::byte>& pattern, int64_t bytes) const {
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

 private:
  const DriverApi& api_;
  CUstream stream_ = nullptr;
  CUdeviceptr memory_ = 0;
};

// One output that is compared: where it lies, what it must be.
struct Sample {
  Role role;
  DType dtype;
  size_t tensor;
  int64_t offset;  // bytes from the tensor's first element
  double expected;
  OutputPlace place;
  int64_t found = 0;  // bytes from the start of what is copied to the host
};

// One run of the plan's kernel.
class Canary {
 public:
  // `places`: outputs to compare, where they are too many for all.
  Canary(std::shared_ptr<const Plan> plan, int places)
      : plan_(std::move(plan)),
        problem_(plan_->problem()),
        list_(tensors_of(problem_)),
        inputs_(problem_, list_),
        places_(places),
        every_(ExpectedOutputs::takes(problem_, list_)),
        api_(plan_->executable().device().api()) {
    lay_out();
  }
  int64_t bytes() const { return bytes_; }

  CanaryReport run(Cage& cage) {
    cage_ = &cage;
    CanaryReport report;
    if (!stage(fill(), report)) return report;
    if (llvm::Error error = plan_->run(arguments(), cage.stream())) {
      const ErrorText failed = take_error(std::move(error));
      if (failed.kind != ErrorKind::kDevice) return skipped(failed.message);
      return {CanaryResult::kWrong, "its launch failed: " + failed.message};
    }
    choose_samples();  // while the kernel runs
    const CUresult result = cage.wait();
    if (result == CUDA_ERROR_NOT_READY) {
      cage.abandon();
      // The module, too, would be waited for.
      [[maybe_unused]] static auto* const kept = new std::vector<std::shared_ptr<const Plan>>;
      kept->push_back(plan_);
      return {CanaryResult::kWrong, "it did not end within " + std::to_string(kDeadline.count()) + " s",
              "it runs on, and what waits for the device in this process does not return"};
    }
    if (result != CUDA_SUCCESS)
      return {CanaryResult::kWrong, "its run failed: " + text_of(result),
              "with it the driver ended all CUDA contexts of this process, and their memory is lost"};
    if (!stage(download(), report)) return report;
    return compare();
  }

 private:
  std::string text_of(CUresult result) const {
    return take_error(plan_->executable().device().driver().check(result, "canary")).message;
  }
  // Before the kernel runs and after it has, a failure is not the kernel's.
  bool stage(CUresult result, CanaryReport& report) const {
    if (result == CUDA_SUCCESS) return true;
    report = skipped(is_capture(result) ? "a stream capture is under way" : text_of(result));
    return false;
  }

  void lay_out() {
    bytes_ = kGuard;
    for (const Tensor& t : list_.tensors) {
      offsets_.push_back(bytes_ + t.offset_bytes);
      bytes_ = round_up(bytes_ + t.offset_bytes + t.bytes() + kGuard, 256);
    }
    guarded_ = workspace_ = bytes_;
    bytes_ = round_up(bytes_ + plan_->workspace_bytes(), 256);
    gathered_ = bytes_;
    if (!every_) bytes_ += kMostSamples * kSampleBytes;
    if (every_ && guarded_ <= kImage) make_image();
  }

  // What the guarded memory begins as: NaN where nothing is read, so that what is not written is seen, and what is
  // read beside the inputs or above the diagonal.
  void make_image() {
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
      if (t.role != Role::kW) {
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

  CUresult fill() const {
    const CUstream stream = cage_->stream();
    CUresult result = CUDA_SUCCESS;
    if (!image_.empty()) {
      result = api_.cuMemcpyHtoDAsync(cage_->at(0), image_.data(), static_cast<size_type>(guarded_), stream);
      if (result == CUDA_SUCCESS && bytes_ > guarded_)
        result = api_.cuMemsetD8Async(cage_->at(guarded_), kPoison, static_cast<size_type>(bytes_ - guarded_),
                                      stream);
    } else {
      result = api_.cuMemsetD8Async(cage_->at(0), kPoison, static_cast<size_type>(bytes_), stream);
      for (size_t i = 0; i < offsets_.size() && result == CUDA_SUCCESS; ++i) {
        const Tensor& t = list_.tensors[i];
        if (t.read) result = cage_->fill(cage_->at(offsets_[i]), inputs_.bytes(t.role), t.bytes());
        if (result == CUDA_SUCCESS && t.read && t.role == Role::kW) result = poison_outside(t, offsets_[i]);
      }
    }
    return result == CUDA_SUCCESS ? api_.cuStreamSynchronize(stream) : result;
  }

  // NaN in W outside the triangle of the first and the last head. Rectangles that lean with the diagonal, each as wide
  // as all before it, and upright ones where these end: two calls for each power of two.
  CUresult poison_outside(const Tensor& w, int64_t offset) const {
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
        result = api_.cuMemsetD2D8Async(cage_->at(offset + weight_index(p, w, h, row, column, 0) * size),
                                        static_cast<size_type>((w.row + lean * p.K) * size), kPoison,
                                        static_cast<size_type>(width * p.K * size),
                                        static_cast<size_type>(end - u), cage_->stream());
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

  trigen_args arguments() const {
    trigen_args args = TRIGEN_ARGS_INIT;
    const auto pointer = [&](int64_t offset) { return std::bit_cast<void*>(cage_->at(offset)); };
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const Tensor& t = list_.tensors[i];
      void* const data = pointer(offsets_[i]);
      const trigen_tensor view = {data, t.batch, t.head, t.row};
      switch (t.role) {
        case Role::kX:
          args.x = view;
          break;
        case Role::kY:
          args.y = view;
          break;
        case Role::kPre:
          args.pre = view;
          break;
        case Role::kGate:
          args.gate = view;
          break;
        case Role::kResidual:
          args.residual = view;
          break;
        case Role::kW:
          args.w = data, args.w_head = t.head, args.w_row = t.row;
          break;
        case Role::kBias:
          args.bias = data;
          break;
      }
    }
    if (problem_.op == Op::kDecode) args.first_row = list_.rows.first, args.rows = list_.rows.count;
    if (plan_->workspace_bytes() > 0)
      args.workspace = pointer(workspace_),
      args.workspace_size = static_cast<size_t>(plan_->workspace_bytes());
    return args;
  }

  void add(const Tensor& t, int64_t index, double expected, const OutputPlace& place) {
    const size_t i = static_cast<size_t>(&t - list_.tensors.data());
    samples_.push_back({t.role, t.dtype, i, index * element_size(t.dtype), expected, place});
  }

  void choose_samples() {
    const Problem& p = problem_;
    const bool weight = p.op == Op::kGradWeight;
    const Tensor& out = *list_.find(weight                                                ? Role::kW
                                    : p.op == Op::kGradInput || p.op == Op::kGradEpilogue ? Role::kX
                                                                                          : Role::kY);
    const Tensor* const pre = p.op == Op::kGradEpilogue ? nullptr : list_.find(Role::kPre);
    const Tensor* const gate = p.op == Op::kGradEpilogue ? list_.find(Role::kResidual) : nullptr;
    const Tensor* const bias = weight ? list_.find(Role::kBias) : nullptr;
    const auto add_all = [&](const OutputPlace& o, const ExpectedOutput& expected) {
      const int64_t index = weight ? weight_index(p, out, o.h, o.row, o.column / p.K, o.column % p.K)
                                   : activation_index(p, out, o.b, o.h, o.row, o.column);
      add(out, index, expected.value, o);
      // Activations have one shape.
      if (pre != nullptr) add(*pre, index, expected.pre, o);
      if (gate != nullptr) add(*gate, index, expected.gate, o);
      if (bias != nullptr && !every_) add(*bias, o.h * p.T + o.row, expected.bias, o);
    };
    if (!every_) {
      for (const OutputPlace& o : sample_places(p, list_, places_))
        add_all(o, expected_output(p, list_, inputs_, o));
      return;
    }
    const ExpectedOutputs all(p, list_, inputs_);
    all.each(add_all);
    for (int64_t h = 0; bias != nullptr && h < p.H; ++h)
      for (int64_t t = 0; t < p.T; ++t) add(*bias, h * p.T + t, all.bias(h, t), {0, h, t, 0});
    if (!weight || !p.epilogue.zero_outside) return;
    for (int64_t h = 0; h < p.H; ++h)
      for (int64_t t = 0; t < p.T; ++t)
        for (int64_t column = 0; column < p.T * p.K; ++column)
          if (!in_triangle(p, t, column / p.K))
            add(out, weight_index(p, out, h, t, 0, 0) + column, 0, {0, h, t, column});
  }

  // A copy to the host's ordinary memory waits for the stream, each one: samples are gathered on the device. And
  // each copy takes 4 us of the host's time (H200, driver 580).
  CUresult download() {
    CUresult result = CUDA_SUCCESS;
    const auto fetch = [&](CUdeviceptr from, int64_t size) {
      const size_t at = found_.size();
      found_.resize(at + static_cast<size_t>(size));
      if (result == CUDA_SUCCESS)
        result =
            api_.cuMemcpyDtoHAsync(found_.data() + at, from, static_cast<size_type>(size), cage_->stream());
      return static_cast<int64_t>(at);
    };
    if (!image_.empty()) {
      fetch(cage_->at(0), guarded_);
      for (Sample& s : samples_) s.found = offsets_[s.tensor] + s.offset;
    } else if (every_) {
      std::vector<int64_t> begins(offsets_.size());
      int64_t all = 0;
      for (const Tensor& t : list_.tensors) all += t.written ? t.bytes() : 0;
      found_.reserve(static_cast<size_t>(all));  // copies may be under way
      for (size_t i = 0; i < offsets_.size(); ++i)
        if (list_.tensors[i].written) begins[i] = fetch(cage_->at(offsets_[i]), list_.tensors[i].bytes());
      for (Sample& s : samples_) s.found = begins[s.tensor] + s.offset;
    } else {
      int64_t bytes = 0;
      for (Sample& s : samples_) {
        if (result == CUDA_SUCCESS)
          result =
              api_.cuMemcpyDtoDAsync(cage_->at(gathered_ + bytes), cage_->at(offsets_[s.tensor] + s.offset),
                                     static_cast<size_type>(element_size(s.dtype)), cage_->stream());
        s.found = std::exchange(bytes, bytes + kSampleBytes);
      }
      fetch(cage_->at(gathered_), bytes);
    }
    const CUresult last = api_.cuStreamSynchronize(cage_->stream());
    return result == CUDA_SUCCESS ? last : result;
  }

  std::string text_of(const Sample& s) const {
    const std::string place = to_string(problem_, s.place);
    if (s.role == Role::kPre) return "pre of " + place;
    if (s.role == Role::kResidual) return "grad_gate of " + place;
    if (s.role == Role::kBias) return "grad_bias of the row of " + place;
    return place;
  }

  // Bit for bit where sums are exact, else the element gate of check/ (numerics/tolerance.h), each tensor by itself.
  CanaryReport compare() {
    const Problem& p = problem_;
    const int64_t terms = p.op == Op::kGradWeight ? p.B * p.D : p.op == Op::kGradEpilogue ? 1 : p.T * p.K;
    const bool exact = inputs_.exact() && p.epilogue.act == Activation::kNone;
    struct Sum {
      double squares = 0;
      int64_t count = 0;
    };
    std::vector<Sum> sums(offsets_.size());
    for (const Sample& s : samples_)
      sums[s.tensor].squares += s.expected * s.expected, ++sums[s.tensor].count;
    std::vector<Tolerance> tolerances;
    std::vector<double> slack;
    for (size_t i = 0; i < offsets_.size(); ++i) {
      const auto count = static_cast<double>(std::max<int64_t>(1, sums[i].count));
      tolerances.push_back(tolerance_of(p, list_.tensors[i].dtype, terms, sums[i].count));
      slack.push_back(tolerances[i].floor + 8 * tolerances[i].sum_error * std::sqrt(sums[i].squares / count));
    }
    int64_t wrong = 0;
    std::string first;
    for (const Sample& s : samples_) {
      const double found = load_element(s.dtype, found_.data() + s.found, 0);
      // An exact sum is rounded once, to the output's format. NaN passes neither test.
      if (exact ? found == round_to(s.dtype, static_cast<float>(s.expected))
                : std::fabs(found - s.expected) <=
                      1.01 * tolerances[s.tensor].output_roundoff * std::fabs(s.expected) + slack[s.tensor])
        continue;
      if (wrong++ > 0) continue;
      char text[96];
      if (std::isnan(found))
        std::snprintf(text, sizeof text, " is nan or was never written, expected %.7g", s.expected);
      else
        std::snprintf(text, sizeof text, " is %.7g, expected %.7g", found, s.expected);
      first = text_of(s) + text;
    }
    if (wrong > 0)
      return {CanaryResult::kWrong, std::to_string(wrong) + " of " + std::to_string(samples_.size()) +
                                        (every_ ? "" : " sampled") +
                                        " outputs are wrong with B=" + std::to_string(p.B) + ": " + first};
    return find_stray();
  }

  // Has anything else been written?
  CanaryReport find_stray() {
    if (image_.empty()) return {CanaryResult::kRight, ""};
    for (const Sample& s : samples_)
      std::memcpy(found_.data() + s.found, image_.data() + s.found,
                  static_cast<size_t>(element_size(s.dtype)));
    const auto at = std::mismatch(image_.begin(), image_.end(), found_.begin()).first - image_.begin();
    if (at == guarded_) return {CanaryResult::kRight, ""};
    size_t near = 0;
    while (near + 1 < offsets_.size() && offsets_[near + 1] <= at) ++near;
    const Tensor& t = list_.tensors[near];
    return {CanaryResult::kWrong, "it wrote what is no output with B=" + std::to_string(problem_.B) +
                                      ": byte " + std::to_string(at - offsets_[near]) +
                                      " from the start of " + to_string(t.role) + ", which has " +
                                      std::to_string(t.bytes())};
  }

  const std::shared_ptr<const Plan> plan_;
  const Problem& problem_;
  const TensorList list_;
  const PeriodicInputs inputs_;
  const int places_;
  const bool every_;  // all outputs are compared
  const DriverApi& api_;
  Cage* cage_ = nullptr;
  std::vector<int64_t> offsets_;  // of the tensors' first elements
  int64_t bytes_ = 0, guarded_ = 0, workspace_ = 0, gathered_ = 0;
  std::vector<Sample> samples_;
  std::vector<std::byte> image_, found_;
};

// The batch sizes to run with: the smallest that has a stride, one at which every SM has a tile and some a second
// one, and the plan's own where all outputs of that are compared. An emulated device, which takes seconds, runs no
// more than the plan asks for.
std::set<int64_t> batches_of(const Candidate& candidate, const DeviceInfo& device) {
  const Problem& p = candidate.problem;
  const Config& c = candidate.config;
  const int64_t most = device.emulated ? p.B : kMaxCoordinate;
  std::set<int64_t> batches = {std::min(kFewBatches, most)};
  if (ExpectedOutputs::takes(p, tensors_of(p))) batches.insert(p.B);
  if (is_whole_product(p.op) && p.op != Op::kGradWeight) {
    const int64_t tiles = int64_t{device.sms} * std::max(1, c.blocks) * 5 / 4;
    const int64_t walk = (tiles * c.tile_m * c.tile_n + p.H * p.T * p.D - 1) / (p.H * p.T * p.D);
    batches.insert(std::clamp(walk, *batches.begin(), most));
  }
  return batches;
}

// The plan's kernel with another batch size, null where that is not legal: the module is the plan's own.
std::shared_ptr<const Plan> with_batch(const Plan& plan, int64_t batch) {
  Candidate candidate = plan.resolution().candidate;
  candidate.problem.B = batch;
  llvm::Error error = validate(candidate.problem);
  if (!error && !candidate.generic && batch != plan.problem().B)
    error =
        make_candidate(candidate.problem, *candidate.target, *candidate.family, candidate.config).takeError();
  PlanOptions options;
  options.check_pointers = false;
  if (!error) {
    auto made = Plan::again(plan, candidate, options);
    if (made) return *made;
    error = made.takeError();
  }
  llvm::consumeError(std::move(error));
  return nullptr;
}

CanaryReport run_uncounted(const Plan& plan) {
  const Device& device = plan.executable().device();
  const DriverApi& api = device.api();
  const ContextScope scope(api, plan.executable().context());
  if (scope.result() != CUDA_SUCCESS) return skipped("the device's context cannot be made current");
  // A stream that others wait for by itself must not see work in the middle of its capture.
  for (const CUstream stream : {kStreamLegacy, kStreamPerThread}) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (is_capture(api.cuStreamIsCapturing(stream, &status)) || status != CU_STREAM_CAPTURE_STATUS_NONE)
      return skipped("a stream capture is under way");
  }
  // Of streams that cannot be asked about: calls that a capture forbids are allowed to this thread.
  const RelaxedCapture relaxed(api);
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const int64_t batch : batches_of(plan.resolution().candidate, device.info()))
    if (auto made = with_batch(plan, batch)) plans.push_back(std::move(made));
  if (plans.empty()) plans.push_back(with_batch(plan, plan.problem().B));
  if (plans.back() == nullptr) return skipped("its kernels cannot be launched another time");

  size_type free_bytes = 0, all = 0;
  if (const CUresult result = api.cuMemGetInfo(&free_bytes, &all); result != CUDA_SUCCESS)
    return skipped(take_error(device.driver().check(result, "canary")).message);
  std::vector<std::unique_ptr<Canary>> runs;
  for (const auto& made : plans) {
    auto run = std::make_unique<Canary>(made, kPlaces / static_cast<int>(plans.size()));
    if (run->bytes() <= static_cast<int64_t>(free_bytes) / kMemoryShare) runs.push_back(std::move(run));
  }
  if (runs.empty()) return skipped("a quarter of the free device memory does not hold its tensors");
  Cage cage(api);
  if (const CUresult result = cage.open(runs.back()->bytes()); result != CUDA_SUCCESS)
    return skipped(is_capture(result) ? "a stream capture is under way"
                                      : take_error(device.driver().check(result, "canary")).message);
  CanaryReport report;
  for (const auto& run : runs)
    if (report = run->run(cage); report.result != CanaryResult::kRight) break;
  return report;
}

}  // namespace

CanaryCounts canary_counts() {
  const auto of = [](CanaryResult result) { return counts[static_cast<int>(result)].load(); };
  return {of(CanaryResult::kRight), of(CanaryResult::kWrong), of(CanaryResult::kSkipped)};
}

bool needs_canary(const Resolution& resolution, const Device& device, Store& store,
                  const PlanOptions& options) {
  if (!options.canary) return false;
  const Binary& binary = resolution.binary;
  const bool checked =
      resolution.provenance == Provenance::kMeasured && resolution.origin == BinaryOrigin::kCache;
  if (!binary.shipped && (checked || (device.info().emulated && !options.canary_emulated))) return false;
  const auto found = find_finding(binary, device, store);
  return !found || found->value != 1;
}

bool is_quarantined(const Binary& binary, const Device& device, Store& store) {
  const auto found = find_finding(binary, device, store);
  return found && found->value == 0;
}

CanaryReport run_canary(const Plan& plan) { return counted(run_uncounted(plan)); }

namespace {

// Says once what is wrong and what comes next. The error for a report of a loss.
llvm::Error keep_finding(const CanaryReport& report, const Resolution& resolution, const Device& device,
                         Store& store, bool& kept) {
  const std::string what = describe(resolution.candidate) + " for " + to_string(resolution.candidate.problem);
  cache::Finding finding;
  finding.kind = cache::FindingKind::kCanary;
  finding.name = resolution.binary.finding_name();
  finding.device = device.info().name;
  finding.driver = device.info().driver;
  finding.value = report.result == CanaryResult::kRight ? 1 : 0;
  const bool shipped = resolution.binary.shipped;
  const std::string from =
      shipped ? " of cache '" + resolution.binary.layer + "'" : ", compiled on this machine,";
  finding.text = what + (shipped ? " of " + resolution.binary.layer : ", compiled on this machine") +
                 (report.text.empty() ? "" : ": " + report.text);
  std::string problem;
  if (llvm::Error error = store.put_finding(finding)) problem = take_error(std::move(error)).message;
  kept = problem.empty();
  if (report.result == CanaryResult::kRight) return llvm::Error::success();
  const std::string fails =
      "kernel " + what + from + " fails its canary on " + device.info().name + " (" + report.text + ")";
  if (!report.lost.empty())
    return make_error(
        ErrorKind::kDevice,
        fails + ": " + report.lost + "; " +
            (kept ? "it is in quarantine: start the process again, which takes another kernel"
                  : "it cannot be put in quarantine (" + problem +
                        "), so the process must not meet it when it is started again: let TRIGEN_CACHE "
                        "name a file that can be written, or take that kernel's cache file away"));
  log_once(
      LogLevel::kWarning, finding.name,
      "wrong: " + fails + "; it is in quarantine" + (kept ? "" : " for this process (" + problem + ")") +
          " and another one is taken; `trigen cache quarantine` shows it, TRIGEN_CANARY=0 runs kernels "
          "unseen; " +
          (shipped ? "tell whoever made that file" : "please report it, with what `trigen doctor` says"));
  return llvm::Error::success();
}

// What took which device from this process.
struct Losses {
  std::mutex mutex;
  std::map<const Device*, std::string> texts;
  static Losses& get() {
    static Losses* const losses = new Losses;
    return *losses;
  }
};

}  // namespace

llvm::Expected<CanaryResult> try_canary(const Plan& plan, const Device& device, Store& store) {
  const Resolution& resolution = plan.resolution();
  bool unended = false, kept = true;
  auto mark = store.try_mark(
      "canary\n" + resolution.binary.finding_name() + "\n" + device.info().name + "\n" + device.info().driver,
      unended);
  const CanaryReport report =
      unended ? counted({CanaryResult::kWrong,
                         "one began and never ended: its process was killed, or did not live through it"})
              : run_canary(plan);
  if (report.result == CanaryResult::kSkipped) return report.result;
  llvm::Error loss = keep_finding(report, resolution, device, store, kept);
  if (!kept && report.result == CanaryResult::kWrong) (void)mark.release();  // says so to the next process
  if (!loss) return report.result;
  const ErrorText text = take_error(std::move(loss));
  Losses& losses = Losses::get();
  const std::lock_guard<std::mutex> lock(losses.mutex);
  losses.texts.try_emplace(&device, text.message);
  return make_error(text.kind, text.message);
}

llvm::Error refuse_lost(const Device& device) {
  Losses& losses = Losses::get();
  const std::lock_guard<std::mutex> lock(losses.mutex);
  const auto found = losses.texts.find(&device);
  if (found == losses.texts.end()) return llvm::Error::success();
  return make_error(ErrorKind::kDevice,
                    "no plan can be made on this device in this process any more: " + found->second);
}

}  // namespace trigen
