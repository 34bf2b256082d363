// Branches, exit, block and cluster barriers, fences, and instructions that only pass time.
#include "emulator/async.h"
#include "emulator/exec.h"

namespace trigen::emulator {
namespace {

void decode_bra(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kControl;
  inst.flow = Flow::kBranch;
  decoder.ignore({"uni"});
  if (decoder.operand(0).kind != Operand::Kind::kName) decoder.fail("the target is not a label");
  decoder.label(decoder.operand(0).name);
}

void decode_brx(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kControl;
  inst.flow = Flow::kBranchTable;
  decoder.ignore({"uni"});
  if (!decoder.take("idx")) decoder.fail("only brx.idx is known");
  inst.op[0] = decoder.source(0, Type::kU32);
  decoder.label_list(decoder.operand(1).name, inst);
}

void decode_exit(Decoder& decoder, Inst& inst) {
  decoder.ignore({"uni"});
  inst.cls = InstClass::kControl;
  inst.flow = Flow::kExit;
}

void trap(Warp& warp, const Inst&, uint32_t mask) {
  warp.abort(Fault::kTrap, static_cast<uint32_t>(__builtin_ctz(mask)), "the kernel executed a trap");
}
void decode_trap(Decoder&, Inst& inst) {
  inst.cls = InstClass::kControl;
  inst.fn = trap;
}

// --- block barriers ----------------------------------------------------------------------------------------

enum class BarrierMode : uint8_t { kSync, kArrive, kRedPopc, kRedAnd, kRedOr };

void complete(Barrier& barrier, BarrierMode mode) {
  ++barrier.generation;
  barrier.last_clock = std::move(barrier.clock);
  barrier.clock.clear();
  barrier.result = barrier.reduction;
  (void)mode;
  barrier.arrived = barrier.expected = 0;
  barrier.reduction = 0;
}

// Whoever arrives without knowing that the phase before is complete might as well have come in time for it, in the
// place of one that it waited for: two groups of warps that share a number, or an arrival that nothing holds back.
void need_last_phase(Warp& warp, const Barrier& barrier, const Clock& known, uint32_t number, uint32_t lane) {
  if (!warp.block->race.enabled()) return;
  for (size_t agent = 0; agent < barrier.last_clock.size(); ++agent)
    if (!known[agent].covers_all_of(barrier.last_clock[agent]))
      return warp.report(
          Fault::kBarrierRace, lane,
          "barrier " + std::to_string(number) +
              " is arrived at by a warp that does not know its last phase to be complete, and so "
              "might have counted for that one");
}

// __syncthreads in a branch that threads take differently: undefined (CUDA C++ Programming Guide, "Synchronization Functions"), and
// what compute-sanitizer's synccheck reports, though the hardware counts alone.
void need_one_place(Warp& warp, Barrier& barrier, int line, uint32_t number, uint32_t lane) {
  if (barrier.arrived == 0) barrier.line = line;
  if (barrier.line != line)
    warp.report(Fault::kBarrierRace, lane,
                "barrier " + std::to_string(number) + " of all threads, at which others wait in line " +
                    std::to_string(barrier.line));
}

// op[0]: barrier number, op[1]: thread count or kNoSlot; op[2]: destination, op[3]: predicate of a reduction.
// aux: BarrierMode | aligned << 8; imm: the predicate is negated.
void block_barrier(Warp& warp, const Inst& inst, uint32_t mask) {
  Block& block = *warp.block;
  const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(mask));
  const BarrierMode mode = static_cast<BarrierMode>(inst.aux & 0xff);
  const bool aligned = (inst.aux >> 8) != 0;
  uint32_t number = warp.lanes<uint32_t>(inst.op[0])[lane];
  if (number > 15)
    warp.abort(Fault::kBadInstruction, lane, "barrier " + std::to_string(number) + " of 0 to 15");
  Barrier& barrier = block.barriers[number];
  Fragment& fragment = warp.fragment();
  Clocks& clocks = block.cluster->clocks;
  if (fragment.stage == 0) {
    if (aligned && mask != warp.alive()) {  // the whole warp has to come together
      fragment.wait = Fragment::Wait::kCollective;
      warp.wait = true;
      return;
    }
    const bool counted = inst.op[1] != kNoSlot;
    uint32_t expected = counted ? warp.lanes<uint32_t>(inst.op[1])[lane] : 0;
    const Clock& known = clocks.released(warp.agent, warp.with_gone(mask));
    need_last_phase(warp, barrier, known, number, lane);
    if (counted && (expected == 0 || expected % 32 != 0))
      warp.abort(Fault::kBadInstruction, lane,
                 "a barrier for " + std::to_string(expected) + " threads, which is not a multiple of 32");
    if (barrier.arrived != 0 && barrier.expected != expected)
      warp.abort(Fault::kDeadlock, lane,
                 "barrier " + std::to_string(number) + " is used with " + std::to_string(expected) +
                     " threads while others wait at it with " + std::to_string(barrier.expected));
    barrier.expected = expected;
    if (!counted) need_one_place(warp, barrier, inst.line, number, lane);
    // With a count a warp counts as 32 threads, exited lanes too; without one, all threads that have not
    // exited come.
    barrier.arrived += counted && aligned ? 32u : static_cast<uint32_t>(__builtin_popcount(mask));
    barrier.clock.resize(clocks.width());
    join(barrier.clock, known);
    clocks.tick(warp.agent);
    clocks.pass(warp.agent);  // an arrival, too, waits for the other lanes
    ++warp.counters->barrier_waits;
    if (inst.op[3] != kNoSlot) {
      uint32_t bits = warp.predicate(inst.op[3]);
      if (inst.imm != 0) bits = ~bits;
      uint32_t count = static_cast<uint32_t>(__builtin_popcount(bits & mask));
      if (mode == BarrierMode::kRedPopc || mode == BarrierMode::kRedOr)
        barrier.reduction += count;
      else
        barrier.reduction +=
            static_cast<uint32_t>(__builtin_popcount(mask)) - count;  // and: counts the false ones
    }
    fragment.token = barrier.generation;
    uint32_t needed = counted ? expected : block.alive_threads();
    if (barrier.arrived > needed)
      warp.abort(Fault::kDeadlock, lane,
                 "barrier " + std::to_string(number) + " for " + std::to_string(needed) +
                     " threads was reached by " + std::to_string(barrier.arrived));
    if (barrier.arrived == needed) complete(barrier, mode);
    if (mode == BarrierMode::kArrive) return;
    fragment.stage = 1;
  }
  if (barrier.generation == fragment.token) {
    // Threads that exited since may have been the last ones waited for.
    if (barrier.expected == 0 && barrier.arrived != 0 && barrier.arrived == block.alive_threads())
      complete(barrier, mode);
    if (barrier.generation == fragment.token) {
      warp.wait = true;
      return;
    }
  }
  clocks.acquire(warp.agent, warp.with_gone(mask), barrier.last_clock);
  if (mode == BarrierMode::kRedPopc) {
    uint32_t* d = warp.lanes<uint32_t>(inst.op[2]);
    for_lanes(mask, [&](int l) { d[l] = barrier.result; });
  } else if (mode == BarrierMode::kRedAnd) {
    warp.set_predicate(inst.op[2], barrier.result == 0 ? kFullMask : 0, mask);
  } else if (mode == BarrierMode::kRedOr) {
    warp.set_predicate(inst.op[2], barrier.result != 0 ? kFullMask : 0, mask);
  }
}

void warp_sync(Warp& warp, const Inst&, uint32_t mask) {
  warp.block->cluster->clocks.sync(warp.agent, warp.with_gone(mask));
}

// --- cluster barriers --------------------------------------------------------------------------------------

// barrier.cluster.arrive: every thread of every block once per phase; wait: until all have.
void cluster_arrive(Warp& warp, const Inst& inst, uint32_t mask) {
  Cluster& cluster = *warp.block->cluster;
  Barrier& barrier = cluster.barrier;
  const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(mask));
  if (cluster.cluster_arrived[warp.agent] == barrier.generation + 1 && mask == warp.alive())
    warp.abort(Fault::kDeadlock, lane, "the warp arrives at the cluster barrier twice without a wait");
  cluster.cluster_arrived[warp.agent] = barrier.generation + 1;
  barrier.arrived += static_cast<uint32_t>(__builtin_popcount(mask));
  barrier.clock.resize(cluster.clocks.width());
  if (inst.aux == 0)  // .relaxed orders nothing
    join(barrier.clock, cluster.clocks.released(warp.agent, warp.with_gone(mask)));
  cluster.clocks.tick(warp.agent);
  cluster.clocks.pass(warp.agent);
  ++warp.counters->barrier_waits;
  uint32_t alive = 0;
  for (const Block& block : cluster.blocks) alive += block.alive_threads();
  if (barrier.arrived == alive) complete(barrier, BarrierMode::kArrive);
}

