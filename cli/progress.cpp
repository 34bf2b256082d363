#include "cli/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "check/text.h"

namespace trigen::cli {

ProgressDisplay::ProgressDisplay(std::FILE* out, bool terminal, int columns, size_t problems)
    : out_(out), terminal_(terminal), columns_(columns), problems_(problems) {}

void ProgressDisplay::begin(size_t problem_index) {
  index_ = problem_index;
  last_phase_.clear();
}

std::string ProgressDisplay::bar(const TuneProgress& p, size_t index, size_t problems, double eta_all_s,
                                 int columns) {
  constexpr size_t kWidth = 20;
  const size_t filled = p.total > 0 ? std::min(kWidth, kWidth * p.done / p.total) : 0;
  std::string text =
      format("[%zu/%zu] %s%s %s %zu/%zu", index + 1, problems, std::string(filled, '#').c_str(),
             std::string(kWidth - filled, '.').c_str(), p.phase, p.done, p.total);
  if (p.best_s > 0) text += ", best " + format_seconds(p.best_s);
  if (p.done > 0) text += format(", eta %.0f s", p.eta_s);
  if (p.done > 0 && problems > 1) text += format(" (list %.0f s)", eta_all_s);
  if (p.best_s > 0 && !p.best.empty()) text += "  " + p.best;
  text += "  " + p.problem;
  if (columns > 8 && text.size() > static_cast<size_t>(columns - 1))
    text = text.substr(0, static_cast<size_t>(columns - 4)) + "...";
  return text;
}

void ProgressDisplay::show(const TuneProgress& p) {
  const auto now = std::chrono::steady_clock::now();
  const bool new_phase = last_phase_ != p.phase;
  const double since = std::chrono::duration<double>(now - last_).count();
  if (!new_phase && since < (terminal_ ? 0.1 : 10.0)) return;
  last_ = now;
  last_phase_ = p.phase;
  // the rest of the list at the pace of the problems so far, this one counted as its estimate says
  const double elapsed = std::chrono::duration<double>(now - start_).count();
  const double each = (elapsed + p.eta_s) / static_cast<double>(index_ + 1);
  const double eta_all = p.eta_s + each * static_cast<double>(problems_ - index_ - 1);
  if (terminal_) {
    std::fprintf(out_, "\r\033[K%s", bar(p, index_, problems_, eta_all, columns_).c_str());
    drawn_ = true;
  } else {
    std::fprintf(out_, "%s\n", bar(p, index_, problems_, eta_all, 0).c_str());
  }
  std::fflush(out_);
}

void ProgressDisplay::clear() {
  if (!drawn_) return;
  std::fputs("\r\033[K", out_);
  std::fflush(out_);
  drawn_ = false;
}

ProgressDisplay make_progress(size_t problems) {
  winsize size{};
  int columns = 80;
  const bool terminal = ::isatty(STDERR_FILENO) == 1;
  if (terminal && ::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) columns = size.ws_col;
  return {stderr, terminal, columns, problems};
}

}  // namespace trigen::cli
