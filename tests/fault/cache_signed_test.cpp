// TRIGEN_TRUSTED_KEYS: layers that somebody changed, cut, swapped, put back or signed with another key.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <ctime>

#include "cache/signature.h"
#include "cache/upkeep.h"
#include "generator/error.h"
#include "tests/fault/child.h"
#include "tests/fault/journal.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

namespace fs = std::filesystem;
using cache::KeyPair;
using ::testing::AnyOf;
using namespace trigen::testing;
using ::testing::HasSubstr;

// A layer that a maker signed, and a user who trusts that maker.
struct Shipped {
  CacheFolder folder;
  std::string path = folder / "core.db", own = folder / "user/cache.db";
  KeyPair maker = cache::make_key_pair(), stranger = cache::make_key_pair();
  std::string good, evil;  // the layer's bytes, and those of one with another kernel and another config

  Shipped() {
    Binary mine = sample_binary(1, 3000), theirs = mine;
    theirs.cubin = "a stranger's kernel";
    Record record = sample_record(Provenance::kMeasured, "GPU", 100, "580"), other = record;
    other.candidate = "mma_sm80:tile=8x8x8";
    good = layer_of("good.db", mine, record);
    evil = layer_of("evil.db", theirs, other);  // whose digests fit
    put(good, maker, 1000);
  }
  // The file stays, so that no copy gets its inode, which is half of its home.
  std::string layer_of(const char* name, const Binary& binary, const Record& record) const {
    const std::string at = folder / name;
    {
      auto store = open_store({at});
      EXPECT_EQ(message(store->put_binary(binary)), "");
      EXPECT_EQ(message(store->put_record(record)), "");
    }
    return slurp(at);
  }
  std::string signature(const std::string& bytes, const KeyPair& by, int64_t when,
                        const std::string& name = "core.db") const {
    auto key = cache::parse_secret_key(by.secret);
    if (!key) return take_error(key.takeError()).message;
    return cache::sign(bytes, name, when, *key);
  }
  void put(const std::string& bytes, const KeyPair& by, int64_t when) const {
    spill(path, bytes);
    spill(path + ".minisig", signature(bytes, by, when));
  }
  std::string trusted() const { return llvm::StringRef(maker.open).split('\n').second.rtrim().str(); }
  OpenStore open(const std::optional<std::string>& keys, const std::string& user) const {
    OpenStore opened;
    Store::Options options;
    options.layers = {user, path};
    options.trusted_keys = keys;
    options.log = [lines = opened.lines](const std::string& line) { lines->push_back(line); };
    opened.store = Store::open(options);
    return opened;
  }
  OpenStore open() const { return open(trusted(), own); }
  // "" when the layer is refused for `reason` by every look-up.
  std::string refused(const std::string& reason, const std::string& keys) const {
    alarm(20);  // whoever waits is killed
    OpenStore store = open(keys, folder / "nowhere.db");
    if (store->find_binary(sample_binary(1).key)) return "a binary was found";
    if (store->find_binary_any_compiler(sample_binary(1).key.source_hash, "sm_80"))
      return "a binary was found";
    const Record record = sample_record(Provenance::kMeasured, "GPU", 100, "580");
    if (store->find_record(record.problem, {record.arch}, {"GPU", 100, "580"})) return "a record was found";
    if (!store->list_binaries().empty() || !store->list_records().empty()) return "a list has rows";
    if (store->verify().empty()) return "verify finds nothing";
    const std::string said = store.log(), shown = store->layers()[1].problem;
    alarm(0);
    if (said.find(reason) == std::string::npos) return "it is said: " + said;
    if (shown.find(reason) == std::string::npos) return "it is shown: " + shown;
    if (said.find("TRIGEN_TRUSTED_KEYS or trusted_keys asks for signatures: it ") == std::string::npos)
      return "no cause: " + said;
    const bool missing = said.find("has no signature") != std::string::npos;
    if (missing != (said.find("`trigen cache sign") != std::string::npos))
      return "who signs what another one sent makes it trusted: " + said;
    return "";
  }
  std::string refused(const std::string& reason) const { return refused(reason, trusted()); }
};

TEST(CacheSigned, ATrustedSignatureIsNeededByWhatOthersMadeAlone) {
  Shipped shipped;
  EXPECT_TRUE(shipped.open()->find_binary(sample_binary(1, 3000).key));
  EXPECT_EQ(shipped.open()->layers()[1].problem, "");
  EXPECT_TRUE(shipped.open()->verify().empty());
  fs::remove(shipped.path + ".minisig");
  EXPECT_EQ(shipped.refused("has no signature that can be read"), "");
  EXPECT_TRUE(shipped.open(std::nullopt, shipped.own)->find_binary(sample_binary(1).key))
      << "nobody asked for one";
  for (const char* none : {"", ":"})  // $(cat missing)
    EXPECT_EQ(shipped.refused("trusted_keys is set and names no key", none), "");
  // A row of the user's own trigen.
  auto own = shipped.open();
  ASSERT_EQ(message(own->put_binary(sample_binary(2))), "");
  EXPECT_TRUE(own->find_binary(sample_binary(2).key));
  EXPECT_TRUE(shipped.open()->find_binary(sample_binary(2).key));
}

