// One problem's tune on the emulated device, which is never timed: what comes before the times, and what a
// prediction is checked for. Times, resumed and kept tunes: tests/gpu/tune_test.cpp.
#include "tuner/session.h"

#include <gmock/gmock.h>

#include <chrono>
#include <set>
#include <thread>

#include "../unit/runtime_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kProblem = "forward,dtype=f32,B=2,T=20,D=12";

class SessionTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (trigen::testing::real_nvrtc(target().name.data()) == nullptr)
      GTEST_SKIP() << "[SKIP] no NVRTC that makes " << target().name.str() << "; set TRIGEN_NVRTC";
    auto driver = Driver::load_emulated(target().name);
    if (!driver) GTEST_SKIP() << "[SKIP] " << take_error(driver.takeError()).message;
    device_ = llvm::cantFail(Device::open(**driver, 0));
    Store::Options layers;
    layers.layers = {shared().path() + "/cache.db"};
    store_ = Store::open(layers);
    options_.search.exhaustive = true;
    options_.force = true;  // the tests share a cache
    options_.build.code = code_for(*device_);
  }
  static const Target& target() { return *llvm::cantFail(find_target("sm_70")); }
  // One folder for all tests: a kernel is compiled once.
  static const trigen::testing::Folder& shared() {
    static const trigen::testing::Folder folder;
    return folder;
  }
  static const Problem& problem() {
    static const Problem problem = llvm::cantFail(parse_problem(kProblem));
    return problem;
  }
  // The model's first few.
  static std::vector<Candidate> candidates(size_t count = 3) {
    std::vector<Candidate> all = llvm::cantFail(list_candidates(problem(), target()));
    EXPECT_GT(all.size(), count);
    all.erase(all.begin() + static_cast<std::ptrdiff_t>(count), all.end());
    return all;
  }
  Session session(std::vector<Candidate> list) {
    return Session(problem(), target(), device_, *store_, options_, std::move(list));
  }
  const Device* device_ = nullptr;
  std::unique_ptr<Store> store_;
  TuneOptions options_;
};

std::string text_of(llvm::Error error) { return error ? take_error(std::move(error)).message : ""; }
std::string outcome(const CandidateReport& row) { return to_string(row.outcome); }

// The emulated device with a clock: checks are its own, times are given. The first few candidates fail, others may be slow.
class ClockedBench : public LocalBench {
 public:
  ClockedBench(const Device* device, size_t failing) : LocalBench(device), failing_(failing) {}
  llvm::Expected<double> replay(size_t) override { return kSeconds; }
  static constexpr double kSeconds = 1e-5;
  std::set<size_t> slow;

 protected:
  llvm::Error time(size_t id, Held&, Trial& out) override {
    if (failing_ > 0) {
      --failing_;
      return make_error(ErrorKind::kDevice, "no answer in time");
    }
    out.samples.assign(9, slow.count(id) > 0 ? 2 * kSeconds : kSeconds);
    return llvm::Error::success();
  }

 private:
  size_t failing_;
};

TEST_F(SessionTest, AnEmulatedDeviceIsNeverTimed) {
  Session tune = session(candidates());
  EXPECT_THAT(
      text_of(tune.measure()),
      AllOf(StartsWith("no candidate of forward,dtype=f32,B=2,H=1,T=20,D=12,K=1,pad=0 works on sm_70:"),
            HasSubstr("failed, the emulated device has no time to measure")));
  for (const CandidateReport& row : tune.report().candidates) {
    EXPECT_EQ(outcome(row), "failed");
    EXPECT_TRUE(row.quick.empty());
  }
  EXPECT_FALSE(store_->find_record(to_string(problem()), {target().name}, {"", 0, ""}).has_value());
}

