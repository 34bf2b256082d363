#include "cli/target_options.h"

#include <mutex>
#include <set>

#include "check/selection.h"
#include "cli/command.h"
#include "runtime/compile.h"

namespace trigen::cli {

std::string what_was_found(const std::string& why) {
  return llvm::StringRef(why).split('\n').first.split("; ").first.str();
}

void TargetOptions::add_arch(CLI::App& app, bool several) {
  std::string names;
  for (const Target& target : targets()) names += (names.empty() ? "" : ", ") + target.name.str();
  app.add_option("--arch,--target", arch, (several ? "targets, separated by commas: " : "target: ") + names)
      ->group("Target")
      ->type_name("TARGET");
}

void TargetOptions::add_gpu(CLI::App& app) {
  std::string names;
  for (const Target& target : gpus()) names += (names.empty() ? "" : ", ") + target.model_device.str();
  app.add_option("--gpu", gpu,
                 "a GPU that is not here, by name, in place of --arch: its SMs and rates; " + names)
      ->group("Target")
      ->type_name("NAME");
}

void TargetOptions::add_device(CLI::App& app) {
  app.add_option("--device", device, "device: 0, cuda:0, or emulated:sm_70 (the CPU's; needs no GPU)")
      ->group("Target")
      ->type_name("DEVICE");
}

void TargetOptions::add_family(CLI::App& app) {
  std::string names;
  for (const Family* each : families()) names += (names.empty() ? "" : ", ") + each->name().str();
  app.add_option("--family", family, "one family alone: " + names)->group("Target")->type_name("FAMILY");
  app.add_option("--config", config, "with --family, one config: tile=128x128x32,warps=2x2,stages=3")
      ->group("Target")
      ->type_name("CONFIG");
  app.add_option("--candidate", candidate, "family:config[,generic], as tables and errors print it")
      ->group("Target")
      ->type_name("CANDIDATE");
}

void TargetOptions::add_cache(CLI::App& app) {
  app.add_option("--cache", caches,
                 "cache file instead of the usual ones; several: the first is written; none: no cache")
      ->group("Target")
      ->type_name("FILE")
      ->allow_extra_args(false);
  app.add_option(
         "--trusted-keys", trusted_keys,
         "public keys and their files, ':' between them, that others' cache files must be signed with "
         "(TRIGEN_TRUSTED_KEYS)")
      ->group("Target")
      ->type_name("KEYS");
}

llvm::Expected<const Target*> TargetOptions::target() const {
  if (gpu.empty() && arch.find(',') != std::string::npos)
    return make_error(ErrorKind::kBadRequest, "--arch " + arch + ": this command takes one target; name one");
  if (gpu.empty()) return arch.empty() ? nullptr : find_target(arch);
  if (!device.empty())
    return make_error(ErrorKind::kBadRequest,
                      "--gpu names a GPU that is not here; leave --device " + device + " out");
  auto found = find_gpu(gpu);
  if (found && !arch.empty() && arch != (*found)->name)
    return make_error(ErrorKind::kBadRequest, "--gpu " + gpu + " is " + (*found)->name + ", --arch " + arch +
                                                  " is not; leave --arch out");
  return found;
}

llvm::Expected<const Device*> TargetOptions::open_device(std::string& why) const {
  auto opened = Device::open(device);
  if (opened || !device.empty()) return opened;
  why = take_error(opened.takeError()).message;
  return nullptr;
}

llvm::Expected<TargetOptions::Choice> TargetOptions::choice() const {
  Choice out;
  llvm::StringRef name = family;
  llvm::StringRef text = config;
  if (!candidate.empty()) {
    if (!family.empty() || !config.empty())
      return make_error(ErrorKind::kBadRequest, "--candidate says it all; leave --family and --config out");
    std::tie(name, text) = llvm::StringRef(candidate).split(':');
    out.generic = text.consume_back(",generic");
  }
  if (name.empty() && text.empty()) return out;
  if (name.empty())
    return make_error(ErrorKind::kBadRequest,
                      "--config without --family; name the family that it configures");
  auto found = find_family(name);
  if (!found) return found.takeError();
  out.family = *found;
  if (text.empty()) return out;
  auto parsed = parse_config(text, out.family);
  if (!parsed) return parsed.takeError();
  out.config = *parsed;
  return out;
}

llvm::Expected<TargetOptions::Built> TargetOptions::build_choice(const Problem& problem,
                                                                 const Target& target) const {
  auto named = choice();
  if (!named) return named.takeError();
  Selection selection;
  selection.family = named->family;
  selection.config = named->config;
  selection.config_generic = named->generic;
  auto store = open_store();
  auto list = select(problem, target, nullptr, *store, selection);
  if (!list) return list.takeError();
  BuildOptions options;
  options.no_jit = no_jit_from_environment();
  auto built = build(list->front(), *store, options);
  if (!built) return built.takeError();
  if (!built->cache_problem.empty()) log_cache(built->cache_problem);
  return Built{list->front(), std::move(built->binary)};
}

Store::Options TargetOptions::store_options(bool read_only) const {
  Store::Options options;
  options.layers = caches;
  options.trusted_keys = trusted_keys;
  options.read_only = read_only;
  options.busy_ms = 2000;  // other processes' transactions take milliseconds
  if (read_only) {
    options.log = [](const std::string&) {};  // who only looks prints the layers' state
  } else {
    options.log = log_cache;
  }
  return options;
}

void log_cache(const std::string& line) {
  static std::mutex mutex;
  static std::set<std::string> seen;
  const std::lock_guard<std::mutex> lock(mutex);
  if (seen.insert(line).second) remark("cache: " + line);
}

}  // namespace trigen::cli
