#include "cli/tune_recordings.h"

#include <array>
#include <ctime>
#include <filesystem>

#include "cli/command.h"
#include "tuner/recording.h"

namespace trigen::cli {

void TuneRecordings::add_to(CLI::App& app) {
  app.add_option(
         "--sample", sample_,
         "no search: time the model's first 12 and a draw over families and tiles, so many in all, and "
         "compile ahead over all problems; for --record")
      ->check(whole_number(1, kMostCount));
  app.add_option("--role", role_,
                 "of the recordings: fit (the default), check, or alternate: fit and check in turn, and all "
                 "problems of the same sizes in a row alike")
      ->check(one_word_of({"fit", "check", "alternate"}));
  app.add_option("--record", folder_, "folder for recordings of what was measured, a file a problem")
      ->type_name("FOLDER");
}

std::optional<SampleOptions> TuneRecordings::sample() const {
  if (sample_ == 0) return std::nullopt;
  SampleOptions options;
  options.first = std::min(options.first, sample_);
  options.drawn = sample_ - options.first;
  return options;
}

std::vector<std::string> TuneRecordings::roles(const std::vector<Problem>& list) const {
  std::vector<std::string> roles(list.size(), role_);
  const auto sizes = [](const Problem& p) { return std::array{p.B, p.H, p.T, p.D, p.K}; };
  bool check = false;
  for (size_t i = 0; role_ == "alternate" && i < list.size(); ++i) {
    if (i > 0 && sizes(list[i]) != sizes(list[i - 1])) check = !check;
    roles[i] = check ? "check" : "fit";
  }
  return roles;
}

llvm::Error TuneRecordings::write(const TuneReport& report, const std::string& role) const {
  if (folder_.empty() || report.provenance != Provenance::kMeasured || report.kept)
    return llvm::Error::success();
  char date[32];
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  Recording recording = recording_of(report, date);
  recording.role = role;
  if (const auto drawn = sample()) recording.sample = to_string(*drawn);
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  const std::string path = (std::filesystem::path(folder_) / file_name(recording)).string();
  return write_text(path, to_string(recording));
}

}  // namespace trigen::cli
