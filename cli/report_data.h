// Data of `trigen report`: the records of a base with the facts of their evidence, and the problems asked for.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "cache/bundle.h"
#include "cache/fleet.h"
#include "generator/problem.h"
#include "generator/target.h"

namespace trigen::cli {

struct ReportRow {
  Problem problem;
  std::string text;  // canonical
  cache::DeviceKind kind;
  const Target* target = nullptr;
  std::string driver, candidate;
  bool measured = false;
  double seconds = 0;
  double flop = 0, dense_flop = 0, bytes = 0;  // of the triangle; of a dense product; at least moved
  double roof_s = 0;                           // the time that no kernel beats
  double compute_s = 0, memory_s = 0;          // its two parts
  double dense_s = 0;                          // of a dense product; 0: it has none
  std::string dense_peer;                      // that was measured beside it; else dense_s is an estimate
  double error = -1, joules = 0, elapsed_s = 0;
  // The search's figures.
  size_t space = 0, tried = 0;
  std::map<std::string, size_t> passed_over;
  std::vector<std::pair<double, double>> best;  // seconds since the start, microseconds
  double expected_loss = -1;

  // Share of the chip's limit for this problem, 0 to 1.
  double share_of_roof() const { return seconds > 0 ? roof_s / seconds : 0; }
  double against_dense() const { return seconds > 0 ? dense_s / seconds : 0; }
};

struct ReportKind {
  cache::DeviceKind kind;
  std::string name;             // "NVIDIA H200 (sm_90a, 132 SMs)"
  std::vector<ReportRow> rows;  // in the order of the problems
  // Answers to the asked problems.
  std::vector<cache::FleetAnswer> answers;
  size_t count(cache::FleetAnswer answer) const;
  size_t holes() const;
};

struct ReportData {
  std::string path, digest, made_by;
  std::string made, command;  // the page: "2026-11-23 19:30 UTC on host", and what was typed
  int64_t bytes = 0;
  size_t records = 0, binaries = 0, unreadable = 0;
  std::set<std::string> compilers;
  std::vector<std::string> problems;  // asked, in order
  std::vector<ReportKind> kinds;
};

// Measured rows of dense products, as `trigen-lab tables` writes them: by problem and device, the
// ratio of their time to trigen's, and their name.
using DensePeers = std::map<std::pair<std::string, std::string>, std::pair<double, std::string>>;
llvm::Expected<DensePeers> read_dense_peers(const std::string& path);

// `asked` empty: what the bundle says it was made for.
ReportData report_data(const cache::Contents& contents, const std::vector<std::string>& asked,
                       const DensePeers& peers);

}  // namespace trigen::cli
