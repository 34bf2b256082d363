// A set-uid program that makes plans: its caller's environment chooses no library and no file.
#include <gmock/gmock.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "cache/store.h"
#include "runtime/driver.h"
#include "runtime/nvrtc.h"
#include "runtime/paths.h"
#include "tests/fault/child.h"
#include "tests/unit/cache_testing.h"

namespace trigen {
namespace {

namespace fs = std::filesystem;
using testing::CacheFolder;
using testing::Child;

constexpr const char* kVariables[] = {"TRIGEN_DRIVER",
                                      "TRIGEN_NVRTC",
                                      "TRIGEN_CUBLAS",
                                      "TRIGEN_CACHE",
                                      "TRIGEN_LOG",
                                      "CUDA_HOME",
                                      "CUDA_PATH",
                                      "VIRTUAL_ENV",
                                      "CONDA_PREFIX",
                                      "PYTHONPATH",
                                      "PYTHONUSERBASE",
                                      "PATH",
                                      "XDG_CACHE_HOME",
                                      "HOME",
                                      "TRIGEN_NO_JIT",
                                      "TRIGEN_TARGET",
                                      "TRIGEN_TRUSTED_FOLDERS"};

// The body of the set-uid copy of this program, started by the test below.
TEST(Privileged, DISABLED_Inner) {
  const char* const place = ::getenv("TRIGEN_TEST_PLACE");
  ASSERT_NE(place, nullptr);
  if (::getauxval(AT_SECURE) == 0) ::_exit(77);  // no set-uid programs on this file system
  for (const char* name : kVariables) EXPECT_EQ(environment(name), "") << name;
  const auto inside = [&](const std::string& path) { return path.find(place) != std::string::npos; };
  for (const std::string& path : default_layers()) EXPECT_FALSE(inside(path)) << path;
  NvrtcSearch search;
  for (const NvrtcFile& file : find_nvrtc(search)) EXPECT_FALSE(inside(file.path)) << file.path;
  for (const std::string& path : probe_driver().tried) EXPECT_FALSE(inside(path)) << path;
}

TEST(Privileged, TheCallersEnvironmentChoosesNothing) {
  if (geteuid() != 0) GTEST_SKIP() << "[SKIP] needs root to make a set-uid program";
  CacheFolder folder;
  ASSERT_EQ(chmod(folder.path().c_str(), 0755), 0);
  const std::string program = folder / "program";
  fs::copy_file("/proc/self/exe", program);
  ASSERT_EQ(chmod(program.c_str(), 04755), 0);
  fs::create_directories(folder / "lib64");
  fs::create_directories(folder / "lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib");
  for (const char* name : {"lib64/libnvrtc.so.99",
                           "lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.99", "python3"})
    std::ofstream(folder / name) << "x";
  Child child([&](const std::function<void()>&) -> std::string {
    for (const char* name : kVariables) setenv(name, folder.path().c_str(), 1);
    setenv("TRIGEN_DRIVER", (folder / "driver.so").c_str(), 1);
    setenv("TRIGEN_TEST_PLACE", folder.path().c_str(), 1);
    // gtest's own variables would send its results to the parent's file
    unsetenv("GTEST_OUTPUT");
    if (setgid(65533) != 0 || setuid(65533) != 0) return "cannot drop root's uid";
    execl(program.c_str(), program.c_str(), "--gtest_filter=Privileged.DISABLED_Inner",
          "--gtest_also_run_disabled_tests", nullptr);
    return "cannot start";
  });
  const std::string result = child.join();
  if (result == "exit 77") GTEST_SKIP() << "[SKIP] the temporary folder is on a file system without set-uid";
  EXPECT_EQ(result, "");
}

}  // namespace
}  // namespace trigen
