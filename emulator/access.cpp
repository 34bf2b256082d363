#include "emulator/access.h"

#include <algorithm>
#include <cstdio>

namespace trigen::emulator {

std::string hex(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

void lane_addresses(Warp& warp, uint32_t slot, int64_t offset, uint32_t mask, uint64_t* addresses) {
  const uint64_t add = static_cast<uint64_t>(offset);
  if ((slot & 1) != 0) {
    const uint32_t* a = warp.lanes<uint32_t>(slot & ~1u);
    for_lanes(mask, [=](int lane) { addresses[lane] = a[lane] + add; });
  } else {
    const uint64_t* a = warp.lanes<uint64_t>(slot);
    for_lanes(mask, [=](int lane) { addresses[lane] = a[lane] + add; });
  }
}

uint64_t lane_address(Warp& warp, uint32_t slot, int64_t offset, uint32_t lane) {
  uint64_t base = (slot & 1) != 0 ? warp.lanes<uint32_t>(slot & ~1u)[lane] : warp.lanes<uint64_t>(slot)[lane];
  return base + static_cast<uint64_t>(offset);
}

Place shared_place(Warp& warp, uint32_t address, uint32_t bytes, uint32_t align, uint32_t lane) {
  Block* block = warp.block;
  uint32_t rank = address >> kRankShift;
  if (rank != 0) {
    if (rank > block->cluster->blocks.size())
      warp.abort(Fault::kOutOfBounds, lane,
                 "shared address " + hex(address) + " names a block outside the cluster");
    block = &block->cluster->blocks[rank - 1];
    if (block != warp.block &&
        std::all_of(block->warps.begin(), block->warps.end(), [](const Warp& w) { return w.alive() == 0; }))
      warp.abort(Fault::kUseAfterFree, lane,
                 "shared memory of block rank " + std::to_string(rank - 1) + ", which has exited");
  }
  uint32_t base = warp.program->shared_base, offset = (address & kSharedOffsetMask) - base;
  uint32_t size = block->launch->shared_bytes;
  if ((address & kSharedOffsetMask) < base || offset > size || bytes > size - offset)
    warp.abort(Fault::kOutOfBounds, lane,
               std::to_string(bytes) + " B at shared offset " + std::to_string(static_cast<int32_t>(offset)) +
                   ", the block has " + std::to_string(size) + " B of shared memory");
  if (address % align != 0)
    warp.abort(Fault::kMisaligned, lane,
               "shared offset " + std::to_string(offset) + " is not a multiple of " + std::to_string(align));
  return {block->shared.data() + offset, block, offset, block->shared_written.data() + offset};
}

void note_remote(Warp& warp, Block* target, uint32_t agent, uint32_t lane) {
  if ((target == warp.block && agent == warp.agent) || !target->race.enabled()) return;
  target->remote[agent] = {warp.block->cluster->clocks.now(agent), &warp, warp.inst, lane};
}

Place global_place(Warp& warp, uint64_t address, uint32_t bytes, uint32_t align, Access access,
                   uint32_t lane) {
  const LaunchContext& launch = *warp.block->launch;
  DeviceMemory* memory = nullptr;
  for (DeviceMemory* candidate : launch.memories)
    if (candidate->contains(address)) memory = candidate;
  Allocation* allocation = memory != nullptr ? memory->find(address) : nullptr;
  if (allocation == nullptr || address < allocation->base || address + bytes > allocation->end()) {
    std::string where = "address " + hex(address) + " belongs to no allocation";
    if (allocation != nullptr)
      where = address >= allocation->end() || address + bytes > allocation->end()
                  ? std::to_string(address + bytes - allocation->end()) +
                        " B past the end of an allocation of " + std::to_string(allocation->bytes) + " B"
                  : where;
    warp.abort(Fault::kOutOfBounds, lane, std::to_string(bytes) + " B: " + where);
  }
  if (allocation->freed)
    warp.abort(Fault::kUseAfterFree, lane,
               "address " + hex(address) + " lies in an allocation of " + std::to_string(allocation->bytes) +
                   " B that was freed");
  if (address % align != 0)
    warp.abort(Fault::kMisaligned, lane,
               "address " + hex(address) + " is not a multiple of " + std::to_string(align));
  if (access != Access::kLoad && (allocation->read_only || allocation->is_const))
    warp.abort(Fault::kReadOnlyWrite, lane,
               "offset " + std::to_string(address - allocation->base) + " of an allocation of " +
                   std::to_string(allocation->bytes) +
                   (allocation->is_const ? " B of constants" : " B that is marked read-only"));
  return {host_pointer(address),
          nullptr,
          0,
          allocation->whole ? nullptr : memory->written(address),
          true,
          allocation->read_only || allocation->is_const};
}

Place place(Warp& warp, Space space, uint64_t address, uint32_t bytes, Access access, uint32_t lane) {
  switch (space_of(space, address)) {
    case Space::kShared: {
      const Place found = shared_place(warp, static_cast<uint32_t>(address), bytes, bytes, lane);
      note_remote(warp, found.shared, warp.agent, lane);
      return found;
    }
    case Space::kLocal: {
      uint64_t offset = address & ((uint64_t{1} << kWindowShift) - 1);
      uint32_t size = warp.program->local_bytes;
      if (offset + bytes > size)
        warp.abort(Fault::kOutOfBounds, lane,
                   std::to_string(bytes) + " B at local offset " + std::to_string(offset) + " of " +
                       std::to_string(size));
      if (offset % bytes != 0)
        warp.abort(
            Fault::kMisaligned, lane,
            "local offset " + std::to_string(offset) + " is not a multiple of " + std::to_string(bytes));
      return {warp.block->local.data() + (static_cast<size_t>(warp.index) * 32 + lane) * size + offset,
              nullptr, 0, nullptr};
    }
    case Space::kParam: {
      uint64_t offset = address & ((uint64_t{1} << kWindowShift) - 1);
      std::vector<uint8_t>& parameters = warp.block->launch->parameters;
      if (access != Access::kLoad)
        warp.abort(Fault::kReadOnlyWrite, lane, "kernel parameters cannot be written");
      if (offset + bytes > parameters.size())
        warp.abort(Fault::kOutOfBounds, lane,
                   std::to_string(bytes) + " B at parameter offset " + std::to_string(offset) + " of " +
                       std::to_string(parameters.size()));
      return {parameters.data() + offset, nullptr, 0, nullptr};
    }
    default:
      return global_place(warp, address, bytes, bytes, access, lane);
  }
}

Accessor accessor_of(Warp& warp, uint32_t lane) {
  const Clocks& clocks = warp.block->cluster->clocks;
  return {warp.agent, lane, clocks.of(warp.agent, lane), clocks.now(warp.agent), clocks.ended()};
}

namespace {

std::string name_of(const Warp& warp, const RaceHit& hit) {
  const uint32_t warps = static_cast<uint32_t>(warp.block->warps.size());
  if (hit.agent == warp.block->cluster->clocks.async_agent()) return "the asynchronous copy unit";
  return std::string(hit.atomic ? "an atomic of " : "") + "warp " + std::to_string(hit.agent % warps) +
         (hit.lane < 32 ? " lane " + std::to_string(hit.lane) : std::string()) +
         (warp.block->cluster->blocks.size() > 1 ? " of block rank " + std::to_string(hit.agent / warps)
                                                 : std::string());
}

std::string text_of(const Warp& warp, const RaceHit& hit) {
  const std::string what = hit.kind == RaceKind::kReadAfterWrite   ? "is read after a write by "
                           : hit.kind == RaceKind::kWriteAfterRead ? "is written after a read by "
                                                                   : "is written after a write by ";
  return what + name_of(warp, hit) + " with no barrier in between";
}

// Global memory that several threads of this cluster touch; the clusters among themselves have GlobalRaces.
template <class Note>
void note_global(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane, const Note& note) {
  const uint64_t address = reinterpret_cast<uint64_t>(place.at);
  for (uint32_t done = 0; done < bytes;) {
    const uint32_t offset = static_cast<uint32_t>((address + done) % PagedRaces::kPage);
    const uint32_t part = std::min(bytes - done, PagedRaces::kPage - offset);
    const RaceHit hit = note(warp.block->cluster->global_races.page(address + done), offset, part);
    if (hit.kind != RaceKind::kNone) {
      warp.report(Fault::kGlobalRace, lane, "address " + hex(address) + " " + text_of(warp, hit));
      return;
    }
    done += part;
  }
}

void report_global_race(Warp& warp, uint64_t address, int64_t other, uint32_t lane, bool writes) {
  const bool clusters = warp.block->cluster->blocks.size() > 1;
  warp.report(
      Fault::kGlobalRace, lane,
      "address " + hex(address) + (writes ? " is written here and" : " is read here and written") +
          (writes ? " accessed" : "") + " by " +
          (other == GlobalRaces::kSeveral ? "several others"
                                          : (clusters ? "cluster " : "block ") + std::to_string(other)) +
          " of this launch; nothing orders the two");
}

}  // namespace

void report_race(Warp& warp, const RaceHit& hit, uint32_t offset, uint32_t lane) {
  if (hit.kind == RaceKind::kNone) return;
  const std::string where = "shared offset " + std::to_string(offset) + " ";
  if (hit.kind == RaceKind::kProxy)
    warp.report(Fault::kAsyncHazard, lane,
                where + "was written by " + name_of(warp, hit) +
                    " with ordinary stores and is read by the asynchronous proxy without fence.proxy.async "
                    "in between");
  else
    warp.report(Fault::kSharedRace, lane, where + text_of(warp, hit));
}

void note_unwritten(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane) {
  if (place.written == nullptr || !warp.block->launch->options->check_uninitialised) return;
  for (uint32_t i = 0; i < bytes; ++i)
    if (place.written[i] == 0) {
      warp.report(Fault::kUninitialised, lane,
                  place.shared != nullptr ? "shared offset " + std::to_string(place.offset + i)
                                          : "address " + hex(reinterpret_cast<uint64_t>(place.at) + i));
      return;
    }
}

bool knows_of_wait(const Cluster& cluster, const Known* clock) {
  return clock[cluster.clocks.launches_agent()].all != 0;
}

void note_launch_before(Warp& warp, const Known* clock, uint64_t address, uint32_t bytes, uint32_t lane,
                        bool writes) {
  const LaunchesBefore* before = warp.block->launch->before;
  if (before == nullptr || knows_of_wait(*warp.block->cluster, clock)) return;
  if (writes ? before->touched(address, bytes) : before->wrote(address, bytes))
    warp.report(Fault::kAsyncHazard, lane,
                "address " + hex(address) +
                    (writes ? " is written here and accessed" : " is read here and written") +
                    " by a launch before, which may still run; griddepcontrol.wait comes first");
}

void note_read(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane) {
  note_read(warp, place, bytes, lane, accessor_of(warp, lane));
}

void note_read(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane, const Accessor& by) {
  note_unwritten(warp, place, bytes, lane);
  if (place.shared != nullptr && place.shared->race.enabled())
    report_race(warp, place.shared->race.read(place.offset, bytes, by), place.offset, lane);
  if (!place.global) return;
  const uint64_t address = reinterpret_cast<uint64_t>(place.at);
  note_launch_before(warp, by.clock, address, bytes, lane, false);
  if (place.constant) return;
  if (GlobalRaces* races = warp.block->launch->global_races) {
    const int64_t other = races->read(address, bytes, warp.block->cluster->number);
    if (other >= 0) report_global_race(warp, address, other, lane, false);
  }
  if (warp.block->cluster->check_global)
    note_global(warp, place, bytes, lane, [&](RaceShadow& page, uint32_t offset, uint32_t part) {
      return page.read(offset, part, by);
    });
}

void store_bytes(Warp& warp, const Place& place, const void* value, uint32_t bytes, uint32_t lane) {
  if (place.shared != nullptr && place.shared->race.enabled()) {
    const RaceHit hit = place.shared->race.write(place.offset, bytes, accessor_of(warp, lane));
    const bool same = hit.agent == warp.agent && std::memcmp(place.at, value, bytes) == 0;
    if (!same) report_race(warp, hit, place.offset, lane);
  }
  if (place.global) {
    const uint64_t address = reinterpret_cast<uint64_t>(place.at);
    note_launch_before(warp, warp.block->cluster->clocks.of(warp.agent, lane), address, bytes, lane, true);
    if (GlobalRaces* races = warp.block->launch->global_races) {
      const int64_t other =
          races->write(address, static_cast<const uint8_t*>(value), bytes, warp.block->cluster->number);
      if (other >= 0) report_global_race(warp, address, other, lane, true);
    }
    if (warp.block->cluster->check_global)
      note_global(warp, place, bytes, lane, [&](RaceShadow& page, uint32_t offset, uint32_t part) {
        RaceHit hit = page.write(offset, part, accessor_of(warp, lane));
        if (std::memcmp(place.at, value, bytes) == 0 && hit.kind == RaceKind::kWriteAfterWrite) hit = {};
        return hit;
      });
  }
  std::memcpy(place.at, value, bytes);
  if (place.written != nullptr) std::memset(place.written, 1, bytes);
}

void note_atomic(Warp& warp, const Place& place, uint32_t bytes, uint32_t lane) {
  if (place.shared != nullptr && place.shared->race.enabled())
    report_race(warp, place.shared->race.atomic(place.offset, bytes, accessor_of(warp, lane)), place.offset,
                lane);
  if (!place.global) return;
  const uint64_t address = reinterpret_cast<uint64_t>(place.at);
  note_launch_before(warp, warp.block->cluster->clocks.of(warp.agent, lane), address, bytes, lane, true);
  if (GlobalRaces* races = warp.block->launch->global_races) {
    const int64_t other = races->atomic(address, bytes, warp.block->cluster->number);
    if (other >= 0) report_global_race(warp, address, other, lane, true);
  }
  if (warp.block->cluster->check_global)
    note_global(warp, place, bytes, lane, [&](RaceShadow& page, uint32_t offset, uint32_t part) {
      return page.atomic(offset, part, accessor_of(warp, lane));
    });
}

AsyncView async_view(Warp& warp, uint32_t lanes) {
  Clocks& clocks = warp.block->cluster->clocks;
  return {clocks.released(warp.agent, lanes), clocks.fenced(warp.agent)};
}

// Do lanes i and i ^ apart have the same address, wherever both are active?
static bool paired(const uint32_t* offsets, uint32_t mask, uint32_t apart) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const auto lane = static_cast<uint32_t>(__builtin_ctz(rest));
    if ((mask >> (lane ^ apart) & 1) != 0 && offsets[lane] != offsets[lane ^ apart]) return false;
  }
  return true;
}

