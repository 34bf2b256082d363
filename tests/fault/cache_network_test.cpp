// A user layer on a network file system: nothing is locked or changed there, nodes see each other's bundles.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <stdarg.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "cache/upkeep.h"
#include "tests/fault/child.h"
#include "tests/fault/faulty_mount.h"
#include "tests/unit/cache_testing.h"

namespace {

// A folder that statfs() calls NFS, and the locks that were asked for below it.
std::string network_folder;
std::atomic<int> network_locks{0};

}  // namespace

// This program's own, in front of libc's: what the cache, linked into it, calls.
extern "C" int statfs(const char* path, struct statfs* facts) noexcept {
  const long code = syscall(SYS_statfs, path, facts);
  if (code == 0 && !network_folder.empty() && std::string(path).starts_with(network_folder))
    facts->f_type = 0x6969;
  return static_cast<int>(code);
}

extern "C" int fcntl(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  const bool locks =
      command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
  char target[4096] = {};
  if (locks && !network_folder.empty() &&
      readlink(("/proc/self/fd/" + std::to_string(descriptor)).c_str(), target, sizeof target - 1) > 0 &&
      std::string(target).starts_with(network_folder)) {
    ++network_locks;
    errno = ENOLCK;
    return -1;
  }
  return static_cast<int>(syscall(SYS_fcntl, descriptor, command, argument));
}

namespace trigen {
namespace {

using namespace trigen::testing;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator(folder, none))
    names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

// The layer is /<folder>/shared/cache.db, called NFS; each node has a spool of its own.
class CacheNetwork : public ::testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directory(folder_ / "shared");
    std::filesystem::permissions(folder_ / "shared", std::filesystem::perms::owner_all);
    network_folder = folder_ / "shared";
    network_locks = 0;
  }
  void TearDown() override {
    network_folder.clear();
    unsetenv("TRIGEN_SPOOL");
  }
  testing::OpenStore node(const char* name) {
    std::filesystem::create_directory(folder_ / name);
    setenv("TRIGEN_SPOOL", (folder_ / name).c_str(), 1);
    return open_store({layer()});
  }
  std::string layer() const { return folder_ / "shared/cache.db"; }
  std::string published() const { return layer() + ".d"; }

  CacheFolder folder_;
};

TEST_F(CacheNetwork, WhatIsPutIsPublishedAsWholeFilesAndNothingIsLocked) {
  {
    auto a = node("a");
    ASSERT_EQ(message(a->put_binary(sample_binary(1))), "");
    ASSERT_EQ(message(a->put_record(sample_record(Provenance::kMeasured, "A100", 108, "580"))), "");
    EXPECT_EQ(a.log(), "");
    EXPECT_TRUE(a->find_binary(sample_binary(1).key));
    const auto info = a->layers().at(0);
    EXPECT_TRUE(info.user_layer && info.writable);
    EXPECT_THAT(info.note, HasSubstr("stands in for '" + layer() + "' on nfs"));
  }
  EXPECT_THAT(names_in(folder_ / "shared"), ::testing::ElementsAre("cache.db.d")) << "no file, no lock file";
  EXPECT_THAT(names_in(published()), SizeIs(1));
  {
    auto b = node("b");
    EXPECT_TRUE(b->find_binary(sample_binary(1).key)) << "of the other node";
    EXPECT_EQ(b->find_record(sample_record(Provenance::kMeasured, "", 0, "").problem, {"sm_80"},
                             {"A100", 108, "580"})
                  ->match,
              Match::kExact);
    ASSERT_EQ(message(b->put_binary(sample_binary(2))), "");
  }
  EXPECT_THAT(names_in(published()), SizeIs(2)) << "one file a node";
  {
    auto a = node("a");
    EXPECT_TRUE(a->find_binary(sample_binary(2).key));
    ASSERT_EQ(message(a->put_binary(sample_binary(3))), "");
  }
  EXPECT_THAT(names_in(published()), SizeIs(2)) << "a node's own file is replaced";
  auto c = node("c");
  for (unsigned n = 1; n <= 3; ++n) EXPECT_TRUE(c->find_binary(sample_binary(n).key)) << n;
  EXPECT_THAT(c->verify(), IsEmpty());
  EXPECT_EQ(network_locks, 0);
}

