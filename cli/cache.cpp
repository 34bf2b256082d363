// trigen cache: what the cache files hold.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "check/text.h"
#include "cli/command.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/target_options.h"
#include "generator/names.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

namespace trigen::cli {
namespace {

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

using nlohmann::json;

std::string when(int64_t seconds) {
  if (seconds == 0) return "-";
  const auto time = static_cast<std::time_t>(seconds);
  std::tm utc{};
  gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M", &utc);
  return text;
}

// Evidence is whatever somebody's file holds: nothing of it is taken for granted, and brackets in brackets,
// for each of which the JSON library calls itself once more, are counted first. Null when it is not readable.
json parse_evidence(llvm::StringRef text) {
  constexpr int kDeepest = 32;  // trigen writes 4
  int depth = 0;
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (quoted && c == '\\') ++at;
    if (c == '"') quoted = !quoted;
    if (quoted) continue;
    depth += c == '[' || c == '{' ? 1 : c == ']' || c == '}' ? -1 : 0;
    if (depth > kDeepest) return {};
  }
  json value = json::parse(text.begin(), text.end(), nullptr, false);
  return value.is_object() ? value : json();
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

// What a tune tried; "" when the evidence has no such list.
std::string candidates_of(const json& evidence) {
  const auto list = evidence.find("candidates");
  if (list == evidence.end() || !list->is_array()) return {};
  Table table({"  tried", "outcome", ">time", ">error", "note"});
  for (const json& row : *list) {
    if (!row.is_object()) continue;
    double us = number_of(row, "finals_us");
    if (us < 0) us = number_of(row, "quick_us");
    const double predicted = std::max(number_of(row, "predicted_us"), 0.0), error = number_of(row, "error");
    const std::string note = text_of(row, "note");
    table.add({"  " + text_of(row, "candidate"), text_of(row, "outcome"),
               us >= 0 ? format_seconds(us * 1e-6) : format_seconds(predicted * 1e-6) + " (model)",
               error >= 0 ? format("%.1e", error) : "-", note.substr(0, note.find('\n'))});
  }
  return table.text();
}

const char* name_of(Provenance provenance) {
  return provenance == Provenance::kMeasured ? "measured" : "predicted";
}

// Exit code of a look at the layers: failure when one of them is damaged or cannot be read.
int health(const std::vector<LayerInfo>& layers) {
  int code = kDone;
  for (const LayerInfo& layer : layers) {
    if (layer.problem.empty()) continue;
    remark("error: cache " + layer.path + ": " + layer.problem);
    code = kFailure;
  }
  return code;
}

int list_all(const TargetOptions& where, bool binaries, bool as_json) {
  auto store = where.open_store(true);
  const auto layers = store->layers();
  const auto records = store->list_records();
  if (as_json) {
    json out = {{"layers", json::array()}, {"records", json::array()}};
    for (const LayerInfo& l : layers) {
      out["layers"].push_back({{"path", l.path},
                               {"exists", l.exists},
                               {"user_layer", l.user_layer},
                               {"problem", l.problem},
                               {"schema", l.schema},
                               {"records", l.records},
                               {"binaries", l.binaries},
                               {"bytes", l.bytes}});
    }
    for (const FoundRecord& r : records) {
      out["records"].push_back({{"problem", r.record.problem},
                                {"arch", r.record.arch},
                                {"device", r.record.device},
                                {"driver", r.record.driver},
                                {"candidate", r.record.candidate},
                                {"provenance", name_of(r.record.provenance)},
                                {"us", r.record.median_us},
                                {"error", r.record.error},
                                {"stored_at", r.record.stored_at},
                                {"layer", r.layer}});
    }
    std::printf("%s\n", out.dump(2, ' ', true, json::error_handler_t::replace).c_str());
    return health(layers);
  }
  Table files({"cache file", "role", ">records", ">binaries", ">size", "state"});
  for (const LayerInfo& l : layers) {
    files.add({l.path, l.user_layer ? "read and written" : "read", std::to_string(l.records),
               std::to_string(l.binaries), format_bytes(static_cast<double>(l.bytes)),
               !l.problem.empty() ? "unusable, see below"
               : !l.exists        ? "not there yet"
               : l.note.empty()   ? "good"
                                  : l.note});
  }
  files.print();
  if (!records.empty()) {
    std::printf("\n");
    Table table({"problem", "target", "device", "choice", ">time", "provenance", "stored"});
    for (const FoundRecord& r : records) {
      table.add({r.record.problem, r.record.arch, r.record.device.empty() ? "-" : r.record.device,
                 r.record.candidate, format_seconds(r.record.median_us * 1e-6), name_of(r.record.provenance),
                 when(r.record.stored_at)});
    }
    table.print();
  }
  if (binaries) {
    std::printf("\n");
    Table table({"binary", "target", "compiler", "candidate", ">cubin", ">stored", "at"});
    for (const BinaryInfo& b : store->list_binaries()) {
      table.add({b.key.digest().substr(0, 12), b.key.arch, b.key.compiler, b.candidate,
                 format_bytes(static_cast<double>(b.cubin_bytes)),
                 format_bytes(static_cast<double>(b.stored_bytes)), when(b.stored_at)});
    }
    table.print();
  }
  return health(layers);
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
    const std::string evidence_text = store->find_evidence(r);
    const json evidence = parse_evidence(evidence_text);
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
    std::printf("%s\n", r.record.problem.c_str());
    std::printf("  target      %s\n", printable(r.record.arch).c_str());
    if (r.record.device.empty()) {
      std::printf("  device      none: predicted by the model\n");
    } else {
      std::printf("  device      %s, %d multiprocessors, driver %s\n", printable(r.record.device).c_str(),
                  r.record.sms, printable(r.record.driver).c_str());
    }
    std::printf("  choice      %s\n", printable(r.record.candidate).c_str());
    std::printf("  time        %s, %s\n", format_seconds(r.record.median_us * 1e-6).c_str(),
                name_of(r.record.provenance));
    if (r.record.error > 0) std::printf("  error       %.2e\n", r.record.error);
    std::printf("  compiler    %s\n", printable(r.record.binary.compiler).c_str());
    if (binary) {
      std::printf("  binary      %s: %s of machine code, %d registers, %d B spilled\n",
                  binary->key.digest().substr(0, 12).c_str(),
                  format_bytes(static_cast<double>(binary->cubin.size())).c_str(), binary->registers,
                  binary->spill_bytes);
      std::printf("  cubin       %s\n", describe_elf(binary->cubin).c_str());
    } else {
      std::printf("  binary      not in the cache (damaged or never stored); `trigen tune` makes it again\n");
    }
    std::printf("  stored      %s in %s\n", when(r.record.stored_at).c_str(), printable(r.layer).c_str());
    if (evidence.is_object())
      std::fputs(candidates_of(evidence).c_str(), stdout);
    else
      std::printf("  evidence    is not readable; `trigen tune --force` makes it again\n");
    std::printf("\n");
  }
  if (as_json) std::printf("%s\n", out.dump(2, ' ', true, json::error_handler_t::replace).c_str());
  const int state = health(store->layers());
  if (found == 0 && !as_json) {
    remark("no record of " + text + (*target != nullptr ? " for " + (*target)->name.str() : "") +
           "; `trigen tune \"" + text + "\"` makes one");
    return kFailure;
  }
  return state;
}

int verify_all(const TargetOptions& where) {
  auto store = where.open_store(true);
  const auto damage = store->verify();
  for (const std::string& line : damage) std::printf("%s\n", printable(line).c_str());
  if (damage.empty()) std::printf("every row of every cache file has its digest\n");
  return damage.empty() ? kDone : kFailure;
}

}  // namespace

