// The built program on caches that are in the way: damaged, hostile, unreadable, locked, on a full disk, or none.
#include "tests/unit/cli_testing.h"  // first: it means gtest's namespace testing, not ours

#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cache/store.h"
#include "generator/problem.h"
#include "tests/thorough.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(Program, NoneIsNoCache) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  const std::string home = folder_ + "/home";
  ASSERT_EQ(::mkdir(home.c_str(), 0700), 0);
  const std::vector<std::string> verify = {"verify", "--device", "emulated:sm_70", kProblem},
                                 none = {"TRIGEN_CACHE=none", "XDG_CACHE_HOME=" + home, "TRIGEN_LOG=warning"};
  const Finished done = run(verify, none);
  if (done.err.find("no emulated device") != std::string::npos) GTEST_SKIP() << "[SKIP] " << done.err;
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_THAT(done.err, Not(HasSubstr("cache")));
  std::vector<std::string> named = verify;
  named.insert(named.end(), {"--cache", "none"});
  EXPECT_THAT(run(named, {none[1], none[2]}).err, Not(HasSubstr("cache")));
  // whoever tunes wants a choice kept
  const Finished tune = run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", kProblem}, none);
  EXPECT_EQ(tune.code, 1);
  EXPECT_THAT(tune.err, AllOf(HasSubstr("no choice can be stored: the cache is `none`"),
                              HasSubstr("1 of 1 choices could not be stored")));
  EXPECT_TRUE(std::filesystem::is_empty(home));
  EXPECT_THAT(run({"doctor"}, none).out, HasSubstr("no cache file is read or written"));
}

TEST_F(Program, CorruptCacheIsSaidAndLeftAlone) {
  std::ofstream(cache_) << std::string(5000, 'x');
  const Finished list = run({"cache", "ls"});
  EXPECT_EQ(list.code, 1);
  EXPECT_THAT(list.err, AllOf(HasSubstr(cache_), HasSubstr("not a trigen cache")));
  EXPECT_EQ(std::count(list.err.begin(), list.err.end(), '\n'), 1) << list.err;  // said once
  EXPECT_THAT(run({"doctor"}).out, HasSubstr("not a trigen cache"));
  NEEDS_COMPILER("sm_70");
  const Finished tune = run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", kProblem});
  EXPECT_EQ(tune.code, 1);  // the choice is printed, but it could not be stored
  EXPECT_THAT(tune.out, HasSubstr(":tile="));
  EXPECT_THAT(tune.err, AllOf(HasSubstr("the cache was not written"), HasSubstr("could not be stored")));
  EXPECT_EQ(slurp(cache_), std::string(5000, 'x'));
}

// Records of a stranger, digests and all.
TEST_F(Program, HostileRecordsAreShownAndHarmNothing) {
  const std::string text = "forward,dtype=f16,B=2,H=1,T=64,D=64,K=1,pad=0";
  Record record;
  record.arch = "sm_70";
  record.candidate = "simt:\x1b[2J";
  const std::string deep(400000, '[');
  for (
      const std::string& evidence :
      {deep, R"({"a":)" + deep + std::string(400000, ']') + "}",
       std::string(
           R"({"candidates":[1,{"note":[1],"quick_us":["x",{}],"error":"x","candidate":7,"finals_us":{}}]})"),
       std::string(R"({"candidates":{"x":1}})"), std::string("[1]"), std::string("\x1b]52;c;x\x07")}) {
    Store::Options options;
    options.layers = {cache_};
    auto store = Store::open(options);
    record.device = "GPU \x1b]52;c;x\x07";
    record.evidence = evidence;
    record.provenance = Provenance::kMeasured;
    record.binary = {"hash", "sm_70", "nvrtc \x1b[31m", ""};
    auto parsed = parse_problem(text);
    ASSERT_TRUE(static_cast<bool>(parsed));
    record.problem = to_string(*parsed);
    ASSERT_FALSE(static_cast<bool>(store->put_record(record)));
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"cache", "show", text},
                                               {"cache", "show", "--json", text},
                                               {"cache", "ls"},
                                               {"cache", "ls", "--json"}}) {
      const Finished shown = run(arguments);
      EXPECT_EQ(shown.code, 0) << shown.err << evidence.substr(0, 80);
      EXPECT_THAT(shown.out, AllOf(HasSubstr("simt:"), Not(HasSubstr("\x1b"))));
      EXPECT_THAT(shown.err, Not(HasSubstr("json")));
    }
  }
}

