// No permission, read-only places, full disks. Root ignores permissions, so the first kind runs in a child
// that drops its uid.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "tests/fault/child.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

namespace fs = std::filesystem;
using namespace trigen::testing;

constexpr uid_t kNobody = 65534;

bool has(const std::string& text, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts)
    if (text.find(part) == std::string::npos) return false;
  return true;
}

// Runs `work` without root's privileges; as an ordinary user it simply runs.
std::string unprivileged(const std::function<std::string()>& work) {
  Child child([&](const std::function<void()>&) -> std::string {
    if (geteuid() == 0 && (setgid(kNobody) != 0 || setuid(kNobody) != 0)) return "cannot drop root's uid";
    return work();
  });
  return child.join();
}

// The folder belongs to whoever runs `work` above.
void give_away(const std::string& path) {
  if (geteuid() == 0) {
    ASSERT_EQ(chown(path.c_str(), kNobody, kNobody), 0);
  }
}

TEST(CacheDenied, ReadOnlyFolderStillServesLookUps) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  ASSERT_EQ(message(open_store({path})->put_binary(sample_binary(1))), "");
  for (const std::string& each : {folder.path(), path, path + ".lock"}) give_away(each);
  for (bool with_lock_file : {true, false}) {
    if (!with_lock_file) fs::remove(path + ".lock");
    ASSERT_EQ(chmod(path.c_str(), 0400), 0);
    ASSERT_EQ(chmod(folder.path().c_str(), 0500), 0);
    EXPECT_EQ(unprivileged([&]() -> std::string {
                auto store = open_store({path}, 300);
                if (!store->find_binary(sample_binary(1).key)) return "the look-up missed: " + store.log();
                const std::string error = message(store->put_binary(sample_binary(2)));
                if (!has(error, {path, "may not be used by uid", "set TRIGEN_CACHE to another file"}) &&
                    !has(error, {path, "is read-only", "set TRIGEN_CACHE to another file"}))
                  return "error: " + error;
                const LayerInfo info = store->layers()[0];
                if (info.writable || info.problem.empty())
                  return "layers() says writable or nothing: " + info.problem;
                std::unique_ptr<Store::Lease> lease;
                if (store->lease(sample_binary(2).key, 0, lease) != Store::LeaseState::kOwner)
                  return "no lease";
                return "";
              }),
              "")
        << with_lock_file;
    ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
  }
}

TEST(CacheDenied, FolderThatCannotBeMade) {
  CacheFolder folder;
  give_away(folder.path());
  ASSERT_EQ(chmod(folder.path().c_str(), 0500), 0);
  const std::string path = folder / "new/cache.db";
  EXPECT_EQ(unprivileged([&]() -> std::string {
              auto store = open_store({path}, 300);
              if (store->find_binary(sample_binary(1).key)) return "found";
              if (!store.lines->empty()) return "a missing file is no problem: " + store.log();
              const std::string error = message(store->put_binary(sample_binary(1)));
              return has(error, {path, "permission denied", "writable", "set TRIGEN_CACHE"})
                         ? ""
                         : "error: " + error;
            }),
            "");
  ASSERT_EQ(chmod(folder.path().c_str(), 0700), 0);
}

TEST(CacheDenied, FileWithoutPermission) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  ASSERT_EQ(message(open_store({path})->put_binary(sample_binary(1))), "");
  for (const std::string& each : {folder.path(), path, path + ".lock"}) give_away(each);
  ASSERT_EQ(chmod(path.c_str(), 0), 0);
  EXPECT_EQ(unprivileged([&]() -> std::string {
              auto store = open_store({path}, 300);
              if (store->find_binary(sample_binary(1).key)) return "found";
              if (store.lines->size() != 1 ||
                  !has(store.log(), {path, "permission denied", "correct the permissions"}))
                return "log: " + store.log();
              const std::string error = message(store->put_binary(sample_binary(1)));
              return has(error, {path, "permission denied"}) ? "" : "error: " + error;
            }),
            "");
}

