// cp.async and its groups. Copies land as late as the ISA allows: when the thread that issued them waits.
// (PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy, non-bulk")

#include "emulator/async.h"
#include "emulator/exec.h"

namespace trigen::emulator {
namespace {

void carry_out(Warp& warp, AsyncCopy& copy, uint32_t lanes) {
  const Inst* here = warp.inst;
  warp.inst = copy.inst;  // reports name the copy, not the wait
  Clocks& clocks = warp.block->cluster->clocks;
  for_lanes(lanes, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    uint8_t value[16] = {};
    if (copy.source_bytes[lane] != 0) {
      Place from = global_place(warp, copy.source[lane], copy.source_bytes[lane], 1, Access::kLoad, lane);
      note_read(warp, from, copy.source_bytes[lane], lane);
      std::memcpy(value, from.at, copy.source_bytes[lane]);
    }
    Place to = shared_place(warp, static_cast<uint32_t>(copy.target[lane]), copy.bytes, copy.bytes, lane);
    if (to.shared->race.enabled()) {
      const Accessor by{warp.agent, lane, copy.clock.data(), clocks.now(warp.agent), clocks.ended()};
      report_race(warp, to.shared->race.write(to.offset, copy.bytes, by), to.offset, lane);
    }
    std::memcpy(to.at, value, copy.bytes);
    std::memset(to.written, 1, copy.bytes);
  });
  warp.inst = here;
}

// op[1]: target address, op[2]: source address, op[3]: source size or none, op[4]: ignore-source predicate or
// none. imm: target offset, aux: source offset, width: bytes, vec: predicate negated.
void copy_async(Warp& warp, const Inst& inst, uint32_t mask) {
  AsyncCopy copy;
  copy.mask = mask;
  copy.bytes = inst.width;
  copy.inst = &inst;
  copy.sequence = warp.copy_sequence++;
  lane_addresses(warp, inst.op[1], inst.imm, mask, copy.target);
  lane_addresses(warp, inst.op[2], static_cast<int64_t>(inst.aux), mask, copy.source);
  uint32_t ignored = inst.op[4] == kNoSlot ? 0 : warp.predicate(inst.op[4]);
  if (inst.op[4] != kNoSlot && inst.reg_width != 0) ignored = ~ignored;
  uint32_t readers = 0;
  for_lanes(mask, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    uint32_t bytes = inst.op[3] == kNoSlot ? copy.bytes : warp.lanes<uint32_t>(inst.op[3])[lane];
    if (bytes > copy.bytes)
      warp.abort(Fault::kBadInstruction, lane,
                 "source size " + std::to_string(bytes) + " above the copy's " + std::to_string(copy.bytes));
    if ((ignored >> lane & 1) != 0) bytes = 0;
    copy.source_bytes[lane] = static_cast<uint8_t>(bytes);
    copy.group[lane] = warp.committed[lane];
    if (space_of(Space::kGeneric, copy.source[lane]) != Space::kGlobal)
      warp.abort(Fault::kOutOfBounds, lane, "the source is not global memory");
    // Both ends are checked when the copy is issued, so that the report stands at its line.
    if (bytes != 0) {
      readers |= 1u << lane;
      global_place(warp, copy.source[lane], bytes, 1, Access::kLoad, lane);
      if (copy.source[lane] % copy.bytes != 0)
        warp.abort(Fault::kMisaligned, lane,
                   "source address " + hex(copy.source[lane]) + " is not a multiple of " +
                       std::to_string(copy.bytes));
    }
    shared_place(warp, static_cast<uint32_t>(copy.target[lane]), copy.bytes, copy.bytes, lane);
  });
  if (readers != 0) count_access(warp, Space::kGlobal, copy.source, readers, copy.bytes, false);
  count_access(warp, Space::kShared, copy.target, mask, copy.bytes, true);
  warp.counters->async_copy_bytes += static_cast<uint64_t>(__builtin_popcount(mask)) * copy.bytes;
  copy.clock = warp.block->cluster->clocks.known(warp.agent, mask);
  AsyncOrder order = warp.block->launch->options->async;
  if (order == AsyncOrder::kEarly ||
      (order == AsyncOrder::kRandom && warp.block->cluster->random() % 2 == 0)) {
    carry_out(warp, copy, mask);
    return;
  }
  warp.copies.push_back(std::move(copy));
}

void commit_group(Warp& warp, const Inst&, uint32_t mask) {
  for_lanes(mask, [&](int lane) { ++warp.committed[lane]; });
}

// Lands the copies of all groups but the latest `imm`; imm < 0 is wait_all, which takes uncommitted copies
// too.
void wait_group(Warp& warp, const Inst& inst, uint32_t mask) {
  for (AsyncCopy& copy : warp.copies) {
    uint32_t lanes = 0;
    for (uint32_t rest = copy.mask & mask; rest != 0; rest &= rest - 1) {
      int lane = __builtin_ctz(rest);
      // Group g is complete for wait_group n when g + n < committed.
      if (inst.imm < 0 ||
          static_cast<int64_t>(copy.group[lane]) + inst.imm < static_cast<int64_t>(warp.committed[lane]))
        lanes |= rest & -rest;
    }
    if (lanes == 0) continue;
    carry_out(warp, copy, lanes);
    copy.mask &= ~lanes;
  }
  std::erase_if(warp.copies, [](const AsyncCopy& copy) { return copy.mask == 0; });
}

