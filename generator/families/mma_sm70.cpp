#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "templates/padded.h"
#include "templates/rounded_epilogue.h"

namespace trigen {
namespace {

class MmaSm70 final : public TileFamily {
 public:
  llvm::StringRef name() const override { return "mma_sm70"; }
  llvm::StringRef template_file() const override { return "mma_sm70.cuh"; }
  // Later architectures have lost the instruction: their compilers turn it into shuffles and ordinary
  // multiply-adds.
  bool serves(const Target& target) const override { return target.compute_capability == 70; }

 protected:
  std::optional<std::string> reject_math(const Problem& p, const Target&) const override {
    if (p.dtype != DType::kF16)
      return "mma_sm70 multiplies f16 only, found dtype=" + to_string(p.dtype).str() + "; try family simt";
    return std::nullopt;
  }
  schedule::Footprint footprint(const Shape& shape, const Config& config) const override {
    return padded::footprint(shape, config);
  }
  int fragment_registers(const Problem&, const Config& c) const override {
    return (c.tile_m / c.warps_m + c.tile_n / c.warps_n) / 4;
  }
  // The staged main loop keeps fewer than the loop of taps.
  int address_registers(const Problem& p, const Config&) const override {
    return p.K > 1 || p.pad != 0 ? 48 : 30;
  }
  // The staged loop does, of whole vectors.
  bool skips(const Problem& p, const Config& c) const override {
    return !makes_weights(p.op) && p.K == 1 && p.pad == 0 && c.vec_a > 1 && c.vec_b > 1;
  }
  // The staged loop's tiles do.
  bool rounds(const Problem& p, const Config& c) const override {
    const Shape shape = kernel_shape(p);
    return skips(p, c) && rounded_tile::serves(shape, c, footprint(shape, c).total);
  }
  std::vector<int> rasters() const override { return {0, 8, 16, 32}; }
  int rows_of_warp() const override { return 16; }
  int columns_of_warp() const override { return 16; }
  int depth_unit(const Problem&) const override { return 16; }
  std::vector<TileChoice> tiles(const Problem& p, const Target&) const override {
    std::vector<TileChoice> out = staged_tiles();
    // 64x64 a warp: the least reads of shared memory for a product. The registers allow no deeper tile, and none
    // for taps, whose loop keeps more of them.
    if (p.K == 1 && p.pad == 0)
      for (TileChoice t :
           {TileChoice{128, 128, 32, 2, 2, 2}, {128, 256, 32, 2, 4, 1}, {256, 128, 32, 4, 2, 1}})
        out.push_back(t);
    return out;
  }
  std::vector<int> stages(const Problem&) const override { return {2}; }
  TileChoice generic_tile(const Problem&) const override { return {64, 64, 32, 2, 2, 2}; }
};

}  // namespace

const Family& mma_sm70_family() {
  static const MmaSm70 family;
  return family;
}

}  // namespace trigen
