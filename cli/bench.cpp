// trigen bench: times kernels as the runtime would run them, beside cuBLAS.
#include <cstdio>

#include "check/text.h"
#include "cli/bench_sweep.h"
#include "cli/bench_tables.h"
#include "cli/command.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/target_options.h"
#include "cli/terminal.h"
#include "peers/compare.h"
#include "peers/cublas.h"
#include "runtime/compile.h"

namespace trigen::cli {
namespace {

struct Bench {
  ProblemOptions problems;
  TargetOptions where;
  std::string against = "auto";
  int rounds = 31;
  std::optional<int64_t> first_row;
  bool no_jit = false, json = false;
  BenchTables tables;
  std::vector<std::string> render;
  std::string limit, row_time;
  bool no_check = false, asked = false;
  BenchSweep sweep;
  std::string budget;
  bool untuned = false, print_problems = false;

  // What tables and sweeps share.
  llvm::Expected<TableOptions> table_options(double& limit_s) {
    TableOptions options;
    for (const auto& [name, text, seconds] : {std::make_tuple("limit", &limit, &limit_s),
                                              std::make_tuple("row time", &row_time, &options.seconds)}) {
      if (text->empty()) continue;
      auto parsed = parse_duration(name, *text);
      if (!parsed) return parsed.takeError();
      *seconds = *parsed;
    }
    options.plan = plan_options_from_environment();
    options.plan.no_jit = options.plan.no_jit || no_jit;
    if (!where.arch.empty()) options.plan.target = where.arch;
    options.rounds = rounds;
    options.check = !no_check;
    options.cancel = &catch_interrupts();
    return options;
  }

  llvm::Expected<int> run_sweep() {
    if (print_problems) {
      auto list = sweep.problems();
      if (!list) return list.takeError();
      for (const Problem& problem : *list) std::printf("%s\n", short_text(problem).c_str());
      return kDone;
    }
    auto shared = table_options(sweep.limit_s);
    if (!shared) return shared.takeError();
    sweep.options.table = *shared;
    sweep.out = tables.out;
    auto device = Device::open(where.device);
    if (!device) return device.takeError();
    sweep.options.tune = !untuned && !(*device)->info().emulated;
    sweep.options.tuning.search.budget_s = 2;
    if (!budget.empty()) {
      auto seconds = parse_duration("budget", budget);
      if (!seconds) return seconds.takeError();
      sweep.options.tuning.search.budget_s = *seconds;
    }
    sweep.options.tuning.build.no_jit = sweep.options.table.plan.no_jit;
    sweep.options.tuning.cancel = sweep.options.table.cancel;
    return sweep.run(**device);
  }

  llvm::Expected<int> run_tables() {
    auto shared = table_options(tables.limit_s);
    if (!shared) return shared.takeError();
    tables.options = *shared;
    auto device = Device::open(where.device);
    if (!device) return device.takeError();
    auto store = where.open_store();
    return tables.run(**device, *store);
  }

  static void add_rows(Table& table, const Comparison& c) {
    for (size_t i = 0; i < c.arms.size(); ++i) {
      const ComparedArm& arm = c.arms[i];
      table.add({i == 0 ? c.problem : "", arm.name, format_seconds(arm.seconds.median),
                 format_seconds(arm.seconds.lower) + " - " + format_seconds(arm.seconds.upper),
                 i == 0 ? "1" : format("%.3f", arm.ratio),
                 arm.seconds.median > 0 ? format("%.0f %%", 100 * c.ceiling_s / arm.seconds.median) : "-",
                 arm.error >= 0 ? format("%.1e", arm.error) : "-",
                 i == 0 ? c.candidate + (c.provenance == Provenance::kMeasured ? ", measured" : ", predicted")
                        : arm.note});
    }
  }

