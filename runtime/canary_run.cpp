#include "runtime/canary_run.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <set>

#include "numerics/expected.h"
#include "numerics/numbers.h"
#include "numerics/tolerance.h"
#include "runtime/canary_tensors.h"

namespace trigen {

using namespace cuda;

namespace {

constexpr int64_t kFewBatches = 2;  // the fewest that have a batch stride
constexpr int kPlaces = 64;         // outputs of large problems that are compared
constexpr int64_t kMostSamples = 2 * kPlaces, kSampleBytes = 4;  // a place's output, and its pre or bias
constexpr int64_t kMemoryShare = 4;  // at most this part of the device's free memory

bool is_capture(CUresult result) {
  return result >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED && result <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

std::string driver_text(const Device& device, CUresult result) {
  return take_error(device.driver().check(result, "canary")).message;
}

CanaryReport skipped(std::string why) { return {CanaryResult::kSkipped, std::move(why)}; }
CanaryReport skipped(const Device& device, CUresult result) {
  return skipped(is_capture(result) ? "a stream capture is under way" : driver_text(device, result));
}

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

// A run of the plan's kernel.
class Canary {
 public:
  // `places`: outputs to compare, where they are too many for all.
  Canary(std::shared_ptr<const Plan> plan, int places)
      : plan_(std::move(plan)),
        tensors_(*plan_, kMostSamples * kSampleBytes),
        places_(places),
        api_(plan_->executable().device().api()) {}
  int64_t bytes() const { return tensors_.bytes(); }

  CanaryReport run(Cage& cage) {
    CanaryReport report;
    if (!stage(tensors_.fill(cage), report)) return report;
    if (llvm::Error error = plan_->run(tensors_.arguments(cage), cage.stream())) {
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
      return {CanaryResult::kWrong, "it did not end within " + std::to_string(Cage::kDeadline.count()) + " s",
              "it runs on, and what waits for the device in this process does not return"};
    }
    if (result != CUDA_SUCCESS)
      return {CanaryResult::kWrong, "its run failed: " + driver_text(device(), result),
              "with it the driver ended all CUDA contexts of this process, and their memory is lost"};
    if (!stage(download(cage), report)) return report;
    return compare();
  }

 private:
  const Device& device() const { return plan_->executable().device(); }
  // Before the kernel runs and after it has, a failure is not the kernel's.
  bool stage(CUresult result, CanaryReport& report) const {
    if (result != CUDA_SUCCESS) report = skipped(device(), result);
    return result == CUDA_SUCCESS;
  }

  void add(const Tensor& t, int64_t index, double expected, const OutputPlace& place) {
    const size_t i = static_cast<size_t>(&t - tensors_.list().tensors.data());
    samples_.push_back({t.role, t.dtype, i, index * element_size(t.dtype), expected, place});
  }

  void choose_samples() {
    const Problem& p = tensors_.problem();
    const bool weight = makes_weights(p.op), sums = weight || makes_vectors(p.op);
    const auto add_all = [&](const OutputPlace& o, const OutputValues& expected) {
      const bool features = !sums || o.beside;
      const int64_t row = o.h * p.T + o.row, column = features ? o.b * p.D + o.column : o.column;
      for (const Tensor& t : tensors_.list().tensors)
        if (t.written && (t.axes == Axes::kRows ? !o.beside && !tensors_.every()
                                                : (t.axes == Axes::kActivations) == features))
          add(t, output_index(p, t, row, column), expected[t.role], o);
      if (!p.epilogue.mirror || o.row == o.column) return;
      const Tensor& out = tensors_.list().output();
      add(out, output_index(p, out, o.h * p.T + o.column, o.row), expected[out.role],
          {0, o.h, o.column, o.row});
    };
    if (!tensors_.every()) {
      const std::vector<OutputPlace> places = sample_places(p, tensors_.list(), places_);
      const auto expected = expected_outputs(p, tensors_.list(), tensors_.inputs(), places);
      for (size_t i = 0; i < places.size(); ++i) add_all(places[i], expected[i]);
      return;
    }
    const ExpectedOutputs all(p, tensors_.list(), tensors_.inputs());
    all.each(add_all);
    const Tensor* const bias = sums ? tensors_.list().find(Role::kBias) : nullptr;
    for (int64_t h = 0; bias != nullptr && h < p.H; ++h)
      for (int64_t t = 0; t < p.T; ++t) add(*bias, h * p.T + t, all.bias(h, t), {0, h, t, 0});
    if (!weight || !p.epilogue.zero_outside) return;
    const Tensor& out = tensors_.list().output();
    for (int64_t h = 0; h < p.H; ++h)
      for (int64_t t = 0; t < p.T; ++t)
        for (int64_t column = p.w == WeightForm::kBand ? t - p.width + 1 : 0; column < output_columns(p);
             ++column)
          if (column < 0 || (p.w != WeightForm::kBand && !in_triangle(p, t, column / p.K)))
            add(out, weight_index(p, out, h, t, 0, 0) + column, 0, {0, h, t, column});
  }

  // A copy to the host's ordinary memory waits for the stream, each one: samples are gathered on the device. And
  // each copy takes 4 us of the host's time (H200, driver 580).
  CUresult download(const Cage& cage) {
    CUresult result = CUDA_SUCCESS;
    const auto fetch = [&](CUdeviceptr from, int64_t size) {
      const size_t at = found_.size();
      found_.resize(at + static_cast<size_t>(size));
      if (result == CUDA_SUCCESS)
        result =
            api_.cuMemcpyDtoHAsync(found_.data() + at, from, static_cast<size_type>(size), cage.stream());
      return static_cast<int64_t>(at);
    };
    if (!tensors_.image().empty()) {
      fetch(cage.at(0), static_cast<int64_t>(tensors_.image().size()));
      for (Sample& s : samples_) s.found = tensors_.offsets()[s.tensor] + s.offset;
    } else if (tensors_.every()) {
      std::vector<int64_t> begins(tensors_.offsets().size());
      int64_t all = 0;
      for (const Tensor& t : tensors_.list().tensors) all += t.written ? t.bytes() : 0;
      found_.reserve(static_cast<size_t>(all));  // copies may be under way
      for (size_t i = 0; i < tensors_.offsets().size(); ++i)
        if (tensors_.list().tensors[i].written)
          begins[i] = fetch(cage.at(tensors_.offsets()[i]), tensors_.list().tensors[i].bytes());
      for (Sample& s : samples_) s.found = begins[s.tensor] + s.offset;
    } else {
      int64_t bytes = 0;
      for (Sample& s : samples_) {
        if (result == CUDA_SUCCESS)
          result = api_.cuMemcpyDtoDAsync(cage.at(tensors_.gathered() + bytes),
                                          cage.at(tensors_.offsets()[s.tensor] + s.offset),
                                          static_cast<size_type>(element_size(s.dtype)), cage.stream());
        s.found = std::exchange(bytes, bytes + kSampleBytes);
      }
      fetch(cage.at(tensors_.gathered()), bytes);
    }
    const CUresult last = api_.cuStreamSynchronize(cage.stream());
    return result == CUDA_SUCCESS ? last : result;
  }

  std::string text_of(const Sample& s) const {
    const std::string place = to_string(tensors_.problem(), s.place);
    const OpTensor& tensor = *tensor_of(tensors_.problem().op, s.role);
    if (s.place.beside || s.role == op_row(tensors_.problem().op).output().role) return place;
    return tensor.symbol + std::string(tensor.axes == Axes::kRows ? " of the row of " : " of ") + place;
  }

  // Bit for bit where sums are exact, else the element gate of check/ (numerics/tolerance.h), each tensor by itself.
  CanaryReport compare() {
    const Problem& p = tensors_.problem();
    const bool exact = tensors_.inputs().exact() && p.epilogue.act == Activation::kNone;
    struct Sum {
      double squares = 0;
      int64_t count = 0;
    };
    std::vector<Sum> sums(tensors_.offsets().size());
    for (const Sample& s : samples_)
      sums[s.tensor].squares += s.expected * s.expected, ++sums[s.tensor].count;
    std::vector<Tolerance> tolerances;
    std::vector<double> slack;
    for (size_t i = 0; i < tensors_.offsets().size(); ++i) {
      const auto count = static_cast<double>(std::max<int64_t>(1, sums[i].count));
      const Tensor& t = tensors_.list().tensors[i];
      tolerances.push_back(tolerance_of(p, t.dtype, sum_terms(p, t.axes), sums[i].count));
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
                                        (tensors_.every() ? "" : " sampled") +
                                        " outputs are wrong with B=" + std::to_string(p.B) + ": " + first};
    return find_out_of_bounds_write();
  }

  // Has anything else been written?
  CanaryReport find_out_of_bounds_write() {
    if (tensors_.image().empty()) return {CanaryResult::kRight, ""};
    for (const Sample& s : samples_)
      std::memcpy(found_.data() + s.found, tensors_.image().data() + s.found,
                  static_cast<size_t>(element_size(s.dtype)));
    const auto at = std::mismatch(tensors_.image().begin(), tensors_.image().end(), found_.begin()).first -
                    tensors_.image().begin();
    if (at == static_cast<int64_t>(tensors_.image().size())) return {CanaryResult::kRight, ""};
    size_t near = 0;
    while (near + 1 < tensors_.offsets().size() && tensors_.offsets()[near + 1] <= at) ++near;
    const Tensor& t = tensors_.list().tensors[near];
    return {CanaryResult::kWrong,
            "it wrote what is no output with B=" + std::to_string(tensors_.problem().B) + ": byte " +
                std::to_string(at - tensors_.offsets()[near]) + " from the start of " + to_string(t.role) +
                ", which has " + std::to_string(t.bytes())};
  }

  const std::shared_ptr<const Plan> plan_;
  const CanaryTensors tensors_;
  const int places_;
  const DriverApi& api_;
  std::vector<Sample> samples_;
  std::vector<std::byte> found_;
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
  if (is_whole_product(p.op) && !makes_weights(p.op)) {
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

}  // namespace

CanaryReport run_on_batches(const Plan& plan) {
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
  // Other streams cannot be asked for a capture: this thread may make calls that a capture forbids.
  const RelaxedCapture relaxed(api);
  std::vector<std::shared_ptr<const Plan>> plans;
  for (const int64_t batch : batches_of(plan.resolution().candidate, device.info()))
    if (auto made = with_batch(plan, batch)) plans.push_back(std::move(made));
  if (plans.empty()) plans.push_back(with_batch(plan, plan.problem().B));
  if (plans.back() == nullptr) return skipped("its kernels cannot be launched another time");

  size_type free_bytes = 0, all = 0;
  if (const CUresult result = api.cuMemGetInfo(&free_bytes, &all); result != CUDA_SUCCESS)
    return skipped(device, result);
  std::vector<std::unique_ptr<Canary>> runs;
  for (const auto& made : plans) {
    auto run = std::make_unique<Canary>(made, kPlaces / static_cast<int>(plans.size()));
    if (run->bytes() <= static_cast<int64_t>(free_bytes) / kMemoryShare) runs.push_back(std::move(run));
  }
  if (runs.empty()) return skipped("a quarter of the free device memory does not hold its tensors");
  Cage cage(api);
  if (const CUresult result = cage.open(runs.back()->bytes()); result != CUDA_SUCCESS)
    return skipped(device, result);
  CanaryReport report;
  for (const auto& run : runs)
    if (report = run->run(cage); report.result != CanaryResult::kRight) break;
  return report;
}

}  // namespace trigen
