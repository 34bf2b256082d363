// A fleet: its parts of a list, its folder of shards, its holes.
#include "tuner/shard.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cache/bundle.h"
#include "cache/fleet.h"
#include "cache/upkeep.h"
#include "generator/error.h"
#include "tests/fault/journal.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using cache::DeviceKind;
using cache::Fleet;
using cache::FleetAnswer;
using namespace trigen::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

namespace fs = std::filesystem;

using Variables = std::map<std::string, std::string>;

std::string shard_in(const std::string& text, const Variables& variables = {}) {
  auto shard = parse_shard(text, [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  });
  if (!shard) return take_error(shard.takeError()).message;
  return std::to_string(shard->index) + "/" + std::to_string(shard->count);
}

TEST(Shard, IsNamedOrTheLaunchers) {
  EXPECT_EQ(shard_in("2/8"), "2/8");
  const Variables array = {{"SLURM_ARRAY_TASK_ID", "14"},
                           {"SLURM_ARRAY_TASK_MIN", "10"},
                           {"SLURM_ARRAY_TASK_STEP", "2"},
                           {"SLURM_ARRAY_TASK_COUNT", "4"},
                           {"RANK", "0"},
                           {"WORLD_SIZE", "1"}};
  EXPECT_EQ(shard_in("auto", array), "2/4");
  EXPECT_EQ(shard_in("auto/8", {{"JOB_COMPLETION_INDEX", "7"}}), "7/8");
  EXPECT_EQ(shard_in("auto", {{"RANK", "1"}, {"WORLD_SIZE", "2"}}), "1/2");
}

TEST(Shard, RefusesWhatItCannotKnow) {
  EXPECT_THAT(shard_in("8/8"), AllOf(HasSubstr("no part 8 of 8 counted from 0"), HasSubstr("0/8 ... 7/8")));
  EXPECT_THAT(shard_in("auto"), HasSubstr("no launcher numbers this process"));
  EXPECT_THAT(shard_in("auto", {{"JOB_COMPLETION_INDEX", "3"}}),
              HasSubstr("JOB_COMPLETION_INDEX is 3 and nothing says of how many"));
  EXPECT_THAT(shard_in("auto/2", {{"RANK", "2"}}), HasSubstr("from RANK"));
  for (const char* text : {"", "1", "/", "a/2", "0/0", "-1/2", "1/2/3", "auto/x"})
    EXPECT_THAT(shard_in(text), HasSubstr("shard '")) << text;
}

TEST(Shard, PartsAreTheWholeListOnce) {
  for (size_t i = 0; i < 20; ++i) {
    int owners = 0;
    for (size_t part = 0; part < 3; ++part) owners += Shard{part, 3}.has(i) ? 1 : 0;
    EXPECT_EQ(owners, 1);
  }
}

// A shard's contents: one record of the problem.
cache::Contents tuned(const CacheFolder& folder, const std::string& problem, Provenance provenance,
                      const std::string& device, int sms, const std::string& evidence) {
  static int made = 0;
  const std::string path = folder / (std::to_string(made++) + ".db");
  Record record = sample_record(provenance, device, sms, "580");
  record.problem = problem;
  record.evidence = evidence;
  record.stored_at = 1000;
  Binary binary = sample_binary(1);
  binary.stored_at = 1000;
  auto store = open_store({path});
  EXPECT_EQ(message(store->put_binary(binary)), "");
  EXPECT_EQ(message(store->put_record(record)), "");
  return llvm::cantFail(cache::read_contents(path, cache::ReadFor::kLook));
}

