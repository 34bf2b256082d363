// trigen-lab tables: whole tables of figures, row by row, flushed as they come; render: earlier results of them.
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <sstream>

#include "cache/host.h"
#include "check/text.h"
#include "cli/terminal.h"
#include "generator/names.h"
#include "lab/commands.h"
#include "lab/plot.h"
#include "lab/result_tables.h"
#include "lab/run_options.h"

namespace trigen::cli {
namespace {

llvm::Expected<std::vector<TableResult>> read_results(const std::string& path) {
  auto text = cache::read_input(path, "the results ", "name what `trigen-lab tables` wrote");
  if (!text) return text.takeError();
  std::vector<TableResult> out;
  std::stringstream lines(*text);
  for (std::string line; std::getline(lines, line);)
    if (auto result = read_json_line(line)) out.push_back(std::move(*result));
  return out;
}

// The path of outputs made of `file`, without extension: in `folder`, which is made, under the file's name.
std::string stem_in(const std::string& folder, const std::string& file) {
  std::error_code ignored;  // whoever writes there says what is wrong
  std::filesystem::create_directories(folder, ignored);
  return (std::filesystem::path(folder) / std::filesystem::path(file).stem()).string();
}

void print_row(const TableResult& r) {
  std::string line = r.table + " " + r.problem + ": " + to_string(r.verdict());
  if (r.got > 0)
    line += format(", got %.3f, asked %s%.2f, %s against %s (%s)", r.got, r.at_most ? "<= " : "", r.asked,
                   format_seconds(r.seconds).c_str(), format_seconds(r.peer_seconds).c_str(), r.peer.c_str());
  else if (r.seconds > 0)
    line += ", " + format_seconds(r.seconds);
  if (!r.note.empty()) line += "; " + r.note.substr(0, r.note.find('\n'));
  remark(line);
}

struct Tables {
  std::string list;     // file of lab/table_list.h's format
  std::string only;     // names of tables, by commas, in this order; "" = all
  bool append = false;  // keep earlier lines of the .jsonl
  RunOptions shared;

  llvm::Expected<int> run() const;
};

// The exit code. A row that lacks something does not fail the command; a wrong result does.
llvm::Expected<int> Tables::run() const {
  auto text = cache::read_input(list, "the tables ", "name a list such as bench/hopper.txt");
  if (!text) return text.takeError();
  auto groups = parse_table_list(*text);
  if (!groups) return with_prefix(groups.takeError(), list);
  auto chosen = choose_tables(std::move(*groups), only);
  if (!chosen) return chosen.takeError();
  if (shared.print_problems) {
    auto problems = problems_of(*chosen);
    if (!problems) return problems.takeError();
    for (const Problem& problem : *problems) std::printf("%s\n", short_text(problem).c_str());
    return kDone;
  }
  auto options = shared.table_options();
  if (!options) return options.takeError();
  auto limit = shared.limit_s();
  if (!limit) return limit.takeError();
  auto opened = Device::open(shared.where.device);
  if (!opened) return opened.takeError();
  const Device& device = **opened;
  auto store = shared.where.open_store();
  const std::string stem = stem_in(shared.out, list);
  const std::string lines_path = stem + ".jsonl";
  std::vector<TableResult> results;
  if (append && std::filesystem::exists(lines_path)) {
    auto earlier = read_results(lines_path);
    if (!earlier) return earlier.takeError();
    results = std::move(*earlier);
  }
  std::FILE* lines = std::fopen(lines_path.c_str(), append ? "a" : "w");
  if (lines == nullptr) return cannot_write(lines_path, errno);
  const auto start = std::chrono::steady_clock::now();
  const auto spent = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const auto cancelled = [&] { return options->cancel->load(); };
  int wrong = 0;
  for (const TableGroup& group : *chosen) {
    std::vector<TableResult> table;
    for (const TableRow& row : group.rows) {
      if (cancelled()) break;
      TableResult result;
      if (*limit > 0 && spent() > *limit) {
        result = result_of(group, row);
        result.device = device.info().name;
        result.driver = device.info().driver;
        result.note = format("not started: the limit of %.0f s was spent", *limit);
      } else {
        result = run_table_row(group, row, device, *store, *options);
      }
      wrong += result.note.find("gives a wrong result") != std::string::npos ? 1 : 0;
      std::fprintf(lines, "%s\n", to_json_line(result).c_str());
      std::fflush(lines);
      print_row(result);
      table.push_back(result);
      results.push_back(std::move(result));
    }
    if (table.empty()) break;
    std::printf("%s\n", tables_text(table, columns(stdout)).c_str());
    std::fflush(stdout);
    if (auto failed = write_text(stem + ".svg", plot_svg(latest(results)))) {
      std::fclose(lines);
      return failed;
    }
  }
  std::fclose(lines);
  remark(format("%zu rows in %.1f s; %s, %s.svg", results.size(), spent(), lines_path.c_str(), stem.c_str()));
  if (cancelled()) return interrupted_code();
  return wrong > 0 ? kFailure : kDone;
}

struct Render {
  std::vector<std::string> files;
  std::string out = "build/bench";
  bool asked = false;

  llvm::Expected<int> run() const;
};

// Prints the tables, and writes the drawing into `out`, named as the first file.
llvm::Expected<int> Render::run() const {
  std::vector<TableResult> results;
  for (const std::string& file : files) {
    auto read = read_results(file);
    if (!read) return read.takeError();
    results.insert(results.end(), read->begin(), read->end());
  }
  if (results.empty())
    return make_error(ErrorKind::kBadRequest,
                      files.front() + " holds no result; `trigen-lab tables` writes them");
  results = latest(results);
  for (TableResult& result : results)
    if (!asked) result.asked = result.stretch = 0;
  std::printf("%s, driver %s\n\n%s", printable(results[0].device).c_str(),
              printable(results[0].driver).c_str(), tables_text(results, columns(stdout)).c_str());
  const std::string drawing = stem_in(out, files.front()) + ".svg";
  if (auto error = write_text(drawing, plot_svg(results))) return error;
  remark("drawing: " + drawing);
  return kDone;
}

}  // namespace

void add_tables(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("tables", "run a list of tables with asked figures (bench/hopper.txt)");
  auto tables = std::make_shared<Tables>();
  sub->add_option("list", tables->list, "the list")->required();
  sub->add_option("--only", tables->only, "names of tables, by commas, in this order");
  sub->add_flag("--append", tables->append, "keep the lines of earlier runs in the .jsonl");
  tables->shared.add_to(*sub);
  tables->shared.where.add_cache(*sub);
  commands.push_back({sub, [tables] { return report(tables->run()); }});
}

void add_render(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("render", "print tables and draw their plot from .jsonl files");
  auto render = std::make_shared<Render>();
  sub->add_option("files", render->files, "results of `trigen-lab tables`")->required();
  sub->add_option("--out", render->out, "folder of the .svg (build/bench)");
  sub->add_flag("--asked", render->asked, "also the list's goals, and whether they were met");
  commands.push_back({sub, [render] { return report(render->run()); }});
}

}  // namespace trigen::cli
