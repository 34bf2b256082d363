#include "cli/fleet_progress.h"

#include "check/text.h"
#include "cli/problem_options.h"
#include "cli/progress.h"
#include "cli/terminal.h"
#include "generator/names.h"

namespace trigen::cli {

FleetProgress::FleetProgress(std::FILE* out, bool terminal, int columns, std::vector<std::string> names,
                             size_t items)
    : out_(out),
      terminal_(terminal),
      columns_(columns),
      names_(std::move(names)),
      lines_(names_.size(), "free"),
      begun_(names_.size(), Clock::now()),
      items_(items) {}

void FleetProgress::begin(size_t gpu) { begun_[gpu] = Clock::now(); }

void FleetProgress::clear() {
  if (!drawn_) return;
  std::fprintf(out_, "\033[%zuA\r\033[J", lines_.size());
  std::fflush(out_);
  drawn_ = false;
}

void FleetProgress::draw() {
  clear();
  for (size_t i = 0; i < lines_.size(); ++i) {
    std::string text = names_[i] + " " + lines_[i];
    if (columns_ > 8 && text.size() > static_cast<size_t>(columns_ - 1))
      text = text.substr(0, static_cast<size_t>(columns_ - 4)) + "...";
    std::fprintf(out_, "%s\n", text.c_str());
  }
  std::fflush(out_);
  drawn_ = true;
}

void FleetProgress::show(size_t gpu, const TuneProgress& p) {
  if (quiet() || !terminal_) return;
  lines_[gpu] = ProgressDisplay::bar(p, done_, items_, p.eta_s, 0);
  constexpr auto kRedrawFleet = std::chrono::milliseconds(100);
  if (Clock::now() - last_ < kRedrawFleet) return;
  last_ = Clock::now();
  draw();
}

void FleetProgress::finish(size_t gpu, const std::string& problem, const std::string& result,
                           const std::string& choice) {
  clear();
  lines_[gpu] = "free";
  ++done_;
  if (quiet()) return;
  const auto since = [](Clock::time_point then) {
    return std::chrono::duration<double>(Clock::now() - then).count();
  };
  std::string took = format_duration(since(begun_[gpu]));
  if (done_ < items_) {
    const double each = since(start_) / static_cast<double>(done_);
    took += ", " + format_duration(each * static_cast<double>(items_ - done_)) + " left";
  }
  const std::string text = format("[%zu/%zu] %s %s  %s (%s)%s%s", done_, items_, names_[gpu].c_str(),
                                  short_problem(problem).c_str(), result.c_str(), took.c_str(),
                                  choice.empty() ? "" : "  ", choice.c_str());
  std::fprintf(out_, "%s\n", printable(text).c_str());
  std::fflush(out_);
}

FleetProgress make_fleet_progress(std::vector<std::string> names, size_t items) {
  return {stderr, is_terminal(stderr) && !quiet(), columns(stderr), std::move(names), items};
}

}  // namespace trigen::cli
