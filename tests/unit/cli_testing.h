// The built program, run as a user runs it, in a folder of its own.
#pragma once

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "runtime/nvrtc.h"
#include "tests/files.h"

namespace trigen {

constexpr const char* kProblem = "forward,dtype=f16,B=2,T=64,D=64";

struct Finished {
  int code = -1;  // exit code, 128 + n for signal n
  std::string out, err;
};

// A folder of its own for each test: cache, home, captured output.
class Program : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/trigenXXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    char real[PATH_MAX];
    folder_ = ::realpath(pattern.c_str(), real) != nullptr ? real : pattern;
    cache_ = folder_ + "/cache.db";
  }
  void TearDown() override { (void)!std::system(("rm -rf '" + folder_ + "'").c_str()); }

  // Starts the program; `setup` runs in the child before exec.
  pid_t start(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {},
              const std::function<void()>& setup = {}) {
    const pid_t child = ::fork();
    if (child != 0) return child;
    (void)!std::freopen("/dev/null", "r", stdin);
    (void)!std::freopen((folder_ + "/out").c_str(), "w", stdout);
    (void)!std::freopen((folder_ + "/err").c_str(), "w", stderr);
    ::setenv("TRIGEN_CACHE", cache_.c_str(), 1);
    ::setenv("XDG_CACHE_HOME", folder_.c_str(), 1);
    ::unsetenv("TRIGEN_NO_JIT");
    ::unsetenv("TRIGEN_LOG");
    ::unsetenv("COLUMNS");
    ::unsetenv("NO_COLOR");
    for (const std::string& entry : environment) ::putenv(const_cast<char*>(entry.c_str()));
    std::vector<char*> argv{const_cast<char*>(program_)};
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    if (setup) setup();
    ::execv(program_, argv.data());
    ::_exit(127);
  }
  Finished finish(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    Finished done;
    done.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    done.out = slurp(folder_ + "/out");
    done.err = slurp(folder_ + "/err");
    return done;
  }
  Finished run(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {},
               const std::function<void()>& setup = {}) {
    return finish(start(arguments, environment, setup));
  }

  const char* program_ = TRIGEN_PROGRAM;
  std::string folder_, cache_;
};

// A test that compiles needs a compiler; without one it says so.
#define NEEDS_COMPILER(name)                                                              \
  do {                                                                                    \
    auto target = find_target(name);                                                      \
    ASSERT_TRUE(static_cast<bool>(target));                                               \
    auto compiler = Nvrtc::choose(**target);                                              \
    if (!compiler) GTEST_SKIP() << "[SKIP] " << take_error(compiler.takeError()).message; \
  } while (false)

}  // namespace trigen
