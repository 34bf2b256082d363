// Tables of a tune's work and results, for people.
#pragma once

#include <string>
#include <vector>

#include "tuner/tune.h"

namespace trigen::cli {

std::string percent_or_dash(double share);

// "measured", "measured before, interrupted".
std::string provenance_text(const TuneReport& report);

// The number of choices that ran on the emulated device, and the error nearest to its limit. "" where none did.
std::string emulated_checks(const std::vector<TuneReport>& reports);

// A row a problem: the choice, its time, and dense's.
void print_choices(const std::vector<TuneReport>& reports);

// A row for every candidate that was tried, and why the search ended.
void print_candidates(const TuneReport& report);

// A row a search. "" where nothing was searched: measurements that were kept.
std::string search_table(const std::vector<TuneReport>& reports, int columns);

}  // namespace trigen::cli
