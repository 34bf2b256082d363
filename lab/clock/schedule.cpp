#include "lab/clock/schedule.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <queue>

namespace trigen {
namespace {

constexpr int kSubCores = 4;
constexpr int kBarriers = 6;
constexpr int kPipes = 10;

bool any_of_names(const Instruction& one, std::initializer_list<llvm::StringRef> names) {
  return llvm::any_of(names, [&](llvm::StringRef name) { return one.is(name); });
}

// Bits of one lane's access; 32 where no modifier says otherwise.
int lane_bits(const Instruction& one) {
  for (const auto& [name, bits] :
       {std::pair{"128", 128}, {"64", 64}, {"U16", 16}, {"S16", 16}, {"U8", 8}, {"S8", 8}})
    if (one.has(name)) return bits;
  return 32;
}

// The same bank of registers for all three operands, none of them kept from before: a cycle more (arXiv
// 1804.06826, section 3.5: two banks, even and odd).
bool register_conflict(const std::vector<int>& sources, const std::array<int, 4>& kept) {
  int read = 0;
  int parity = -1;
  for (size_t slot = 0; slot < sources.size() && slot < kept.size(); ++slot) {
    if (sources[slot] == kept[slot]) return false;
    if (parity >= 0 && sources[slot] % 2 != parity) return false;
    parity = sources[slot] % 2;
    ++read;
  }
  return read >= 3 && !(sources[0] == sources[1] || sources[1] == sources[2] || sources[0] == sources[2]);
}

// An instruction of the loop with its needs, found once.
struct Prepared {
  const Instruction* one = nullptr;
  Pipe pipe = Pipe::kNone;
  double interval = 1;
  MemoryAccess access;
  std::vector<int> sources;  // of the pipes with three operands
  bool barrier = false;      // of the block
  int depth = -1;            // DEPBAR.LE: at most so many may be open
  int scoreboard = 0;        // of DEPBAR
  bool group = false;        // LDGDEPBAR
  bool arrives = false;      // at an mbarrier
  bool phase = false;        // waits for its phase
};

Prepared prepare(const Instruction& one, const SmRates& rates) {
  Prepared out;
  out.one = &one;
  out.pipe = pipe_of(one);
  out.access = access_of(one);
  switch (out.pipe) {
    case Pipe::kTensor:
      out.interval = tensor_cycles(one, rates);
      break;
    case Pipe::kFma:
      out.interval = rates.fma;
      break;
    case Pipe::kImad:
      out.interval = rates.imad;
      break;
    case Pipe::kAlu:
      out.interval = rates.alu;
      break;
    case Pipe::kHalf:
      out.interval = rates.half;
      break;
    case Pipe::kUniform:
      out.interval = rates.uniform;
      break;
    case Pipe::kSpecial:
      out.interval = rates.special;
      break;
    case Pipe::kBranch:
      out.interval = rates.branch;
      break;
    case Pipe::kMemory:
    case Pipe::kNone:
      break;
  }
  if (any_of_names(one, {"FFMA", "IMAD", "IADD3", "LOP3"})) out.sources = one.sources();
  out.barrier = one.is("BAR");
  out.group = one.is("LDGDEPBAR");
  out.arrives = one.is("SYNCS") && one.has("ARRIVE");
  out.phase = one.is("SYNCS") && one.has("PHASECHK");
  if (one.is("DEPBAR")) {
    auto [board, most] = llvm::StringRef(one.operands).split(',');
    out.depth = 0;
    board = board.trim(), most = most.trim();
    if (board.consume_front("SB")) (void)board.getAsInteger(10, out.scoreboard);
    (void)most.getAsInteger(0, out.depth);
  }
  return out;
}

// IMADs are made where FFMAs are.
int unit_of(Pipe pipe) { return static_cast<int>(pipe == Pipe::kImad ? Pipe::kFma : pipe); }

// Products, and the fragments that they are made of.
bool is_of_products(const Prepared& one) {
  return one.pipe == Pipe::kTensor || (one.access.shared && !one.access.store && !one.access.copy);
}

struct Warp {
  size_t at = 0;  // in the body
  const std::vector<Prepared>* body = nullptr;
  int block = 0;
  double ready = 0;
  bool arrived = false;  // waits at the block's barrier
  bool yielded = false;
  std::array<int, kBarriers> open = {};
  std::array<Idle, kBarriers> kind = {};
  std::array<int, 4> kept = {-1, -1, -1, -1};
  double copied = 0;  // when the copies since the last group have come
  double group = 0;   // when the last group has
  int phases = 0;     // of the block's mbarrier, that it has waited for
};

struct Fall {  // of a warp's barrier
  double cycle;
  size_t warp;
  int barrier;
  bool operator>(const Fall& other) const { return cycle > other.cycle; }
};

class Clock {
 public:
  explicit Clock(const ClockInput& in) : in_(in), warps_(static_cast<size_t>(in.warps) * in.blocks) {
    body_.reserve(in.loop.body.size());
    for (const Instruction& one : in.loop.body) {
      body_.push_back(prepare(one, in.rates));
      if (!is_of_products(body_.back())) rest_.push_back(body_.back());
    }
    for (size_t i = 0; i < warps_.size(); ++i) {
      warps_[i].block = static_cast<int>(i) / in.warps;
      warps_[i].body = static_cast<int>(i) % in.warps < in.skipping ? &rest_ : &body_;
      all_ += warps_[i].body->size();
    }
    arrived_.resize(in.blocks);
    arrivals_.resize(in.blocks);
    // All warps of a block arrive and wait in turn; other mbarriers (of TMA) are filled by what the loop does not show.
    splits_ = llvm::count_if(body_, [](const Prepared& one) { return one.arrives; }) == 1 &&
              llvm::count_if(body_, [](const Prepared& one) { return one.phase; }) == 1;
  }

