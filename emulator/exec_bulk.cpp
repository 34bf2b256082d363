// Bulk asynchronous copies: cp.async.bulk and cp.async.bulk.tensor, into shared memory (completing on an
// mbarrier) and out of it (completing by groups), and st.async, registers' values into shared memory of the cluster.
// (PTX ISA, "Data Movement and Conversion Instructions: Bulk copy", "Tensor copy", "st.async")
//
// They land as late as allowed: copies into shared memory when no thread can go on without them, copies out
// of shared memory when their thread waits for the group.
#include <algorithm>
#include <array>
#include <cmath>

#include "emulator/async.h"
#include "emulator/exec.h"
#include "emulator/real16.h"
#include "emulator/tensor_map.h"

namespace trigen::emulator {
namespace {

// State at the issue of the copy.
struct Issue {
  Warp* warp = nullptr;
  const Inst* inst = nullptr;
  uint32_t lane = 0;
  AsyncView view;
};

Issue issue_of(Warp& warp, const Inst& inst, uint32_t lane) {
  return {&warp, &inst, lane, async_view(warp, 1u << lane)};
}

// Reports while a copy lands name the instruction that issued it.
struct At {
  Warp& warp;
  const Inst* before;
  explicit At(const Issue& issue) : warp(*issue.warp), before(issue.warp->inst) { warp.inst = issue.inst; }
  ~At() { warp.inst = before; }
};

// Writes a run of bytes that lies in shared memory at `address` without crossing a 16-byte chunk.
void write_chunk(const Issue& issue, uint32_t address, const uint8_t* value, uint32_t bytes) {
  Warp& warp = *issue.warp;
  Place to = shared_place(warp, address, bytes, 1, issue.lane);
  Clocks& clocks = warp.block->cluster->clocks;
  note_remote(warp, to.shared, clocks.async_agent(), issue.lane);
  if (to.shared->race.enabled()) {
    // The issuing thread's own earlier reads and writes are ordered before the copy.
    const Accessor by{clocks.async_agent(), 0, issue.view.clock.data(), clocks.now(clocks.async_agent()),
                      clocks.ended()};
    report_race(warp, to.shared->race.write(to.offset, bytes, by), to.offset, issue.lane);
  }
  std::memcpy(to.at, value, bytes);
  std::memset(to.written, 1, bytes);
}

void read_chunk(const Issue& issue, uint32_t address, uint8_t* value, uint32_t bytes) {
  Warp& warp = *issue.warp;
  Place from = shared_place(warp, address, bytes, 1, issue.lane);
  if (warp.block->launch->options->check_uninitialised)
    for (uint32_t i = 0; i < bytes; ++i)
      if (from.written[i] == 0) {
        warp.report(Fault::kUninitialised, issue.lane, "shared offset " + std::to_string(from.offset + i));
        break;
      }
  // The read lasts until the issuing thread has waited for it, which is when this runs at the latest.
  if (from.shared->race.enabled())
    report_race(warp,
                from.shared->race.async_read(from.offset, bytes, accessor_of(warp, issue.lane), issue.view),
                from.offset, issue.lane);
  std::memcpy(value, from.at, bytes);
}

// The read is the asynchronous copy unit's: it has seen what the issuing thread knew, and is known to have
// ended to those who wait for the copy's mbarrier, not to the thread that issued it.
void read_global(const Issue& issue, uint64_t address, uint8_t* value, uint32_t bytes) {
  Place from = global_place(*issue.warp, address, bytes, 1, Access::kLoad, issue.lane);
  Clocks& clocks = issue.warp->block->cluster->clocks;
  const Accessor by{clocks.async_agent(), 0, issue.view.clock.data(), clocks.now(clocks.async_agent()),
                    clocks.ended()};
  note_read(*issue.warp, from, bytes, issue.lane, by);
  std::memcpy(value, from.at, bytes);
}

void write_global(const Issue& issue, uint64_t address, const uint8_t* value, uint32_t bytes) {
  Place to = global_place(*issue.warp, address, bytes, 1, Access::kStore, issue.lane);
  note_launch_before(*issue.warp, issue.view.clock.data(), address, bytes, issue.lane, true);
  store_bytes(*issue.warp, to, value, bytes, issue.lane);
}

// `known`: what those who wait for the mbarrier know beside the copy itself.
void complete_bytes(const Issue& issue, uint32_t address, uint64_t bytes, const Clock& known = {}) {
  Clocks& clocks = issue.warp->block->cluster->clocks;
  Mbarrier state;
  Place at = mbarrier_place(*issue.warp, address, issue.lane, &state);
  need_fenced_init(*issue.warp, at, issue.lane);
  note_remote(*issue.warp, at.shared, clocks.async_agent(), issue.lane);
  Clock clock = known;
  clock.resize(clocks.width());
  for (const uint32_t half : {0u, clocks.ended()})
    clock[half + clocks.async_agent()].all = clocks.now(clocks.async_agent());
  mbarrier_update(*issue.warp, at, state, 0, -static_cast<int64_t>(bytes), issue.lane, &clock,
                  Scope::kEveryWait);
  clocks.tick(clocks.async_agent());
}

// The same offset in another block of the cluster.
uint32_t in_block(uint32_t address, uint32_t rank) {
  return (address & kSharedOffsetMask) | (rank + 1) << kRankShift;
}

// The blocks a copy goes to: those of the mask, or the one that the address names.
std::vector<uint32_t> targets(Warp& warp, uint32_t address, uint32_t mask_slot, uint32_t lane) {
  if (mask_slot == kNoSlot)
    return {address >> kRankShift == 0 ? warp.block->rank : (address >> kRankShift) - 1};
  uint32_t mask = warp.lanes<uint16_t>(mask_slot)[lane];
  std::vector<uint32_t> ranks;
  for (uint32_t rank = 0; rank < 16; ++rank)
    if ((mask >> rank & 1) != 0) {
      if (rank >= warp.block->cluster->blocks.size())
        warp.abort(Fault::kOutOfBounds, lane, "the multicast mask names a block outside the cluster");
      ranks.push_back(rank);
    }
  return ranks;
}

void count_rows(Warp& warp, uint64_t address, uint64_t bytes, bool store) {
  uint64_t sectors = bytes == 0 ? 0 : ((address + bytes - 1) >> 5) - (address >> 5) + 1;
  (store ? warp.counters->global_store_sectors : warp.counters->global_load_sectors) += sectors;
  (store ? warp.counters->global_store_bytes : warp.counters->global_load_bytes) += bytes;
}

// Operands in slots: op[0] target, op[1] source, op[2] size, op[3] mbarrier, op[4] multicast mask; imm, aux:
// offsets of target and source. width: 0 global to shared, 1 shared to shared of the cluster, 2 shared to
// global.
void copy_bulk(Warp& warp, const Inst& inst, uint32_t mask) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint64_t target = lane_address(warp, inst.op[0], inst.imm, lane),
                   source = lane_address(warp, inst.op[1], static_cast<int64_t>(inst.aux), lane);
    const uint32_t bytes = warp.lanes<uint32_t>(inst.op[2])[lane];
    if (bytes % 16 != 0)
      warp.abort(Fault::kMisaligned, lane,
                 "a bulk copy of " + std::to_string(bytes) + " B, not a multiple of 16");
    if (target % 16 != 0 || source % 16 != 0)
      warp.abort(Fault::kMisaligned, lane, "a bulk copy's address is not a multiple of 16");
    const int direction = inst.width;
    warp.counters->bulk_bytes += bytes;
    if (direction != 2) warp.counters->async_copy_bytes += bytes;
    if (direction == 0) {
      ++warp.counters->global_load_requests;
      count_rows(warp, source, bytes, false);
    }
    if (direction == 2) {
      ++warp.counters->global_store_requests;
      count_rows(warp, target, bytes, true);
    }
    Issue issue = issue_of(warp, inst, lane);
    if (direction == 2) {
      auto run = [issue, target, source, bytes] {
        At at(issue);
        uint8_t value[16];
        for (uint32_t i = 0; i < bytes; i += 16) {
          read_chunk(issue, static_cast<uint32_t>(source) + i, value, 16);
          write_global(issue, target + i, value, 16);
        }
      };
      if (warp.block->launch->options->async == AsyncOrder::kEarly)
        run();
      else
        warp.bulk_stores.push_back({lane, warp.bulk_committed[lane], run});
      continue;
    }
    const uint32_t barrier = static_cast<uint32_t>(lane_address(warp, inst.op[3], 0, lane));
    std::vector<uint32_t> ranks = targets(warp, static_cast<uint32_t>(target), inst.op[4], lane);
    const bool multicast = inst.op[4] != kNoSlot;
    queue_task(*warp.block->cluster, [=] {
      At at(issue);
      uint8_t value[16];
      for (uint32_t rank : ranks) {
        for (uint32_t i = 0; i < bytes; i += 16) {
          if (direction == 0)
            read_global(issue, source + i, value, 16);
          else
            read_chunk(issue, static_cast<uint32_t>(source) + i, value, 16);
          write_chunk(issue, in_block(static_cast<uint32_t>(target), rank) + i, value, 16);
        }
        complete_bytes(issue, multicast || barrier >> kRankShift == 0 ? in_block(barrier, rank) : barrier,
                       bytes);
      }
    });
  }
}

