// grad_weight by tiles of 128 t by 128 or 256 s, of 16-bit or f32 operands (templates/persistent/grad_weight.h):
// the host side of every family that takes it as its own.
#pragma once

#include <optional>
#include <vector>

#include "generator/families/persistent_family.h"
#include "llvm/ADT/ArrayRef.h"

namespace trigen {

class TiledWeight final : public PersistentKernel {
 public:
  // Tiles worth a try; clusters are of their sizes or of one block. Of 64 x 64 in a block alone: whole batches in a
  // panel by both warpgroups, or a slice by one. The first is for any sizes.
  struct Tile {
    int tile_m, tile_n, stages, cluster;
    bool stacks = false;
    bool turns = false;  // of 128 x 128: warpgroups take turns
  };
  explicit TiledWeight(llvm::ArrayRef<Tile> tiles) : tiles_(tiles) {}

  std::vector<ConfigKey> keys(const Problem& problem, const Config& config) const override;
  int stage_bytes(const Problem& problem, const Config& config) const override;
  bool fits(const Problem& problem, const Config& config) const override;
  int64_t shared_bytes(const Problem& problem, const Config& config) const override;
  int threads(const Problem& problem, const Config& config) const override;
  uint32_t grid(const Problem& problem, const Target& target, const Config& config) const override;
  std::vector<Config> space(const Problem& problem, const Target& target) const override;
  std::optional<Config> any_size(const Problem& problem) const override;
  void add_launches(const Problem& problem, const Target& target, const Config& config, Launch product,
                    LaunchPlan& plan) const override;
  Work work(const Problem& problem, const Target& target, const Config& config) const override;

 private:
  // A tile's configs worth a try.
  void put_tile(const Problem& problem, const Target& target, const Tile& tile, Access activations, int box,
                std::vector<Config>& out) const;

  llvm::ArrayRef<Tile> tiles_;
};

}  // namespace trigen
