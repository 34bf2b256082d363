// trigen cache keygen, sign, verify --keys, quarantine: whose cache files are believed, which kernels are not.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

#include "cache/host.h"
#include "cache/upkeep.h"
#include "cli/cache.h"
#include "cli/table.h"
#include "generator/names.h"

namespace trigen::cli {
namespace {

using namespace trigen::cache;

// A new file; one that is there stays as it is.
llvm::Error create_file(const std::string& path, const std::string& text, int mode) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  int error = descriptor < 0 ? errno : 0;
  if (error == 0 && ::write(descriptor, text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    error = errno != 0 ? errno : ENOSPC;
  if (error == 0 && ::fsync(descriptor) != 0) error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (error == 0) return llvm::Error::success();
  if (descriptor >= 0) ::unlink(path.c_str());
  return make_error(ErrorKind::kCache, trigen::quoted(path) + " cannot be made: " + errno_text(error) +
                                           (error == EEXIST ? "; name another file or move it away" : ""));
}

int make_keys(const std::string& path) {
  const KeyPair pair = make_key_pair();
  if (llvm::Error error = create_file(path, pair.secret, 0600)) return report(std::move(error));
  if (llvm::Error error = create_file(path + ".pub", pair.open, 0644)) {
    ::unlink(path.c_str());
    return report(std::move(error));
  }
  const llvm::StringRef open = llvm::StringRef(pair.open).split('\n').second.rtrim();
  std::printf(
      "key %s\n  secret  %s (has no password: a reader of the file can sign as you)\n  public  %s.pub\n",
      to_string(pair.number).c_str(), printable(path).c_str(), printable(path).c_str());
  std::printf("to trust it: export %s=%s\n", kTrustedKeys, open.str().c_str());
  return kDone;
}

int sign_files(const std::string& key, const std::vector<std::string>& files) {
  auto signer = dated_signer(key);
  if (!signer) return report(signer.takeError());
  for (const std::string& path : files) {
    if (llvm::Error error = sign_file(path, *signer)) return report(std::move(error));
    std::printf("%s\n", printable(path + kSignatureSuffix).c_str());
  }
  return kDone;
}

int show_quarantine(const TargetOptions& where, bool clear) {
  auto store = where.open_store(/*read_only=*/!clear);
  if (clear) {
    if (llvm::Error error = store->clear_findings(FindingKind::kCanary)) return report(std::move(error));
    std::printf("canaries' findings are forgotten: each kernel of another machine runs one more canary\n");
    return kDone;
  }
  Table table({"binary", "device", "driver", "finding"});
  bool any = false;
  for (const Finding& finding : store->list_findings()) {
    if (finding.kind != FindingKind::kCanary || finding.value != 0) continue;
    any = true;
    table.add({finding.name.substr(0, 12), finding.device, finding.driver, finding.text});
  }
  if (any)
    table.print();
  else
    std::printf("no kernel is in quarantine\n");
  return kDone;
}

}  // namespace

llvm::Expected<Signer> dated_signer(const std::string& key) {
  auto date = making_date();
  if (!date) return date.takeError();
  auto signer = read_signer(key);
  if (signer) signer->date = *date;
  return signer;
}

int verify_signatures(const std::string& keys, const std::vector<std::string>& files,
                      const Store::Options& options) {
  if (files.empty())
    return report(
        make_error(ErrorKind::kBadRequest,
                   "--keys needs FILES, the signed files: trigen cache verify --keys KEYS FILES..."));
  const TrustedKeys trusted = parse_trusted_keys(keys, "--keys");
  if (!trusted.problem.empty()) return report(make_error(ErrorKind::kBadRequest, trusted.problem));
  const UserLayer user(options);
  int code = kDone;
  for (const std::string& named : files) {
    char real[PATH_MAX];
    const std::string path = ::realpath(named.c_str(), real) != nullptr ? real : named;
    Signature signature;
    std::string bytes;
    bool lasting = false;
    std::string reason = read_signed(path, FilePart::kShipped, trusted, signature, bytes, lasting);
    if (reason.empty()) reason = refuse_replay(signature, user.signers());
    if (reason.empty()) {
      std::string comment = signature.comment;
      std::replace(comment.begin(), comment.end(), '\t', ' ');  // minisign sets its parts apart so
      std::printf("%s: signed with key %s: %s\n", printable(named).c_str(),
                  to_string(signature.number).c_str(), printable(comment).c_str());
      continue;
    }
    std::printf("%s %s\n", printable(named).c_str(), printable(reason).c_str());
    code = kFailure;
  }
  return code;
}

void add_cache_trust(CLI::App& cache, Commands& commands) {
  auto key = std::make_shared<std::string>();
  auto files = std::make_shared<std::vector<std::string>>();
  auto where = std::make_shared<TargetOptions>();
  auto clear = std::make_shared<bool>(false);
  CLI::App* keygen = cache.add_subcommand("keygen", "make a key pair to sign cache files with");
  keygen->add_option("--key", *key, "file of the secret key; the public one is FILE.pub")
      ->required()
      ->type_name("FILE");
  commands.push_back({keygen, [=] { return make_keys(*key); }});
  CLI::App* sign = cache.add_subcommand("sign", "sign files: FILE.minisig beside each (minisign's format)");
  sign->add_option("--key", *key, "the secret key, without a password")->required()->type_name("FILE");
  sign->add_option("files", *files, "bundles or cache files")->required();
  commands.push_back({sign, [=] { return sign_files(*key, *files); }});
  CLI::App* quarantine =
      cache.add_subcommand("quarantine", "kernels of other machines that gave wrong results here");
  where->add_cache(*quarantine);
  quarantine->add_flag("--clear", *clear, "forget the findings");
  commands.push_back({quarantine, [=] { return show_quarantine(*where, *clear); }});
}

}  // namespace trigen::cli
