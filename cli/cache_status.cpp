// trigen cache status: what a fleet has tuned, its holes by kind of device and problem, and the time to fill
// them.
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "cache/fleet.h"
#include "check/text.h"
#include "cli/cache.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace trigen::cli {
namespace {

using cache::DeviceKind;
using cache::FleetAnswer;
using nlohmann::json;

constexpr double kUsualBudget = 60;  // seconds: of `tune`, where nothing says what a problem took

std::string text_of(const DeviceKind& kind) {
  if (kind.device.empty()) return kind.arch + ", predicted";
  return format("%s, %s, %d SMs", kind.arch.c_str(), kind.device.c_str(), kind.sms);
}

struct StatusVerb {
  ProblemOptions problems;
  std::string folder;
  std::vector<std::string> archs;
  size_t workers = 1, rows = 20;
  bool json_wanted = false;

  struct KindStatus {
    DeviceKind kind;
    size_t counts[4] = {};  // by FleetAnswer
    std::vector<std::string> holes;
    double problem_s = 0;
    bool guessed = false;
    double fill_s(size_t workers) const {
      const size_t rounds = (holes.size() + workers - 1) / workers;
      return problem_s * static_cast<double>(rounds);
    }
  };

  // Kinds that the fleet has, and the asked archs that it has nothing of.
  std::set<DeviceKind> kinds(const cache::Fleet& fleet, const std::vector<std::string>& asked) const {
    std::set<DeviceKind> all = fleet.kinds();
    for (const std::string& arch : asked)
      if (std::none_of(all.begin(), all.end(), [&](const DeviceKind& kind) { return kind.arch == arch; }))
        all.insert({arch, "", 0});
    if (asked.empty()) return all;
    for (auto at = all.begin(); at != all.end();)
      at = std::find(asked.begin(), asked.end(), at->arch) == asked.end() ? all.erase(at) : std::next(at);
    return all;
  }

  static KindStatus status_of(const cache::Fleet& fleet, const DeviceKind& kind,
                              const std::vector<Problem>& list) {
    KindStatus status;
    status.kind = kind;
    for (const Problem& problem : list) {
      const std::string text = to_string(problem);
      ++status.counts[static_cast<int>(fleet.answer(text, kind))];
      if (fleet.is_hole(text, kind)) status.holes.push_back(text);
    }
    const std::vector<double> seconds = fleet.seconds_of(kind);
    status.guessed = seconds.empty();
    const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
    status.problem_s = seconds.empty() ? kUsualBudget : sum / static_cast<double>(seconds.size());
    return status;
  }

  void print(const std::vector<KindStatus>& all, size_t problem_count, size_t shards) const {
    Table table({"kind of device", ">problems", ">measured", ">near", ">predicted", ">nothing", ">holes",
                 ">a problem takes", ">time to fill"});
    bool guessed = false;
    for (const KindStatus& s : all) {
      const auto count = [&](FleetAnswer answer) {
        return std::to_string(s.counts[static_cast<int>(answer)]);
      };
      guessed |= s.guessed && !s.holes.empty();
      table.add({text_of(s.kind), std::to_string(problem_count), count(FleetAnswer::kMeasured),
                 count(FleetAnswer::kNear), count(FleetAnswer::kPredicted), count(FleetAnswer::kNone),
                 std::to_string(s.holes.size()), s.guessed ? "-" : format("%.0f s", s.problem_s),
                 s.holes.empty() ? "-" : (s.guessed ? "~ " : "") + format_duration(s.fill_s(workers))});
    }
    table.print();
    std::printf("\n");
    print_prose(counted(static_cast<int64_t>(shards), "shard") + "; time to fill with " +
                counted(static_cast<int64_t>(workers), "device") + " of each kind" +
                (guessed ? ", ~ at the budget of 60 s a problem where none was measured" : ""));
    std::map<std::string, std::string> lacking;  // problem -> kinds
    std::vector<std::string> order;
    for (const KindStatus& s : all) {
      for (const std::string& problem : s.holes) {
        std::string& text = lacking[problem];
        if (text.empty()) order.push_back(problem);
        text += (text.empty() ? "" : "; ") + text_of(s.kind);
      }
    }
    if (order.empty()) return;
    Table holes({"=hole", "of"});
    for (size_t i = 0; i < order.size() && (rows == 0 || i < rows); ++i)
      holes.add({order[i], lacking[order[i]]});
    std::printf("\n");
    holes.print();
    if (rows != 0 && order.size() > rows)
      std::printf("... and %zu more problems; --rows 0 prints all\n", order.size() - rows);
  }

