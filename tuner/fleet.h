// The GPUs of a host, each with a worker process, and the list of problems that they tune together.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tuner/anchor.h"
#include "tuner/compile_pool.h"
#include "tuner/gpu_watch.h"
#include "tuner/tune.h"
#include "tuner/worker/remote_bench.h"

namespace trigen {

struct FleetOptions {
  std::vector<std::string> devices;  // as --device takes them; "all": every one of the driver
  const Target* target = nullptr;    // null: each device's own
  std::string program;               // of the workers; "": this one
  double deadline_s = 0;             // worker/process.h
  GpuWatch::Options watch;
  int compile_threads = 0;  // of the one pool; 0: the CPUs this process may use
  const std::atomic<bool>* cancel = nullptr;
};

// One GPU. Its worker alone touches it; this process knows what the worker told.
struct Station {
  std::string name;  // "cuda:0"
  std::unique_ptr<worker::Process> process;
  std::unique_ptr<const Device> device;
  const Target* target = nullptr;
  std::unique_ptr<worker::RemoteBench> bench, anchor_bench;
  std::unique_ptr<GpuWatch> watch;
};

// Devices with the same records: a problem is tuned once for them all.
bool same_kind(const Station& a, const Station& b);

class Fleet {
 public:
  // Starts a worker per device. Errors: a device that is not there, or named twice.
  static llvm::Expected<std::unique_ptr<Fleet>> open(const FleetOptions& options);
  const std::vector<Station>& stations() const { return stations_; }
  size_t kinds() const;

  // A problem for a kind of device, taken by the first of its stations that is free.
  struct Item {
    size_t problem = 0, station = 0;
  };
  struct Events {  // one call at a time
    std::function<void(const Item&)> begin;
    std::function<void(const Item&, const TuneProgress&)> show;
    // The device takes no more problems, this one goes to another.
    std::function<void(const Item&, llvm::Error)> lost;
    // False: no further problem is begun.
    std::function<bool(const Item&, llvm::Expected<TuneReport>)> finish;
  };
  // Tunes every problem for every kind; returns when all are done, or after the cancel. A station whose device
  // is lost, busy or too hot stops, and its problem goes to another one of its kind; after the last one the
  // kind's other problems are not begun.
  void run(const std::vector<Problem>& problems, Store& store, const TuneOptions& options,
           const Events& events);

 private:
  struct Kind;
  struct Work;
  Fleet() = default;
  void serve(size_t station, Work& work);
  bool lost(const Station& station) const;
  void compile_ahead(size_t station, Work& work, const Problem& next);

  FleetOptions options_;
  std::vector<Station> stations_;
  std::unique_ptr<CompilePool> pool_;
};

}  // namespace trigen