TensorMap read_map(Warp& warp, uint64_t address, uint32_t lane) {
  uint8_t bytes[128];
  if (address % 64 != 0) warp.abort(Fault::kMisaligned, lane, "the tensor map is not aligned to 64 bytes");
  for (uint32_t i = 0; i < 128; i += 16)
    std::memcpy(bytes + i, place(warp, Space::kGeneric, address + i, 16, Access::kLoad, lane).at, 16);
  TensorMap map;
  if (!map.load(bytes))
    warp.abort(Fault::kBadInstruction, lane, "the address " + hex(address) + " holds no tensor map");
  return map;
}

// Calls row(shared offset of the row's first byte, global address, first valid element, end of the valid
// elements) for every row of the box; rows outside the tensor have no valid element.
template <class Row>
void for_rows(const TensorMap& map, const int32_t* start, Row&& row) {
  uint32_t index[5] = {0, 0, 0, 0, 0};
  uint64_t rows = 1;
  for (uint32_t i = 1; i < map.rank; ++i) rows *= map.box[i];
  const uint32_t row_bytes = map.box[0] * map.element_bytes;
  for (uint64_t r = 0; r < rows; ++r) {
    bool inside = true;
    uint64_t address = map.address;
    for (uint32_t i = 1; i < map.rank; ++i) {
      int64_t at = static_cast<int64_t>(start[i]) + index[i];
      inside = inside && at >= 0 && at < static_cast<int64_t>(map.dims[i]);
      address += static_cast<uint64_t>(at) * map.strides[i];
    }
    int64_t first = std::max<int64_t>(0, -static_cast<int64_t>(start[0]));
    int64_t end = std::min<int64_t>(map.box[0], static_cast<int64_t>(map.dims[0]) - start[0]);
    if (!inside || end <= first) first = end = 0;
    address += static_cast<uint64_t>(static_cast<int64_t>(start[0]) * map.element_bytes);
    row(static_cast<uint32_t>(r * row_bytes), address, static_cast<uint32_t>(first),
        static_cast<uint32_t>(end));
    for (uint32_t i = 1; i < map.rank && ++index[i] == map.box[i]; ++i) index[i] = 0;
  }
}

