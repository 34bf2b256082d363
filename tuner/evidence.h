// The evidence of a tune in its record, as JSON text: samples, finalists, rejected candidates with their errors,
// conditions.
#pragma once

#include <string>

#include "tuner/tune.h"

namespace trigen {

// Evidence of a whole tune:
// {"complete":..,"date":..,"seconds":..,"quartiles":[..],"candidates":[{"candidate":..,"outcome":..,..}]}.
std::string evidence_of(const TuneReport& report);
// Not interrupted, for the same objective, and the choice among as many candidates at least: a tune of one config or family answers
// a narrower question.
bool is_complete(const std::string& evidence, size_t candidates,
                 TuneObjective objective = TuneObjective::kTime);

// Evidence of one candidate, for the samples of an unfinished tune.
std::string sample_of(const CandidateReport& row);
// False when the text is not one of sample_of's.
bool read_sample(const std::string& text, CandidateReport& row);

// The whole report, for --json.
std::string report_json(const TuneReport& report);

}  // namespace trigen
