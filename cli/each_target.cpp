#include "cli/each_target.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/cache.h"
#include "cli/command.h"

namespace trigen::cli {
namespace {

struct Ended {
  int code = kFailure;
  std::string out;  // of a run whose output is read
};

// `run` in a child process. A termination of this process goes on to it; Ctrl-C reaches both.
Ended run_in_child(bool read_output, const std::atomic<bool>& interrupted, const std::function<int()>& run) {
  int ends[2] = {-1, -1};
  if (read_output && ::pipe(ends) != 0) return {};
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) return {};
  if (child == 0) {
    ::signal(SIGINT, SIG_DFL);
    ::signal(SIGTERM, SIG_DFL);
    if (read_output) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
    }
    const int code = run();
    ::_exit(std::fflush(stdout) == 0 ? code : kFailure);
  }
  Ended ended;
  if (read_output) ::close(ends[1]);
  const auto pass_on = [&] {
    if (interrupted.load()) ::kill(child, SIGTERM);
  };
  char buffer[4096];
  while (read_output) {
    const ssize_t got = ::read(ends[0], buffer, sizeof buffer);
    if (got > 0) ended.out.append(buffer, static_cast<size_t>(got));
    if (got < 0 && errno == EINTR) pass_on();
    if (got == 0 || (got < 0 && errno != EINTR)) break;
  }
  if (read_output) ::close(ends[0]);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) pass_on();
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

}  // namespace

llvm::Expected<int> for_each_target(TargetOptions& where, bool json,
                                    const std::function<llvm::Expected<int>()>& run) {
  auto archs = parse_archs({where.arch});
  if (!archs) return archs.takeError();
  if (archs->size() == 1) where.arch = archs->front();
  if (archs->size() < 2) return run();
  if (!where.gpu.empty())
    return make_error(ErrorKind::kBadRequest, "--gpu " + where.gpu + " has one target; leave --arch out");
  const std::atomic<bool>& interrupted = catch_interrupts();
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  int code = kDone;
  for (const std::string& arch : *archs) {
    const Ended ended = run_in_child(json, interrupted, [&] {
      where.arch = arch;
      auto done = run();
      return done ? *done : report(done.takeError());
    });
    const auto part = nlohmann::ordered_json::parse(ended.out, nullptr, false);
    for (const auto& each : part)
      if (part.is_array()) all.push_back(each);
    if (part.is_object()) all.push_back(part);
    if (code == kDone || code == kNoCompiler) code = ended.code == kDone ? code : ended.code;
    if (interrupted.load() || ended.code >= kInterrupted) {
      code = interrupted.load() ? interrupted_code() : ended.code;
      break;
    }
    if (!json && arch != archs->back()) std::printf("\n");
  }
  if (json)
    std::printf("%s\n", all.dump(2, ' ', true, nlohmann::ordered_json::error_handler_t::replace).c_str());
  return code;
}

}  // namespace trigen::cli
