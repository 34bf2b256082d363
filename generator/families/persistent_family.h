// What the families of persistent blocks on Hopper have in common (templates/persistent/): grids, sections of
// columns, splits of grad_weight and its reduction, and what a config's keys may say. A family adds the
// problems it makes, its keys, its tiles and its launches.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "generator/families/config_keys.h"
#include "generator/family.h"
#include "llvm/ADT/Twine.h"
#include "templates/persistent/shares.h"

namespace trigen {

class PersistentFamily : public Family {
 public:
  bool serves(const Target& target) const final { return target.wgmma; }
  std::optional<std::string> reject(const Problem& problem, const Target& target,
                                    const Config& config) const final;
  std::vector<Config> configs(const Problem& problem, const Target& target) const final;
  std::optional<Config> generic_config(const Problem& problem, const Target& target) const final;
  LaunchPlan launch_plan(const Problem& problem, const Target& target, const Config& config) const final;

 protected:
  // What this family does not make, whatever the config: "makes K=1 with pad=0". nullopt: it makes the
  // problem.
  virtual std::optional<std::string> refuse(const Problem& problem) const = 0;
  // What each key may say, in the order of the refusals; it may depend on what the keys before it say.
  virtual std::vector<ConfigKey> keys(const Problem& problem, const Config& config) const = 0;
  // A block's shared memory: bytes of a stage, and whether stages and what is staged of the output fit.
  virtual int stage_bytes(const Problem& problem, const Config& config) const = 0;
  virtual bool fits(const Problem& problem, const Config& config) const = 0;
  // Configs worth a try, for problems that the family makes. Illegal ones and repetitions are dropped.
  virtual std::vector<Config> space(const Problem& problem, const Target& target) const = 0;
  // For any sizes. split_k and raster are the base's.
  virtual std::optional<Config> any_size(const Problem& problem) const = 0;
  // Threads of the product, and its column tiles of one head in units of a cluster.
  virtual int threads(const Problem& problem, const Config& config) const = 0;
  virtual int column_units(const Problem& problem, const Config& config) const = 0;
  // The launches of a plan, `product` among them with its maps; but those that copy activations.
  virtual void add_launches(const Problem& problem, const Target& target, const Config& config,
                            Launch product, LaunchPlan& plan) const = 0;

  // Blocks of the product: one on every SM, fewer when there is less to do.
  uint32_t grid(const Problem& problem, const Target& target, const Config& config) const;
  // `config` with every raster worth a try: one section, `round` numbers of columns, and sections that fill 1
  // to `rounds` whole rounds of the machine.
  std::vector<Config> with_sections(const Problem& problem, const Target& target, Config config,
                                    std::initializer_list<int> round, int rounds) const;
  int row_tiles(const Problem& problem, const Config& config) const;

  // Keys that mean the same in all of these families.
  static ConfigKey blocks_key(const Config& config);
  // Widths that a problem and the paths of its operands leave no choice of.
  static ConfigKey vector_key(llvm::StringLiteral name, int found, int vector);
  // vec_a of the launch that packs W (templates/pack.h), at most most_read().
  static ConfigKey read_key(const Problem& problem, const Config& config);
  static int most_read(const Problem& problem);
};

// grad_weight by tiles of 128 t by 128 or 256 s (templates/persistent/grad_weight.h).
namespace tiled_weight {

std::vector<ConfigKey> keys(const Problem& problem, const Config& config, std::initializer_list<int> clusters,
                            int least_stages);
// dW leaves by TMA where it is aligned for that and its rows are whole pieces of 16 bytes (8), else in pairs
// or single elements.
int output_vector(const Problem& problem);
ConfigKey output_key(const Problem& problem, const Config& config);
// Every split_k worth a try.
std::vector<Config> with_splits(Config config, const persistent::Shares& shares);
// `product` and, where tiles are shared or of two widths, the launch that adds their parts.
void add_launches(const Problem& problem, const Config& config, Launch product, LaunchPlan& plan);

}  // namespace tiled_weight

}  // namespace trigen
