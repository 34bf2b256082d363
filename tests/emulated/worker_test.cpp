// Workers and what kills them: kernels that hang, fault or trap, a parent that ends, a GPU that others use. On
// emulated devices, or (with TRIGEN_TEST_GPU=1) on this machine's GPUs.
#include "tuner/worker/process.h"

#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "../unit/runtime_testing.h"
#include "planted.h"
#include "test_driver.h"
#include "tuner/fleet.h"
#include "tuner/session.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using testing::kOnGpu;
using ::testing::Not;
using testing::Variable;
using Clock = std::chrono::steady_clock;

double since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

class WorkerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!kOnGpu) {
      // the emulated devices lie where it has a busy V100 and a sliced A100, which keep quiet at first
      ::setenv("TRIGEN_NVML", NVML_LIBRARY, 1);
      ::setenv("TRIGEN_TEST_GPU_QUIET", "1", 1);
      // a kernel that hangs has no end: on a fast machine the limit of steps comes before the worker's deadline
      ::setenv("TRIGEN_EMULATED_STEPS", "0", 1);
    }
    const char* const program = ::getenv("TRIGEN_TEST_PROGRAM");  // the build's, copied to another machine
    options_.program = program != nullptr ? program : TRIGEN_PROGRAM;
    options_.devices = {kOnGpu ? "0" : "emulated:sm_70"};
    options_.deadline_s = 3;
    tune_.search.budget_s = 120;
    tune_.search.min_tried = tune_.search.max_tried = 6;
    tune_.predict_candidates = 5;
    tune_.finals_rounds = 7;
    Store::Options layers;
    layers.layers = {folder_ / "cache.db"};
    store_ = Store::open(layers);
    auto fleet = Fleet::open(options_);
    if (!fleet) GTEST_SKIP() << "[SKIP] " << take_error(fleet.takeError()).message;
    fleet_ = std::move(*fleet);
    if (testing::real_nvrtc(target().name.data()) == nullptr)
      GTEST_SKIP() << "[SKIP] no NVRTC that makes " << target().name.str() << "; set TRIGEN_NVRTC";
    tune_.family = llvm::cantFail(find_family(kOnGpu ? "mma_sm80" : "simt"));
    tune_.build.code = kOnGpu ? Code::kCubinAndPtx : Code::kPtx;
  }
  const Target& target() const { return *fleet_->stations().front().target; }
  static std::vector<Problem> problems() {
    const char* const text = kOnGpu ? "forward,dtype=f16,B=8,T=256,D=256" : "forward,dtype=f32,B=2,T=20,D=12";
    const char* const second =
        kOnGpu ? "forward,dtype=f16,B=8,T=512,D=256" : "forward,dtype=f32,B=2,T=24,D=12";
    return {llvm::cantFail(parse_problem(text)), llvm::cantFail(parse_problem(second))};
  }
  // The first candidates that a tune of the first problem tries.
  std::vector<Candidate> first(size_t count) const {
    auto all = llvm::cantFail(list_candidates(problems()[0], target(), tune_.family));
    std::vector<Candidate> out;
    if (!kOnGpu) {
      for (const Candidate& candidate : all)
        if (out.size() < count && candidate.config.raster == all.front().config.raster)
          out.push_back(candidate);
      return out;
    }
    for (const size_t i : first_choices(all, fleet_->stations().front().device->model(), tune_.search))
      if (out.size() < count) out.push_back(all[i]);
    return out;
  }
  std::vector<llvm::Expected<TuneReport>> run(const std::vector<Problem>& list) {
    std::vector<llvm::Expected<TuneReport>> out;
    Fleet::Events events;
    events.begin = [](const Fleet::Item&) {};
    events.show = [](const Fleet::Item&, const TuneProgress&) {};
    events.lost = [&](const Fleet::Item&, llvm::Error error) {
      lost_ += take_error(std::move(error)).message;
    };
    events.finish = [&](const Fleet::Item& item, llvm::Expected<TuneReport> report) {
      by_station_.push_back(item.station);
      out.push_back(std::move(report));
      return true;
    };
    fleet_->run(list, *store_, tune_, events);
    return out;
  }
  static const CandidateReport& row(const TuneReport& report, const Candidate& candidate) {
    for (const CandidateReport& each : report.candidates)
      if (each.candidate == describe(candidate)) return each;
    ADD_FAILURE() << describe(candidate);
    return report.candidates.front();
  }

  const testing::Folder folder_;
  FleetOptions options_;
  TuneOptions tune_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Fleet> fleet_;
  std::string lost_;
  std::vector<size_t> by_station_;
};

