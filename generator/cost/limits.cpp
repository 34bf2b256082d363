#include "generator/cost/limits.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace trigen {

double soft_max(std::initializer_list<double> limits) {
  double sum = 0;
  for (const double limit : limits) sum += std::pow(limit, 4);
  return std::pow(sum, 0.25);
}

int resident_blocks(const Target& target, int64_t registers, int threads, int64_t shared_bytes) {
  const int64_t by_registers = target.registers_per_sm / std::max<int64_t>(1, registers * threads);
  const int64_t by_shared =
      target.shared_per_sm / std::max<int64_t>(1, shared_bytes + target.reserved_shared_per_block);
  const int64_t by_threads = target.max_threads_per_sm / threads;
  return static_cast<int>(
      std::clamp<int64_t>(std::min({by_registers, by_shared, by_threads}), 1, target.max_blocks_per_sm));
}

void name_limiter(Prediction& prediction, const char* arithmetic) {
  const Prediction& r = prediction;
  prediction.limiter = arithmetic;
  double most = r.compute_s;
  for (const auto& [seconds, name] :
       {std::pair{r.tail_s, "tail"}, {r.dram_s, "dram"}, {r.l2_s, "l2"}, {r.fixed_s, "launch"}}) {
    if (seconds > most) most = seconds, prediction.limiter = name;
  }
}

}  // namespace trigen