// The user layer's file is the user's, or it is somebody's who must sign it.
TEST(CacheSigned, AUserLayerOfAnotherOwnerNeedsASignature) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] needs root to act as two users";
  Shipped shipped;
  ASSERT_EQ(message(shipped.open()->put_binary(sample_binary(2))), "");
  for (const std::string& at : {shipped.folder.path(), shipped.folder / "user"})
    ASSERT_EQ(chmod(at.c_str(), 0755), 0);
  for (const std::string& at : {shipped.own, shipped.own + ".lock"}) ASSERT_EQ(chmod(at.c_str(), 0644), 0);
  const auto look = [&](bool expected) {
    Child child([&](const std::function<void()>&) -> std::string {
      if (setgid(65533) != 0 || setuid(65533) != 0) return "cannot take another uid";
      OpenStore store = shipped.open();
      return store->find_binary(sample_binary(2).key).has_value() == expected
                 ? ""
                 : "found or not: " + store.log();
    });
    return child.join();
  };
  EXPECT_EQ(look(false), "") << "root's";
  for (const std::string& at : {shipped.folder / "user", shipped.own, shipped.own + ".lock"})
    ASSERT_EQ(chown(at.c_str(), 65533, 65533), 0);
  EXPECT_EQ(look(true), "") << "their own";
}

TEST(CacheSigned, EveryChangeIsRefused) {
  Shipped shipped;
  const std::string text = slurp(shipped.path + ".minisig");
  const std::string again = "changed; fetch both again from their maker";
  const std::string changed = "is not what key " + cache::to_string(shipped.maker.number) +
                              " signed: the file or its signature was " + again;
  std::string flipped = shipped.good;
  flipped[flipped.size() / 2] ^= 1;
  for (const auto& [what, bytes] :
       {std::pair<const char*, std::string>{"other kernel and config, right digests", shipped.evil},
        {"a bit", flipped},
        {"truncated", shipped.good.substr(0, shipped.good.size() - 4096)},
        {"truncated to a header", shipped.good.substr(0, 100)},
        {"a byte more", shipped.good + '\0'}}) {
    spill(shipped.path, bytes);
    EXPECT_EQ(shipped.refused(changed), "") << what;
  }
  spill(shipped.path, shipped.good);

  const std::string beside = shipped.path + ".minisig";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string other = text;
    const size_t at = other.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return other.replace(at, from.size(), to);
  };
  const size_t second = text.find('\n') + 1, fourth = text.rfind('\n', text.size() - 2) + 1;
  std::string signature = text, global = text;
  signature[second + 40] = signature[second + 40] == 'A' ? 'B' : 'A';
  global[fourth + 40] = global[fourth + 40] == 'A' ? 'B' : 'A';
  struct Case {
    const char* what;
    std::string text, reason;
  };
  for (const Case& each : {
           Case{"signature", signature, changed},
           Case{"signature of the comment", global, "trusted comment was " + again},
           Case{"timestamp", with("timestamp:1000", "timestamp:2000"), "trusted comment was " + again},
           Case{"name", with("file:core.db", "file:more.db"), "trusted comment was " + again},
           Case{"cut", text.substr(0, fourth), "is no signature of minisign's format; fetch it again"},
           Case{"empty", "", "is no signature of minisign's format; fetch it again"},
           Case{"of another file", shipped.signature(shipped.evil, shipped.maker, 1000), changed},
           Case{"of another name", shipped.signature(shipped.good, shipped.maker, 1000, "old.db"),
                "was signed as 'old.db'"},
           Case{"huge", text + std::string(1 << 20, 'x'), "at most 16384 B are read"},
           Case{"a stranger's", shipped.signature(shipped.good, shipped.stranger, 1000),
                "is signed with key " + cache::to_string(shipped.stranger.number) + ", trusted are " +
                    cache::to_string(shipped.maker.number) + "; trust that key too"},
       }) {
    spill(beside, each.text);
    EXPECT_EQ(shipped.refused(each.reason), "") << each.what;
  }
  fs::remove(beside);
  ASSERT_EQ(mkfifo(beside.c_str(), 0600), 0);
  EXPECT_EQ(shipped.refused("not a regular file"), "") << "and nobody waits for its other end";
  fs::remove(beside);
  spill(beside, text);
  EXPECT_TRUE(shipped.open()->find_binary(sample_binary(1).key)) << "as it was";
  EXPECT_EQ(shipped.refused("it cannot be checked: '/no/key' in trusted_keys is neither a public key nor a "
                            "file that holds one (no such file or directory); correct that entry",
                            shipped.trusted() + ":/no/key"),
            "");
}