  LoopTiming run() {
    // A loop that stands still is a defect: a barrier that nothing lowers.
    const double limit = 1e4 * in_.turns * static_cast<double>(warps_.size() + 1) + 1e6;
    for (double now = 0; starts_.size() < wanted() && now < limit; ++now) {
      while (!falls_.empty() && falls_.top().cycle <= now) {
        --warps_[falls_.top().warp].open[falls_.top().barrier];
        falls_.pop();
      }
      for (int core = 0; core < kSubCores; ++core) issue_of(core, now);
    }
    return report();
  }

 private:
  struct SubCore {
    std::array<double, kPipes> free = {};
    double slot = 0;           // of its scheduler
    double memory = 0;         // of its address unit
    std::deque<double> queue;  // when its memory instructions leave it
    int64_t last = -1;         // warp
  };
  struct Gap {
    double cycle;
    std::array<float, kIdles> why;
  };

  // Whether the warp's next instruction may go; else why not.
  bool may_go(size_t number, int core, double now, Idle& why) {
    Warp& warp = warps_[number];
    SubCore& sub = cores_[core];
    const Prepared& next = (*warp.body)[warp.at];
    why = Idle::kBarrier;
    if (warp.arrived) return false;
    why = Idle::kStallCount;
    if (warp.ready > now) return false;
    for (int i = 0; i < kBarriers; ++i) {
      const bool wanted = (next.one->control.wait >> i & 1) != 0 && warp.open[i] > 0;
      why = warp.kind[i];
      if (wanted) return false;
    }
    why = Idle::kBarrier;
    if (splits_ && next.phase && arrivals_[warp.block] < in_.warps * (warp.phases + 1)) return false;
    why = Idle::kGlobal;
    if (next.depth >= 0 && next.scoreboard < kBarriers && warp.open[next.scoreboard] > next.depth)
      return false;
    why = next.pipe == Pipe::kTensor ? Idle::kTensor : Idle::kMath;
    if (next.pipe == Pipe::kMemory) {
      why = Idle::kMemoryQueue;
      while (!sub.queue.empty() && sub.queue.front() <= now) sub.queue.pop_front();
      return static_cast<double>(sub.queue.size()) < in_.rates.memory_queue;
    }
    return next.pipe == Pipe::kNone || sub.free[unit_of(next.pipe)] < now + 1;
  }

