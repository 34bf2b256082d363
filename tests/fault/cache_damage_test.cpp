// Damaged, foreign and newer files: a miss and one line that helps, never a wrong binary, never a crash.
#include <gmock/gmock.h>
#include <sqlite3.h>
#include <sys/resource.h>

#include "cache/row.h"
#include "tests/fault/child.h"
#include "tests/fault/journal.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using namespace trigen::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// A cache with three binaries and two records.
std::string healthy_file(const std::string& path) {
  auto store = open_store({path});
  for (unsigned n = 1; n <= 3; ++n) EXPECT_EQ(message(store->put_binary(sample_binary(n))), "");
  EXPECT_EQ(message(store->put_record(sample_record(Provenance::kMeasured, "A100", 108, "580"))), "");
  EXPECT_EQ(message(store->put_record(sample_record(Provenance::kPredicted, "", 0, ""))), "");
  return slurp(path);
}

TEST(CacheDamage, FlippedBitInACubinIsAMissThenReplaced) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  std::string bytes = healthy_file(path);
  // Noise is stored as it is inside its frame; look for the middle of the second binary's cubin.
  const size_t at = bytes.find(sample_binary(2).cubin.substr(10000, 100));
  ASSERT_NE(at, std::string::npos);
  bytes[at + 50] ^= 0x10;
  spill(path, bytes);

  auto store = open_store({path});
  EXPECT_FALSE(store->find_binary(sample_binary(2).key));
  ASSERT_THAT(*store.lines, SizeIs(1));
  EXPECT_THAT(store.log(),
              AllOf(HasSubstr(path), HasSubstr("SHA-256 does not match"), HasSubstr("next put replaces it")));
  EXPECT_FALSE(store->find_binary(sample_binary(2).key));
  EXPECT_THAT(*store.lines, SizeIs(1)) << "said once";
  EXPECT_TRUE(store->find_binary(sample_binary(1).key)) << "the others are fine";
  EXPECT_FALSE(store->find_binary_any_compiler("source2", "sm_80"));
  EXPECT_THAT(store->verify(), SizeIs(1));
  EXPECT_THAT(store->list_binaries(), SizeIs(2));

  std::unique_ptr<Store::Lease> lease;
  EXPECT_EQ(store->lease(sample_binary(2).key, 0, lease), Store::LeaseState::kOwner)
      << "a damaged row is to be compiled";
  ASSERT_EQ(message(store->put_binary(sample_binary(2))), "");
  ASSERT_TRUE(store->find_binary(sample_binary(2).key));
  EXPECT_EQ(store->find_binary(sample_binary(2).key)->cubin, sample_binary(2).cubin);
  EXPECT_THAT(store->verify(), IsEmpty());
}

// Damage that SQLite's own checks cannot see, field by field.
TEST(CacheDamage, EveryFieldIsUnderTheDigest) {
  CacheFolder folder;
  const std::string path = folder / "cache.db", copy = folder / "copy.db";
  healthy_file(path);
  for (const char* change :
       {"source_hash=source_hash||'x'", "arch='sm_90'", "compiler='other'", "options=''",
        "candidate='simt:x=1'", "problem='x'", "entry='other'", "registers=64", "spill_bytes=0",
        "stack_bytes=0", "static_shared=1", "stored_at=7", "digest=zeroblob(32)", "digest=x''", "cubin=ptx",
        "ptx=source", "source=log", "log=ptx", "registers=99999999999"}) {
    fs::copy_file(path, copy, fs::copy_options::overwrite_existing);
    run_sql(copy, std::string("UPDATE binaries SET ") + change);
    auto store = open_store({copy});
    EXPECT_FALSE(store->find_binary(sample_binary(1).key)) << change;
    EXPECT_THAT(store->verify(), SizeIs(3)) << change;
    EXPECT_THAT(store.log(), HasSubstr("damaged")) << change;
  }
  for (const char* change : {"sms=0", "driver='1'", "candidate='x'", "source_hash='x'", "binary_arch='x'",
                             "compiler='x'", "options='x'", "provenance=0", "provenance=7", "median_us=1",
                             "error=0", "stored_at=1", "evidence=x'28b52ffd'", "digest=evidence"}) {
    fs::copy_file(path, copy, fs::copy_options::overwrite_existing);
    run_sql(copy, std::string("UPDATE records SET ") + change + " WHERE device='A100'");
    const auto found = open_store({copy})->find_record(
        sample_record(Provenance::kMeasured, "", 0, "").problem, {"sm_80"}, {"A100", 108, "580"});
    ASSERT_TRUE(found) << change << ": the prediction is still good";
    EXPECT_EQ(found->record.provenance, Provenance::kPredicted) << change;
  }
}

