#include "lab/replay.h"

#include <cmath>

#include "generator/error.h"
#include "numerics/numbers.h"
#include "tuner/statistics.h"

namespace trigen {
namespace {

constexpr int kQuickSamples = 5, kFinalRounds = 31;

// Times spread on a logarithmic scale, so that none becomes negative. A normal distribution's quartiles are
// 0.6745 standard deviations from its median.
double sample(const RecordedCandidate& row, double truth, uint64_t seed, uint64_t stream, uint64_t index,
              double noise) {
  const double sigma = row.lower_us > 0 && row.upper_us > row.lower_us
                           ? std::log(row.upper_us / row.lower_us) / (2 * 0.6745)
                           : 0;
  double sum = 0;  // of twelve uniform numbers: variance 4 with random_value's range of (-1, 1)
  for (uint64_t i = 0; i < 12; ++i) sum += random_value(seed, stream, index * 12 + i, 1);
  return truth * 1e-6 * std::exp(noise * sigma * sum / 2);
}

llvm::Expected<std::vector<SearchPoint>> points_of(const Recording& recording) {
  std::vector<SearchPoint> points;
  for (const RecordedCandidate& row : recording.rows) {
    const auto [family, text] = llvm::StringRef(row.candidate).split(':');
    auto config = parse_config(text);
    if (!config) return with_prefix(config.takeError(), row.candidate);
    points.push_back({family.str(), *config, row.predicted_us * 1e-6});
  }
  return points;
}

}  // namespace

llvm::Expected<ReplayResult> replay(const Recording& recording, SearchOptions options, uint64_t seed,
                                    double noise) {
  auto points = points_of(recording);
  if (!points) return points.takeError();
  options.budget_s = 0;
  const auto& rows = recording.rows;
  const std::vector<double> truth = settled_us(recording);
  Search search(std::move(*points), options);
  ReplayResult out;
  for (auto batch = search.next(0); !batch.empty(); batch = search.next(0)) {
    for (const size_t i : batch) {
      out.order.push_back(i);
      if (!rows[i].timed()) {
        search.failed(i);
        continue;
      }
      std::vector<double> samples;
      for (uint64_t s = 0; s < kQuickSamples; ++s)
        samples.push_back(sample(rows[i], rows[i].us, seed, 2 * i, s, noise));
      search.timed(i, summarize(samples).median);
    }
  }
  if (!search.any())
    return make_error(ErrorKind::kBadRequest, "nothing that was timed in the recording was tried");
  const std::vector<size_t> finalists = search.finalists();
  std::vector<std::vector<double>> finals;
  for (const size_t i : finalists) {
    std::vector<double> samples;
    for (uint64_t s = 0; s < kFinalRounds; ++s)
      samples.push_back(sample(rows[i], truth[i], seed, 2 * i + 1, s, noise));
    finals.push_back(std::move(samples));
  }
  out.chosen = finalists[choose(finals).winner];
  out.best = out.chosen;
  for (size_t i = 0; i < rows.size(); ++i)
    if (rows[i].timed() && truth[i] < truth[out.best]) out.best = i;
  out.regret = truth[out.chosen] / truth[out.best] - 1;
  out.tried = out.order.size();
  out.share = static_cast<double>(out.tried) / static_cast<double>(rows.size());
  out.reason = search.reason(0);
  return out;
}

}  // namespace trigen
