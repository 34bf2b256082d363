// A measured tune's decisions on a device whose times are written down here: a final that loses a finalist, a
// chip that warms up, energy beside time, an interruption. Nothing is compiled: the cache holds every binary.
#include "tuner/session.h"

#include <gmock/gmock.h>

#include <thread>

#include "tests/emulated/planted.h"
#include "tests/unit/runtime_testing.h"
#include "tuner/evidence.h"
#include "tuner/gpu_watch.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;

constexpr const char* kProblem = "forward,dtype=f16,B=8,T=256,D=256";

// Candidates' seconds by their place; the whole device's clock in `slower`.
class WrittenBench : public Bench {
 public:
  explicit WrittenBench(std::vector<double> seconds) : seconds_(std::move(seconds)) {}
  llvm::Error begin(const Problem&, const WorkbenchOptions&) override { return llvm::Error::success(); }
  llvm::Expected<Trial> trial(size_t id, const Candidate&, const Binary&, const TrialOptions&) override {
    held_.insert(id);
    Trial trial;
    trial.error = 1e-4;
    trial.tolerance = 1e-2;
    trial.samples.assign(5, seconds_.at(id) * slower);
    slower *= warms;
    return trial;
  }
  bool holds(size_t id) const override { return held_.count(id) > 0; }
  void drop(size_t id) override { held_.erase(id); }
  llvm::Expected<double> replay(size_t id) override {
    ++replays;
    if (on_replay) on_replay();
    if (id == breaks) {
      held_.clear();
      return make_error(ErrorKind::kDevice, "cuEventSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS");
    }
    return seconds_.at(id) * slower;
  }
  llvm::Expected<int64_t> spin(size_t id, double) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return runs.at(id);
  }
  bool renews() const override { return true; }

  double slower = 1, warms = 1;
  size_t breaks = ~size_t{0};
  int replays = 0;
  std::vector<int64_t> runs;
  std::function<void()> on_replay;

 private:
  std::vector<double> seconds_;
  std::set<size_t> held_;
};

class TunerSession : public ::testing::Test {
 protected:
  TunerSession() {
    DeviceInfo info;
    info.name = "NVIDIA H200";
    info.major = 9;
    info.sms = 132;
    info.clock_hz = 1.98e9;
    info.memory_clock_hz = 3.2e9;
    info.bus_bits = 6144;
    info.l2_bytes = 62914560;
    info.driver = "580.1";
    device_ = llvm::cantFail(Device::describe(info));
    Store::Options layers;
    layers.layers = {folder_ / "cache.db"};
    store_ = Store::open(layers);
    options_.search.exhaustive = true;
    options_.finals_rounds = 9;
  }
  const Target& target() const { return device_->target(); }
  // The model's first few of one family, with a binary each.
  std::vector<Candidate> candidates(size_t count) {
    auto all = llvm::cantFail(list_candidates(llvm::cantFail(parse_problem(kProblem)), target(),
                                              llvm::cantFail(find_family("mma_sm80"))));
    std::vector<Candidate> out;
    std::set<std::string> sources;
    for (const Candidate& candidate : all)
      if (out.size() < count && sources.insert(render(candidate).hash).second) out.push_back(candidate);
    for (const Candidate& candidate : out) testing::plant(*store_, candidate, testing::kTrap);
    return out;
  }
  TuneReport tune(WrittenBench& bench, std::vector<Candidate> list) {
    options_.bench = &bench;
    Session session(llvm::cantFail(parse_problem(kProblem)), target(), device_.get(), *store_, options_,
                    std::move(list));
    auto error = session.measure();
    EXPECT_FALSE(static_cast<bool>(error)) << llvm::toString(std::move(error));
    return session.report();
  }
  const testing::Folder folder_;
  std::unique_ptr<const Device> device_;
  std::unique_ptr<Store> store_;
  TuneOptions options_;
};

TEST_F(TunerSession, AFinalistThatBreaksIsOutAndTheFinalGoesOn) {
  const auto list = candidates(3);
  WrittenBench bench({10e-6, 9e-6, 9.5e-6});
  bench.breaks = 1;
  const TuneReport report = tune(bench, list);
  EXPECT_EQ(report.chosen, describe(list[2]));
  EXPECT_EQ(report.candidates[1].outcome, Outcome::kFailed);
  EXPECT_THAT(report.candidates[1].note, HasSubstr("ILLEGAL_ADDRESS"));
  EXPECT_TRUE(report.complete);
  const auto found = store_->find_record(report.problem, {report.target}, {"NVIDIA H200", 132, "580.1"});
  ASSERT_TRUE(found.has_value());
  EXPECT_THAT(found->record.evidence, HasSubstr("ILLEGAL_ADDRESS"));
}

