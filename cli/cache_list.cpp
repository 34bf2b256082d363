// trigen cache ls: cache files and the records in them.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "check/text.h"
#include "cli/cache.h"
#include "cli/table.h"

namespace trigen::cli {
namespace {

using nlohmann::json;

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
    files.add({l.path, l.writable ? "read and written" : "read", std::to_string(l.records),
               std::to_string(l.binaries), format_bytes(static_cast<double>(l.bytes)),
               !l.problem.empty() ? "unusable, see below"
               : !l.exists        ? "not there yet"
               : l.note.empty()   ? "good"
                                  : l.note});
  }
  files.print();
  if (!records.empty()) {
    std::printf("\n");
    Table table({"=problem", "target", "device", "=choice", ">time", "provenance", "?stored"});
    for (const FoundRecord& r : records) {
      table.add({r.record.problem, r.record.arch, r.record.device.empty() ? "-" : r.record.device,
                 r.record.candidate, format_seconds(r.record.median_us * 1e-6), name_of(r.record.provenance),
                 when(r.record.stored_at)});
    }
    table.print();
  }
  if (binaries) {
    std::printf("\n");
    Table table({"binary", "target", "compiler", "=candidate", ">cubin", ">stored", "?at"});
    for (const BinaryInfo& b : store->list_binaries()) {
      table.add({b.key.digest().substr(0, 12), b.key.arch, b.key.compiler, b.candidate,
                 format_bytes(static_cast<double>(b.cubin_bytes)),
                 format_bytes(static_cast<double>(b.stored_bytes)), when(b.stored_at)});
    }
    table.print();
  }
  return health(layers);
}

}  // namespace

void add_cache_list(CLI::App& cache, Commands& commands) {
  auto where = std::make_shared<TargetOptions>();
  auto as_json = std::make_shared<bool>(false), binaries = std::make_shared<bool>(false);
  CLI::App* ls = cache.add_subcommand("ls", "cache files and the records in them");
  where->add_cache(*ls);
  ls->add_flag("--binaries", *binaries, "the binaries, too");
  ls->add_flag("--json", *as_json, "as JSON");
  commands.push_back({ls, [=] { return list_all(*where, *binaries, *as_json); }});
}

}  // namespace trigen::cli
