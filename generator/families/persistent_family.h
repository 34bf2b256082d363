// Common parts of the families of persistent blocks on Hopper (templates/persistent/): grids, sections of
// columns, and the values that a config's keys may have. A family adds the problems it makes and, for forward and
// grad_input and for grad_weight, a kernel: its keys, its tiles, its launches and its work.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "generator/family.h"

namespace trigen {

inline bool is_weight(const Problem& p) { return makes_weights(p.op); }

// One way of a family to make a product; some make every op by the same.
class PersistentKernel {
 public:
  virtual ~PersistentKernel() = default;
  // Values that each key may have, in the order of the refusals; they may depend on the keys before it.
  virtual std::vector<ConfigKey> keys(const Problem& problem, const Config& config) const = 0;
  // A block's shared memory: bytes of a stage, whether stages and the staged output fit, and bytes in all.
  virtual int stage_bytes(const Problem& problem, const Config& config) const = 0;
  virtual bool fits(const Problem& problem, const Config& config) const = 0;
  virtual int64_t shared_bytes(const Problem& problem, const Config& config) const = 0;
  // Threads of the product.
  virtual int threads(const Problem& problem, const Config& config) const = 0;
  // Column tiles of one head in units of a cluster, of forward and grad_input.
  virtual int column_units(const Problem&, const Config&) const { return 0; }
  // Configs worth a try, for problems that the family makes. Illegal ones and repetitions are dropped.
  virtual std::vector<Config> space(const Problem& problem, const Target& target) const = 0;
  // For any sizes; split_k and raster are the family's. nullopt: there is none.
  virtual std::optional<Config> any_size(const Problem& problem) const = 0;
  // The launches of a plan, `product` among them with its maps; but those that copy activations.
  virtual void add_launches(const Problem& problem, const Target& target, const Config& config,
                            Launch product, LaunchPlan& plan) const = 0;
  virtual Work work(const Problem& problem, const Target& target, const Config& config) const = 0;

  // Grid size: one block per SM, fewer if there is less work; with cluster split-K one block per slice.
  virtual uint32_t grid(const Problem& problem, const Target& target, const Config& config) const;

 protected:
  // `config` with every raster worth a try: one section, `round` numbers of columns, sections that fill 1
  // to `rounds` whole rounds of the machine, and, `by_columns`, columns one by one where they have two row tiles
  // (three and four lost: docs/experiments/wgmma_sm90.md).
  std::vector<Config> with_sections(const Problem& problem, const Target& target, Config config,
                                    std::initializer_list<int> round, int rounds,
                                    bool by_columns = false) const;
  static int row_tiles(const Problem& problem, const Config& config);

  // `config` with its open keys set wherever `keys` leaves no choice.
  Config completed(const Problem& problem, Config config) const;

  // Keys that mean the same in all of these kernels.
  static ConfigKey blocks_key();
  // Widths that a problem and the paths of its operands leave no choice of.
  static ConfigKey vector_key(int Config::*width, int vector);
  // vec_a of the launch that packs W (templates/pack.h), at most most_read().
  static ConfigKey read_key(const Problem& problem);
  static int most_read(const Problem& problem);
};

// Boxes of x and y worth a try (Config::box): of 64 features, and of a head's 32 (96) or 16. Where a narrower box leaves fewer
// columns empty but is no divisor of D, or leaves less than a quarter fewer, its shorter lines cost as much (H200, 2026-11-27:
// D = 80, 48, 160, 224, 480; docs/experiments/wgmma_sm90.md).
std::vector<int> boxes(const Problem& problem);
ConfigKey boxes_key();

class PersistentFamily : public Family {
 public:
  bool serves(const Target& target) const override { return target.wgmma; }
  std::vector<ConfigKey> keys(const Problem& problem, const Config& config) const final;
  std::optional<std::string> reject(const Problem& problem, const Target& target,
                                    const Config& config) const override;
  std::vector<Config> configs(const Problem& problem, const Target& target) const final;
  std::optional<Config> generic_config(const Problem& problem, const Target& target) const override;
  LaunchPlan launch_plan(const Problem& problem, const Target& target, const Config& config) const final;
  int64_t shared_bytes(const Problem& problem, const Config& config) const final;
  Work work(const Problem& problem, const Target& target, const Config& config, int sms) const final;

 protected:
  // The targets that it serves: "sm_90a".
  virtual llvm::StringRef served() const { return "sm_90a"; }
  // The reason why this family does not make the problem, whatever the config: "makes K=1 with pad=0". nullopt: it
  // does.
  virtual std::optional<std::string> refuse(const Problem& problem) const = 0;
  // Does the family take forms of W (WeightForm): strips of what stands for it (templates/strips.h), and gradients of that?
  virtual bool takes_forms() const { return false; }
  // refuse(), and products of more tiles than the kernels count.
  std::optional<std::string> refusal(const Problem& problem) const;
  // The kernel that makes an op.
  virtual const PersistentKernel& kernel(Op op) const = 0;
};

}  // namespace trigen