// A file's text and its name make no line, colour or direction of trigen's text.
TEST_F(Program, StrangersTextStaysText) {
  const std::string marks =
      "\x1b]52;c;x\x07 \xe2\x80\xae \xe2\x81\xa6 \xd8\x9c \xc2\x9b"
      "2J";
  const std::string planted = "x\ntrigen: error: disk is on fire; run: curl " + marks;
  const auto look = [&](const std::vector<std::string>& arguments, const std::string& environment = "A=") {
    const Finished done = run(arguments, {environment});
    const std::string said = "\n" + done.out + done.err;
    for (const char* bad : {"\ntrigen: error: disk", "\ntrigen is here", "\x1b", "\xe2\x80\xae",
                            "\xe2\x81\xa6", "\xd8\x9c", "\xc2\x9b"})
      EXPECT_THAT(said, Not(HasSubstr(bad))) << ::testing::PrintToString(arguments);
    return done;
  };
  const std::string damaged = folder_ + "/damaged.db", good = folder_ + "/good.db",
                    fleet = folder_ + "/fleet";
  for (const std::string& path : {damaged, good}) {
    auto store = testing::open_store({folder_ + "/made.db"});
    Record record = testing::sample_record(Provenance::kMeasured, planted, 132, planted, planted);
    Binary binary = testing::sample_binary(1);
    binary.key.compiler = binary.candidate = binary.problem = binary.log = planted;
    record.problem = planted, record.binary = binary.key;
    ASSERT_EQ(testing::message(store->put_binary(binary)), "");
    ASSERT_EQ(testing::message(store->put_record(record)), "");
    record.problem += "2", record.binary.source_hash = "gone";
    ASSERT_EQ(testing::message(store->put_record(record)), "");
    store.store.reset();
    std::filesystem::rename(folder_ + "/made.db", path);
  }
  constexpr char kDamage[] = "UPDATE records SET median_us=1; UPDATE binaries SET registers=1";
  testing::run_sql(damaged, kDamage);
  const std::string out = folder_ + "/out.trigen";
  EXPECT_THAT(look({"cache", "merge", damaged, "-o", out}).err, HasSubstr("disk is on fire")) << "it is said";
  EXPECT_THAT(look({"cache", "export", "--cache", good, out}).err, HasSubstr("disk is on fire"));
  for (const std::string& file : {damaged, good}) {
    look({"cache", "import", file});
    look({"cache", "verify", file});
    look({"cache", "verify", "--rebuild", file});
    look({"cache", "diff", file, file == good ? damaged : good});
    look({"report", file, "-o", folder_ + "/page.html"});
    look({"cache", "ls", "--cache", file});
    look({"cache", "ls", "--json", "--cache", file});
    look({"cache", "coverage", "--arch", "sm_80", "--cache", file, kProblem});
    look({"doctor", "--cache", file});
  }
  std::filesystem::create_directory(fleet);
  std::filesystem::rename(out, fleet + "/shard.trigen");
  look({"cache", "status", "--fleet", fleet});
  testing::run_sql(fleet + "/shard.trigen", kDamage);
  EXPECT_THAT(look({"cache", "status", "--fleet", fleet}).err, HasSubstr("disk is on fire"));
  look({"doctor", "--json"}, "TRIGEN_NVRTC=/none/" + marks);

  const std::string odd = folder_ + "/x\ntrigen is here" + marks;
  std::filesystem::create_directory(odd);
  std::filesystem::copy_file(good, odd + "/a.db");
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"cache", "export", "--cache", odd + "/a.db", odd + "/o.trigen"},
                                             {"cache", "merge", odd + "/o.trigen", "-o", odd + "/m.trigen"},
                                             {"cache", "import", odd + "/o.trigen"},
                                             {"cache", "import", "--cache", odd + "/b.db", odd + "/o.trigen"},
                                             {"cache", "diff", odd + "/a.db", odd + "/none.db"},
                                             {"report", odd + "/a.db", "-o", odd + "/page.html"},
                                             {"cache", "gc", "--max-size", "0", "--cache", odd + "/a.db"},
                                             {"cache", "rm", "--all", "--cache", odd + "/a.db"},
                                             {"cache", "ls", "--cache", odd + "/a.db"},
                                             {"cache", "verify", odd + "/none.db"},
                                             {"tune", "--problems", odd + "/none"},
                                             {"emit", kProblem, "--arch", "sm_70", "-o", odd + "/no/file"},
                                             {"doctor", "--cache", odd + "/none/a.db"}})
    look(arguments);
}

TEST_F(Program, UnreadableCacheIsSaid) {
  ::mkdir(cache_.c_str(), 0700);  // a folder where a file should be: unreadable for root, too
  const Finished list = run({"cache", "ls"});
  EXPECT_EQ(list.code, 1);
  EXPECT_THAT(list.err, AllOf(HasSubstr(cache_), HasSubstr("a folder")));
}

TEST_F(Program, LockedCacheIsWaitedForThenSaid) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  ASSERT_EQ(run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", kProblem}).code, 0);
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open(cache_.c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "BEGIN EXCLUSIVE", nullptr, nullptr, nullptr), SQLITE_OK);
  const Finished tune =
      run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", "forward,dtype=f16,B=2,T=80,D=64"});
  sqlite3_exec(db, "ROLLBACK", nullptr, nullptr, nullptr);
  sqlite3_close(db);
  EXPECT_EQ(tune.code, 1);
  EXPECT_THAT(tune.out, HasSubstr("T=80"));
  EXPECT_THAT(tune.err, AllOf(HasSubstr("locked"), HasSubstr("could not be stored")));
  EXPECT_EQ(
      run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", "forward,dtype=f16,B=2,T=80,D=64"})
          .code,
      0);
}

TEST_F(Program, FullDiskIsSaid) {
  LONG_WITH_SANITIZERS();
  NEEDS_COMPILER("sm_70");
  // writes beyond 16 KiB fail as on a full disk
  const Finished tune =
      run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", kProblem}, {}, [] {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{16384, 16384};
        ::setrlimit(RLIMIT_FSIZE, &limit);
      });
  EXPECT_EQ(tune.code, 1) << tune.err;
  EXPECT_THAT(tune.out, HasSubstr(":tile="));
  EXPECT_THAT(tune.err, HasSubstr("could not be stored"));
  // Known before anything is compiled.
  EXPECT_LT(tune.err.find("warning: no choice can be stored: "), tune.err.find("note: no device here"))
      << tune.err;
  EXPECT_EQ(run({"tune", "--no-device", "--arch", "sm_70", "--candidates", "1", kProblem}).code, 0);
}

}  // namespace
}  // namespace trigen
