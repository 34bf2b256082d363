// A host that makes few threads or none (`ulimit -u`, a container's limit): the work is done by those there are, or an
// error says what to raise.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <cstdlib>
#include <stdexcept>

#include "cache/host.h"
#include "generator/error.h"
#include "generator/target.h"
#include "tests/fault/child.h"
#include "tests/thorough.h"
#include "tests/unit/cli_testing.h"
#include "tuner/compile_pool.h"

namespace trigen {
namespace {

using ::testing::HasSubstr;
using trigen::testing::Child;

// Of this test program's children alone: a limit counts all that a user runs.
const uid_t kUser = static_cast<uid_t>(64000 + ::getpid() % 1000);

// This process and what it makes, threads and processes: no more than `processes`. Root has no such limit.
void allow(rlim_t processes) {
  const rlimit limit{processes, processes};
  if (::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(126);
  if (::geteuid() == 0 && ::setuid(kUser) != 0) ::_exit(126);
}

TEST(Threads, WithoutOneTheCallerDoesTheWork) {
  Child child([&](const std::function<void()>&) -> std::string {
    allow(1);
    if (start_thread([] {}).joinable()) return "the limit holds nothing";
    std::atomic<int> left{1000};
    on_threads(8, [&] {
      while (left > 0) --left;
    });
    return left == 0 ? "" : "not all was done";
  });
  EXPECT_EQ(child.join(), "");
}

TEST(Threads, AnExceptionReachesTheCallerWhenAllHaveEnded) {
  std::atomic<int> ended{0};
  EXPECT_THROW(on_threads(4,
                          [&] {
                            ++ended;
                            throw std::runtime_error("no memory, say");
                          }),
               std::runtime_error);
  EXPECT_EQ(ended, 4);
}

TEST(Threads, ACompilePoolWithoutOneUsesThoseThatWait) {
  Child child([&](const std::function<void()>&) -> std::string {
    allow(1);
    CompilePool pool(4);
    int done = 0, ahead = 0;
    pool.submit(
        &pool, [&] { ++ahead; }, CompilePool::Need::kNextProblem);
    pool.submit(&pool, [&] { ++done; });
    pool.lend_thread();
    if (done != 1 || ahead != 0) return "it did not do what is waited for first";
    pool.withdraw(&pool);
    pool.lend_thread();
    return ahead == 0 ? "" : "a withdrawn job was done";
  });
  EXPECT_EQ(child.join(), "");
}

class FewThreads : public Program {
 protected:
  // The program works from the limit `least` on. Who is not root has more processes already: one limit, for none.
  void try_limits(const std::vector<std::string>& arguments, int least) {
    NEEDS_COMPILER("sm_70");
    ASSERT_EQ(::chmod(folder_.c_str(), 01777), 0);
    const std::vector<int> limits = ::geteuid() == 0 ? std::vector<int>{1, 2, 3, 4, 6} : std::vector<int>{1};
    const std::string home = folder_ + "/home";
    // LeakSanitizer looks for leaks in a process of its own, which the limit forbids.
    const char* const options = std::getenv("ASAN_OPTIONS");
    const std::string sanitizer = std::string("ASAN_OPTIONS=") + (options ? options : "") + ":detect_leaks=0";
    for (const int limit : limits) {
      const Finished done =
          run(arguments, {"TRIGEN_CACHE=" + home + "/cache.db", "XDG_CACHE_HOME=" + home, sanitizer}, [&] {
            ::alarm(100);
            allow(static_cast<rlim_t>(limit));
            ::mkdir(home.c_str(), 0700);  // the next one finds the binaries there
          });
      if (done.code == 127) GTEST_SKIP() << "[SKIP] another user may not run " << TRIGEN_PROGRAM;
      if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
      if (limit >= least) {
        EXPECT_EQ(done.code, 0) << limit << ": " << done.err;
      } else {
        EXPECT_EQ(done.code, 1) << limit << ": " << done.err;
        EXPECT_THAT(done.err, HasSubstr("allow more processes (`ulimit -u`")) << limit;
      }
    }
  }
};

TEST_F(FewThreads, APredictionIsMade) {
  try_limits({"tune", "--no-device", "--arch", "sm_70", "--candidates", "2", "--force", kProblem}, 1);
}
TEST_F(FewThreads, AVerificationIsMade) { try_limits({"verify", "--device", "emulated:sm_70", kProblem}, 1); }
TEST_F(FewThreads, ATuneIsMadeWhereAWorkerCanBe) {
  LONG_WITH_SANITIZERS();
  try_limits({"tune", "--device", "emulated:sm_70", "--candidates", "2", "--force", kProblem}, 2);
}

}  // namespace
}  // namespace trigen
