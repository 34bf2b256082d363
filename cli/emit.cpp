// trigen emit: the source of a kernel, what the compiler makes of it, or why this one.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "check/text.h"
#include "cli/command.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/target_options.h"
#include "cli/terminal.h"
#include "generator/cost/cost.h"
#include "generator/cost/dense.h"
#include "generator/slow_path.h"
#include "llvm/ADT/STLExtras.h"
#include "runtime/compile.h"

namespace trigen::cli {
namespace {

struct Emit {
  ProblemOptions problems;
  TargetOptions where;
  bool ptx = false, cubin = false, log = false, explain = false, generic = false, as_json = false;
  size_t rows = 20;
  std::string output;

  llvm::Expected<const Target*> find() const {
    auto target = where.target();
    if (!target || *target != nullptr) return target;
    std::string why;
    auto device = where.open_device(why);
    if (!device) return device.takeError();
    if (*device != nullptr) return &(*device)->target();
    return make_error(ErrorKind::kBadRequest,
                      "no target is named and no device is here (" + why + "); add --arch sm_70");
  }

  llvm::Expected<Candidate> pick(const Problem& problem, const Target& target) const {
    auto choice = where.choice();
    if (!choice) return choice.takeError();
    if (choice->config) {
      auto one = make_candidate(problem, target, *choice->family, *choice->config);
      if (one) one->generic = choice->generic || generic;
      return one;
    }
    if (generic && choice->family == nullptr) return generic_candidate(problem, target);
    if (generic) {
      const auto config = choice->family->generic_config(problem, target);
      if (!config)
        return make_error(ErrorKind::kUnsupported,
                          choice->family->name() + " has no generic kernel for this problem");
      auto one = make_candidate(problem, target, *choice->family, *config);
      if (one) one->generic = true;
      return one;
    }
    auto list = list_candidates(problem, target, choice->family);
    if (!list) return list.takeError();
    return list->front();
  }

  llvm::Error write(llvm::StringRef content, bool binary) const {
    if (output.empty() || output == "-") {
      if (binary && output.empty())
        return make_error(ErrorKind::kBadRequest,
                          "a cubin is no text; name a file with -o, or -o - for standard output");
      std::fwrite(content.data(), 1, content.size(), stdout);
      return llvm::Error::success();
    }
    return write_text(output, content);
  }

  using Refusals = std::vector<std::pair<std::string, std::string>>;  // family, why not

  Refusals refusals(const Problem& problem, const Target& target, const TargetOptions::Choice& choice) const {
    Refusals out;
    for (const Family* family : families()) {
      if (choice.family != nullptr && family != choice.family) continue;
      std::optional<std::string> reason;
      if (!family->serves(target)) {
        reason = "does not run on " + target.name.str();
      } else if (choice.config) {
        reason = family->reject(problem, target, *choice.config);
      } else if (family->configs(problem, target).empty()) {
        const auto config = family->generic_config(problem, target);
        reason = config ? family->reject(problem, target, *config).value_or("no config fits these sizes")
                        : std::string("has no kernel for this problem");
      }
      if (reason) out.emplace_back(family->name().str(), *reason);
    }
    return out;
  }

  llvm::Error explain_choice(const Problem& problem, const Target& target) const {
    auto choice = where.choice();
    if (!choice) return choice.takeError();
    const Refusals refused = refusals(problem, target, *choice);
    if (!as_json) {
      std::printf("%s on %s\n\n", to_string(problem).c_str(), target.name.data());
      std::vector<std::pair<std::string, std::string>> alike;  // reason, families
      for (const auto& [family, reason] : refused) {
        const auto same =
            llvm::find_if(alike, [&reason = reason](const auto& row) { return row.first == reason; });
        if (same == alike.end())
          alike.emplace_back(reason, family);
        else
          same->second += ", " + family;
      }
      Table table({"why not", "families"});
      for (const auto& [reason, names] : alike) table.add({reason, names});
      if (!table.empty()) table.print();
      if (!table.empty()) std::printf("\n");
    }
    std::vector<Candidate> list;
    if (choice->config) {
      auto one = pick(problem, target);
      if (!one) return one.takeError();
      list.push_back(*one);
    } else {
      auto all = list_candidates(problem, target, choice->family);
      if (!all) return all.takeError();
      list = std::move(*all);
    }
    if (as_json)
      print_json(problem, target, refused, list);
    else
      print_ranking(problem, list, target);
    return llvm::Error::success();
  }

  // Notes on the first choice, in words.
  static std::vector<std::string> notes(const Problem& problem, const Target& target,
                                        const std::vector<Candidate>& list) {
    const DeviceModel model = model_of(target);
    std::vector<std::string> all = {
        dense_remark(problem.op, {.seconds = predict(list.front(), model).seconds,
                                  .dense_s = dense_seconds(problem, target, model)}),
        slow_path_warning(list.front(), target)};
    llvm::erase_value(all, "");
    return all;
  }