void fill_outside(const TensorMap& map, uint8_t* row, uint32_t bytes) {
  std::memset(row, 0, bytes);
  if (!map.nan_fill) return;
  for (uint32_t i = 0; i < bytes; i += map.element_bytes) {
    const uint32_t nan = map.type == cuda::CU_TENSOR_MAP_DATA_TYPE_FLOAT16    ? 0x7fff
                         : map.type == cuda::CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 ? 0x7fff
                                                                              : 0x7fffffff;
    std::memcpy(row + i, &nan, std::min(4u, map.element_bytes));
  }
}

// Maps of tf32 round what they load to nearest even; infinities and NaN stay as they are.
void round_loaded(const TensorMap& map, uint8_t* row, uint32_t bytes) {
  if (map.type != cuda::CU_TENSOR_MAP_DATA_TYPE_TFLOAT32) return;
  for (uint32_t i = 0; i < bytes; i += 4) {
    float value;
    std::memcpy(&value, row + i, 4);
    if (!std::isfinite(value)) continue;
    const uint32_t bits = f32_to_tf32(value, Rounding::kNearest);
    std::memcpy(row + i, &bits, 4);
  }
}

uint32_t swizzled(const TensorMap& map, uint32_t address) {
  return (address & ~kSharedOffsetMask) | swizzle_address(address & kSharedOffsetMask, map.swizzle);
}

