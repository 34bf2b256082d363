// trigen cache rm, gc: what is taken out of the file that is written.
#include <cstdio>

#include "cache/upkeep.h"
#include "check/text.h"
#include "cli/cache.h"
#include "cli/problem_options.h"
#include "cli/terminal.h"
#include "generator/names.h"

namespace trigen::cli {
namespace {

struct Remove {
  ProblemOptions problems;
  TargetOptions where;
  std::vector<std::string> archs;
  bool all = false;

  llvm::Expected<int> run() const {
    auto names = parse_archs(archs);
    if (!names) return names.takeError();
    auto texts = problems.texts();
    if (!texts) return texts.takeError();
    if (texts->empty() && !all)
      return make_error(ErrorKind::kBadRequest,
                        "no problem is named; name some, or all of them with --all (and --arch)");
    std::string layer;
    auto removed = cache::remove_records(where.store_options(), *texts, *names, layer);
    if (!removed) return removed.takeError();
    std::printf("%s: removed %s\n", printable(layer).c_str(), counted(*removed, "record").c_str());
    return *removed > 0 ? kDone : kFailure;
  }
};

// "200M", "1.5G", "4096".
llvm::Expected<int64_t> parse_bytes(const std::string& text) {
  llvm::StringRef rest = text;
  rest.consume_back("B");
  rest.consume_back("i");
  double unit = 1, value = 0;
  for (const auto& [letter, power] : {std::pair("K", 10), std::pair("M", 20), std::pair("G", 30)})
    if (rest.consume_back(letter)) unit = static_cast<double>(int64_t{1} << power);
  if (rest.getAsDouble(value) || !(value >= 0) || value * unit > 1e15)
    return make_error(ErrorKind::kBadRequest,
                      "size '" + text + "'; allowed are bytes such as 4096, 200M or 1.5G; give one");
  return static_cast<int64_t>(value * unit);
}

struct Collect {
  TargetOptions where;
  std::string size;

  llvm::Expected<int> run() const {
    auto most = parse_bytes(size);
    if (!most) return most.takeError();
    auto report = cache::collect(where.store_options(), *most);
    if (!report) return report.takeError();
    std::printf("%s: removed %s and %s, %s -> %s\n", printable(report->layer).c_str(),
                counted(report->binaries, "binary", "binaries").c_str(),
                counted(report->records, "prediction").c_str(),
                format_bytes(static_cast<double>(report->bytes_before)).c_str(),
                format_bytes(static_cast<double>(report->bytes_after)).c_str());
    return kDone;
  }
};

}  // namespace

void add_cache_upkeep(CLI::App& cache, Commands& commands) {
  auto remove = std::make_shared<Remove>();
  CLI::App* rm = cache.add_subcommand("rm", "remove records from the file that is written");
  remove->problems.add_to(*rm);
  rm->add_option("--arch,--target", remove->archs, "targets, separated by commas (all)")
      ->group("Target")
      ->allow_extra_args(false);
  remove->where.add_cache(*rm);
  rm->add_flag("--all", remove->all, "every problem");
  commands.push_back({rm, [remove] { return report(remove->run()); }});
  auto collect = std::make_shared<Collect>();
  CLI::App* gc =
      cache.add_subcommand("gc", "remove the binaries that were not used for longest; measured records stay");
  gc->add_option("--max-size", collect->size, "the most that the file that is written may take: 200M, 1.5G")
      ->required()
      ->type_name("SIZE");
  collect->where.add_cache(*gc);
  commands.push_back({gc, [collect] { return report(collect->run()); }});
}

}  // namespace trigen::cli