TEST_F(TunerSession, AKernelThatSpillsIsMeasuredAsAnyOther) {
  const auto list = candidates(3);
  testing::plant(*store_, list[1], testing::kTrap, 140);
  WrittenBench bench({10e-6, 9e-6, 9.5e-6});
  const TuneReport report = tune(bench, list);
  EXPECT_EQ(report.candidates[1].resources.spill_bytes, 140);
  EXPECT_EQ(report.chosen, describe(list[1]));
}

TEST_F(TunerSession, AnInterruptedFinalKeepsTheQuickTimes) {
  const auto list = candidates(3);
  WrittenBench bench({10e-6, 9e-6, 9.5e-6});
  std::atomic<bool> cancel{false};
  options_.cancel = &cancel;
  bench.on_replay = [&] { cancel = true; };
  const TuneReport report = tune(bench, list);
  EXPECT_FALSE(report.complete);
  EXPECT_EQ(report.chosen, describe(list[1]));
  EXPECT_EQ(store_->find_samples(report.problem, report.target, "NVIDIA H200").size(), 3u);
}

// The anchor lies on the same device: where that is steady 4 % are enough to be out, where it warms up by 2 % a
// candidate the fastest of all is timed last and slow, and comes into the final all the same.
TEST_F(TunerSession, TheNoiseThatDecidesIsMeasured) {
  const auto list = candidates(4);
  const auto finalists = [&](double warms) {
    WrittenBench bench({9.6e-6, 10e-6, 10e-6, 9.4e-6});
    WrittenBench anchor_bench({20e-6});
    bench.warms = warms;
    anchor_bench.on_replay = [&] { anchor_bench.slower = bench.slower; };
    Anchor anchor(anchor_bench, target(), *store_, {});
    testing::plant(
        *store_,
        llvm::cantFail(list_candidates(llvm::cantFail(parse_problem(Anchor::kProblem)), target())).front(),
        testing::kTrap);
    options_.anchor = &anchor;
    const TuneReport report = tune(bench, list);
    EXPECT_GE(report.anchor_s.size(), 3u);
    size_t finals = 0;
    for (const CandidateReport& row : report.candidates) finals += row.finals.empty() ? 0 : 1;
    return std::pair(finals, report.chosen);
  };
  EXPECT_EQ(finalists(1), std::pair(size_t{1}, describe(list[3])));
  EXPECT_EQ(finalists(1.02), std::pair(size_t{4}, describe(list[3])));
}

TEST_F(TunerSession, EnergyAndTimeChooseDifferently) {
  const testing::Variable nvml("TRIGEN_NVML", NVML_LIBRARY), quiet("TRIGEN_TEST_GPU_QUIET", "1");
  const auto watch = GpuWatch::open("0000:00:00.0", "it", [] { return 0; }, {});
  ASSERT_NE(watch, nullptr);
  options_.watch = watch.get();
  const auto list = candidates(2);
  const auto chosen = [&](TuneObjective objective) {
    WrittenBench bench({10e-6, 9.5e-6});
    bench.runs = {4000, 1000};
    options_.objective = objective;
    const TuneReport report = tune(bench, list);
    EXPECT_EQ(report.objective, objective);
    EXPECT_EQ(report.joules > 0, objective != TuneObjective::kTime);
    EXPECT_EQ(report.states.size(), 2u) << "before and after the final";
    EXPECT_TRUE(is_complete(evidence_of(report), 2, objective));
    return report.chosen;
  };
  EXPECT_EQ(chosen(TuneObjective::kTime), describe(list[1]));
  EXPECT_EQ(chosen(TuneObjective::kEnergy), describe(list[0]));
  EXPECT_EQ(chosen(TuneObjective::kEdp), describe(list[0]));
  const auto found = store_->find_record(to_string(llvm::cantFail(parse_problem(kProblem))), {target().name},
                                         {"NVIDIA H200", 132, "580.1"});
  EXPECT_FALSE(is_complete(found->record.evidence, 2, TuneObjective::kTime)) << "answers another question";
  EXPECT_THAT(found->record.evidence, HasSubstr("\"sm_mhz\":1380"));
}

}  // namespace
}  // namespace trigen
