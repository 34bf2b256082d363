#include "tuner/worker/process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>

#include "check/text.h"
#include "tuner/worker/messages.h"
#include "tuner/worker/serve.h"

namespace trigen::worker {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr double kHostDeadline = 600;   // s, for what the host does: inputs, the reference, loading
constexpr double kKillDeadline = 15;    // s; a driver may take seconds to stop a kernel
constexpr double kCancelDeadline = 2;   // s that a trial may go on for after an interruption
constexpr double kExpectedFactor = 50;  // a model's error, and a neighbour's share of the device

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

bool ended(pid_t pid, int* status) {
  const pid_t got = ::waitpid(pid, status, WNOHANG);
  return got == pid || (got < 0 && errno == ECHILD);
}

}  // namespace

llvm::Error Process::spawn() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return make_error(ErrorKind::kInternal, llvm::Twine("no socket for a worker: ") + std::strerror(errno));
  const std::string program = options_.program.empty() ? "/proc/self/exe" : options_.program;
  std::string command = kCommand, parent = std::to_string(::getpid()), name = "trigen";
  char* arguments[] = {name.data(), command.data(), parent.data(), nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDIN_FILENO);
  ::posix_spawnattr_init(&attributes);
  // a terminal's Ctrl-C is for the tune, which lets the worker finish or ends it
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  const int failed = ::posix_spawn(&pid_, program.c_str(), &actions, &attributes, arguments, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  ::close(ends[1]);
  if (failed != 0) {
    ::close(ends[0]);
    pid_ = -1;
    return make_error(
        ErrorKind::kInternal,
        "the worker " + program + " does not start: " + std::strerror(failed) +
            (failed == EAGAIN ? "; allow more processes (`ulimit -u`, or the container's limit)" : ""));
  }
  channel_ = Channel(ends[0]);
  ++generation_;
  return llvm::Error::success();
}

llvm::Error Process::start() {
  if (running()) return llvm::Error::success();
  int status = 0;
  if (stuck_ > 0 && !ended(stuck_, &status))
    return make_error(ErrorKind::kDevice,
                      "process " + std::to_string(stuck_) +
                          " does not end although it was killed: the device " + options_.device.value_or("") +
                          " hangs; wait for its driver, or reset it with `nvidia-smi -r`");
  stuck_ = -1;
  if (auto error = spawn()) return error;
  if (!options_.device) return llvm::Error::success();
  const int threads =
      options_.threads > 0 ? options_.threads : static_cast<int>(std::thread::hardware_concurrency());
  auto answer = call({{"op", "open"}, {"device", *options_.device}, {"threads", threads}});
  if (!answer) return answer.takeError();
  if (auto error = error_from(*answer)) {
    end();
    return error;
  }
  info_ = device_info_from(answer->at("info"));
  answer->at("devices").get_to(devices_);
  return llvm::Error::success();
}

void Process::end() {
  if (!running()) return;
  const pid_t pid = std::exchange(pid_, -1);
  ::kill(-pid, SIGKILL);  // its group
  ::kill(pid, SIGKILL);
  ::close(channel_.socket());
  channel_ = Channel();
  int status = 0;
  const auto killed = Clock::now();
  while (!ended(pid, &status)) {
    if (seconds_since(killed) > kKillDeadline) {
      stuck_ = pid;
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

std::string Process::how_it_ended() {
  int status = 0;
  const auto seen = Clock::now();
  while (!ended(pid_, &status)) {
    if (seconds_since(seen) > 1) {
      end();
      return "its worker closed the connection";
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  pid_ = -1;
  ::close(channel_.socket());
  channel_ = Channel();
  if (WIFSIGNALED(status)) return format("its worker died: %s", ::strsignal(WTERMSIG(status)));
  return format("its worker ended with code %d", WEXITSTATUS(status));
}

llvm::Expected<json> Process::call(const json& request, const std::atomic<bool>* cancel) {
  const auto is_cancelled = [&] { return cancel != nullptr ? cancel->load() : cancelled(); };
  if (auto error = channel_.send(request)) {
    llvm::consumeError(std::move(error));
    return make_error(ErrorKind::kDevice, how_it_ended());
  }
  const double slack = options_.deadline_s > 0 ? options_.deadline_s : info_.emulated ? 60 : 5;
  auto since = Clock::now();
  double expected_s = -1;  // < 0: the host works
  std::optional<Clock::time_point> interrupted;
  for (;;) {
    auto message = channel_.receive(50);
    if (!message) {
      llvm::consumeError(message.takeError());
      return make_error(ErrorKind::kDevice, how_it_ended());
    }
    if (*message && (*message)->contains("done")) return std::move(**message);
    if (*message) {
      since = Clock::now();
      expected_s = (*message)->value("waiting_s", -1.0);
    }
    if (is_cancelled() && !interrupted) interrupted = Clock::now();
    if (interrupted && (!options_.device || seconds_since(*interrupted) > kCancelDeadline)) {
      end();
      return make_error(ErrorKind::kDevice, "interrupted");
    }
    const double allowed = expected_s < 0 ? kHostDeadline : slack + kExpectedFactor * expected_s;
    if (seconds_since(since) < allowed) continue;
    end();
    if (expected_s < 0)
      return make_error(ErrorKind::kDevice, format("hung: the host's part took over %.0f s", allowed));
    std::string text = format("hung: no answer of the device within %.1f s", allowed);
    if (expected_s > 0) text += ", where " + format_seconds(expected_s) + " were expected";
    return make_error(ErrorKind::kDevice, text);
  }
}

}  // namespace trigen::worker
