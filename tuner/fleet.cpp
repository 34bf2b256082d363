#include "tuner/fleet.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <optional>

#include "cache/host.h"
#include "runtime/cached_corrections.h"
#include "runtime/compile.h"
#include "tuner/session.h"

namespace trigen {
namespace {

constexpr int kCandidateSlot = 0, kAnchorSlot = 1;

worker::ProcessOptions process_options(const FleetOptions& options, const std::string& device,
                                       size_t devices) {
  worker::ProcessOptions out;
  out.program = options.program;
  out.device = device;
  out.deadline_s = options.deadline_s;
  out.cancel = options.cancel;
  out.threads = std::max(1, usable_cpus() / static_cast<int>(std::max<size_t>(1, devices)));
  return out;
}

llvm::Expected<std::vector<std::string>> names_of(const FleetOptions& options) {
  if (options.devices.size() != 1 || options.devices.front() != "all") return options.devices;
  worker::Process first(process_options(options, "", 1));
  if (auto error = first.start()) return error;
  std::vector<std::string> names;
  names.reserve(static_cast<size_t>(first.devices()));
  for (int i = 0; i < first.devices(); ++i) names.push_back(std::to_string(i));
  return names;
}

}  // namespace

bool same_kind(const Station& a, const Station& b) {
  const DeviceInfo& x = a.device->info();
  const DeviceInfo& y = b.device->info();
  return a.target == b.target && x.name == y.name && x.sms == y.sms && x.driver == y.driver;
}

llvm::Expected<std::unique_ptr<Fleet>> Fleet::open(const FleetOptions& options) {
  std::unique_ptr<Fleet> fleet(new Fleet);
  fleet->options_ = options;
  auto names = names_of(options);
  if (!names) return names.takeError();
  for (const std::string& name : *names) {
    Station station;
    station.process = std::make_unique<worker::Process>(process_options(options, name, names->size()));
    if (auto error = station.process->start()) return error;
    const DeviceInfo& info = station.process->info();
    auto device = Device::describe(info);
    if (!device) return device.takeError();
    station.device = std::move(*device);
    station.name = info.spec();
    for (const Station& other : fleet->stations_)
      if (other.name == station.name && other.device->info().ordinal == info.ordinal)
        return make_error(ErrorKind::kBadRequest, "device " + station.name + " is named twice; name it once");
    station.target = options.target != nullptr ? options.target : &station.device->target();
    station.bench = std::make_unique<worker::RemoteBench>(*station.process, *station.target, kCandidateSlot);
    station.anchor_bench =
        std::make_unique<worker::RemoteBench>(*station.process, *station.target, kAnchorSlot);
    const auto own = [process = station.process.get(), bench = station.bench.get(),
                      anchor = station.anchor_bench.get()] {
      return bench->has_context() || anchor->has_context() ? process->pid() : 0;
    };
    station.watch = GpuWatch::open(info.pci, station.name + " (" + info.name + ")", own, options.watch);
    fleet->stations_.push_back(std::move(station));
  }
  fleet->pool_ = std::make_unique<CompilePool>(options.compile_threads, options.program);
  return fleet;
}

size_t Fleet::kinds() const {
  size_t kinds = 0;
  for (size_t i = 0; i < stations_.size(); ++i)
    kinds += std::none_of(stations_.begin(), stations_.begin() + static_cast<std::ptrdiff_t>(i),
                          [&](const Station& other) { return same_kind(other, stations_[i]); })
                 ? 1
                 : 0;
  return kinds;
}

// Devices of one kind and what is left for them to tune.
struct Fleet::Kind {
  std::deque<size_t> queue;
  size_t stations = 0;  // at work
};

struct Fleet::Work {
  const std::vector<Problem>& problems;
  Store& store;
  const TuneOptions& options;
  const Events& events;
  std::mutex mutex;          // of what follows, and of the events
  std::vector<Kind*> kinds;  // of each station
  std::vector<std::unique_ptr<Kind>> own;
  bool stop = false;
};

// The first candidates of the problem that this station or one of its kind takes next.
void Fleet::compile_ahead(size_t station, Work& work, const Problem& next) {
  const Station& own = stations_[station];
  CachedCorrections cached;
  if (own.device) cached = find_corrections(next, *own.target, *own.device, work.store);
  const DeviceModel model = own.device ? own.device->model() : model_of(*own.target);
  auto candidates = list_candidates(next, *own.target, work.options.family, &model, &cached.corrections);
  if (!candidates) return llvm::consumeError(candidates.takeError());  // said when its turn comes
  BuildAllOptions build_options = work.options.build;
  build_options.cancel = work.options.cancel;
  for (const size_t i : first_choices(*candidates, model, work.options.search))
    pool_->build_ahead(this, (*candidates)[i], work.store, build_options, CompilePool::Need::kNextProblem);
}

// Not this problem's fault: the worker does not come up again, or the GPU stays busy or throttled.
bool Fleet::lost(const Station& station) const {
  if (auto error = station.process->start()) {
    llvm::consumeError(std::move(error));
    return true;
  }
  return station.watch != nullptr && station.watch->refused();
}

void Fleet::serve(size_t station, Work& work) {
  Station& own = stations_[station];
  Kind& kind = *work.kinds[station];
  Anchor anchor(*own.anchor_bench, *own.target, work.store, work.options.build);
  const auto cancelled = [&] { return options_.cancel != nullptr && options_.cancel->load(); };
  for (;;) {
    Item item{0, station};
    std::optional<size_t> next;  // the problem that this station or one of its kind takes after this one
    {
      const std::lock_guard<std::mutex> lock(work.mutex);
      if (work.stop || kind.queue.empty() || cancelled()) {
        --kind.stations;
        return;
      }
      item.problem = kind.queue.front();
      kind.queue.pop_front();
      if (!kind.queue.empty()) next = kind.queue.front();
      work.events.begin(item);
    }
    if (next && !work.options.config && !work.options.sample && !own.device->info().emulated)
      compile_ahead(station, work, work.problems[*next]);
    TuneOptions options = work.options;
    options.bench = own.bench.get();
    options.pool = pool_.get();
    options.watch = own.watch.get();
    if (!own.device->info().emulated) options.anchor = &anchor;
    options.progress = [&](const TuneProgress& progress) {
      const std::lock_guard<std::mutex> lock(work.mutex);
      work.events.show(item, progress);
    };
    auto report = tune(work.problems[item.problem], *own.target, own.device.get(), work.store, options);
    const bool gone = !report && !cancelled() && lost(own);
    const std::lock_guard<std::mutex> lock(work.mutex);
    if (gone && kind.stations > 1) {  // another one of its kind does it
      kind.queue.push_front(item.problem);
      --kind.stations;
      work.events.lost(item, report.takeError());
      return;
    }
    if (gone) kind.queue.clear();  // no worker is left for the others
    if (!work.events.finish(item, std::move(report))) work.stop = true;
  }
}

void Fleet::run(const std::vector<Problem>& problems, Store& store, const TuneOptions& options,
                const Events& events) {
  Work work{problems, store, options, events, {}, {}, {}, false};
  for (size_t i = 0; i < stations_.size(); ++i) {
    size_t at = 0;
    while (!same_kind(stations_[at], stations_[i])) ++at;
    if (at == i) {
      work.own.push_back(std::make_unique<Kind>());
      work.kinds.push_back(work.own.back().get());
      for (size_t p = 0; p < problems.size(); ++p) work.kinds.back()->queue.push_back(p);
    } else {
      work.kinds.push_back(work.kinds[at]);
    }
    ++work.kinds.back()->stations;
  }
  const auto serve_one = [&](size_t i) {
    serve(i, work);
    stations_[i].process->end();  // the GPU is free; a worker started by this thread ends with it anyway
  };
  std::vector<std::thread> threads;
  threads.reserve(stations_.size());
  for (size_t i = 0; i < stations_.size(); ++i) threads.push_back(start_thread([&, i] { serve_one(i); }));
  for (size_t i = 0; i < stations_.size(); ++i)  // one after the other here, where the host makes no thread
    if (!threads[i].joinable()) serve_one(i);
  for (std::thread& thread : threads)
    if (thread.joinable()) thread.join();
  pool_->withdraw_all();  // the store may end
}

}  // namespace trigen
