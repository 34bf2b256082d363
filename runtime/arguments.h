// What a caller passes to a run: trigen_args of trigen.h, checked against the problem, turned into the
// kernel's parameters. Needs no device, except for the ownership of pointers (check_pointers).
#pragma once

#include <atomic>

#include "generator/candidate.h"
#include "runtime/device.h"
#include "runtime/include/trigen/trigen.h"
#include "templates/params.h"

namespace trigen {

// Fills `params`; every size in it comes from the problem, and zero strides become contiguous ones. Checks,
// in this order: struct_size, tensors that are missing or that the problem has no use for, strides, alignment
// (the problem's align and walign), workspace, aliasing. No allocation on success. Errors are bad requests
// that name the tensor.
llvm::Error bind_arguments(const Problem& problem, int64_t workspace_bytes, const trigen_args& args,
                           Params& params);

// Pointers that check_pointers found good before, by argument. A pointer that was freed and now belongs to
// another device passes unseen: the check is there for mistakes, not for safety.
struct SeenPointers {
  static constexpr int kArguments = 8, kSlots = 8;
  std::atomic<const void*> slots[kArguments][kSlots] = {};
};
// Every pointer that is set must be memory of `device` (or managed memory). One driver call for each pointer
// that is not in `seen` (may be null; may be shared between threads).
llvm::Error check_pointers(const Device& device, const trigen_args& args, SeenPointers* seen);

}  // namespace trigen
