// Correction factors for the cost model, per tile, from measured times of the same shape at other batch sizes or on
// other devices of its target. The winners themselves carry over badly, since waves and columns change with the batch
// size (docs/experiments/untuned-lists.md).
#pragma once

#include <map>
#include <string>

#include "generator/candidate.h"
#include "generator/cost/cost.h"

namespace trigen {

class PredictionCorrections {
 public:
  struct Timed {
    Candidate candidate;
    double seconds = 0;
  };
  // The times of one problem on `device`, whose batch size is `ratio` times as large or as small.
  void add(llvm::ArrayRef<Timed> times, const DeviceModel& device, double ratio);
  bool empty() const { return kinds_.empty(); }
  // Time over prediction, relative to the median of all timed; 1 for a tile without a time.
  double factor(const Candidate& candidate) const;

 private:
  struct Kind {
    double logs = 0, weight = 0;
  };
  // By the config without what depends on the batch size: the order of tiles, and parts of a sum.
  static std::string kind_of(const Candidate& candidate);
  std::map<std::string, Kind> kinds_;
};

}  // namespace trigen
