#include "generator/cost/makespan.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "llvm/ADT/SmallVector.h"

namespace trigen {
namespace {

// Slots that become free at the same time; of their last block, how many times as fast it is alone.
struct FreeSlots {
  double seconds;
  int64_t count;
  double faster;
};

class Machine {
 public:
  Machine(double start, int64_t slots) : start_(start), slots_(slots) { free_.push_back({start, slots, 1}); }

  void run(BlockRun run) {
    while (run.count > 0) {
      FreeSlots& slots = free_.back();
      const int64_t taken = std::min(slots.count, run.count);
      const double end = slots.seconds + run.seconds;
      run.count -= taken;
      if (taken < slots.count)
        slots.count -= taken;
      else
        free_.pop_back();
      put({end, taken, run.alone > 0 ? std::max(1.0, run.seconds / run.alone) : 1});
    }
  }
  // The end of the last block: from when slots have run out of blocks on, those at work are the faster the fewer they are.
  double finish() const {
    double now = free_.back().seconds;
    int64_t idle = free_.back().count;
    const int64_t busy = slots_ - (now > start_ ? 0 : idle);
    idle -= slots_ - busy;
    for (size_t at = free_.size() - 1; at-- > 0;) {
      const double share = static_cast<double>(busy) / static_cast<double>(busy - idle);
      now += (free_[at].seconds - free_[at + 1].seconds) / std::min(share, free_.front().faster);
      idle += free_[at].count;
    }
    return now;
  }

 private:
  // Slots that become free together, within a rounding error, are one entry.
  void put(FreeSlots slots) {
    size_t at = free_.size();
    while (at > 0 && free_[at - 1].seconds < slots.seconds * (1 - 1e-9)) --at;
    if (at > 0 && free_[at - 1].seconds <= slots.seconds * (1 + 1e-9)) {
      free_[at - 1].count += slots.count;
      free_[at - 1].faster = std::min(free_[at - 1].faster, slots.faster);
    } else {
      free_.insert(free_.begin() + at, slots);
    }
  }

  llvm::SmallVector<FreeSlots, 64> free_;  // sorted, the first to be free is last
  double start_;
  int64_t slots_;
};

// An SM whose blocks share its units.
class Sharing {
 public:
  struct Block {
    double steps, end_seconds;
  };

  bool empty() const { return blocks_.empty(); }
  // To the next end of a block; that time.
  double advance(llvm::ArrayRef<double> step_seconds) {
    for (;;) {
      const auto stepping = static_cast<size_t>(
          std::count_if(blocks_.begin(), blocks_.end(), [](const Block& b) { return b.steps > 0; }));
      const double step = stepping > 0 ? step_seconds[stepping - 1] : 0;
      double least = INFINITY;
      for (const Block& b : blocks_) least = std::min(least, b.steps > 0 ? b.steps * step : b.end_seconds);
      pass(least, step);
      const auto ended = std::find_if(blocks_.begin(), blocks_.end(),
                                      [](const Block& b) { return b.steps <= 0 && b.end_seconds <= 0; });
      if (ended == blocks_.end()) continue;
      blocks_.erase(ended);
      return now_;
    }
  }
  void put(Block block) { blocks_.push_back(block); }

 private:
  void pass(double seconds, double step) {
    constexpr double kNothing = 1e-15;  // of a step, and seconds
    now_ += seconds;
    for (Block& b : blocks_) {
      if (b.steps > 0) {
        b.steps -= seconds / step;
        if (b.steps * step < kNothing) b.steps = 0;
      } else if ((b.end_seconds -= seconds) < kNothing) {
        b.end_seconds = 0;
      }
    }
  }
  llvm::SmallVector<Block, 8> blocks_;
  double now_ = 0;
};

// What SMs that were dealt the same blocks at the same times have in common is worked out once: most of a grid's SMs.
class Sharings {
 public:
  static constexpr int kEmpty = 0, kNothing = -1;

