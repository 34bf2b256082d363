#include "generator/families/families.h"
#include "generator/families/tile_family.h"

namespace trigen {
namespace {

class MmaSm75 final : public TileFamily {
 public:
  llvm::StringRef name() const override { return "mma_sm75"; }
  llvm::StringRef template_file() const override { return "mma_sm75.cuh"; }
  // From sm_80 on, mma_sm80 does the same with twice the depth and cp.async.
  bool serves(const Target& target) const override { return target.compute_capability == 75; }

 protected:
  std::optional<std::string> reject_math(const Problem& p, const Target&) const override {
    if (p.dtype != DType::kF16)
      return "mma_sm75 multiplies f16 only, found dtype=" + to_string(p.dtype).str() + "; try family simt";
    return std::nullopt;
  }
  schedule::Footprint footprint(const Shape& shape, const Config& config) const override {
    return schedule::mma_footprint(shape, config);
  }
  int fragment_registers(const Problem&, const Config& c) const override {
    return (c.tile_m / c.warps_m + c.tile_n / c.warps_n) / 2;
  }
  // The staged loop does, of whole vectors.
  bool skips(const Problem& p, const Config& c) const override {
    return !makes_weights(p.op) && p.K == 1 && p.pad == 0 && c.vec_a > 1 && c.vec_b > 1;
  }
  int rows_of_warp() const override { return 16; }
  int columns_of_warp() const override { return 16; }
  int depth_unit(const Problem&) const override { return 32; }
  std::vector<TileChoice> tiles(const Problem&, const Target&) const override { return staged_tiles(); }
  std::vector<int> stages(const Problem&) const override { return {2}; }
  TileChoice generic_tile(const Problem&) const override { return {64, 64, 32, 2, 2, 2}; }
};

}  // namespace

const Family& mma_sm75_family() {
  static const MmaSm75 family;
  return family;
}

}  // namespace trigen
