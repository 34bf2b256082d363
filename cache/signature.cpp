#include "cache/signature.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "cache/host.h"
#include "cache/trust.h"
#include "generator/error.h"
#include "generator/names.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/SHA256.h"

namespace trigen::cache {
namespace {

static_assert(sizeof(PublicKey::point) == crypto_sign_PUBLICKEYBYTES);
static_assert(sizeof(SecretKey::bytes) == crypto_sign_SECRETKEYBYTES);
static_assert(sizeof(Signature::of_file) == crypto_sign_BYTES);

constexpr llvm::StringLiteral kUntrusted = "untrusted comment: ", kTrusted = "trusted comment: ";
// A secret key's fields in their order: "Ed", "\0\0" (no password) or "Sc" (scrypt), "B2", salt and limits of
// scrypt, number, key, BLAKE2b-256 over the first, the number and the key.
constexpr size_t kScryptBytes = 32 + 8 + 8, kSumBytes = 32;

using Bytes = std::string;

llvm::StringRef view(const unsigned char* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
const unsigned char* raw(llvm::StringRef bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

// Chooses the fastest code for this CPU, once.
void begin() {
  if (sodium_init() < 0) std::abort();  // no random numbers: only where no getrandom() and no /dev/urandom is
}

std::string encode(llvm::StringRef bytes) {
  std::string text(sodium_base64_ENCODED_LEN(bytes.size(), sodium_base64_VARIANT_ORIGINAL), '\0');
  sodium_bin2base64(text.data(), text.size(), raw(bytes), bytes.size(), sodium_base64_VARIANT_ORIGINAL);
  text.pop_back();  // its terminating zero
  return text;
}

bool decode(llvm::StringRef text, size_t size, Bytes& bytes) {
  bytes.assign(size, '\0');
  size_t got = 0;
  const char* end = nullptr;
  return sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), size, text.data(), text.size(),
                           nullptr, &got, &end, sodium_base64_VARIANT_ORIGINAL) == 0 &&
         got == size && end == text.end();
}

// Takes the first `out.size()` bytes off.
template <size_t size>
void take(llvm::StringRef& bytes, std::array<unsigned char, size>& out) {
  std::memcpy(out.data(), bytes.data(), size);
  bytes = bytes.drop_front(size);
}

llvm::SmallVector<llvm::StringRef, 5> lines_of(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef, 5> lines;
  text.rtrim("\r\n").split(lines, '\n');
  for (llvm::StringRef& line : lines) line = line.rtrim('\r');
  return lines;
}

std::array<unsigned char, crypto_generichash_BYTES_MAX> hash_of(llvm::StringRef bytes) {
  std::array<unsigned char, crypto_generichash_BYTES_MAX> hash{};
  crypto_generichash(hash.data(), hash.size(), raw(bytes), bytes.size(), nullptr, 0);
  return hash;
}

std::array<unsigned char, kSumBytes> sum_of(const SecretKey& key) {
  std::array<unsigned char, kSumBytes> sum{};
  crypto_generichash_state state;
  crypto_generichash_init(&state, nullptr, 0, sum.size());
  crypto_generichash_update(&state, raw("Ed"), 2);
  crypto_generichash_update(&state, key.number.data(), key.number.size());
  crypto_generichash_update(&state, key.bytes.data(), key.bytes.size());
  crypto_generichash_final(&state, sum.data(), sum.size());
  return sum;
}

const PublicKey* find_key(const KeyNumber& number, llvm::ArrayRef<PublicKey> keys) {
  for (const PublicKey& key : keys)
    if (key.number == number) return &key;
  return nullptr;
}

void read_comment(Signature& signature) {
  llvm::SmallVector<llvm::StringRef, 4> fields;
  llvm::StringRef(signature.comment).split(fields, '\t');
  for (llvm::StringRef field : fields) {
    if (field.consume_front("timestamp:")) {
      if (field.getAsInteger(10, signature.timestamp) || signature.timestamp < 0) signature.timestamp = -1;
    } else if (field.consume_front("file:")) {
      signature.file = field.str();
    }
  }
}

}  // namespace

SecretKey::~SecretKey() { sodium_memzero(bytes.data(), bytes.size()); }

std::string to_string(const KeyNumber& number) {
  std::string text;
  for (size_t i = number.size(); i-- > 0;)  // a little-endian number
    for (const int digit : {number[i] >> 4, number[i] & 15}) text += "0123456789ABCDEF"[digit];
  return text;
}

llvm::Expected<PublicKey> parse_public_key(llvm::StringRef text) {
  const auto lines = lines_of(text);
  Bytes bytes;
  PublicKey key;
  if (lines.size() > 2 || (lines.size() == 2 && !lines[0].startswith(kUntrusted)) ||
      !decode(lines.back().trim(), 2 + key.number.size() + key.point.size(), bytes) ||
      !llvm::StringRef(bytes).startswith("Ed"))
    return make_error(
        ErrorKind::kBadRequest,
        "is no public key of minisign's format; such keys have 56 characters and begin with RW");
  llvm::StringRef rest = llvm::StringRef(bytes).drop_front(2);
  take(rest, key.number);
  take(rest, key.point);
  return key;
}

llvm::Expected<SecretKey> parse_secret_key(llvm::StringRef text) {
  const auto lines = lines_of(text);
  SecretKey key;
  Bytes bytes;
  constexpr size_t kHead = 6;
  if (lines.size() != 2 || !lines[0].startswith(kUntrusted) ||
      !decode(lines[1], kHead + kScryptBytes + key.number.size() + key.bytes.size() + kSumBytes, bytes) ||
      !llvm::StringRef(bytes).startswith("Ed") || llvm::StringRef(bytes).substr(4, 2) != "B2")
    return make_error(ErrorKind::kBadRequest,
                      "is no secret key of minisign's format; make one with `trigen cache keygen`");
  if (llvm::StringRef(bytes).substr(2, 2) != llvm::StringRef("\0\0", 2))
    return make_error(ErrorKind::kBadRequest,
                      "is locked with a password, which trigen does not ask for; sign with `minisign -S`, or "
                      "use a key without one (`trigen cache keygen`, `minisign -G -W`)");
  llvm::StringRef rest = llvm::StringRef(bytes).drop_front(kHead + kScryptBytes);
  take(rest, key.number);
  take(rest, key.bytes);
  // minisign leaves the sum of a key without a password at 0; a key's second half follows from its first.
  const bool summed = rest == view(sum_of(key).data(), kSumBytes) || rest == std::string(kSumBytes, '\0');
  SecretKey again;
  PublicKey open;
  crypto_sign_seed_keypair(open.point.data(), again.bytes.data(), key.bytes.data());
  sodium_memzero(bytes.data(), bytes.size());
  if (!summed || again.bytes != key.bytes)
    return make_error(ErrorKind::kBadRequest, "is damaged: its parts do not fit together");
  return key;
}

llvm::Expected<Signature> parse_signature(llvm::StringRef text) {
  const auto lines = lines_of(text);
  Signature signature;
  Bytes of_file, of_comment;
  if (lines.size() != 4 || !lines[0].startswith(kUntrusted) || !lines[2].startswith(kTrusted) ||
      !decode(lines[1], 2 + signature.number.size() + signature.of_file.size(), of_file) ||
      !decode(lines[3], signature.of_comment.size(), of_comment))
    return make_error(ErrorKind::kCache,
                      "is no signature of minisign's format; fetch it again from its maker");
  if (!llvm::StringRef(of_file).startswith("ED"))
    return make_error(ErrorKind::kCache,
                      "is a signature of the file's bytes, not of their hash; sign with `trigen cache sign`, "
                      "or with minisign 0.10 or newer");
  llvm::StringRef rest = llvm::StringRef(of_file).drop_front(2);
  take(rest, signature.number);
  take(rest, signature.of_file);
  rest = of_comment;
  take(rest, signature.of_comment);
  signature.comment = lines[2].drop_front(kTrusted.size()).str();
  read_comment(signature);
  return signature;
}

KeyPair make_key_pair() {
  begin();
  PublicKey open;
  SecretKey secret;
  crypto_sign_keypair(open.point.data(), secret.bytes.data());
  randombytes_buf(open.number.data(), open.number.size());
  secret.number = open.number;
  const std::string number = to_string(open.number);
  const auto sum = sum_of(secret);
  Bytes bytes = std::string("Ed\0\0B2", 6) + std::string(kScryptBytes, '\0');
  bytes += view(secret.number.data(), secret.number.size());
  bytes += view(secret.bytes.data(), secret.bytes.size());
  bytes += view(sum.data(), sum.size());
  KeyPair pair;
  pair.number = open.number;
  pair.secret =
      (kUntrusted + "minisign secret key " + number + ", without a password\n").str() + encode(bytes) + "\n";
  sodium_memzero(bytes.data(), bytes.size());
  bytes = "Ed";
  bytes += view(open.number.data(), open.number.size());
  bytes += view(open.point.data(), open.point.size());
  pair.open = (kUntrusted + "minisign public key " + number + "\n").str() + encode(bytes) + "\n";
  return pair;
}

std::string sign(llvm::StringRef bytes, llvm::StringRef name, int64_t timestamp, const SecretKey& key) {
  begin();
  const auto hash = hash_of(bytes);
  std::array<unsigned char, crypto_sign_BYTES> of_file{}, of_comment{};
  crypto_sign_detached(of_file.data(), nullptr, hash.data(), hash.size(), key.bytes.data());
  const std::string comment = ("timestamp:" + llvm::Twine(timestamp) + "\tfile:" + name + "\thashed").str();
  const std::string both = view(of_file.data(), of_file.size()).str() + comment;
  crypto_sign_detached(of_comment.data(), nullptr, raw(both), both.size(), key.bytes.data());
  const std::string first =
      "ED" + view(key.number.data(), key.number.size()).str() + view(of_file.data(), of_file.size()).str();
  return (kUntrusted + "signature from trigen with key " + to_string(key.number) + "\n").str() +
         encode(first) + "\n" + kTrusted.str() + comment + "\n" +
         encode(view(of_comment.data(), of_comment.size())) + "\n";
}

std::string refuse_signer(const Signature& signature, llvm::ArrayRef<PublicKey> keys) {
  if (find_key(signature.number, keys) != nullptr) return {};
  std::string trusted;
  for (const PublicKey& key : keys) trusted += (trusted.empty() ? "" : ", ") + to_string(key.number);
  return "is signed with key " + to_string(signature.number) + ", trusted are " + trusted +
         "; trust that key too, if you know whose it is";
}

std::string refuse_signature(const Signature& signature, llvm::StringRef bytes, llvm::StringRef name,
                             llvm::ArrayRef<PublicKey> keys, int64_t latest) {
  begin();
  if (std::string refusal = refuse_signer(signature, keys); !refusal.empty()) return refusal;
  const PublicKey& key = *find_key(signature.number, keys);
  const auto hash = hash_of(bytes);
  if (crypto_sign_verify_detached(signature.of_file.data(), hash.data(), hash.size(), key.point.data()) != 0)
    return "is not what key " + to_string(key.number) +
           " signed: the file or its signature was changed; fetch both again from "
           "their maker";
  const std::string both = view(signature.of_file.data(), signature.of_file.size()).str() + signature.comment;
  if (crypto_sign_verify_detached(signature.of_comment.data(), raw(both), both.size(), key.point.data()) != 0)
    return "has a signature whose trusted comment was changed; fetch both again from their maker";
  if (signature.timestamp < 0 || signature.file.empty())
    return "has a signature whose trusted comment lacks timestamp and file name, which show replays; sign "
           "without a comment of your own";
  if (signature.file != name)
    return "was signed as " + trigen::quoted(signature.file) + "; give it that name or sign it anew";
  if (signature.timestamp > latest)
    return "was signed at " + std::to_string(signature.timestamp) +
           ", more than a day ahead of this machine's clock; correct the clock that is wrong, there or here, "
           "and "
           "sign it anew";
  if (signature.timestamp < key.oldest)
    return "was signed at " + std::to_string(signature.timestamp) + ", of key " + to_string(key.number) +
           " only signatures from " + std::to_string(key.oldest) +
           " on are trusted; fetch a newer one from its maker";
  return {};
}

TrustedKeys parse_trusted_keys(llvm::StringRef list, llvm::StringRef where) {
  TrustedKeys trusted;
  llvm::SmallVector<llvm::StringRef, 4> entries;
  list.split(entries, ':', -1, /*KeepEmpty=*/false);
  trusted.required = true;
  if (entries.empty())
    trusted.problem = where.str() +
                      " is set and names no key; name a public key there, or unset it to ask for no "
                      "signatures";
  for (llvm::StringRef entry : entries) {
    const auto [before, after] = entry.rsplit('@');
    int64_t oldest = 0;
    const bool dated = !after.empty() && !after.getAsInteger(10, oldest) && oldest >= 0;
    const llvm::StringRef text = dated ? before : entry;
    std::string file;
    auto key = parse_public_key(text);
    if (!key) {
      llvm::consumeError(key.takeError());
      const std::string reason = read_file(text.str(), kMostKeyBytes, file);
      key = parse_public_key(file);
      if (!key) {
        const std::string what = take_error(key.takeError()).message;
        if (trusted.problem.empty())
          trusted.problem =
              trigen::quoted(text) + " in " + where.str() + " " +
              (reason.empty() ? what : "is neither a public key nor a file that holds one (" + reason + ")") +
              "; correct that entry";
        continue;
      }
    }
    key->oldest = dated ? oldest : 0;
    trusted.keys.push_back(*key);
  }
  return trusted;
}

TrustedKeys trusted_keys(const std::optional<std::string>& list) {
  if (list) return parse_trusted_keys(*list, "trusted_keys");
  const auto asked = environment_if_set(kTrustedKeys);
  return asked ? parse_trusted_keys(*asked) : TrustedKeys();
}

namespace {

constexpr int64_t kMostSignatureBytes = 16 << 10;  // minisign's longest trusted comment has 8 KiB
constexpr int64_t kMostLayerBytes = int64_t{1} << 30;

// "<64 hex digits>.trigen": a shard, whose name is the SHA-256 of its bytes. Its signature is no replay, for none of
// its name is newer.
bool is_shard(llvm::StringRef name) {
  return name.consume_back(".trigen") && name.size() == 64 &&
         name.find_first_not_of("0123456789abcdef") == llvm::StringRef::npos;
}

// Key and file of a signature that was checked, "32BF122E87FA8B9E/core.trigen".
std::string signed_name(const Signature& signature) {
  return to_string(signature.number) + "/" + signature.file;
}

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

std::string refuse_replay(const Signature& signature, const Signers& signers) {
  const int64_t newest = is_shard(signature.file) ? 0 : signers.newest(signed_name(signature));
  if (signature.timestamp >= newest) return {};
  return "was signed at " + std::to_string(signature.timestamp) + ", and one of the same name of " +
         std::to_string(newest) +
         " was used here before: an older file was put back; fetch the newer one again";
}

}  // namespace trigen::cache