TEST(CacheDamage, AnyFlippedBitGivesTheRightBytesOrNothing) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  const std::string bytes = healthy_file(folder / "original.db");
  unsigned hits = 0, misses = 0;
  uint64_t state = 12345;
  for (int round = 0; round < 240; ++round) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    // Every third one into the pages of the schema and the trees, where SQLite itself has to cope.
    const size_t range = round % 3 == 0 ? 4096 : bytes.size();
    const size_t at = (state >> 20) % range;
    std::string flipped = bytes;
    flipped[at] ^= static_cast<char>(1 << (state >> 61));
    for (const auto& entry : fs::directory_iterator(folder.path()))
      if (entry.path().filename() != "original.db") fs::remove(entry.path());
    spill(path, flipped);
    auto store = open_store({path});
    for (unsigned n = 1; n <= 3; ++n) {
      const auto found = store->find_binary(sample_binary(n).key);
      ++(found ? hits : misses);
      const bool right =
          !found || (found->cubin == sample_binary(n).cubin && found->source == sample_binary(n).source);
      EXPECT_TRUE(right) << at;
    }
    const std::string problem = sample_record(Provenance::kMeasured, "", 0, "").problem;
    if (const auto found = store->find_record(problem, {"sm_80"}, {"A100", 108, "580"})) {
      EXPECT_EQ(found->record.median_us, 31.25) << at;
    }
    store->verify();
    if (round % 4 != 0) continue;  // puts wait for the disk
    // And a put works again, except where the file does not look like ours any more.
    const std::string error = message(store->put_binary(sample_binary(9)));
    if (error.empty()) {
      EXPECT_TRUE(store->find_binary(sample_binary(9).key)) << at;
    } else {
      EXPECT_THAT(error, AllOf(HasSubstr(path), HasSubstr("left alone"))) << at;
    }
  }
  EXPECT_GT(hits, 300u);
  EXPECT_GT(misses, 40u);
}

TEST(CacheDamage, TruncatedUserLayerIsSetAsideAndBegunAnew) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  const std::string bytes = healthy_file(path);
  int set_aside = 0;
  for (size_t left : {bytes.size() - 5000, bytes.size() / 2, size_t{4096}, size_t{100}}) {
    const std::string half = bytes.substr(0, left);
    spill(path, half);
    auto store = open_store({path});
    EXPECT_FALSE(store->find_binary(sample_binary(1).key)) << left;
    const std::string target = path + ".corrupt-" + std::to_string(++set_aside);
    ASSERT_TRUE(fs::exists(target)) << left << store.log();
    EXPECT_TRUE(slurp(target) == half) << "not kept as it was";
    EXPECT_FALSE(fs::exists(path));
    ASSERT_THAT(*store.lines, SizeIs(1));
    EXPECT_THAT(store.log(), AllOf(HasSubstr(path), HasSubstr("was set aside as '" + target + "'")));
    ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
    EXPECT_TRUE(store->find_binary(sample_binary(1).key));
    EXPECT_EQ(store->layers()[0].problem, "");
    EXPECT_THAT(store->layers()[0].note, HasSubstr(std::to_string(set_aside) + " damaged file(s) set aside"));
  }
  // A put that meets the damage first does the same.
  spill(path, bytes.substr(0, 8192));
  auto store = open_store({path});
  EXPECT_EQ(message(store->put_binary(sample_binary(1))), "");
  EXPECT_TRUE(fs::exists(path + ".corrupt-5"));
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
}

TEST(CacheDamage, TruncatedSystemLayerIsAMissAndStays) {
  CacheFolder folder;
  const std::string path = folder / "system.db";
  const std::string half = healthy_file(path).substr(0, 20000);
  spill(path, half);
  fs::remove(path + ".lock");
  auto store = open_store({folder / "user.db", path});
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(store.log(), AllOf(HasSubstr(path), HasSubstr("is damaged"), HasSubstr("replace it")));
  EXPECT_TRUE(slurp(path) == half);
  EXPECT_THAT(store->layers()[1].problem, HasSubstr("is damaged"));
  EXPECT_EQ(message(store->put_binary(sample_binary(1))), "");
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
}

