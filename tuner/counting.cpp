#include "tuner/counting.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "generator/error.h"

namespace trigen {
namespace {

using nlohmann::json;

BlockCounts read(const json& counters, double blocks) {
  const auto number = [&](const char* key) { return counters.value(key, 0.0); };
  const json& classes = counters["instructions"];
  BlockCounts out;
  out.instructions = classes.value("total", 0.0) - classes.value("move", 0.0);
  out.float_instructions = classes.value("float", 0.0);
  out.matrix_operations = number("matrix_operations");
  out.matrix_flops = number("matrix_flops");
  out.load_sectors = number("global_load_sectors");
  out.store_sectors = number("global_store_sectors");
  out.bulk_bytes = number("bulk_bytes");
  out.shared_wavefronts = number("shared_load_wavefronts") + number("shared_store_wavefronts");
  out.shared_conflicts = number("shared_load_conflicts") + number("shared_store_conflicts");
  out.local_bytes = number("local_bytes");
  out.barrier_waits = number("barrier_waits");
  for (const auto field : kBlockCounts) out.*field /= blocks;
  return out;
}

}  // namespace

llvm::Expected<std::unique_ptr<Counter>> Counter::open(const Target& target) {
  auto device = Device::open("emulated:" + target.name.str());
  if (!device) return device.takeError();
  auto emulated = EmulatedDevice::of(**device);
  if (!emulated) return emulated.takeError();
  return std::unique_ptr<Counter>(new Counter(**device, *emulated));
}

llvm::Expected<BlockCounts> Counter::run(const Candidate& candidate, const Binary& binary,
                                         const Sample& sample) {
  Candidate small = candidate;
  small.problem.B = sample.batch;
  auto& bench = benches_[to_string(small.problem)];
  if (bench == nullptr) {
    auto made = Workbench::create(device_, small.problem);
    if (!made) return made.takeError();
    bench = std::move(*made);
  }
  auto plan = Plan::of(small, binary, device_, LoadFrom::kPtx);
  if (!plan) return plan.takeError();
  auto args = bench->args(0, (*plan)->workspace_bytes());
  if (!args) return args.takeError();
  if (args->workspace_size > 0) {
    // a reduction reads what the blocks that do not run would have written
    const ContextScope scope(device_.api(), bench->context());
    if (auto error = device_.driver().check(
            device_.api().cuMemsetD8Async(std::bit_cast<cuda::CUdeviceptr>(args->workspace), 0,
                                          args->workspace_size, bench->stream()),
            "cuMemsetD8Async"))
      return error;
  }
  emulated_.reset_counters();
  emulated_.select_clusters({sample.cluster});
  llvm::Error error = (*plan)->run(*args, bench->stream());
  if (!error) error = bench->synchronize();
  emulated_.select_clusters({});
  if (error) {
    emulated_.clear_reports();
    return error;
  }
  const json all = json::parse(emulated_.counters().c_str(), nullptr, false);
  const Launch& launch = product_launch((*plan)->executable().launch_plan(), small.problem.op);
  if (!all.is_object() || !all.contains("kernels") || !all["kernels"].contains(launch.entry))
    return make_error(ErrorKind::kDevice, device_.driver().path() + " did not count " + launch.entry +
                                              "; use the emulated device of this release");
  return read(all["kernels"][launch.entry], launch.cluster);
}

llvm::Expected<std::optional<Counts>> Counter::count(const Candidate& candidate, const Binary& binary) {
  const std::vector<Sample> samples =
      candidate.generic ? std::vector<Sample>{}
                        : candidate.family->samples(candidate.problem, *candidate.target, candidate.config);
  if (samples.empty()) return std::nullopt;
  Problem small = candidate.problem;
  small.B = std::max(samples.front().batch, samples.back().batch);
  int64_t bytes = 0;
  for (const Tensor& t : tensors_of(small, 0, std::nullopt).tensors) bytes += t.buffer_bytes();
  if (bytes > kMostBytes) return std::nullopt;
  std::vector<BlockCounts> counted;
  for (const Sample& sample : samples) {
    auto one = run(candidate, binary, sample);
    if (!one) return one.takeError();
    counted.push_back(*one);
  }
  return solve(samples, counted);
}

}  // namespace trigen
