// trigen doctor: driver, devices, compilers and caches of this machine, each problem with its next step.
#include "runtime/doctor.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "check/text.h"
#include "cli/command.h"
#include "cli/table.h"
#include "cli/target_options.h"
#include "peers/cublas.h"

namespace trigen::cli {
namespace {

using nlohmann::json;

const char* name_of(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "error";
    case Severity::kWarning:
      return "warning";
    case Severity::kNote:
      return "note";
  }
  return "note";
}

std::string arch_range(const std::vector<int>& archs) {
  if (archs.empty()) return "-";
  std::string out;
  for (const int arch : archs) out += (out.empty() ? "sm_" : " ") + std::to_string(arch);
  return out;
}

void print_json(const Findings& f) {
  json out = {{"version", f.version},
              {"driver",
               {{"path", f.driver.path},
                {"version", f.driver.version},
                {"cuda", f.driver.cuda_version},
                {"devices", f.driver.device_count},
                {"problem", f.driver.text}}},
              {"devices", json::array()},
              {"emulator", f.emulator},
              {"nvrtc", json::array()},
              {"targets", json::array()},
              {"caches", json::array()},
              {"no_jit", f.no_jit},
              {"troubles", json::array()}};
  for (const DeviceInfo& d : f.devices) {
    out["devices"].push_back({{"spec", d.spec()},
                              {"name", d.name},
                              {"capability", format("%d.%d", d.major, d.minor)},
                              {"sms", d.sms},
                              {"memory_bytes", d.memory_bytes},
                              {"l2_bytes", d.l2_bytes}});
  }
  for (const NvrtcFinding& n : f.nvrtc) {
    out["nvrtc"].push_back({{"path", n.file.path},
                            {"origin", n.file.origin},
                            {"version", n.version},
                            {"archs", n.archs},
                            {"problem", n.problem}});
  }
  for (const TargetFinding& t : f.targets)
    out["targets"].push_back({{"target", t.target}, {"made_by", t.made_by}, {"chosen", t.chosen}});
  for (const LayerInfo& l : f.caches) {
    out["caches"].push_back({{"path", l.path},
                             {"exists", l.exists},
                             {"writable", l.writable},
                             {"records", l.records},
                             {"binaries", l.binaries},
                             {"problem", l.problem}});
  }
  for (const Trouble& t : f.troubles) {
    out["troubles"].push_back({{"severity", name_of(t.severity)},
                               {"about", t.about},
                               {"text", t.text},
                               {"next_step", t.next_step}});
  }
  std::printf("%s\n", out.dump(2, ' ', false, json::error_handler_t::replace).c_str());
}

void print_text(const Findings& f) {
  std::printf("trigen %s\n\n", f.version.c_str());
  if (f.driver.state == DriverState::kReady) {
    std::printf("driver      %s, CUDA %d.%d, %d device%s, %s\n", f.driver.version.c_str(),
                f.driver.cuda_version / 1000, f.driver.cuda_version / 10 % 100, f.driver.device_count,
                f.driver.device_count == 1 ? "" : "s", f.driver.path.c_str());
  } else {
    std::printf("driver      none that works\n");
  }
  for (const DeviceInfo& d : f.devices) {
    std::printf("device      %s: %s, compute capability %d.%d, %d multiprocessors, %s\n", d.spec().c_str(),
                d.name.c_str(), d.major, d.minor, d.sms,
                format_bytes(static_cast<double>(d.memory_bytes)).c_str());
  }
  std::printf("emulated    %s\n", f.emulator.empty() ? "not installed" : f.emulator.c_str());
  std::string cublas = "not found (only `trigen bench` uses it)";
  if (auto library = CublasLibrary::load()) {
    cublas = (*library)->path();
  } else {
    llvm::consumeError(library.takeError());
  }
  std::printf("cublas      %s\n", cublas.c_str());
  std::printf("compiling   %s\n\n", f.no_jit ? "forbidden by TRIGEN_NO_JIT" : "allowed");
  Table compilers({"compiler", "makes", "found by", "file"});
  for (const NvrtcFinding& n : f.nvrtc) {
    compilers.add({n.version.empty() ? "does not load" : "nvrtc " + n.version, arch_range(n.archs),
                   n.file.origin, n.file.path});
  }
  if (!compilers.empty()) {
    compilers.print();
    std::printf("\n");
  }
  Table targets({"target", "compiled by"});
  for (const TargetFinding& t : f.targets)
    targets.add({t.target, t.chosen.empty() ? "no compiler here" : t.chosen});
  targets.print();
  std::printf("\n");
  Table caches({"cache file, in order", "role", ">records", ">binaries", ">size", "state"});
  for (const LayerInfo& l : f.caches) {
    caches.add({l.path, l.user_layer ? "read and written" : "read", std::to_string(l.records),
                std::to_string(l.binaries), format_bytes(static_cast<double>(l.bytes)),
                !l.problem.empty() ? "unusable"
                : !l.exists        ? "not there yet"
                : l.note.empty()   ? "good"
                                   : l.note});
  }
  caches.print();
  std::printf("\n");
  for (const Trouble& t : f.troubles) {
    std::printf("%s: %s: %s\n", name_of(t.severity), t.about.c_str(), t.text.c_str());
    if (!t.next_step.empty()) std::printf("  next step: %s\n", t.next_step.c_str());
  }
  if (f.troubles.empty()) std::printf("nothing is wrong\n");
}

}  // namespace

void add_doctor(CLI::App& app, Commands& commands) {
  CLI::App* sub = app.add_subcommand("doctor", "what this machine has, what is wrong, and what to do")
                      ->group(kMachineGroup);
  auto where = std::make_shared<TargetOptions>();
  auto as_json = std::make_shared<bool>(false);
  where->add_cache(*sub);
  sub->add_flag("--json", *as_json, "as JSON");
  commands.push_back({sub, [where, as_json] {
                        auto store = where->open_store();
                        const Findings findings = examine(*store);
                        if (*as_json) {
                          print_json(findings);
                        } else {
                          print_text(findings);
                        }
                        for (const Trouble& t : findings.troubles) {
                          if (t.severity == Severity::kError) return kFailure;
                        }
                        return kDone;
                      }});
}

}  // namespace trigen::cli