TEST(FleetFolder, HolesAreOfAKindOfDevice) {
  CacheFolder folder;
  Fleet fleet = llvm::cantFail(Fleet::make(folder / "fleet"));
  const DeviceKind a100{"sm_80", "A100", 108}, half{"sm_80", "A100", 54}, none{"sm_80", "", 0};
  EXPECT_TRUE(fleet.is_hole("p", a100));
  EXPECT_THAT(fleet.kinds(), IsEmpty());
  ASSERT_TRUE(bool(fleet.publish(tuned(folder, "p", Provenance::kPredicted, "", 0, "{}"), {})));
  EXPECT_THAT(fleet.refresh(), IsEmpty());
  EXPECT_EQ(fleet.answer("p", a100), FleetAnswer::kPredicted);
  EXPECT_TRUE(fleet.is_hole("p", a100)) << "a prediction fills nothing that can be measured";
  EXPECT_FALSE(fleet.is_hole("p", none)) << "and is all that is asked without a device";
  EXPECT_THAT(fleet.kinds(), ElementsAre(none));
  const std::string evidence = R"({"complete":true,"elapsed_s":61.5})";
  ASSERT_TRUE(bool(fleet.publish(tuned(folder, "p", Provenance::kMeasured, "A100", 108, evidence), {})));
  EXPECT_THAT(fleet.refresh(), IsEmpty());
  EXPECT_FALSE(fleet.is_hole("p", a100));
  EXPECT_EQ(fleet.answer("p", half), FleetAnswer::kNear);
  EXPECT_TRUE(fleet.is_hole("p", half)) << "a part of a GPU is another kind";
  EXPECT_TRUE(fleet.is_hole("q", a100));
  EXPECT_THAT(fleet.kinds(), ElementsAre(a100)) << "an arch that is measured has no kind of predictions";
  EXPECT_THAT(fleet.seconds_of(a100), ElementsAre(61.5));
}

TEST(FleetFolder, AnInterruptedTuneIsAHole) {
  CacheFolder folder;
  Fleet fleet = llvm::cantFail(Fleet::make(folder / "fleet"));
  ASSERT_TRUE(bool(
      fleet.publish(tuned(folder, "p", Provenance::kMeasured, "A100", 108, R"({"complete":false})"), {})));
  EXPECT_THAT(fleet.refresh(), IsEmpty());
  EXPECT_TRUE(fleet.is_hole("p", {"sm_80", "A100", 108}));
}

TEST(FleetFolder, WhatIsLeftTwiceOrDamagedChangesNothing) {
  CacheFolder folder;
  Fleet fleet = llvm::cantFail(Fleet::make(folder / "fleet"));
  const cache::Contents contents = tuned(folder, "p", Provenance::kMeasured, "A100", 108, "{}");
  const std::string path = llvm::cantFail(fleet.publish(contents, {}));
  EXPECT_EQ(llvm::cantFail(fleet.publish(contents, {})), path);
  EXPECT_EQ(llvm::cantFail(fleet.publish({}, {})), "") << "nothing done leaves nothing";
  EXPECT_THAT(llvm::cantFail(cache::bundles_in(folder / "fleet")), ElementsAre(path));
  std::ofstream(folder / "fleet/half.trigen") << "half of a shard";
  std::ofstream(folder / "fleet/.being-written.trigen") << "half";
  EXPECT_THAT(fleet.refresh(), ElementsAre(HasSubstr("half.trigen")));
  EXPECT_FALSE(fleet.is_hole("p", {"sm_80", "A100", 108}));
  EXPECT_THAT(fleet.refresh(), IsEmpty()) << "said once";
}

