// Timings of an SM's pipes by architecture, as published (lab/clock/sm_rates.txt names the source of each):
//
//   [sm_75 : sm_70]              begins as sm_70
//   alu  2  cycles  published  arXiv 1903.07486, table 4.1
//   name  value  unit  kind  source
//
// Rates of one sub-core (a quarter of an SM, with its own scheduler), unless said otherwise.
#pragma once

#include <string>
#include <vector>

#include "generator/target.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen {

struct SmRates {
  double tensor_products = 0;  // 16-bit multiply-adds a cycle with f32 sums, of one sub-core
  double beside = 0;           // of them, that another instruction takes which is issued while they are busy
  double tensor_latency = 12;  // cycles from an HMMA (its last step) to its result, where a barrier tells
  // Cycles from one instruction of a pipe to its next.
  double fma = 2, imad = 2, alu = 2, half = 2, uniform = 1, special = 8, branch = 2;
  double memory = 4;        // from one memory instruction to the next
  double memory_of_sm = 2;  // the same where several sub-cores ask
  double copy = 2;          // the same for a copy (cp.async), whose addresses go through the tags
  double memory_queue = 5;  // memory instructions that a sub-core holds before its warps wait
  // Cycles from the last wavefront to the result.
  double shared_latency = 19;
  double l2_latency = 193;   // of a single load that the L2 serves
  double l2_bytes = 1562;    // that the L2 gives all SMs together a cycle
  double loaded = 3;         // times as long where all SMs load their tiles, some of them from memory
  double read_latency = 10;  // until the operands of a memory instruction were read
  double special_latency = 18;
  double barrier = 20;  // from the last warp's arrival
  double taken = 8;     // more than its stall count, of the branch back
  bool operator==(const SmRates&) const = default;
};

struct SmRate {
  std::string arch, name, unit, kind, source;
  double value = 0;
};

struct SmRatesTable {
  std::vector<std::pair<std::string, SmRates>> archs;
  std::vector<SmRate> all;
  // Errors: bad request, with the line.
  static llvm::Expected<SmRatesTable> parse(llvm::StringRef text);
};

// Rates of a target's GPU if the table has a section of that name, else of its architecture ("sm_90a" as "sm_90"). Null
// where it has neither.
const SmRates* sm_rates_of(const Target& target);

struct SmRatesFile {
  llvm::StringLiteral name;
  llvm::StringLiteral text;
};
llvm::ArrayRef<SmRatesFile> sm_rates_files();  // embedded

}  // namespace trigen
