#include "tuner/evidence.h"

#include <ctime>

#include "runtime/json.h"
#include "tuner/search_report.h"

namespace trigen {
namespace {

using nlohmann::json;

constexpr Outcome kOutcomes[] = {Outcome::kNotTried, Outcome::kNotBuilt, Outcome::kSpilled,
                                 Outcome::kWrong,    Outcome::kFailed,   Outcome::kRanked,
                                 Outcome::kTimed,    Outcome::kFinalist, Outcome::kChosen};

std::string today() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

json row_json(const CandidateReport& row) {
  json out = {{"candidate", row.candidate},
              {"outcome", to_string(row.outcome)},
              {"predicted_us", row.predicted_s * 1e6}};
  if (row.resources.registers > 0) {
    out["registers"] = row.resources.registers;
    out["spill_bytes"] = row.resources.spill_bytes;
  }
  if (row.tolerance > 0) {
    out["error"] = row.error;
    out["tolerance"] = row.tolerance;
  }
  auto micro = [](const std::vector<double>& seconds) {
    json list = json::array();
    for (const double s : seconds) list.push_back(s * 1e6);
    return list;
  };
  if (!row.quick.empty()) out["quick_us"] = micro(row.quick);
  if (!row.finals.empty()) out["finals_us"] = micro(row.finals);
  if (!row.joules.empty()) out["joules"] = row.joules;
  if (!row.note.empty()) out["note"] = row.note.substr(0, 2000);
  if (row.resumed) out["resumed"] = true;
  return out;
}

json state_json(const GpuState& state) {
  json out = json::object();
  const auto put = [&](const char* key, const auto& value) {
    if (value) out[key] = *value;
  };
  put("sm_mhz", state.sm_mhz);
  put("memory_mhz", state.memory_mhz);
  put("celsius", state.celsius);
  put("percent_busy", state.percent_busy);
  put("watts", state.watts);
  put("watts_allowed", state.watts_allowed);
  put("throttle_reasons", state.reasons);
  put("ecc_errors", state.ecc_errors);
  put("mig", state.mig);
  out["processes"] = state.processes.size();
  return out;
}

// The machine's conditions during the tune.
json conditions_json(const TuneReport& report) {
  json out = json::object();
  for (const GpuState& state : report.states) out["gpu"].push_back(state_json(state));
  for (const double s : report.anchor_s) out["anchor_us"].push_back(s * 1e6);
  if (report.reach > 0) out["reach"] = report.reach;
  return out;
}

json whole(const TuneReport& report) {
  json rows = json::array();
  for (const CandidateReport& row : report.candidates) {
    if (row.outcome != Outcome::kNotTried) rows.push_back(row_json(row));
  }
  json out = {{"complete", report.complete},
              {"model", kModelVersion},
              {"problem", report.problem},
              {"target", report.target},
              {"device", report.device},
              {"driver", report.driver},
              {"sms", report.sms},
              {"provenance", report.provenance == Provenance::kMeasured ? "measured" : "predicted"},
              {"chosen", report.chosen},
              {"us", report.seconds * 1e6},
              {"quartiles_us", {report.lower_s * 1e6, report.upper_s * 1e6}},
              {"error", report.error},
              {"tolerance", report.tolerance},
              {"ceiling_us", report.ceiling_s * 1e6},
              {"objective", to_string(report.objective)},
              {"joules", report.joules},
              {"conditions", conditions_json(report)},
              {"stopped", report.stop_reason},
              {"notes", report.notes},
              {"considered", report.candidates.size()},
              {"candidates", rows}};
  // A prediction is the same whenever it is made, and is stored in the same bytes.
  if (report.provenance == Provenance::kMeasured) {
    out["date"] = today();
    out["elapsed_s"] = report.elapsed_s;
  }
  const SearchReport search = search_report_of(report);
  out["search"] = {{"space", search.space}, {"tried", search.tried}, {"passed_over", search.passed_over}};
  if (search.expected_loss >= 0) out["search"]["expected_loss"] = search.expected_loss;
  for (const SearchReport::Step& step : search.best)
    out["search"]["best"].push_back({step.at_s, step.best_s * 1e6});
  return out;
}

std::string dump(const json& value, int indent) {
  return value.dump(indent, ' ', true, json::error_handler_t::replace);
}

}  // namespace

std::string evidence_of(const TuneReport& report) { return dump(whole(report), -1); }

std::string report_json(const TuneReport& report) {
  json out = whole(report);
  out["date"] = today();
  out["elapsed_s"] = report.elapsed_s;
  out["kept"] = report.kept;
  out["limiter"] = report.limiter;
  out["share_of_ceiling"] = report.share_of_ceiling();
  if (report.dense_s > 0) {
    out["dense_us"] = report.dense_s * 1e6;
    out["dense"] = report.dense_measured ? "measured" : "estimated";
  }
  return dump(out, 2);
}

bool is_complete(const std::string& evidence, size_t candidates, TuneObjective objective) {
  const json value = read_json(evidence);
  const auto complete = value.find("complete");
  if (!value.is_object() || complete == value.end() || *complete != true) return false;
  if (value.value("objective", "time") != to_string(objective)) return false;
  const auto considered = value.find("considered");
  return considered != value.end() && considered->is_number_unsigned() &&
         considered->get<size_t>() >= candidates;
}

std::string sample_of(const CandidateReport& row) { return dump(row_json(row), -1); }

bool read_sample(const std::string& text, CandidateReport& row) {
  const json value = read_json(text);
  if (!value.is_object() || !value.contains("outcome") || !value["outcome"].is_string()) return false;
  auto number = [&](const char* key) {
    return value.contains(key) && value[key].is_number() ? value[key].get<double>() : 0.0;
  };
  const std::string outcome = value["outcome"];
  for (const Outcome known : kOutcomes) {
    if (outcome == to_string(known)) row.outcome = known;
  }
  row.error = number("error");
  row.tolerance = number("tolerance");
  row.quick.clear();
  if (value.contains("quick_us") && value["quick_us"].is_array()) {
    for (const json& us : value["quick_us"]) {
      if (!us.is_number()) return false;
      row.quick.push_back(us.get<double>() * 1e-6);
    }
  }
  if (value.contains("note") && value["note"].is_string()) row.note = value["note"];
  return row.outcome == Outcome::kTimed ? !row.quick.empty()
                                        : row.outcome == Outcome::kWrong || row.outcome == Outcome::kFailed;
}

}  // namespace trigen
