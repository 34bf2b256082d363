// A worker process and the way to it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "generator/error.h"
#include "runtime/device.h"
#include "tuner/worker/channel.h"

namespace trigen::worker {

struct ProcessOptions {
  std::string program;                     // a trigen; "": this one
  std::optional<std::string> device = {};  // as --device takes it; nullopt: the worker compiles alone
  int threads = 0;                         // of the reference, on the host; 0: all cores
  // Time that an answer of the device may take beyond fifty times the expected one: another user, a cold start.
  // 0: 5 s on a GPU, 60 s on the emulated device, whose time is not predictable.
  double deadline_s = 0;
  const std::atomic<bool>* cancel = nullptr;
};

class Process {
 public:
  explicit Process(ProcessOptions options) : options_(std::move(options)) {}
  ~Process() { end(); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Starts the worker and opens its device, if none is running. Errors: the device's, as Device::open has
  // them; a worker that does not start, or one before it that does not end.
  llvm::Error start();
  // Kills the worker and waits for its end; nothing when there is none.
  void end();
  bool running() const { return pid_ > 0; }
  // Grows with every start: what an older one held is gone.
  int generation() const { return generation_; }
  pid_t pid() const { return pid_; }
  const DeviceInfo& info() const { return info_; }
  int devices() const { return devices_; }  // of its driver

  // Sends a request to the running worker and waits for the answer. What ends the worker instead (no answer in
  // time, a crash, an interruption) is an error of kind device, or the cancel; running() is false then.
  // `cancel`: for the options' own; one that compiles is ended by it at once, a device's gets two seconds.
  llvm::Expected<nlohmann::json> call(const nlohmann::json& request,
                                      const std::atomic<bool>* cancel = nullptr);
  bool cancelled() const { return options_.cancel != nullptr && options_.cancel->load(); }

 private:
  llvm::Error spawn();
  std::string how_it_ended();  // after its end of the socket closed

  ProcessOptions options_;
  DeviceInfo info_;
  Channel channel_;
  pid_t pid_ = -1, stuck_ = -1;
  int generation_ = 0, devices_ = 0;
};

}  // namespace trigen::worker
