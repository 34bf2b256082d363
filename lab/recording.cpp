#include "lab/recording.h"

#include <algorithm>
#include <filesystem>

#include "cache/host.h"
#include "check/text.h"
#include "generator/error.h"
#include "lab/table_result.h"
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
  out.candidates = std::max(report.space, report.candidates.size());
  for (size_t i = 0; i < report.candidates.size(); ++i) {
    const CandidateReport& row = report.candidates[i];
    if (row.outcome == Outcome::kNotTried) continue;
    RecordedCandidate recorded;
    recorded.rank = row.rank > 0 ? row.rank : i + 1;
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
                    (recording.role == "fit" ? "" : "role " + recording.role + "\n") +
                    (recording.sample.empty() ? "" : "sample " + recording.sample + "\n") +
                    format("candidates %zu\n", recording.candidates) +
                    "# rank outcome us lower upper finals_us predicted_us registers candidate\n";
  for (const RecordedCandidate& row : recording.rows) {
    out += format("%zu ", row.rank) + joined(row.outcome) + " " + micro(row.us) + " " + micro(row.lower_us) +
           " " + micro(row.upper_us) + " " + micro(row.finals_us) + " " + micro(row.predicted_us) +
           format(" %d ", row.registers) + row.candidate + "\n";
  }
  return out;
}

namespace {

// One line of a recording behind the first; false: it says nothing that a recording has.
bool read_header(llvm::StringRef key, llvm::StringRef value, Recording& out) {
  for (const auto& [name, field] : {std::pair("problem", &out.problem), std::pair("target", &out.target),
                                    std::pair("device", &out.device), std::pair("date", &out.date),
                                    std::pair("role", &out.role), std::pair("sample", &out.sample)}) {
    if (key != name) continue;
    *field = value.str();
    return true;
  }
  return false;
}

bool read_row(llvm::StringRef line, RecordedCandidate& row) {
  llvm::SmallVector<llvm::StringRef, 9> fields;
  line.split(fields, ' ', -1, false);
  if (fields.size() != 9 || fields[0].getAsInteger(10, row.rank) || row.rank == 0 ||
      !read_micro(fields[2], row.us) || !read_micro(fields[3], row.lower_us) ||
      !read_micro(fields[4], row.upper_us) || !read_micro(fields[5], row.finals_us) ||
      !read_micro(fields[6], row.predicted_us) || fields[7].getAsInteger(10, row.registers))
    return false;
  row.outcome = fields[1].str();
  std::replace(row.outcome.begin(), row.outcome.end(), '_', ' ');
  row.candidate = fields[8].str();
  return true;
}

}  // namespace

llvm::Expected<std::vector<Recording>> parse_recordings(llvm::StringRef text) {
  constexpr llvm::StringLiteral kFirst = "trigen recording 1";
  std::vector<Recording> all;
  int number = 0;
  const auto bad = [&](const llvm::Twine& what) {
    return make_error(ErrorKind::kBadRequest, "line " + llvm::Twine(number) + ": " + what);
  };
  const auto lacks = [&] {
    const Recording& r = all.back();
    return r.problem.empty() || r.rows.empty() || r.candidates < r.rows.size();
  };
  constexpr llvm::StringLiteral kLacks =
      "the recording that ends here lacks its problem, its rows or their count";
  while (!text.empty()) {
    llvm::StringRef line;
    std::tie(line, text) = text.split('\n');
    ++number;
    line = line.trim();
    if (line == kFirst) {
      if (!all.empty() && lacks()) return bad(kLacks);
      all.emplace_back();
      continue;
    }
    if (all.empty()) return bad("'" + line + "'; allowed is '" + kFirst + "'");
    if (line.empty() || line.front() == '#') continue;
    Recording& out = all.back();
    const auto [key, value] = line.split(' ');
    if (read_header(key, value, out)) {
      if (out.role != "fit" && out.role != "hand" && out.role != "check")
        return bad("role '" + out.role + "'; allowed are fit, hand and check");
      continue;
    }
    if (key == "candidates") {
      if (value.getAsInteger(10, out.candidates)) return bad("'" + value + "' is no number of candidates");
      continue;
    }
    RecordedCandidate row;
    if (!read_row(line, row)) return bad("a row has rank, outcome, six numbers (or -) and the candidate");
    if (!out.rows.empty() && row.rank <= out.rows.back().rank) return bad("ranks must grow");
    out.rows.push_back(std::move(row));
  }
  if (all.empty())
    return make_error(ErrorKind::kBadRequest, "the file is empty; allowed is '" + kFirst + "'");
  if (lacks()) return bad(kLacks);
  return all;
}

