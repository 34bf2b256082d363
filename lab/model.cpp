// trigen-lab model: the cost model held against recordings, and its rates fitted to them.
#include <cstdio>
#include <optional>

#include "cache/host.h"
#include "check/text.h"
#include "cli/table.h"
#include "cli/target_options.h"
#include "lab/commands.h"
#include "lab/dense_check.h"
#include "lab/model_clock.h"
#include "lab/model_fit.h"

namespace trigen::cli {
namespace {

std::string percent(double share) { return format("%.1f %%", 100 * share); }

struct Model {
  std::vector<std::string> paths;
  std::string output, start;
  FitOptions fit_options;
  std::string role;
  bool json = false, verbose = false, terms = false, clock = false;
  TargetOptions where;
  int folds = 0;
  std::vector<std::string> families;
  std::vector<double> asked;  // per cent: in the median, for nine in ten, at worst

  static void print_choices(const ModelFigures& figures) {
    Table table({">loss", "?role", ">chosen", "?>predicted", ">best", "=problem", "?=first choice",
                 "?=best measured"});
    for (const UntunedChoice& c : figures.choices)
      table.add({percent(c.loss()), c.role, format_seconds(c.chosen_us * 1e-6),
                 format_seconds(c.predicted_us * 1e-6), format_seconds(c.best_us * 1e-6), c.problem, c.chosen,
                 c.best});
    table.print();
    std::printf("\n");
  }

  static void print_families(const ModelFigures& figures) {
    Table table({"family", "op", ">problems", "?>candidates", ">rank", "?>log error", "?>bias",
                 ">first: median", ">nine in ten", ">worst", "?>first 8: median", "?>worst"});
    for (const FamilyFigures& f : figures.families) {
      // too few candidates a problem have no order
      const auto ordered = [&](const std::string& text) { return f.ranked > 0 ? text : "-"; };
      table.add({f.family, f.op, std::to_string(f.problems), std::to_string(f.candidates),
                 ordered(format("%.2f", f.rank)), format("%.2f", f.error), format("%+.2f", f.bias),
                 ordered(percent(f.first.median)), ordered(percent(f.first.nine_in_ten)),
                 ordered(percent(f.first.worst)), ordered(percent(f.first_8.median)),
                 ordered(percent(f.first_8.worst))});
    }
    table.print();
  }

  static void print_losses(const std::vector<std::pair<std::string, Losses>>& rows) {
    Table table({"over all families", ">problems", ">median", ">nine in ten", ">worst", "worst problem"});
    for (const auto& [name, losses] : rows)
      table.add({name, std::to_string(losses.problems), percent(losses.median), percent(losses.nine_in_ten),
                 percent(losses.worst), losses.worst_problem});
    table.print();
  }

  // Every recorded candidate of the problems, with what the model makes its time of.
  static void print_terms(const std::vector<RecordedSpace>& spaces, const std::string& role,
                          const Rates* rates) {
    for (const RecordedSpace& space : spaces) {
      if (!role.empty() && space.role != role) continue;
      DeviceModel device = model_of(*space.target);
      if (rates != nullptr) device.rates = rates;
      std::printf("%s\n", to_string(space.problem).c_str());
      Table table(
          {">measured", ">predicted", ">blocks", ">tail", ">memory", ">l2", ">fixed", "us: candidate"});
      const auto us = [](double seconds) { return format("%.1f", seconds * 1e6); };
      for (const RecordedSpace::Row& row : space.rows) {
        const Prediction p = predict(row.work, *space.target, device);
        table.add({us(row.us * 1e-6), us(p.seconds), us(p.compute_s), us(p.tail_s), us(p.dram_s), us(p.l2_s),
                   us(p.fixed_s), row.text});
      }
      table.print();
    }
  }

  llvm::Expected<std::vector<RecordedSpace>> spaces_there() const {
    auto recordings = read_recordings(paths);
    if (!recordings) return recordings.takeError();
    std::vector<RecordedSpace> spaces;
    for (const Recording& recording : *recordings) {
      auto space = space_of(recording);
      if (!space) return with_prefix(space.takeError(), recording.problem);
      spaces.push_back(std::move(*space));
    }
    return spaces;
  }

