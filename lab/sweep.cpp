// trigen-lab sweep: unseen problems, untuned and tuned, beside every peer.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>

#include "cache/host.h"
#include "check/text.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "lab/commands.h"
#include "lab/recording.h"
#include "lab/run_options.h"
#include "lab/sweep_problems.h"
#include "lab/sweep_run.h"
#include "lab/sweep_summary.h"

namespace trigen::cli {
namespace {

constexpr size_t kWorstShown = 12;

llvm::Expected<std::vector<Problem>> problems_of_recordings(const std::string& path) {
  auto recordings = read_recordings({path});
  if (!recordings) return recordings.takeError();
  std::vector<Problem> out;
  for (const Recording& recording : *recordings) {
    auto problem = parse_problem(recording.problem);
    if (!problem) return with_prefix(problem.takeError(), path);
    out.push_back(*problem);
  }
  return out;
}

// Lines without a problem's text (a run of PyTorch's, say) hold none.
std::vector<Problem> problems_of_results(llvm::StringRef text) {
  std::vector<Problem> out;
  llvm::SmallVector<llvm::StringRef, 0> lines;
  text.split(lines, '\n');
  for (const llvm::StringRef line : lines) {
    const auto result = read_json_line(line.str());
    if (!result) continue;
    llvm::SmallVector<llvm::StringRef, 3> steps;
    llvm::StringRef(result->problem).split(steps, " + ");
    for (const llvm::StringRef step : steps) {
      auto problem = parse_problem(step.split(" at row ").first);
      if (problem)
        out.push_back(*problem);
      else
        llvm::consumeError(problem.takeError());
    }
  }
  return out;
}

// Problems of a list of problems or of tables, of recordings, or of a run's results.
llvm::Expected<std::vector<Problem>> problems_in(const std::string& path) {
  auto text =
      cache::read_input(path, "", "name a list of problems or tables, a recording, or a run's .jsonl");
  if (!text) return text.takeError();
  if (llvm::StringRef(*text).startswith("trigen recording")) return problems_of_recordings(path);
  if (llvm::StringRef(*text).startswith("{")) return problems_of_results(*text);
  if (!is_table_list(*text)) {
    auto list = parse_problem_list(*text);
    if (!list) return with_prefix(list.takeError(), path);
    return list;
  }
  auto groups = parse_table_list(*text);
  if (!groups) return with_prefix(groups.takeError(), path);
  return problems_of(*groups);
}

void print_progress(size_t number, size_t of, const std::vector<TableResult>& rows) {
  std::string line = format("%zu of %zu  %s:", number, of, rows.front().problem.c_str());
  for (const TableResult& row : rows)
    line += format("  %s %.3f (%s)", row.table.c_str(), row.got, format_seconds(row.seconds).c_str());
  if (!rows.front().peer.empty())
    line += format("  %s %s", rows.front().peer.c_str(), format_seconds(rows.front().peer_seconds).c_str());
  if (!rows.front().note.empty()) line += "; " + rows.front().note.substr(0, rows.front().note.find('\n'));
  remark(line);
}

// The tables of a sweep's results for people, as wide as `columns`.
std::string sweep_text(const std::vector<TableResult>& results, int columns) {
  Table table({"choice", "op", ">rows", ">not slower", ">mean, cut at 2", ">geometric mean",
               ">tenth percentile", ">worst", "?>failed"});
  std::vector<std::string> names;
  for (const SweepSummary& s : summarize_sweep(results)) {
    if (s.op.empty()) names.push_back(s.table);
    table.add({s.op.empty() ? s.table : "", s.op.empty() ? "all" : s.op, std::to_string(s.rows),
               std::to_string(s.not_slower), format("%.3f", s.mean), format("%.3f", s.uncut),
               format("%.3f", s.tenth), format("%.3f", s.worst), std::to_string(s.failed)});
  }
  std::string out = table.text(columns);
  const auto list = [&](const std::string& title, const std::vector<TableResult>& rows) {
    Table shown({"=problem", ">got", ">time", "?peer", ">its time", ">floor", "of", "?kernel"});
    for (const TableResult& r : rows)
      shown.add({r.problem, format("%.3f", r.got), format_seconds(r.seconds), r.peer,
                 format_seconds(r.peer_seconds), format_seconds(r.floor_seconds), r.bound, r.kernel});
    out += "\n" + title + "\n" + shown.text(columns);
  };
  for (const std::string& name : names) {
    list("the worst, " + name, worst_of(results, name, kWorstShown));
    if (const auto above = above_most(results, name); !above.empty())
      list("above 2, which is more than half of the products gains: peers not at their best, " + name, above);
  }
  return out;
}

struct Sweep {
  int count = 0;  // problems
  uint64_t seed = 1;
  std::string half = "reported";    // or "fitting"
  std::vector<std::string> unseen;  // lists of problems whose sizes are left out
  std::string budget;
  bool untuned = false;
  RunOptions shared;

