// Compiles in processes: the binaries of this process, a process that dies, one that does not start, a cancel. The order of jobs.
#include "tuner/compile_pool.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <future>
#include <string>
#include <thread>

#include "runtime/log.h"
#include "runtime_testing.h"
#include "tests/thorough.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;

constexpr int kJobs = 5;

class CompilePoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    nvrtc_ = testing::real_nvrtc("sm_80");
    if (nvrtc_ == nullptr) GTEST_SKIP() << "[SKIP] no NVRTC that makes sm_80; set TRIGEN_NVRTC";
    const Problem problem = llvm::cantFail(parse_problem("forward,dtype=f16,B=8,T=256,D=256"));
    candidates_ = llvm::cantFail(list_candidates(problem, *llvm::cantFail(find_target("sm_80"))));
    candidates_.resize(kJobs);
  }

  // Every candidate by a pool of its own; the results in their order, errors as text.
  std::vector<std::pair<Binary, std::string>> compile_all(const std::string& program,
                                                          const std::atomic<bool>* cancel = nullptr) {
    std::vector<std::pair<Binary, std::string>> out(kJobs);
    CompilePool pool(kJobs, program);
    std::atomic<int> left{kJobs};
    for (int i = 0; i < kJobs; ++i)
      pool.submit(this, [&, i] {
        auto binary = pool.compiler()(candidates_[i], *nvrtc_, cancel, Code::kCubinAndPtx);
        binary ? void(out[i].first = std::move(*binary))
               : void(out[i].second = take_error(binary.takeError()).message);
        --left;
      });
    while (left > 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    pool.withdraw(this);
    return out;
  }

  const Nvrtc* nvrtc_ = nullptr;
  std::vector<Candidate> candidates_;
};

TEST_F(CompilePoolTest, AProcessMakesTheBinaryOfThisOne) {
  LONG_WITH_SANITIZERS();
  const auto before = counters().compiles.load();
  const auto got = compile_all(TRIGEN_PROGRAM);
  EXPECT_LT(counters().compiles - before,
            kJobs);  // of this process: threads beyond the second have one of their own
  for (int i = 0; i < kJobs; ++i) {
    SCOPED_TRACE(describe(candidates_[i]));
    ASSERT_EQ(got[i].second, "");
    const Binary want = llvm::cantFail(compile(candidates_[i], *nvrtc_));
    EXPECT_EQ(got[i].first.key.digest(), want.key.digest());
    EXPECT_EQ(got[i].first.cubin, want.cubin);
    EXPECT_EQ(got[i].first.ptx, want.ptx);
    EXPECT_EQ(got[i].first.source, want.source);
    EXPECT_EQ(got[i].first.log, want.log);
    EXPECT_EQ(got[i].first.entry, want.entry);
    EXPECT_EQ(got[i].first.registers, want.registers);
  }
}

TEST_F(CompilePoolTest, AProcessThatDiesCostsItsCandidate) {
  int failed = 0;
  for (const auto& [binary, error] : compile_all("/bin/false")) {
    failed += error.empty() ? 0 : 1;
    if (!error.empty()) {
      EXPECT_THAT(error, HasSubstr("its worker ended with code 1"));
    }
    EXPECT_NE(binary.cubin.empty(), error.empty());
  }
  EXPECT_GT(failed, 0);
  EXPECT_LT(failed, kJobs);
}

TEST_F(CompilePoolTest, WithoutProcessesThisOneCompiles) {
  for (const auto& [binary, error] : compile_all("/nowhere/trigen")) EXPECT_EQ(error, "");
}

TEST_F(CompilePoolTest, ACancelEndsProcessesAtOnce) {
  const std::atomic<bool> cancel{true};
  for (const auto& [binary, error] : compile_all(TRIGEN_PROGRAM, &cancel))
    EXPECT_THAT(error, HasSubstr("was cancelled"));
}

// One thread: a first job holds it until all others are there.
TEST(CompilePool, WhatIsNeededFirstComesFirst) {
  CompilePool pool(1);
  std::promise<void> all;
  std::string order;
  const int here = 0, other = 0;
  pool.submit(&here, [&] { all.get_future().wait(); });
  const auto submit = [&](const int& owner, char name, CompilePool::Need need) {
    pool.submit(
        &owner, [&order, name] { order += name; }, need);
  };
  submit(here, 'd', CompilePool::Need::kNextProblem);
  submit(here, 'b', CompilePool::Need::kNextStep);
  submit(other, 'x', CompilePool::Need::kNextStep);
  submit(here, 'c', CompilePool::Need::kNextStep);
  submit(here, 'a', CompilePool::Need::kNow);
  pool.forget(&other);
  std::promise<void> last;
  pool.submit(
      &here, [&] { last.set_value(); }, CompilePool::Need::kNextProblem);
  all.set_value();
  last.get_future().wait();
  EXPECT_EQ(order, "abcd");
  pool.withdraw_all();
}

// What has begun ends, what has not is dropped.
TEST(CompilePool, WithdrawsAllOwners) {
  CompilePool pool(1);
  std::promise<void> begun, end;
  std::atomic<bool> ended{false}, dropped{true};
  const int first = 0, second = 0;
  pool.submit(&first, [&] {
    begun.set_value();
    end.get_future().wait();
    ended = true;
  });
  begun.get_future().wait();
  pool.submit(&second, [&] { dropped = false; });
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    end.set_value();
  });
  pool.withdraw_all();
  EXPECT_TRUE(ended);
  later.join();
  pool.withdraw(&second);
  EXPECT_TRUE(dropped);
}

}  // namespace
}  // namespace trigen