// The candidate's place in the cache holds a kernel of the other triangle, as a wrong kernel would.
TEST_F(SessionTest, AWrongKernelIsNamedAndNeverChosen) {
  const std::vector<Candidate> list = candidates(1);
  Candidate other = list.front();
  other.problem.fill = Fill::kUpper;
  const Nvrtc& nvrtc = *trigen::testing::real_nvrtc(target().name.data());
  Binary wrong = llvm::cantFail(compile(other, nvrtc, nullptr, options_.build.code));
  const Binary right = llvm::cantFail(compile(list.front(), nvrtc, nullptr, options_.build.code));
  wrong.key = right.key;
  wrong.candidate = right.candidate;
  ASSERT_EQ(text_of(store_->put_binary(wrong)), "");
  ClockedBench bench(device_, 0);
  options_.bench = &bench;
  Session tune = session(list);
  EXPECT_THAT(text_of(tune.measure()),
              HasSubstr(tune.report().candidates.front().candidate + ": wrong, y[b=0,h=0,t=0,d=0] is nan"));
  Session predicted = session(list);
  EXPECT_THAT(text_of(predicted.choose_predicted(0, wrong).takeError()),
              AllOf(HasSubstr(" gives a wrong result on the emulated device: "), HasSubstr("trigen verify")));
  EXPECT_EQ(text_of(store_->put_binary(right)), "");
}

// A layer whose kernels are wrong does not end a tune: it measures what was compiled here.
TEST_F(SessionTest, WhatOthersMadeIsNoCandidate) {
  const std::vector<Candidate> list = candidates(2);
  const trigen::testing::Folder folder;
  const Nvrtc& nvrtc = *trigen::testing::real_nvrtc(target().name.data());
  const std::string bad = folder.path() + "/bad.db";
  Store::Options layers;
  layers.layers = {bad};
  for (const Candidate& candidate : list) {
    Binary binary = llvm::cantFail(compile(candidate, nvrtc, nullptr, options_.build.code));
    for (size_t at = 0; (at = binary.ptx.find(".entry", at)) != std::string::npos; ++at)
      binary.ptx.insert(binary.ptx.find('{', binary.ptx.find(')', at)) + 1, "\ntrap;\n");
    ASSERT_EQ(text_of(Store::open(layers)->put_binary(binary)), "");
  }
  for (const bool first : {false, true}) {  // the bad layer before the user's own (a bundle), and behind it
    const std::string own = folder.path() + (first ? "/second.db" : "/first.db");
    const std::string bundle = folder.path() + "/bad.trigen";
    if (first) std::filesystem::copy_file(bad, bundle);
    layers.layers = first ? std::vector<std::string>{bundle, own} : std::vector<std::string>{own, bad};
    store_ = Store::open(layers);
    ClockedBench bench(device_, 0);
    options_.bench = &bench;
    Session tune = session(list);
    EXPECT_EQ(text_of(tune.measure()), "");
    for (const CandidateReport& row : tune.report().candidates) {
      EXPECT_GT(row.tolerance, 0) << "ran, and was compared: " << row.note;
      EXPECT_LE(row.error, row.tolerance);
    }
  }
  layers.layers = {folder.path() + "/third.db", bad};
  store_ = Store::open(layers);
  options_.build.own = false;
  ClockedBench bench(device_, 0);
  options_.bench = &bench;
  Session others = session(list);
  EXPECT_THAT(text_of(others.measure()), HasSubstr("trap")) << "a tune that takes them";
  EXPECT_EQ(device_->api().cuDevicePrimaryCtxReset(0), cuda::CUDA_SUCCESS);
}

TEST_F(SessionTest, InterruptedBeforeTheFirstCandidate) {
  const std::atomic<bool> cancel{true};
  options_.cancel = &cancel;
  Session tune = session(candidates());
  EXPECT_THAT(text_of(tune.measure()), StartsWith("interrupted before any candidate of forward"));
}

TEST_F(SessionTest, WhatCannotComeIntoTheFinalsIsNotChecked) {
  ClockedBench bench(device_, 0);
  bench.slow = {1};
  options_.bench = &bench;
  Session tune = session(candidates());
  EXPECT_EQ(text_of(tune.measure()), "");
  const auto& rows = tune.report().candidates;
  EXPECT_EQ(outcome(rows[1]), "timed");
  EXPECT_EQ(rows[1].tolerance, 0);
  EXPECT_FALSE(bench.holds(1));
  for (const size_t i : {0, 2}) {
    EXPECT_THAT(outcome(rows[i]), ::testing::AnyOf("chosen", "finalist"));
    EXPECT_GT(rows[i].tolerance, 0) << i;
  }
}