void expect_left_alone(const std::string& path, const char* found) {
  const std::string before = slurp(path);
  auto store = open_store({path});
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_FALSE(store->find_record("forward", {"sm_80"}, {"A100", 108, "580"}));
  EXPECT_THAT(store.log(), AllOf(HasSubstr(path), HasSubstr(found), HasSubstr("TRIGEN_CACHE")));
  const std::string error = message(store->put_binary(sample_binary(1)));
  EXPECT_THAT(error, AllOf(HasSubstr(path), HasSubstr(found), HasSubstr("left alone"),
                           HasSubstr("set TRIGEN_CACHE")));
  EXPECT_THAT(*store.lines, SizeIs(1)) << "one line, however often it is met";
  const LayerInfo info = store->layers()[0];
  EXPECT_THAT(info.problem, HasSubstr(found));
  EXPECT_FALSE(info.writable);
  EXPECT_TRUE(slurp(path) == before);
  EXPECT_FALSE(fs::exists(path + ".corrupt-1"));
}

TEST(CacheDamage, GarbageThatTheUserNamedIsLeftAlone) {
  CacheFolder folder;
  spill(folder / "notes.txt", "my only copy of something that is no cache\n" + noise(10000, 1));
  expect_left_alone(folder / "notes.txt", "is not a trigen cache (no SQLite header)");
}

TEST(CacheDamage, GarbageInTheDefaultPlaceIsSetAside) {
  CacheFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  unsetenv("TRIGEN_CACHE");
  fs::create_directory(folder / "trigen");
  spill(folder / "trigen/cache.db", noise(10000, 1));
  auto store = open_store({});
  unsetenv("XDG_CACHE_HOME");
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_TRUE(slurp(folder / "trigen/cache.db.corrupt-1") == noise(10000, 1));
  EXPECT_EQ(message(store->put_binary(sample_binary(1))), "");
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
}

TEST(CacheDamage, ForeignSqliteFileIsLeftAlone) {
  CacheFolder folder;
  run_sql(folder / "music.db", "CREATE TABLE songs(name); INSERT INTO songs VALUES('x')");
  expect_left_alone(folder / "music.db", "a SQLite file with application id 0x00000000, not 0x54726747");
}

TEST(CacheDamage, NewerSchemaIsLeftAlone) {
  CacheFolder folder;
  healthy_file(folder / "cache.db");
  run_sql(folder / "cache.db", "ALTER TABLE binaries ADD COLUMN signature BLOB; PRAGMA user_version=2");
  expect_left_alone(folder / "cache.db", "is of another version (schema 2, this trigen reads schema 1)");
  EXPECT_EQ(open_store({folder / "cache.db"})->layers()[0].schema, 2);
}

TEST(CacheDamage, OlderSchemaIsLeftAlone) {
  CacheFolder folder;
  healthy_file(folder / "cache.db");
  run_sql(folder / "cache.db", "PRAGMA user_version=0");
  expect_left_alone(folder / "cache.db", "is of another version (schema 0, this trigen reads schema 1)");
}

TEST(CacheDamage, AFolderInItsPlace) {
  CacheFolder folder;
  fs::create_directory(folder / "cache.db");
  auto store = open_store({folder / "cache.db"});
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(message(store->put_binary(sample_binary(1))), HasSubstr("is not a trigen cache (a folder)"));
}

TEST(CacheDamage, TriggersAndViewsOfAStrangerAreNotRun) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  healthy_file(path);
  run_sql(path, "CREATE TRIGGER t AFTER INSERT ON binaries BEGIN DELETE FROM records; END");
  auto store = open_store({path});
  const std::string before = slurp(path);
  EXPECT_FALSE(store->find_binary(sample_binary(1).key)) << "a schema that is not ours is not read";
  EXPECT_THAT(store.log(), HasSubstr("it holds a trigger 't' that trigen did not make"));
  EXPECT_THAT(message(store->put_binary(sample_binary(1))), HasSubstr("left alone"));
  EXPECT_FALSE(fs::exists(path + ".corrupt-1")) << "it may be somebody's work, and nothing is damaged";
  EXPECT_TRUE(slurp(path) == before);
}

