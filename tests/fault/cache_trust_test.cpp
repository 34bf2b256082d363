// Strangers' files beside a cache: none of them may change it, delete anything or make a process wait.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>

#include "cache/trust.h"
#include "tests/fault/child.h"
#include "tests/fault/journal.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

namespace fs = std::filesystem;
using namespace trigen::testing;

constexpr uid_t kUser = 65533, kStranger = 4242;

#define TRIGEN_NEEDS_ROOT() \
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] needs root to act as two users"

// A cache with binary 1, and the bytes of one whose binary 1 is another.
struct Victim {
  CacheFolder folder;
  std::string path = folder / "place/cache.db";
  std::string precious = folder / "precious.txt";
  std::string before, evil;

  Victim() {
    Binary mine = sample_binary(1, 3000), theirs = mine;
    theirs.cubin = "a stranger's kernel";
    EXPECT_EQ(message(open_store({folder / "evil/cache.db"})->put_binary(theirs)), "");
    EXPECT_EQ(message(open_store({path})->put_binary(mine)), "");
    evil = slurp(folder / "evil/cache.db");
    before = slurp(path);
    spill(precious, "the user's only copy");
  }
  void give_to(uid_t uid) const {
    for (const std::string& each : {folder.path(), folder / "place", path, path + ".lock", precious})
      if (chown(each.c_str(), uid, uid) != 0) ADD_FAILURE() << each;
  }
};

// "" when the cache at `path` is refused for `reason` by look-ups and puts and nothing there has changed.
std::string refused(const Victim& victim, const std::string& reason, bool read_only = false) {
  const auto names = [&] {
    std::vector<std::string> list;
    for (const auto& entry : fs::directory_iterator(victim.folder / "place")) list.push_back(entry.path());
    std::sort(list.begin(), list.end());
    return list;
  };
  const auto there = names();
  alarm(10);  // whoever waits is killed
  OpenStore store = open_store({victim.path}, 200, read_only);
  if (store->find_binary(sample_binary(1).key)) return "a look-up was answered";
  const bool says = store.log().find("is not trusted (") != std::string::npos &&
                    store.log().find(reason) != std::string::npos;
  if (!says) return "log: " + store.log();
  if (store->layers()[0].problem.find(reason) == std::string::npos)
    return "layers(): " + store->layers()[0].problem;
  if (store->verify().size() != 1 || store->verify()[0].find(reason) == std::string::npos)
    return "verify() does not say it";
  std::unique_ptr<Store::Lease> lease;
  if (store->lease(sample_binary(7).key, 0, lease) != Store::LeaseState::kOwner) return "no lease";
  const std::string put = message(store->put_binary(sample_binary(2)));
  if (!read_only && put.find(reason) == std::string::npos) return "put: " + put;
  alarm(0);
  if (names() != there) return "files came or went";
  if (slurp(victim.path) != victim.before) return "the cache has changed";
  if (slurp(victim.precious) != "the user's only copy") return "the user's file is gone";
  return "";
}

std::string as_user(const std::function<std::string()>& work) {
  Child child([&](const std::function<void()>&) -> std::string {
    if (setgid(kUser) != 0 || setuid(kUser) != 0) return "cannot take another uid";
    return work();
  });
  return child.join();
}

// The attack of two users: one makes a journal beside the other's private file.
TEST(CacheTrust, JournalOfAnotherUserInAFolderThatHeMayWrite) {
  TRIGEN_NEEDS_ROOT();
  struct Place {
    mode_t mode;
    uid_t owner;
    const char* reason;
  };
  for (const Place& place : {Place{01777, 0, "/place' may be written by everybody (mode 1777)"},
                             Place{0777, kUser, "/place' may be written by everybody (mode 0777)"},
                             Place{0775, kUser, "/place' may be written by group 4242 (mode 0775)"},
                             Place{0755, kStranger, "/place' belongs to uid 4242"}})
    for (const char* super : {"", "yes"}) {
      Victim victim;
      victim.give_to(kUser);
      const std::string journal = victim.path + "-journal";
      spill(journal, journal_to(victim.evil, *super ? victim.precious : ""));
      ASSERT_EQ(chown(journal.c_str(), kStranger, kStranger), 0);
      ASSERT_EQ(chown((victim.folder / "place").c_str(), place.owner, kStranger), 0);
      ASSERT_EQ(chmod((victim.folder / "place").c_str(), place.mode), 0);
      EXPECT_EQ(as_user([&] { return refused(victim, place.reason); }), "") << place.reason << super;
      EXPECT_EQ(as_user([&] { return refused(victim, place.reason, /*read_only=*/true); }), "");
      // Named as trusted, the folder is; the stranger's journal is not.
      EXPECT_EQ(as_user([&]() -> std::string {
                  setenv("TRIGEN_TRUSTED_FOLDERS", ("/nowhere:" + (victim.folder / "place")).c_str(), 1);
                  if (std::string wrong = refused(victim, "-journal' belongs to uid 4242"); !wrong.empty())
                    return wrong;
                  return "";
                }),
                "");
      fs::remove(journal);
      EXPECT_EQ(as_user([&]() -> std::string {
                  setenv("TRIGEN_TRUSTED_FOLDERS", (victim.folder / "place").c_str(), 1);
                  auto store = open_store({victim.path});
                  if (!store->find_binary(sample_binary(1, 3000).key)) return "missed: " + store.log();
                  return place.owner == kStranger ? "" : message(store->put_binary(sample_binary(3)));
                }),
                "");
    }
}

