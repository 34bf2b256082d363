// trigen cache, as a platform engineer uses it: bundles made, merged, taken in, looked through and checked.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/nvrtc.h"
#include "tests/files.h"
#include "tests/thorough.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using testing::CacheFolder;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kSmall = "forward,dtype=f16,B=2,T=64,D=64";
constexpr const char* kLonger = "forward,dtype=f16,B=2,T=128,D=64";

struct Finished {
  int code = -1;
  std::string text;  // both outputs
};

// A cache with two predictions for sm_70, in a folder of the test's own. Each test is a process: the first one that finds none of this
// program beside it makes the file that all copy.
class CacheProgram : public ::testing::Test {
 protected:
  void SetUp() override {
    auto target = find_target("sm_70");
    auto compiler = Nvrtc::choose(**target);
    if (!compiler) GTEST_SKIP() << "[SKIP] " << take_error(compiler.takeError()).message;
    namespace fs = std::filesystem;
    const fs::path made = fs::path(TRIGEN_PROGRAM).parent_path() / "tests" / "cache_program.db";
    std::error_code none;
    const fs::file_time_type when = fs::last_write_time(made, none);
    if (!none && when > fs::last_write_time(TRIGEN_PROGRAM)) {
      fs::copy_file(made, folder_ / "cache.db");
      return;
    }
    const Finished tuned = run(std::string("tune --no-device --candidates 1 --arch sm_70 \"") + kSmall +
                               "\" \"" + kLonger + "\"");
    ASSERT_EQ(tuned.code, 0) << tuned.text;
    const fs::path whole = made.string() + fs::path(folder_.path()).filename().string();
    fs::copy_file(folder_ / "cache.db", whole);
    fs::rename(whole, made);
  }
  Finished run(const std::string& arguments, const std::string& cache = "") const {
    const std::string out = folder_ / "out";
    const std::string command = "cd '" + folder_.path() + "' && TRIGEN_CACHE='" +
                                (cache.empty() ? folder_ / "cache.db" : cache) + "' XDG_CACHE_HOME='" +
                                folder_ / "xdg" + "' '" TRIGEN_PROGRAM "' " + arguments + " > '" + out +
                                "' 2>&1";
    Finished done;
    done.code = WEXITSTATUS(std::system(command.c_str()));
    done.text = slurp(out);
    return done;
  }
  CacheFolder folder_;
};

class CacheProgramLong : public CacheProgram {
 protected:
  void SetUp() override {
    LONG_WITH_SANITIZERS();
    CacheProgram::SetUp();
  }
};

