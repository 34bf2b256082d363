#include "cache/fleet.h"

#include <filesystem>

#include "cache/folder.h"
#include "cache/host.h"
#include "cache/layer.h"
#include "generator/error.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

namespace trigen::cache {
namespace {

namespace fs = std::filesystem;

DeviceKind kind_of(const Record& record) {
  if (record.provenance == Provenance::kPredicted) return {record.arch, "", 0};
  return {record.arch, record.device, record.sms};
}

}  // namespace

llvm::Expected<std::vector<std::string>> bundles_in(const std::string& folder) {
  std::error_code error;
  std::vector<std::string> paths = layers_in(folder, error);
  if (error)
    return make_error(ErrorKind::kBadRequest, "the folder '" + folder + "' cannot be read (" +
                                                  errno_text(error.value()) +
                                                  "); name the one that the fleet's shards are in");
  llvm::erase_if(paths, [](const std::string& path) { return !is_bundle(path); });
  return paths;
}

llvm::Expected<Fleet> Fleet::open(const std::string& folder, const StoreOptions& options) {
  auto paths = bundles_in(folder);
  if (!paths) return paths.takeError();
  return Fleet(folder, options);
}

llvm::Expected<Fleet> Fleet::make(const std::string& folder, const StoreOptions& options) {
  if (const int error = make_folders(folder))
    return make_error(ErrorKind::kBadRequest, "the fleet's folder '" + folder + "' cannot be made (" +
                                                  errno_text(error) + "); name one that can be written");
  return open(folder, options);
}

std::vector<std::string> Fleet::refresh() {
  std::vector<std::string> troubles;
  auto paths = bundles_in(folder_);
  if (!paths) return {take_error(paths.takeError()).message};
  Signers signers;
  signers.trusted = trusted_keys(options_.trusted_keys);
  for (const std::string& path : *paths) {
    if (!known_.insert(path).second) continue;
    auto contents = read_layer(plan_reading(path), ReadFor::kLook, signers, Rows::kRecords);
    if (!contents) {
      troubles.push_back(path + ": " + take_error(contents.takeError()).message);
      continue;
    }
    for (const std::string& damaged : contents->damaged)
      troubles.push_back((llvm::Twine(path) + ": " + damaged).str());
    for (const auto& [key, row] : contents->records) {
      const std::string evidence = unpack_evidence(row.evidence);
      if (evidence_number(evidence, "complete").value_or(1) == 0)
        continue;  // interrupted: to be gone on with
      const Record& record = row.record;
      tuned_[{record.problem, record.arch}][kind_of(record)] = {
          record.provenance == Provenance::kMeasured, evidence_number(evidence, "elapsed_s").value_or(0)};
    }
  }
  return troubles;
}

FleetAnswer Fleet::answer(const std::string& problem, const DeviceKind& kind) const {
  const auto found = tuned_.find({problem, kind.arch});
  if (found == tuned_.end()) return FleetAnswer::kNone;
  const auto exact = found->second.find(kind);
  if (exact != found->second.end() && exact->second.measured) return FleetAnswer::kMeasured;
  for (const auto& [other, tuned] : found->second)
    if (tuned.measured) return FleetAnswer::kNear;
  return FleetAnswer::kPredicted;
}

bool Fleet::is_hole(const std::string& problem, const DeviceKind& kind) const {
  return answer(problem, kind) < (kind.device.empty() ? FleetAnswer::kPredicted : FleetAnswer::kMeasured);
}

std::set<DeviceKind> Fleet::kinds() const {
  std::set<DeviceKind> all;
  std::set<std::string> archs;
  for (const auto& [key, kinds] : tuned_) {
    for (const auto& [kind, tuned] : kinds) {
      all.insert(kind);
      if (tuned.measured) archs.insert(kind.arch);
    }
  }
  for (auto at = all.begin(); at != all.end();)
    at = at->device.empty() && archs.count(at->arch) != 0 ? all.erase(at) : std::next(at);
  return all;
}

std::vector<double> Fleet::seconds_of(const DeviceKind& kind) const {
  std::vector<double> seconds;
  for (const auto& [key, kinds] : tuned_) {
    const auto found = kinds.find(kind);
    if (found != kinds.end() && found->second.seconds > 0) seconds.push_back(found->second.seconds);
  }
  return seconds;
}

llvm::Expected<std::string> Fleet::publish(const Contents& contents,
                                           const std::map<std::string, std::string>& meta,
                                           const Signer* signer) const {
  if (contents.records.empty()) return std::string();
  auto image = bundle_image(contents, meta);
  if (!image) return image.takeError();
  const std::string path = (fs::path(folder_) / (sha256_of(*image) + ".trigen")).string();
  const auto write = [&](const std::string& name, const std::string& bytes) -> llvm::Error {
    const int error = write_whole_file(name, bytes, 0644);
    if (error == 0) return llvm::Error::success();
    return make_error(ErrorKind::kCache,
                      "'" + name + "' cannot be written (" + errno_text(error) +
                          "); no shard was left there, and what was tuned is in the cache: "
                          "run the same command again when there is room");
  };
  if (signer != nullptr) {  // ahead of the shard, which is never seen without it
    auto signature = signature_of(path, *image, *signer);
    if (!signature) return signature.takeError();
    if (llvm::Error error = write(path + kSignatureSuffix, *signature)) return error;
  }
  std::error_code ignored;
  if (fs::file_size(path, ignored) == image->size()) return path;  // the same bytes, by its name
  if (llvm::Error error = write(path, *image)) return error;
  return path;
}

}  // namespace trigen::cache