// Changes that database browsers and administrators make to any SQLite file.
TEST(CacheDamage, MaintenanceByOtherToolsIsNoDamage) {
  for (const char* sql :
       {"VACUUM", "ANALYZE", "REINDEX", "CREATE INDEX by_device ON records(device)",
        "DROP INDEX binaries_by_source", "PRAGMA auto_vacuum=FULL; VACUUM", "ANALYZE; VACUUM; ANALYZE"}) {
    CacheFolder folder;
    const std::string path = folder / "cache.db";
    healthy_file(path);
    run_sql(path, sql);
    auto store = open_store({path});
    EXPECT_TRUE(store->find_binary(sample_binary(1).key)) << sql;
    EXPECT_TRUE(store->find_binary_any_compiler("source2", "sm_80")) << sql;
    EXPECT_EQ(message(store->put_binary(sample_binary(4))), "") << sql;
    EXPECT_THAT(store->verify(), IsEmpty()) << sql;
    EXPECT_THAT(*store.lines, IsEmpty()) << sql;
    EXPECT_FALSE(fs::exists(path + ".corrupt-1")) << sql;
  }
}

// Frames of 3 KB that stand for 32 MiB each, in rows whose digests fit.
TEST(CacheDamage, FramesThatUnpackToMuchCostLittle) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  healthy_file(path);
  Record bomb = sample_record(Provenance::kMeasured, "A100", 108, "580");
  Binary binary = sample_binary(9);
  {
    cache::Database database;
    ASSERT_TRUE(database.open(path, cache::OpenMode::kReadWrite, 100).ok());
    bomb.evidence.assign(size_t{32} << 20, ' ');
    for (int n = 0; n < 12; ++n) {
      bomb.driver = std::to_string(n);
      ASSERT_TRUE(cache::put_record_row(database, bomb).ok());
    }
    binary.source.assign(size_t{32} << 20, ' ');
    binary.log = binary.source;
    ASSERT_TRUE(cache::put_binary_row(database, binary).ok());
  }
  EXPECT_LT(fs::file_size(path), 400000u);
  testing::Child child([&](const std::function<void()>&) -> std::string {
    // The process's peak begins with this much of its own.
    rusage before = {}, after = {};
    getrusage(RUSAGE_SELF, &before);
    auto store = open_store({path});
    const auto found = store->find_record(bomb.problem, {"sm_80"}, {"A100", 108, "7"});
    if (!found || found->record.driver != "7" || !found->record.evidence.empty()) return "record";
    if (store->list_records().size() != 13) return "list";
    if (!store->find_evidence(*found).empty()) return "evidence";
    const auto kernel = store->find_binary(binary.key);
    if (!kernel || kernel->cubin != binary.cubin || !kernel->source.empty() || !kernel->log.empty())
      return "binary";
    if (store->list_binaries().size() != 4 || !store->verify().empty()) return "verify";
    getrusage(RUSAGE_SELF, &after);
    const long grown_kb = after.ru_maxrss - before.ru_maxrss;
    return grown_kb < 16 << 10 ? store.log() : "grew by " + std::to_string(grown_kb) + " KB";
  });
  EXPECT_EQ(child.join(), "");
  // And none of them is taken.
  auto store = open_store({path});
  EXPECT_THAT(message(store->put_record(bomb)), HasSubstr("at most 1048576 B are stored"));
  binary.source.resize(size_t{2} << 20);
  binary.log.clear();
  EXPECT_THAT(message(store->put_binary(binary)), HasSubstr("more than 1048576 B"));
}

TEST(CacheDamage, WalFileOfAStrangerIsReadAndTurnedBack) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  healthy_file(path);
  run_sql(path, "PRAGMA journal_mode=WAL");
  auto store = open_store({path});
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
  EXPECT_EQ(message(store->put_binary(sample_binary(4))), "");
  EXPECT_EQ(slurp(path)[18], 1) << "rollback journal again";
  EXPECT_FALSE(fs::exists(path + "-wal"));
  EXPECT_THAT(*store.lines, IsEmpty());
}

}  // namespace
}  // namespace trigen
