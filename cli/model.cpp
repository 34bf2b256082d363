// trigen model: the cost model held against recordings.
#include <cstdio>

#include "cli/command.h"
#include "cli/table.h"
#include "tuner/model_check.h"
#include "check/text.h"

namespace trigen::cli {
namespace {

std::string percent(double share) { return format("%.1f %%", 100 * share); }

struct Model {
  std::vector<std::string> paths;
  std::string role;
  bool json = false, verbose = false;

  static void print_choices(const ModelFigures& figures) {
    Table table(
        {">loss", "role", ">chosen", ">predicted", ">best", "problem", "first choice", "best measured"});
    for (const UntunedChoice& c : figures.choices)
      table.add({percent(c.loss()), c.role, format_seconds(c.chosen_us * 1e-6),
                 format_seconds(c.predicted_us * 1e-6), format_seconds(c.best_us * 1e-6), c.problem, c.chosen,
                 c.best});
    table.print();
    std::printf("\n");
  }

  static void print_families(const ModelFigures& figures) {
    Table table({"family", "op", ">problems", ">candidates", ">rank", ">log error", ">bias", ">first: median",
                 ">worst", ">first 8: median", ">worst"});
    for (const FamilyFigures& f : figures.families) {
      // too few candidates a problem have no order
      const auto ordered = [&](const std::string& text) { return f.ranked > 0 ? text : "-"; };
      table.add({f.family, f.op, std::to_string(f.problems), std::to_string(f.candidates),
                 ordered(format("%.2f", f.rank)), format("%.2f", f.error), format("%+.2f", f.bias),
                 ordered(percent(f.first.median)), ordered(percent(f.first.worst)),
                 ordered(percent(f.first_8.median)), ordered(percent(f.first_8.worst))});
    }
    table.print();
  }

  llvm::Expected<int> check() const {
    auto recordings = read_recordings(paths);
    if (!recordings) return recordings.takeError();
    std::vector<RecordedSpace> spaces;
    for (const Recording& recording : *recordings) {
      auto space = space_of(recording);
      if (!space) return with_prefix(space.takeError(), recording.problem);
      spaces.push_back(std::move(*space));
    }
    const ModelFigures figures = check_model(spaces, role, true);
    if (figures.choices.empty())
      return make_error(ErrorKind::kBadRequest, "no recording there has the role " + role);
    if (json) {
      std::printf("%s\n", to_json(figures).c_str());
      return kDone;
    }
    if (verbose) print_choices(figures);
    print_families(figures);
    Table table({"over all families", ">problems", ">median", ">nine in ten", ">worst", "worst problem"});
    for (const auto& [name, losses] :
         {std::pair("untuned choice", figures.untuned), std::pair("best of the first 8", figures.untuned_8)})
      table.add({name, std::to_string(losses.problems), percent(losses.median), percent(losses.nine_in_ten),
                 percent(losses.worst), losses.worst_problem});
    std::printf("\n");
    table.print();
    std::printf("the first of all legal candidates is among the recorded ones for %zu of %zu problems\n",
                figures.recorded, figures.choices.size());
    return kDone;
  }
};

}  // namespace

void add_model(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("model", "hold the cost model against recordings of a device");
  sub->require_subcommand(1);
  auto model = std::make_shared<Model>();
  CLI::App* check = sub->add_subcommand(
      "check", "predict every recorded candidate anew: order, error, and what the first choices lose");
  check->add_option("recordings", model->paths, "files, or folders with them (tests/data)")
      ->required()
      ->type_name("PATH");
  check->add_option("--role", model->role, "of the recordings that count: fit or check (all)")
      ->check(CLI::IsMember({"fit", "check"}));
  check->add_flag("-v,--verbose", model->verbose, "print every problem's choice");
  check->add_flag("--json", model->json, "figures as JSON on standard output");
  commands.push_back({check, [model] {
                        auto code = model->check();
                        return code ? *code : report(code.takeError());
                      }});
}

}  // namespace trigen::cli
