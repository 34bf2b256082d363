#include "cli/progress.h"

#include <algorithm>

#include "check/text.h"
#include "cli/problem_options.h"
#include "cli/terminal.h"
#include "generator/names.h"

namespace trigen::cli {
namespace {

double seconds_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - then).count();
}

// One line of a terminal; `columns` 0: the whole text.
std::string cut(std::string text, int columns) {
  if (columns > 8 && text.size() > static_cast<size_t>(columns - 1))
    text = text.substr(0, static_cast<size_t>(columns - 4)) + "...";
  return text;
}

// The problem in at most `room` columns: its op and its last keys, "forward,...T=512,D=1024".
std::string cut_problem(const std::string& problem, size_t room) {
  if (problem.size() <= room) return problem;
  const std::string head = problem.substr(0, problem.find(',')) + ",...";
  if (head.size() > room) return cut(problem, static_cast<int>(room) + 1);
  const size_t keys = problem.find(',', problem.size() - (room - head.size()) - 1);
  return head + (keys == std::string::npos ? "" : problem.substr(keys + 1));
}

}  // namespace

ProgressDisplay::ProgressDisplay(std::FILE* out, bool terminal, int columns, size_t problems)
    : out_(out), terminal_(terminal), columns_(columns), problems_(problems) {}

void ProgressDisplay::begin(size_t problem_index) {
  index_ = problem_index;
  last_phase_.clear();
  begun_ = Clock::now();
  if (!terminal_) last_ = begun_;
}

std::string ProgressDisplay::bar(const TuneProgress& p, size_t index, size_t problems, double eta_all_s,
                                 int columns) {
  constexpr size_t kWidth = 20;
  const size_t filled = p.total > 0 ? std::min(kWidth, kWidth * p.done / p.total) : 0;
  std::string text =
      format("[%zu/%zu] %s%s %s %zu/%zu", index + 1, problems, std::string(filled, '#').c_str(),
             std::string(kWidth - filled, '.').c_str(), p.phase, p.done, p.total);
  if (p.best_s > 0) text += ", best " + format_seconds(p.best_s);
  if (p.done > 0) text += ", " + format_duration(p.eta_s) + " left";
  if (p.done > 0 && problems > 1) text += " (list " + format_duration(eta_all_s) + ")";
  if (p.best_s > 0 && !p.best.empty()) text += "  " + p.best;
  text += "  " + short_problem(p.problem);
  return cut(std::move(text), columns);
}

void ProgressDisplay::show(const TuneProgress& p) {
  if (quiet()) return;
  constexpr double kRedraw = 0.1, kStillThere = 60;  // seconds
  const bool new_phase = terminal_ && last_phase_ != p.phase;
  if (!new_phase && seconds_since(last_) < (terminal_ ? kRedraw : kStillThere)) return;
  last_ = Clock::now();
  last_phase_ = p.phase;
  // the rest of the list at the pace of the problems so far, this one counted as its estimate says
  const double each = (seconds_since(start_) + p.eta_s) / static_cast<double>(index_ + 1);
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

void ProgressDisplay::finish(const std::string& problem, const std::string& result,
                             const std::string& choice) {
  clear();
  if (quiet()) return;
  const size_t left = problems_ - index_ - 1;
  std::string took = format_duration(seconds_since(begun_));
  if (left > 0)
    took +=
        ", " +
        format_duration(seconds_since(start_) / static_cast<double>(index_ + 1) * static_cast<double>(left)) +
        " left";
  const std::string count = format("[%zu/%zu] ", index_ + 1, problems_),
                    found = "  " + result + " (" + took + ")";
  std::string named = short_problem(problem);
  if (terminal_ && columns_ > 0) {
    const auto most = static_cast<size_t>(columns_ - 1), others = count.size() + found.size();
    named = cut_problem(named, most - std::min(most, others));
  }
  const std::string head = printable(count + named + found);
  const std::string whole = choice.empty() ? head : head + "  " + printable(choice);
  std::string text = cut(whole, terminal_ ? columns_ : 0);
  if (text != whole && text.size() < head.size() + 8)
    text = cut(head, columns_);  // nothing of the choice is left
  std::fprintf(out_, "%s\n", text.c_str());
  std::fflush(out_);
}

ProgressDisplay make_progress(size_t problems) {
  return {stderr, is_terminal(stderr) && !quiet(), columns(stderr), problems};
}

}  // namespace trigen::cli