// op[0] shared address, op[1] map, op[2] mbarrier, op[3] multicast mask; list: coordinates; width: 0 load, 2
// store.
void copy_tensor(Warp& warp, const Inst& inst, uint32_t mask) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest));
    const uint32_t shared = static_cast<uint32_t>(lane_address(warp, inst.op[0], inst.imm, lane));
    TensorMap map = read_map(warp, lane_address(warp, inst.op[1], 0, lane), lane);
    if (map.rank != inst.list_count)
      warp.abort(Fault::kBadInstruction, lane,
                 std::to_string(inst.list_count) + " coordinates for a tensor map of rank " +
                     std::to_string(map.rank));
    if (shared % 128 != 0)
      warp.abort(Fault::kMisaligned, lane,
                 "shared address " + hex(shared) + " of a tensor copy is not a multiple of 128");
    std::vector<int32_t> start;
    for (uint32_t i = 0; i < inst.list_count; ++i) start.push_back(warp.lanes<int32_t>(inst.list[i])[lane]);
    // The encoding and the documentation allow it, an H200 does not (2026-11-20).
    if (start[0] * static_cast<int64_t>(map.element_bytes) % 16 != 0)
      warp.abort(Fault::kBadInstruction, lane,
                 "the box begins at element " + std::to_string(start[0]) +
                     " of the innermost dimension, which is not a multiple of 16 B");
    const bool store = inst.width == 2;
    warp.counters->bulk_bytes += map.box_bytes();
    if (!store) warp.counters->async_copy_bytes += map.box_bytes();
    ++(store ? warp.counters->global_store_requests : warp.counters->global_load_requests);
    for_rows(map, start.data(), [&](uint32_t, uint64_t address, uint32_t first, uint32_t end) {
      count_rows(warp, address + first * map.element_bytes, (end - first) * map.element_bytes, store);
    });
    Issue issue = issue_of(warp, inst, lane);
    if (store) {
      auto run = [issue, map, shared, start] {
        At at(issue);
        std::vector<uint8_t> row(map.box[0] * map.element_bytes);
        for_rows(map, start.data(), [&](uint32_t offset, uint64_t address, uint32_t first, uint32_t end) {
          if (first == end) return;
          for (uint32_t i = 0; i < row.size(); i += 16)
            read_chunk(issue, swizzled(map, shared + offset + i), row.data() + i, 16);
          // Whole pieces of 16 bytes, those that reach past the last element too (an H200 overwrote the gap
          // after rows of 65 floats, 2026-11-21).
          const uint64_t from = address + first * map.element_bytes,
                         inside = address + end * map.element_bytes;
          const uint64_t to = std::min<uint64_t>((inside + 15) / 16 * 16, address + row.size());
          write_global(issue, from, row.data() + first * map.element_bytes, static_cast<uint32_t>(to - from));
        });
      };
      if (warp.block->launch->options->async == AsyncOrder::kEarly)
        run();
      else
        warp.bulk_stores.push_back({lane, warp.bulk_committed[lane], run});
      continue;
    }
    const uint32_t barrier = static_cast<uint32_t>(lane_address(warp, inst.op[2], 0, lane));
    const bool multicast = inst.op[3] != kNoSlot;
    std::vector<uint32_t> ranks = targets(warp, shared, inst.op[3], lane);
    queue_task(*warp.block->cluster, [=] {
      At at(issue);
      std::vector<uint8_t> row(map.box[0] * map.element_bytes);
      bool inside = false;
      for_rows(map, start.data(), [&](uint32_t offset, uint64_t address, uint32_t first, uint32_t end) {
        inside = inside || first != end;
        fill_outside(map, row.data(), static_cast<uint32_t>(row.size()));
        if (first != end)
          read_global(issue, address + first * map.element_bytes, row.data() + first * map.element_bytes,
                      (end - first) * map.element_bytes);
        round_loaded(map, row.data(), static_cast<uint32_t>(row.size()));
        for (uint32_t rank : ranks)
          for (uint32_t i = 0; i < row.size(); i += 16)
            write_chunk(issue, swizzled(map, in_block(shared, rank) + offset + i), row.data() + i, 16);
      });
      // An H100 and an H200 look the map's address up for a box that lies wholly outside (2026-11-28).
      if (!inside) global_place(*issue.warp, map.address, 1, 1, Access::kLoad, issue.lane);
      for (uint32_t rank : ranks)
        complete_bytes(issue, multicast || barrier >> kRankShift == 0 ? in_block(barrier, rank) : barrier,
                       map.box_bytes());
    });
  }
}

