// A tuner's part of a list that several tuners share.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

struct Shard {
  size_t index = 0, count = 1;
  // Every count-th of the list, so that neighbours, which take alike long, are spread over the tuners.
  bool has(size_t position) const { return position % count == index; }
};

// "2/8": the third of eight. "auto": what the launcher says, in SLURM_ARRAY_TASK_*, JOB_COMPLETION_INDEX
// (Kubernetes, which does not say how many there are: "auto/8") or RANK and WORLD_SIZE. `environment` gives a
// variable's value, "" where it is unset.
llvm::Expected<Shard> parse_shard(llvm::StringRef text,
                                  const std::function<std::string(const char*)>& environment);

}  // namespace trigen
