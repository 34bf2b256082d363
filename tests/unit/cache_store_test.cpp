// Binaries through the store: what comes back, from which layer, and what layers() says.
#include "cache/store.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

using namespace trigen::testing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

void expect_same(const Binary& a, const Binary& b) {
  EXPECT_EQ(a.key.digest(), b.key.digest());
  EXPECT_EQ(a.candidate, b.candidate);
  EXPECT_EQ(a.problem, b.problem);
  EXPECT_EQ(a.entry, b.entry);
  EXPECT_EQ(a.source, b.source);
  EXPECT_EQ(a.cubin, b.cubin);
  EXPECT_EQ(a.ptx, b.ptx);
  EXPECT_EQ(a.log, b.log);
  EXPECT_EQ(a.registers, b.registers);
  EXPECT_EQ(a.spill_bytes, b.spill_bytes);
  EXPECT_EQ(a.stack_bytes, b.stack_bytes);
  EXPECT_EQ(a.static_shared, b.static_shared);
}

TEST(BinaryKey, EveryFieldCountsAndFieldsDoNotRunTogether) {
  const BinaryKey key{"abc", "sm_70", "nvrtc 12.9.86", "-O3"};
  EXPECT_EQ(key.digest().size(), 64u);
  EXPECT_EQ(key.digest(), BinaryKey(key).digest());
  for (const BinaryKey& other :
       {BinaryKey{"abd", "sm_70", "nvrtc 12.9.86", "-O3"}, BinaryKey{"abc", "sm_75", "nvrtc 12.9.86", "-O3"},
        BinaryKey{"abc", "sm_70", "nvrtc 13.0.48", "-O3"}, BinaryKey{"abc", "sm_70", "nvrtc 12.9.86", "-O2"},
        BinaryKey{"abcs", "m_70", "nvrtc 12.9.86", "-O3"}})
    EXPECT_NE(key.digest(), other.digest());
}

TEST(CacheStore, BinaryComesBackAsItWasPut) {
  CacheFolder folder;
  const std::string path = folder / "sub/folder/cache.db";
  Binary binary = sample_binary(1);
  binary.stored_at = 1700000000;
  {
    auto store = open_store({path});
    EXPECT_FALSE(store->find_binary(binary.key));
    EXPECT_EQ(message(store->put_binary(binary)), "");
    EXPECT_THAT(*store.lines, IsEmpty());
  }
  auto store = open_store({path});
  const auto found = store->find_binary(binary.key);
  ASSERT_TRUE(found);
  expect_same(*found, binary);
  EXPECT_EQ(found->stored_at, 1700000000);
  // Made for its owner alone.
  struct stat status = {};
  ASSERT_EQ(stat((folder / "sub/folder").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  ASSERT_EQ(stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
  EXPECT_THAT(store->verify(), IsEmpty());
}

TEST(CacheStore, ACubinAloneIsReadWhereNothingElseRuns) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  const Binary binary = sample_binary(1);
  ASSERT_EQ(message(store->put_binary(binary)), "");
  const auto found = store->find_binary(binary.key, BinaryParts::kCubin);
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->cubin == binary.cubin);
  EXPECT_EQ(found->ptx + found->source + found->log, "");
  EXPECT_EQ(found->registers, binary.registers);
}

TEST(CacheStore, EmptyAndOddContentsComeBack) {
  CacheFolder folder;
  auto store = open_store({folder / "odd name?#%41 '\".db"});
  Binary binary = sample_binary(2);
  binary.ptx.clear();
  binary.source = std::string("\0\xff\xfe", 3);
  binary.candidate = "'; DROP TABLE binaries; --";
  binary.key.options = std::string("a\0b", 3);
  ASSERT_EQ(message(store->put_binary(binary)), "");
  const auto found = store->find_binary(binary.key);
  ASSERT_TRUE(found);
  expect_same(*found, binary);
  EXPECT_TRUE(std::filesystem::exists(folder / "odd name?#%41 '\".db"));
}

TEST(CacheStore, EachKeyFieldMustMatch) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  const Binary binary = sample_binary(3);
  ASSERT_EQ(message(store->put_binary(binary)), "");
  for (auto field : {&BinaryKey::source_hash, &BinaryKey::arch, &BinaryKey::compiler, &BinaryKey::options}) {
    BinaryKey other = binary.key;
    other.*field += "x";
    EXPECT_FALSE(store->find_binary(other));
  }
  EXPECT_TRUE(store->find_binary(binary.key));
}