TEST_F(CacheProgram, BundlesAreMadeMergedAndServe) {
  const std::string one = std::string("--problem \"") + kSmall + "\" ",
                    other = std::string("--problem \"") + kLonger + "\" ";
  ASSERT_EQ(run("cache export all.trigen").code, 0);
  ASSERT_EQ(run("cache export --arch sm_70 " + one + "one.trigen").code, 0);
  ASSERT_EQ(run("cache export --arch sm_70 " + other + "other.trigen").code, 0);
  ASSERT_EQ(run("cache merge one.trigen other.trigen -o ab.trigen").code, 0);
  ASSERT_EQ(run("cache merge other.trigen cache.db one.trigen ab.trigen -o ba.trigen").code, 0);
  EXPECT_TRUE(slurp(folder_ / "ab.trigen") == slurp(folder_ / "ba.trigen"));
  EXPECT_TRUE(slurp(folder_ / "ab.trigen") == slurp(folder_ / "all.trigen"));
  EXPECT_EQ(run("cache diff ab.trigen cache.db").code, 0);
  const Finished differ = run("cache diff one.trigen ab.trigen");
  EXPECT_EQ(differ.code, 1);
  EXPECT_THAT(differ.text,
              AllOf(HasSubstr(">  forward"), HasSubstr("binaries: 0 only in one.trigen, 1 only in")));

  // A link is followed, and what is no file is written into.
  ASSERT_EQ(::symlink("linked.trigen", (folder_ / "link.trigen").c_str()), 0);
  ASSERT_EQ(run("cache export link.trigen").code, 0);
  ASSERT_EQ(run("cache merge one.trigen other.trigen -o link.trigen").code, 0);
  EXPECT_TRUE(slurp(folder_ / "linked.trigen") == slurp(folder_ / "all.trigen"));
  EXPECT_TRUE(std::filesystem::is_symlink(folder_ / "link.trigen"));
  const testing::Fifo fifo(folder_ / "fifo.trigen");
  ASSERT_EQ(run("cache export fifo.trigen").code, 0);
  EXPECT_TRUE(std::filesystem::is_fifo(folder_ / "fifo.trigen"));
  EXPECT_TRUE(fifo.read() == slurp(folder_ / "all.trigen"));

  // Asked for and not there: the bundle is made, and the exit code says so.
  const Finished lacking = run("cache export --arch sm_70,sm_80 " + one + "lacking.trigen");
  EXPECT_EQ(lacking.code, 1);
  EXPECT_THAT(lacking.text,
              AllOf(HasSubstr("no record of forward"), HasSubstr("1 of 2 asked problems answered")));

  // As a layer, and into another cache file; each needs no compiler.
  EXPECT_EQ(run("cache coverage --arch sm_70 \"" + std::string(kSmall) + "\"", folder_ / "ab.trigen").code,
            0);
  const Finished taken = run("cache import ab.trigen", folder_ / "mine.db");
  EXPECT_EQ(taken.code, 0);
  EXPECT_THAT(taken.text, HasSubstr("took 2 records and 2 binaries"));
  EXPECT_THAT(run("cache import ab.trigen one.trigen", folder_ / "mine.db").text,
              HasSubstr("took 0 records and 0 binaries; 4 rows were there"));
  EXPECT_EQ(run("cache diff ab.trigen mine.db").code, 0);
}

// An image, an environment or an overlay: <prefix>/bin/trigen and <prefix>/share/trigen/*.trigen, all read-only.
TEST_F(CacheProgramLong, BundlesBelowThePrefixServeAnyUidWithoutHome) {
  namespace fs = std::filesystem;
  for (const char* sub : {"prefix", "prefix/bin", "prefix/share", "prefix/share/trigen"})
    fs::create_directory(folder_ / sub);
  ASSERT_EQ(run("cache export prefix/share/trigen/core.trigen").code, 0);
  fs::copy(TRIGEN_PROGRAM, folder_ / "prefix/bin/trigen");
  fs::permissions(folder_.path(), fs::perms(0755));
  for (const auto& entry : fs::recursive_directory_iterator(folder_ / "prefix"))
    fs::permissions(entry.path(),
                    fs::perms(entry.is_directory() || entry.path().filename() == "trigen" ? 0555 : 0444));
  const std::string as = ::getuid() == 0 ? "setpriv --reuid 54321 --regid 54321 --clear-groups " : "";
  const std::string program = as + "env -i TRIGEN_NO_JIT=1 '" + folder_ / "prefix/bin/trigen" + "' cache ";
  const auto shell = [&](const std::string& arguments) {
    const int code = std::system((program + arguments + " > '" + folder_ / "out" + "' 2>&1").c_str());
    return Finished{WEXITSTATUS(code), slurp(folder_ / "out")};
  };
  const Finished covered = shell(std::string("coverage --arch sm_70 \"") + kSmall + "\"");
  EXPECT_EQ(covered.code, 0) << covered.text;
  // A pod: its home cannot be made, and under TRIGEN_NO_JIT nothing would be stored there.
  for (const bool no_jit : {true, false}) {
    const std::string doctor = as + "env -i HOME=/nonexistent " + (no_jit ? "TRIGEN_NO_JIT=1 '" : "'") +
                               folder_ / "prefix/bin/trigen" + "' doctor --arch sm_70 \"" + kSmall +
                               "\" > '" + folder_ / "out" + "' 2>&1";
    (void)!std::system(doctor.c_str());
    const std::string said = slurp(folder_ / "out");
    EXPECT_EQ(said.find("/nonexistent") == std::string::npos, no_jit) << said;
    EXPECT_EQ(said.find("warning: cache") == std::string::npos, no_jit) << said;
  }
  fs::create_directory(folder_ / "locked");
  fs::copy(folder_ / "cache.db", folder_ / "locked/cache.db");
  fs::permissions(folder_ / "locked/cache.db", fs::perms(0444));
  fs::permissions(folder_ / "locked", fs::perms(0555));
  const Finished locked = shell("ls --cache '" + folder_ / "locked/cache.db" + "'");
  EXPECT_EQ(locked.code, 0) << locked.text;
  EXPECT_THAT(locked.text, AllOf(HasSubstr("  read  "), Not(HasSubstr("read and written"))));
  fs::permissions(folder_ / "locked", fs::perms(0755));
  const Finished path = shell(std::string("path --arch sm_70 \"") + kSmall + "\"");
  EXPECT_THAT(path.text, HasSubstr(folder_ / "prefix/share/trigen/core.trigen"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_ / "prefix/share/trigen"), {}), 1)
      << "nothing was made";
  fs::permissions(folder_ / "prefix/share/trigen", fs::perms(0755));
  fs::permissions(folder_ / "prefix/share", fs::perms(0755));
  fs::permissions(folder_ / "prefix/bin", fs::perms(0755));
}

