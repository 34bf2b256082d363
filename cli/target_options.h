// Options that subcommands share: target, device, family and config, cache files.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "generator/candidate.h"
#include "runtime/device.h"

namespace trigen::cli {

// The first clause of why no device is here, for a remark: what was found. `trigen doctor` says what to do.
std::string what_was_found(const std::string& why);

struct TargetOptions {
  std::string arch, gpu, device, family, config, candidate;
  std::vector<std::string> caches;
  std::optional<std::string> trusted_keys;

  // --arch (and --target, the same). `several`: a list, which for_each_target() takes apart (cli/each_target.h).
  void add_arch(CLI::App& app, bool several = false);
  void add_gpu(CLI::App& app);     // --gpu
  void add_device(CLI::App& app);  // --device
  void add_family(CLI::App& app);  // --family, --config, --candidate
  void add_cache(CLI::App& app);   // --cache, --trusted-keys

  // The named target, or that of the named GPU, with its SMs and rates; null when none was named.
  llvm::Expected<const Target*> target() const;
  // The named device, or device 0. Null, with the reason in `why`, when none was named and none is here; an
  // error when one was named that is not here.
  llvm::Expected<const Device*> open_device(std::string& why) const;
  // The candidate that was named: a family alone, or with a config.
  struct Choice {
    const Family* family = nullptr;
    std::optional<Config> config;
    bool generic = false;
  };
  llvm::Expected<Choice> choice() const;
  // The named candidate of a problem, else the cache's or the model's first one; from the cache or compiled.
  struct Built {
    Candidate candidate;
    Binary binary;
  };
  llvm::Expected<Built> build_choice(const Problem& problem, const Target& target) const;
  Store::Options store_options(bool read_only = false) const;
  std::unique_ptr<Store> open_store(bool read_only = false) const {
    return Store::open(store_options(read_only));
  }
};

// Lines of a store's troubles, once each, on stderr.
void log_cache(const std::string& line);

}  // namespace trigen::cli