TEST(CacheStore, PutReplacesTheSameKey) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  Binary binary = sample_binary(4);
  ASSERT_EQ(message(store->put_binary(binary)), "");
  binary.cubin = "another";
  ASSERT_EQ(message(store->put_binary(binary)), "");
  ASSERT_TRUE(store->find_binary(binary.key));
  EXPECT_EQ(store->find_binary(binary.key)->cubin, "another");
  EXPECT_EQ(store->layers().at(0).binaries, 1);
}

TEST(CacheStore, AnyCompilerGivesTheNewestOfThatSourceAndArch) {
  CacheFolder folder;
  auto user = open_store({folder / "user.db"});
  auto system = open_store({folder / "system.db"});
  auto put = [](Store& store, const char* compiler, const char* arch, int64_t stored_at) {
    Binary binary = sample_binary(5);
    binary.key.compiler = compiler;
    binary.key.arch = arch;
    binary.stored_at = stored_at;
    ASSERT_EQ(message(store.put_binary(binary)), "");
  };
  put(*user.store, "nvrtc 12.9.86", "sm_80", 100);
  put(*user.store, "nvrtc 11.8.89", "sm_80", 300);
  put(*user.store, "nvrtc 13.0.48", "sm_90", 900);
  put(*system.store, "nvrtc 13.0.48", "sm_80", 200);
  auto both = open_store({folder / "user.db", folder / "system.db"});
  const auto found = both->find_binary_any_compiler("source5", "sm_80");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->key.compiler, "nvrtc 11.8.89");
  put(*system.store, "nvrtc 13.1.00", "sm_80", 400);
  EXPECT_EQ(both->find_binary_any_compiler("source5", "sm_80")->key.compiler, "nvrtc 13.1.00");
  EXPECT_FALSE(both->find_binary_any_compiler("source5", "sm_70"));
  EXPECT_FALSE(both->find_binary_any_compiler("source6", "sm_80"));
}

TEST(CacheStore, EarlierLayersWinAndOnlyTheFirstIsWritten) {
  CacheFolder folder;
  const std::string user = folder / "user.db", system = folder / "system.db", missing = folder / "missing.db";
  Binary binary = sample_binary(6);
  {
    auto store = open_store({system});
    binary.log = "system";
    ASSERT_EQ(message(store->put_binary(binary)), "");
  }
  // A shipped layer: no lock file, read-only.
  std::filesystem::remove(system + ".lock");
  std::filesystem::permissions(system, std::filesystem::perms::owner_read);
  const auto before = std::filesystem::last_write_time(system);

  auto store = open_store({user, missing, system});
  ASSERT_TRUE(store->find_binary(binary.key));
  EXPECT_EQ(store->find_binary(binary.key)->log, "system");
  EXPECT_FALSE(std::filesystem::exists(user)) << "a look-up makes no file";
  binary.log = "user";
  ASSERT_EQ(message(store->put_binary(binary)), "");
  EXPECT_EQ(store->find_binary(binary.key)->log, "user");

  auto layers = store->layers();
  ASSERT_EQ(layers.size(), 3u);
  EXPECT_EQ(layers[0].path, std::filesystem::canonical(user).string());
  EXPECT_TRUE(layers[0].writable);
  EXPECT_TRUE(layers[0].user_layer);
  EXPECT_EQ(layers[0].binaries, 1);
  EXPECT_EQ(layers[0].schema, 1);
  EXPECT_FALSE(layers[1].exists);
  EXPECT_EQ(layers[1].problem, "");
  EXPECT_FALSE(layers[2].writable);
  EXPECT_EQ(layers[2].problem, "");
  EXPECT_EQ(layers[2].binaries, 1);
  EXPECT_GT(layers[2].bytes, 20000);
  EXPECT_EQ(std::filesystem::last_write_time(system), before);
  EXPECT_FALSE(std::filesystem::exists(system + ".lock"));
  EXPECT_FALSE(std::filesystem::exists(system + "-journal"));
  const auto list = store->list_binaries();
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[1].cubin_bytes, 20000);
  EXPECT_GT(list[1].stored_bytes, 20000);
  EXPECT_THAT(*store.lines, IsEmpty());
}