TEST(CacheDenied, DefaultLayerOfAnotherUserIsNotTrusted) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root to make a file of another user";
  CacheFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  setenv("XDG_CACHE_HOME", folder.path().c_str(), 1);
  unsetenv("TRIGEN_CACHE");
  ASSERT_EQ(message(open_store({})->put_binary(sample_binary(1))), "");
  const std::string path = folder / "trigen/cache.db";
  ASSERT_EQ(chown(path.c_str(), 4242, 4242), 0);
  auto store = open_store({});
  unsetenv("XDG_CACHE_HOME");
  EXPECT_FALSE(store->find_binary(sample_binary(1).key));
  EXPECT_TRUE(has(store.log(), {path, "belongs to uid 4242"})) << store.log();
}

// A mount of this process's own, in a child so that nothing stays behind. "skip" where mounting is not
// permitted.
std::string on_tmpfs(const std::string& folder, const char* options,
                     const std::function<std::string()>& work) {
  Child child([&](const std::function<void()>&) -> std::string {
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("trigen-test", folder.c_str(), "tmpfs", 0, options) != 0)
      return "skip";
    return work();
  });
  return child.join();
}

TEST(CacheDenied, ReadOnlyFileSystem) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  const std::string result = on_tmpfs(folder.path(), "size=4m,mode=0700", [&]() -> std::string {
    if (std::string error = message(open_store({path})->put_binary(sample_binary(1))); !error.empty())
      return error;
    for (bool with_lock_file : {true, false}) {
      if (!with_lock_file) {
        mount("none", folder.path().c_str(), nullptr, MS_REMOUNT, nullptr);
        fs::remove(path + ".lock");
      }
      if (mount("none", folder.path().c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) != 0)
        return "cannot remount";
      auto store = open_store({path}, 300);
      if (!store->find_binary(sample_binary(1).key)) return "the look-up missed: " + store.log();
      const std::string error = message(store->put_binary(sample_binary(2)));
      if (!has(error, {path, "is read-only", "set TRIGEN_CACHE to another file"})) return "error: " + error;
      if (store->layers()[0].writable || !has(store->layers()[0].problem, {"read-only"}))
        return "layers(): writable";
      // The same as a layer below a user layer elsewhere.
      auto below = open_store({"/dev/shm/trigen-none/cache.db", path}, 300);
      if (!below->find_binary(sample_binary(1).key)) return "as a system layer: " + below.log();
    }
    return "";
  });
  if (result == "skip") GTEST_SKIP() << "mounting a tmpfs needs root";
  EXPECT_EQ(result, "");
}

// A container's image: the layer lies in overlayfs's lower folder, and a look-up must not copy it up.
TEST(CacheDenied, OverlayLowerFileIsNotCopiedUp) {
  CacheFolder folder;
  const std::string result = on_tmpfs(folder.path(), "size=8m", [&]() -> std::string {
    for (const char* each : {"lower", "upper", "work", "merged"}) fs::create_directory(folder / each);
    for (const char* each : {"first.db", "shipped.db"}) {
      auto store = open_store({folder / "lower/" + each});
      if (std::string error = message(store->put_binary(sample_binary(each[0]))); !error.empty())
        return error;
      store.store.reset();
      fs::remove(folder / "lower/" + each + ".lock");
    }
    const std::string options = "lowerdir=" + (folder / "lower") + ",upperdir=" + (folder / "upper") +
                                ",workdir=" + (folder / "work");
    if (mount("overlay", (folder / "merged").c_str(), "overlay", 0, options.c_str()) != 0) return "skip";
    auto store = open_store({folder / "merged/first.db", folder / "merged/shipped.db"});
    if (!store->find_binary(sample_binary('f').key) || !store->find_binary(sample_binary('s').key))
      return "missed: " + store.log();
    for (const auto& entry : fs::directory_iterator(folder / "upper"))
      if (entry.path().filename() != "first.db.lock") return "copied up: " + entry.path().string();
    return store.log();
  });
  if (result == "skip") GTEST_SKIP() << "mounting an overlay needs root and a kernel that has it";
  EXPECT_EQ(result, "");
}