void add_cache(CLI::App& app, Commands& commands) {
  CLI::App* cache = app.add_subcommand("cache", "look into the cache files");
  cache->require_subcommand(1);
  auto where = std::make_shared<TargetOptions>();
  auto problems = std::make_shared<ProblemOptions>();
  auto as_json = std::make_shared<bool>(false);
  auto binaries = std::make_shared<bool>(false);

  CLI::App* ls = cache->add_subcommand("ls", "cache files and the records in them");
  where->add_cache(*ls);
  ls->add_flag("--binaries", *binaries, "the binaries, too");
  ls->add_flag("--json", *as_json, "as JSON");
  CLI::App* one = cache->add_subcommand("show", "everything about one problem's records");
  problems->add_to(*one);
  where->add_arch(*one);
  where->add_cache(*one);
  one->add_flag("--json", *as_json, "as JSON");
  CLI::App* path = cache->add_subcommand("path", "the file that is written");
  CLI::App* check = cache->add_subcommand("verify", "read every row and check its digest");
  where->add_cache(*check);

  commands.push_back({cache, [=] {
                        if (ls->parsed()) return list_all(*where, *binaries, *as_json);
                        if (one->parsed()) return show(*problems, *where, *as_json);
                        if (check->parsed()) return verify_all(*where);
                        (void)path;
                        const auto layers = default_layers();
                        std::printf("%s\n", layers.empty() ? "" : layers.front().c_str());
                        return kDone;
                      }});
}

}  // namespace trigen::cli