  // The table to begin with: the file that was named, else the embedded one of the recordings' device.
  llvm::Expected<std::string> first_table(const RecordedSpace& space) const {
    if (start.empty()) {
      const std::string name = space.target->model_device.lower() + ".txt";
      for (const RatesFile& file : rates_files())
        if (file.name == name) return file.text.str();
      return make_error(ErrorKind::kBadRequest, "no table of rates is " + name + "; name one with --rates");
    }
    return cache::read_input(start, "the rates ", "name what `trigen-lab model fit -o` wrote");
  }

  llvm::Expected<int> fit() {
    auto spaces = spaces_there();
    if (!spaces) return spaces.takeError();
    auto table = first_table(spaces->front());
    if (!table) return table.takeError();
    fit_options.progress = [](int sweep, double objective) {
      remark(format("sweep %d: objective %.4f", sweep + 1, objective));
    };
    if (folds > 1) {
      auto held = cross_validate(*table, *spaces, folds, fit_options);
      if (!held) return held.takeError();
      if (verbose) print_choices(*held);
      print_losses({{format("untuned choice, %d folds", folds), held->untuned}});
      return kDone;
    }
    auto fitted = fit_rates(*table, *spaces, fit_options);
    if (!fitted) return fitted.takeError();
    Table changes({"section", "rate", ">before", ">after", "unit"});
    for (const FittedRate& r : fitted->changes)
      changes.add({r.section, r.name, format("%.3g", r.before), format("%.3g", r.after), r.unit});
    changes.print();
    std::printf("objective %.4f before, %.4f after\n", fitted->before, fitted->after);
    if (output.empty()) return kDone;
    if (auto error = write_text(output, fitted->table)) return error;
    return kDone;
  }

  llvm::Expected<int> dense() const {
    auto there = read_dense_rows(paths);
    if (!there) return there.takeError();
    std::string text;
    for (const RatesFile& file : rates_files())
      if (file.name == "h200.txt") text = file.text.str();
    auto rates = Rates::parse(text);
    if (!rates) return rates.takeError();
    if (!output.empty()) {
      auto fitted = fit_dense(text, *there);
      if (!fitted) return fitted.takeError();
      std::printf("mean error %.4f before, %.4f after\n", fitted->before, fitted->after);
      if (auto error = write_text(output, fitted->table)) return error;
      rates = Rates::parse(fitted->table);
    }
    if (verbose) {
      Table rows(
          {">measured", ">estimated", ">untuned", ">predicted", ">tuned", "half", "GPU", "peer", "=problem"});
      const auto us = [](double time) { return time > 0 ? format("%.1f", time) : "-"; };
      for (const DenseRow& row : *there)
        rows.add({us(row.dense_us), us(estimated_us(row, &*rates)), us(row.untuned_us), us(row.predicted_us),
                  us(row.tuned_us), row.held ? "held" : "fit", row.gpu->model_device.str(), row.peer,
                  short_text(row.problem)});
      rows.print();
    }
    Table figures({"GPU", "half", ">rows", ">median error", ">nine in ten", ">within 15 %", ">of predictions",
                   ">wrong for trigen", ">for dense", ">too close", ">of tuned", ">wrong for trigen",
                   ">for dense", ">too close"});
    for (const DenseFigures& f : dense_figures(*there, &*rates)) {
      std::vector<std::string> cells = {f.gpu,
                                        f.held ? "held out" : "fit",
                                        std::to_string(f.rows),
                                        percent(f.error),
                                        percent(f.nine_in_ten),
                                        percent(f.within)};
      for (const DenseFigures::Verdicts& v : {f.predicted, f.timed})
        for (const size_t count : {v.rows, v.wrong_triangle, v.wrong_dense, v.close})
          cells.push_back(std::to_string(count));
      figures.add(cells);
    }
    figures.print();
    return kDone;
  }

