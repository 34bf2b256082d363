#include "runtime/canary.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdio>
#include <map>

#include "numerics/expected.h"
#include "numerics/numbers.h"
#include "numerics/tolerance.h"
#include "runtime/log.h"

namespace trigen {

using namespace cuda;

namespace {

constexpr int64_t kMostBatch = 2;                                // the smallest that has a batch stride
constexpr int kPlaces = 64;                                      // outputs that are compared
constexpr int64_t kMostSamples = 2 * kPlaces, kSampleBytes = 4;  // a place's output, and its pre or bias
constexpr int64_t kMostOutputs = 2;
constexpr int64_t kWhole = 16 << 10;  // bytes; an output that small is copied as it is, not sample by sample
constexpr int64_t kMemoryShare = 4;   // at most this part of the device's free memory

std::atomic<int64_t> counts[3];  // by CanaryResult

std::optional<cache::Finding> find_finding(const Binary& binary, const Device& device, Store& store) {
  return store.find_finding(cache::FindingKind::kCanary, binary.finding_name(), device.info().name,
                            device.info().driver);
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
  CUdeviceptr at(int64_t offset) const { return memory_ + static_cast<CUdeviceptr>(offset); }
  CUstream stream() const { return stream_; }

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
  std::string place;
  int64_t gathered = 0;  // bytes from the start of what is copied to the host
};

class Canary {
 public:
  Canary(const Plan& plan)
      : plan_(plan),
        problem_(plan.problem()),
        list_(tensors_of(problem_)),
        inputs_(problem_, list_),
        api_(plan.executable().device().api()),
        cage_(api_) {}

  CanaryReport run() {
    lay_out();
    CanaryReport report;
    if (!stage(open(), report)) return report;
    if (!stage(fill(), report)) return report;
    if (llvm::Error error = plan_.run(arguments(), cage_.stream())) {
      const ErrorText failed = take_error(std::move(error));
      if (failed.kind != ErrorKind::kDevice) return skipped(failed.message);
      return {CanaryResult::kWrong, "its launch failed: " + failed.message};
    }
    choose_samples();  // while the kernel runs
    if (const CUresult result = api_.cuStreamSynchronize(cage_.stream()); result != CUDA_SUCCESS)
      return {CanaryResult::kWrong, "its run failed: " + text_of(result)};
    if (!stage(download(), report)) return report;
    return compare();
  }

 private:
  std::string text_of(CUresult result) const {
    return take_error(plan_.executable().device().driver().check(result, "canary")).message;
  }
  // Before the kernel runs and after it has, a failure is not the kernel's.
  bool stage(CUresult result, CanaryReport& report) const {
    if (result == CUDA_SUCCESS) return true;
    report = skipped(is_capture(result) ? "a stream capture is under way" : text_of(result));
    return false;
  }

  void lay_out() {
    for (const Tensor& t : list_.tensors) {
      offsets_.push_back(bytes_ + t.offset_bytes);
      bytes_ = round_up(bytes_ + t.offset_bytes + t.bytes(), 256);
    }
    workspace_ = bytes_;
    bytes_ = round_up(bytes_ + plan_.workspace_bytes(), 256);
    gathered_ = bytes_;
    bytes_ += kMostSamples * kSampleBytes + kMostOutputs * kWhole;
  }

  CUresult open() {
    size_type free_bytes = 0, all = 0;
    if (const CUresult result = api_.cuMemGetInfo(&free_bytes, &all); result != CUDA_SUCCESS) return result;
    if (bytes_ > static_cast<int64_t>(free_bytes) / kMemoryShare) return CUDA_ERROR_OUT_OF_MEMORY;
    return cage_.open(bytes_);
  }

  // Outputs and the workspace begin as NaN, so that what is not written is seen.
  CUresult fill() const {
    CUresult result =
        api_.cuMemsetD8Async(cage_.at(0), kPoison, static_cast<size_type>(bytes_), cage_.stream());
    for (size_t i = 0; i < offsets_.size() && result == CUDA_SUCCESS; ++i) {
      const Tensor& t = list_.tensors[i];
      if (t.read) result = cage_.fill(cage_.at(offsets_[i]), inputs_.bytes(t.role), t.bytes());
    }
    return result == CUDA_SUCCESS ? api_.cuStreamSynchronize(cage_.stream()) : result;
  }

  trigen_args arguments() const {
    trigen_args args = TRIGEN_ARGS_INIT;
    const auto pointer = [&](int64_t offset) { return std::bit_cast<void*>(cage_.at(offset)); };
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
    if (plan_.workspace_bytes() > 0)
      args.workspace = pointer(workspace_),
      args.workspace_size = static_cast<size_t>(plan_.workspace_bytes());
    return args;
  }

  void add(const Tensor& t, int64_t index, double expected, std::string place) {
    const size_t i = static_cast<size_t>(&t - list_.tensors.data());
    samples_.push_back({t.role, t.dtype, i, index * element_size(t.dtype), expected, std::move(place)});
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
    for (const OutputPlace& o : sample_places(p, list_, kPlaces)) {
      const ExpectedOutput expected = expected_output(p, list_, inputs_, o);
      const std::string place = to_string(p, o);
      add(out,
          weight ? weight_index(p, out, o.h, o.row, o.column / p.K, o.column % p.K)
                 : activation_index(p, out, o.b, o.h, o.row, o.column),
          expected.value, place);
      if (pre != nullptr)
        add(*pre, activation_index(p, *pre, o.b, o.h, o.row, o.column), expected.pre, "pre of " + place);
      if (gate != nullptr)
        add(*gate, activation_index(p, *gate, o.b, o.h, o.row, o.column), expected.gate,
            "grad_gate of " + place);
      if (bias != nullptr) add(*bias, o.h * p.T + o.row, expected.bias, "grad_bias of the row of " + place);
    }
  }

