// trigen-lab record: a tune that leaves a recording (lab/recording.h) of each problem that it measured.
#include <array>
#include <ctime>
#include <filesystem>

#include "cli/tune.h"
#include "lab/commands.h"
#include "lab/recording.h"

namespace trigen::cli {
namespace {

struct Recorder : TuneRecorder {
  std::string folder, role = "fit";
  size_t sample = 0;
  std::optional<double> share;
  uint64_t seed = TuneOptions().seed;
  std::vector<std::string> roles;  // of the list's problems

  void adjust(TuneOptions& options) const override {
    options.seed = seed;
    if (share) options.search.share = *share;
    if (sample == 0) return;
    options.sample.emplace();
    options.sample->first = std::min(options.sample->first, sample);
    options.sample->drawn = sample - options.sample->first;
  }

  // Samples of many problems take as long as their compiling, so that goes on while the device measures.
  std::unique_ptr<BuildAhead> begin(const std::vector<Problem>& list, const Target& target,
                                    const Device* device, Store& store, TuneOptions& options) override {
    set_roles(list);
    if (!options.sample || device == nullptr || device->info().emulated) return nullptr;
    std::vector<Candidate> work;
    for (const Problem& problem : list) {
      auto all = rank_candidates(problem, target, options.family);
      if (!all) {  // tune() says so when its turn comes
        llvm::consumeError(all.takeError());
        continue;
      }
      for (const size_t i : draw_sample(*all, *options.sample)) work.push_back((*all)[i]);
    }
    auto ahead = std::make_unique<BuildAhead>(std::move(work), store, options.build);
    options.build.threads = 2;  // they wait for the others' leases
    return ahead;
  }

  void set_roles(const std::vector<Problem>& list) {
    roles.assign(list.size(), role);
    const auto sizes = [](const Problem& p) { return std::array{p.B, p.H, p.T, p.D, p.K}; };
    bool check = false;
    for (size_t i = 0; role == "alternate" && i < list.size(); ++i) {
      if (i > 0 && sizes(list[i]) != sizes(list[i - 1])) check = !check;
      roles[i] = check ? "check" : "fit";
    }
  }

  llvm::Error write(const TuneReport& report, size_t index) const override {
    if (report.provenance != Provenance::kMeasured || report.kept) return llvm::Error::success();
    char date[32];
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    std::strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", &utc);
    Recording recording = recording_of(report, date);
    recording.role = roles[index];
    TuneOptions options;
    adjust(options);
    if (options.sample) recording.sample = to_string(*options.sample);
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    return write_text((std::filesystem::path(folder) / file_name(recording)).string(), to_string(recording));
  }
};

}  // namespace

void add_record(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand(
      "record", "tune, and write the measurements: a file a problem, unless an earlier measurement was kept");
  auto recorder = std::make_shared<Recorder>();
  sub->add_option("--folder", recorder->folder, "folder for the recordings")->required()->type_name("FOLDER");
  sub->add_option(
         "--sample", recorder->sample,
         "no search: time the model's first 12 and a draw over families and tiles, so many in all, and "
         "compile ahead over all problems")
      ->check(whole_number(1, kMostCount));
  sub->add_option("--role", recorder->role,
                  "of the recordings: fit (the default), check, or alternate: fit and check in turn, and all "
                  "problems of the same sizes in a row alike")
      ->check(one_word_of({"fit", "check", "alternate"}));
  sub->add_option("--share", recorder->share, "part of all candidates to try at most (0.1)")
      ->check(CLI::Range(0.0, 1.0) & decimal_number());
  sub->add_option("--seed", recorder->seed, "of the random inputs")->check(whole_number(0, UINT64_MAX));
  commands.push_back({sub, add_tune_to(*sub, recorder)});
}

}  // namespace trigen::cli
