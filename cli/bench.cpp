// trigen bench: times kernels as the runtime would run them, beside cuBLAS.
#include <cstdio>

#include "check/text.h"
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
  sub->add_flag("--json", bench->json, "results with all samples as JSON on standard output");
  commands.push_back({sub, [bench] { return report(bench->run_all()); }});
}

}  // namespace trigen::cli