// A file of any size is read for a trusted signature alone, and then up to a limit.
TEST(CacheSigned, ABombIsNotRead) {
  Shipped shipped;
  ASSERT_EQ(truncate(shipped.path.c_str(), off_t{1} << 40), 0);
  EXPECT_EQ(shipped.refused("at most 1073741824 B are read"), "");
  spill(shipped.path + ".minisig", shipped.signature(shipped.good, shipped.stranger, 1000));
  EXPECT_EQ(shipped.refused("is signed with key"), "");
}

TEST(CacheSigned, AnOlderFileThatIsPutBackIsRefused) {
  Shipped shipped;
  const std::string old_bytes = slurp(shipped.path), old_signature = slurp(shipped.path + ".minisig");
  shipped.put(shipped.evil, shipped.maker, 2000);
  EXPECT_TRUE(shipped.open()->find_binary(sample_binary(1).key));
  spill(shipped.path, old_bytes);
  spill(shipped.path + ".minisig", old_signature);
  OpenStore store = shipped.open();
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(store.log(),
              HasSubstr("was signed at 1000, and one of the same name of 2000 was used here before"));
  // The key's own date decides while nothing is remembered.
  EXPECT_EQ(shipped.refused("was signed at 1000, of key " + cache::to_string(shipped.maker.number) +
                                " only signatures from 1500 on are trusted",
                            shipped.trusted() + "@1500"),
            "");
  EXPECT_TRUE(
      shipped.open(shipped.trusted(), shipped.folder / "other.db")->find_binary(sample_binary(1).key));
  // Other readers of the user layer are not disturbed by what it remembers.
  EXPECT_TRUE(shipped.open()->verify().size() == 1);
  EXPECT_EQ(store->layers()[0].problem, "");
  ASSERT_EQ(message(store->clear_findings(cache::FindingKind::kSignature)), "");
  EXPECT_TRUE(shipped.open()->find_binary(sample_binary(1).key));
}

// Every reader of files asks for what its use needs.
TEST(CacheSigned, WhatIsImportedIsSignedWhosesoeverTheFileIs) {
  Shipped shipped;
  Store::Options options;
  options.layers = {shipped.own};
  options.trusted_keys = shipped.trusted();
  const auto read = [&](const std::string& path, cache::ReadFor use) {
    auto contents = cache::read_contents(path, use, options);
    return contents ? "" : take_error(contents.takeError()).message;
  };
  EXPECT_EQ(read(shipped.path, cache::ReadFor::kImport), "");
  const std::string mine = shipped.folder / "mine.db";  // written here, by this user
  ASSERT_EQ(message(open_store({mine})->put_binary(sample_binary(3))), "");
  EXPECT_EQ(read(mine, cache::ReadFor::kRun), "");
  EXPECT_EQ(read(mine, cache::ReadFor::kLook), "");
  EXPECT_THAT(read(mine, cache::ReadFor::kImport), HasSubstr("asks for signatures: it has no signature"));
  fs::remove(shipped.path + ".minisig");
  for (const auto use : {cache::ReadFor::kLook, cache::ReadFor::kImport, cache::ReadFor::kRun})
    EXPECT_THAT(read(shipped.path, use), HasSubstr("no signature that can be read"))
        << "it came from elsewhere";
}

TEST(CacheSigned, AWithdrawnFileIsNeitherImportedNorMerged) {
  Shipped shipped;
  Store::Options options;
  options.layers = {shipped.own};
  options.trusted_keys = shipped.trusted();
  const std::string old = shipped.folder / "old/core.db";
  fs::create_directory(shipped.folder / "old");
  fs::copy(shipped.path, old);
  fs::copy(shipped.path + ".minisig", old + ".minisig");
  shipped.put(shipped.evil, shipped.maker, 2000);
  const auto merged = [&](const std::vector<std::string>& paths) {
    auto contents = cache::read_merged(paths, cache::ReadFor::kImport, options);
    return contents ? "" : take_error(contents.takeError()).message;
  };
  EXPECT_EQ(merged({old}), "") << "nothing newer was met";
  for (const auto& both : {std::vector<std::string>{old, shipped.path}, {shipped.path, old}})
    EXPECT_THAT(merged(both), AnyOf(HasSubstr("at 1000 and 2000, so one was replaced by the other"),
                                    HasSubstr("was signed at 1000, and one of the same name of 2000")));
  EXPECT_EQ(merged({shipped.path}), "");
  EXPECT_THAT(merged({old}),
              HasSubstr("was signed at 1000, and one of the same name of 2000 was used here before"));
  auto run = cache::read_contents(old, cache::ReadFor::kRun, options);
  EXPECT_FALSE(run);
  llvm::consumeError(run.takeError());
  auto look = cache::read_contents(old, cache::ReadFor::kLook, options);
  EXPECT_TRUE(static_cast<bool>(look)) << "an old file may be looked at: " << message(look.takeError());
}

