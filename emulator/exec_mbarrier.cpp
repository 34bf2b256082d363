// mbarrier objects: arrivals, transaction counts, phases. (PTX ISA, "Parallel Synchronization: mbarrier")
#include "emulator/async.h"
#include "emulator/exec.h"

namespace trigen::emulator {

namespace {
constexpr int32_t kByteBias = 1 << 20;
constexpr uint32_t kMaxArrivals = (1u << 20) - 1;
}  // namespace

Mbarrier Mbarrier::load(const uint8_t* at) {
  uint64_t bits;
  std::memcpy(&bits, at, 8);
  Mbarrier state;
  state.pending = bits & 0xfffff;
  state.expected = bits >> 20 & 0xfffff;
  state.phase = (bits >> 40 & 1) != 0;
  state.bytes = static_cast<int32_t>(bits >> 41 & 0x1fffff) - kByteBias;
  state.valid = bits >> 62 == 2;
  return state;
}

void Mbarrier::store(uint8_t* at) const {
  uint64_t bits = static_cast<uint64_t>(pending) | static_cast<uint64_t>(expected) << 20 |
                  static_cast<uint64_t>(phase) << 40 | static_cast<uint64_t>(bytes + kByteBias) << 41 |
                  (valid ? uint64_t{2} << 62 : 0);
  std::memcpy(at, &bits, 8);
}

Place mbarrier_place(Warp& warp, uint64_t address, uint32_t lane, Mbarrier* state) {
  Place at = shared_place(warp, static_cast<uint32_t>(address), 8, 8, lane);
  *state = Mbarrier::load(at.at);
  if (!state->valid)
    warp.abort(Fault::kUninitialised, lane,
               "shared offset " + std::to_string(at.offset) + " holds no initialised mbarrier");
  return at;
}

namespace {

// A phase ends, and parity tells two phases apart and no more: who has not seen the end of the one before would wait for
// the one after. (PTX ISA, "mbarrier.test_wait": phaseParity is that of the current phase or of the one just before)
void need_ended_waits(Warp& warp, const Place& place, MbarrierClocks& clocks, uint32_t lane) {
  const uint32_t ended = warp.block->cluster->clocks.ended();
  for (const MbarrierClocks::Wait& wait : clocks.waits) {
    Known known;
    for (const Clock* clock : {&clocks.current.own, &clocks.current.others})
      if (!clock->empty()) known.join((*clock)[ended + wait.agent]);
    if (clocks.current.relaxed || !place.shared->race.enabled() || wait.tick <= known.all ||
        wait.tick < known.passed)
      continue;
    const uint32_t left = wait.tick <= known.some ? wait.lanes & ~known.lanes : wait.lanes;
    if (left == 0) continue;
    const auto warps = static_cast<uint32_t>(warp.block->warps.size());
    warp.report(Fault::kBarrierRace, lane,
                "the mbarrier at shared offset " + std::to_string(place.offset) +
                    " ends a phase while lanes " + hex(left) + " of warp " +
                    std::to_string(wait.agent % warps) +
                    " may still wait for the end of the one before: nothing tells that they have seen it");
    break;
  }
  clocks.waits.clear();
}

}  // namespace

void mbarrier_update(Warp& warp, const Place& place, Mbarrier state, uint32_t arrivals, int64_t bytes,
                     uint32_t lane, const Clock* clock, Scope scope) {
  if (arrivals > state.pending)
    warp.abort(Fault::kDeadlock, lane,
               "the mbarrier at shared offset " + std::to_string(place.offset) + " got " +
                   std::to_string(arrivals) + " arrivals and " + std::to_string(state.pending) +
                   " are pending of " + std::to_string(state.expected));
  const int64_t total = state.bytes + bytes;
  if (total >= kByteBias || total <= -kByteBias)
    warp.abort(Fault::kBadInstruction, lane, "the transaction count leaves its range");
  state.pending -= arrivals;
  state.bytes = static_cast<int32_t>(total);
  MbarrierClocks& clocks = place.shared->mbarrier_clocks[place.offset];
  if (clock != nullptr) {
    const Clocks& all = warp.block->cluster->clocks;
    const bool own = place.shared == warp.block || scope == Scope::kEveryWait;
    Clock& joined = own ? clocks.current.own : clocks.current.others;
    joined.resize(all.width());
    join(joined, *clock, own || scope == Scope::kCluster ? 0 : all.ended());
  } else if (arrivals != 0) {
    clocks.current.relaxed = true;
  }
  if (state.pending == 0 && state.bytes == 0) {
    state.phase = !state.phase;
    state.pending = state.expected;
    need_ended_waits(warp, place, clocks, lane);
    clocks.completed = clocks.current;
    clocks.current.relaxed = false;
  }
  state.store(place.at);
}

void fence_mbarrier_inits(Warp& warp) {
  for (Block& block : warp.block->cluster->blocks)
    for (auto& [offset, clocks] : block.mbarrier_clocks)
      if (clocks.init_agent == warp.agent) clocks.init_fenced = true;
}

void need_fenced_init(Warp& warp, const Place& place, uint32_t lane) {
  MbarrierClocks& clocks = place.shared->mbarrier_clocks[place.offset];
  if (clocks.init_fenced || !warp.block->launch->options->check_races) return;
  clocks.init_fenced = true;  // one report is enough
  warp.report(Fault::kAsyncHazard, lane,
              "the mbarrier at shared offset " + std::to_string(place.offset) +
                  " was initialised without fence.mbarrier_init (or fence.proxy.async) after it, and the "
                  "asynchronous copy unit completes on it");
}

namespace {

// op[1]: address, op[2]: count or state, op[3]: destination (state or predicate). imm: offset.
void init(Warp& warp, const Inst& inst, uint32_t mask) {
  for_lanes(mask, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    Place at =
        shared_place(warp, static_cast<uint32_t>(lane_address(warp, inst.op[1], inst.imm, lane)), 8, 8, lane);
    uint32_t count = warp.lanes<uint32_t>(inst.op[2])[lane];
    if (count == 0 || count > kMaxArrivals)
      warp.abort(Fault::kBadInstruction, lane, "an mbarrier for " + std::to_string(count) + " arrivals");
    Mbarrier state;
    state.pending = state.expected = count;
    state.valid = true;
    uint8_t bits[8];
    state.store(bits);
    store_bytes(warp, at, bits, 8, lane);
    at.shared->mbarrier_clocks[at.offset] = MbarrierClocks{warp.agent, false, {}, {}, {}};
  });
}

void invalidate(Warp& warp, const Inst& inst, uint32_t mask) {
  for_lanes(mask, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    Mbarrier state;
    Place at = mbarrier_place(warp, lane_address(warp, inst.op[1], inst.imm, lane), lane, &state);
    state.valid = false;
    state.store(at.at);
    std::memset(at.written, 0, 8);  // the bytes may be used for something else once written
  });
}