  // Estimates and the clock on the same candidates.
  llvm::Expected<int> check_clock(std::vector<RecordedSpace> spaces) const {
    if (!role.empty()) llvm::erase_if(spaces, [&](const RecordedSpace& space) { return space.role != role; });
    auto store = where.open_store();
    auto clocked = clock_spaces(spaces, *store, [](size_t done, size_t all) {
      if (done % 20 == 0 || done == all) remark(format("clocked %zu of %zu", done, all));
    });
    if (!clocked) return clocked.takeError();
    if (clocked->spaces.empty())
      return make_error(ErrorKind::kBadRequest, "no recording there has a candidate that the clock reads");
    for (const std::string& text : clocked->refused) remark(text);
    const ModelFigures estimates = check_predictions(clocked->spaces, clocked->estimated_us);
    const ModelFigures clock = check_predictions(clocked->spaces, clocked->clocked_us);
    if (terms) {
      Table table({">measured", ">estimated", ">clocked", "us: candidate"});
      for (size_t i = 0; i < clocked->spaces.size(); ++i)
        for (size_t j = 0; j < clocked->spaces[i].rows.size(); ++j)
          table.add({format("%.1f", clocked->spaces[i].rows[j].us),
                     format("%.1f", clocked->estimated_us[i][j]), format("%.1f", clocked->clocked_us[i][j]),
                     clocked->spaces[i].rows[j].text});
      table.print();
    }
    std::printf("estimates\n");
    print_families(estimates);
    std::printf("\nclock\n");
    print_families(clock);
    return kDone;
  }

  // The choice among these families alone, as on a GPU that has no others.
  llvm::Error keep_families(std::vector<RecordedSpace>& spaces) const {
    for (const std::string& name : families)
      if (auto family = find_family(name); !family) return with_prefix(family.takeError(), "--families");
    for (RecordedSpace& space : spaces) {
      llvm::erase_if(space.rows, [&](const RecordedSpace::Row& row) {
        return !llvm::is_contained(families, row.candidate.family->name());
      });
    }
    llvm::erase_if(spaces, [](const RecordedSpace& space) { return space.rows.empty(); });
    return llvm::Error::success();
  }

  // Whether the untuned choices are as good as asked; says so.
  bool meets_asked(const ModelFigures& figures) const {
    const Losses& got = figures.untuned;
    const bool met =
        100 * got.median <= asked[0] && 100 * got.nine_in_ten <= asked[1] && 100 * got.worst <= asked[2];
    std::string line = format("asked: %g %% in the median, %g %% for nine in ten, %g %% at worst; %s",
                              asked[0], asked[1], asked[2], met ? "met" : "missed");
    for (const UntunedChoice& choice : figures.choices)
      if (100 * choice.loss() > asked[2])
        line += format("\n  %s ", percent(choice.loss()).c_str()) + choice.problem;
    remark(line, /*lines=*/true);
    return met;
  }

  llvm::Expected<int> check() const {
    auto there = spaces_there();
    if (!there) return there.takeError();
    if (!families.empty()) {
      if (auto error = keep_families(*there)) return error;
    }
    if (clock) return check_clock(std::move(*there));
    const std::vector<RecordedSpace>& spaces = *there;
    std::optional<Rates> others;
    if (!start.empty()) {
      auto text = first_table(spaces.front());
      if (!text) return text.takeError();
      auto rates = Rates::parse(*text);
      if (!rates) return with_prefix(rates.takeError(), start);
      others = std::move(*rates);
    }
    if (terms) {
      print_terms(spaces, role, others ? &*others : nullptr);
      return kDone;
    }
    const bool of_all = !others && families.empty();  // the model's first of all candidates is asked about
    const ModelFigures figures = check_model(spaces, role, of_all, others ? &*others : nullptr);
    if (figures.choices.empty())
      return make_error(ErrorKind::kBadRequest, "no recording there has the role " + role);
    if (json)
      std::printf("%s\n", to_json(figures).c_str());
    else
      print_figures(figures, of_all);
    return asked.empty() || meets_asked(figures) ? kDone : kFailure;
  }