// list: registers of `width` bytes; op[0] target, imm its offset; op[1] mbarrier. The store is the generic proxy's, and
// its completion a release of what the issuing lane has done and seen, as if a thread that it started stored and arrived.
void store_async(Warp& warp, const Inst& inst, uint32_t mask) {
  for (uint32_t rest = mask; rest != 0; rest &= rest - 1) {
    const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest)), bytes = inst.width * inst.vec;
    const auto target = static_cast<uint32_t>(lane_address(warp, inst.op[0], inst.imm, lane)),
               barrier = static_cast<uint32_t>(lane_address(warp, inst.op[1], 0, lane));
    if (target % bytes != 0)
      warp.abort(
          Fault::kMisaligned, lane,
          "shared address " + hex(target) + " of st.async is not a multiple of " + std::to_string(bytes));
    if (target >> kRankShift != barrier >> kRankShift)
      warp.abort(Fault::kBadInstruction, lane, "st.async's mbarrier is in another block than its target");
    std::array<uint8_t, 16> value;
    for (uint32_t i = 0; i < inst.vec; ++i)
      std::memcpy(value.data() + i * inst.width, warp.registers + inst.list[i] + lane * inst.width,
                  inst.width);
    warp.counters->async_copy_bytes += bytes;
    const Issue issue = issue_of(warp, inst, lane);
    queue_task(*warp.block->cluster, [=] {
      At at(issue);
      write_chunk(issue, target, value.data(), bytes);
      complete_bytes(issue, barrier, bytes, issue.view.clock);
    });
  }
}

void commit(Warp& warp, const Inst&, uint32_t mask) {
  for_lanes(mask, [&](int lane) { ++warp.bulk_committed[lane]; });
}

void wait(Warp& warp, const Inst& inst, uint32_t mask) {
  std::vector<BulkStore> later;
  std::vector<BulkStore> stores = std::move(warp.bulk_stores);
  warp.bulk_stores.clear();
  for (BulkStore& store : stores) {
    bool done = (mask >> store.lane & 1) != 0 && static_cast<int64_t>(store.group) + inst.imm <
                                                     static_cast<int64_t>(warp.bulk_committed[store.lane]);
    if (done)
      store.run();
    else
      later.push_back(std::move(store));
  }
  warp.bulk_stores = std::move(later);
}

}  // namespace

void decode_store_async(Decoder& decoder, Inst& inst) {
  decoder.require_target(90);
  inst.cls = InstClass::kAsyncCopy;
  decoder.ignore({"weak"});
  for (const char* needed : {"shared::cluster", "mbarrier::complete_tx::bytes"})
    if (!decoder.take(needed)) decoder.fail(std::string(needed) + " is missing");
  const int vec = decoder.take_any({"v2", "v4"});
  inst.vec = static_cast<uint8_t>(vec < 0 ? 1 : 2 << vec);
  const Type type = decoder.take_type();
  inst.width = static_cast<uint8_t>(type == Type::kNone ? 0 : type_bytes(type));
  if ((inst.width != 4 && inst.width != 8) || inst.width * inst.vec > 16)
    decoder.fail("elements of 4 or 8 bytes, 16 bytes a lane at most");
  inst.op[0] = decoder.address_slot(decoder.operand(0), Space::kShared, &inst.imm);
  const Operand& data = decoder.operand(1);
  std::vector<uint32_t> slots;
  if (data.kind == Operand::Kind::kVector)
    for (const Operand& element : data.elements) slots.push_back(decoder.source_of(element, type));
  else
    slots.push_back(decoder.source_of(data, type));
  if (slots.size() != inst.vec) decoder.fail("the vector's length differs from the modifier");
  decoder.set_list(inst, slots);
  int64_t offset = 0;
  inst.op[1] = decoder.address_slot(decoder.operand(2), Space::kShared, &offset);
  if (offset != 0) decoder.fail("an offset of the mbarrier is not supported");
  inst.fn = store_async;
}