void cluster_wait(Warp& warp, const Inst&, uint32_t mask) {
  Cluster& cluster = *warp.block->cluster;
  Barrier& barrier = cluster.barrier;
  const uint32_t lane = static_cast<uint32_t>(__builtin_ctz(mask));
  uint64_t phase = cluster.cluster_arrived[warp.agent];
  if (phase == 0)
    warp.abort(Fault::kDeadlock, lane, "a wait at the cluster barrier without an arrival before it");
  if (barrier.generation < phase) {
    uint32_t alive = 0;
    for (const Block& block : cluster.blocks) alive += block.alive_threads();
    if (barrier.arrived == alive) complete(barrier, BarrierMode::kArrive);
    if (barrier.generation < phase) {
      warp.wait = true;
      return;
    }
  }
  cluster.clocks.acquire(warp.agent, warp.with_gone(mask), barrier.last_clock);
}

void decode_barrier(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kBarrier;
  const bool bar = decoder.opcode() == "bar";
  if (decoder.take("warp")) {
    decoder.take("sync");
    inst.flow = Flow::kCollective;
    inst.op[0] = decoder.source(0, Type::kB32);
    inst.fn = warp_sync;
    return;
  }
  if (decoder.take("cluster")) {
    decoder.require_target(90);
    bool arrive = decoder.take("arrive");
    if (!arrive && !decoder.take("wait")) decoder.fail("neither arrive nor wait");
    const bool aligned = decoder.take("aligned");  // a warp arrives as one
    decoder.ignore({"release", "acquire"});
    inst.aux = decoder.take("relaxed") ? 1 : 0;
    inst.fn = arrive ? cluster_arrive : cluster_wait;
    inst.flow = !arrive ? Flow::kBlocking : aligned ? Flow::kCollective : Flow::kNext;
    return;
  }
  decoder.take("cta");
  inst.flow = Flow::kBlocking;
  bool aligned = decoder.take("aligned") || bar;
  BarrierMode mode = BarrierMode::kSync;
  size_t next = 0;
  if (decoder.take("arrive"))
    mode = BarrierMode::kArrive;
  else if (decoder.take("red")) {
    int op = decoder.take_any({"popc", "and", "or"});
    Type type = decoder.take_type();
    if (op < 0) decoder.fail("the reduction is missing");
    mode = static_cast<BarrierMode>(static_cast<int>(BarrierMode::kRedPopc) + op);
    inst.op[2] = type == Type::kPred ? decoder.predicate_dest(0) : decoder.dest(0, Type::kU32);
    next = 1;
  } else if (!decoder.take("sync")) {
    decoder.fail("neither sync, arrive nor red");
  }
  inst.op[0] = decoder.source(next++, Type::kU32);
  size_t left = decoder.operand_count() - next;
  bool reduces = static_cast<int>(mode) >= static_cast<int>(BarrierMode::kRedPopc);
  if (left == (reduces ? 2u : 1u)) inst.op[1] = decoder.source(next++, Type::kU32);
  if (reduces) {
    bool negated = false;
    inst.op[3] = decoder.predicate(next, &negated);
    inst.imm = negated ? 1 : 0;
  }
  inst.aux = static_cast<uint64_t>(mode) | (aligned ? 256u : 0u);
  inst.fn = block_barrier;
}