TEST(CacheStore, ReadOnlyStoreMakesNothingAndSaysSo) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"}, 5000, /*read_only=*/true);
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(message(store->put_binary(sample_binary(1))), HasSubstr("was opened for reading only"));
  std::unique_ptr<Store::Lease> lease;
  EXPECT_EQ(store->lease(sample_binary(1).key, 0, lease), Store::LeaseState::kOwner);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(store->layers().at(0).writable) << "by another store";
}

TEST(CacheStore, RefusesWhatCouldNotBeFoundAgain) {
  CacheFolder folder;
  auto store = open_store({folder / "cache.db"});
  Binary binary = sample_binary(1);
  binary.key.arch.clear();
  EXPECT_THAT(message(store->put_binary(binary)), HasSubstr("without source hash or arch"));
  binary = sample_binary(1);
  binary.cubin.clear();
  binary.ptx.clear();
  EXPECT_THAT(message(store->put_binary(binary)), HasSubstr("neither"));
  binary = sample_binary(1, size_t{40} << 20);
  EXPECT_THAT(message(store->put_binary(binary)), HasSubstr("at most 33554432 B are stored"));
  EXPECT_FALSE(std::filesystem::exists(folder / "cache.db"));
}

// A cache file that was copied from elsewhere and put where the user's own belongs: its kernels are others'.
TEST(CacheStore, ACopiedFileHoldsWhatOthersMade) {
  CacheFolder folder;
  const auto canary = [](const Store& of, unsigned n, int64_t value) {
    cache::Finding finding;
    finding.name = const_cast<Store&>(of).find_binary(sample_binary(n).key)->digest;
    finding.device = "A100";
    finding.value = value;
    return finding;
  };
  {
    auto theirs = open_store({folder / "theirs.db"});
    for (unsigned n : {1u, 2u}) ASSERT_EQ(message(theirs->put_binary(sample_binary(n))), "");
    ASSERT_EQ(message(theirs->put_finding(canary(*theirs.store, 1, 1))), "");
    ASSERT_EQ(message(theirs->put_finding(canary(*theirs.store, 2, 0))), "");
    EXPECT_FALSE(theirs->find_binary(sample_binary(1).key)->shipped);
  }
  std::filesystem::copy_file(folder / "theirs.db", folder / "mine.db");
  const auto first = [&](Store& store) { return *store.find_binary(sample_binary(1).key); };
  {
    auto looking = open_store({folder / "mine.db"}, 5000, /*read_only=*/true);
    EXPECT_TRUE(first(*looking.store).shipped) << "before anything is written";
    EXPECT_FALSE(looking->find_finding(cache::FindingKind::kCanary, first(*looking.store).digest, "A100", ""))
        << "that canary ran elsewhere";
    EXPECT_FALSE(looking->find_binary(sample_binary(2).key)) << "what was wrong there is not tried here";
  }
  ASSERT_EQ(message(open_store({folder / "mine.db"})->put_binary(sample_binary(3))), "");
  auto mine = open_store({folder / "mine.db"});
  EXPECT_TRUE(first(*mine.store).shipped) << "and after";
  EXPECT_FALSE(mine->find_binary(sample_binary(2).key));
  EXPECT_FALSE(mine->find_binary(sample_binary(3).key)->shipped) << "made here";
  ASSERT_EQ(message(mine->put_finding(canary(*mine.store, 1, 1))), "");
  auto later = open_store({folder / "mine.db"});
  EXPECT_TRUE(later->find_finding(cache::FindingKind::kCanary, first(*later.store).digest, "A100", ""));
  EXPECT_FALSE(open_store({folder / "theirs.db"})->find_binary(sample_binary(1).key)->shipped);
}