// No second user is needed: a cache and its journal out of an archive, in a folder of one's own.
TEST(CacheTrust, JournalThatNamesASuperJournal) {
  Victim victim;
  for (bool pages : {true, false}) {
    spill(victim.path + "-journal", journal_to(pages ? victim.evil : "", victim.precious));
    ASSERT_EQ(chmod((victim.path + "-journal").c_str(), 0600), 0);
    EXPECT_EQ(refused(victim, "-journal' names a super-journal"), "") << pages;
  }
}

TEST(CacheTrust, WhatIsNoPlainFileBesideTheCache) {
  struct Plant {
    const char* kind;
    std::function<bool(const std::string&)> make;
    const char* reason;
  };
  Victim victim;
  const std::string other = victim.folder / "other";
  spill(other, journal_to(victim.evil));
  ASSERT_EQ(chmod(other.c_str(), 0600), 0);
  const Plant plants[] = {
      {"fifo", [](const std::string& at) { return mkfifo(at.c_str(), 0600) == 0; }, "is not a regular file"},
      {"folder", [](const std::string& at) { return fs::create_directory(at); }, "is not a regular file"},
      {"link", [&](const std::string& at) { return symlink(other.c_str(), at.c_str()) == 0; },
       "is not a regular file"},
      {"socket",
       [](const std::string& at) {
         sockaddr_un address = {};
         address.sun_family = AF_UNIX;
         at.copy(address.sun_path, sizeof address.sun_path - 1);
         const int made = socket(AF_UNIX, SOCK_STREAM, 0);
         return bind(made, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0 && close(made) == 0;
       },
       "is not a regular file"},
      {"hard link", [&](const std::string& at) { return link(other.c_str(), at.c_str()) == 0; },
       "has another name, too"},
      {"writable",
       [&](const std::string& at) {
         spill(at, slurp(other));
         return chmod(at.c_str(), 0602) == 0;
       },
       "everybody may write to it (mode 0602)"},
  };
  for (const char* suffix : {"-journal", "-wal", "-shm"})
    for (const Plant& plant : plants) {
      ASSERT_TRUE(plant.make(victim.path + suffix)) << plant.kind;
      EXPECT_EQ(refused(victim, "'" + victim.path + suffix + "' " + plant.reason), "")
          << plant.kind << suffix;
      ASSERT_TRUE(fs::remove(victim.path + suffix));
    }
  // The lock file, also of a second layer and of a store that only reads.
  fs::remove(victim.path + ".lock");
  for (const Plant& plant : {plants[0], plants[1], plants[2]}) {
    ASSERT_TRUE(plant.make(victim.path + ".lock"));
    const std::string reason = "'" + victim.path + ".lock' is not a regular file";
    EXPECT_EQ(refused(victim, reason), "") << plant.kind;
    EXPECT_EQ(refused(victim, reason, /*read_only=*/true), "") << plant.kind;
    alarm(10);
    auto second = open_store({victim.folder / "user.db", victim.path}, 200);
    EXPECT_FALSE(second->find_binary(sample_binary(1).key));
    EXPECT_NE(second.log().find(reason), std::string::npos) << second.log();
    alarm(0);
    fs::remove(victim.path + ".lock");
  }
}

// The folders above: sticky ones keep what is in them, others do not.
TEST(CacheTrust, FoldersAbove) {
  Victim victim;
  ASSERT_EQ(chmod(victim.folder.path().c_str(), 01777), 0);
  EXPECT_TRUE(open_store({victim.path})->find_binary(sample_binary(1).key))
      << "as a folder of one's own in /tmp";
  ASSERT_EQ(chmod(victim.folder.path().c_str(), 0777), 0);
  EXPECT_EQ(refused(victim, "folder '" + victim.folder.path() + "' may be written by everybody (mode 0777)"),
            "");
  // Nothing is made there either, nor for a path that SQLite could not open.
  const std::string longer = victim.folder / "place/" + std::string(200, 'a') + "/" + std::string(200, 'b') +
                             "/" + std::string(100, 'c');
  EXPECT_NE(message(open_store({longer})->put_binary(sample_binary(1))).find("at most 500 are allowed"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(victim.folder / "place/" + std::string(200, 'a')));
  auto store = open_store({victim.folder / "new/sub/cache.db"}, 200);
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_EQ(store.log(), "") << "a file that is not there is an ordinary miss";
  EXPECT_NE(message(store->put_binary(sample_binary(1))).find("may be written by everybody"),
            std::string::npos);
  EXPECT_NE(store->layers()[0].problem.find("may be written by everybody"), std::string::npos);
  EXPECT_FALSE(fs::exists(victim.folder / "new"));
  ASSERT_EQ(chmod(victim.folder.path().c_str(), 0700), 0);
  // A link that appears on the way after the store was opened.
  auto late = open_store({victim.folder / "late/cache.db"}, 200);
  fs::create_directory_symlink(victim.folder / "place", victim.folder / "late");
  EXPECT_NE(message(late->put_binary(sample_binary(1))).find("has become a link"), std::string::npos);
}

// Gives `user` these permissions beside the owner's, as setfacl does; false where the file system has no lists.
bool give_by_list(const std::string& path, uid_t user, uint16_t permissions) {
  constexpr uint32_t kNobody = 0xFFFFFFFF;
  struct Entry {  // linux/posix_acl_xattr.h
    uint16_t tag, permissions;
    uint32_t id;
  } const entries[] = {
      {1, 6, kNobody}, {2, permissions, user}, {4, 0, kNobody}, {16, permissions, kNobody}, {32, 0, kNobody}};
  std::string value("\2\0\0\0", 4);
  value.append(reinterpret_cast<const char*>(entries), sizeof entries);
  return setxattr(path.c_str(), "system.posix_acl_access", value.data(), value.size(), 0) == 0;
}

TEST(CacheTrust, AccessControlListsOfFiles) {
  constexpr uint16_t kReads = 4, kWrites = 6;
  const std::string reason = geteuid() == 0 ? "others by its access control list may write to it (mode 0660)"
                                            : "may write to it (mode 0660)";
  for (const bool read_only : {false, true}) {
    Victim victim;
    if (!give_by_list(victim.path, kStranger, kWrites))
      GTEST_SKIP() << "[SKIP] no access control lists on this file system: " << strerror(errno);
    EXPECT_EQ(refused(victim, reason, read_only), "");
    // One who may read it does no harm.
    ASSERT_TRUE(give_by_list(victim.path, kStranger, kReads));
    EXPECT_TRUE(open_store({victim.path})->find_binary(sample_binary(1).key));
    spill(victim.path + "-journal", journal_to(victim.evil));
    ASSERT_TRUE(give_by_list(victim.path + "-journal", kStranger, kWrites));
    EXPECT_EQ(refused(victim, reason, read_only), "");
  }
}

// A user namespace that maps the user alone shows root's files as nobody's: shipped layers are still read.
TEST(CacheTrust, ShippedLayerInANamespaceThatHidesRoot) {
  TRIGEN_NEEDS_ROOT();
  Victim victim;
  fs::remove(victim.path + ".lock");
  for (const std::string& each : {victim.folder / "place", victim.path})
    ASSERT_EQ(chown(each.c_str(), kStranger, kStranger), 0);
  ASSERT_EQ(chmod((victim.folder / "place").c_str(), 0755), 0);
  ASSERT_EQ(chmod(victim.path.c_str(), 0644), 0);
  Child child([&](const std::function<void()>&) -> std::string {
    if (unshare(CLONE_NEWUSER) != 0) return "skip";
    spill("/proc/self/uid_map", "1000 0 1");
    struct stat facts = {};
    if (stat(victim.path.c_str(), &facts) != 0 || facts.st_uid != 65534) return "skip";
    auto shipped = open_store({"/nowhere/user.db", victim.path}, 200);
    if (!shipped->find_binary(sample_binary(1, 3000).key)) return "shipped: " + shipped.log();
    auto own = open_store({victim.path}, 200);
    if (own->find_binary(sample_binary(1, 3000).key)) return "used as the user's own layer";
    return "";
  });
  const std::string result = child.join();
  if (result == "skip") GTEST_SKIP() << "[SKIP] no user namespaces here";
  EXPECT_EQ(result, "");
}

// The guard repeats the checks above, made by name, on the descriptors, so that no race of checks helps: SQLite is given the layer's own files alone.
TEST(CacheTrust, SqliteOpensAndDeletesTheLayersFilesAlone) {
  Victim victim;
  cache::Guard guard;
  guard.enter(victim.path, cache::FilePart::kLayer);
  EXPECT_EQ(guard.unlink(victim.precious.c_str()), -1);
  EXPECT_EQ(guard.open(victim.precious.c_str(), O_RDONLY, 0), -1);
  EXPECT_EQ(guard.open((victim.folder / "etilqs_1").c_str(), O_RDWR, 0), -1) << "not made by SQLite";
  EXPECT_NE(guard.refusal().find("precious.txt"), std::string::npos);
  guard.enter(victim.path, cache::FilePart::kLayer);
  ASSERT_EQ(mkfifo((victim.path + "-journal").c_str(), 0600), 0);
  EXPECT_EQ(guard.open((victim.path + "-journal").c_str(), O_RDONLY, 0), -1) << "and did not wait";
  EXPECT_EQ(guard.unlink((victim.path + "-journal").c_str()), -1);
  EXPECT_TRUE(fs::exists(victim.precious));
  const int layer = guard.open(victim.path.c_str(), O_RDWR, 0);
  EXPECT_GE(layer, 0);
  close(layer);
}

}  // namespace
}  // namespace trigen