// --- fences, hints -----------------------------------------------------------------------------------------

void proxy_fence(Warp& warp, const Inst&, uint32_t mask) {
  warp.block->cluster->clocks.proxy_fence(warp.agent, warp.with_gone(mask));
  fence_mbarrier_inits(warp);
}

void init_fence(Warp& warp, const Inst&, uint32_t) { fence_mbarrier_inits(warp); }

void decode_fence(Decoder& decoder, Inst& inst) {
  inst.cls = InstClass::kBarrier;
  inst.fn = exec_nothing;
  if (decoder.take("proxy")) {
    decoder.require_target(70);
    // async, optionally with the space: the one that matters to bulk copies and warpgroup products.
    if (decoder.take_any({"async", "async::generic"}) >= 0)
      inst.fn = proxy_fence;
    else if (decoder.take_any({"alias", "tensormap::generic"}) < 0)
      decoder.fail("this proxy is not known");
  }
  const bool inits = decoder.take("mbarrier_init");
  if (inits) inst.fn = init_fence;
  if (decoder.opcode() == "membar" || (!inits && inst.fn == exec_nothing))
    decoder.program().orders_threads = true;
  decoder.ignore({"sc", "acq_rel", "acquire", "release", "cta", "cluster", "gpu", "sys", "global",
                  "shared::cta", "shared::cluster", "shared", "gl", "sync_restrict::shared::cta",
                  "sync_restrict::shared::cluster"});
}