void decode_bulk(Decoder& decoder, Inst& inst) {
  decoder.require_target(90);
  inst.cls = InstClass::kAsyncCopy;
  if (decoder.take("commit_group")) {
    inst.fn = commit;
    return;
  }
  if (decoder.take("wait_group")) {
    decoder.take("read");
    inst.imm = decoder.operand(0).integer;
    inst.fn = wait;
    return;
  }
  const bool prefetch = decoder.take("prefetch"), tensor = decoder.take("tensor");
  const bool hint = decoder.take("L2::cache_hint"), multicast = decoder.take("multicast::cluster");
  if (prefetch) {
    decoder.ignore_matching([](const std::string&) { return true; });
    inst.fn = exec_nothing;
    return;
  }
  // The first of the two spaces is the target's.
  std::vector<std::string> spaces;
  for (const std::string& modifier : decoder.modifiers())
    if (modifier == "global" || modifier == "shared::cta" || modifier == "shared::cluster")
      spaces.push_back(modifier);
  if (spaces.size() != 2) decoder.fail("target and source space are needed");
  decoder.ignore({"global", "shared::cta", "shared::cluster"});
  const bool store = spaces[0] == "global", from_shared = spaces[1] != "global";
  decoder.ignore({"mbarrier::complete_tx::bytes", "bulk_group", "tile"});
  inst.width = static_cast<uint8_t>(store ? 2 : from_shared ? 1 : 0);
  auto optional = [&](size_t next) {  // multicast mask, then cache policy
    if (multicast) inst.op[tensor ? 3 : 4] = decoder.source(next++, Type::kU16);
    if (hint) decoder.source(next++, Type::kB64);
    if (next != decoder.operand_count()) decoder.fail("too many operands");
  };
  int64_t offset = 0;
  if (!tensor) {
    inst.op[0] = decoder.address_slot(decoder.operand(0), store ? Space::kGlobal : Space::kShared, &inst.imm);
    inst.op[1] =
        decoder.address_slot(decoder.operand(1), from_shared ? Space::kShared : Space::kGlobal, &offset);
    inst.aux = static_cast<uint64_t>(offset);
    inst.op[2] = decoder.source(2, Type::kU32);
    if (!store) {
      inst.op[3] = decoder.address_slot(decoder.operand(3), Space::kShared, &offset);
      if (offset != 0) decoder.fail("an offset of the mbarrier is not supported");
    }
    optional(store ? 3 : 4);
    inst.fn = copy_bulk;
    return;
  }
  if (decoder.take_any({"1d", "2d", "3d", "4d", "5d"}) < 0) decoder.fail("the dimension is missing");
  const Operand& map = decoder.operand(store ? 0 : 1);
  if (map.elements.size() != 2 || map.elements[1].kind != Operand::Kind::kVector)
    decoder.fail("the map needs coordinates");
  inst.op[1] = decoder.address_slot(map, Space::kGeneric, &offset);
  if (offset != 0) decoder.fail("an offset of the tensor map is not supported");
  std::vector<uint32_t> coordinates;
  for (const Operand& element : map.elements[1].elements)
    coordinates.push_back(decoder.source_of(element, Type::kS32));
  decoder.set_list(inst, coordinates);
  inst.op[0] = decoder.address_slot(decoder.operand(store ? 1 : 0), Space::kShared, &inst.imm);
  if (!store) {
    inst.op[2] = decoder.address_slot(decoder.operand(2), Space::kShared, &offset);
    if (offset != 0) decoder.fail("an offset of the mbarrier is not supported");
  }
  optional(store ? 2 : 3);
  inst.fn = copy_tensor;
}

}  // namespace trigen::emulator
