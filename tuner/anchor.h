// A fixed small problem that is timed now and then: when the same kernel takes longer, the machine has changed,
// not the candidates.
#pragma once

#include <utility>

#include "cache/store.h"
#include "runtime/compile.h"
#include "tuner/bench.h"

namespace trigen {

class Anchor {
 public:
  // `bench` is the anchor's own, on the device of the candidates; it and the store outlive the anchor.
  Anchor(Bench& bench, const Target& target, Store& store, BuildAllOptions build)
      : bench_(bench), target_(target), store_(store), build_(std::move(build)) {}
  // The median of a few replays of its kernel, the model's first choice. Errors: it cannot be built or run.
  llvm::Expected<double> time();

  static constexpr const char* kProblem = "forward,dtype=f16,B=8,T=512,D=512";

 private:
  Bench& bench_;
  const Target& target_;
  Store& store_;
  BuildAllOptions build_;
};

// The noise of times that were taken over a while.
class Noise {
 public:
  void reading(double anchor_s) { readings_.push_back(anchor_s); }
  // Samples of one candidate, timed alone.
  void samples(const std::vector<double>& seconds);
  const std::vector<double>& readings() const { return readings_; }
  // Spread of the anchor's readings, as a share.
  double drift() const;
  // How far apart two candidates' times of this while may lie and still change places: the drift, and each
  // one's own scatter. kNoiseFloor and more; nullopt with fewer than two readings.
  std::optional<double> reach() const;

 private:
  std::vector<double> readings_, scatter_;
};

}  // namespace trigen