TEST_F(WorkerTest, BrokenKernelsCostTheirWorkerAlone) {
  const std::vector<Candidate> bad = first(3);
  ASSERT_EQ(bad.size(), 3u);
  const char* const bodies[] = {testing::kEndlessLoop, testing::kWriteOutside, testing::kTrap};
  for (size_t i = 0; i < 3; ++i) testing::plant(*store_, bad[i], bodies[i]);
  auto reports = run(problems());
  ASSERT_EQ(reports.size(), 2u);
  for (auto& report : reports)
    ASSERT_TRUE(static_cast<bool>(report)) << take_error(report.takeError()).message;
  const TuneReport& report = *reports[0];
  for (const Candidate& each : bad) {
    EXPECT_EQ(row(report, each).outcome, Outcome::kFailed) << describe(each) << row(report, each).note;
    EXPECT_NE(report.chosen, describe(each));
  }
  EXPECT_THAT(row(report, bad[0]).note, HasSubstr("hung: no answer of the device within"));
  EXPECT_THAT(row(report, bad[1]).note, AnyOf(HasSubstr("ILLEGAL_ADDRESS"), HasSubstr("out of bounds"),
                                              HasSubstr("outside"), HasSubstr("LAUNCH_FAILED")));
  EXPECT_THAT(row(report, bad[2]).note,
              AnyOf(HasSubstr("trap"), HasSubstr("ILLEGAL_INSTRUCTION"), HasSubstr("LAUNCH_FAILED")));
  for (const Candidate& each : bad)
    std::printf("%s: %s\n", describe(each).c_str(), row(report, each).note.c_str());
  EXPECT_NE(report.chosen, "");
  EXPECT_NE(reports[1]->chosen, "") << "the list goes on";
  if (kOnGpu) {
    EXPECT_EQ(report.provenance, Provenance::kMeasured);
    EXPECT_TRUE(report.complete);
    return;
  }
  // A second tune meets none of them again: no worker is lost.
  const int generation = fleet_->stations().front().process->generation();
  fleet_.reset();
  fleet_ = llvm::cantFail(Fleet::open(options_));
  const auto began = Clock::now();
  auto again = run({problems()[0]});
  EXPECT_EQ(llvm::cantFail(std::move(again[0])).chosen, report.chosen);
  EXPECT_LT(since(began), options_.deadline_s);
  EXPECT_EQ(fleet_->stations().front().process->generation(), 1);
  EXPECT_GE(generation, 2);
}

TEST_F(WorkerTest, AnInterruptionEndsAHangAndBlamesNobody) {
  const Candidate bad = first(1).front();
  testing::plant(*store_, bad, testing::kEndlessLoop);
  std::atomic<bool> cancel{false};
  options_.cancel = tune_.cancel = &cancel;
  options_.deadline_s = 100;
  fleet_ = llvm::cantFail(Fleet::open(options_));
  std::thread interrupt([&] {
    std::this_thread::sleep_for(std::chrono::seconds(kOnGpu ? 8 : 2));
    cancel = true;
  });
  const auto began = Clock::now();
  auto reports = run({problems()[0]});
  interrupt.join();
  EXPECT_LT(since(began), 30);
  for (auto& report : reports) {
    if (!report) {
      EXPECT_THAT(take_error(report.takeError()).message, HasSubstr("interrupted"));
    }
  }
  const DeviceInfo& info = fleet_->stations().front().device->info();
  for (const Record& sample :
       store_->find_samples(to_string(problems()[0]), target().name, kOnGpu ? info.name : ""))
    EXPECT_NE(sample.candidate, describe(bad)) << sample.evidence;
}