  void issue_of(int core, double now) {
    SubCore& sub = cores_[core];
    Gap gap{now, {}};
    if (sub.slot > now) {
      gap.why[static_cast<int>(Idle::kMath)] = 1;
      gaps_.push_back(gap);
      return;
    }
    // The same warp goes on as long as it may, then the youngest (arXiv 2503.20481: greedy, then youngest).
    int waiting = 0;
    int64_t chosen = -1;
    if (sub.last >= 0 && !warps_[sub.last].yielded) {
      Idle why;
      if (may_go(static_cast<size_t>(sub.last), core, now, why)) chosen = sub.last;
    }
    for (int64_t i = static_cast<int64_t>(warps_.size()) - 1; i >= 0 && chosen < 0; --i) {
      if (i % kSubCores != core) continue;
      Idle why;
      ++waiting;
      if (may_go(static_cast<size_t>(i), core, now, why))
        chosen = i;
      else
        ++gap.why[static_cast<int>(why)];
    }
    if (chosen >= 0) return issue(static_cast<size_t>(chosen), core, now);
    if (waiting == 0) return;
    for (float& share : gap.why) share /= static_cast<float>(waiting);
    gaps_.push_back(gap);
  }

  size_t wanted() const { return warps_.size() * in_.turns; }

  void fall(size_t warp, int barrier, double cycle, Idle kind) {
    if (barrier >= kBarriers) return;
    ++warps_[warp].open[barrier];
    warps_[warp].kind[barrier] = kind;
    falls_.push({cycle, warp, barrier});
  }

  void issue(size_t number, int core, double now) {
    Warp& warp = warps_[number];
    SubCore& sub = cores_[core];
    const Prepared& next = (*warp.body)[warp.at];
    const Control& control = next.one->control;
    double length = 1;
    double& tensor = sub.free[static_cast<int>(Pipe::kTensor)];
    if (next.pipe != Pipe::kTensor && tensor > now) tensor += in_.rates.beside;
    if (next.pipe == Pipe::kMemory) {
      length = memory(number, core, now);
    } else if (next.pipe != Pipe::kNone) {
      double& free = sub.free[unit_of(next.pipe)];
      free = std::max(free, now) + next.interval;
      length = next.interval;
      const bool tensor = next.pipe == Pipe::kTensor;
      const double latency = tensor                        ? in_.rates.tensor_latency
                             : next.pipe == Pipe::kSpecial ? in_.rates.special_latency
                                                           : 6;
      fall(number, control.write_barrier, now + latency, tensor ? Idle::kTensorResult : Idle::kOther);
      fall(number, control.read_barrier, now + 2, tensor ? Idle::kTensorResult : Idle::kOther);
    } else if (next.group) {
      warp.group = std::max(warp.group, warp.copied);
      fall(number, control.write_barrier, std::max(now + 2, warp.group), Idle::kGlobal);
    } else {
      fall(number, control.write_barrier, now + 6, Idle::kOther);
      fall(number, control.read_barrier, now + 2, Idle::kOther);
    }
    sub.slot = now + 1;
    if (register_conflict(next.sources, warp.kept)) sub.slot += 1;
    for (size_t slot = 0; slot < warp.kept.size(); ++slot)
      warp.kept[slot] =
          (control.reuse >> slot & 1) != 0 && slot < next.sources.size() ? next.sources[slot] : -1;
    issues_.push_back({now, static_cast<int>(number), warp.at, next.pipe, length});
    sub.last = static_cast<int64_t>(number);
    warp.yielded = control.yield;
    warp.ready = now + std::max(1, control.stall);
    if (next.barrier) arrive(number, now);
    if (next.arrives) ++arrivals_[warp.block];
    if (next.phase) ++warp.phases;
    if (++warp.at == warp.body->size()) {
      warp.at = 0;
      warp.ready = std::max(warp.ready, now + control.stall + in_.rates.taken);
      starts_.push_back(warp.ready);
    }
  }

