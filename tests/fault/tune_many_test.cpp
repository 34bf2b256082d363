// Equal tunes in many processes with one cache: one of them tunes, the others take its choice; a dead one's turn
// goes on.
#include <gmock/gmock.h>
#include <signal.h>

#include <chrono>
#include <thread>

#include "cache/store.h"
#include "generator/error.h"
#include "generator/target.h"
#include "tests/thorough.h"
#include "tests/unit/cli_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTook = "took the choice that another process stored meanwhile in ";

class TuneMany : public Program {
 protected:
  // A process with standard error in a file of its own, which starts once `gate` is closed.
  pid_t start_one(int number, int gate_read, int gate_write, std::vector<std::string> arguments = {}) {
    arguments.insert(arguments.begin(),
                     {"tune", "--device", "emulated:sm_70", "--candidates", "2", kProblem});
    return start(arguments, {}, [=, this] {
      (void)!std::freopen(err_of(number).c_str(), "w", stderr);
      if (gate_write >= 0) ::close(gate_write);
      char byte = 0;
      if (gate_read >= 0 && ::read(gate_read, &byte, 1) != 0) ::_exit(126);
    });
  }
  std::string err_of(int number) const { return folder_ + "/err" + std::to_string(number); }
  std::unique_ptr<Store> store() const {
    Store::Options options;
    options.layers = {cache_};
    return Store::open(options);
  }
  int64_t records() const { return store()->layers()[0].records; }
};

TEST_F(TuneMany, ThirtyTwoEqualTunesDoItOnceAndForceWaitsForNobody) {
  NEEDS_COMPILER("sm_70");
#ifdef __SANITIZE_ADDRESS__
  constexpr int kProcesses = 6;  // each takes several times as long, and much memory
#else
  constexpr int kProcesses = 32;
#endif
  constexpr int kForced = kProcesses;
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  std::vector<pid_t> children;
  for (int p = 0; p <= kProcesses; ++p)
    children.push_back(
        start_one(p, gate[0], gate[1],
                  p == kForced ? std::vector<std::string>{"--force"} : std::vector<std::string>{}));
  ::close(gate[0]);
  ::close(gate[1]);
  int tuned = 0;
  for (int p = 0; p <= kProcesses; ++p) {
    EXPECT_EQ(finish(children[static_cast<size_t>(p)]).code, 0);
    const std::string err = slurp(err_of(p));
    if (err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << err;
    const bool took = err.find(kTook) != std::string::npos;
    EXPECT_THAT(err, HasSubstr(took ? ", by another process" : "checked on the emulated device: error")) << p;
    if (p == kForced)
      EXPECT_FALSE(took) << err;
    else
      tuned += took ? 0 : 1;
  }
  EXPECT_LE(tuned, 1);  // none where the forced one was first
  EXPECT_EQ(records(), 1);
}

// The one that has the turn is stopped in the middle, then killed: the waiting one does the work.
TEST_F(TuneMany, ADeadOnesTurnGoesOn) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const auto cache = store();
  const pid_t first = start_one(0, -1, -1);
  // its turn is taken before the first kernel is stored
  int status = 0;
  for (int i = 0; i < 3000 && cache->list_binaries().empty() && ::waitpid(first, &status, WNOHANG) == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  if (slurp(err_of(0)).find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP]";
  ::kill(first, SIGSTOP);
  ASSERT_EQ(records(), 0) << "it was faster than this test: " << slurp(err_of(0));
  const pid_t second = start_one(1, -1, -1);
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_EQ(::waitpid(second, &status, WNOHANG), 0) << "it does not wait: " << slurp(err_of(1));
  EXPECT_EQ(records(), 0);
  ::kill(first, SIGKILL);
  EXPECT_EQ(finish(first).code, 128 + SIGKILL);
  EXPECT_EQ(finish(second).code, 0);
  EXPECT_THAT(slurp(err_of(1)),
              AllOf(HasSubstr("checked on the emulated device: error"), Not(HasSubstr(kTook))));
  EXPECT_EQ(records(), 1);
}

}  // namespace
}  // namespace trigen
