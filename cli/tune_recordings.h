// A tune's recordings: a folder with a file for each problem that was measured (tuner/recording.h).
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "generator/problem.h"
#include "tuner/tune.h"

namespace trigen::cli {

class TuneRecordings {
 public:
  void add_to(CLI::App& app);
  // The share of candidates to time instead of a search's, where --sample asks for one.
  std::optional<SampleOptions> sample() const;
  // What a recording of this problem of the list is for: "fit", "check".
  std::vector<std::string> roles(const std::vector<Problem>& list) const;
  // As soon as a problem is measured; nothing without --record, or where an earlier measurement was kept.
  llvm::Error write(const TuneReport& report, const std::string& role) const;

 private:
  std::string folder_, role_ = "fit";
  size_t sample_ = 0;
};

}  // namespace trigen::cli
