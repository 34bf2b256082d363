#include "tuner/worker/serve.h"

#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "cache/host.h"
#include "generator/candidate.h"
#include "runtime/compile.h"
#include "tuner/worker/channel.h"
#include "tuner/worker/messages.h"

namespace trigen::worker {
namespace {

using nlohmann::json;

class Server {
 public:
  explicit Server(Channel channel) : channel_(channel) {}

  json answer(const json& request) {
    const std::string op = request.at("op");
    if (op == "open") return open(request);
    if (op == "compile") return compile(request);
    const int slot = request.at("slot");
    if (op == "begin") return begin(request, slot);
    LocalBench& bench = *slots_.at(slot).bench;
    const size_t id = request.value("id", size_t{0});
    if (op == "replay") {
      auto seconds = bench.replay(id);
      return seconds ? json{{"seconds", *seconds}} : to_json(seconds.takeError());
    }
    if (op == "spin") {
      auto runs = bench.spin(id, request.at("seconds"));
      return runs ? json{{"runs", *runs}} : to_json(runs.takeError());
    }
    if (op == "drop") {
      bench.drop(id);
      return json::object();
    }
    auto candidate = parse_candidate(slots_.at(slot).problem, *slots_.at(slot).target,
                                     request.at("candidate").get<std::string>());
    if (!candidate) return to_json(candidate.takeError());
    const Binary binary = binary_from(request.at("binary"));
    TrialOptions options;
    options.check = request.at("check");
    options.time = request.at("time");
    options.expected_s = request.at("expected_s");
    options.check_below_s = request.value("check_below_s", options.check_below_s);
    auto trial = bench.trial(id, *candidate, binary, options);
    return trial ? to_json(*trial) : to_json(trial.takeError());
  }

 private:
  struct Slot {
    Problem problem;
    const Target* target = nullptr;
    std::unique_ptr<LocalBench> bench;
  };

  json open(const json& request) {
    // several workers share the host's cores
    const std::string threads = std::to_string(request.at("threads").get<int>());
    ::setenv("TRIGEN_THREADS", threads.c_str(), /*overwrite=*/0);
    auto device = Device::open(request.at("device").get<std::string>());
    if (!device) return to_json(device.takeError());
    device_ = *device;
    return {{"info", to_json(device_->info_with_clocks())}, {"devices", device_->driver().device_count()}};
  }

  json begin(const json& request, int slot) {
    auto problem = parse_problem(request.at("problem").get<std::string>());
    if (!problem) return to_json(problem.takeError());
    auto target = find_target(request.at("target").get<std::string>());
    if (!target) return to_json(target.takeError());
    Slot& at = slots_[slot];
    at.problem = *problem;
    at.target = *target;
    if (at.bench == nullptr) at.bench = std::make_unique<LocalBench>(device_, watch());
    WorkbenchOptions options;
    options.seed = request.at("seed");
    options.rotate = request.at("rotate");
    return to_json(at.bench->begin(*problem, options));
  }

  static json compile(const json& request) {
    auto problem = parse_problem(request.at("problem").get<std::string>());
    if (!problem) return to_json(problem.takeError());
    auto target = find_target(request.at("target").get<std::string>());
    if (!target) return to_json(target.takeError());
    auto candidate = parse_candidate(*problem, **target, request.at("candidate").get<std::string>());
    if (!candidate) return to_json(candidate.takeError());
    NvrtcFile file;
    request.at("nvrtc").get_to(file.path);
    auto nvrtc = Nvrtc::load(file);
    if (!nvrtc) return to_json(nvrtc.takeError());
    auto binary = trigen::compile(*candidate, **nvrtc, nullptr,
                                  request.at("ptx_only") ? Code::kPtx : Code::kCubinAndPtx);
    return binary ? json{{"binary", to_json(*binary)}} : to_json(binary.takeError());
  }

  // The parent's clock runs while the device is waited for.
  LocalBench::Watch watch() {
    return [this](double expected_s) { llvm::consumeError(channel_.send({{"waiting_s", expected_s}})); };
  }

  Channel channel_;
  const Device* device_ = nullptr;
  std::map<int, Slot> slots_;
};

// A device that hangs holds the main thread: another one sees the parent's end of the socket close. Without one the
// parent's thread that started this process ends it (PR_SET_PDEATHSIG).
void end_with(int socket) {
  std::thread watch = start_thread([socket] {
    pollfd closed{socket, POLLRDHUP, 0};
    while (::poll(&closed, 1, -1) < 0 || (closed.revents & (POLLRDHUP | POLLHUP | POLLERR)) == 0) {
    }
    ::_exit(0);
  });
  if (watch.joinable()) watch.detach();
}

}  // namespace

int serve(int parent) {
  struct stat input {};
  if (::fstat(STDIN_FILENO, &input) != 0 || !S_ISSOCK(input.st_mode)) {
    std::fputs("trigen: error: a worker is started by `trigen tune`, which speaks to it\n", stderr);
    return 2;
  }
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) return 0;  // it ended before the line above
  ::dup2(STDERR_FILENO, STDOUT_FILENO);
  end_with(STDIN_FILENO);
  const Channel channel(STDIN_FILENO);
  Server server(channel);
  for (;;) {
    auto request = channel.receive(-1);
    if (!request) {
      llvm::consumeError(request.takeError());
      break;
    }
    if (!*request) continue;
    json answer = server.answer(**request);
    answer["done"] = true;
    if (auto error = channel.send(answer)) {
      llvm::consumeError(std::move(error));
      break;
    }
  }
  ::_exit(0);  // a broken device's driver may hang in its destructors
}

}  // namespace trigen::worker