  llvm::Expected<std::vector<Problem>> problems() const;
  llvm::Expected<SweepOptions> options(bool tune) const;
  llvm::Expected<int> run() const;
};

llvm::Expected<std::vector<Problem>> Sweep::problems() const {
  if (half != "reported" && half != "fitting")
    return make_error(ErrorKind::kBadRequest, "--half " + half + "; allowed are reported and fitting");
  std::vector<Problem> seen;
  for (const std::string& path : unseen) {
    auto list = problems_in(path);
    if (!list) return list.takeError();
    seen.insert(seen.end(), list->begin(), list->end());
  }
  SweepProblems draw(seed, half == "fitting" ? SweepHalf::kFitting : SweepHalf::kReported, std::move(seen));
  std::vector<Problem> out;
  out.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) out.push_back(draw.next());
  return out;
}

llvm::Expected<SweepOptions> Sweep::options(bool tune) const {
  auto table = shared.table_options();
  if (!table) return table.takeError();
  SweepOptions out;
  out.table = *table;
  out.tune = tune;
  out.tuning.search.budget_s = 2;
  if (!budget.empty()) {
    auto seconds = parse_duration("budget", budget);
    if (!seconds) return seconds.takeError();
    out.tuning.search.budget_s = *seconds;
  }
  out.tuning.build.no_jit = table->plan.no_jit;
  out.tuning.cancel = table->cancel;
  return out;
}

// The exit code: a problem that cannot run does not fail the command; a wrong result does.
llvm::Expected<int> Sweep::run() const {
  auto list = problems();
  if (!list) return list.takeError();
  if (shared.print_problems) {
    for (const Problem& problem : *list) std::printf("%s\n", short_text(problem).c_str());
    return kDone;
  }
  auto opened = Device::open(shared.where.device);
  if (!opened) return opened.takeError();
  const Device& device = **opened;
  auto chosen = options(!untuned && !device.info().emulated);
  if (!chosen) return chosen.takeError();
  auto limit = shared.limit_s();
  if (!limit) return limit.takeError();
  std::error_code ignored;
  std::filesystem::create_directories(shared.out, ignored);
  const std::string stem = (std::filesystem::path(shared.out) / "sweep").string();
  // what an earlier run chose is no business of this one's untuned choices
  for (const char* end : {".db", ".db-wal", ".db-shm"}) std::filesystem::remove(stem + end, ignored);
  TargetOptions where;
  where.caches = {stem + ".db"};
  auto store = where.open_store();
  std::FILE* lines = std::fopen((stem + ".jsonl").c_str(), "w");
  if (lines == nullptr) return cannot_write(stem + ".jsonl", errno);
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto cancelled = [&] { return chosen->table.cancel->load(); };
  std::vector<TableResult> results;
  int wrong = 0;
  for (size_t i = 0; i < list->size() && !cancelled() && (*limit <= 0 || spent() < *limit); ++i) {
    const auto rows = run_sweep_problem((*list)[i], device, *store, *chosen);
    for (const TableResult& row : rows) {
      wrong += row.note.find("gives a wrong result") != std::string::npos ? 1 : 0;
      std::fprintf(lines, "%s\n", to_json_line(row).c_str());
      results.push_back(row);
    }
    std::fflush(lines);
    print_progress(i + 1, list->size(), rows);
  }
  std::fclose(lines);
  std::printf("%s half, seed %llu, %zu of %d problems in %.0f s; %s, driver %s, %s\n\n%s", half.c_str(),
              static_cast<unsigned long long>(seed), results.size() / (chosen->tune ? 2 : 1), count, spent(),
              device.info().name.c_str(), device.info().driver.c_str(),
              results.empty() || results[0].library.empty() ? "no cuBLAS" : results[0].library.c_str(),
              sweep_text(results, columns(stdout)).c_str());
  remark(stem + ".jsonl");
  if (cancelled()) return interrupted_code();
  return wrong > 0 ? kFailure : kDone;
}

}  // namespace

void add_sweep(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand(
      "sweep",
      "problems drawn from a seed, untuned and tuned, beside every peer (a cache of its own in the folder)");
  auto sweep = std::make_shared<Sweep>();
  sub->add_option("count", sweep->count, "so many problems")->required()->check(CLI::PositiveNumber);
  sub->add_option("--seed", sweep->seed, "of the draw (1)");
  sub->add_option(
      "--half", sweep->half,
      "reported (default), or fitting: the sizes that are tuned and fitted on, and never reported");
  sub->add_option("--unseen", sweep->unseen,
                  "leave out the sizes of these lists of problems or tables, recordings and results, which "
                  "choices were made on")
      ->type_name("FILE");
  sub->add_option("--budget", sweep->budget, "time for one problem's tune (2s)");
  sub->add_flag("--untuned", sweep->untuned, "do not tune");
  sweep->shared.add_to(*sub);
  commands.push_back({sub, [sweep] { return report(sweep->run()); }});
}

}  // namespace trigen::cli
