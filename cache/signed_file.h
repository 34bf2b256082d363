// A layer that must be signed: read whole, once, and used from memory, so that what was verified is what is
// used, whatever becomes of the file.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "cache/signature.h"
#include "cache/trust.h"

namespace trigen::cache {

// Whose signatures count, and the newest ones that were met: by the names of key and file, a timestamp. An
// older signature of both is a replay.
struct Signers {
  TrustedKeys trusted;
  std::function<int64_t(const std::string& name)> newest = [](const std::string&) { return 0; };
  std::function<void(const std::string& name, int64_t timestamp)> remember = [](const std::string&, int64_t) {
  };
};

class SignedFile {
 public:
  using Bytes = std::shared_ptr<const std::string>;

  // Null and why not, in words that follow the file's name. The answer stays, but for one about the system's
  // errors. Held in an Operation (cache/fork.h).
  Bytes read(const std::string& path, FilePart part, const TrustedKeys& trusted, std::string& reason);
  // Of what was read: "" or why an older file must have been put back. Asks the signers, outside operations.
  std::string refuse_replay(const Signers& signers);

 private:
  std::mutex mutex_;
  Bytes bytes_;
  Signature signature_;  // set before bytes_, and not again
  std::string refusal_;
  std::atomic<bool> remembered_{false};
};

// Signs as the maker of this key, at this time.
struct Signer {
  SecretKey key;
  int64_t date = 0;  // seconds since 1970
};
// The key of a file that its owner alone may read; without a date.
llvm::Expected<Signer> read_signer(const std::string& path);
// The text of `path`.minisig, for a file of these bytes.
llvm::Expected<std::string> signature_of(const std::string& path, llvm::StringRef bytes,
                                         const Signer& signer);
// Writes that of the file that is there, as an output that the user names.
llvm::Error sign_file(const std::string& path, const Signer& signer);

// "<64 hex digits>.trigen": a shard, whose name is the SHA-256 of its bytes. Its signature is no replay, for none of
// its name is newer.
bool is_shard(llvm::StringRef name);
std::string sha256_of(llvm::StringRef bytes);

// Key and file of a signature that was checked, "32BF122E87FA8B9E/core.trigen".
std::string signed_name(const Signature& signature);
// "" or why this is older than what the signers met of its name.
std::string refuse_replay(const Signature& signature, const Signers& signers);

// The file and its signature, checked now. "" and both, or why not. `lasting`: no error of the system's.
std::string read_signed(const std::string& path, FilePart part, const TrustedKeys& trusted,
                        Signature& signature, std::string& bytes, bool& lasting);

}  // namespace trigen::cache