  Sharings(llvm::ArrayRef<SharedRun> runs, llvm::ArrayRef<double> step_seconds)
      : runs_(runs), step_seconds_(step_seconds), all_(1) {}

  bool empty(int state) const { return all_[state].sharing.empty(); }
  double ends(int state) const { return all_[state].ends; }  // where a block ended last
  // The state after a block of the run (kNothing: no block), and with `advances` at the next end of a block.
  int after(int state, int run, bool advances) {
    const int change = 2 * run + (advances ? 1 : 0);
    if (all_[state].next != kEmpty && all_[state].change == change) return all_[state].next;
    State made{.sharing = all_[state].sharing};
    if (run != kNothing) made.sharing.put({runs_[run].steps, runs_[run].end_seconds});
    if (advances) made.ends = made.sharing.advance(step_seconds_);
    const int next = static_cast<int>(all_.size());
    all_[state].change = change;
    all_[state].next = next;
    all_.push_back(std::move(made));
    return next;
  }

 private:
  struct State {
    Sharing sharing;
    double ends = 0;
    int change = 0, next = kEmpty;  // the last change that was asked for, and what it led to
  };
  llvm::ArrayRef<SharedRun> runs_;
  llvm::ArrayRef<double> step_seconds_;
  std::vector<State> all_;
};

// SMs by the time of their next event; those of the same time by their number.
class Events {
 public:
  explicit Events(int sms) : next_(sms) {}

  bool empty() const { return times_.empty(); }
  double first() const { return times_.back().seconds; }
  int pop() {
    Time& time = times_.back();
    const int sm = time.first;
    if (time.first == time.last)
      times_.pop_back();
    else
      time.first = next_[sm];
    return sm;
  }
  void push(double seconds, int sm) {
    const auto later = [](const Time& time, double than) { return time.seconds > than; };
    const auto time = std::lower_bound(times_.begin(), times_.end(), seconds, later);
    if (time == times_.end() || time->seconds != seconds) {
      times_.insert(time, {seconds, sm, sm});
    } else if (sm > time->last) {
      next_[time->last] = sm;
      time->last = sm;
    } else if (sm < time->first) {
      next_[sm] = time->first;
      time->first = sm;
    } else {
      int before = time->first;
      while (next_[before] < sm) before = next_[before];
      next_[sm] = next_[before];
      next_[before] = sm;
    }
  }

