// trigen cache coverage: which problems a cache answers without compiling, and why not.
#include "runtime/coverage.h"

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

#include "cli/cache.h"
#include "cli/problem_options.h"
#include "cli/table.h"

namespace trigen::cli {
namespace {

using nlohmann::json;

const char* word_of(const CoverageAnswer& answer) {
  return answer.match == Match::kExact  ? "exact"
         : answer.match == Match::kNone ? "none"
         : answer.predicted             ? "predicted"
                                        : "near";
}

struct CoverageVerb {
  ProblemOptions problems;
  TargetOptions where;
  std::vector<std::string> archs;
  std::string device_name, driver;
  int sms = 0;
  bool exact = false, json_wanted = false;

  // The named device's fields, or those of a device here when --device names one.
  llvm::Expected<std::optional<cache::DeviceQuery>> query() const {
    if (!where.device.empty()) {
      auto device = Device::open(where.device);
      if (!device) return device.takeError();
      const DeviceInfo& info = (*device)->info();
      return cache::DeviceQuery{info.name, info.sms, info.driver};
    }
    if (device_name.empty()) return std::nullopt;
    return cache::DeviceQuery{device_name, sms, driver};
  }

  llvm::Expected<int> run() const {
    auto list = problems.problems("core");
    if (!list) return list.takeError();
    auto names = parse_archs(archs);
    if (!names) return names.takeError();
    if (names->empty())
      return make_error(ErrorKind::kBadRequest,
                        "no target is named; add --arch, for example --arch sm_70,sm_90a");
    auto device = query();
    if (!device) return device.takeError();
    auto store = where.open_store(true);
    Coverage coverage(*store, *device);
    Table table({"=problem", "target", "answer", "provenance", "why"});
    json rows = json::array();
    std::map<std::string, size_t> counts;
    for (const std::string& arch : *names) {
      for (const Problem& problem : *list) {
        const CoverageAnswer answer = coverage.answer(problem, **find_target(arch));
        const char* const word = word_of(answer);
        ++counts[word];
        const std::string text = to_string(problem),
                          provenance = answer.provenance ? name_of(*answer.provenance) : "-";
        table.add({text, arch, word, provenance, answer.why});
        rows.push_back({{"problem", text},
                        {"arch", arch},
                        {"answer", word},
                        {"provenance", provenance},
                        {"candidate", answer.candidate},
                        {"layer", answer.layer},
                        {"why", answer.why}});
      }
    }
    if (json_wanted) {
      std::printf("%s\n", rows.dump(2, ' ', true, json::error_handler_t::replace).c_str());
    } else {
      table.print();
      std::printf("\n%zu exact, %zu predicted, %zu near, %zu none\n", counts["exact"], counts["predicted"],
                  counts["near"], counts["none"]);
    }
    const int state = health(store->layers());
    return counts["none"] + (exact ? counts["near"] + counts["predicted"] : 0) > 0 ? kFailure : state;
  }
};

}  // namespace

void add_cache_coverage(CLI::App& cache, Commands& commands) {
  auto verb = std::make_shared<CoverageVerb>();
  CLI::App* app = cache.add_subcommand(
      "coverage", "problems that run without compiling, and why others do not; exit 1 if any does not");
  verb->problems.add_to(*app);
  app->add_option("--arch,--target", verb->archs, "targets, separated by commas")
      ->group("Target")
      ->allow_extra_args(false);
  verb->where.add_cache(*app);
  verb->where.add_device(*app);
  app->add_option("--device-name", verb->device_name, "compare with this GPU model: \"NVIDIA H200\"");
  app->add_option("--sms", verb->sms, "with --device-name: its multiprocessors");
  app->add_option("--driver", verb->driver, "with --device-name: its driver, 580.159");
  app->add_flag("--exact", verb->exact, "fail for predicted and near answers, too");
  app->add_flag("--json", verb->json_wanted, "as JSON");
  commands.push_back({app, [verb] { return report(verb->run()); }});
}

}  // namespace trigen::cli
