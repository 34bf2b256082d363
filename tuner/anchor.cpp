#include "tuner/anchor.h"

#include <algorithm>

namespace trigen {
namespace {

constexpr int kAnchorReplays = 5;
constexpr double kWidestReach = 0.5;

}  // namespace

llvm::Expected<double> Anchor::time() {
  auto problem = parse_problem(kProblem);
  if (!problem) return problem.takeError();
  WorkbenchOptions options;
  options.rotate = true;
  if (auto error = bench_.begin(*problem, options)) return error;
  if (!bench_.holds(0)) {
    auto candidates = list_candidates(*problem, target_);
    if (!candidates) return candidates.takeError();
    const Candidate& first = candidates->front();
    auto built = build(first, store_, build_);
    if (!built) return built.takeError();
    auto trial = bench_.trial(0, first, built->binary, {/*check=*/true, /*time=*/true, 1e-5});
    if (!trial) return trial.takeError();
    if (trial->end != Trial::End::kDone) return make_error(ErrorKind::kDevice, trial->note);
  }
  std::vector<double> seconds;
  for (int i = 0; i < kAnchorReplays; ++i) {
    auto one = bench_.replay(0);
    if (!one) return one.takeError();
    seconds.push_back(*one);
  }
  return summarize(seconds).median;
}

void Noise::samples(const std::vector<double>& seconds) {
  const Summary s = summarize(seconds);
  if (s.median > 0) scatter_.push_back(s.notch / s.median);
}

double Noise::drift() const {
  if (readings_.empty()) return 0;
  const auto [least, most] = std::minmax_element(readings_.begin(), readings_.end());
  return *least > 0 ? *most / *least - 1 : 0;
}

std::optional<double> Noise::reach() const {
  if (readings_.size() < 2) return std::nullopt;
  const double scatter = scatter_.empty() ? 0 : summarize(scatter_).median;
  return std::min(kNoiseFloor + drift() + 2 * scatter, kWidestReach);
}

}  // namespace trigen
