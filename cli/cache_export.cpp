// trigen cache export, import, merge: bundles made, taken in, and made of several.
#include <cstdio>

#include "cache/bundle.h"
#include "cache/fleet.h"
#include "cache/upkeep.h"
#include "check/text.h"
#include "cli/cache.h"
#include "cli/problem_options.h"
#include "cli/terminal.h"
#include "generator/names.h"
#include "llvm/Support/FileSystem.h"

namespace trigen::cli {
namespace {

// Damaged rows: an error, unless they are to be left out.
llvm::Error judge_damage(const std::vector<std::string>& damaged, bool skip) {
  for (const std::string& line : damaged) remark("warning: " + line);
  if (damaged.empty() || skip) return llvm::Error::success();
  return make_error(ErrorKind::kCache,
                    "found " + std::to_string(damaged.size()) +
                        " damaged rows, and wrote nothing; put them again (`trigen tune`), or "
                        "leave them out with --skip-damaged");
}

std::string counts_of(const cache::Contents& contents) {
  return counted(static_cast<int64_t>(contents.records.size()), "record") + ", " +
         counted(static_cast<int64_t>(contents.binaries.size()), "binary", "binaries");
}

llvm::Expected<int> write(const std::string& path, const cache::Contents& contents) {
  if (llvm::Error error = cache::write_bundle(path, contents, made_by())) return error;
  size_t unanswered = 0;
  for (const auto& [arch, problem] : contents.asked)
    if (contents.answer(arch, problem) == llvm::StringRef("none")) {
      if (++unanswered <= 10)
        remark(format("warning: no record of %s for %s", problem.c_str(), arch.c_str()));
    }
  std::printf("%s: %s, %zu of %zu asked problems answered\n", printable(path).c_str(),
              counts_of(contents).c_str(), contents.asked.size() - unanswered, contents.asked.size());
  return unanswered == 0 ? kDone : kFailure;
}

struct Export {
  ProblemOptions problems;
  TargetOptions where;
  std::vector<std::string> archs;
  std::string out;
  bool skip_damaged = false;

  llvm::Expected<cache::Contents> everything() const {
    std::vector<std::string> files;
    for (const LayerInfo& layer : where.open_store(true)->layers())
      if (layer.exists) files.push_back(layer.path);
    return cache::read_merged(files, cache::ReadFor::kRun, where.store_options(true));
  }

  llvm::Expected<int> run() const {
    auto names = parse_archs(archs);
    if (!names) return names.takeError();
    auto texts = problems.texts();
    if (!texts) return texts.takeError();
    auto date = making_date();
    if (!date) return date.takeError();
    auto all = everything();
    if (!all) return all.takeError();
    if (llvm::Error error = judge_damage(all->damaged, skip_damaged)) return error;
    all->select(*names, *texts);
    std::vector<std::string> left_out;
    all->keep_what_runs(left_out);
    all->clamp_dates(*date);
    for (const std::string& line : left_out) remark("warning: left out: " + line);
    if (all->records.empty())
      return make_error(ErrorKind::kCache,
                        "no record to export, and wrote nothing; `trigen tune` makes some, `trigen cache ls` "
                        "lists what is there");
    return write(out, *all);
  }
};

struct Merge {
  std::vector<std::string> inputs;
  std::string out, key;
  bool skip_damaged = false;

  llvm::Expected<int> run() const {
    std::optional<cache::Signer> signer;
    if (!key.empty()) {
      auto read = dated_signer(key);
      if (!read) return read.takeError();
      signer = *read;
    }
    std::vector<std::string> files;
    for (const std::string& path : inputs) {
      if (!llvm::sys::fs::is_directory(path)) {
        files.push_back(path);
        continue;
      }
      auto inside = cache::bundles_in(path);
      if (!inside) return inside.takeError();
      files.insert(files.end(), inside->begin(), inside->end());
    }
    if (files.empty())
      return make_error(ErrorKind::kCache, "no bundle in " + inputs.front() + ", and wrote nothing; " +
                                               "`trigen tune --fleet` puts some there");
    auto all = cache::read_merged(files, cache::ReadFor::kImport);
    if (!all) return all.takeError();
    if (llvm::Error error = judge_damage(all->damaged, skip_damaged)) return error;
    if (llvm::Error error = cache::write_bundle(out, *all, made_by())) return error;
    if (signer)
      if (llvm::Error error = cache::sign_file(out, *signer)) return error;
    std::printf("%s: %s of %s\n", printable(out).c_str(), counts_of(*all).c_str(),
                counted(static_cast<int64_t>(files.size()), "file").c_str());
    return kDone;
  }
};

struct Import {
  std::vector<std::string> inputs;
  TargetOptions where;
  bool skip_damaged = false;

  llvm::Expected<int> run() const {
    const Store::Options options = where.store_options();
    auto all = cache::read_merged(inputs, cache::ReadFor::kImport, options);
    if (!all) return all.takeError();
    if (llvm::Error error = judge_damage(all->damaged, skip_damaged)) return error;
    auto report = cache::import_contents(options, *all);
    if (!report) return report.takeError();
    std::printf("%s: took %s and %s; %s were there, as good or better\n", printable(report->layer).c_str(),
                counted(report->records, "record").c_str(),
                counted(report->binaries, "binary", "binaries").c_str(),
                counted(report->known, "row").c_str());
    return kDone;
  }
};

template <typename Verb>
void push(Commands& commands, CLI::App* app, std::shared_ptr<Verb> verb) {
  app->add_flag("--skip-damaged", verb->skip_damaged, "leave damaged rows out instead of failing");
  commands.push_back({app, [verb] { return report(verb->run()); }});
}

}  // namespace

void add_cache_export(CLI::App& cache, Commands& commands) {
  auto verb = std::make_shared<Export>();
  CLI::App* app = cache.add_subcommand("export", "write records and their binaries as one bundle, *.trigen");
  app->add_option("out", verb->out, "the bundle to write")->required()->type_name("NAME.trigen");
  app->add_option("--arch,--target", verb->archs, "targets, separated by commas (all that are there)")
      ->group("Target")
      ->allow_extra_args(false);
  verb->problems.add_to(*app, /*positional=*/false);
  verb->where.add_cache(*app);
  push(commands, app, verb);
}

void add_cache_import(CLI::App& cache, Commands& commands) {
  auto verb = std::make_shared<Import>();
  CLI::App* app =
      cache.add_subcommand("import", "take bundles and cache files into the file that is written");
  app->add_option("files", verb->inputs, "bundles or cache files")->required();
  verb->where.add_cache(*app);
  push(commands, app, verb);
}

void add_cache_merge(CLI::App& cache, Commands& commands) {
  auto verb = std::make_shared<Merge>();
  CLI::App* app = cache.add_subcommand("merge", "make one bundle of bundles and cache files");
  app->add_option("files", verb->inputs, "bundles, cache files and folders of bundles, in any order")
      ->required();
  app->add_option("-o,--output", verb->out, "the bundle to write")->required()->type_name("NAME.trigen");
  app->add_option("--sign", verb->key, "sign it with this secret key (`trigen cache keygen`)")
      ->type_name("KEY");
  push(commands, app, verb);
}

}  // namespace trigen::cli