 private:
  struct Time {
    double seconds;
    int first, last;
  };
  std::vector<Time> times_;  // sorted, the first is last
  std::vector<int> next_;    // of an SM, in its time
};

}  // namespace

SharedFinish shared_makespan(llvm::ArrayRef<SharedRun> runs, int64_t repeats, double grid, int64_t sms,
                             llvm::ArrayRef<double> step_seconds) {
  constexpr int64_t kSimulatedRounds = 3;
  const auto most = static_cast<int64_t>(step_seconds.size());
  const int64_t slots = sms * most;
  // Of an end, what blocks beside it do not fill: they would have to step faster for that.
  const double faster = most > 1 ? step_seconds[most - 1] / step_seconds[most - 2] : 1;
  const double shown = most > 1 ? std::clamp(most - (most - 1) * faster, 0.0, 1.0) : 1;
  const auto own = [&](const SharedRun& run) {
    return std::max(run.steps * step_seconds[most - 1] + shown * run.end_seconds,
                    run.steps * step_seconds[0] + run.end_seconds);
  };
  int64_t each = 0;  // of a repeat
  double all = 0;
  for (const SharedRun& run : runs) {
    each += run.count;
    all += own(run) * static_cast<double>(run.count);
  }
  const int64_t blocks = each * repeats;
  if (blocks <= 0) return {};
  SharedFinish out{.balanced = all * static_cast<double>(repeats) / static_cast<double>(slots)};

  // The last blocks alone are simulated: beyond some rounds the start does not show any more.
  int64_t skipped = std::max<int64_t>(0, blocks - kSimulatedRounds * slots);
  const int64_t whole = skipped / each;
  double before = all * static_cast<double>(whole);
  skipped -= whole * each;
  // Blocks without work take places of the first round.
  const double spread = std::clamp(grid / static_cast<double>(blocks), 1.0,
                                   std::max(1.0, static_cast<double>(slots) / static_cast<double>(blocks)));
  Sharings states(runs, step_seconds);
  std::vector<int> machine(static_cast<size_t>(sms), Sharings::kEmpty);
  Events events(static_cast<int>(sms));
  int64_t dealt = 0;
  const auto advance = [&](int sm, int run) {
    if (run == Sharings::kNothing && states.empty(machine[sm])) return;
    machine[sm] = states.after(machine[sm], run, true);
    events.push(states.ends(machine[sm]), sm);
  };
  const auto start = [&] {
    for (int sm = 0; sm < sms; ++sm) advance(sm, Sharings::kNothing);
  };
  for (int64_t repeat = whole; repeat < repeats; ++repeat)
    for (int run = 0; run < static_cast<int>(runs.size()); ++run) {
      const int64_t taken = std::min(skipped, runs[run].count);
      before += own(runs[run]) * static_cast<double>(taken);
      skipped -= taken;
      for (int64_t i = taken; i < runs[run].count; ++i) {
        if (dealt < std::min(slots, blocks)) {
          const auto place = static_cast<int64_t>(static_cast<double>(dealt++) * spread);
          machine[place % sms] = states.after(machine[place % sms], run, false);
          if (dealt == slots) start();
          continue;
        }
        advance(events.pop(), run);
      }
    }
  if (dealt < slots) start();
  double last = 0;
  while (!events.empty()) {
    last = events.first();
    advance(events.pop(), Sharings::kNothing);
  }
  out.seconds = before / static_cast<double>(slots) + last;
  return out;
}

double makespan(llvm::ArrayRef<BlockRun> runs, int64_t repeats, int64_t slots) {
  // How many blocks at the end are simulated, in slots: beyond some rounds the start does not show any more.
  constexpr int64_t kSimulatedRounds = 6;
  int64_t blocks = 0;
  double seconds = 0;
  for (const BlockRun& run : runs) {
    blocks += run.count;
    seconds += run.seconds * static_cast<double>(run.count);
  }
  if (blocks == 0 || repeats <= 0) return 0;

  // Walk back from the end until enough blocks are simulated.
  const int64_t wanted = kSimulatedRounds * slots;
  int64_t whole = std::min(repeats, wanted / blocks);  // repeats of the whole list
  int64_t simulated = whole * blocks;
  double simulated_seconds = static_cast<double>(whole) * seconds;
  size_t first = runs.size();  // start of a part of one more repeat
  if (whole < repeats) {
    while (first > 0 && simulated < wanted) {
      --first;
      simulated += runs[first].count;
      simulated_seconds += runs[first].seconds * static_cast<double>(runs[first].count);
    }
  }
  // A long run at the cut is shortened to whole rounds, so that a million equal blocks cost nothing.
  double before = static_cast<double>(repeats) * seconds - simulated_seconds;
  llvm::SmallVector<BlockRun, 64> part(runs.begin() + first, runs.end());
  if (!part.empty() && part.front().count > 2 * wanted) {
    const int64_t rounds = (part.front().count - wanted) / slots;
    part.front().count -= rounds * slots;
    before += part.front().seconds * static_cast<double>(rounds * slots);
  }
  Machine machine(before / static_cast<double>(slots), slots);
  for (const BlockRun& run : part) machine.run(run);
  for (int64_t i = 0; i < whole; ++i)
    for (const BlockRun& run : runs) machine.run(run);
  return machine.finish();
}

}  // namespace trigen
