// The tensors of a canary's run: their places in one allocation, between guard bytes that no kernel may write, and
// their first contents; the allocation and its stream.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "numerics/expected.h"
#include "runtime/plan.h"

namespace trigen {

// One allocation and a stream of its own.
class Cage {
 public:
  explicit Cage(const DriverApi& api) : api_(api) {}
  ~Cage();
  Cage(const Cage&) = delete;
  Cage& operator=(const Cage&) = delete;

  cuda::CUresult open(int64_t bytes);
  // A kernel runs on in it: to free anything would wait for that.
  void abandon() { stream_ = nullptr, memory_ = 0; }
  cuda::CUdeviceptr at(int64_t offset) const { return memory_ + static_cast<cuda::CUdeviceptr>(offset); }
  cuda::CUstream stream() const { return stream_; }
  // Until all is done, as cuStreamSynchronize, but CUDA_ERROR_NOT_READY after kDeadline.
  static constexpr std::chrono::seconds kDeadline{10};  // of a run, which takes milliseconds
  cuda::CUresult wait() const;
  // `bytes` of memory become repetitions of `pattern`: each copy doubles what is there.
  cuda::CUresult fill(cuda::CUdeviceptr target, const std::vector<std::byte>& pattern, int64_t bytes) const;

 private:
  const DriverApi& api_;
  cuda::CUstream stream_ = nullptr;
  cuda::CUdeviceptr memory_ = 0;
};

class CanaryTensors {
 public:
  // `gathered_bytes`: room behind the tensors for the outputs that are compared, where these are not all.
  CanaryTensors(const Plan& plan, int64_t gathered_bytes);
  // Writes the inputs, and NaN where nothing is read; waits.
  cuda::CUresult fill(const Cage& cage) const;
  trigen_args arguments(const Cage& cage) const;

  const Problem& problem() const { return problem_; }
  const TensorList& list() const { return list_; }
  const PeriodicInputs& inputs() const { return inputs_; }
  bool every() const { return every_; }  // all outputs are compared
  int64_t bytes() const { return bytes_; }
  int64_t gathered() const { return gathered_; }
  const std::vector<int64_t>& offsets() const { return offsets_; }  // of the tensors' first elements
  // The bytes that the tensors and the guards around them begin as, where these are few; else empty.
  const std::vector<std::byte>& image() const { return image_; }

 private:
  void make_image();
  cuda::CUresult poison_outside(const Cage& cage, const Tensor& w, int64_t offset) const;

  const DriverApi& api_;
  const Problem& problem_;
  const int64_t workspace_bytes_;
  const TensorList list_;
  const PeriodicInputs inputs_;
  const bool every_;
  std::vector<int64_t> offsets_;
  int64_t bytes_ = 0, guarded_ = 0, workspace_ = 0, gathered_ = 0;
  std::vector<std::byte> image_;
};

}  // namespace trigen
