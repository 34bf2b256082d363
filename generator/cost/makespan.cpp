#include "generator/cost/makespan.h"

#include <algorithm>

#include "llvm/ADT/SmallVector.h"

namespace trigen {
namespace {

// Slots that become free at the same time.
struct FreeSlots {
  double seconds;
  int64_t count;
};

class Machine {
 public:
  Machine(double start, int64_t slots) : finish_(start) { free_.push_back({start, slots}); }

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
      put({end, taken});
      finish_ = std::max(finish_, end);
    }
  }
  double finish() const { return finish_; }

 private:
  // Slots that become free together, within a rounding error, are one entry.
  void put(FreeSlots slots) {
    size_t at = free_.size();
    while (at > 0 && free_[at - 1].seconds < slots.seconds * (1 - 1e-9)) --at;
    if (at > 0 && free_[at - 1].seconds <= slots.seconds * (1 + 1e-9))
      free_[at - 1].count += slots.count;
    else
      free_.insert(free_.begin() + at, slots);
  }

  llvm::SmallVector<FreeSlots, 64> free_;  // sorted, the first to be free is last
  double finish_;
};

}  // namespace

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
