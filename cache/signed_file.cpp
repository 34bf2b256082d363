#include "cache/signed_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "cache/environment.h"
#include "cache/filesystem.h"
#include "cache/guard.h"
#include "generator/error.h"
#include "generator/names.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

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
  const std::string name = name_of(path);
  if (is_shard(name) && !llvm::StringRef(name).startswith(sha256_of(bytes)))
    return "has other bytes than its name says; fetch it again from its maker";
  return refuse_signature(signature, bytes, name, trusted.keys, latest_date());
}

llvm::Expected<Signer> read_signer(const std::string& path) {
  std::string text;
  if (const std::string reason = read_file(path, kMostKeyBytes, text); !reason.empty())
    return make_error(ErrorKind::kBadRequest, "key " + trigen::quoted(path) + " cannot be read: " + reason);
  struct stat facts = {};
  if (::stat(path.c_str(), &facts) == 0 && (facts.st_mode & 077) != 0)
    return make_error(ErrorKind::kBadRequest, "key " + trigen::quoted(path) +
                                                  " is open to others; let its owner alone read it: chmod "
                                                  "600, and make a new one if others may have read it");
  auto key = parse_secret_key(text);
  if (!key)
    return make_error(ErrorKind::kBadRequest,
                      trigen::quoted(path) + " " + take_error(key.takeError()).message);
  return Signer{*key};
}

llvm::Expected<std::string> signature_of(const std::string& path, llvm::StringRef bytes,
                                         const Signer& signer) {
  const std::string name = name_of(path);
  if (printable(name) != name)
    return make_error(ErrorKind::kBadRequest,
                      trigen::quoted(path) + " has a name that no signature can carry; rename it");
  return sign(bytes, name, signer.date, signer.key);
}

llvm::Error sign_file(const std::string& path, const Signer& signer) {
  std::string bytes;
  if (const std::string reason = read_file(path, kMostLayerBytes, bytes); !reason.empty())
    return make_error(ErrorKind::kBadRequest, trigen::quoted(path) + " cannot be read: " + reason);
  auto signature = signature_of(path, bytes, signer);
  if (!signature) return signature.takeError();
  const std::string beside = path + kSignatureSuffix;
  if (const int error = write_output(beside, *signature))
    return make_error(ErrorKind::kCache, trigen::quoted(beside) + " cannot be written (" + errno_text(error) +
                                             "); make its folder writable");
  return llvm::Error::success();
}

bool is_shard(llvm::StringRef name) {
  return name.consume_back(".trigen") && name.size() == 64 &&
         name.find_first_not_of("0123456789abcdef") == llvm::StringRef::npos;
}

std::string sha256_of(llvm::StringRef bytes) {
  const auto digest = llvm::SHA256::hash(llvm::arrayRefFromStringRef(bytes));
  return llvm::toHex(llvm::ArrayRef<uint8_t>(digest), /*LowerCase=*/true);
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
  if (refusal.empty() && !is_shard(signature_.file) && !remembered_.exchange(true))
    signers.remember(signed_name(signature_), signature_.timestamp);
  return refusal;
}

std::string signed_name(const Signature& signature) {
  return to_string(signature.number) + "/" + signature.file;
}

std::string refuse_replay(const Signature& signature, const Signers& signers) {
  const int64_t newest = is_shard(signature.file) ? 0 : signers.newest(signed_name(signature));
  if (signature.timestamp >= newest) return {};
  return "was signed at " + std::to_string(signature.timestamp) + ", and one of the same name of " +
         std::to_string(newest) +
         " was used here before: an older file was put back; fetch the newer one again";
}

}  // namespace trigen::cache