TEST_F(CacheProgramLong, CoverageSaysWhatRunsAndWhyNot) {
  const std::string small = std::string("\"") + kSmall + "\"";
  const Finished both = run("cache coverage --arch sm_70 " + small + " \"forward,dtype=f16,B=2,T=64,D=96\"");
  EXPECT_EQ(both.code, 1);
  EXPECT_THAT(both.text,
              AllOf(HasSubstr("predicted, not measured"), HasSubstr("0 exact, 1 predicted, 0 near, 1 none"),
                    HasSubstr("no record; the nearest is forward,dtype=f16,B=2,H=1,T=64,D=64,K=1,pad=0: "
                              "D 96 here, 64 in the record")));
  EXPECT_EQ(run("cache coverage --arch sm_70 " + small).code, 0);
  EXPECT_EQ(run("cache coverage --exact --arch sm_70 " + small).code, 1);
  EXPECT_THAT(run("cache coverage --arch sm_70 --device-name V100 --sms 80 --driver 580.1 " + small).text,
              HasSubstr("device V100 here, none in the record"));
  const Finished other = run("cache coverage --arch sm_90a " + small);
  EXPECT_EQ(other.code, 1);
  EXPECT_THAT(other.text, HasSubstr("no record of forward for sm_90a"));
  EXPECT_THAT(run("cache coverage --arch sm_70 grad_input,dtype=f16,B=2,T=64,D=64").text,
              HasSubstr("no record of grad_input for sm_70"))
      << "an operation's relatives are its own";
  EXPECT_EQ(run("cache coverage " + small).code, 2);

  EXPECT_THAT(run("cache path --arch sm_70 " + small).text, HasSubstr(folder_ / "cache.db"));
  EXPECT_EQ(run("cache path --arch sm_80 " + small).code, 1);
  const Finished show = run("cache show --arch sm_70 \"forward,dtype=bf16,B=2,T=128,D=64\"");
  EXPECT_EQ(show.code, 1);
  EXPECT_THAT(show.text, HasSubstr("the nearest record for sm_70 is of forward,dtype=f16,B=2,T=128"));
}