  // The way of a load or store; its length in the SM's pipe.
  double memory(size_t number, int core, double now) {
    Warp& warp = warps_[number];
    SubCore& sub = cores_[core];
    const Prepared& next = (*warp.body)[warp.at];
    const MemoryAccess& access = next.access;
    const double wavefronts = std::max(1.0, access.wavefronts());
    const double at = std::max(now, sub.memory);
    sub.memory = at + in_.rates.memory;
    write_copies(at);
    const double enter = std::max(at, pipe_);
    // Addresses alone of a copy go now; its data pass the pipe when they have come.
    const double length = std::max(in_.rates.memory_of_sm, access.copy ? in_.rates.copy : wavefronts);
    pipe_ = enter + length;
    sub.queue.push_back(enter);
    if (!access.copy) wavefronts_.emplace_back(enter, wavefronts);
    double result = enter + in_.rates.shared_latency + wavefronts - 1;
    const Idle kind = access.global ? Idle::kGlobal : Idle::kShared;
    if (access.global) {
      l2_ = std::max(l2_, enter) + access.bytes / in_.l2_bytes;
      l2_busy_.emplace_back(enter, access.bytes / in_.l2_bytes);
      result = l2_ + in_.rates.loaded * in_.rates.l2_latency;
    }
    if (access.copy) {
      warp.copied = std::max(warp.copied, result);
      copies_.emplace_back(result, wavefronts);
    }
    fall(number, next.one->control.write_barrier, result, kind);
    fall(number, next.one->control.read_barrier, enter + in_.rates.read_latency, Idle::kMemoryQueue);
    return length;
  }

  // Copies that have arrived by `cycle` go into shared memory before accesses that ask for the pipe then.
  void write_copies(double cycle) {
    for (; !copies_.empty() && copies_.front().first <= cycle; copies_.pop_front()) {
      const auto [came, wavefronts] = copies_.front();
      const double begin = std::max(pipe_, came);
      pipe_ = begin + wavefronts;
      wavefronts_.emplace_back(begin, wavefronts);
    }
  }

  void arrive(size_t number, double now) {
    const int block = warps_[number].block;
    warps_[number].arrived = true;
    if (++arrived_[block] < in_.warps) return;
    arrived_[block] = 0;
    for (Warp& warp : warps_) {
      if (warp.block != block) continue;
      warp.arrived = false;
      warp.ready = std::max(warp.ready, now + in_.rates.barrier);
    }
  }

  LoopTiming report() const {
    LoopTiming out;
    if (starts_.size() < wanted()) return out;  // it stood still
    // By all warps' turns together: the youngest block runs ahead of the others, as long as it has work. Blocks
    // end their turns in bursts, so the turns in the window are those that its instructions make.
    std::vector<double> starts = starts_;
    std::sort(starts.begin(), starts.end());
    const int about = in_.turns - in_.turns / 2 - 1;
    const size_t first = warps_.size() * (in_.turns / 2);
    const double begin = starts[first];
    const double end = starts[first + warps_.size() * about];
    const auto in_window = [&](double cycle) { return cycle >= begin && cycle < end; };
    const auto issued_in = llvm::count_if(issues_, [&](const Issued& one) { return in_window(one.cycle); });
    const double turns = static_cast<double>(issued_in) / static_cast<double>(all_);
    if (turns <= 0) return out;
    out.cycles = (end - begin) / turns;
    const double share = 1.0 / kSubCores / turns;  // of a turn and sub-core
    std::array<double, kPipes> busy = {};
    for (const Issued& issued : issues_) {
      if (!in_window(issued.cycle)) continue;
      out.issued += share;
      if (issued.pipe != Pipe::kMemory && issued.pipe != Pipe::kNone)
        busy[unit_of(issued.pipe)] += issued.length * share;
    }
    const auto sum = [&](const std::vector<std::pair<double, double>>& list) {
      double cycles = 0;
      for (const auto& [cycle, length] : list) cycles += in_window(cycle) ? length / turns : 0;
      return cycles;
    };
    out.busy = {{"tensor pipe", busy[unit_of(Pipe::kTensor)]},
                {"issue slots", out.issued},
                {"shared memory", sum(wavefronts_)},
                {"FMA pipe", busy[unit_of(Pipe::kFma)]},
                {"ALU pipe", busy[unit_of(Pipe::kAlu)]},
                {"special functions", busy[unit_of(Pipe::kSpecial)]},
                {"from the L2", sum(l2_busy_)}};
    for (const Gap& gap : gaps_)
      if (in_window(gap.cycle))
        for (int i = 0; i < kIdles; ++i) out.idle[i] += gap.why[i] * share;
    out.from = begin;
    for (const Issued& issued : issues_)
      if (issued.cycle >= begin && issued.cycle < begin + out.cycles) out.issues.push_back(issued);
    for (const auto& one : wavefronts_)
      if (one.first >= begin && one.first < begin + out.cycles) out.wavefronts.push_back(one);
    return out;
  }