  llvm::Expected<int> run_all() {
    if (!render.empty()) return render_tables(render, tables.out, asked);
    if (!tables.list.empty()) return run_tables();
    if (sweep.count > 0) return run_sweep();
    if (against != "auto" && against != "cublas" && against != "none") {
      return make_error(ErrorKind::kBadRequest,
                        "--against " + against + "; allowed are cublas, none and auto");
    }
    auto list = problems.problems();
    if (!list) return list.takeError();
    auto device = Device::open(where.device);
    if (!device) return device.takeError();
    if ((*device)->info().emulated) {
      return make_error(ErrorKind::kUnsupported,
                        "an emulated device has no time to measure; bench needs a real device");
    }
    bool cublas = against != "none";
    std::string missing;
    if (cublas) {
      auto library = CublasLibrary::load();
      if (!library) {
        missing = take_error(library.takeError()).message;
        if (against == "cublas") return make_error(ErrorKind::kUnsupported, missing);
        cublas = false;
      }
    }
    CompareOptions options;
    options.cublas = cublas;
    options.rounds = rounds;
    options.first_row = first_row;
    options.plan = plan_options_from_environment();
    options.plan.no_jit = options.plan.no_jit || no_jit;
    if (!where.arch.empty()) options.plan.target = where.arch;
    const std::atomic<bool>& interrupted = catch_interrupts();
    options.cancel = &interrupted;
    auto store = where.open_store();
    Table table(
        {"=problem", "arm", ">median", "?>quartiles", ">/ trigen", "?>of ceiling", "?>error", "?kernel"});
    std::string out;
    std::string peer;
    int failures = 0;
    bool cold = true;
    for (const Problem& problem : *list) {
      if (interrupted.load()) break;
      auto comparison = compare(problem, **device, *store, options);
      if (!comparison) {
        (void)report(comparison.takeError());
        ++failures;
        continue;
      }
      peer = comparison->peer_version;
      cold = cold && comparison->cold;
      for (const std::string& note : comparison->notes) remark("note: " + to_string(problem) + ": " + note);
      add_rows(table, *comparison);
      out += (out.empty() ? "\n" : ",\n") + comparison_json(*comparison);
      if (!json)
        remark(format("%s: %s", to_string(problem).c_str(),
                      format_seconds(comparison->arms[0].seconds.median).c_str()));
    }
    if (json) {
      std::printf("[%s\n]\n", out.c_str());
    } else {
      table.print();
      std::printf("\n");
      print_prose(format(
          "%s, driver %s%s%s; graph replays over rotating inputs%s, arms in turn, medians of %d rounds",
          (*device)->info().name.c_str(), (*device)->info().driver.c_str(), peer.empty() ? "" : ", ",
          peer.c_str(), cold ? " larger than the L2" : ", not all of them larger than the L2", rounds));
    }
    if (!missing.empty()) remark("note: " + missing);
    if (interrupted.load()) return interrupted_code();
    return failures > 0 ? kFailure : kDone;
  }
};

}  // namespace

void add_bench(CLI::App& app, Commands& commands) {
  CLI::App* sub =
      app.add_subcommand("bench", "time kernels on this device, beside cuBLAS")->group(kWorkGroup);
  auto bench = std::make_shared<Bench>();
  bench->problems.add_to(*sub);
  bench->where.add_arch(*sub);
  bench->where.add_device(*sub);
  bench->where.add_cache(*sub);
  sub->add_option("--against", bench->against,
                  "cublas (an error when it is not there), none, or auto (default)");
  sub->add_option("--rounds", bench->rounds, "rounds of the interleaved timing (31)")
      ->check(CLI::Range(5, 1000));
  sub->add_option("--first-row", bench->first_row,
                  "decode: the first row of the runs (the rows that read the most tokens)");
  sub->add_flag("--no-jit", bench->no_jit, "use the cache's kernels only, as TRIGEN_NO_JIT=1");
  const char* group = "Tables";
  sub->add_option("--tables", bench->tables.list,
                  "run a list of tables with asked figures (bench/hopper.txt)")
      ->group(group)
      ->type_name("FILE");
  sub->add_option("--only", bench->tables.only, "names of tables, by commas, in this order")->group(group);
  sub->add_option("--limit", bench->limit, "start no row after so long: 150s, 5m")->group(group);
  sub->add_option("--row-time", bench->row_time, "time for one row's rounds, at least 7 of them (1s)")
      ->group(group);
  sub->add_option("--out", bench->tables.out, "folder of the .jsonl and the .svg (build/bench)")
      ->group(group);
  sub->add_flag("--append", bench->tables.append, "keep the lines of earlier runs in the .jsonl")
      ->group(group);
  sub->add_flag("--no-check", bench->no_check, "time without checking results first")->group(group);
  sub->add_option("--render", bench->render,
                  "print tables and draw the plot (into --out) from .jsonl files, running nothing")
      ->group(group)
      ->type_name("FILE");
  sub->add_flag("--asked", bench->asked,
                "with --render: also what the list set as its goals, and whether they were met")
      ->group(group);
  const char* sweep_group = "Sweep";
  sub->add_option(
         "--sweep", bench->sweep.count,
         "so many problems drawn from a seed, untuned and tuned, beside every peer (with --out, --limit, "
         "--row-time; a cache of its own in the folder)")
      ->group(sweep_group)
      ->check(CLI::PositiveNumber);
  sub->add_option("--seed", bench->sweep.seed, "of the draw (1)")->group(sweep_group);
  sub->add_option(
         "--half", bench->sweep.half,
         "reported (default), or fitting: the sizes that are tuned and fitted on, and never reported")
      ->group(sweep_group);
  sub->add_option("--unseen", bench->sweep.unseen,
                  "leave out the sizes of these lists of problems or tables, recordings and results, which "
                  "choices were made on")
      ->group(sweep_group)
      ->type_name("FILE");
  sub->add_option("--budget", bench->budget, "time for one problem's tune (2s)")->group(sweep_group);
  sub->add_flag("--untuned", bench->untuned, "do not tune")->group(sweep_group);
  sub->add_flag("--print-problems", bench->print_problems, "print the problems, run nothing")
      ->group(sweep_group);
  sub->add_flag("--json", bench->json, "results with all samples as JSON on standard output");
  commands.push_back({sub, [bench] {
                        auto code = bench->run_all();
                        return code ? *code : report(code.takeError());
                      }});
}

}  // namespace trigen::cli