  void print_figures(const ModelFigures& figures, bool of_all) const {
    if (verbose) print_choices(figures);
    print_families(figures);
    std::printf("\n");
    std::vector<std::pair<std::string, Losses>> rows = {{"untuned choice", figures.untuned},
                                                        {"best of the first 8", figures.untuned_8}};
    if (of_all) rows.insert(rows.begin() + 1, {"untuned choice, where it was timed", figures.recorded});
    print_losses(rows);
    if (of_all && figures.recorded.problems < figures.choices.size())
      std::printf(
          "of %zu problems the first of all legal candidates was not timed: what stands for it is the first "
          "that was\n",
          figures.choices.size() - figures.recorded.problems);
  }
};

}  // namespace

void add_model(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("model", "compare the cost model with recorded times, or refit it");
  sub->require_subcommand(1);
  auto model = std::make_shared<Model>();
  CLI::App* check = sub->add_subcommand(
      "check", "predict every recorded candidate anew: order, error, and losses of the first choices");
  check->add_option("recordings", model->paths, "files, or folders with them (tests/data); a sweep's .jsonl")
      ->required();
  check->add_option("--role", model->role, "of the recordings that count: fit or check (all)")
      ->check(one_word_of({"fit", "check"}));
  check->add_option("--rates", model->start, "another table than the embedded one of the device")
      ->type_name("FILE");
  check
      ->add_option("--families", model->families,
                   "choose among these alone, by commas, as a GPU without the others")
      ->delimiter(',')
      ->type_name("NAME");
  check
      ->add_option(
          "--ask", model->asked,
          "per cent that the untuned choice may lose in the median, for nine in ten and at worst, by commas: "
          "exit code 1 where it loses more")
      ->delimiter(',')
      ->expected(3)
      ->check(CLI::NonNegativeNumber)
      ->type_name("M,N,W");
  check->add_flag("-v,--verbose", model->verbose, "print every problem's choice");
  check->add_flag("--terms", model->terms, "print every candidate's time and the model's terms of it");
  check->add_flag("--clock", model->clock,
                  "also compile the tile families' candidates and clock their main loops (needs nvdisasm)");
  model->where.add_cache(*check);
  check->add_flag("--json", model->json, "figures as JSON on standard output");
  commands.push_back({check, [model] { return report(model->check()); }});
  CLI::App* fit = sub->add_subcommand(
      "fit",
      "fit the device's rates (generator/rates/) to the recordings of role fit, and print the changes");
  fit->add_option("recordings", model->paths, "files, or folders with them (tests/data)")->required();
  fit->add_option("--rates", model->start, "table of rates to begin with (the embedded one of the device)")
      ->type_name("FILE");
  fit->add_option("-o,--output", model->output, "file for the fitted table")->type_name("FILE");
  fit->add_option(
         "--folds", model->folds,
         "fit to all but one of so many parts of the role fit, each part in turn, and print what the "
         "choices of the part left out lose; writes nothing")
      ->type_name("N");
  fit->add_flag("-v,--verbose", model->verbose, "with --folds: print every problem's choice");
  fit->add_option("--sweeps", model->fit_options.sweeps, "over all rates, at most (20)");
  commands.push_back({fit, [model] { return report(model->fit()); }});
  CLI::App* dense = sub->add_subcommand(
      "dense", "hold the estimate of the dense product against recorded peers: error, and who is faster");
  dense->add_option("results", model->paths, "results of `trigen-lab sweep` (bench/results)")
      ->required()
      ->type_name("FILE");
  dense
      ->add_option("-o,--output", model->output,
                   "fit [dense] of the rates to the rows that are not held out, and write the table there")
      ->type_name("FILE");
  dense->add_flag("-v,--verbose", model->verbose, "print every row");
  commands.push_back({dense, [model] { return report(model->dense()); }});
}

}  // namespace trigen::cli
