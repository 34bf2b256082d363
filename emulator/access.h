// From lane addresses to bytes: state spaces, bounds, alignment, initialisation, races, and what a request
// costs.
#pragma once

#include "emulator/block.h"

namespace trigen::emulator {

enum class Access : uint8_t { kLoad, kStore, kAtomic };

// The memory that one lane accesses. `shared` is the block that owns it, nullptr for global memory.
struct Place {
  uint8_t* at = nullptr;
  Block* shared = nullptr;
  uint32_t offset = 0;         // in that block's shared memory
  uint8_t* written = nullptr;  // its flags of written bytes, nullptr where nobody keeps any
  bool global = false;
  bool constant = false;  // global memory that no kernel may write
};

/// The address of every lane in `mask`: slot (32-bit when odd, else 64-bit) + offset.
void lane_addresses(Warp& warp, uint32_t slot, int64_t offset, uint32_t mask, uint64_t* addresses);
uint64_t lane_address(Warp& warp, uint32_t slot, int64_t offset, uint32_t lane);
/// Checks one access of `bytes` (a power of two, also the alignment) and finds its bytes. Aborts the launch
/// on a fault.
Place place(Warp& warp, Space space, uint64_t address, uint32_t bytes, Access access, uint32_t lane);
/// Shared memory of the cluster by its 32-bit shared::cluster address, for `bytes` bytes aligned to `align`.
Place shared_place(Warp& warp, uint32_t address, uint32_t bytes, uint32_t align, uint32_t lane);
/// Global memory of `bytes` bytes aligned to `align`.
Place global_place(Warp& warp, uint64_t address, uint32_t bytes, uint32_t align, Access access,
                   uint32_t lane);
/// Remembers an access of `agent` (the warp's own, or the asynchronous copy unit's) to a block's memory that may
/// outlast the block: not that of the warp to its own block's.
void note_remote(Warp& warp, Block* target, uint32_t agent, uint32_t lane);
/// A lane of the warp, and what it knows now.
Accessor accessor_of(Warp& warp, uint32_t lane);
/// Reports a read of bytes that nobody wrote.
void note_unwritten(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane);
/// The same, and a race of the read; call after place().
void note_read(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane);
/// A read that `lane` asked for and `by` makes.
void note_read(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane, const Accessor& by);
/// Does a thread that knows of `clock` know of a griddepcontrol.wait?
bool knows_of_wait(const Cluster& cluster, const Known* clock);
/// Reports an access, with what its thread knew when it began (`clock`), to bytes of a launch before that may
/// still run.
void note_launch_before(Warp& warp, const Known* clock, uint64_t address, uint32_t bytes, uint32_t lane,
                        bool writes);
/// Copies `value` to the place, marks it written and reports a race. Lanes that write the same value do not
/// race.
void store_bytes(Warp& warp, const Place& place, const void* value, uint32_t bytes, uint32_t lane);
/// Reports what an access to shared memory at `offset` ran into, if anything.
void report_race(Warp& warp, const RaceHit& hit, uint32_t offset, uint32_t lane);
/// Reports a race of an atomic; call before it changes the bytes.
void note_atomic(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane);

/// The view of memory of an asynchronous operation that these lanes issue now.
AsyncView async_view(Warp& warp, uint32_t lanes);

/// Passes over the 32 banks of 4 bytes for one request: lanes of 8 and 16 bytes go in half and quarter warps,
/// and a load's in whole and half warps when lanes i and i ^ 1 (or i and i ^ 2) of all pairs have the same
/// address (https://forums.developer.nvidia.com/t/unexpected-shared-memory-bank-conflict/77228, said there of
/// 7.x).
uint32_t bank_wavefronts(const uint32_t* offsets, uint32_t mask, uint32_t bytes, bool load, uint32_t* least);
/// Distinct 32-byte sectors.
uint32_t sector_count(const uint64_t* addresses, uint32_t mask, uint32_t bytes);
void count_access(Warp& warp, Space space, const uint64_t* addresses, uint32_t mask, uint32_t bytes,
                  bool store);

/// Generic addresses name their space in the top byte; resolves kGeneric to the space of this one.
inline Space space_of(Space space, uint64_t address) {
  if (space != Space::kGeneric) return space;
  switch (address >> kWindowShift) {
    case 1:
      return Space::kShared;
    case 2:
      return Space::kLocal;
    case 3:
      return Space::kParam;
    default:
      return Space::kGlobal;
  }
}

std::string hex(uint64_t value);

}  // namespace trigen::emulator
