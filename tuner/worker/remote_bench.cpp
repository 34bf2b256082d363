#include "tuner/worker/remote_bench.h"

#include <cmath>

#include "tuner/worker/messages.h"

namespace trigen::worker {

using nlohmann::json;

llvm::Error RemoteBench::ready() {
  if (auto error = process_.start()) return error;
  if (generation_ == process_.generation()) return llvm::Error::success();
  held_.clear();
  json message = request("begin");
  message["problem"] = problem_;
  message["target"] = target_.name.str();
  message["seed"] = options_.seed;
  message["rotate"] = options_.rotate;
  auto answer = process_.call(message);
  if (!answer) return answer.takeError();
  if (auto error = error_from(*answer)) return error;
  generation_ = process_.generation();
  return llvm::Error::success();
}

llvm::Error RemoteBench::begin(const Problem& problem, const WorkbenchOptions& options) {
  const std::string text = to_string(problem);
  if (text != problem_ || options.seed != options_.seed || options.rotate != options_.rotate) generation_ = 0;
  problem_ = text;
  options_ = options;
  return ready();
}

bool RemoteBench::holds(size_t id) const {
  return process_.running() && generation_ == process_.generation() && held_.count(id) > 0;
}

void RemoteBench::drop(size_t id) {
  if (!holds(id)) return;
  held_.erase(id);
  json message = request("drop");
  message["id"] = id;
  auto answer = process_.call(message);
  if (!answer) llvm::consumeError(answer.takeError());
}

llvm::Expected<Trial> RemoteBench::trial(size_t id, const Candidate& candidate, const Binary& binary,
                                         const TrialOptions& options) {
  if (auto error = ready()) return error;
  json message = request("trial");
  message["id"] = id;
  message["candidate"] = describe(candidate);
  message["binary"] = to_json(binary);
  message["check"] = options.check;
  message["time"] = options.time;
  message["expected_s"] = options.expected_s;
  if (std::isfinite(options.check_below_s)) message["check_below_s"] = options.check_below_s;
  auto answer = process_.call(message);
  Trial trial;
  if (!answer) {
    if (process_.cancelled()) return answer.takeError();
    trial.end = Trial::End::kFailed;
    trial.note = take_error(answer.takeError()).message;
    return trial;
  }
  if (auto error = error_from(*answer)) return error;
  trial = trial_from(*answer);
  if (trial.end == Trial::End::kDone) {
    held_.insert(id);
  } else if (trial.poisoned || trial.end == Trial::End::kWrong) {
    process_.end();
    trial.poisoned = false;
  }
  return trial;
}

llvm::Expected<json> RemoteBench::ask(const json& message) {
  auto answer = process_.call(message);
  if (!answer) return answer.takeError();
  if (auto error = error_from(*answer)) {
    process_.end();
    return error;
  }
  return answer;
}

llvm::Expected<double> RemoteBench::replay(size_t id) {
  json message = request("replay");
  message["id"] = id;
  auto answer = ask(message);
  if (!answer) return answer.takeError();
  return answer->at("seconds").get<double>();
}

llvm::Expected<int64_t> RemoteBench::spin(size_t id, double seconds) {
  json message = request("spin");
  message["id"] = id;
  message["seconds"] = seconds;
  auto answer = ask(message);
  if (!answer) return answer.takeError();
  return answer->at("runs").get<int64_t>();
}

}  // namespace trigen::worker
