#include "generator/cost/makespan.h"

#include <algorithm>
#include <cmath>
#include <queue>
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
  std::vector<Sharing> machine(static_cast<size_t>(sms));
  using Event = std::pair<double, int64_t>;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> ends;  // of an SM's next block
  int64_t dealt = 0;
  const auto advance = [&](int64_t sm) {
    if (!machine[sm].empty()) ends.push({machine[sm].advance(step_seconds), sm});
  };
  for (int64_t repeat = whole; repeat < repeats; ++repeat)
    for (const SharedRun& run : runs) {
      const int64_t taken = std::min(skipped, run.count);
      before += own(run) * static_cast<double>(taken);
      skipped -= taken;
      for (int64_t i = taken; i < run.count; ++i) {
        if (dealt < std::min(slots, blocks)) {
          const auto place = static_cast<int64_t>(static_cast<double>(dealt++) * spread);
          machine[place % sms].put({run.steps, run.end_seconds});
          if (dealt == slots)
            for (int64_t sm = 0; sm < sms; ++sm) advance(sm);
          continue;
        }
        const int64_t sm = ends.top().second;
        ends.pop();
        machine[sm].put({run.steps, run.end_seconds});
        advance(sm);
      }
    }
  if (dealt < slots)
    for (int64_t sm = 0; sm < sms; ++sm) advance(sm);
  double last = 0;
  while (!ends.empty()) {
    last = ends.top().first;
    const int64_t sm = ends.top().second;
    ends.pop();
    advance(sm);
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