  void print_json(const Problem& problem, const Target& target, const Refusals& refused,
                  const std::vector<Candidate>& list) const {
    using nlohmann::ordered_json;
    const Totals least = count_work(problem);
    ordered_json out = {{"problem", to_string(problem)},
                        {"target", target.name.str()},
                        {"model_device", target.model_device.str()},
                        {"least_read_bytes", least.min_bytes - least.min_written},
                        {"least_written_bytes", least.min_written},
                        {"dense_us", 1e6 * dense_seconds(problem, target, model_of(target))},
                        {"notes", notes(problem, target, list)},
                        {"refused", ordered_json::array()},
                        {"space", list.size()},
                        {"candidates", ordered_json::array()}};
    for (const auto& [family, reason] : refused)
      out["refused"].push_back({{"family", family}, {"reason", reason}});
    const DeviceModel model = model_of(target);
    const size_t count = rows == 0 ? list.size() : std::min(rows, list.size());
    for (size_t i = 0; i < count; ++i) {
      const Prediction p = predict(list[i], model);
      out["candidates"].push_back(
          {{"candidate", describe(list[i])},
           {"predicted_us", 1e6 * p.seconds},
           {"limit", p.limiter},
           {"compute_us", 1e6 * p.compute_s},
           {"dram_us", 1e6 * p.dram_s},
           {"l2_us", 1e6 * p.l2_s},
           {"tail_us", 1e6 * p.tail_s},
           {"fixed_us", 1e6 * p.fixed_s},
           {"blocks_per_sm", p.blocks_per_sm},
           {"shared_bytes", list[i].family->shared_bytes(list[i].problem, list[i].config)}});
    }
    std::printf("%s\n", out.dump(2, ' ', true, ordered_json::error_handler_t::replace).c_str());
  }

  void print_ranking(const Problem& problem, const std::vector<Candidate>& list, const Target& target) const {
    Table table({">rank", "=candidate", ">predicted", "limit", "?>compute", "?>dram", "?>l2", "?>tail",
                 "?>fixed", "?>blocks/sm", "?>shared"});
    const DeviceModel model = model_of(target);
    const size_t count = rows == 0 ? list.size() : std::min(rows, list.size());
    for (size_t i = 0; i < count; ++i) {
      const Prediction p = predict(list[i], model);
      table.add(
          {std::to_string(i + 1), describe(list[i]), format_seconds(p.seconds), p.limiter,
           format_seconds(p.compute_s), format_seconds(p.dram_s), format_seconds(p.l2_s),
           format_seconds(p.tail_s), format_seconds(p.fixed_s), std::to_string(p.blocks_per_sm),
           format_bytes(static_cast<double>(list[i].family->shared_bytes(list[i].problem, list[i].config)))});
    }
    table.print();
    std::printf("\n");
    print_prose(format("%zu candidates; times are the model's for %s, before the compiler's report",
                       list.size(), target.model_device.data()));
    const double dense = dense_seconds(problem, target, model);
    if (dense > 0) print_prose(dense_product(problem.op) + ": " + format_seconds(dense) + " (estimated)");
    for (const std::string& text : notes(problem, target, list)) print_prose("note: " + text);
  }

  int run() const {
    auto problem = problems.problem();
    if (!problem) return report(problem.takeError());
    auto target = find();
    if (!target) return report(target.takeError());
    if (explain) {
      if (auto error = explain_choice(*problem, **target)) return report(std::move(error));
      return kDone;
    }
    auto candidate = pick(*problem, **target);
    if (!candidate) return report(candidate.takeError());
    if (!ptx && !cubin && !log) {
      if (auto error = write(render(*candidate).text, false)) return report(std::move(error));
      return kDone;
    }
    auto store = where.open_store();
    auto built = build(*candidate, *store);
    if (!built) return report(built.takeError());
    const std::string& content = cubin ? built->binary.cubin : ptx ? built->binary.ptx : built->binary.log;
    if (auto error = write(content, cubin)) return report(std::move(error));
    return kDone;
  }
};

}  // namespace

void add_emit(CLI::App& app, Commands& commands) {
  CLI::App* sub =
      app.add_subcommand("emit", "print a kernel's source, PTX or machine code, or explain the choice")
          ->group(kLookGroup);
  auto emit = std::make_shared<Emit>();
  emit->problems.add_to(*sub);
  emit->where.add_arch(*sub);
  emit->where.add_gpu(*sub);
  emit->where.add_device(*sub);
  emit->where.add_family(*sub);
  emit->where.add_cache(*sub);
  auto* kind = sub->add_option_group("What", "one of (default: the source)");
  kind->add_flag("--ptx", emit->ptx, "PTX");
  kind->add_flag("--cubin", emit->cubin, "machine code (needs -o)");
  kind->add_flag("--log", emit->log, "the compiler's log with its resource report");
  CLI::Option* const explain = kind->add_flag(
      "--explain", emit->explain, "the candidates with their predicted times, and why families were refused");
  kind->require_option(0, 1);
  sub->add_flag("--generic", emit->generic, "the shape-generic kernel");
  sub->add_option("--rows", emit->rows, "with --explain: candidates to print, 0 for all (20)")
      ->needs(explain);
  sub->add_flag("--json", emit->as_json, "with --explain: as JSON")->needs(explain);
  sub->add_option("-o,--output", emit->output, "file, - for standard output");
  commands.push_back({sub, [emit] { return emit->run(); }});
}

}  // namespace trigen::cli