TEST_F(CacheNetwork, ALayerThatIsThereIsReadWithoutLocks) {
  network_folder.clear();
  {
    auto before = open_store({layer()});
    ASSERT_EQ(message(before->put_binary(sample_binary(1))), "");
  }
  ASSERT_TRUE(std::filesystem::exists(layer() + ".lock"));
  network_folder = folder_ / "shared";
  auto a = node("a");
  EXPECT_TRUE(a->find_binary(sample_binary(1).key));
  ASSERT_EQ(message(a->put_binary(sample_binary(2))), "");
  EXPECT_EQ(a.log(), "");
  EXPECT_EQ(network_locks, 0);
}

TEST_F(CacheNetwork, ProcessesOfANodeShareItsSpool) {
  std::vector<Child> children;
  for (unsigned n = 0; n < 8; ++n)
    children.emplace_back([&, n](const std::function<void()>&) {
      auto a = node("a");
      for (unsigned i = 0; i < 4; ++i)
        if (auto error = a->put_binary(sample_binary(10 * n + i, 500))) return message(std::move(error));
      return a.log();
    });
  for (Child& child : children) EXPECT_EQ(child.join(), "");
  ASSERT_THAT(names_in(published()), SizeIs(1));
  auto b = node("b");
  for (unsigned n = 0; n < 8; ++n)
    for (unsigned i = 0; i < 4; ++i)
      EXPECT_TRUE(b->find_binary(sample_binary(10 * n + i, 500).key)) << n << i;
  EXPECT_EQ(network_locks, 0);
}

TEST_F(CacheNetwork, AFullOrUnwritableSharedPlaceKeepsTheSpool) {
  // A file in the place of the folder of bundles: nothing can be published.
  std::ofstream(published()) << "in the way";
  auto a = node("a");
  EXPECT_EQ(message(a->put_binary(sample_binary(1))), "") << "it is stored on this node";
  EXPECT_THAT(a.log(), HasSubstr("not a directory"));
  EXPECT_TRUE(a->find_binary(sample_binary(1).key));
  ASSERT_TRUE(std::filesystem::remove(published()));
  {
    auto again = node("a");
    EXPECT_EQ(message(again->put_binary(sample_binary(2))), "");
  }
  auto b = node("b");
  EXPECT_TRUE(b->find_binary(sample_binary(1).key)) << "published with the next put";
}

// Nodes that are gone leave their bundles: gc makes one of those that nobody wrote for long.
TEST_F(CacheNetwork, OldBundlesBecomeOne) {
  for (const char* name : {"node0", "node1", "node2"})
    ASSERT_EQ(message(node(name)->put_binary(sample_binary(static_cast<unsigned>(name[4] - '0')))), "");
  const auto theirs = names_in(published());
  ASSERT_THAT(theirs, SizeIs(3));
  ASSERT_EQ(message(node("node3")->put_binary(sample_binary(3))), "");
  const auto age = [&] {
    for (const std::string& name : names_in(published()))
      std::filesystem::last_write_time(
          published() + "/" + name,
          std::filesystem::file_time_type::clock::now() - std::chrono::hours(31 * 24));
  };
  const auto gc = [&] {
    setenv("TRIGEN_SPOOL", (folder_ / "node3").c_str(), 1);
    auto report = cache::collect({{layer()}}, int64_t{1} << 30);
    return report ? report->folded : -1;
  };
  EXPECT_EQ(gc(), 0) << "they are young";
  age();
  EXPECT_EQ(gc(), 3) << "but for that of the node which is alive";
  const auto names = names_in(published());
  ASSERT_THAT(names, SizeIs(2));
  EXPECT_THAT(names[0], ::testing::StartsWith("folded-"));
  EXPECT_EQ(std::count(theirs.begin(), theirs.end(), names[1]), 0);
  EXPECT_EQ(gc(), 0);
  auto reader = node("another");
  for (unsigned n = 0; n < 4; ++n) EXPECT_TRUE(reader->find_binary(sample_binary(n).key)) << n;
  // One of them was alive after all.
  ASSERT_EQ(message(node("node1")->put_binary(sample_binary(9))), "");
  ASSERT_EQ(message(node("node2")->put_binary(sample_binary(10))), "");
  auto again = node("one more");
  for (unsigned n : {0u, 1u, 2u, 3u, 9u, 10u}) EXPECT_TRUE(again->find_binary(sample_binary(n).key)) << n;
  EXPECT_EQ(network_locks, 0);
}

