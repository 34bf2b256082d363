// Helpers that the verbs of `trigen cache` share; a verb's own file is cache_<verb>.cpp.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/signature.h"
#include "cli/command.h"
#include "cli/target_options.h"

namespace trigen::cli {

void add_cache_coverage(CLI::App& cache, Commands& commands);
void add_cache_diff(CLI::App& cache, Commands& commands);
void add_cache_export(CLI::App& cache, Commands& commands);
void add_cache_import(CLI::App& cache, Commands& commands);
void add_cache_list(CLI::App& cache, Commands& commands);
void add_cache_merge(CLI::App& cache, Commands& commands);
void add_cache_path(CLI::App& cache, Commands& commands);
void add_cache_show(CLI::App& cache, Commands& commands);
void add_cache_status(CLI::App& cache, Commands& commands);
void add_cache_trust(CLI::App& cache, Commands& commands);  // keygen, sign, quarantine
void add_cache_upkeep(CLI::App& cache, Commands& commands);
void add_cache_verify(CLI::App& cache, Commands& commands);

// "2026-01-02 10:30", in UTC; "-" for 0.
std::string when(int64_t seconds);
// SOURCE_DATE_EPOCH (https://reproducible-builds.org/specs/source-date-epoch/), else now: what signatures and reports
// carry, and the latest date of exported rows. An error where the variable is set to no such date.
llvm::Expected<int64_t> making_date();
// The secret key of a file, to sign with now.
llvm::Expected<cache::Signer> dated_signer(const std::string& key);
// Metadata of bundles: the program that made them.
std::map<std::string, std::string> made_by();
const char* name_of(Provenance provenance);
// Exit code of a look at the layers: failure when one of them is damaged or cannot be read.
int health(const std::vector<LayerInfo>& layers);
// Checks the signatures of files with public keys as in TRIGEN_TRUSTED_KEYS, and that none is older than one that the
// user layer of these options remembers; prints a line for each.
int verify_signatures(const std::string& keys, const std::vector<std::string>& files,
                      const Store::Options& options);
// "sm_70,sm_80" and repetitions -> names of targets, each known.
llvm::Expected<std::vector<std::string>> parse_archs(const std::vector<std::string>& texts);

}  // namespace trigen::cli
