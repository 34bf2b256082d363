// The loop that runs one warp: fetch, guard, execute, and the bookkeeping of lanes that went different ways.
//
// Lanes that stand at the same instruction form a fragment. With several fragments, the one whose block comes
// first in the reconvergence order runs, and fragments that meet become one (block_order.cpp says why that is
// the earliest point). A fragment that waits (collective, barrier) lets the others run; so a lane that spins
// on what another lane of its warp will do makes progress, as on sm_70 and later.
#include <algorithm>

#include "emulator/block.h"

namespace trigen::emulator {

namespace {

uint32_t order_at(const Program& program, uint32_t pc) {
  // Rank of the block that holds pc: that of the nearest leader at or before it.
  while (!program.code[pc].leader) --pc;
  return program.code[pc].order;
}

// Joins fragments that stand at the same instruction in the same state, and drops empty ones.
void merge(Warp& warp) {
  std::vector<Fragment>& fragments = warp.fragments;
  for (size_t i = 0; i < fragments.size(); ++i) {
    if (fragments[i].mask == 0) continue;
    for (size_t j = i + 1; j < fragments.size(); ++j) {
      if (fragments[j].mask == 0 || fragments[j].pc != fragments[i].pc) continue;
      if (fragments[i].stage != 0 || fragments[j].stage != 0)
        continue;  // they wait for something of their own
      fragments[i].mask |= fragments[j].mask;
      fragments[i].wait = Fragment::Wait::kNone;
      fragments[j].mask = 0;
    }
  }
  fragments.erase(
      std::remove_if(fragments.begin(), fragments.end(), [](const Fragment& f) { return f.mask == 0; }),
      fragments.end());
}

// The fragment to run next: the first in the order that does not wait, or any. False when all wait.
bool choose(Warp& warp) {
  if (warp.block->launch->options->random_lanes) {
    std::vector<uint32_t> ready;
    for (uint32_t i = 0; i < warp.fragments.size(); ++i)
      if (warp.fragments[i].wait == Fragment::Wait::kNone) ready.push_back(i);
    warp.current = ready.empty() ? 0 : ready[warp.block->cluster->random() % ready.size()];
    return !ready.empty();
  }
  uint32_t best = 0;
  bool found = false;
  uint32_t best_order = 0, best_pc = 0;
  for (uint32_t i = 0; i < warp.fragments.size(); ++i) {
    const Fragment& fragment = warp.fragments[i];
    if (fragment.wait != Fragment::Wait::kNone) continue;
    uint32_t order = order_at(*warp.program, fragment.pc);
    if (!found || order < best_order || (order == best_order && fragment.pc < best_pc)) {
      best = i;
      best_order = order;
      best_pc = fragment.pc;
      found = true;
    }
  }
  warp.current = best;
  return found;
}

// Lanes in random order: does this fragment keep its turn? It mostly does, so that lanes get far ahead of others.
bool goes_on(Warp& warp) {
  constexpr uint64_t kTurn = 32;  // blocks, on average
  return warp.block->launch->options->random_lanes && warp.block->cluster->random() % kTurn != 0;
}

void split(Warp& warp, uint32_t pc, uint32_t mask) {
  warp.fragments[warp.current].mask &= ~mask;
  Fragment other;
  other.pc = pc;
  other.mask = mask;
  warp.fragments.push_back(other);
}

// Lanes `taken` go to target, the others on to pc + 1.
void branch(Warp& warp, uint32_t active, uint32_t taken, uint32_t target) {
  Fragment& fragment = warp.fragment();
  if (taken == active) {
    fragment.pc = target;
  } else if (taken == 0) {
    ++fragment.pc;
  } else {
    ++warp.counters->divergent_branches;
    ++fragment.pc;
    split(warp, target, taken);
  }
}

void branch_table(Warp& warp, const Inst& inst, uint32_t active, uint32_t exec) {
  const uint32_t* index = warp.lanes<uint32_t>(inst.op[0]);
  uint32_t rest = exec;
  std::vector<std::pair<uint32_t, uint32_t>> parts;
  while (rest != 0) {
    uint32_t lane = static_cast<uint32_t>(__builtin_ctz(rest)), value = index[lane], same = 0;
    for (uint32_t other = rest; other != 0; other &= other - 1)
      if (index[__builtin_ctz(other)] == value) same |= other & -other;
    if (value >= inst.list_count)
      warp.abort(Fault::kBadInstruction, lane,
                 "branch table index " + std::to_string(value) + " of " + std::to_string(inst.list_count));
    parts.push_back({inst.list[value], same});
    rest &= ~same;
  }
  if (parts.size() > 1) ++warp.counters->divergent_branches;
  ++warp.fragment().pc;  // for lanes whose guard is false
  uint32_t left = active & ~exec;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (left == 0 && i + 1 == parts.size())
      warp.fragment().pc = parts[i].first;
    else
      split(warp, parts[i].first, parts[i].second);
  }
}

void count(Warp& warp, const Inst& inst, uint32_t exec) {
  ++warp.counters->warp_instructions[static_cast<int>(inst.cls)];
  warp.counters->thread_instructions += static_cast<uint64_t>(__builtin_popcount(exec));
}

// The run_ functions execute the current fragment's instruction for `exec` of its `active` lanes. True: another
// fragment may have to run next.

bool run_exit(Warp& warp, uint32_t exec) {
  Fragment& here = warp.fragment();
  warp.exited |= exec;
  here.mask &= ~exec;
  if (here.mask != 0) ++here.pc;
  return here.mask == 0;
}

// Runs when all lanes that the instruction names stand here.
bool run_collective(Warp& warp, const Inst& inst, uint32_t active, uint32_t exec) {
  if (exec == 0) {
    ++warp.fragment().pc;
    return false;
  }
  const uint32_t members = inst.op[0] == kNoSlot
                               ? warp.alive()
                               : warp.lanes<uint32_t>(inst.op[0])[__builtin_ctz(exec)] & warp.alive();
  if ((members & ~exec) != 0) {  // somebody is not here yet
    if (exec != active) split(warp, warp.fragment().pc + 1, active & ~exec);
    warp.fragment().wait = Fragment::Wait::kCollective;
    merge(warp);  // perhaps the others stand here already
    return true;
  }
  count(warp, inst, exec);
  inst.fn(warp, inst, exec);
  warp.block->cluster->clocks.pass(warp.agent);
  ++warp.fragment().pc;
  return false;
}

// The handler says whether it is done or is to be called again.
bool run_blocking(Warp& warp, const Inst& inst, uint32_t active, uint32_t exec) {
  if (exec == 0) {
    ++warp.fragment().pc;
    return false;
  }
  if (exec != active) split(warp, warp.fragment().pc + 1, active & ~exec);
  warp.wait = false;
  inst.fn(warp, inst, exec);
  Fragment& after = warp.fragment();
  if (warp.wait) {
    after.wait = Fragment::Wait::kBlocked;
    return true;
  }
  count(warp, inst, exec);
  after.stage = 0;
  ++after.pc;
  return false;
}

bool run_instruction(Warp& warp, const Inst& inst, uint32_t active, uint32_t exec) {
  switch (inst.flow) {
    case Flow::kNext:
      if (exec != 0) inst.fn(warp, inst, exec);
      ++warp.fragment().pc;
      return false;
    case Flow::kBranch:
      branch(warp, active, exec, inst.target);
      return exec != 0 && exec != active;
    case Flow::kBranchTable:
      if (exec == 0)
        ++warp.fragment().pc;
      else
        branch_table(warp, inst, active, exec);
      return true;
    case Flow::kExit:
      return run_exit(warp, exec);
    case Flow::kCollective:
      return run_collective(warp, inst, active, exec);
    case Flow::kBlocking:
      return run_blocking(warp, inst, active, exec);
  }
  return false;
}

}  // namespace

