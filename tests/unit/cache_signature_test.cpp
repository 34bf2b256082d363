// Keys and signatures in minisign's format, and minisign's own opinion of them.
#include "cache/host.h"
#include "cache/signature.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>

#include "generator/error.h"
#include "tests/files.h"
#include "tests/unit/cache_testing.h"

namespace trigen::cache {
namespace {

using ::testing::HasSubstr;
using trigen::testing::CacheFolder;

std::string slurp(const std::string& path) {
  std::string bytes;
  EXPECT_EQ(read_file(path, 1 << 20, bytes), "") << path;
  return bytes;
}
template <typename T>
std::string error_of(llvm::Expected<T> result) {
  return result ? "" : take_error(result.takeError()).message;
}

// Made by Debian's minisign 0.11: -G -W, then -S of a file "f" with the bytes "hi\n".
constexpr char kTheirKey[] = "RWSei/qHLhK/MtUmArTQjq/NDGCXHhyTt2pKjzdeVTF+aJa/TWyWHvBC";
constexpr char kTheirSecret[] =
    "untrusted comment: minisign encrypted secret key\n"
    "RWQAAEIyAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAnov6hy4SvzI8P2skrf7qcTUB3avB"
    "X5KkHO83VVSRjVRd/1pQs5QM3dUmArTQjq/NDGCXHhyTt2pKjzdeVTF+aJa/"
    "TWyWHvBCAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
constexpr int64_t kLater = int64_t{1} << 40;  // the clock
constexpr char kTheirSignature[] =
    "untrusted comment: signature from minisign secret key\n"
    "RUSei/qHLhK/Mt/DmQQROiJ3vZG61HkirtAlW9BWFAiTo7/G/fseHGG462ZuIVOCP53ofNNPkPr9A1jCXjWU/aojH6J9spWbpQk=\n"
    "trusted comment: timestamp:1795355863\tfile:f\thashed\n"
    "m9VPC9X51BRIMAxA00lOhcw1drX2SUb4O0bhDLxbSk5yBZjFq6ahR7rlj4112xBf4JjFMNeNGqpKWVJBP0KGAw==\n";

TEST(CacheSignature, ReadsWhatMinisignWrote) {
  auto key = parse_public_key(kTheirKey);
  auto signature = parse_signature(kTheirSignature);
  ASSERT_TRUE(key && signature);
  EXPECT_EQ(to_string(key->number), "32BF122E87FA8B9E");
  EXPECT_EQ(signature->timestamp, 1795355863);
  EXPECT_EQ(signature->file, "f");
  EXPECT_EQ(refuse_signature(*signature, "hi\n", "f", {*key}, kLater), "");
  EXPECT_THAT(refuse_signature(*signature, "ho\n", "f", {*key}, kLater),
              HasSubstr("is not what key 32BF122E87FA8B9E"));
  EXPECT_THAT(refuse_signature(*signature, "hi\n", "g", {*key}, kLater), HasSubstr("was signed as 'f'"));
  EXPECT_THAT(
      refuse_signature(*signature, "hi\n", "f", {*key}, 1795355862),
      HasSubstr(
          "was signed at 1795355863, more than a day ahead of this machine's clock; correct the clock"));
  key->oldest = 1795355864;
  EXPECT_THAT(refuse_signature(*signature, "hi\n", "f", {*key}, kLater),
              HasSubstr("only signatures from 1795355864 on"));
}

TEST(CacheSignature, OurKeysSignAndAreReadBack) {
  const KeyPair pair = make_key_pair(), other = make_key_pair();
  auto key = parse_public_key(pair.open),
       line = parse_public_key(llvm::StringRef(pair.open).split('\n').second),
       wrong = parse_public_key(other.open);
  auto secret = parse_secret_key(pair.secret);
  ASSERT_TRUE(key && line && wrong && secret);
  EXPECT_EQ(key->point, line->point);
  auto signature = parse_signature(sign("bytes", "core.trigen", 17, *secret));
  ASSERT_TRUE(static_cast<bool>(signature));
  EXPECT_EQ(refuse_signature(*signature, "bytes", "core.trigen", {*wrong, *key}, kLater), "");
  EXPECT_EQ(refuse_signature(*signature, "bytes", "core.trigen", {*wrong}, kLater),
            "is signed with key " + to_string(pair.number) + ", trusted are " + to_string(other.number) +
                "; trust that key too, if you know whose it is");
  // Another key that goes by the same number.
  wrong->number = key->number;
  EXPECT_THAT(refuse_signature(*signature, "bytes", "core.trigen", {*wrong}, kLater),
              HasSubstr("was changed"));
  signature->comment += " ";
  EXPECT_THAT(refuse_signature(*signature, "bytes", "core.trigen", {*key}, kLater),
              HasSubstr("trusted comment was changed"));
}

TEST(CacheSignature, TextsThatAreNone) {
  for (const char* text :
       {"", "RW", "RWSei/qHLhK", "x\ny\nz", "RWSei/qHLhK/MtUmArTQjq/NDGCXHhyTt2pKjzdeVTF+aJa/TWyWHvB!",
        "RUSei/qHLhK/MtUmArTQjq/NDGCXHhyTt2pKjzdeVTF+aJa/TWyWHvBC"})
    EXPECT_THAT(error_of(parse_public_key(text)), HasSubstr("is no public key of minisign's format")) << text;
  std::string locked = kTheirSecret;
  locked.replace(locked.find("RWQAAEIy"), 8, "RWRTY0Iy");
  EXPECT_THAT(error_of(parse_secret_key(locked)), HasSubstr("locked with a password"));
  std::string damaged = kTheirSecret;
  damaged.replace(damaged.find("P2sk"), 4, "P2sl");
  EXPECT_THAT(error_of(parse_secret_key(damaged)), HasSubstr("its parts do not fit together"));
  EXPECT_THAT(error_of(parse_secret_key(kTheirKey)), HasSubstr("is no secret key"));
  const std::string whole = kTheirSignature;
  for (const size_t cut : {0, 20, 60, 170, 220, 280})
    EXPECT_THAT(error_of(parse_signature(whole.substr(0, cut))), HasSubstr("is no signature")) << cut;
  std::string legacy = whole;
  legacy.replace(legacy.find("RUS"), 3, "RWS");
  EXPECT_THAT(error_of(parse_signature(legacy)), HasSubstr("not of their hash"));
}

TEST(CacheSignature, TrustedKeysAreAListOfKeysAndFiles) {
  const CacheFolder folder;
  const KeyPair pair = make_key_pair();
  spill(folder / "team@work.pub", pair.open);
  TrustedKeys trusted =
      parse_trusted_keys(std::string(kTheirKey) + "@1700000000:" + (folder / "team@work.pub"));
  EXPECT_TRUE(trusted.required);
  EXPECT_EQ(trusted.problem, "");
  ASSERT_EQ(trusted.keys.size(), 2u);
  EXPECT_EQ(trusted.keys[0].oldest, 1700000000);
  EXPECT_EQ(trusted.keys[1].oldest, 0);
  EXPECT_EQ(trusted.keys[1].number, pair.number);
  for (const char* none : {"", ":", "::"}) {
    EXPECT_TRUE(parse_trusted_keys(none).required) << "set means required";
    EXPECT_THAT(parse_trusted_keys(none).problem, HasSubstr("TRIGEN_TRUSTED_KEYS is set and names no key"))
        << none;
  }
  EXPECT_FALSE(trusted_keys(std::nullopt).required);
  // One bad entry is said; what follows it is not taken for all there is.
  trusted = parse_trusted_keys("/nowhere/key.pub:" + std::string(kTheirKey));
  EXPECT_THAT(trusted.problem,
              HasSubstr("'/nowhere/key.pub' in TRIGEN_TRUSTED_KEYS is neither a public key nor"));
  EXPECT_TRUE(trusted.required);
}

// Debian's minisign and this, each with the other's keys and signatures.
TEST(CacheSignature, MinisignAgrees) {
  if (std::system("minisign -v >/dev/null 2>&1") != 0)
    GTEST_SKIP() << "[SKIP] no minisign here; scripts/setup.sh --dev installs it";
  const CacheFolder folder;
  const auto run = [&](const std::string& command) {
    return std::system(("cd " + folder.path() + " && " + command + " >log 2>&1").c_str());
  };
  spill(folder / "data", std::string(100000, 'x') + '\0' + "end");
  const std::string data = slurp(folder / "data");
  // Our key, our signature, their check.
  const KeyPair pair = make_key_pair();
  spill(folder / "our.key", pair.secret);
  spill(folder / "our.pub", pair.open);
  auto secret = parse_secret_key(pair.secret);
  ASSERT_TRUE(static_cast<bool>(secret));
  spill(folder / "data.minisig", sign(data, "data", 1700000000, *secret));
  EXPECT_EQ(run("minisign -V -H -p our.pub -m data"), 0) << slurp(folder / "log");
  spill(folder / "data", data + "x");
  EXPECT_NE(run("minisign -V -p our.pub -m data"), 0);
  spill(folder / "data", data);
  // Our key, their signature; their key, their signature; their key, our signature.
  EXPECT_EQ(run("minisign -S -s our.key -m data"), 0) << slurp(folder / "log");
  auto theirs = parse_signature(slurp(folder / "data.minisig"));
  auto ours = parse_public_key(pair.open);
  ASSERT_TRUE(theirs && ours);
  EXPECT_EQ(refuse_signature(*theirs, data, "data", {*ours}, kLater), "");
  EXPECT_EQ(run("minisign -G -W -p their.pub -s their.key"), 0) << slurp(folder / "log");
  EXPECT_EQ(run("minisign -S -s their.key -m data"), 0) << slurp(folder / "log");
  const TrustedKeys trusted = parse_trusted_keys(folder / "their.pub");
  ASSERT_EQ(trusted.problem, "");
  theirs = parse_signature(slurp(folder / "data.minisig"));
  ASSERT_TRUE(static_cast<bool>(theirs));
  EXPECT_EQ(refuse_signature(*theirs, data, "data", trusted.keys, kLater), "");
  secret = parse_secret_key(slurp(folder / "their.key"));
  ASSERT_TRUE(static_cast<bool>(secret));
  spill(folder / "data.minisig", sign(data, "data", 1700000000, *secret));
  EXPECT_EQ(run("minisign -V -p their.pub -m data"), 0) << slurp(folder / "log");
}

}  // namespace
}  // namespace trigen::cache