// Other warps' arrivals must see the init: the race check takes the object's creation as a write.
void note_use(Warp& warp, const Place& at, uint32_t lane) {
  note_remote(warp, at.shared, warp.agent, lane);
  if (!at.shared->race.enabled()) return;
  report_race(warp, at.shared->race.read(at.offset, 8, accessor_of(warp, lane)), at.offset, lane);
}

// aux: 1 expect_tx, 2 drop, 4 no_complete, 8 count given, 16 relaxed, 32 returns the state, 64 scope .cluster.
void arrive(Warp& warp, const Inst& inst, uint32_t mask) {
  Clocks& clocks = warp.block->cluster->clocks;
  for_lanes(mask, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    Mbarrier state;
    Place at = mbarrier_place(warp, lane_address(warp, inst.op[1], inst.imm, lane), lane, &state);
    note_use(warp, at, lane);
    const uint32_t value = inst.op[2] == kNoSlot ? 1 : warp.lanes<uint32_t>(inst.op[2])[lane];
    if ((inst.aux & 32) != 0) {
      uint64_t token = state.phase ? 1 : 0;
      warp.lanes<uint64_t>(inst.op[3])[lane] = token;
    }
    if ((inst.aux & 2) != 0) {
      if (state.expected == 0) warp.abort(Fault::kBadInstruction, lane, "no arrival is left to drop");
      --state.expected;
    }
    const bool expects = (inst.aux & 1) != 0;
    mbarrier_update(warp, at, state, expects ? 1 : value, expects ? static_cast<int64_t>(value) : 0, lane,
                    (inst.aux & 16) != 0 ? nullptr : &clocks.released(warp.agent, warp.with_gone(1u << lane)),
                    (inst.aux & 64) != 0 ? Scope::kCluster : Scope::kBlock);
  });
  clocks.tick(warp.agent);
}

// aux: 1 expect (adds), 0 complete (takes away).
void change_bytes(Warp& warp, const Inst& inst, uint32_t mask) {
  for_lanes(mask, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    Mbarrier state;
    Place at = mbarrier_place(warp, lane_address(warp, inst.op[1], inst.imm, lane), lane, &state);
    const int64_t value = warp.lanes<uint32_t>(inst.op[2])[lane];
    mbarrier_update(warp, at, state, 0, inst.aux != 0 ? value : -value, lane, nullptr, Scope::kBlock);
  });
}

// Lanes have seen the end of a barrier's last phase.
void see_end(Warp& warp, MbarrierClocks& barrier, uint32_t lanes, bool relaxed, bool cluster) {
  Clocks& clocks = warp.block->cluster->clocks;
  for (MbarrierClocks::Wait& wait : barrier.waits)  // the last of each lane counts
    if (wait.agent == warp.agent) wait.lanes &= ~lanes;
  std::erase_if(barrier.waits, [](const MbarrierClocks::Wait& wait) { return wait.lanes == 0; });
  barrier.waits.push_back({warp.agent, lanes, clocks.now(warp.agent)});
  clocks.tick(warp.agent);
  if (relaxed) return;
  const MbarrierClocks::Phase& phase = barrier.completed;
  clocks.acquire(warp.agent, warp.with_gone(lanes), phase.own);
  clocks.acquire(warp.agent, warp.with_gone(lanes), phase.others, cluster ? 0 : clocks.ended());
}

