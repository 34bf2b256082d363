#include "generator/families/families.h"
#include "generator/families/tile_family.h"
#include "llvm/ADT/STLExtras.h"

namespace trigen {
namespace {

class MmaSm80 final : public TileFamily {
 public:
  llvm::StringRef name() const override { return "mma_sm80"; }
  llvm::StringRef template_file() const override { return "mma_sm80.cuh"; }
  bool serves(const Target& target) const override { return target.cp_async; }

 protected:
  std::optional<std::string> reject_math(const Problem& p, const Target&) const override {
    if (p.dtype == DType::kF32 && p.math != Math::kTF32)
      return "mma_sm80 multiplies f32 as tf32 only, math=" + to_string(p.math).str() +
             " asks for f32; try math=tf32 or family simt";
    return std::nullopt;
  }
  schedule::Footprint footprint(const Shape& shape, const Config& config) const override {
    return schedule::mma_footprint(shape, config);
  }
  bool asynchronous() const override { return true; }
  int fragment_registers(const Problem&, const Config& c) const override {
    return (c.tile_m / c.warps_m + c.tile_n / c.warps_n) / 2;
  }
  // tf32 is read word by word and rounded in registers; grad_weight of bdt keeps rows of both operands in
  // flight.
  int address_registers(const Problem& p, const Config& c) const override {
    if (p.dtype == DType::kF32) return 68;
    const int copies = (c.tile_m + c.tile_n) * c.tile_k / 8 / (32 * c.warps_m * c.warps_n);
    return makes_weights(p.op) && p.layout == Layout::kBDT && copies > 12 ? 64 : 48;
  }
  int rows_of_warp() const override { return 16; }
  int columns_of_warp() const override { return 16; }
  int depth_unit(const Problem& p) const override { return p.dtype == DType::kF32 ? 16 : 32; }
  std::vector<TileChoice> tiles(const Problem& p, const Target&) const override {
    const int unit = depth_unit(p);
    std::vector<TileChoice> out = of_depths({unit, 2 * unit}, {{128, 256, 0, 2, 4, 1},
                                                               {256, 128, 0, 4, 2, 1},
                                                               {128, 128, 0, 2, 2, 1},
                                                               {128, 128, 0, 2, 4, 1},
                                                               {128, 64, 0, 2, 2, 2},
                                                               {128, 64, 0, 4, 2, 2},
                                                               {64, 128, 0, 2, 2, 2},
                                                               {64, 128, 0, 2, 4, 2},
                                                               {64, 256, 0, 1, 4, 1},
                                                               {64, 256, 0, 2, 4, 1},
                                                               {256, 64, 0, 4, 1, 1},
                                                               {256, 64, 0, 4, 2, 1},
                                                               {64, 64, 0, 2, 2, 4}});
    // Short contexts: rows that a taller tile leaves empty are other blocks' loads in flight.
    if (p.T <= 32 && !makes_weights(p.op))
      llvm::append_range(
          out,
          of_depths({unit, 2 * unit}, {{32, 128, 0, 1, 4, 4}, {32, 256, 0, 1, 4, 2}, {32, 64, 0, 1, 2, 8}}));
    return out;
  }
  std::vector<int> stages(const Problem&) const override { return {2, 3, 4, 5}; }
  TileChoice generic_tile(const Problem& p) const override { return {64, 64, depth_unit(p), 2, 2, 2}; }
};

}  // namespace

const Family& mma_sm80_family() {
  static const MmaSm80 family;
  return family;
}

}  // namespace trigen
