// Exact counters of a launch: the same program on the same data gives the same numbers on every run.
#pragma once

#include <cstdint>
#include <string>

#include "emulator/program.h"

namespace trigen::emulator {

struct Counters {
  uint64_t warp_instructions[static_cast<int>(InstClass::kCount)] = {};
  uint64_t thread_instructions = 0;   // active lanes, summed over warp instructions
  uint64_t global_load_requests = 0;  // warp-wide instructions
  uint64_t global_load_sectors = 0;   // distinct 32-byte sectors of each request
  uint64_t global_load_bytes = 0;     // bytes that lanes asked for
  uint64_t global_store_requests = 0;
  uint64_t global_store_sectors = 0;
  uint64_t global_store_bytes = 0;
  uint64_t shared_load_requests = 0;
  uint64_t shared_load_wavefronts = 0;  // passes over the 32 banks
  uint64_t shared_load_conflicts = 0;   // wavefronts above the least that the width needs
  uint64_t shared_load_bytes = 0;
  uint64_t shared_store_requests = 0;
  uint64_t shared_store_wavefronts = 0;
  uint64_t shared_store_conflicts = 0;
  uint64_t shared_store_bytes = 0;
  uint64_t async_copy_bytes = 0;  // cp.async and bulk copies into shared memory
  uint64_t bulk_bytes = 0;        // of these, moved by bulk copies (either direction)
  uint64_t local_bytes = 0;
  uint64_t atomic_requests = 0;
  uint64_t matrix_operations = 0;  // warp-wide mma, or warpgroup-wide wgmma
  uint64_t matrix_flops = 0;       // multiply-adds count two
  uint64_t barrier_waits = 0;      // warps that arrived at a block-wide or cluster-wide barrier
  uint64_t mbarrier_waits = 0;     // try_wait and test_wait that found the phase complete
  uint64_t divergent_branches = 0;

  void add(const Counters& other);
  // Steps of instructions that take more than one: an access to memory is 256 steps (its checks take
  // most), a barrier or an exchange between lanes 16, a branch that splits a warp 8 more, a matrix product one more for
  // 32 operations, a bulk copy one more a byte. A step is some 10 ns of the host's.
  uint64_t further_steps() const;
};

const char* class_name(InstClass cls);
/// One JSON object, keys in a fixed order.
std::string to_json(const Counters& counters);

}  // namespace trigen::emulator