  const ClockInput& in_;
  std::vector<Prepared> body_, rest_;  // rest_: of warps that skip
  size_t all_ = 0;                     // instructions of a turn of all warps
  std::vector<Warp> warps_;
  std::array<SubCore, kSubCores> cores_ = {};
  std::vector<int> arrived_, arrivals_;  // of each block, at its barrier and at its mbarrier
  bool splits_ = false;
  std::priority_queue<Fall, std::vector<Fall>, std::greater<>> falls_;
  std::deque<std::pair<double, double>> copies_;  // on their way: when they come, wavefronts
  double pipe_ = 0, l2_ = 0;    // when the SM's memory pipe and its way from the L2 are free
  std::vector<double> starts_;  // of all warps' turns
  std::vector<Issued> issues_;
  std::vector<Gap> gaps_;
  std::vector<std::pair<double, double>> wavefronts_, l2_busy_;
};

}  // namespace

Pipe pipe_of(const Instruction& one) {
  if (one.is("HMMA")) return Pipe::kTensor;
  if (any_of_names(one, {"FFMA", "FADD", "FMUL"})) return Pipe::kFma;
  if (one.is("IMAD")) return Pipe::kImad;
  if (any_of_names(one, {"HFMA2", "HADD2", "HMUL2"})) return Pipe::kHalf;
  if (any_of_names(one, {"MUFU", "F2F", "I2F", "F2I", "POPC", "FLO", "S2R", "S2UR", "BREV"}))
    return Pipe::kSpecial;
  if (access_of(one).bytes > 0) return Pipe::kMemory;
  if (any_of_names(one, {"BRA", "BSSY", "BSYNC", "BREAK", "EXIT", "BMOV", "WARPSYNC", "CALL", "RET"}))
    return Pipe::kBranch;
  if (any_of_names(one, {"BAR", "DEPBAR", "LDGDEPBAR", "NOP", "YIELD", "NANOSLEEP", "MEMBAR"}))
    return Pipe::kNone;
  return llvm::StringRef(one.opcode).startswith("U") ? Pipe::kUniform : Pipe::kAlu;
}

double tensor_cycles(const Instruction& one, const SmRates& rates) {
  double products = 0;
  if (one.has("884")) products = 1024.0 / (one.has("STEP2") || one.has("STEP3") || !one.has("F16") ? 4 : 2);
  if (one.has("1684")) products = 512;
  if (one.has("1688")) products = 1024;
  if (one.has("16816")) products = 2048;
  const double tf32 = one.has("TF32") ? 2 : 1;
  return std::max(1.0, tf32 * products / rates.tensor_products);
}

MemoryAccess access_of(const Instruction& one) {
  MemoryAccess out;
  const double bytes = 32.0 * lane_bits(one) / 8;
  if (one.is("LDS")) out = {bytes, true};
  if (one.is("STS")) out = {bytes, true, false, true};
  if (one.is("LDG") || one.is("LD")) out = {bytes, false, true};
  if (one.is("STG") || one.is("ST") || one.is("RED") || one.is("ATOMG")) out = {bytes, false, true, true};
  if (one.is("LDL") || one.is("STL")) out = {bytes, false, false, one.is("STL")};
  if (one.is("SHFL")) out = {128, false, false};
  if (one.is("LDGSTS")) out = {bytes, true, true, false, true};
  // 8x8 matrices of 16 bits, a wavefront each
  if (one.is("LDSM")) {
    const llvm::StringRef opcode = one.opcode;
    out = {opcode.endswith(".4") ? 512.0 : opcode.endswith(".2") ? 256.0 : 128.0, true};
  }
  return out;
}

const char* name_of(Idle idle) {
  constexpr const char* kNames[] = {
      "stall counts",      "tensor cores' results", "tensor pipe busy",     "other pipe busy",
      "memory queue full", "shared memory's data",  "global memory's data", "barrier",
      "other results"};
  return kNames[static_cast<int>(idle)];
}

double LoopTiming::tensor_share() const { return cycles > 0 ? busy.front().cycles / cycles : 0; }

const Busy& LoopTiming::bound() const {
  return *std::max_element(busy.begin(), busy.end(),
                           [](const Busy& a, const Busy& b) { return a.cycles < b.cycles; });
}

LoopTiming clock_loop(const ClockInput& in) { return Clock(in).run(); }

}  // namespace trigen
