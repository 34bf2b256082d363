// trigen cache path: the file that is written, all that are read, or the one that answers a problem.
#include <cstdio>

#include "cli/cache.h"
#include "cli/problem_options.h"
#include "runtime/coverage.h"

namespace trigen::cli {
namespace {

llvm::Expected<int> answering(const Problem& problem, const TargetOptions& where, Store& store) {
  auto target = where.target();
  if (!target) return target.takeError();
  if (*target == nullptr)
    return make_error(ErrorKind::kBadRequest, "no target is named; add --arch, for example --arch sm_70");
  const CoverageAnswer answer = Coverage(store, std::nullopt).answer(problem, **target);
  if (answer.match == Match::kNone || answer.layer.empty())
    return make_error(ErrorKind::kCache,
                      "no record answers " + to_string(problem) + ": " + answer.why +
                          "; `trigen tune` makes one, `trigen cache path --all` lists where was looked");
  std::printf("%s\n", answer.layer.c_str());
  if (!answer.why.empty()) remark(answer.why);
  return kDone;
}

llvm::Expected<int> print_paths(const ProblemOptions& problems, const TargetOptions& where, bool all) {
  auto store = where.open_store(true);
  if (problems.any()) {
    auto problem = problems.problem();
    if (!problem) return problem.takeError();
    return answering(*problem, where, *store);
  }
  bool written = false;
  for (const LayerInfo& layer : store->layers()) {
    if (all || layer.user_layer) std::printf("%s\n", layer.path.c_str());
    written = written || layer.user_layer;
  }
  if (!written && !all) std::printf("\n");
  return kDone;
}

}  // namespace

void add_cache_path(CLI::App& cache, Commands& commands) {
  auto where = std::make_shared<TargetOptions>();
  auto problems = std::make_shared<ProblemOptions>();
  auto all = std::make_shared<bool>(false);
  CLI::App* path = cache.add_subcommand(
      "path", "the file that is written; with a problem and --arch: the layer that answers it");
  problems->add_to(*path);
  where->add_arch(*path);
  where->add_cache(*path);
  path->add_flag("--all", *all, "every layer, in the order of look-ups");
  commands.push_back({path, [=] { return report(print_paths(*problems, *where, *all)); }});
}

}  // namespace trigen::cli
