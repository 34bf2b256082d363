#include "runtime/doctor.h"

#include <gmock/gmock.h>

#include "runtime_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;
using trigen::testing::Folder;
using trigen::testing::Variable;

std::unique_ptr<Store> open_store(std::vector<std::string> layers, bool read_only = false) {
  Store::Options options;
  options.layers = std::move(layers);
  options.read_only = read_only;
  options.log = [](const std::string&) {};
  return Store::open(options);
}

auto trouble(Severity severity, const char* about, const char* text, const char* next) {
  return Contains(AllOf(Field(&Trouble::severity, severity), Field(&Trouble::about, HasSubstr(about)),
                        Field(&Trouble::text, HasSubstr(text)), Field(&Trouble::next_step, HasSubstr(next))));
}

TEST(Doctor, NoCompilerAndAMissingDriver) {
  Folder folder;
  const Variable nvrtc("TRIGEN_NVRTC", folder / "nothing");
  auto store = open_store({folder / "cache.db"});
  const Findings findings = examine(*store, "/nowhere/libcuda.so.1");
  EXPECT_EQ(findings.driver.state, DriverState::kNoLibrary);
  EXPECT_THAT(findings.troubles, trouble(Severity::kWarning, "driver", "/nowhere/libcuda.so.1", "driver"));
  EXPECT_THAT(findings.troubles,
              trouble(Severity::kWarning, "nvrtc", "no compiler was found", "pip install"));
  ASSERT_EQ(findings.targets.size(), targets().size());
  EXPECT_TRUE(findings.targets[0].made_by.empty());
}

TEST(Doctor, ForbiddenCompilesAndAnEmptyCacheAreAnError) {
  Folder folder;
  const Variable no_jit("TRIGEN_NO_JIT", "1"), nvrtc("TRIGEN_NVRTC", folder / "nothing");
  auto store = open_store({folder / "cache.db"});
  const Findings findings = examine(*store, "/nowhere/libcuda.so.1");
  EXPECT_TRUE(findings.no_jit);
  ASSERT_FALSE(findings.troubles.empty());
  EXPECT_EQ(findings.troubles.front().severity, Severity::kError) << "worst first";
  EXPECT_THAT(findings.troubles,
              trouble(Severity::kError, "cache", "no cache holds a kernel", "TRIGEN_CACHE"));
}

TEST(Doctor, ADamagedCacheFile) {
  Folder folder;
  const Variable nvrtc("TRIGEN_NVRTC", folder / "nothing");
  const std::string path = folder.write("layer.db", std::string(4096, 'x'));
  auto store = open_store({folder / "user.db", path});
  const Findings findings = examine(*store, "/nowhere/libcuda.so.1");
  EXPECT_THAT(findings.troubles, trouble(Severity::kWarning, path.c_str(), "", ""));
}

TEST(Doctor, CompilersAndTheirTargets) {
  TRIGEN_NEEDS_NVRTC();
  Folder folder;
  auto store = open_store({folder / "cache.db"});
  const Findings findings = examine(*store);
  ASSERT_FALSE(findings.nvrtc.empty());
  for (const TargetFinding& target : findings.targets) {
    if (target.target != "sm_70") continue;
    EXPECT_THAT(target.chosen, HasSubstr("nvrtc 1"));
    EXPECT_THAT(target.made_by, Contains(target.chosen));
  }
}

}  // namespace
}  // namespace trigen
