// A problem's tensors in device memory: one set to check on, and enough further sets that timed runs never
// find their inputs in the L2 cache. The further sets of gram have B in A's memory.
#pragma once

#include <array>
#include <bit>
#include <memory>
#include <optional>
#include <vector>

#include "check/emulated_device.h"
#include "check/tensors.h"
#include "runtime/plan.h"

namespace trigen {

// A device address as the pointer that kernels and libraries take.
inline void* device_pointer(cuda::CUdeviceptr address) { return std::bit_cast<void*>(address); }

struct WorkbenchOptions {
  uint64_t seed = 20240912;
  int gap = 0;               // alignment units between rows (TensorList)
  bool rotate = false;       // make the further sets
  std::optional<Rows> rows;  // decode: of every run; the longest ones when not named
};

// The rows of a run that begins at `first_row`: as many as the problem has, fewer at the end of its tokens.
// Without it the longest ones. Error: a bad request, for a row outside the tokens or another op.
llvm::Expected<Rows> rows_from(const Problem& problem, std::optional<int64_t> first_row);

class Workbench {
 public:
  // Allocates in the device's context and uploads the inputs to every set. Errors: device (memory).
  static llvm::Expected<std::unique_ptr<Workbench>> create(const Device& device, const Problem& problem,
                                                           const WorkbenchOptions& options = {});
  ~Workbench();
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;

  const Device& device() const { return *device_; }
  cuda::CUcontext context() const { return context_; }
  cuda::CUstream stream() const { return stream_; }
  const Problem& problem() const { return problem_; }
  const TensorList& list() const { return list_; }
  const HostBuffers& inputs() const { return inputs_; }
  int sets() const { return static_cast<int>(sets_.size()); }
  int64_t bytes_per_set() const { return set_bytes_; }
  // Has a set left the L2 when its turn comes again?
  bool outgrows_l2() const { return sets() * set_bytes_ > device_->info().l2_bytes; }

  // Pointers of one set; the workspace is shared and holds at least `workspace_bytes` (grown when needed; not
  // under capture).
  llvm::Expected<trigen_args> args(int set, int64_t workspace_bytes);
  // The same, by arrays of pointers where takes_pointers says so, of the last matrix first.
  llvm::Expected<trigen_args> args_of_pointers(int set, int64_t workspace_bytes);
  // What is timed: a problem with pointers=1 is for runs that give some.
  llvm::Expected<trigen_args> timed_args(int set, int64_t workspace_bytes) {
    return problem_.pointers != 0 ? args_of_pointers(set, workspace_bytes) : args(set, workspace_bytes);
  }
  // args with a workspace of its own, which lasts as long as the workbench.
  llvm::Expected<trigen_args> args_of_own_workspace(int set, int64_t workspace_bytes);
  // First element of a tensor of a set; null when the problem has no such tensor.
  void* data(int set, Role role) const;

  // Uploads other inputs to set 0, or, before anything is timed, inputs() again. They must outlive the runs.
  llvm::Error put_inputs(const HostBuffers& inputs);
  // Poisons the outputs (and the workspace, unless it is kept) of set 0, or restores what is read and written, for a
  // checked run.
  llvm::Error poison(bool keep_workspace = false);
  // The written tensors of set 0; the others are empty. Waits for the stream. They last until the next download, `again` apart:
  // two runs' outputs lie beside each other, in memory that the host has seen before.
  llvm::Expected<const HostBuffers&> download(bool again = false);
  llvm::Error synchronize() const;

 private:
  Workbench() = default;
  Role stored_as(int set, Role role) const;  // the tensor that is in this one's place
  llvm::Error allocate(int64_t bytes, cuda::CUdeviceptr& out);

  const Device* device_ = nullptr;
  cuda::CUcontext context_ = nullptr;
  cuda::CUstream stream_ = nullptr;
  Problem problem_;
  TensorList list_;
  HostBuffers inputs_;
  const HostBuffers* set_0_ = &inputs_;  // what set 0 was given
  std::array<HostBuffers, 2> downloads_;
  int64_t set_bytes_ = 0;
  std::vector<std::vector<cuda::CUdeviceptr>> sets_;  // [set][tensor]: the buffer's start
  std::vector<cuda::CUdeviceptr> allocations_;
  std::optional<EmulatedDevice>
      emulated_;  // there, inputs are read-only and the workspace counts as unwritten
  std::vector<cuda::CUdeviceptr> arrays_;  // of args_of_pointers, by set, made when first asked for
  cuda::CUdeviceptr workspace_ = 0;
  int64_t workspace_bytes_ = 0;
};

}  // namespace trigen
