#include "cli/fleet_work.h"

#include <algorithm>

#include "cache/host.h"
#include "cache/upkeep.h"
#include "check/text.h"
#include "cli/cache.h"
#include "cli/command.h"
#include "cli/terminal.h"
#include "tuner/shard.h"

namespace trigen::cli {

cache::DeviceKind kind_of(const Target& target, const Device* device) {
  const bool measured = device != nullptr && !device->info().emulated && device->runs_cubin_of(target);
  if (!measured) return {target.name.str(), "", 0};
  return {target.name.str(), device->info().name, device->info().sms};
}

void FleetWork::add_to(CLI::App& app) {
  app.add_option("--shard", shard_,
                 "one of several tuners: 2/8 is the third of eight; auto takes it from the launcher (Slurm "
                 "array, Kubernetes Indexed Job, RANK)")
      ->group("Fleet")
      ->type_name("I/N|auto[/N]");
  CLI::Option* const fleet = app.add_option(
      "--fleet", folder_,
      "folder where tuners meet: problems that it answers for this kind of device are left out, and "
      "results go there as shards");
  fleet->group("Fleet")->type_name("FOLDER");
  app.add_option("--sign", key_, "with --fleet: sign the shards with this secret key (`trigen cache keygen`)")
      ->needs(fleet)
      ->group("Fleet")
      ->type_name("KEY");
  app.add_option("--publish", interval_, "with --fleet: the longest that results wait for their shard (10m)")
      ->group("Fleet")
      ->type_name("TIME");
}

llvm::Expected<std::vector<Problem>> FleetWork::take(const std::vector<Problem>& list,
                                                     const std::set<cache::DeviceKind>& kinds, Store& store,
                                                     const Store::Options& options) {
  Shard shard;
  if (!shard_.empty()) {
    auto parsed = parse_shard(shard_, environment);
    if (!parsed) return parsed.takeError();
    shard = *parsed;
  }
  if (!interval_.empty()) {
    auto seconds = parse_duration("publish", interval_);
    if (!seconds) return seconds.takeError();
    interval_s_ = *seconds;
  }
  if (!key_.empty()) {
    auto signer = dated_signer(key_);
    if (!signer) return signer.takeError();
    signer_ = *signer;
  }
  if (!folder_.empty()) {
    say_who_refuses(options);
    auto made = cache::Fleet::make(folder_, options);
    if (!made) return made.takeError();
    fleet_ = std::move(*made);
    for (const std::string& trouble : fleet_->refresh()) remark("warning: " + trouble);
    for (const LayerInfo& layer : store.layers())
      if (layer.user_layer) layer_ = layer.path;
    if (layer_.empty())
      return make_error(ErrorKind::kBadRequest,
                        "no cache file is written to, and shards are made of one; name one with --cache");
  }
  std::vector<Problem> mine;
  size_t part = 0, filled = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    if (!shard.has(i)) continue;
    ++part;
    const std::string text = to_string(list[i]);
    const bool hole = !fleet_ || std::any_of(kinds.begin(), kinds.end(), [&](const cache::DeviceKind& kind) {
      return fleet_->is_hole(text, kind);
    });
    if (hole)
      mine.push_back(list[i]);
    else
      ++filled;
  }
  remark(format("part %zu of %zu: %zu of %zu problems, %zu of them in the fleet's folder already",
                shard.index, shard.count, part, list.size(), filled));
  return mine;
}

// Better known before hours of tuning than when all are merged.
void FleetWork::say_who_refuses(const Store::Options& options) const {
  const cache::TrustedKeys trusted = cache::trusted_keys(options.trusted_keys);
  const bool counts = signer_ && llvm::any_of(trusted.keys, [&](const cache::PublicKey& key) {
                        return key.number == signer_->key.number;
                      });
  if (!trusted.required || counts) return;
  const std::string by = signer_ ? "signed with key " + cache::to_string(signer_->key.number) : "not signed";
  remark(
      "warning: these shards are " + by +
      ", and a merge refuses them that trusts the keys which are trusted here; name the secret file of such "
      "a key with --sign");
}

void FleetWork::finished(const TuneReport& report) {
  if (!fleet_ || !report.complete) return;
  cache::DeviceKind kind{report.target, "", 0};
  if (report.provenance == Provenance::kMeasured) kind = {report.target, report.device, report.sms};
  done_.emplace(report.problem, std::move(kind));
  if (std::chrono::duration<double>(Clock::now() - published_).count() < interval_s_) return;
  // Tried again with the next problem, and at the end.
  if (auto error = publish()) remark("warning: " + take_error(std::move(error)).message);
}

llvm::Error FleetWork::publish() {
  if (!fleet_ || done_.empty()) return llvm::Error::success();
  published_ = Clock::now();
  auto contents = cache::read_contents(layer_, cache::ReadFor::kRun);
  if (!contents) return contents.takeError();
  contents->asked.clear();
  for (auto at = contents->records.begin(); at != contents->records.end();) {
    const Record& r = at->second.record;
    const bool measured = r.provenance == Provenance::kMeasured;
    const cache::DeviceKind kind{r.arch, measured ? r.device : "", measured ? r.sms : 0};
    const bool ours = done_.count({r.problem, kind}) != 0;
    if (ours) contents->asked.emplace(r.arch, r.problem);
    at = ours ? std::next(at) : contents->records.erase(at);
  }
  std::vector<std::string> left_out;
  contents->keep_what_runs(left_out);
  for (const std::string& line : left_out) remark("warning: left out of the shard: " + line);
  auto date = making_date();
  if (!date) return date.takeError();
  contents->clamp_dates(*date);
  if (signer_) signer_->date = *date;
  auto path = fleet_->publish(*contents, made_by(), signer_ ? &*signer_ : nullptr);
  if (!path) return path.takeError();
  done_.clear();
  if (!path->empty())
    remark(counted(static_cast<int64_t>(contents->records.size()), "record") + " in " + *path);
  return llvm::Error::success();
}

}  // namespace trigen::cli
