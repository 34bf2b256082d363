// trigen doctor: what this machine is, what is wrong, why, and what to type.
//
// Exit codes: 0 nothing stands in the way; 1 an error does (with --problems: a problem that no cache serves);
// 2 the request is wrong; 3 the only errors are missing compilers.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cache/host.h"
#include "check/text.h"
#include "cli/command.h"
#include "cli/problem_options.h"
#include "cli/table.h"
#include "cli/target_options.h"
#include "cli/terminal.h"
#include "doctor/diagnose.h"
#include "doctor/gather.h"
#include "generator/names.h"
#include "peers/cublas.h"

namespace trigen::cli {
namespace {

using nlohmann::json;
using namespace doctor;

struct DoctorOptions {
  TargetOptions where;
  ProblemOptions problems;
  std::vector<std::string> archs;
  std::string environment;
  bool all = false, check = false, as_json = false;
};

void print_behind(const std::string& head, const std::string& text) {
  for (const std::string& each : behind(head, printable(text), static_cast<size_t>(columns(stdout))))
    std::printf("%s\n", each.c_str());
}

void line(const char* name, const std::string& text) { print_behind(format("%-11s ", name), text); }

void print_driver(const Environment& e) {
  const DriverFinding& driver = e.driver;
  if (driver.state != DriverState::kReady)
    line("driver", "none that works");
  else if (driver.emulated)
    line("driver", "the emulated device, " + driver.path);
  else
    line("driver", format("%s, serves CUDA up to %d.%d, %d device%s, %s", driver.version.c_str(),
                          driver.cuda_version / 1000, driver.cuda_version / 10 % 100, driver.device_count,
                          driver.device_count == 1 ? "" : "s", driver.path.c_str()));
  for (const DeviceFacts& device : e.devices)
    line("device",
         format("%s: %s, compute capability %d.%d, %d multiprocessors, %s", device.info.spec().c_str(),
                device.info.name.c_str(), device.info.major, device.info.minor, device.info.sms,
                format_bytes(static_cast<double>(device.info.memory_bytes)).c_str()));
}

// One line for targets with one answer.
void print_targets(const Diagnosis& diagnosis) {
  std::string names;
  for (size_t i = 0; i < diagnosis.targets.size(); ++i) {
    const TargetAnswer& target = diagnosis.targets[i];
    names += (names.empty() ? "" : " ") + target.target->name.str();
    if (i + 1 < diagnosis.targets.size() && diagnosis.targets[i + 1].path == target.path &&
        diagnosis.targets[i + 1].why == target.why)
      continue;
    line("compiler",
         names + ": " +
             (target.chosen.empty() ? "none here"
                                    : target.chosen + ", " + target.why + " (" + target.path + ")"));
    names.clear();
  }
}

std::string state_of(const LayerInfo& layer) {
  if (!layer.problem.empty()) return "unusable";
  if (!layer.exists) return "not there yet";
  return counted(layer.records, "record") + ", " + counted(layer.binaries, "kernel") + ", " +
         format_bytes(static_cast<double>(layer.bytes));
}

void print_facts(const Environment& e, const Diagnosis& diagnosis, bool recorded) {
  std::printf("trigen %s\n\n", e.trigen.c_str());
  print_driver(e);
  print_targets(diagnosis);
  line("compiling", e.no_jit ? "forbidden by TRIGEN_NO_JIT" : "allowed");
  for (const TorchFacts& torch : e.torch)
    line("pytorch", torch.version + (torch.cuda.empty() ? ", without CUDA" : ", CUDA " + torch.cuda) + ", " +
                        torch.path);
  line("glibc", e.glibc + " (this build needs " + e.glibc_needed + ")");
  line("emulated", e.emulator.empty() ? "not installed" : e.emulator);
  if (!recorded) {
    std::string cublas = "not found (only `trigen bench` uses it)";
    if (auto library = CublasLibrary::load())
      cublas = (*library)->path();
    else
      llvm::consumeError(library.takeError());
    line("cublas", cublas);
  }
  for (const LayerInfo& layer : e.caches)  // in the order of look-ups
    line(&layer == e.caches.data() ? "cache" : "  below",
         layer.path + ": " + state_of(layer) + (layer.user_layer ? ", written" : ""));
  std::printf("\n");
}

void print_problems(const Environment& e) {
  if (e.problems.empty()) return;
  size_t served = 0;
  Table table({"answer", "target", "=problem", "?in"});
  for (const ProblemFacts& problem : e.problems) {
    const bool found = problem.match != "none";
    served += found && problem.binary ? 1 : 0;
    table.add({problem.match + (found && !problem.binary ? ", but its kernel is missing" : ""),
               problem.target, problem.problem, found ? problem.layer : "-"});
  }
  table.print();
  std::printf("%zu of %zu problems are served without compiling\n", served, e.problems.size());
  if (served < e.problems.size())
    print_prose("the others compile at first use; `trigen tune` with the same problems stores their kernels");
  std::printf("\n");
}

void print_findings(const Diagnosis& diagnosis, Severity least) {
  bool any = false;
  for (const doctor::Finding& f : diagnosis.findings) {
    if (f.severity < least) continue;
    any = any || f.severity != Severity::kNote;
    print_behind(std::string(name_of(f.severity)) + ": ", f.about + ": " + f.what);
    if (!f.why.empty()) print_behind("  why   ", f.why);
    if (!f.type.empty()) print_behind("  next  ", f.type);
  }
  if (!any) std::printf("nothing is wrong\n");
}

void print_json(const Environment& e, const Diagnosis& diagnosis) {
  json out = {
      {"environment", json::parse(to_json(e))}, {"targets", json::array()}, {"findings", json::array()}};
  for (const TargetAnswer& t : diagnosis.targets)
    out["targets"].push_back({{"target", t.target->name.str()},
                              {"made_by", t.makers},
                              {"chosen", t.chosen},
                              {"path", t.path},
                              {"why", t.why}});
  for (const doctor::Finding& f : diagnosis.findings)
    out["findings"].push_back({{"severity", name_of(f.severity)},
                               {"id", f.id},
                               {"about", f.about},
                               {"what", f.what},
                               {"why", f.why},
                               {"type", f.type}});
  std::printf("%s\n", out.dump(2, ' ', true, json::error_handler_t::replace).c_str());
}

int exit_code(doctor::Outcome outcome) {
  using doctor::Outcome;
  return outcome == Outcome::kReady ? kDone : outcome == Outcome::kNoCompiler ? kNoCompiler : kFailure;
}

llvm::Expected<Environment> read_recorded(const std::string& path) {
  auto text = cache::read_input(path, "the environment ", "write one with: trigen doctor --json > FILE");
  if (!text) return text.takeError();
  return from_json(*text);
}

int examine(const DoctorOptions& options) {
  Question question;
  for (const std::string& arch : options.archs) {
    auto target = find_target(arch);
    if (!target) return report(target.takeError());
    question.targets.push_back(*target);
  }
  if (options.all)
    for (const Target& target : targets()) question.targets.push_back(&target);
  // An image is built without a GPU for the targets that it names; a job wants the GPU that is here.
  question.here = options.check && question.targets.empty();
  Environment environment;
  if (!options.environment.empty()) {
    auto recorded = read_recorded(options.environment);
    if (!recorded) return report(recorded.takeError());
    environment = std::move(*recorded);
  } else {
    auto store = options.where.open_store();  // nothing is put; what could be is told
    environment = gather(*store);
    environment.bundles_alone =
        !options.where.caches.empty() &&
        llvm::all_of(environment.caches, [](const LayerInfo& layer) { return !layer.user_layer; });
    if (options.problems.any()) {
      auto problems = options.problems.problems();
      if (!problems) return report(problems.takeError());
      if (question.targets.empty() && environment.devices.empty())
        return report(make_error(ErrorKind::kBadRequest,
                                 "no device is here to look problems up for; name a target: --arch sm_70"));
      environment.problems = look_up(environment, *problems, targets_asked(environment, question), *store);
    }
  }
  const Diagnosis diagnosis = diagnose(environment, question);
  if (options.as_json) {
    print_json(environment, diagnosis);
  } else {
    if (!options.check) print_facts(environment, diagnosis, !options.environment.empty());
    if (!options.check) print_problems(environment);
    print_findings(diagnosis, options.check ? Severity::kWarning : Severity::kNote);
  }
  return exit_code(outcome(diagnosis));
}

}  // namespace

void add_doctor(CLI::App& app, Commands& commands) {
  CLI::App* sub =
      app.add_subcommand("doctor", "state of this machine's setup, its faults, and the next steps")
          ->group(kMachineGroup);
  auto options = std::make_shared<DoctorOptions>();
  options->where.add_cache(*sub);
  sub->add_option("--arch,--target", options->archs,
                  "targets to ask about (default: those of the devices here); may be given several times")
      ->group("Target")
      ->allow_extra_args(false)
      ->delimiter(',');
  sub->add_flag("--all", options->all, "ask about every target")->group("Target");
  options->problems.add_to(*sub);
  sub->add_flag("--check", options->check,
                "warnings and errors alone, for scripts: without --arch a device must be usable here (job "
                "prologues), with --arch none is asked for (image builds)");
  sub->add_option("--environment", options->environment,
                  "judge a machine that `trigen doctor --json` recorded")
      ->type_name("FILE");
  sub->add_flag("--json", options->as_json, "facts and findings as JSON");
  sub->footer(
      "Exit codes: 0 nothing stands in the way; 1 an error does (with problems: one that no cache serves); 2 "
      "the request is wrong; 3 the only errors are missing compilers.");
  commands.push_back({sub, [options] { return examine(*options); }});
}

}  // namespace trigen::cli