// aux: 1 parity (else a state), 2 relaxed, 4 scope .cluster.
void test(Warp& warp, const Inst& inst, uint32_t mask) {
  uint32_t done = 0;
  MbarrierClocks* barriers[32];
  for_lanes(mask, [&](int l) {
    const uint32_t lane = static_cast<uint32_t>(l);
    Mbarrier state;
    Place at = mbarrier_place(warp, lane_address(warp, inst.op[1], inst.imm, lane), lane, &state);
    note_use(warp, at, lane);
    const bool waited = (inst.aux & 1) != 0 ? (warp.lanes<uint32_t>(inst.op[2])[lane] & 1) != 0
                                            : (warp.lanes<uint64_t>(inst.op[2])[lane] & 1) != 0;
    if (state.phase == waited) return;
    done |= 1u << lane;
    barriers[lane] = &at.shared->mbarrier_clocks[at.offset];
  });
  for (uint32_t rest = done; rest != 0;) {
    MbarrierClocks* barrier = barriers[__builtin_ctz(rest)];
    uint32_t lanes = 0;
    for (uint32_t other = rest; other != 0; other &= other - 1)
      if (barriers[__builtin_ctz(other)] == barrier) lanes |= other & -other;
    see_end(warp, *barrier, lanes, (inst.aux & 2) != 0, (inst.aux & 4) != 0);
    rest &= ~lanes;
  }
  warp.set_predicate(inst.op[3], done, mask);
  if (done == mask)
    ++warp.counters->mbarrier_waits;
  else
    warp.spin = true;
}

void decode_mbarrier(Decoder& decoder, Inst& inst) {
  decoder.require_target(80);
  inst.cls = InstClass::kBarrier;
  int what = decoder.take_any({"init", "inval", "arrive", "arrive_drop", "expect_tx", "complete_tx",
                               "test_wait", "try_wait", "pending_count"});
  bool expects = what == 2 || what == 3 ? decoder.take("expect_tx") : false;
  bool parity = decoder.take("parity"), no_complete = decoder.take("noComplete"),
       relaxed = decoder.take("relaxed");
  bool remote = false, cluster = false;  // the address, the scope
  for (const std::string& modifier : decoder.modifiers()) {
    remote = remote || modifier == "shared::cluster";
    cluster = cluster || modifier == "cluster";
  }
  if (remote || expects || what == 4 || what == 5 || what == 7) decoder.require_target(90);
  decoder.ignore({"release", "acquire", "cta", "cluster", "shared", "shared::cta", "shared::cluster", "b64"});
  size_t next = 0;
  auto address = [&] {
    inst.op[1] = decoder.address_slot(decoder.operand(next++), Space::kShared, &inst.imm);
  };
  switch (what) {
    case 0:
      address();
      inst.op[2] = decoder.source(next, Type::kU32);
      inst.fn = init;
      break;
    case 1:
      address();
      inst.fn = invalidate;
      break;
    case 2:
    case 3: {
      if (decoder.operand(0).kind != Operand::Kind::kAddress) {
        inst.op[3] = decoder.dest(next, Type::kB64);
        if (decoder.operand(0).kind == Operand::Kind::kRegister) inst.aux |= 32;
        ++next;
      }
      address();
      if (next < decoder.operand_count()) inst.op[2] = decoder.source(next, Type::kU32);
      inst.aux |= (expects ? 1u : 0u) | (what == 3 ? 2u : 0u) | (no_complete ? 4u : 0u) |
                  (relaxed ? 16u : 0u) | (cluster ? 64u : 0u);
      if (expects && inst.op[2] == kNoSlot) decoder.fail("the transaction count is missing");
      inst.fn = arrive;
      break;
    }
    case 4:
    case 5:
      address();
      inst.op[2] = decoder.source(next, Type::kU32);
      inst.aux = what == 4 ? 1 : 0;
      inst.fn = change_bytes;
      break;
    case 6:
    case 7:
      inst.op[3] = decoder.predicate_dest(next++);
      address();
      inst.op[2] = decoder.source(next++, parity ? Type::kU32 : Type::kB64);
      if (next < decoder.operand_count())
        decoder.source(next, Type::kU32);  // a time limit: try_wait gives up at once here
      inst.aux = (parity ? 1u : 0u) | (relaxed ? 2u : 0u) | (cluster ? 4u : 0u);
      inst.fn = test;
      break;
    case 8:
      decoder.fail("mbarrier.pending_count is not supported");
    default:
      decoder.fail("this operation is not known");
  }
}

}  // namespace

void register_mbarrier(OpcodeTable& table) { table["mbarrier"] = decode_mbarrier; }

}  // namespace trigen::emulator