  void print_json(const std::vector<KindStatus>& all, size_t shards) const {
    json kinds = json::array();
    for (const KindStatus& s : all)
      kinds.push_back({{"arch", s.kind.arch},
                       {"device", s.kind.device},
                       {"sms", s.kind.sms},
                       {"measured", s.counts[static_cast<int>(FleetAnswer::kMeasured)]},
                       {"near", s.counts[static_cast<int>(FleetAnswer::kNear)]},
                       {"predicted", s.counts[static_cast<int>(FleetAnswer::kPredicted)]},
                       {"none", s.counts[static_cast<int>(FleetAnswer::kNone)]},
                       {"holes", s.holes},
                       {"problem_s", s.guessed ? json() : json(s.problem_s)},
                       {"fill_s", s.fill_s(workers)}});
    const json out = {{"shards", shards}, {"workers", workers}, {"kinds", kinds}};
    std::printf("%s\n", out.dump(2, ' ', true, json::error_handler_t::replace).c_str());
  }

  llvm::Expected<int> run() const {
    auto list = problems.problems("core");
    if (!list) return list.takeError();
    auto asked = parse_archs(archs);
    if (!asked) return asked.takeError();
    auto fleet = cache::Fleet::open(folder);
    if (!fleet) return fleet.takeError();
    const std::vector<std::string> troubles = fleet->refresh();
    for (const std::string& trouble : troubles) remark("warning: " + trouble);
    const std::set<DeviceKind> of = kinds(*fleet, *asked);
    if (of.empty())
      return make_error(ErrorKind::kCache,
                        "the fleet's folder '" + folder +
                            "' holds no shard; `trigen tune --fleet` puts some there, --arch "
                            "names targets to count the holes of");
    std::vector<KindStatus> all;
    size_t holes = 0;
    for (const DeviceKind& kind : of) {
      all.push_back(status_of(*fleet, kind, *list));
      holes += all.back().holes.size();
    }
    if (json_wanted)
      print_json(all, fleet->shards());
    else
      print(all, list->size(), fleet->shards());
    return holes > 0 || !troubles.empty() ? kFailure : kDone;
  }
};

}  // namespace

void add_cache_status(CLI::App& cache, Commands& commands) {
  auto verb = std::make_shared<StatusVerb>();
  CLI::App* app = cache.add_subcommand("status",
                                       "a fleet's problems not yet measured, per kind of device, with an "
                                       "estimate of the time left; exit 1 if any");
  verb->problems.add_to(*app);
  app->add_option("--fleet", verb->folder, "the folder of the fleet's shards")
      ->required()
      ->type_name("FOLDER");
  app->add_option("--arch,--target", verb->archs,
                  "these targets alone, separated by commas, tuned or not (all that the fleet has)")
      ->group("Target")
      ->allow_extra_args(false);
  app->add_option("--workers", verb->workers, "devices of each kind that fill the holes (1)")
      ->check(CLI::PositiveNumber);
  app->add_option("--rows", verb->rows, "holes that are printed at most, 0 for all (20)");
  app->add_flag("--json", verb->json_wanted, "as JSON, with every hole");
  commands.push_back({app, [verb] { return report(verb->run()); }});
}

}  // namespace trigen::cli
