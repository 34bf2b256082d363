// Common parts of the families built on templates/gemm.cuh: vectors, shared memory, split-K, grids. A
// family adds the dtypes it multiplies, its fragment sizes and its list of tiles.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "generator/family.h"
#include "llvm/ADT/Twine.h"
#include "templates/schedule.h"

namespace trigen {

// The compiled-in part of a problem, and its sizes as the schedule wants them.
Shape kernel_shape(const Problem& problem);
schedule::Sizes kernel_sizes(const Problem& problem);

// The widest legal vectors, in elements: alignment, contiguity and the divisibility that keeps a vector
// inside one row.
struct Vectors {
  int a, b, c;
};
Vectors widest_vectors(const Problem& problem);
int activation_vector(const Problem& problem);          // of x, y and what has their shape
std::string activation_widths(const Problem& problem);  // why it is no wider

// Features shifted by taps or padding: 16-byte vectors are cut out of two aligned ones where features are
// contiguous.
bool cuts_vectors(const Problem& problem, int vec);
// grad_input with taps: vectors of W hold the taps of a token, which tile_k must be a multiple of.
bool spreads_taps(const Problem& problem);

// Are rows of n elements whole pieces of 16 bytes? A store of TMA writes such pieces: one that
// reaches past a row's last element overwrites what lies between rows (H200, 2026-11-21).
inline bool whole_pieces(int64_t n, DType type) { return n * element_size(type) % 16 == 0; }

// Reasons, and refusals that several families have.
inline std::string text(const llvm::Twine& t) { return t.str(); }
std::optional<std::string> reject_warps(const Config& config, int threads);  // more than 16
std::optional<std::string> reject_cluster(const Target& target, const Config& config);
std::optional<std::string> reject_blocks(const Target& target, const Config& config,
                                         int threads);  // of an SM

class TileFamily : public Family {
 public:
  // Block tile, warps, and the blocks of one SM that the registers are to leave room for.
  struct TileChoice {
    int tile_m, tile_n, tile_k, warps_m, warps_n, blocks;
  };

  std::vector<ConfigKey> keys(const Problem& problem, const Config& config) const override;
  std::optional<std::string> reject(const Problem& problem, const Target& target,
                                    const Config& config) const override;
  std::vector<Config> configs(const Problem& problem, const Target& target) const override;
  std::optional<Config> generic_config(const Problem& problem, const Target& target) const override;
  LaunchPlan launch_plan(const Problem& problem, const Target& target, const Config& config) const override;
  int64_t shared_bytes(const Problem& problem, const Config& config) const override;
  Work work(const Problem& problem, const Target& target, const Config& config, int sms) const override;

 protected:
  // Why this family cannot multiply these dtypes on this target.
  virtual std::optional<std::string> reject_math(const Problem& problem, const Target& target) const = 0;
  virtual schedule::Footprint footprint(const Shape& shape, const Config& config) const = 0;
  // A warp's rows and columns come in multiples of these; tile_k in multiples of the third.
  virtual int rows_of_warp() const = 0;
  virtual int columns_of_warp() const = 0;
  virtual int depth_unit(const Problem& problem) const = 0;
  // Registers of the fragments, two sets of which are alive, each for one step of the instruction.
  virtual int fragment_registers(const Problem& problem, const Config& config) const = 0;
  // Addresses, predicates, loop state: read off the compiler's reports.
  virtual int address_registers(const Problem&, const Config&) const { return 48; }
  // The unit that multiplies: tensor cores, unless a family says otherwise.
  virtual Unit unit(const Problem& problem) const;
  // Are operands copied with cp.async where their vectors allow it?
  virtual bool asynchronous() const { return false; }
  // Do warps leave out the products of steps that lie beyond their own rows' triangle?
  virtual bool skips(const Problem&, const Config&) const { return false; }
  // Do sums need only be rounded at a tile's end, and does the family do that apart?
  virtual bool rounds(const Problem&, const Config&) const { return false; }
  // Widths of forward's and grad_input's sections, in tiles; 0: as wide as the product.
  virtual std::vector<int> rasters() const { return {0, 8, 32}; }
  virtual std::vector<TileChoice> tiles(const Problem& problem, const Target& target) const = 0;
  // `tiles` of each depth, and those of families that stage operands in registers.
  static std::vector<TileChoice> of_depths(std::initializer_list<int> depths,
                                           std::initializer_list<TileChoice> tiles);
  static std::vector<TileChoice> staged_tiles();
  virtual std::vector<int> stages(const Problem& problem) const = 0;
  virtual TileChoice generic_tile(const Problem& problem) const = 0;

 private:
  int staging_registers(const Problem& problem, const Config& config) const;
  int64_t estimated_registers(const Problem& problem, const Config& config, const Step& step) const;
  Step step_of(const Problem& problem, const Config& config) const;
};

}  // namespace trigen