TEST_F(CacheProgram, VerifyTakesFiles) {
  ASSERT_EQ(run("cache export all.trigen").code, 0);
  const Finished good = run("cache verify all.trigen", folder_ / "nowhere.db");
  EXPECT_EQ(good.code, 0) << good.text;
  EXPECT_EQ(good.text, folder_ / "all.trigen" + ": 2 records and 2 binaries, every row has its digest\n");
  const Finished missing = run("cache verify all.trigen none.trigen");
  EXPECT_EQ(missing.code, 1);
  EXPECT_EQ(missing.text, folder_ / "none.trigen" + " is not there\n");
  EXPECT_THAT(run("cache verify --rebuild all.trigen").text, HasSubstr("remade: 2 the same"));
}

// A bundle serves: nobody asks for a file to store in.
TEST_F(CacheProgramLong, DoctorSpeaksOfLayersInTheirOrder) {
  ASSERT_EQ(run("cache export all.trigen").code, 0);
  const std::string check = std::string("doctor --check --arch sm_70 \"") + kSmall + "\"";
  EXPECT_THAT(run(check + " --cache all.trigen").text, Not(HasSubstr("cache")));
  EXPECT_THAT(run("doctor", folder_ / "all.trigen").text,
              HasSubstr("cache       " + folder_ / "all.trigen" + ": 2 records, 2 kernels, "));
  EXPECT_THAT(run("doctor", folder_ / "all.trigen").text,
              HasSubstr("\n  below     " + folder_ / "xdg/trigen/cache.db" + ": not there yet, written\n"));
  std::ofstream(folder_ / "foreign.db") << "somebody's";
  EXPECT_THAT(run("doctor", folder_ / "foreign.db").text,
              HasSubstr("warning: cache " + folder_ / "foreign.db" + ": not a trigen cache"));
  EXPECT_THAT(run("cache ls", folder_ / "foreign.db").text,
              HasSubstr("trigen: error: '" + folder_ / "foreign.db" + "' is not a trigen cache"));
}

TEST_F(CacheProgramLong, PlacesWhereNoFileCanBeMade) {
  const Finished none =
      run(std::string("tune --no-device --candidates 1 --arch sm_70 \"") + kSmall + "\"", "/proc/x.db");
  EXPECT_THAT(none.text,
              AnyOf(HasSubstr("no file can be made in /proc"), HasSubstr("may not be used by uid")));
  EXPECT_THAT(none.text, Not(HasSubstr("does not exist")));
}

TEST_F(CacheProgramLong, RebuildComparesEveryByte) {
  const Finished same = run("cache verify --rebuild");
  EXPECT_EQ(same.code, 0) << same.text;
  EXPECT_THAT(same.text, HasSubstr("remade: 2 the same, byte for byte; 0 differ; 0 cannot"));
  // The kernels of two problems swapped, each row with a digest that fits: `verify` alone cannot see it.
  auto store = testing::open_store({folder_ / "cache.db"});
  const auto list = store->list_binaries();
  ASSERT_EQ(list.size(), 2u);
  auto a = store->find_binary(list[0].key), b = store->find_binary(list[1].key);
  ASSERT_TRUE(a && b);
  std::swap(a->cubin, b->cubin);
  ASSERT_EQ(testing::message(store->put_binary(*a)), "");
  EXPECT_EQ(run("cache verify").code, 0);
  const Finished swapped = run("cache verify --rebuild");
  EXPECT_EQ(swapped.code, 1);
  EXPECT_THAT(swapped.text,
              AllOf(HasSubstr("differs: cubin, byte "), HasSubstr("1 the same, byte for byte; 1 differ")));
  // The kernels that a plan launches, by name.
  auto renamed = store->find_binary(list[1].key);
  ASSERT_TRUE(renamed);
  renamed->entry = "other";
  ASSERT_EQ(testing::message(store->put_binary(*renamed)), "");
  EXPECT_THAT(run("cache verify --rebuild").text,
              HasSubstr("differs: entry 'other' stored, 'trigen_forward' remade"));
}