// A put waits for the disk: many canaries that go well share a few, and none is lost when the store is closed.
TEST(CacheStore, RightCanariesAreWrittenTogether) {
  CacheFolder folder;
  constexpr size_t kCanaries = 200;
  const auto kept = [&] { return open_store({folder / "cache.db"})->list_findings().size(); };
  const auto put = [](Store& store, size_t n, int64_t value) {
    cache::Finding finding;
    finding.name = std::to_string(n);
    finding.value = value;
    return message(store.put_finding(finding));
  };
  {
    auto store = open_store({folder / "cache.db"});
    for (size_t n = 0; n < kCanaries; ++n) ASSERT_EQ(put(*store.store, n, 1), "");
    EXPECT_EQ(store->list_findings().size(), kCanaries);
    EXPECT_GE(kept(), 1u) << "the first one at once";
    EXPECT_LT(kept(), kCanaries / 2) << "each of them waited for the disk";
    ASSERT_EQ(put(*store.store, kCanaries, 0), "");
    EXPECT_EQ(kept(), kCanaries + 1) << "a wrong one at once, and with it all others";
    ASSERT_EQ(put(*store.store, kCanaries + 1, 1), "");
  }
  EXPECT_EQ(kept(), kCanaries + 2);
}

TEST(CacheStore, AnEmptyFileBecomesACache) {
  CacheFolder folder;
  std::ofstream(folder / "cache.db").close();
  auto store = open_store({folder / "cache.db"});
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_EQ(message(store->put_binary(sample_binary(1))), "");
  EXPECT_TRUE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(*store.lines, IsEmpty());
}

TEST(CacheStore, SymbolicLinksShareOneLockFile) {
  CacheFolder folder;
  auto direct = open_store({folder / "cache.db"});
  ASSERT_EQ(message(direct->put_binary(sample_binary(1))), "");
  std::filesystem::create_symlink(folder / "cache.db", folder / "link.db");
  auto linked = open_store({folder / "link.db"});
  EXPECT_TRUE(linked->find_binary(sample_binary(1).key));
  EXPECT_EQ(message(linked->put_binary(sample_binary(2))), "");
  EXPECT_FALSE(std::filesystem::exists(folder / "link.db.lock"));
  EXPECT_TRUE(direct->find_binary(sample_binary(2).key));
}

// The environment of the default layers, put back at the end.
class Environment {
 public:
  Environment() {
    for (const char* name : kNames)
      if (const char* value = getenv(name)) old_.emplace_back(name, value);
    for (const char* name : kNames) unsetenv(name);
  }
  ~Environment() {
    for (const char* name : kNames) unsetenv(name);
    for (auto& [name, value] : old_) setenv(name.c_str(), value.c_str(), 1);
  }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  static constexpr const char* kNames[] = {"TRIGEN_CACHE", "XDG_CACHE_HOME", "HOME"};
  std::vector<std::pair<std::string, std::string>> old_;
};

std::vector<std::string> without_system(std::vector<std::string> paths) {
  std::erase_if(paths, [](const std::string& path) { return path.starts_with("/usr/share/trigen/"); });
  return paths;
}

TEST(CachePaths, OrderIsVariableThenUserThenSystem) {
  Environment environment;
  CacheFolder folder;
  setenv("HOME", folder.path().c_str(), 1);
  EXPECT_THAT(without_system(default_layers()), ElementsAre(folder / ".cache/trigen/cache.db"));
  setenv("XDG_CACHE_HOME", "relative/cache", 1);
  EXPECT_THAT(without_system(default_layers()), ElementsAre(folder / ".cache/trigen/cache.db"))
      << "relative: ignored";
  setenv("XDG_CACHE_HOME", (folder / "xdg").c_str(), 1);
  EXPECT_THAT(without_system(default_layers()), ElementsAre(folder / "xdg/trigen/cache.db"));
  setenv("TRIGEN_CACHE", (folder / "mine.db").c_str(), 1);
  EXPECT_THAT(without_system(default_layers()),
              ElementsAre(folder / "mine.db", folder / "xdg/trigen/cache.db"));
  setenv("TRIGEN_CACHE", "", 1);
  EXPECT_THAT(without_system(default_layers()), ElementsAre(folder / "xdg/trigen/cache.db"));
}