// cp.async.mbarrier.arrive: an arrival once all earlier copies of the thread have landed. op[1]: address;
// aux: noinc.
void arrive_after_copies(Warp& warp, const Inst& inst, uint32_t mask) {
  const uint64_t before = warp.copy_sequence;
  Clocks& clocks = warp.block->cluster->clocks;
  for_lanes(mask, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    const uint64_t address = lane_address(warp, inst.op[1], inst.imm, lane);
    Mbarrier state;
    Place at = mbarrier_place(warp, address, lane, &state);
    if (inst.aux == 0) {  // without .noinc the arrival is paid for by one more pending arrival
      ++state.pending;
      state.store(at.at);
    }
    Warp* owner = &warp;
    const Inst* where = &inst;
    queue_task(*warp.block->cluster, [owner, where, at, lane, before, &clocks] {
      const Inst* here = owner->inst;
      owner->inst = where;
      finish_copies(*owner, 1u << lane, before);
      mbarrier_update(*owner, at, Mbarrier::load(at.at), 1, 0, lane,
                      &clocks.released(owner->agent, owner->with_gone(1u << lane)), Scope::kBlock);
      owner->inst = here;
    });
  });
  clocks.tick(warp.agent);
}

void decode_non_bulk(Decoder& decoder, Inst& inst) {
  decoder.require_target(80);
  inst.cls = InstClass::kAsyncCopy;
  if (decoder.take("commit_group")) {
    inst.fn = commit_group;
    return;
  }
  if (decoder.take("wait_group") || decoder.take("wait_all")) {
    inst.imm = decoder.operand_count() == 0 ? -1 : decoder.operand(0).integer;
    inst.fn = wait_group;
    return;
  }
  if (decoder.take("mbarrier")) {
    if (!decoder.take("arrive")) decoder.fail("only cp.async.mbarrier.arrive is known");
    inst.aux = decoder.take("noinc") ? 1 : 0;
    decoder.ignore({"shared", "shared::cta", "b64"});
    inst.op[1] = decoder.address_slot(decoder.operand(0), Space::kShared, &inst.imm);
    inst.fn = arrive_after_copies;
    return;
  }
  int cache = decoder.take_any({"ca", "cg"});
  if (cache < 0) decoder.fail("neither ca nor cg");
  decoder.ignore({"shared", "shared::cta", "global"});
  bool hint = decoder.take("L2::cache_hint");
  decoder.ignore_matching([](const std::string& m) { return m.rfind("L2::", 0) == 0; });
  inst.op[1] = decoder.address_slot(decoder.operand(0), Space::kShared, &inst.imm);
  int64_t offset = 0;
  inst.op[2] = decoder.address_slot(decoder.operand(1), Space::kGlobal, &offset);
  inst.aux = static_cast<uint64_t>(offset);
  int64_t bytes = decoder.operand(2).integer;
  if (bytes != 16 && (cache == 1 || (bytes != 4 && bytes != 8)))
    decoder.fail("a copy of " + std::to_string(bytes) + " bytes; .ca takes 4, 8, 16 and .cg takes 16");
  inst.width = static_cast<uint8_t>(bytes);
  size_t optional = decoder.operand_count() - 3 - (hint ? 1 : 0);
  if (optional > 1) decoder.fail("too many operands");
  if (optional == 1) {
    const Operand& extra = decoder.operand(3);
    if (extra.kind == Operand::Kind::kRegister && decoder.register_width(extra) == 0) {
      bool negated = false;
      inst.op[4] = decoder.predicate(3, &negated);
      inst.reg_width = negated ? 1 : 0;
    } else {
      inst.op[3] = decoder.source(3, Type::kU32);
    }
  }
  inst.fn = copy_async;
}

}  // namespace

void decode_bulk(Decoder& decoder, Inst& inst);

void finish_copies(Warp& warp, uint32_t lanes, uint64_t before) {
  for (AsyncCopy& copy : warp.copies) {
    uint32_t now = copy.mask & lanes;
    if (now == 0 || copy.sequence >= before) continue;
    carry_out(warp, copy, now);
    copy.mask &= ~now;
  }
  std::erase_if(warp.copies, [](const AsyncCopy& copy) { return copy.mask == 0; });
}

void queue_task(Cluster& cluster, std::function<void()> run) {
  const AsyncOrder order = cluster.launch->options->async;
  if (order == AsyncOrder::kEarly)
    run();
  else  // one that drew a high number is overtaken by all that come while it is under way
    cluster.tasks.push_back({order == AsyncOrder::kShuffled ? cluster.random() : 0, std::move(run)});
}

// cp is one opcode: cp.async, cp.async.bulk and cp.async.bulk.tensor.
void register_async(OpcodeTable& table) {
  table["cp"] = [](Decoder& decoder, Inst& inst) {
    if (!decoder.take("async")) decoder.fail("only cp.async is known");
    if (decoder.take("bulk"))
      decode_bulk(decoder, inst);
    else
      decode_non_bulk(decoder, inst);
  };
}

}  // namespace trigen::emulator