// A parent that is killed leaves no worker behind, even one whose device hangs.
TEST_F(WorkerTest, AWorkerEndsWithItsParent) {
  testing::plant(*store_, first(1).front(), testing::kEndlessLoop);
  fleet_.reset();
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    options_.deadline_s = 100;
    auto fleet = llvm::cantFail(Fleet::open(options_));
    const pid_t worker = fleet->stations().front().process->pid();
    if (write(ends[1], &worker, sizeof worker) != sizeof worker) _exit(1);
    fleet_ = std::move(fleet);
    run({problems()[0]});
    _exit(0);
  }
  pid_t worker = 0;
  ASSERT_EQ(read(ends[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  std::this_thread::sleep_for(std::chrono::seconds(kOnGpu ? 5 : 1));
  EXPECT_EQ(kill(worker, 0), 0) << "it hangs";
  EXPECT_EQ(getpgid(worker), worker) << "a group of its own";
  kill(parent, SIGKILL);
  waitpid(parent, nullptr, 0);
  bool gone = false;
  for (int i = 0; i < 200 && !gone; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    // init may not have taken a zombie in yet
    std::ifstream stat("/proc/" + std::to_string(worker) + "/stat");
    std::string line;
    gone = !std::getline(stat, line) || line.find(") Z") != std::string::npos;
  }
  EXPECT_TRUE(gone);
  close(ends[0]);
  close(ends[1]);
}

TEST_F(WorkerTest, ADeviceThatIsNotThereIsSaid) {
  options_.devices = {kOnGpu ? "63" : "emulated:sm_71"};
  auto fleet = Fleet::open(options_);
  ASSERT_FALSE(static_cast<bool>(fleet));
  EXPECT_THAT(take_error(fleet.takeError()).message, AnyOf(HasSubstr("sm_71"), HasSubstr("does not exist")));
  options_.devices = {options_.devices.front(), options_.devices.front()};
  options_.devices = {kOnGpu ? "0" : "emulated:sm_70", kOnGpu ? "0" : "emulated:sm_70"};
  auto twice = Fleet::open(options_);
  ASSERT_FALSE(static_cast<bool>(twice));
  EXPECT_THAT(take_error(twice.takeError()).message, HasSubstr("is named twice"));
}

TEST_F(WorkerTest, TwoDevicesOfAKindShareAListAndAnotherKindHasItsOwn) {
  if (kOnGpu) GTEST_SKIP() << "[SKIP] of emulated devices";
  const Variable driver("TRIGEN_DRIVER", "emulated:sm_70"), devices("TRIGEN_EMULATED_DEVICES", "2");
  options_.devices = {"all"};
  fleet_ = llvm::cantFail(Fleet::open(options_));
  ASSERT_EQ(fleet_->stations().size(), 2u);
  EXPECT_EQ(fleet_->kinds(), 1u);
  std::vector<Problem> list;
  for (int T = 16; T < 32; T += 2)
    list.push_back(llvm::cantFail(parse_problem("forward,dtype=f32,B=2,D=12,T=" + std::to_string(T))));
  tune_.predict_candidates = 2;
  auto reports = run(list);
  ASSERT_EQ(reports.size(), list.size());
  for (auto& report : reports) EXPECT_NE(llvm::cantFail(std::move(report)).chosen, "");
  EXPECT_THAT(by_station_, AllOf(::testing::Contains(0u), ::testing::Contains(1u)));

  options_.devices = {"emulated:sm_70", "emulated:sm_75"};
  fleet_ = llvm::cantFail(Fleet::open(options_));
  EXPECT_EQ(fleet_->kinds(), 2u);
  std::vector<std::string> targets;
  for (auto& report : run({list[0]})) targets.push_back(llvm::cantFail(std::move(report)).target);
  EXPECT_THAT(targets, ::testing::UnorderedElementsAre("sm_70", "sm_75"));
}

// The first emulated device as a stand-in for NVML's busy and hot V100.
TEST_F(WorkerTest, ABusyGpuIsWaitedForAndRefused) {
  if (kOnGpu) GTEST_SKIP() << "[SKIP] of emulated devices";
  ::unsetenv("TRIGEN_TEST_GPU_QUIET");
  options_.watch.wait_s = 0.2;
  fleet_ = llvm::cantFail(Fleet::open(options_));
  ASSERT_NE(fleet_->stations().front().watch, nullptr);
  auto refused = run(problems());
  ASSERT_EQ(refused.size(), 1u) << "the others are not begun";
  EXPECT_THAT(
      take_error(refused[0].takeError()).message,
      AllOf(HasSubstr("V100-SXM2-16GB)) is busy or throttled: "),
            HasSubstr("it is 98 % busy with 2 other processes (4242 with 12"),
            HasSubstr("held down by heat (hardware)"), HasSubstr("waited 0 s"), HasSubstr("--shared-ok")));
  options_.watch.shared_ok = true;
  fleet_ = llvm::cantFail(Fleet::open(options_));
  auto shared = run({problems()[0]});
  EXPECT_NE(llvm::cantFail(std::move(shared[0])).chosen, "");
  {
    const Variable quiet("TRIGEN_TEST_GPU_QUIET", "1");
    options_.watch.shared_ok = false;
    fleet_ = llvm::cantFail(Fleet::open(options_));
    auto free = run({problems()[1]});
    EXPECT_NE(llvm::cantFail(std::move(free[0])).chosen, "");
    const GpuState state = fleet_->stations().front().watch->read();
    EXPECT_EQ(state.sm_mhz, 1380);
    EXPECT_EQ(state.memory_mhz, 877);
    EXPECT_EQ(state.celsius, 87);
    EXPECT_EQ(state.percent_busy, 0);
    EXPECT_EQ(state.watts, 250.5);
    EXPECT_EQ(state.watts_allowed, 300);
    EXPECT_EQ(state.ecc_errors, 3u);
    EXPECT_FALSE(state.mig.has_value());
  }
}

// Our own processes on the GPU, by number or, in a container, by count.
TEST_F(WorkerTest, OurOwnProcessIsNobodyElse) {
  if (kOnGpu) GTEST_SKIP() << "[SKIP] of emulated devices";
  ::unsetenv("TRIGEN_TEST_GPU_QUIET");
  const auto trouble = [](int own) {
    auto watch = GpuWatch::open("0000:00:00.0", "it", [own] { return own; }, {});
    GpuState state = watch->read();
    state.reasons = 0;
    return watch->trouble(state);
  };
  EXPECT_THAT(trouble(0), HasSubstr("2 other processes"));
  EXPECT_THAT(trouble(4243), AllOf(HasSubstr("1 other process (4242"), Not(HasSubstr("4243"))));
  EXPECT_THAT(trouble(77), HasSubstr("1 other process ("));
  auto watch = GpuWatch::open("0000:00:00.0", "it", [] { return 4242; }, {});
  GpuState before = watch->read();
  before.reasons = 0;
  GpuState after = before;
  after.percent_busy = 0;
  EXPECT_EQ(watch->trouble(after), "") << "others that do nothing";
  EXPECT_EQ(watch->trouble_since(before, after), "");
  after.processes.push_back({99, 0});
  after.reasons = 0x20;
  EXPECT_EQ(watch->trouble_since(before, after),
            "1 more process came to the GPU, and its clocks were held down by heat (driver)");
  EXPECT_EQ(GpuWatch::open("0000:77:00.0", "it", [] { return 0; }, {}), nullptr);
}

}  // namespace
}  // namespace trigen
