// Rates of a device: the numbers of the cost model (docs/cost-model.md) that no data sheet of the
// target gives (generator/target.h). They are data, one text table for each device in generator/rates/,
// embedded:
//
//   # comment
//   [loop ring]                 a section: [device], [dense], [loop NAME], [pass NAME], or [loop NAME : OTHER],
//                               which begins as OTHER
//   latency  1  us  fitted  tests/data/samples/h200_forward.zst: role fit
//   name  value  unit  kind  source
//
// A value that a fit began elsewhere is FIRST>VALUE: the next fit is held to the first one (lab/model_fit.h).
// The kind is `datasheet` (the source is a document), `fitted` (to the recordings named, by lab/model_fit.h) or
// `assumed` (no recording moves it; the source says why that much). A family names
// sections in its Work (generator/work.h), so a new one brings its rates as lines here.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "generator/target.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

// [device]
struct DeviceRates {
  double launch = 0;        // seconds: an empty kernel in a graph
  double feed = 0;          // bytes a cycle from the L2 into one SM; of all SMs together, what the L2 carries
  double feed_alone = 0;    // the same, where few SMs ask: what one takes in
  double shared_bytes = 0;  // bytes a cycle of one SM's shared memory
  double local_bytes = 0;   // bytes a cycle of one SM's L1, for spills
  double issues = 0;        // instructions of warps a cycle and SM
  double access_lanes = 0;  // lanes a cycle and SM of loads and stores
  double lanes = 0;         // of arithmetic
  double sector_writes = 0;  // a cycle and SM, of Work::sector_writes
  double tensor_cap = 0;     // 16-bit multiply-adds a cycle and SM that mma.sync reaches at most
  bool operator==(const DeviceRates&) const = default;
};

// [loop NAME]. Times that are 0 and factors that are 1 are what the loop does not have.
struct LoopRates {
  // Share of the unit's rate (generator/target.h) that the main loop reaches: with all SMs at work, and at most
  // where few divide the power among themselves.
  double tensor_share = 1, tensor_most = 1, tf32_share = 1, tf32_most = 1;
  double f32_products = 1;  // times as long, where weights are rounded on their way
  double f32_feed = 1;  // of the bytes of a 16-bit operand, what one of f32 costs that blocks read together
  double split_lines = 1;  // of the bytes of a piece within a line of the L2, what one across two lines costs
  double shift = 1;        // times as long, where threads shift an operand for taps
  double alone = 1;        // times as long, where one warpgroup multiplies alone
  double reads = 0;        // times the time that the operands' reads take of the tensor core
  double spills = 1, spilled_bytes = 0;  // times as long: spills + bytes / spilled_bytes
  double latency = 0;                    // seconds of a load under load
  double step = 0;                       // seconds of each step beside its parts
  double transpose = 0;                  // seconds to transpose a block of the input, and again to load it
  double tile = 0;  // seconds of an output tile of 128 x 256, half to a warpgroup: drain, conversion, stores
  double block_start = 0;                              // seconds of an output tile of any size
  double gelu = 0, silu = 0, exchange = 0, waits = 0;  // of a tile's time, more for each of these
  double sent = 0;           // of a tile's time, more where another block of the cluster sends sums of it
  double mirrored = 0;       // of a tile's time, more where its transpose is written, too;
                             // of interleaved loops accesses for each of its elements
  double exchange_wait = 0;  // seconds of a tile, of any size, for each tensor that passes beside it
  double chained = 0;        // seconds of each load that a thread does one after the other beside the steps
  double start = 0;          // seconds of first loads and last stores, which nothing overlaps
  double doubt = 1;          // times all of that, where the loop was never fitted
  double cluster = 0;        // seconds: clusters meet before their first load and at their end
  // The memory: its share of the data sheet's rate; of the L2, what a panel may fill; of that, what misses
  // nothing; the time of a byte from the L2 instead.
  double memory_share = 1, usable_l2 = 1, l2_floor = 1, l2_hit = 0;
  double drift = 0;        // share of Work::common_bytes that misses, where the L2 does not hold the product
  double enough_sms = 0;   // share of the SMs that keeps the memory busy
  double idle_tail = 0;    // of the memory's time, what the last wave leaves unused
  double instruction = 1;  // times an instruction's own slot
  // Interleaved loops, in cycles.
  double copy_latency = 0,
         staged_latency = 0;  // of a step's loads, first request to last byte: cp.async; registers
  double two_stages =
      1;  // times a step of 16-bit copies takes with one stage in flight: they begin behind its barrier
  double singles = 0, singles_at_once = 1;  // a round of single elements through registers; elements of one
  double sync = 0, block = 0;               // a barrier; start of a block and its first loads
  double overlap = 0;                       // of the shorter parts of a step, what adds to the longest
  double spill = 0;                         // of a step, for any spill
  double access = 0;                        // instructions: address, predicate, access, shared store
  double narrow = 1;                        // an asynchronous copy of 4 or 8 bytes a lane, over one of 16
  double cut = 0;                           // of a vector that is cut out of two, its row's tap decoded
  double conversion = 0;                    // instructions of one converted element
  double spread = 0;                        // of one element of several taps, stored alone
  double activation = 0;                    // instructions of one element's GELU; SiLU takes half
  double exchange_access = 0;               // each access of a thread to a tensor beside the output
  bool operator==(const LoopRates&) const = default;
};

