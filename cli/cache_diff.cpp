// trigen cache diff: what two cache files or bundles have that the other lacks.
#include <cstdio>

#include "cache/upkeep.h"
#include "check/text.h"
#include "cli/cache.h"
#include "cli/table.h"
#include "generator/names.h"

namespace trigen::cli {
namespace {

std::string fields_that_differ(const cache::RecordRow& a, const cache::RecordRow& b) {
  std::string text;
  const auto field = [&](const char* what, const std::string& left, const std::string& right) {
    if (left != right) text += (text.empty() ? "" : "; ") + std::string(what) + " " + left + " | " + right;
  };
  const Record &l = a.record, &r = b.record;
  field("choice", l.candidate, r.candidate);
  field("provenance", name_of(l.provenance), name_of(r.provenance));
  field("time", format_seconds(l.median_us * 1e-6), format_seconds(r.median_us * 1e-6));
  field("error", format("%.2e", l.error), format("%.2e", r.error));
  field("compiler", l.binary.compiler, r.binary.compiler);
  field("source", l.binary.source_hash.substr(0, 12), r.binary.source_hash.substr(0, 12));
  field("stored", when(l.stored_at), when(r.stored_at));
  if (a.evidence != b.evidence) text += text.empty() ? "evidence" : "; evidence";
  return text;
}

std::vector<std::string> cells(const char* mark, const Record& r, const std::string& what) {
  return {mark, r.problem, r.arch, r.device.empty() ? "-" : r.device + ", " + r.driver, what};
}

llvm::Expected<int> diff(const std::string& left, const std::string& right) {
  auto a = cache::read_contents(left, cache::ReadFor::kLook);
  if (!a) return a.takeError();
  auto b = cache::read_contents(right, cache::ReadFor::kLook);
  if (!b) return b.takeError();
  Table table({"", "=problem", "target", "device", "what"});
  for (const auto& [key, row] : a->records) {
    const auto there = b->records.find(key);
    if (there == b->records.end())
      table.add(cells("<", row.record, row.record.candidate));
    else if (there->second.digest != row.digest)
      table.add(cells("!", row.record, fields_that_differ(row, there->second)));
  }
  for (const auto& [key, row] : b->records)
    if (a->records.count(key) == 0) table.add(cells(">", row.record, row.record.candidate));
  size_t only_left = 0, only_right = 0, other = 0;
  for (const auto& [key, row] : a->binaries) {
    const auto there = b->binaries.find(key);
    only_left += there == b->binaries.end() ? 1 : 0;
    other += there != b->binaries.end() && there->second.digest != row.digest ? 1 : 0;
  }
  for (const auto& [key, row] : b->binaries) only_right += a->binaries.count(key) == 0 ? 1 : 0;
  for (const std::string& line : a->damaged) remark(format("warning: %s: %s", left.c_str(), line.c_str()));
  for (const std::string& line : b->damaged) remark(format("warning: %s: %s", right.c_str(), line.c_str()));
  if (!table.empty()) table.print();
  if (only_left + only_right + other > 0)
    std::printf("binaries: %zu only in %s, %zu only in %s, %zu of the same key differ\n", only_left,
                printable(left).c_str(), only_right, printable(right).c_str(), other);
  if (!a->damaged.empty() || !b->damaged.empty()) return kFailure;
  return table.empty() && only_left + only_right + other == 0 ? kDone : kFailure;
}

}  // namespace

void add_cache_diff(CLI::App& cache, Commands& commands) {
  auto left = std::make_shared<std::string>(), right = std::make_shared<std::string>();
  CLI::App* app = cache.add_subcommand(
      "diff", "records and binaries that two files do not share (<, >) or that differ (!)");
  app->add_option("left", *left, "a cache file or bundle")->required();
  app->add_option("right", *right, "a cache file or bundle")->required();
  commands.push_back({app, [=] { return report(diff(*left, *right)); }});
}

}  // namespace trigen::cli