// A binary that cannot be remade is not proved: a stranger labels a row as he likes.
TEST_F(CacheProgramLong, RebuildFailsOverWhatItCannotRemake) {
  auto store = testing::open_store({folder_ / "cache.db"});
  const auto honest = store->find_binary(store->list_binaries().front().key);
  ASSERT_TRUE(honest);
  const auto plant = [&](void (*change)(Binary&)) {
    Binary row = *honest;
    row.ptx += "// other code\n";
    change(row);
    ASSERT_EQ(testing::message(store->put_binary(row)), "");
  };
  plant([](Binary& row) { row.key.compiler = "nvrtc 99.9.99"; });
  const Finished strange = run("cache verify --rebuild");
  EXPECT_EQ(strange.code, 3) << strange.text;
  EXPECT_THAT(
      strange.text,
      AllOf(HasSubstr("cannot be remade here: no 'nvrtc 99.9.99' is here"),
            HasSubstr("remade: 2 the same, byte for byte; 0 differ; 1 cannot be remade here\n"),
            HasSubstr("1 binary could not be proved"), HasSubstr("--allow-compiler 'nvrtc 99.9.99'")));
  EXPECT_EQ(run("cache verify --rebuild --allow-compiler 'nvrtc 99.9.9'").code, 3);
  const Finished allowed = run("cache verify --rebuild --allow-compiler 'nvrtc 99.9.99'");
  EXPECT_EQ(allowed.code, 0) << allowed.text;
  EXPECT_THAT(allowed.text, HasSubstr("1 cannot be remade here, 1 of them allowed"));
  // Nothing lets pass what another version made, or says so.
  plant([](Binary& row) { row.key.options += " --use_fast_math"; });
  plant([](Binary& row) { row.key.source_hash = "0"; });
  plant([](Binary& row) {
    row.key.compiler = "nvrtc 99.9.98";
    row.candidate = "simt:nonsense";
  });
  const Finished others =
      run("cache verify --rebuild --allow-compiler 'nvrtc 99.9.99' --allow-compiler 'nvrtc 99.9.98'");
  EXPECT_EQ(others.code, 3) << others.text;
  EXPECT_THAT(others.text, HasSubstr("4 cannot be remade here, 1 of them allowed"));
}

TEST_F(CacheProgramLong, RmAndGcTakeOut) {
  const Finished removed = run(std::string("cache rm --arch sm_70 \"") + kSmall + "\"");
  EXPECT_EQ(removed.code, 0);
  EXPECT_THAT(removed.text, HasSubstr("removed 1 record\n"));
  EXPECT_EQ(run(std::string("cache rm \"") + kSmall + "\"").code, 1) << "nothing there";
  EXPECT_EQ(run("cache rm").code, 2);
  EXPECT_EQ(run(std::string("cache coverage --arch sm_70 \"") + kLonger + "\"").code, 0);
  EXPECT_THAT(run("cache gc --max-size 1M").text, HasSubstr("removed 0 binaries"));
  EXPECT_THAT(run("cache gc --max-size 45K").text, HasSubstr("removed 1 binary and 1 prediction"));
  EXPECT_EQ(run("cache gc --max-size much").code, 2);
  EXPECT_EQ(run("cache verify").code, 0);
  const Finished misspelt = run("cache verify --cache " + (folder_ / "nowhere.db"));
  EXPECT_EQ(misspelt.code, 1) << "an image's build stops at a name that is none";
  EXPECT_THAT(misspelt.text, HasSubstr("nothing to verify: no cache file is there"));
}

TEST_F(CacheProgramLong, AChoiceOfAnOlderModelIsSaid) {
  auto store = testing::open_store({folder_ / "cache.db"});
  for (FoundRecord& found : store->list_records()) {
    found.record.evidence = "{}";
    ASSERT_EQ(testing::message(store->put_record(found.record)), "");
  }
  EXPECT_THAT(run(std::string("cache coverage --arch sm_70 \"") + kSmall + "\"").text,
              HasSubstr("predicted by version 0 of the cost model"));
}

}  // namespace
}  // namespace trigen
