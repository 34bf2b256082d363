#include "templates/grad_epilogue.h"

#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "llvm/ADT/Twine.h"

namespace trigen {
namespace {

namespace geometry = grad_epilogue;

class GradEpilogue final : public Family {
 public:
  llvm::StringRef name() const override { return "grad_epilogue"; }
  llvm::StringRef template_file() const override { return "grad_epilogue.cuh"; }
  bool serves(const Target&) const override { return true; }
  int64_t shared_bytes(const Problem&, const Config&) const override { return 0; }

  std::vector<ConfigKey> keys(const Problem& p, const Config& c) const override {
    return {{&Config::tile_m, {1}},
            {&Config::tile_n, {geometry::threads(c)}, "a round has a vector of every thread"},
            {&Config::tile_k, {1}},
            {&Config::warps_m, {1}},
            powers_key(&Config::warps_n, 16),
            {&Config::stages, {1, 2, 4}},
            {&Config::split_k, {1}},
            {&Config::vec_a, {1}},
            powers_key(&Config::vec_b, activation_vector(p), activation_widths(p)),
            {&Config::vec_c, {c.vec_b}, "a thread writes what it has read"},
            range_key(&Config::blocks, 0, 32)};
  }

  std::optional<std::string> reject(const Problem& p, const Target& target, const Config& c) const override {
    if (p.op != Op::kGradEpilogue)
      return (name() + " makes grad_epilogue only, the op is " + to_string(p.op)).str();
    if (auto why = reject_keys(name(), keys(p, c), c)) return why;
    if (blocks(p, c) > kMostBlocks) return std::string("more than 2^31 thread blocks; use a smaller batch");
    return reject_blocks(target, c, geometry::threads(c));
  }

  std::vector<Config> configs(const Problem& p, const Target& target) const override {
    std::vector<Config> out;
    if (p.op != Op::kGradEpilogue) return out;
    for (const int warps : {8, 4, 16})
      for (const int stages : {2, 4, 1})
        if (const Config c = config(p, warps, stages, activation_vector(p)); !reject(p, target, c))
          out.push_back(c);
    return out;
  }

  std::optional<Config> generic_config(const Problem& p, const Target& target) const override {
    if (p.op != Op::kGradEpilogue) return std::nullopt;
    const int vec = activation_vector(p);
    const Config c = config(p, 8, 2, vec * element_size(p.dtype) == 16 ? vec : 1);
    if (reject(p, target, c)) return std::nullopt;
    return c;
  }

  LaunchPlan launch_plan(const Problem& p, const Target& target, const Config& c) const override {
    LaunchPlan plan;
    plan.launches.push_back({.entry = entry_name(p.op).str(),
                             .grid = {static_cast<uint32_t>(blocks(p, c)), 1, 1},
                             .block = {static_cast<uint32_t>(geometry::threads(c)), 1, 1},
                             .early = target.compute_capability >= 90});
    return plan;
  }

  Work work(const Problem& p, const Target&, const Config& c, int) const override {
    // A round's loads, and its products behind them.
    Work work{
        .rates = "stream", .unit = Unit::kFp32, .steps = {Step{.loads = static_cast<double>(c.stages)}}};
    work.threads = geometry::threads(c);
    const int64_t words = std::max<int64_t>(1, c.vec_b * element_size(p.dtype) / 4);
    work.registers = 24 + (p.epilogue.gate ? 3 : 2) * c.stages * (words + 2);
    const int64_t count = blocks(p, c);
    work.runs.push_back({{1}, 1, count});
    work.grid = static_cast<double>(count);
    work.all = {{work.grid}, work.grid, count};
    work.memory_bytes = work.l2_bytes = count_work(p).min_bytes;
    const double elements = count_work(p).dense_flop / 2;
    work.instructions = elements * (p.epilogue.act == Activation::kNone ? 6 : 20);
    return work;
  }

 private:
  static int64_t blocks(const Problem& p, const Config& c) {
    return p.B * p.H * geometry::blocks(p.layout, c, kernel_sizes(p));
  }
  Config config(const Problem& p, int warps, int stages, int vec) const {
    return complete({.warps_n = warps, .stages = stages, .vec_b = vec},
                    [&](const Config& c) { return keys(p, c); });
  }
};

}  // namespace

const Family& grad_epilogue_family() {
  static const GradEpilogue family;
  return family;
}

}  // namespace trigen
