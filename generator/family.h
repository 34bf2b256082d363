// A family: one kernel template, the targets it serves, its legality rules, its candidate configs and its
// launch geometry. One file per family in generator/families/, with the same stem as its template in
// templates/.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generator/config.h"
#include "generator/ops.h"
#include "generator/target.h"
#include "generator/tensor_map.h"
#include "generator/work.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

namespace trigen {

struct Params;  // templates/params.h

inline constexpr int kMostMaps = 6;  // of a launch, after Params

// Limits of a launch: thread blocks along x, and along y and z (CUDA C++ Programming Guide, "Compute Capabilities").
inline constexpr int64_t kMostBlocks = (int64_t{1} << 31) - 1, kMostBlocksAcross = 65535;

// One kernel launch of a plan.
struct Launch {
  std::string entry;  // extern "C" name in the binary: entry_name(op), or what another launch is called
  uint32_t grid[3] = {1, 1, 1};
  uint32_t block[3] = {1, 1, 1};
  uint32_t cluster = 1;
  uint32_t shared_bytes = 0;                              // dynamic shared memory
  llvm::SmallVector<TensorMapSpec, kMostMaps> maps = {};  // in the order of the kernel's parameters
  // May start before the launch ahead of it has ended, a first launch before what the stream ran ahead of the
  // plan (griddepcontrol, sm_90 and later). Every thread that touches global memory waits for that first, and
  // some thread of the launch in any case: whatever comes behind a launch takes it that those before it have
  // ended.
  bool early = false;
  // Sees x, y and what has their shape as the launch kPackActivationsEntry left them in the workspace, and
  // the workspace behind that.
  bool packed = false;
  // Reads W alone and writes the workspace alone: a run whose W and workspace are those of an earlier one goes without.
  // Those behind it are given no W then (Params::w is null), and must wait themselves before they touch other memory.
  bool prepares_w = false;
  // Threads of a block that the registers are shared out for, where they are more than `block` has: what is
  // left on an SM takes blocks of the next launch. 0: as many as `block` has.
  uint32_t register_threads = 0;
};

// Everything a plan needs to know to run a candidate once it is compiled.
struct LaunchPlan {
  // In stream order: what prepares the workspace, the op, the reduction of split_k > 1.
  std::vector<Launch> launches;
  int64_t workspace_bytes = 0;
  int64_t prepared_bytes = 0;  // of these, those that launches with prepares_w write, and no other
  std::string prepared = {};   // WeightOperand::form
};

// Parameters of launches that read the copies of activations (Launch::packed).
Params packed_params(const Problem& problem, const Params& params);

// The launch that multiplies: others may come before it (packing W) and after it (a reduction).
const Launch& product_launch(const LaunchPlan& plan, Op op);
// "trigen_forward", "trigen_grad_input" and so on.
llvm::StringRef entry_name(Op op);
// "trigen_" + the name of the template's function.
inline constexpr llvm::StringLiteral kReduceEntry = "trigen_reduce";      // after split_k > 1
inline constexpr llvm::StringLiteral kPackEntry = "trigen_pack_weights";  // W into the workspace, first
inline constexpr llvm::StringLiteral kPackActivationsEntry = "trigen_pack_activations";      // first
inline constexpr llvm::StringLiteral kUnpackActivationsEntry = "trigen_unpack_activations";  // last
inline constexpr llvm::StringLiteral kCarryEntry = "trigen_carry";  // states of parts of a scan, first
inline constexpr llvm::StringLiteral kClaimsEntry = "trigen_begin_claims";  // no stage is claimed yet, first
inline constexpr llvm::StringLiteral kSplitEntry = "trigen_split";          // operands into planes, first

class Family {
 public:
  virtual ~Family() = default;
  virtual llvm::StringRef name() const = 0;           // "mma_sm80"
  virtual llvm::StringRef template_file() const = 0;  // "mma_sm80.cuh"
  // Does the family run on this target at all?
  virtual bool serves(const Target& target) const = 0;
  // Values that each member of a config may have, in the order of the refusals: they may depend on the members before.
  // Members without a row are not the family's.
  virtual std::vector<ConfigKey> keys(const Problem& problem, const Config& config) const = 0;
  // The first legality rule that this config breaks, as text (found, allowed, next step); nullopt when it is
  // legal.
  virtual std::optional<std::string> reject(const Problem& problem, const Target& target,
                                            const Config& config) const = 0;
  // The whole search space for this problem and target, legal configs only, in a fixed order.
  virtual std::vector<Config> configs(const Problem& problem, const Target& target) const = 0;
  // The shape-generic config: legal for every shape of this op and dtypes; sizes come at run time.
  virtual std::optional<Config> generic_config(const Problem& problem, const Target& target) const = 0;
  // Geometry for the problem's sizes. `generic` kernels get the same geometry from run-time sizes.
  virtual LaunchPlan launch_plan(const Problem& problem, const Target& target,
                                 const Config& config) const = 0;
  virtual int64_t shared_bytes(const Problem& problem, const Config& config) const = 0;
  // Work of the launches, for the cost model: counted by the code that the kernels run. `sms`: of the device,
  // whose SMs share the walk of a grid that is dealt block by block; persistent grids are the target's.
  virtual Work work(const Problem& problem, const Target& target, const Config& config, int sms) const = 0;
};

llvm::ArrayRef<const Family*> families();
llvm::Expected<const Family*> find_family(llvm::StringRef name);  // error lists the known names

}  // namespace trigen
