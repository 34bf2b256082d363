// trigen cache show: everything about one problem's records.
#include <algorithm>
#include <cstdio>

#include "check/text.h"
#include "cli/cache.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "generator/names.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include "runtime/coverage.h"
#include "runtime/json.h"

namespace trigen::cli {
namespace {

using nlohmann::json;

// The header of a cubin: "ELF machine 190 (CUDA), e_flags 0x00460546". Low byte of the flags up to CUDA 12:
// the architecture.
std::string describe_elf(llvm::StringRef cubin) {
  constexpr size_t kMachine = 18, kFlags = 48, kHeader = 64;  // offsets in Elf64_Ehdr, little endian
  if (cubin.size() < kHeader || !cubin.startswith("\x7f"
                                                  "ELF"))
    return "not an ELF file";
  const unsigned machine = llvm::support::endian::read16le(cubin.data() + kMachine);
  const unsigned flags = llvm::support::endian::read32le(cubin.data() + kFlags);
  std::string text;
  llvm::raw_string_ostream(text) << "ELF machine " << machine << (machine == 190 ? " (CUDA)" : "")
                                 << ", e_flags " << llvm::format_hex(flags, 10);
  return text;
}

std::string text_of(const json& row, const char* key) {
  const auto found = row.find(key);
  return found != row.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The number, or the median of the numbers; -1 when there is none.
double number_of(const json& row, const char* key) {
  const auto found = row.find(key);
  if (found == row.end()) return -1;
  if (found->is_number()) return found->get<double>();
  std::vector<double> values;
  if (found->is_array())
    for (const json& each : *found)
      if (each.is_number()) values.push_back(each.get<double>());
  std::sort(values.begin(), values.end());
  return values.empty() ? -1 : values[values.size() / 2];
}

// A table of the candidates that a tune tried; "" when the evidence has no list of them.
std::string candidates_of(const json& evidence) {
  const auto list = evidence.find("candidates");
  if (list == evidence.end() || !list->is_array()) return {};
  Table table({"=tried", "outcome", ">time", ">error", "?note"});
  for (const json& row : *list) {
    if (!row.is_object()) continue;
    double us = number_of(row, "finals_us");
    if (us < 0) us = number_of(row, "quick_us");
    const double predicted = std::max(number_of(row, "predicted_us"), 0.0), error = number_of(row, "error");
    const std::string note = text_of(row, "note");
    table.add({text_of(row, "candidate"), text_of(row, "outcome"),
               us >= 0 ? format_seconds(us * 1e-6) : format_seconds(predicted * 1e-6) + " (model)",
               error >= 0 ? format("%.1e", error) : "-", note.substr(0, note.find('\n'))});
  }
  constexpr int kIndent = 2;
  const int there = columns(stdout);
  size_t heading = 0;
  std::string text;
  for (const std::string& line : table.lines(there > kIndent ? there - kIndent : there, heading))
    text += std::string(kIndent, ' ') + line + "\n";
  return text;
}

// "  key         value", as wide as the terminal.
void print_line(const char* key, const std::string& value) {
  for (const std::string& line :
       behind(format("  %-11s ", key), printable(value), static_cast<size_t>(columns(stdout))))
    std::printf("%s\n", line.c_str());
}

int show(const ProblemOptions& problems, const TargetOptions& where, bool as_json) {
  auto problem = problems.problem();
  if (!problem) return report(problem.takeError());
  auto target = where.target();
  if (!target) return report(target.takeError());
  auto store = where.open_store(true);
  const std::string text = to_string(*problem);
  json out = json::array();
  int found = 0;
  for (const FoundRecord& r : store->list_records()) {
    if (r.record.problem != text || (*target != nullptr && r.record.arch != (*target)->name)) continue;
    ++found;
    const json evidence = read_json(store->find_evidence(r));
    if (as_json) {
      out.push_back({{"problem", r.record.problem},
                     {"arch", r.record.arch},
                     {"device", r.record.device},
                     {"sms", r.record.sms},
                     {"driver", r.record.driver},
                     {"candidate", r.record.candidate},
                     {"compiler", r.record.binary.compiler},
                     {"source_hash", r.record.binary.source_hash},
                     {"provenance", name_of(r.record.provenance)},
                     {"us", r.record.median_us},
                     {"error", r.record.error},
                     {"stored_at", r.record.stored_at},
                     {"layer", r.layer},
                     {"evidence", evidence}});
      continue;
    }
    const auto binary = store->find_binary(r.record.binary);
    std::printf("%s\n", printable(r.record.problem).c_str());
    print_line("target", r.record.arch);
    print_line("device", r.record.device.empty()
                             ? "none: predicted by the model"
                             : format("%s, %d multiprocessors, driver %s", r.record.device.c_str(),
                                      r.record.sms, r.record.driver.c_str()));
    print_line("choice", r.record.candidate);
    print_line("time", format_seconds(r.record.median_us * 1e-6) + ", " + name_of(r.record.provenance));
    if (r.record.error > 0) print_line("error", format("%.2e", r.record.error));
    print_line("compiler", r.record.binary.compiler);
    if (binary) {
      print_line("binary", format("%s: %s of machine code, %d registers, %d B spilled",
                                  binary->key.digest().substr(0, 12).c_str(),
                                  format_bytes(static_cast<double>(binary->cubin.size())).c_str(),
                                  binary->registers, binary->spill_bytes));
      print_line("cubin", describe_elf(binary->cubin));
    } else {
      print_line("binary", "not in the cache (damaged or never stored); `trigen tune` makes it again");
    }
    print_line("stored", when(r.record.stored_at) + " in " + r.layer);
    if (evidence.is_object())
      std::fputs(candidates_of(evidence).c_str(), stdout);
    else
      print_line("evidence", "is not readable; `trigen tune --force` makes it again");
    std::printf("\n");
  }
  if (as_json) std::printf("%s\n", out.dump(2, ' ', true, json::error_handler_t::replace).c_str());
  const int state = health(store->layers());
  if (found == 0 && !as_json) {
    const std::string named = short_text(*problem);
    remark("no record of " + named + (*target != nullptr ? " for " + (*target)->name.str() : "") +
           "; `trigen tune \"" + named + "\"` makes one, `trigen cache ls` lists those that are here");
    for (const LayerInfo& layer : store->layers())
      if (!layer.exists && !where.caches.empty()) remark("warning: " + layer.path + " is not there");
    Coverage coverage(*store, std::nullopt);
    for (const Target& each : targets()) {
      if (*target != nullptr && *target != &each) continue;
      std::string difference;
      const FoundRecord* const near = coverage.nearest(*problem, each, difference);
      // a record that differs in everything is of no use
      if (near != nullptr && llvm::StringRef(difference).count("; ") < 3)
        remark("the nearest record for " + each.name.str() + " is of " + short_problem(near->record.problem) +
               ": " + difference);
    }
    return kFailure;
  }
  return state;
}

}  // namespace

void add_cache_show(CLI::App& cache, Commands& commands) {
  auto where = std::make_shared<TargetOptions>();
  auto problems = std::make_shared<ProblemOptions>();
  auto as_json = std::make_shared<bool>(false);
  CLI::App* one = cache.add_subcommand("show", "everything about one problem's records");
  problems->add_to(*one);
  where->add_arch(*one);
  where->add_cache(*one);
  one->add_flag("--json", *as_json, "as JSON");
  commands.push_back({one, [=] { return show(*problems, *where, *as_json); }});
}

}  // namespace trigen::cli
