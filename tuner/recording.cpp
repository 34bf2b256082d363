#include "tuner/recording.h"

#include <algorithm>

#include "check/text.h"
#include "generator/error.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"
#include "tuner/statistics.h"

namespace trigen {
namespace {

std::string micro(double us) { return us > 0 ? format("%.3f", us) : "-"; }

// Outcomes have blanks; a row's fields must not.
std::string joined(std::string outcome) {
  std::replace(outcome.begin(), outcome.end(), ' ', '_');
  return outcome;
}

bool read_micro(llvm::StringRef text, double& us) {
  us = 0;
  return text == "-" || (!text.getAsDouble(us) && us > 0);
}

}  // namespace

Recording recording_of(const TuneReport& report, const std::string& date) {
  Recording out;
  out.problem = report.problem;
  out.target = report.target;
  out.device = report.device + ", " + std::to_string(report.sms) + " SMs, driver " + report.driver;
  out.date = date;
  out.candidates = report.candidates.size();
  for (size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateReport& row = report.candidates[i];
    if (row.outcome == Outcome::kNotTried) continue;
    RecordedCandidate recorded;
    recorded.rank = i + 1;
    recorded.outcome = to_string(row.outcome);
    if (!row.quick.empty()) {
      const Summary summary = summarize(row.quick);
      recorded.us = summary.median * 1e6;
      recorded.lower_us = summary.lower * 1e6;
      recorded.upper_us = summary.upper * 1e6;
    }
    if (!row.finals.empty()) recorded.finals_us = summarize(row.finals).median * 1e6;
    recorded.predicted_us = row.ranked_s * 1e6;
    recorded.registers = row.resources.registers;
    recorded.candidate = row.candidate;
    out.rows.push_back(std::move(recorded));
  }
  return out;
}

std::string to_string(const Recording& recording) {
  std::string out = "trigen recording 1\nproblem " + recording.problem + "\ntarget " + recording.target +
                    "\ndevice " + recording.device + "\ndate " + recording.date + "\n" +
                    format("candidates %zu\n", recording.candidates) +
                    "# rank outcome us lower upper finals_us predicted_us registers candidate\n";
  for (const RecordedCandidate& row : recording.rows) {
    out += format("%zu ", row.rank) + joined(row.outcome) + " " + micro(row.us) + " " + micro(row.lower_us) +
           " " + micro(row.upper_us) + " " + micro(row.finals_us) + " " + micro(row.predicted_us) +
           format(" %d ", row.registers) + row.candidate + "\n";
  }
  return out;
}

llvm::Expected<Recording> parse_recording(llvm::StringRef text) {
  Recording out;
  int number = 0;
  const auto bad = [&](const llvm::Twine& what) {
    return make_error(ErrorKind::kBadRequest, "line " + llvm::Twine(number) + ": " + what);
  };
  while (!text.empty()) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    ++number;
    line = line.trim();
    if (number == 1 && line != "trigen recording 1")
      return bad("'" + line + "'; allowed is 'trigen recording 1'");
    if (number == 1 || line.empty() || line.front() == '#') continue;
    const auto [key, value] = line.split(' ');
    if (key == "problem") {
      out.problem = value.str();
    } else if (key == "target") {
      out.target = value.str();
    } else if (key == "device") {
      out.device = value.str();
    } else if (key == "date") {
      out.date = value.str();
    } else if (key == "candidates") {
      if (value.getAsInteger(10, out.candidates)) return bad("'" + value + "' is no number of candidates");
    } else {
      llvm::SmallVector<llvm::StringRef, 9> fields;
      line.split(fields, ' ', -1, false);
      RecordedCandidate row;
      if (fields.size() != 9 || fields[0].getAsInteger(10, row.rank) || row.rank == 0 ||
          !read_micro(fields[2], row.us) || !read_micro(fields[3], row.lower_us) ||
          !read_micro(fields[4], row.upper_us) || !read_micro(fields[5], row.finals_us) ||
          !read_micro(fields[6], row.predicted_us) || fields[7].getAsInteger(10, row.registers))
        return bad("a row has rank, outcome, six numbers (or -) and the candidate");
      if (!out.rows.empty() && row.rank <= out.rows.back().rank) return bad("ranks must grow");
      row.outcome = fields[1].str();
      std::replace(row.outcome.begin(), row.outcome.end(), '_', ' ');
      row.candidate = fields[8].str();
      out.rows.push_back(std::move(row));
    }
  }
  if (out.problem.empty() || out.rows.empty() || out.candidates < out.rows.size()) {
    return make_error(ErrorKind::kBadRequest, "the recording lacks its problem, its rows or their count");
  }
  return out;
}

std::string file_name(const Recording& recording) {
  std::string name = recording.target + "-" + recording.problem + ".txt";
  std::replace(name.begin(), name.end(), ',', '-');
  for (const char c : {'=', '+'}) std::replace(name.begin(), name.end(), c, '.');
  return name;
}

}  // namespace trigen