TEST(CachePaths, TheVariableIsAListOfFilesAndFolders) {
  Environment environment;
  CacheFolder folder;
  setenv("XDG_CACHE_HOME", (folder / "xdg").c_str(), 1);
  std::filesystem::create_directory(folder / "bundles");
  for (const char* name : {"b.trigen", "a.trigen", "old.db", "notes.txt", ".trigen-half"})
    std::ofstream(folder / "bundles/" + name) << "x";
  setenv("TRIGEN_CACHE",
         ((folder / "core.trigen") + "::" + (folder / "bundles") + ":" + (folder / "mine.db")).c_str(), 1);
  EXPECT_THAT(without_system(default_layers()),
              ElementsAre(folder / "core.trigen", folder / "bundles/a.trigen", folder / "bundles/b.trigen",
                          folder / "bundles/old.db", folder / "mine.db", folder / "xdg/trigen/cache.db"));
  const auto user_layer = [] {
    for (const LayerInfo& layer : open_store({})->layers())
      if (layer.user_layer) return layer.path;
    return std::string();
  };
  EXPECT_EQ(user_layer(), folder / "mine.db") << "neither a bundle nor what lies in a folder";
  setenv("TRIGEN_CACHE", (folder / "bundles").c_str(), 1);
  EXPECT_EQ(user_layer(), folder / "xdg/trigen/cache.db");
  std::filesystem::create_directory(folder / "empty");
  setenv("TRIGEN_CACHE", (folder / "empty").c_str(), 1);
  EXPECT_EQ(user_layer(), folder / "xdg/trigen/cache.db");
  EXPECT_THAT(open_store({})->layers().at(0).problem, HasSubstr("a folder without *.trigen or *.db"));
}

TEST(CachePaths, NoneIsNoCache) {
  Environment environment;
  CacheFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  setenv("TRIGEN_CACHE", "none", 1);
  EXPECT_THAT(default_layers(), IsEmpty()) << "neither the user's nor a shipped one";
  EXPECT_THAT(open_store({folder / "a.db"})->layers(), ::testing::SizeIs(1)) << "what is named counts first";
  const Binary binary = sample_binary(1);
  const auto holds_nothing = [&](const char* how, const testing::OpenStore& store) {
    EXPECT_EQ(message(store->try_put()),
              "the cache is `none`, as TRIGEN_CACHE or --cache says; name a file there");
    EXPECT_EQ(message(store->put_binary(binary)), "") << how << ": nobody asked for it to be kept";
    EXPECT_FALSE(store->find_binary(binary.key)) << how;
    EXPECT_NE(message(store->put_record(sample_record(Provenance::kPredicted, "", 0, ""))), "")
        << how << ": a choice that is lost is said";
    EXPECT_EQ(message(store->put_sample(sample_record(Provenance::kMeasured, "GPU", 108, "580"))), "") << how;
    EXPECT_EQ(message(store->clear_samples("p", "sm_70", "")), "") << how;
    std::unique_ptr<Store::Lease> lease;
    EXPECT_EQ(store->lease(binary.key, 0, lease), Store::LeaseState::kOwner) << how;
    EXPECT_EQ(store.log(), "") << how;
  };
  holds_nothing("TRIGEN_CACHE", open_store({}));
  unsetenv("TRIGEN_CACHE");
  holds_nothing("named", open_store({"none"}));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_THAT(open_store({"./none"})->layers(), ::testing::SizeIs(1)) << "a file of that name";
}

TEST(CachePaths, DefaultsArePutToAndOthersAreNotTrusted) {
  Environment environment;
  CacheFolder folder;
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  auto store = open_store({});
  ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
  const std::string path = folder / "trigen/cache.db";
  ASSERT_TRUE(std::filesystem::exists(path));
  ASSERT_EQ(chmod(path.c_str(), 0666), 0);
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_THAT(store.log(), HasSubstr("everybody may write to it"));
  EXPECT_THAT(message(store->put_binary(sample_binary(1))), HasSubstr(path));
  EXPECT_THAT(store->layers().at(0).problem, HasSubstr("everybody may write to it"));
  EXPECT_FALSE(open_store({path})->find_binary(sample_binary(1).key)) << "named by the user or not";
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  EXPECT_TRUE(open_store({})->find_binary(sample_binary(1).key));
}

}  // namespace
}  // namespace trigen
