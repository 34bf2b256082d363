#include "generator/families/families.h"
#include "generator/families/tile_family.h"

namespace trigen {
namespace {

class Simt final : public TileFamily {
 public:
  llvm::StringRef name() const override { return "simt"; }
  llvm::StringRef template_file() const override { return "simt.cuh"; }
  bool serves(const Target&) const override { return true; }

 protected:
  std::optional<std::string> reject_math(const Problem& p, const Target&) const override {
    if (p.math == Math::kTF32)
      return "simt multiplies in f32, math=tf32 asks for tensor cores; try math=simt or family mma_sm80";
    return std::nullopt;
  }
  schedule::Footprint footprint(const Shape& shape, const Config& config) const override {
    return schedule::simt_footprint(shape, config);
  }
  Unit unit(const Problem&) const override { return Unit::kFp32; }
  int fragment_registers(const Problem&, const Config& c) const override {
    return 2 * (c.tile_m / (8 * c.warps_m) + c.tile_n / (4 * c.warps_n));
  }
  int rows_of_warp() const override { return 32; }
  int columns_of_warp() const override { return 16; }
  int depth_unit(const Problem&) const override { return 8; }
  std::vector<TileChoice> tiles(const Problem&, const Target&) const override {
    return of_depths({8, 16}, {{128, 128, 0, 2, 4, 1},
                               {128, 128, 0, 2, 4, 2},
                               {128, 128, 0, 4, 2, 2},
                               {128, 64, 0, 2, 2, 2},
                               {128, 64, 0, 2, 2, 3},
                               {64, 128, 0, 2, 2, 2},
                               {64, 128, 0, 1, 4, 3},
                               {64, 64, 0, 2, 2, 4},
                               {64, 64, 0, 1, 2, 4},
                               {64, 256, 0, 1, 8, 2},
                               {256, 64, 0, 4, 2, 2},
                               {32, 128, 0, 1, 4, 4},
                               {64, 32, 0, 2, 2, 4}});
  }
  std::vector<int> stages(const Problem&) const override { return {2}; }
  TileChoice generic_tile(const Problem&) const override { return {64, 64, 8, 2, 2, 1}; }
};

}  // namespace

const Family& simt_family() {
  static const Simt family;
  return family;
}

}  // namespace trigen