TEST_F(CacheNetwork, CanBeTurnedOff) {
  setenv("TRIGEN_SPOOL", "off", 1);
  auto direct = open_store({layer()});
  EXPECT_THAT(message(direct->put_binary(sample_binary(1))), HasSubstr("no locks here"));
  EXPECT_GT(network_locks, 0);
  EXPECT_THAT(direct->layers().at(0).note, HasSubstr("on nfs"));
}

// The same over FUSE, which fails where a network does: two mounts of one folder are two nodes.
TEST(CacheFuse, NoLocksStaleHandlesAndLateVisibility) {
  CacheFolder folder;
  for (const char* name : {"backing", "a", "b", "spool-a", "spool-b"}) {
    std::filesystem::create_directory(folder / name);
    std::filesystem::permissions(folder / name, std::filesystem::perms::owner_all);
  }
  std::string why;
  constexpr int kLateMs = 300;
  auto a = FaultyMount::mount(folder / "backing", folder / "a", kLateMs, why);
  if (!a) GTEST_SKIP() << "[SKIP] " << why;
  auto b = FaultyMount::mount(folder / "backing", folder / "b", kLateMs, why);
  ASSERT_TRUE(b) << why;
  const auto node = [&](const std::string& name) {
    setenv("TRIGEN_SPOOL", (folder / ("spool-" + name)).c_str(), 1);
    return open_store({folder / (name + "/cache.db")});
  };
  const auto begin = std::chrono::steady_clock::now();
  {
    auto store = node("a");
    ASSERT_EQ(message(store->put_binary(sample_binary(1))), "");
    EXPECT_EQ(store.log(), "");
  }
  auto early = node("b");
  const bool seen = early->find_binary(sample_binary(1).key).has_value();
  if (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(kLateMs)) {
    EXPECT_FALSE(seen) << "not seen yet: an ordinary miss";
  }
  EXPECT_EQ(early.log(), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * kLateMs));
  EXPECT_TRUE(node("b")->find_binary(sample_binary(1).key));

  // Node a replaces its bundle again and again while b reads: b's handles go stale in the middle.
  Child writer([&](const std::function<void()>&) {
    for (unsigned n = 2; n < 30; ++n) {
      auto store = node("a");
      if (auto error = store->put_binary(sample_binary(n, 60000))) return message(std::move(error));
      if (!store.log().empty()) return store.log();
    }
    return std::string();
  });
  auto reader = node("b");
  int found = 0, missed = 0;
  const Binary first = sample_binary(1);
  for (const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(2);
       std::chrono::steady_clock::now() < until || found == 0;) {
    const auto binary = reader->find_binary(first.key);
    EXPECT_TRUE(!binary || binary->cubin == first.cubin);
    ++(binary ? found : missed);
  }
  EXPECT_EQ(writer.join(), "");
  std::this_thread::sleep_for(std::chrono::milliseconds(2 * kLateMs));
  auto last = node("b");
  for (unsigned n = 1; n < 30; ++n) EXPECT_TRUE(last->find_binary(sample_binary(n, 60000).key)) << n;
  EXPECT_GT(found, 0);
  EXPECT_EQ(a->lock_calls() + b->lock_calls(), 0);
  unsetenv("TRIGEN_SPOOL");
}

}  // namespace
}  // namespace trigen