std::string fill_until_error(const std::string& path) {
  auto store = open_store({path}, 300);
  unsigned stored = 0;
  std::string error;
  for (; stored < 500 && error.empty(); ++stored) error = message(store->put_binary(sample_binary(stored)));
  --stored;
  if (!has(error, {"no space left for cache '" + path + "'", "free space", "set TRIGEN_CACHE to a"}) &&
      !has(error, {"no space left for cache '" + path + "'", "free space", "or set TRIGEN_CACHE"}))
    return "error after " + std::to_string(stored) + ": " + error;
  if (stored < 3) return "full too early";
  if (!has(store->layers()[0].problem, {"no space left"}))
    return "layers() does not say it: " + store->layers()[0].problem;
  // Everything from before is there and intact, with a new store too.
  auto again = open_store({path}, 300);
  for (unsigned n = 0; n < stored; ++n) {
    const auto found = again->find_binary(sample_binary(n).key);
    if (!found || found->cubin != sample_binary(n).cubin)
      return "lost " + std::to_string(n) + ": " + again.log();
  }
  if (again->find_binary(sample_binary(stored).key)) return "the failed one is there";
  if (!again->verify().empty()) return again->verify()[0];
  return "";
}

TEST(CacheDenied, FullDisk) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  const std::string result = on_tmpfs(folder.path(), "size=1m,mode=0700", [&]() -> std::string {
    if (std::string problem = fill_until_error(path); !problem.empty()) return problem;
    // With room again, the next put works.
    if (mount("none", folder.path().c_str(), nullptr, MS_REMOUNT, "size=4m") != 0) return "cannot remount";
    auto store = open_store({path});
    if (std::string error = message(store->put_binary(sample_binary(900))); !error.empty()) return error;
    return store->find_binary(sample_binary(900).key) ? "" : "not found after making room";
  });
  if (result == "skip") GTEST_SKIP() << "mounting a tmpfs needs root";
  EXPECT_EQ(result, "");
}

TEST(CacheDenied, DiskFullFromTheStart) {
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  const std::string result = on_tmpfs(folder.path(), "size=160k,mode=0700", [&]() -> std::string {
    const int hog = open((folder / "hog").c_str(), O_WRONLY | O_CREAT, 0600);
    const std::string block(1024, 'x');
    while (write(hog, block.data(), block.size()) > 0) {
    }
    close(hog);
    auto store = open_store({path}, 300);
    const std::string error = message(store->put_binary(sample_binary(1)));
    if (!has(error, {"no space left for cache '" + path + "'"})) return "error: " + error;
    if (store->find_binary(sample_binary(1).key)) return "found";
    fs::remove(folder / "hog");
    if (std::string later = message(store->put_binary(sample_binary(1, 2000))); !later.empty())
      return "later: " + later;
    return store->find_binary(sample_binary(1).key) ? "" : "not found after making room";
  });
  if (result == "skip") GTEST_SKIP() << "mounting a tmpfs needs root";
  EXPECT_EQ(result, "");
}

// Needs no privilege: the file size limit fails writes as a quota does.
TEST(CacheDenied, FileSizeLimit) {
  CacheFolder folder;
  Child child([&](const std::function<void()>&) -> std::string {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {600 << 10, 600 << 10};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return "no limit";
    return fill_until_error(folder / "cache.db");
  });
  EXPECT_EQ(child.join(), "");
}

// No descriptor left: an operation fails, the next one works.
TEST(CacheDenied, NoDescriptorLeft) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the undefined-behaviour sanitizer's type check opens a pipe of its own and fails without";
#endif
  CacheFolder folder;
  const std::string path = folder / "cache.db";
  ASSERT_EQ(message(open_store({path})->put_binary(sample_binary(1))), "");
  Child child([&](const std::function<void()>&) -> std::string {
    auto store = open_store({path}, 300);
    rlimit old = {};
    getrlimit(RLIMIT_NOFILE, &old);
    for (rlim_t allowed = 3; allowed < 12; ++allowed) {
      const rlimit few = {allowed, old.rlim_max};
      setrlimit(RLIMIT_NOFILE, &few);
      const bool found = store->find_binary(sample_binary(1).key).has_value();
      const std::string error = message(store->put_binary(sample_binary(2)));
      setrlimit(RLIMIT_NOFILE, &old);
      if (allowed == 3 && (found || !has(error, {path, "too many open files"}))) return "with none: " + error;
      if (!fs::exists(path) || fs::exists(path + ".corrupt-1")) return "set aside for want of descriptors";
    }
    if (!store->find_binary(sample_binary(1).key)) return "not found afterwards: " + store.log();
    return message(store->put_binary(sample_binary(2)));
  });
  EXPECT_EQ(child.join(), "");
}

}  // namespace
}  // namespace trigen