TEST(FleetFolder, SignedShardsCountWhereKeysAreAsked) {
  CacheFolder folder;
  const auto maker = [&](const char* name) {
    const cache::KeyPair pair = cache::make_key_pair();
    spill(folder / name, pair.secret);
    spill((folder / name) + ".pub", pair.open);
    EXPECT_EQ(chmod((folder / name).c_str(), 0600), 0);
    cache::Signer signer = llvm::cantFail(cache::read_signer(folder / name));
    signer.date = 1000;
    return signer;
  };
  cache::Signer own = maker("own.key");
  const cache::Signer stranger = maker("stranger.key");
  Store::Options asked;
  asked.layers = {folder / "user.db"};
  asked.trusted_keys = (folder / "own.key") + ".pub";
  const cache::Contents one = tuned(folder, "p", Provenance::kMeasured, "A100", 108, "{}"),
                        two = tuned(folder, "q", Provenance::kMeasured, "A100", 108, "{}");
  const DeviceKind a100{"sm_80", "A100", 108};
  // The outcome of reading the folder as a fleet, and of merging it.
  const auto read = [&](const std::string& name) {
    const std::string place = folder / name;
    const std::vector<std::string> troubles = llvm::cantFail(Fleet::open(place, asked)).refresh();
    auto merged =
        cache::read_merged(llvm::cantFail(cache::bundles_in(place)), cache::ReadFor::kImport, asked);
    if (merged) return troubles.empty() ? std::to_string(merged->records.size()) : troubles.front();
    const std::string text = take_error(merged.takeError()).message;
    EXPECT_THAT(troubles, ElementsAre(HasSubstr(text)));
    return text;
  };

  const Fleet fleet = llvm::cantFail(Fleet::make(folder / "signed"));
  const std::string path = llvm::cantFail(fleet.publish(one, {}, &own));
  EXPECT_NE(llvm::cantFail(fleet.publish(two, {}, &own)), path);
  EXPECT_EQ(read("signed"), "2");
  // Signed again: the same bytes under the same name, so that neither signature is a replay of the other.
  const std::string first = slurp(path + cache::kSignatureSuffix);
  own.date = 2000;
  EXPECT_EQ(llvm::cantFail(fleet.publish(one, {}, &own)), path);
  EXPECT_NE(slurp(path + cache::kSignatureSuffix), first);
  EXPECT_EQ(read("signed"), "2");
  spill(path + cache::kSignatureSuffix, first);
  EXPECT_EQ(read("signed"), "2");

  EXPECT_TRUE(bool(llvm::cantFail(Fleet::make(folder / "unsigned")).publish(one, {})));
  EXPECT_THAT(read("unsigned"), HasSubstr("has no signature that can be read"));
  EXPECT_TRUE(bool(llvm::cantFail(Fleet::make(folder / "strange")).publish(one, {}, &stranger)));
  EXPECT_THAT(read("strange"), HasSubstr("is signed with key"));

  // A name that is not its bytes', signed by a trusted key.
  Fleet wrong = llvm::cantFail(Fleet::make(folder / "wrong"));
  const std::string named = (folder / "wrong/") + std::string(64, '0') + ".trigen";
  spill(named, slurp(path));
  ASSERT_EQ(message(cache::sign_file(named, own)), "");
  EXPECT_THAT(read("wrong"), HasSubstr("has other bytes than its name says"));
}

// Whoever sees a shard sees its signature.
TEST(FleetFolder, TheSignatureIsThereFirst) {
  CacheFolder folder;
  const cache::Contents contents = tuned(folder, "p", Provenance::kMeasured, "A100", 108, "{}");
  const Fleet fleet = llvm::cantFail(Fleet::make(folder / "fleet"));
  const std::string path = llvm::cantFail(fleet.publish(contents, {}));
  fs::remove(path);
  cache::Signer signer;
  signer.key = llvm::cantFail(cache::parse_secret_key(cache::make_key_pair().secret));
  fs::create_directory(path);  // so that the shard cannot be put there
  EXPECT_THAT(message(fleet.publish(contents, {}, &signer).takeError()), HasSubstr("cannot be written"));
  EXPECT_TRUE(fs::is_regular_file(path + cache::kSignatureSuffix));
  fs::remove(path);
  fs::remove(path + cache::kSignatureSuffix);
  fs::create_directory(path + cache::kSignatureSuffix);  // nor the signature: then no shard comes
  EXPECT_THAT(message(fleet.publish(contents, {}, &signer).takeError()), HasSubstr("cannot be written"));
  EXPECT_FALSE(fs::exists(path));
}

TEST(FleetFolder, DatesAreClampedForTheSameBytes) {
  CacheFolder folder;
  cache::Contents early = tuned(folder, "p", Provenance::kMeasured, "A100", 108, "{}"), late = early;
  for (auto& [key, row] : late.records) set_stored_at(row, 2000);
  for (auto& [key, row] : late.binaries) set_stored_at(row, 3000);
  EXPECT_NE(llvm::cantFail(cache::bundle_image(early, {})), llvm::cantFail(cache::bundle_image(late, {})));
  late.clamp_dates(1000);
  EXPECT_EQ(llvm::cantFail(cache::bundle_image(early, {})), llvm::cantFail(cache::bundle_image(late, {})));
}

}  // namespace
}  // namespace trigen