// A wrong clock, or SOURCE_DATE_EPOCH in microseconds, locks a name nowhere.
TEST(CacheSigned, ADateAheadIsRefusedAndOneThatWasRememberedIsForgotten) {
  Shipped shipped;
  const int64_t now = std::time(nullptr), ahead = now + 2 * 86400;
  shipped.put(shipped.evil, shipped.maker, ahead);
  EXPECT_EQ(shipped.refused("more than a day ahead of this machine's clock"), "");
  shipped.put(shipped.good, shipped.maker, now);
  cache::Finding finding;
  finding.kind = cache::FindingKind::kSignature;
  auto secret = cache::parse_secret_key(shipped.maker.secret);
  ASSERT_TRUE(static_cast<bool>(secret));
  finding.name = cache::to_string(secret->number) + "/core.db";
  finding.value = ahead;
  ASSERT_EQ(message(shipped.open()->put_finding(finding)), "");
  EXPECT_TRUE(shipped.open()->find_binary(sample_binary(1).key)) << shipped.open().log();
}

// An image's file is root's, as the user of a container is: it counts as the user's own only where trigen wrote it.
TEST(CacheSigned, AFileThatAnImageBroughtIsNotTheUsersOwn) {
  Shipped shipped;
  const std::string image = shipped.folder / "image.db";
  const auto open = [&](const std::string& user) {
    OpenStore opened;
    Store::Options options;
    options.layers = {user};
    options.trusted_keys = shipped.trusted();
    options.log = [lines = opened.lines](const std::string& line) { lines->push_back(line); };
    opened.store = Store::open(options);
    return opened;
  };
  for (const bool with_lock : {false, true}) {
    SCOPED_TRACE(with_lock);
    spill(image, shipped.good);
    if (with_lock) spill(image + ".lock", "");
    OpenStore store = open(image);
    EXPECT_FALSE(store->find_binary(sample_binary(1).key));
    EXPECT_EQ(fs::exists(image + ".lock"), with_lock) << "a look-up that is refused makes nothing";
    EXPECT_THAT(store.log(),
                HasSubstr("it was not written here by this user's trigen, and has no signature"));
    // A put does not make it the user's.
    EXPECT_THAT(message(store->put_binary(sample_binary(2))),
                HasSubstr("when it is moved away, a new one is begun"));
    EXPECT_FALSE(open(image)->find_binary(sample_binary(1).key));
    EXPECT_TRUE(slurp(image) == shipped.good);
    fs::remove(image);
    fs::remove(image + ".lock");
  }
  // Moved away, a new one is begun; and who trusts a signature may take the file for their own.
  ASSERT_EQ(message(open(image)->put_binary(sample_binary(2))), "");
  EXPECT_TRUE(open(image)->find_binary(sample_binary(2).key));
  EXPECT_FALSE(open(shipped.path)->find_binary(sample_binary(2).key));
  ASSERT_EQ(message(open(shipped.path)->put_binary(sample_binary(2))), "") << "it is signed";
  EXPECT_TRUE(open(shipped.path)->find_binary(sample_binary(1).key));
}

// The verified bytes are those used: the file changes between the check and a look-up.
TEST(CacheSigned, WhatIsWrittenAfterTheCheckIsNotRead) {
  Shipped shipped;
  OpenStore store = shipped.open();
  ASSERT_TRUE(store->find_record(sample_record(Provenance::kMeasured, "GPU", 100, "580").problem, {"sm_80"},
                                 {"GPU", 100, "580"}));
  const int descriptor = ::open(shipped.path.c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(descriptor, shipped.evil.data(), shipped.evil.size(), 0),
            static_cast<ssize_t>(shipped.evil.size()));
  close(descriptor);
  const auto binary = store->find_binary(sample_binary(1).key);
  ASSERT_TRUE(binary);
  EXPECT_EQ(binary->cubin, sample_binary(1, 3000).cubin);
  EXPECT_TRUE(binary->shipped);
  EXPECT_EQ(binary->layer, shipped.path);
  EXPECT_EQ(shipped.refused("is not what key"), "") << "whoever opens it now";
}

}  // namespace
}  // namespace trigen
