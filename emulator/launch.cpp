#include "emulator/launch.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <memory>
#include <thread>

namespace trigen::emulator {
namespace {

constexpr uint64_t kQuantum =
    4000000;                      // warp instructions before another cluster gets a turn on this host thread
constexpr size_t kResident = 64;  // clusters that a host thread keeps begun at most

std::unique_ptr<Cluster> make_cluster(LaunchContext& launch, uint64_t number) {
  auto cluster = std::make_unique<Cluster>();
  cluster->launch = &launch;
  cluster->number = number;
  const uint32_t* size = launch.cluster;
  const uint32_t count[3] = {launch.grid[0] / size[0], launch.grid[1] / size[1], launch.grid[2] / size[2]};
  cluster->id[0] = static_cast<uint32_t>(number % count[0]);
  cluster->id[1] = static_cast<uint32_t>(number / count[0] % count[1]);
  cluster->id[2] = static_cast<uint32_t>(number / (static_cast<uint64_t>(count[0]) * count[1]));
  cluster->random_state =
      (launch.options->seed * 0x9e3779b97f4a7c15ull) ^ (number + 1) * 0xbf58476d1ce4e5b9ull;
  if (cluster->random_state == 0) cluster->random_state = 1;
  const uint32_t blocks = size[0] * size[1] * size[2];
  const uint32_t warps = (launch.threads[0] * launch.threads[1] * launch.threads[2] + 31) / 32;
  cluster->clocks.resize(blocks * warps, blocks > 1);
  cluster->check_global = launch.options->check_races && !launch.program->orders_threads;
  cluster->cluster_arrived.assign(static_cast<size_t>(blocks) * warps, 0);
  for (uint32_t rank = 0; rank < blocks; ++rank) {
    Block& block = cluster->blocks.emplace_back();
    block.cluster = cluster.get();
    block.launch = &launch;
    block.rank = rank;
    block.id[0] = cluster->id[0] * size[0] + rank % size[0];
    block.id[1] = cluster->id[1] * size[1] + rank / size[0] % size[1];
    block.id[2] = cluster->id[2] * size[2] + rank / (size[0] * size[1]);
    start_block(block);
  }
  return cluster;
}

}  // namespace

Fault run_grid(LaunchContext& launch, Counters* counters) {
  const uint64_t clusters = static_cast<uint64_t>(launch.grid[0]) * launch.grid[1] * launch.grid[2] /
                            (launch.cluster[0] * launch.cluster[1] * launch.cluster[2]);
  std::atomic<uint64_t> next{0};
  std::atomic<bool> stop{false};
  std::mutex mutex;
  Fault fault = Fault::kCount;
  std::exception_ptr thrown;
  auto run_clusters = [&] {
    std::deque<std::unique_ptr<Cluster>> begun;
    // One that used up its turn and waits for nobody: it gets most of the turns, so that of many that never end one
    // soon reaches the limit of steps.
    std::unique_ptr<Cluster> longest;
    Counters mine;
    for (uint64_t turn = 0; !stop.load(std::memory_order_relaxed); ++turn) {
      std::unique_ptr<Cluster> cluster;
      if (longest != nullptr && turn % 4 != 0) {
        cluster = std::move(longest);
      } else if (const uint64_t number = begun.size() < kResident ? next.fetch_add(1) : clusters;
                 number < clusters) {
        cluster = make_cluster(launch, number);
      } else if (!begun.empty()) {
        cluster = std::move(begun.front());
        begun.pop_front();
      } else if (longest != nullptr) {
        cluster = std::move(longest);
      } else {
        break;
      }
      try {
        const ClusterState state = cluster->run(kQuantum);
        if (state == ClusterState::kEnded)
          mine.add(cluster->counters);
        else if (state == ClusterState::kGoesOn && longest == nullptr)
          longest = std::move(cluster);
        else
          begun.push_back(std::move(cluster));
      } catch (const LaunchAbort& abort) {
        std::lock_guard<std::mutex> lock(mutex);
        if (fault == Fault::kCount) fault = abort.fault;
        stop = true;
      }
    }
    std::lock_guard<std::mutex> lock(mutex);
    counters->add(mine);
  };
  auto work = [&] {
    try {
      run_clusters();
    } catch (...) {  // no memory, say: the caller's thread passes it on
      std::lock_guard<std::mutex> lock(mutex);
      thrown = std::current_exception();
      stop = true;
    }
  };
  uint64_t threads = launch.options->threads > 0 ? static_cast<uint64_t>(launch.options->threads)
                                                 : std::max(1u, std::thread::hardware_concurrency());
  threads = std::min(threads, std::max<uint64_t>(clusters, 1));
  std::vector<std::thread> others;
  try {
    others.reserve(threads - 1);
    while (others.size() + 1 < threads) others.emplace_back(work);
  } catch (const std::exception&) {  // those that could be made do it all
  }
  work();
  for (std::thread& thread : others) thread.join();
  if (thrown != nullptr) std::rethrow_exception(thrown);
  return fault;
}

}  // namespace trigen::emulator
