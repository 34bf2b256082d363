#include "cache/signed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cache/environment.h"
#include "cache/filesystem.h"
#include "cache/guard.h"
#include "generator/error.h"

namespace trigen::cache {
namespace {

constexpr int64_t kMostSignatureBytes = 16 << 10;  // minisign's longest trusted comment has 8 KiB
constexpr int64_t kMostLayerBytes = int64_t{1} << 30;

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

std::string read_layer(const std::string& path, FilePart part, std::string& bytes, bool& lasting) {
  Guard guard;
  guard.enter(path, part);
  const int descriptor = guard.open(path.c_str(), O_RDONLY | O_CLOEXEC, 0);
  if (descriptor < 0) {
    lasting = false;
    return "cannot be read: " + (guard.refusal().empty() ? errno_text(errno) : guard.refusal()) +
           "; make it readable";
  }
  const std::string reason = read_descriptor(descriptor, kMostLayerBytes, bytes);
  ::close(descriptor);
  return reason.empty() ? "" : "cannot be read: " + reason + "; fetch it again from its maker";
}

}  // namespace

std::string read_signed(const std::string& path, FilePart part, const TrustedKeys& trusted,
                        Signature& signature, std::string& bytes, bool& lasting) {
  lasting = true;
  if (!trusted.problem.empty()) return "cannot be checked: " + trusted.problem;
  const std::string beside = path + kSignatureSuffix;
  std::string text;
  if (const std::string reason = read_file(beside, kMostSignatureBytes, text); !reason.empty())
    return "has no signature that can be read ('" + beside + "': " + reason +
           "); copy that file here along with it or, if you made it, sign it: `trigen cache sign --key K " +
           path + "`";
  auto parsed = parse_signature(text);
  if (!parsed) return "is not signed: '" + beside + "' " + take_error(parsed.takeError()).message;
  signature = std::move(*parsed);
  // Before a file of any size is read for the sake of a stranger's signature.
  if (std::string refusal = refuse_signer(signature, trusted.keys); !refusal.empty()) return refusal;
  if (std::string reason = read_layer(path, part, bytes, lasting); !reason.empty()) return reason;
  return refuse_signature(signature, bytes, name_of(path), trusted.keys, latest_date());
}

SignedFile::Bytes SignedFile::read(const std::string& path, FilePart part, const TrustedKeys& trusted,
                                   std::string& reason) {
  const std::lock_guard<std::mutex> lock(mutex_);
  reason = refusal_;
  if (bytes_ != nullptr || !refusal_.empty()) return bytes_;
  std::string bytes;
  bool lasting = false;
  reason = read_signed(path, part, trusted, signature_, bytes, lasting);
  if (reason.empty())
    bytes_ = std::make_shared<const std::string>(std::move(bytes));
  else if (lasting)
    refusal_ = reason;
  return bytes_;
}

std::string SignedFile::refuse_replay(const Signers& signers) {
  std::string refusal = cache::refuse_replay(signature_, signers);
  if (refusal.empty() && !remembered_.exchange(true))
    signers.remember(signed_name(signature_), signature_.timestamp);
  return refusal;
}

std::string signed_name(const Signature& signature) {
  return to_string(signature.number) + "/" + signature.file;
}

std::string refuse_replay(const Signature& signature, const Signers& signers) {
  const int64_t newest = signers.newest(signed_name(signature));
  if (signature.timestamp >= newest) return {};
  return "was signed at " + std::to_string(signature.timestamp) + ", and one of the same name of " +
         std::to_string(newest) +
         " was used here before: an older file was put back; fetch the newer one again";
}

}  // namespace trigen::cache