WarpState run_warp(Warp& warp, uint64_t& quantum) {
  const Inst* code = warp.program->code.data();
  bool progress = false;
  for (Fragment& fragment : warp.fragments)  // blocked handlers look again
    if (fragment.wait == Fragment::Wait::kBlocked) fragment.wait = Fragment::Wait::kNone;
  merge(warp);
  if (warp.fragments.empty()) return WarpState::kFinished;
  if (!choose(warp)) return WarpState::kBlocked;
  while (true) {
    const Inst& inst = code[warp.fragment().pc];
    if (inst.leader && warp.fragments.size() > 1 && !goes_on(warp)) {
      merge(warp);
      choose(warp);
      if (warp.fragment().pc != static_cast<uint32_t>(&inst - code)) continue;
    }
    const uint32_t active = warp.fragment().mask;
    uint32_t exec = active;
    if (inst.guard != kNoSlot) {
      uint32_t guard = warp.predicate(inst.guard);
      exec &= inst.guard_negated ? ~guard : guard;
    }
    warp.inst = &inst;
    if (inst.touches != nullptr && !inst.product && exec != 0) touch_product_registers(warp, inst);
    if (exec != 0 && inst.flow != Flow::kCollective && inst.flow != Flow::kBlocking) count(warp, inst, exec);
    const bool switches = run_instruction(warp, inst, active, exec);
    if (!warp.wait || inst.flow != Flow::kBlocking) {
      progress = progress || !warp.spin;
      if (quantum > 0) --quantum;
    }
    if (switches) {
      merge(warp);
      if (warp.fragments.empty()) return WarpState::kFinished;
      if (!choose(warp)) return progress ? WarpState::kProgress : WarpState::kBlocked;
    }
    if (warp.spin) {
      // A failed test: the fragment goes behind the others, and the warp behind the other warps.
      warp.spin = false;
      return WarpState::kSpinning;
    }
    if (quantum == 0) return WarpState::kProgress;
  }
}

}  // namespace trigen::emulator