uint32_t bank_wavefronts(const uint32_t* offsets, uint32_t mask, uint32_t bytes, bool load, uint32_t* least) {
  uint32_t group = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
  if (load && group < 32 && (paired(offsets, mask, 1) || paired(offsets, mask, 2))) group *= 2;
  const uint32_t words = std::max(1u, bytes / 4);
  uint32_t total = 0, groups = 0;
  for (uint32_t begin = 0; begin < 32; begin += group) {
    uint32_t part = group == 32 ? mask : (mask >> begin) & ((1u << group) - 1);
    if (part == 0) continue;
    ++groups;
    // Distinct words per bank: chains through `next`, one list head per bank.
    uint32_t seen[32], word_of[32], next[32], count[32] = {}, used = 0, most = 1;
    std::fill(seen, seen + 32, ~0u);
    for (uint32_t rest = part; rest != 0; rest &= rest - 1) {
      uint32_t lane = begin + static_cast<uint32_t>(__builtin_ctz(rest));
      // The words of one lane lie in consecutive banks, so its first word stands for all of them.
      uint32_t word = offsets[lane] / 4 / words * words, bank = word % 32;
      uint32_t link = seen[bank];
      while (link != ~0u && word_of[link] != word) link = next[link];
      if (link != ~0u) continue;
      word_of[used] = word;
      next[used] = seen[bank];
      seen[bank] = used++;
      most = std::max(most, ++count[bank]);
    }
    total += most;
  }
  *least = groups;
  return total;
}

