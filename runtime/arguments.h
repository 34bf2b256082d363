// A caller's arguments of a run: trigen_args of trigen.h, checked against the problem, turned into the
// kernel's parameters. Needs no device, except for the ownership of pointers (check_pointers).
#pragma once

#include <atomic>

#include "generator/candidate.h"
#include "numerics/tensors.h"
#include "runtime/device.h"
#include "runtime/include/trigen/trigen.h"
#include "templates/params.h"

namespace trigen {

// Puts the tensor, whose first element is at `data`, in its place in `args`.
void set_argument(trigen_args& args, const Tensor& tensor, void* data);
// The same of an array of pointers, to matrices with the tensor's strides from row to row.
void set_pointers(trigen_args& args, const Tensor& tensor, void* array);

// Fills `params`; every size in it comes from the problem, and zero strides become contiguous ones. Checks,
// in this order: struct_size, tensors that are missing or that the problem has no use for, strides, alignment
// (the problem's align and walign), workspace, aliasing. No allocation on success. Errors are bad requests
// that name the tensor.
// `extents` (may be null): how many bytes behind its pointer a run may touch of each argument.
struct ArgumentExtents {
  int64_t x = 0, y = 0, pre = 0, gate = 0, residual = 0, w = 0, bias = 0, workspace = 0;
  int64_t vectors[scan::kVectors] = {};
};
llvm::Error bind_arguments(const Problem& problem, int64_t workspace_bytes, const trigen_args& args,
                           Params& params, ArgumentExtents* extents = nullptr);

// Pointers that check_pointers found good before, by argument. A pointer that was freed and now belongs to
// another device passes unseen: the check is there for mistakes, not for safety.
struct SeenPointers {
  static constexpr int kArguments = 8 + scan::kVectors, kSlots = 8;
  std::atomic<const void*> slots[kArguments][kSlots] = {};
};
// Every pointer that is set must be memory of `device` (or managed memory), of `extents` bytes where its allocation is
// one of cuMemAlloc, whose size the driver knows: a range that was mapped piece by piece (PyTorch's expandable segments)
// may go on behind the piece that the driver names. One driver call for each pointer that is not in `seen` (may be null;
// may be shared between threads).
llvm::Error check_pointers(const Device& device, const trigen_args& args, const ArgumentExtents& extents,
                           SeenPointers* seen);

}  // namespace trigen
