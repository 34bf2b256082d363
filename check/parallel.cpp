#include "check/parallel.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>

#include "cache/host.h"
#include "runtime/paths.h"

namespace trigen {

int threads() {
  if (const int wanted = std::atoi(environment("TRIGEN_THREADS").c_str()); wanted > 0)
    return std::min(wanted, 256);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel_for(int64_t count, int64_t grain, const std::function<void(int64_t, int64_t)>& body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(1, grain);
  const int64_t parts = (count + grain - 1) / grain;
  const auto workers = static_cast<int>(std::min<int64_t>(parts, threads()));
  std::atomic<int64_t> next{0};
  auto work = [&] {
    for (int64_t part = next++; part < parts; part = next++) {
      body(part * grain, std::min(count, (part + 1) * grain));
    }
  };
  on_threads(static_cast<size_t>(workers), work);
}

}  // namespace trigen