TEST_F(SessionTest, ABudgetOfAMillisecondMeasuresTheFirstCandidateThatWorks) {
  const trigen::testing::Folder empty;
  Store::Options layers;
  layers.layers = {empty / "cache.db"};
  options_.search.exhaustive = false;
  options_.search.budget_s = 1e-3;  // every compile takes longer
  for (const size_t failing : {0, 2}) {
    const auto store = Store::open(layers);
    ClockedBench bench(device_, failing);
    options_.bench = &bench;
    Session tune(problem(), target(), device_, *store, options_, candidates(5));
    EXPECT_EQ(text_of(tune.measure()), "");
    const TuneReport& report = tune.report();
    EXPECT_NE(report.chosen, "");
    EXPECT_EQ(report.seconds, ClockedBench::kSeconds);
    EXPECT_THAT(report.stop_reason,
                StartsWith("budget of 0.001 s spent after " + std::to_string(failing + 1) + " of 5"));
    const auto found = store->find_record(report.problem, {target().name}, {"", 0, ""});
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->record.candidate, report.chosen);
  }
}

// Inputs and reference of a large problem take seconds.
TEST_F(SessionTest, TheBudgetBeginsWhenInputsAndReferenceAreThere) {
  class Slow : public ClockedBench {
   public:
    using ClockedBench::ClockedBench;
    llvm::Error begin(const Problem& problem, const WorkbenchOptions& options) override {
      std::this_thread::sleep_for(std::chrono::duration<double>(2));
      return ClockedBench::begin(problem, options);
    }
  } bench(device_, 0);
  for (const Candidate& candidate : candidates()) llvm::cantFail(build(candidate, *store_, options_.build));
  options_.search.budget_s = 2;
  options_.bench = &bench;
  Session tune = session(candidates());
  EXPECT_EQ(text_of(tune.measure()), "");
  EXPECT_EQ(tune.report().stop_reason, "all 3 candidates tried");
}

TEST_F(SessionTest, EveryCandidatesReasonIsNamed) {
  const trigen::testing::Folder empty;
  Store::Options layers;
  layers.layers = {empty / "cache.db"};
  const auto store = Store::open(layers);
  options_.build.no_jit = true;
  Session tune(problem(), target(), device_, *store, options_, candidates(5));
  const std::string text = text_of(tune.measure());
  size_t named = 0;
  for (const CandidateReport& row : tune.report().candidates) {
    EXPECT_EQ(outcome(row), "not built");
    named += text.find("\n  " + row.candidate + ": not built, the cache has no kernel") != std::string::npos;
  }
  EXPECT_EQ(named, 4u) << "no more than can be read";
}

TEST_F(SessionTest, ThePredictedChoiceIsCheckedOnTheEmulatedDevice) {
  Session tune = session(candidates(2));
  const Binary binary = llvm::cantFail(build(tune.candidates()[1], *store_, options_.build)).binary;
  ASSERT_TRUE(llvm::cantFail(tune.choose_predicted(1, binary)));
  EXPECT_EQ(tune.report().provenance, Provenance::kPredicted);
  EXPECT_EQ(tune.report().seconds, tune.report().candidates[1].predicted_s);
  EXPECT_GT(tune.report().tolerance, 0) << "checked";
  EXPECT_LE(tune.report().error, tune.report().tolerance);

  options_.emulated_work = 1;
  Session large = session(candidates(2));
  ASSERT_TRUE(llvm::cantFail(large.choose_predicted(1, binary)));
  EXPECT_THAT(large.report().notes, ::testing::Contains(StartsWith("not checked: too big")));
  EXPECT_EQ(large.report().tolerance, 0);
}

}  // namespace
}  // namespace trigen
