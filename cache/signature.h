// Ed25519 signatures of files in minisign's format (https://jedisct1.github.io/minisign/, prehashed form): a
// file FILE has its signature beside it as FILE.minisig, which Debian's minisign makes and verifies, too.
//
//   untrusted comment: anything
//   base64 of "ED", 8 bytes that name the key, the signature of the file's BLAKE2b-512
//   trusted comment: timestamp:SECONDS<tab>file:NAME<tab>hashed
//   base64 of the signature of the signature above and of the trusted comment
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "cache/trust.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace trigen::cache {

constexpr char kSignatureSuffix[] = ".minisig";
constexpr int64_t kMostKeyBytes = 4 << 10;  // of a key's file

using KeyNumber = std::array<unsigned char, 8>;
std::string to_string(const KeyNumber& number);  // "32BF122E87FA8B9E", as minisign prints it

struct PublicKey {
  KeyNumber number{};
  std::array<unsigned char, 32> point{};
  int64_t oldest = 0;  // signatures with an earlier timestamp are refused: replays of what was withdrawn
};

// Overwritten when it goes.
struct SecretKey {
  KeyNumber number{};
  std::array<unsigned char, 64> bytes{};
  SecretKey() = default;
  SecretKey(const SecretKey&) = default;
  SecretKey& operator=(const SecretKey&) = default;
  ~SecretKey();
};

struct Signature {
  KeyNumber number{};
  std::array<unsigned char, 64> of_file{}, of_comment{};
  std::string comment;  // the trusted one
  int64_t timestamp = -1;
  std::string file;  // of the comment; "" and -1 when it lacks them
};

// "RW..." alone or the two lines of a .pub file; the two lines of a secret key without a password
// (minisign -G -W); a .minisig's four lines. Errors say what is wrong with the text, without naming its file.
llvm::Expected<PublicKey> parse_public_key(llvm::StringRef text);
llvm::Expected<SecretKey> parse_secret_key(llvm::StringRef text);
llvm::Expected<Signature> parse_signature(llvm::StringRef text);

struct KeyPair {
  std::string secret, open;  // the texts of the two files
  KeyNumber number{};
};
KeyPair make_key_pair();
// The text of the .minisig for a file of these bytes and this name (without folders).
std::string sign(llvm::StringRef bytes, llvm::StringRef name, int64_t timestamp, const SecretKey& key);

// "" when one of the keys signed these bytes under this name, else why not, in words that follow the file's
// name, at a time that is not after `latest` (cache/host.h).
std::string refuse_signer(const Signature& signature, llvm::ArrayRef<PublicKey> keys);
std::string refuse_signature(const Signature& signature, llvm::StringRef bytes, llvm::StringRef name,
                             llvm::ArrayRef<PublicKey> keys, int64_t latest);

// The keys whose signatures a layer needs. Not required: anything that is not to be distrusted for other
// reasons (cache/trust.h) is used.
struct TrustedKeys {
  bool required = false;
  std::vector<PublicKey> keys;
  std::string problem;  // an entry that is no key: then no signature is good
};
// Entries separated by ':', each a public key or a file that holds one, and after it, if wanted, '@' and the
// oldest timestamp whose signatures count. A list without a key makes every signature bad. `where`: what gave the
// list, for the problem.
constexpr char kTrustedKeys[] = "TRIGEN_TRUSTED_KEYS";
TrustedKeys parse_trusted_keys(llvm::StringRef list, llvm::StringRef where = kTrustedKeys);
// The keys of this list, else of the environment's; where neither is set, even to "", nothing is required.
TrustedKeys trusted_keys(const std::optional<std::string>& list);

// The keys whose signatures count, and the newest signatures that were met: by the names of key and file, a timestamp. An
// older signature of both is a replay.
struct Signers {
  TrustedKeys trusted;
  std::function<int64_t(const std::string& name)> newest = [](const std::string&) { return 0; };
  std::function<void(const std::string& name, int64_t timestamp)> remember = [](const std::string&, int64_t) {
  };
};

// A layer that must be signed: read whole, once, and used from memory, so that what was verified is what is
// used, whatever becomes of the file.
class SignedFile {
 public:
  using Bytes = std::shared_ptr<const std::string>;

  // Null and why not, in words that follow the file's name. The answer stays, but for one about the system's
  // errors. Held in an Operation (cache/lock.h).
  Bytes read(const std::string& path, FilePart part, const TrustedKeys& trusted, std::string& reason);
  // Check of the file read: "" or why an older file must have been put back. Asks the signers, outside operations.
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

// "" or why this is older than what the signers met of its name.
std::string refuse_replay(const Signature& signature, const Signers& signers);

// The file and its signature, checked now. "" and both, or why not. `lasting`: no error of the system's.
std::string read_signed(const std::string& path, FilePart part, const TrustedKeys& trusted,
                        Signature& signature, std::string& bytes, bool& lasting);

}  // namespace trigen::cache