uint32_t sector_count(const uint64_t* addresses, uint32_t mask, uint32_t bytes) {
  uint64_t sectors[64];
  uint32_t count = 0;
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    for (uint64_t sector = addresses[lane] >> 5; sector <= (addresses[lane] + bytes - 1) >> 5; ++sector)
      if (count < 64 && (count == 0 || sectors[count - 1] != sector)) sectors[count++] = sector;
  }
  std::sort(sectors, sectors + count);
  return static_cast<uint32_t>(std::unique(sectors, sectors + count) - sectors);
}

void count_access(Warp& warp, Space space, const uint64_t* addresses, uint32_t mask, uint32_t bytes,
                  bool store) {
  Counters& counters = *warp.counters;
  const uint64_t lanes = static_cast<uint64_t>(__builtin_popcount(mask));
  switch (space_of(space, addresses[__builtin_ctz(mask)])) {
    case Space::kShared: {
      uint32_t offsets[32], least = 0;
      for_lanes(mask, [&](int lane) {
        offsets[lane] = static_cast<uint32_t>(addresses[lane]) & kSharedOffsetMask;
      });
      uint32_t waves = bank_wavefronts(offsets, mask, bytes, !store, &least);
      (store ? counters.shared_store_requests : counters.shared_load_requests) += 1;
      (store ? counters.shared_store_wavefronts : counters.shared_load_wavefronts) += waves;
      (store ? counters.shared_store_conflicts : counters.shared_load_conflicts) += waves - least;
      (store ? counters.shared_store_bytes : counters.shared_load_bytes) += lanes * bytes;
      break;
    }
    case Space::kLocal:
      counters.local_bytes += lanes * bytes;
      break;
    case Space::kParam:
    case Space::kConst:
      break;
    default:
      (store ? counters.global_store_requests : counters.global_load_requests) += 1;
      (store ? counters.global_store_sectors : counters.global_load_sectors) +=
          sector_count(addresses, mask, bytes);
      (store ? counters.global_store_bytes : counters.global_load_bytes) += lanes * bytes;
  }
}

}  // namespace trigen::emulator
