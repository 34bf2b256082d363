#include "lab/table_result.h"

#include <cmath>
#include <map>

#include "generator/problem.h"
#include "runtime/json.h"

namespace trigen {

using nlohmann::json;

namespace {

// Microseconds to a tenth of a nanosecond: no line carries digits that no clock has.
double micro(double seconds) { return std::round(seconds * 1e10) * 1e-4; }

}  // namespace

const char* to_string(Verdict verdict) {
  switch (verdict) {
    case Verdict::kMet:
      return "met";
    case Verdict::kStretch:
      return "met (stretch)";
    case Verdict::kMissed:
      return "missed";
    case Verdict::kMeasured:
      return "measured";
    case Verdict::kRuns:
      return "runs";
    case Verdict::kMissing:
      return "missing";
    case Verdict::kFails:
      return "fails";
  }
  return "?";
}

Verdict TableResult::verdict() const {
  if (failed) return Verdict::kFails;
  if (got <= 0) return ran ? Verdict::kRuns : Verdict::kMissing;
  if (asked <= 0) return Verdict::kMeasured;
  const auto reaches = [&](double figure) { return at_most ? got <= figure : got >= figure; };
  if (stretch > 0 && reaches(stretch)) return Verdict::kStretch;
  return reaches(asked) ? Verdict::kMet : Verdict::kMissed;
}

TableResult result_of(const TableGroup& group, const TableRow& row) {
  TableResult out;
  out.table = group.name;
  out.title = group.title;
  out.problem = row.text();
  out.over = to_string(row.over);
  out.asked = row.asked;
  out.stretch = row.stretch;
  out.at_most = row.at_most;
  return out;
}

std::string to_json_line(const TableResult& r) {
  json arms = json::array();
  for (const TableArm& arm : r.arms) {
    arms.push_back({{"name", arm.name},
                    {"us", micro(arm.median_s)},
                    {"quartiles_us", {micro(arm.lower_s), micro(arm.upper_s)}}});
  }
  json out = {
      {"table", r.table}, {"title", r.title},   {"problem", r.problem}, {"over", r.over},
      {"ran", r.ran},     {"rounds", r.rounds}, {"arms", arms},         {"verdict", to_string(r.verdict())}};
  if (r.asked > 0) out[r.at_most ? "asked_at_most" : "asked"] = r.asked;
  if (r.stretch > 0) out["stretch"] = r.stretch;
  if (r.got > 0) out["got"] = r.got;
  if (r.seconds > 0) out["us"] = micro(r.seconds);
  if (r.peer_seconds > 0) out["peer_us"] = micro(r.peer_seconds);
  if (r.failed) out["failed"] = true;
  if (r.behind_got > 0) {
    out["behind_got"] = r.behind_got;
    out["behind_us"] = micro(r.behind_seconds);
    out["behind_peer_us"] = micro(r.behind_peer_seconds);
  }
  if (r.floor_seconds > 0) out["floor_us"] = micro(r.floor_seconds);
  const std::pair<const char*, const std::string*> texts[] = {
      {"peer", &r.peer},     {"bound", &r.bound},   {"kernel", &r.kernel},   {"provenance", &r.provenance},
      {"device", &r.device}, {"driver", &r.driver}, {"library", &r.library}, {"note", &r.note}};
  for (const auto& [key, text] : texts)
    if (!text->empty()) out[key] = *text;
  return out.dump(-1, ' ', true, json::error_handler_t::replace);
}

std::optional<TableResult> read_json_line(const std::string& line) {
  const json value = read_json(line);
  if (!value.is_object()) return std::nullopt;
  const auto text = [&](const char* key) {
    return value.contains(key) && value[key].is_string() ? value[key].get<std::string>() : std::string();
  };
  const auto number = [](const json& object, const char* key) {
    return object.contains(key) && object[key].is_number() ? object[key].get<double>() : 0.0;
  };
  TableResult out;
  out.table = text("table");
  out.title = text("title");
  out.problem = text("problem");
  if (out.table.empty() || out.problem.empty()) return std::nullopt;
  out.over = text("over");
  out.at_most = value.contains("asked_at_most");
  out.asked = number(value, out.at_most ? "asked_at_most" : "asked");
  out.stretch = number(value, "stretch");
  out.ran = value.contains("ran") && value["ran"].is_boolean() && value["ran"].get<bool>();
  out.failed = value.contains("failed") && value["failed"].is_boolean() && value["failed"].get<bool>();
  out.got = number(value, "got");
  out.behind_got = number(value, "behind_got");
  out.behind_seconds = number(value, "behind_us") * 1e-6;
  out.behind_peer_seconds = number(value, "behind_peer_us") * 1e-6;
  out.seconds = number(value, "us") * 1e-6;
  out.peer_seconds = number(value, "peer_us") * 1e-6;
  out.floor_seconds = number(value, "floor_us") * 1e-6;
  out.bound = text("bound");
  out.peer = text("peer");
  out.kernel = text("kernel");
  out.provenance = text("provenance");
  out.device = text("device");
  out.driver = text("driver");
  out.library = text("library");
  out.rounds = static_cast<int>(number(value, "rounds"));
  out.note = text("note");
  if (value.contains("arms") && value["arms"].is_array()) {
    for (const json& arm : value["arms"]) {
      if (!arm.is_object() || !arm.contains("name") || !arm["name"].is_string()) continue;
      TableArm read{arm["name"].get<std::string>(), number(arm, "us") * 1e-6, 0, 0};
      if (arm.contains("quartiles_us") && arm["quartiles_us"].is_array() && arm["quartiles_us"].size() == 2 &&
          arm["quartiles_us"][0].is_number() && arm["quartiles_us"][1].is_number()) {
        read.lower_s = arm["quartiles_us"][0].get<double>() * 1e-6;
        read.upper_s = arm["quartiles_us"][1].get<double>() * 1e-6;
      }
      out.arms.push_back(std::move(read));
    }
  }
  return out;
}

std::vector<TableResult> latest(const std::vector<TableResult>& results) {
  std::vector<TableResult> out;
  std::map<std::pair<std::string, std::string>, size_t> seen;
  for (const TableResult& result : results) {
    const auto key = std::make_pair(result.table, result.problem + " | " + result.over);
    const auto [at, fresh] = seen.emplace(key, out.size());
    if (fresh) {
      out.push_back(result);
    } else if (result.ran || !out[at->second].ran) {
      out[at->second] = result;
    } else if (result.failed) {
      out[at->second].failed = true;
      out[at->second].note = result.note + "; the figure is an earlier run's";
    }
  }
  return out;
}

std::string op_of(const TableResult& result) {
  if (result.problem.find(" + ") != std::string::npos) return "step";
  return result.problem.substr(0, result.problem.find(','));
}

std::string short_label(const std::string& problem) {
  if (const size_t at = problem.find(" at row "); at != std::string::npos)
    return short_label(problem.substr(0, at)) + problem.substr(at);
  std::string first = problem.substr(0, problem.find(" + "));
  auto parsed = parse_problem(first);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return first;
  }
  const Problem& p = *parsed;
  std::string out = std::to_string(p.B) + "," + std::to_string(p.T) + ",";
  if (p.H > 1) out += std::to_string(p.H) + "x";
  out += std::to_string(p.D);
  if (p.K > 1) out += " K=" + std::to_string(p.K) + " pad=" + std::to_string(p.pad);
  if (p.rows > 1) out += " rows=" + std::to_string(p.rows);
  if (p.layout == Layout::kBDT) out += " bdt";
  if (p.dtype != DType::kBF16) out += " " + to_string(p.dtype).str();
  if (p.math != Math::kDefault) out += " " + to_string(p.math).str();
  if (p.wdtype != p.dtype) out += " W " + to_string(p.wdtype).str();
  const std::string epilogue = to_string(p.epilogue);
  if (!epilogue.empty() && first.size() == problem.size()) out += " " + epilogue;
  return out;
}

}  // namespace trigen