  // Gathered on the device: a copy to the host's ordinary memory waits for the stream, each one. And each copy
  // takes 4 us of the host's time (H200, driver 580).
  CUresult download() {
    CUresult result = CUDA_SUCCESS;
    int64_t bytes = 0;
    const auto gather = [&](size_t tensor, int64_t offset, int64_t size) {
      if (result == CUDA_SUCCESS)
        result = api_.cuMemcpyDtoDAsync(cage_.at(gathered_ + bytes), cage_.at(offsets_[tensor] + offset),
                                        static_cast<size_type>(size), cage_.stream());
      const int64_t at = bytes;
      bytes += round_up(size, kSampleBytes);
      return at;
    };
    std::map<size_t, int64_t> whole;  // tensors that are copied whole, and where they begin
    for (Sample& s : samples_) {
      const int64_t size = list_.tensors[s.tensor].bytes();
      if (size > kWhole) {
        s.gathered = gather(s.tensor, s.offset, element_size(s.dtype));
        continue;
      }
      const auto [at, fresh] = whole.try_emplace(s.tensor);
      if (fresh) at->second = gather(s.tensor, 0, size);
      s.gathered = at->second + s.offset;
    }
    found_.resize(static_cast<size_t>(bytes));
    if (result == CUDA_SUCCESS)
      result = api_.cuMemcpyDtoHAsync(found_.data(), cage_.at(gathered_), static_cast<size_type>(bytes),
                                      cage_.stream());
    const CUresult last = api_.cuStreamSynchronize(cage_.stream());
    return result == CUDA_SUCCESS ? last : result;
  }

  // The element gate of check/ (numerics/tolerance.h), each tensor by itself.
  CanaryReport compare() const {
    const Problem& p = problem_;
    const int64_t terms = p.op == Op::kGradWeight ? p.B * p.D : p.op == Op::kGradEpilogue ? 1 : p.T * p.K;
    int wrong = 0;
    std::string first;
    for (const Role role : {Role::kX, Role::kY, Role::kW, Role::kPre, Role::kResidual, Role::kBias}) {
      double squares = 0;
      int64_t count = 0;
      for (const Sample& s : samples_)
        if (s.role == role) squares += s.expected * s.expected, ++count;
      const double rms = count > 0 ? std::sqrt(squares / static_cast<double>(count)) : 0;
      for (const Sample& s : samples_) {
        if (s.role != role) continue;
        const Tolerance tolerance = tolerance_of(p, s.dtype, terms, count);
        const double found = load_element(s.dtype, found_.data() + s.gathered, 0);
        const double limit = 1.01 * tolerance.output_roundoff * std::fabs(s.expected) + tolerance.floor +
                             8 * tolerance.sum_error * rms;
        if (std::fabs(found - s.expected) <= limit) continue;  // not so for NaN
        if (wrong++ == 0) {
          char text[96];
          if (std::isnan(found))
            std::snprintf(text, sizeof text, " is nan or was never written, expected %.7g", s.expected);
          else
            std::snprintf(text, sizeof text, " is %.7g, expected %.7g", found, s.expected);
          first = s.place + text;
        }
      }
    }
    if (wrong == 0) return {CanaryResult::kRight, ""};
    return {CanaryResult::kWrong, std::to_string(wrong) + " of " + std::to_string(samples_.size()) +
                                      " sampled outputs are wrong: " + first};
  }

  const Plan& plan_;
  const Problem& problem_;
  const TensorList list_;
  const PeriodicInputs inputs_;
  const DriverApi& api_;
  Cage cage_;
  std::vector<int64_t> offsets_;  // of the tensors' first elements
  int64_t bytes_ = 0, workspace_ = 0, gathered_ = 0;
  std::vector<Sample> samples_;
  std::vector<std::byte> found_;
};

// The plan's kernel for the smallest batch that has a stride, where its config is legal there, too: the module
// is the plan's own.
llvm::Expected<std::shared_ptr<const Plan>> small_plan(const Plan& plan) {
  Candidate candidate = plan.resolution().candidate;
  candidate.problem.B = std::min(candidate.problem.B, kMostBatch);
  if (!candidate.generic) {
    auto legal = make_candidate(candidate.problem, *candidate.target, *candidate.family, candidate.config);
    if (!legal) {
      llvm::consumeError(legal.takeError());
      candidate.problem.B = plan.problem().B;
    }
  }
  PlanOptions options;
  options.check_pointers = false;
  return Plan::again(plan, candidate, options);
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
  auto small = small_plan(plan);
  if (!small) return skipped(take_error(small.takeError()).message);
  return Canary(**small).run();
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

CanaryReport run_canary(const Plan& plan) {
  CanaryReport report = run_uncounted(plan);
  ++counts[static_cast<int>(report.result)];
  return report;
}

void keep_finding(const CanaryReport& report, const Resolution& resolution, const Device& device,
                  Store& store) {
  if (report.result == CanaryResult::kSkipped) return;
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
  if (report.result == CanaryResult::kRight) return;
  log_once(
      LogLevel::kWarning, finding.name,
      "wrong: kernel " + what + from + " fails its canary on " + device.info().name + " (" + report.text +
          "); it is in quarantine" + (problem.empty() ? "" : " for this process (" + problem + ")") +
          " and another one is taken; `trigen cache quarantine` shows it, TRIGEN_CANARY=0 runs kernels "
          "unseen; " +
          (shipped ? "tell whoever made that file" : "please report it, with what `trigen doctor` says"));
}

}  // namespace trigen