llvm::Expected<Recording> parse_recording(llvm::StringRef text) {
  auto all = parse_recordings(text);
  if (!all) return all.takeError();
  if (all->size() != 1)
    return make_error(ErrorKind::kBadRequest,
                      format("%zu recordings in one file; allowed here is one", all->size()));
  return std::move(all->front());
}

namespace {

// The kernels that a sweep timed, untuned and tuned, of each problem. One that both are has the mean of its two times.
std::vector<Recording> recordings_of_sweep(llvm::StringRef text) {
  std::vector<Recording> all;
  llvm::SmallVector<llvm::StringRef, 0> lines;
  text.split(lines, '\n');
  for (const llvm::StringRef line : lines) {
    const auto result = read_json_line(line.str());
    if (!result || (result->table != "untuned" && result->table != "tuned") || result->seconds <= 0) continue;
    auto gpu = find_gpu(result->device);
    if (!gpu) {
      llvm::consumeError(gpu.takeError());
      continue;
    }
    if (all.empty() || all.back().problem != result->problem) {
      all.emplace_back();
      all.back().problem = result->problem;
      all.back().target = (*gpu)->name.str();
      all.back().device = result->device;
      all.back().role = "check";
      all.back().sample = "the model's choice and the tuned one";
    }
    std::vector<RecordedCandidate>& rows = all.back().rows;
    const double us = 1e6 * result->seconds;
    if (!rows.empty() && rows.front().candidate == result->kernel)
      rows.front().us = (rows.front().us + us) / 2;
    else
      rows.push_back({.rank = rows.size() + 1, .outcome = "timed", .us = us, .candidate = result->kernel});
    all.back().candidates = rows.size() + 1;  // not the whole space
  }
  return all;
}

}  // namespace

llvm::Expected<std::vector<Recording>> read_recordings(const std::vector<std::string>& paths) {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(path, error))
      if (const auto kind = entry.path().extension();
          (kind == ".txt" || kind == ".zst") && entry.is_regular_file(error))
        found.push_back(entry.path().string());
    std::sort(found.begin(), found.end());
    files.insert(files.end(), found.begin(), found.end());
  }
  std::vector<Recording> all;
  for (const std::string& path : files) {
    auto text = cache::read_input(path, "the recording ",
                                  "name files or folders that `trigen-lab record --folder FOLDER` wrote");
    if (!text) return text.takeError();
    auto some = fs::path(path).extension() == ".jsonl"
                    ? llvm::Expected<std::vector<Recording>>(recordings_of_sweep(*text))
                    : parse_recordings(*text);
    if (!some) return with_prefix(some.takeError(), path);
    for (Recording& recording : *some) recording.file = path;
    std::move(some->begin(), some->end(), std::back_inserter(all));
  }
  if (all.empty())
    return make_error(ErrorKind::kBadRequest,
                      "no recordings there; name files, or folders with .txt or .zst files");
  return all;
}

std::vector<double> settled_us(const Recording& recording) {
  std::vector<double> ratios;
  for (const RecordedCandidate& row : recording.rows)
    if (row.timed() && row.finals_us > 0) ratios.push_back(row.finals_us / row.us);
  const double scale = ratios.empty() ? 1 : summarize(ratios).median;
  std::vector<double> us;
  us.reserve(recording.rows.size());
  for (const RecordedCandidate& row : recording.rows)
    us.push_back(row.finals_us > 0 ? row.finals_us : row.us * scale);
  return us;
}

std::string file_name(const Recording& recording) {
  std::string name = recording.target + "-" + recording.problem + ".txt";
  std::replace(name.begin(), name.end(), ',', '-');
  for (const char c : {'=', '+'}) std::replace(name.begin(), name.end(), c, '.');
  return name;
}

}  // namespace trigen