void yield(Warp& warp, const Inst&, uint32_t) { warp.spin = true; }

void decode_nanosleep(Decoder& decoder, Inst& inst) {
  decoder.require_target(70);
  decoder.take_type();
  inst.fn = yield;
}

// griddepcontrol: the emulated device runs one launch after the other; what a thread knows after the wait
// counts.
void wait_for_launches(Warp& warp, const Inst&, uint32_t mask) {
  Clocks& clocks = warp.block->cluster->clocks;
  if (warp.block->launch->before == nullptr) return;
  Clock ended(clocks.agents());
  ended[clocks.launches_agent()].all = 1;
  clocks.acquire(warp.agent, warp.with_gone(mask), ended);
  warp.block->launch->waited = true;
}

void let_launches_start(Warp& warp, const Inst&, uint32_t mask) {
  Cluster& cluster = *warp.block->cluster;
  if (!knows_of_wait(cluster, cluster.clocks.known(warp.agent, mask).data()))
    warp.block->launch->let_go = true;
}

void decode_griddepcontrol(Decoder& decoder, Inst& inst) {
  decoder.require_target(90);
  inst.cls = InstClass::kControl;
  inst.fn = decoder.take_any({"wait", "launch_dependents"}) == 0 ? wait_for_launches : let_launches_start;
}

// setmaxnreg: registers are not a limit here; the count's form is checked.
void decode_setmaxnreg(Decoder& decoder, Inst& inst) {
  decoder.require_target(90);
  if (decoder.take_any({"inc", "dec"}) < 0) decoder.fail("neither inc nor dec");
  decoder.ignore({"sync", "aligned"});
  decoder.take_type();
  int64_t count = decoder.operand(0).integer;
  if (count < 24 || count > 256 || count % 8 != 0)
    decoder.fail("the register count must be a multiple of 8 from 24 to 256");
  inst.cls = InstClass::kControl;
  inst.flow = Flow::kCollective;
  inst.fn = exec_nothing;
}

void decode_hint(Decoder& decoder, Inst& inst) {
  decoder.ignore_matching([](const std::string&) { return true; });
  inst.fn = exec_nothing;
}

}  // namespace

void register_control(OpcodeTable& table) {
  table["bra"] = decode_bra;
  table["brx"] = decode_brx;
  table["exit"] = table["ret"] = decode_exit;
  table["trap"] = table["brkpt"] = decode_trap;
  table["bar"] = table["barrier"] = decode_barrier;
  table["membar"] = table["fence"] = decode_fence;
  table["nanosleep"] = decode_nanosleep;
  table["griddepcontrol"] = decode_griddepcontrol;
  table["setmaxnreg"] = decode_setmaxnreg;
  table["pmevent"] = decode_hint;
}

}  // namespace trigen::emulator
