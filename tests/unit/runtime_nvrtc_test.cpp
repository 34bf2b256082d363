#include <gmock/gmock.h>

#include "runtime_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::SizeIs;
using trigen::testing::error_of;
using trigen::testing::Folder;
using trigen::testing::Variable;

// Nothing but what a test adds.
NvrtcSearch empty_search() {
  NvrtcSearch search;
  search.use_environment = search.use_process = search.use_system = false;
  return search;
}

std::vector<std::string> paths(const std::vector<NvrtcFile>& files) {
  std::vector<std::string> result;
  for (const NvrtcFile& file : files) result.push_back(file.path);
  return result;
}

TEST(FindNvrtc, LooksIntoWheelsOfBothNames) {
  Folder site;
  const std::string twelve = site.write("nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  site.write("nvidia/cuda_nvrtc/lib/libnvrtc-builtins.so.12.9");
  site.write("nvidia/cuda_nvrtc/lib/libnvrtc.alt.so.12");
  const std::string thirteen = site.write("nvidia/cu13/lib/libnvrtc.so.13");
  site.write("nvidia/cu13/lib/libnvrtc-builtins.so.13.0");
  const std::string torch = site.write("torch/lib/libnvrtc-672ee683.so.11.2");
  site.write("torch/lib/libnvrtc-builtins.so.11.8");
  NvrtcSearch search = empty_search();
  search.sites = {site.path()};
  const auto files = find_nvrtc(search);
  ASSERT_THAT(paths(files), ElementsAre(twelve, thirteen, torch));
  EXPECT_EQ(std::pair(files[0].major, files[0].minor), std::pair(12, 9));
  EXPECT_EQ(std::pair(files[1].major, files[1].minor), std::pair(13, 0));
  EXPECT_EQ(std::pair(files[2].major, files[2].minor), std::pair(11, 8))
      << "the soname says 11.2, its builtins say 11.8";
  EXPECT_EQ(files[0].origin, "python wheel");
}

TEST(FindNvrtc, LooksIntoToolkitsAndReadsTheVersionFromTheRealFile) {
  Folder toolkit;
  const std::string real = toolkit.write("targets/x86_64-linux/lib/libnvrtc.so.12.4.127");
  toolkit.link("lib64/libnvrtc.so.12", real);
  toolkit.link("lib64/libnvrtc.so", real);
  toolkit.write("lib64/libnvrtc_static.a");
  toolkit.write("lib64/stubs/libnvrtc.so");
  NvrtcSearch search = empty_search();
  search.toolkits = {toolkit.path()};
  const auto files = find_nvrtc(search);
  ASSERT_THAT(paths(files), ElementsAre(real)) << "one entry per real file";
  EXPECT_EQ(std::pair(files[0].major, files[0].minor), std::pair(12, 4));
}

TEST(FindNvrtc, LooksBesideTheLibraryAndInTheSitePackagesAboveIt) {
  Folder prefix;
  const std::string beside = prefix.write("site-packages/trigen/lib/nvrtc/libnvrtc.so.12");
  const std::string unpacked =
      prefix.write("site-packages/trigen/nvrtc/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string sibling = prefix.write("site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  NvrtcSearch search = empty_search();
  search.beside = {prefix / "site-packages/trigen/lib"};
  EXPECT_THAT(paths(find_nvrtc(search)), ElementsAre(beside, unpacked, sibling));
}

TEST(FindNvrtc, LooksIntoEnvironments) {
  Folder home;
  const std::string in_venv =
      home.write("venv/lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string conda_wheel =
      home.write("conda/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13");
  const std::string conda = home.write("conda/lib/libnvrtc.so.12");
  const std::string user =
      home.write(".local/lib/python3.9/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  const std::string toolkit = home.write("cuda/lib64/libnvrtc.so.12");
  const std::string loader = home.write("loader/libnvrtc.so.12");
  const Variable named("TRIGEN_NVRTC", nullptr), venv("VIRTUAL_ENV", home / "venv"),
      prefix("CONDA_PREFIX", home / "conda"), base("PYTHONUSERBASE", nullptr), own("HOME", home.path()),
      cuda("CUDA_HOME", home / "cuda"), other("CUDA_PATH", nullptr), path("PATH", "/nowhere"),
      python("PYTHONPATH", nullptr), library("LD_LIBRARY_PATH", home / "loader");
  NvrtcSearch search = empty_search();
  search.use_environment = true;
  EXPECT_THAT(paths(find_nvrtc(search)), ElementsAre(in_venv, conda_wheel, conda, user, toolkit, loader));
}

TEST(FindNvrtc, RelativePlacesAreNotSearched) {
  Folder folder;
  folder.write("lib/python3.11/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.99");
  folder.write("lib64/libnvrtc.so.99");
  folder.write("python3");
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const Variable named("TRIGEN_NVRTC", nullptr), venv("VIRTUAL_ENV", "."), prefix("CONDA_PREFIX", "."),
      base("PYTHONUSERBASE", "."), cuda("CUDA_HOME", "."), other("CUDA_PATH", "./"), path("PATH", "."),
      python("PYTHONPATH", "lib/python3.11/site-packages"), library("LD_LIBRARY_PATH", "lib64");
  NvrtcSearch search = empty_search();
  search.use_environment = true;
  EXPECT_THAT(find_nvrtc(search), IsEmpty());
  std::filesystem::current_path(before);
}

TEST(FindNvrtc, PlacesOfOthersAreFoundAndNotTaken) {
  Folder toolkit;
  const std::string library = toolkit.write("lib64/libnvrtc.so.99");
  NvrtcSearch search = empty_search();
  search.toolkits = {toolkit.path()};
  const auto distrust = [&] {
    const auto files = find_nvrtc(search);
    return files.size() == 1 ? files[0].distrust : "not found";
  };
  EXPECT_EQ(distrust(), "");
  ASSERT_EQ(chmod((toolkit / "lib64").c_str(), 0777), 0);
  EXPECT_THAT(distrust(), HasSubstr("everybody may write to '" + (toolkit / "lib64") + "' (mode 0777)"));
  EXPECT_THAT(error_of(Nvrtc::load(find_nvrtc(search)[0])),
              AllOf(HasSubstr("not taken"), HasSubstr("name it in TRIGEN_NVRTC")));
  const Variable named("TRIGEN_NVRTC", library);
  search.use_environment = true;
  EXPECT_EQ(distrust(), "") << "a named one is the user's choice";
  search.use_environment = false;
  ASSERT_EQ(chmod((toolkit / "lib64").c_str(), 0755), 0);
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(library.c_str(), 4242, 4242), 0);
  EXPECT_THAT(distrust(), HasSubstr("libnvrtc.so.99' belongs to uid 4242"));
  ASSERT_EQ(chown(library.c_str(), 0, 0), 0);
  ASSERT_EQ(chown(toolkit.path().c_str(), 4242, 4242), 0);
  EXPECT_THAT(distrust(), HasSubstr("' belongs to uid 4242"));
}

TEST(FindNvrtc, TrigenNvrtcExcludesAllOthers) {
  Folder folder;
  const std::string named = folder.write("mine/libnvrtc.so.12");
  folder.write("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12");
  NvrtcSearch search = empty_search();
  search.use_environment = true;
  search.sites = {folder / "site"};
  const Variable variable("TRIGEN_NVRTC", folder / "mine");
  EXPECT_THAT(paths(find_nvrtc(search)), ElementsAre(named));
  const Variable file("TRIGEN_NVRTC", named);
  EXPECT_THAT(paths(find_nvrtc(search)), ElementsAre(named));
  const Variable wrong("TRIGEN_NVRTC", folder / "nothing");
  EXPECT_THAT(find_nvrtc(search), IsEmpty());
}

TEST(ChooseNvrtc, NoneAtAllSaysWhatToInstall) {
  Folder folder;
  const Variable variable("TRIGEN_NVRTC", folder / "nothing");
  const std::string text = error_of(Nvrtc::choose(**find_target("sm_70")));
  EXPECT_THAT(text,
              AllOf(HasSubstr("no compiler here makes sm_70"), HasSubstr("nothing holds no libnvrtc.so"),
                    HasSubstr("pip install 'nvidia-cuda-nvrtc-cu12==12.9.*'")));
}

TEST(ChooseNvrtc, ABrokenFileIsListedWithItsReason) {
  Folder folder;
  const std::string path = folder.write("libnvrtc.so.12", std::string(200, 'x'));
  const Variable variable("TRIGEN_NVRTC", folder.path());
  const std::string text = error_of(Nvrtc::choose(**find_target("sm_80")));
  EXPECT_THAT(text, AllOf(HasSubstr(path), HasSubstr("invalid ELF header"), HasSubstr("pip install")));
}

TEST(ChooseNvrtc, ALibraryThatIsNoNvrtcIsListedWithItsMissingEntries) {
  Folder folder;
  // Any real shared library of this program's machine will do.
#if defined(__aarch64__)
  const char* const multiarch = "/lib/aarch64-linux-gnu/libm.so.6";
#else
  const char* const multiarch = "/lib/x86_64-linux-gnu/libm.so.6";
#endif
  for (const char* libm : {multiarch, "/lib64/libm.so.6"})
    if (std::filesystem::exists(libm)) {
      std::filesystem::copy_file(libm, folder / "libnvrtc.so.12");
      break;
    }
  const Variable variable("TRIGEN_NVRTC", folder.path());
  EXPECT_THAT(error_of(Nvrtc::choose(**find_target("sm_80"))), HasSubstr("lacks nvrtcVersion"));
}

TEST(Nvrtc, LoadsAndKnowsItsVersionAndTargets) {
  TRIGEN_NEEDS_NVRTC();
  const Nvrtc* nvrtc = trigen::testing::real_nvrtc("sm_80");
  ASSERT_NE(nvrtc, nullptr);
  EXPECT_THAT(nvrtc->version(), MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
  EXPECT_EQ(nvrtc->name(), "nvrtc " + nvrtc->version());
  EXPECT_TRUE(nvrtc->makes(**find_target("sm_80")));
  EXPECT_TRUE(nvrtc->makes(**find_target("sm_90a")));
  EXPECT_TRUE(Nvrtc::any_loaded());
}

TEST(Nvrtc, OneObjectPerFileHoweverItIsNamed) {
  TRIGEN_NEEDS_NVRTC();
  const Nvrtc* nvrtc = trigen::testing::real_nvrtc();
  Folder folder;
  folder.link("site/nvidia/cuda_nvrtc/lib/libnvrtc.so.12", nvrtc->file().path);
  NvrtcSearch search = empty_search();
  search.sites = {folder / "site"};
  const auto files = find_nvrtc(search);
  ASSERT_THAT(files, SizeIs(1));
  auto again = Nvrtc::load(files[0]);
  ASSERT_TRUE(static_cast<bool>(again));
  EXPECT_EQ(*again, nvrtc);
}

// Volta's last compiler is 12.9: a 13 beside it must not be taken for sm_70, and must be for newer targets.
TEST(ChooseNvrtc, SeveralVersionsSideBySide) {
  const auto both = testing::with_second_compiler();
  const auto findings = list_nvrtc();
  const NvrtcFinding *with = nullptr, *newer = nullptr;
  for (const NvrtcFinding& finding : findings) {
    const bool volta = std::find(finding.archs.begin(), finding.archs.end(), 70) != finding.archs.end();
    if (volta && finding.file.major == 12) with = &finding;
    if (!volta && finding.file.major >= 13) newer = &finding;
  }
  if (with == nullptr || newer == nullptr)
    GTEST_SKIP() << "[SKIP] needs NVRTC 12 and 13 side by side (TRIGEN_TEST_NVRTC13 names a site-packages "
                    "folder with 13)";
  auto old_one = Nvrtc::choose(**find_target("sm_70")), new_one = Nvrtc::choose(**find_target("sm_90a"));
  ASSERT_TRUE(old_one && new_one);
  EXPECT_EQ((*old_one)->major(), 12);
  EXPECT_GE((*new_one)->major(), 13);
  auto for_old_driver = Nvrtc::choose(**find_target("sm_90a"), 12090);
  ASSERT_TRUE(static_cast<bool>(for_old_driver));
  EXPECT_EQ((*for_old_driver)->major(), 12) << "a driver of CUDA 12.9 gets no code of 13";
}

TEST(DescribeNvrtc, OneLinePerFile) {
  NvrtcFinding good, bad;
  good.file = {"/a/libnvrtc.so.12", "toolkit", 12, 9};
  good.version = "12.9.86";
  good.archs = {70, 75};
  bad.file = {"/b/libnvrtc.so.13", "loader path", 13, 0};
  bad.problem = "does not load";
  EXPECT_EQ(describe({good, bad}),
            "  /a/libnvrtc.so.12 (toolkit): nvrtc 12.9.86, makes sm_70 sm_75\n"
            "  /b/libnvrtc.so.13 (loader path): does not load\n");
}

}  // namespace
}  // namespace trigen