// [pass NAME]
struct PassRates {
  double start = 0;         // seconds of each launch
  double part = 0;          // seconds of each part that a thread adds after another
  double bytes_per_s = 0;   // through the L2; 0: as the next two say
  double l2_share = 0;      // of the L2's rate, for bytes that fit there
  double fits = 0;          // the share of the L2 that these may fill
  double memory_share = 1;  // of the memory's rate, for the others
  bool operator==(const PassRates&) const = default;
};

// [dense]: the product of a library on a masked weight (generator/cost/dense.h).
struct DenseRates {
  double start = 0;              // seconds: launch, first loads, last stores
  double tensor_share = 1;       // of the target's 16-bit rate, in the main loop
  double tf32_share = 1;         // the same of TF32
  double fp32_share = 1;         // of the FP32 units
  double datasheet = 1;          // of all three, where the target's rates are a data sheet's
  double unaligned = 1;          // times as long, each halving of the bytes that rows are aligned to below 16
  double tile = 0;               // seconds of an output tile of 128 x 256 beside its steps
  double wave = 0;               // of a round of tiles, what SMs that the last one leaves idle cost
  double parts_start = 0;        // seconds, where k is cut into parts
  double parts_bytes_per_s = 1;  // of their sums, written and read
  double memory_share = 1;       // of the memory's rate
  double pass_start = 0;         // seconds of an elementwise pass beside its bytes
  bool operator==(const DenseRates&) const = default;
};

struct Rate {
  enum class Kind : int { kDatasheet, kFitted, kAssumed };
  std::string section, name;  // "loop ring", "latency"
  double value = 0;           // in the unit
  double first = 0;           // where its fit began
  std::string unit = "";
  Kind kind = Kind::kDatasheet;
  std::string source = "";
};

class Rates {
 public:
  // Errors: bad request, with the line's number.
  static llvm::Expected<Rates> parse(llvm::StringRef text);

  const DeviceRates& device() const { return device_; }
  const DenseRates& dense() const { return dense_; }
  // Sections that the table lacks are a mistake of a family, not a user's: the empty section.
  const LoopRates& loop(llvm::StringRef name) const;
  const PassRates& pass(llvm::StringRef name) const;
  bool has_loop(llvm::StringRef name) const { return loops_.count(name.str()) > 0; }
  bool has_pass(llvm::StringRef name) const { return passes_.count(name.str()) > 0; }
  // Every line, in order.
  llvm::ArrayRef<Rate> all() const { return all_; }

 private:
  DeviceRates device_;
  DenseRates dense_;
  std::map<std::string, LoopRates, std::less<>> loops_;
  std::map<std::string, PassRates, std::less<>> passes_;
  std::vector<Rate> all_;
};

struct RatesFile {
  llvm::StringLiteral name;  // "h200.txt": a model device, lower case
  llvm::StringLiteral text;
};
llvm::ArrayRef<RatesFile> rates_files();
// The table of the target's model device; where it has none, the H200's, the one device that was measured.
const Rates& rates_of(const Target& target);

}  // namespace trigen
