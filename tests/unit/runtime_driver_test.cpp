#include <gmock/gmock.h>

#include "runtime/device.h"
#include "runtime_testing.h"

namespace trigen {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using trigen::testing::error_of;
using trigen::testing::Folder;
using trigen::testing::Variable;

TEST(Machine, ContainerWithoutGpus) {
  Folder root;
  root.write(".dockerenv");
  const Variable visible("NVIDIA_VISIBLE_DEVICES", nullptr);
  const MachineFacts facts = read_machine(root.path());
  EXPECT_TRUE(facts.container);
  EXPECT_FALSE(facts.device_nodes);
  EXPECT_THAT(driver_advice(DriverState::kContainerNoGpu, facts),
              AllOf(HasSubstr("--gpus all"), HasSubstr("--device nvidia.com/gpu=all")));
  const Variable all("NVIDIA_VISIBLE_DEVICES", "all");
  EXPECT_THAT(driver_advice(DriverState::kContainerNoGpu, read_machine(root.path())),
              HasSubstr("NVIDIA_VISIBLE_DEVICES=all is set, but no GPU was passed in"));
}

TEST(Machine, KernelModuleWithoutLibrary) {
  Folder root;
  root.write("dev/nvidia0");
  root.write("dev/nvidiactl");
  root.write(
      "proc/driver/nvidia/version",
      "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (root@host)\n"
      "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n");
  const MachineFacts facts = read_machine(root.path());
  EXPECT_TRUE(facts.device_nodes);
  EXPECT_TRUE(facts.control_node);
  EXPECT_TRUE(facts.kernel_module);
  EXPECT_EQ(facts.kernel_driver, "580.95.05");
  EXPECT_THAT(driver_advice(DriverState::kNoLibrary, facts),
              AllOf(HasSubstr("580.95.05"), HasSubstr("NVIDIA_DRIVER_CAPABILITIES=compute,utility")));
}

TEST(Machine, PlainMachineWithoutDriver) {
  Folder root;
  root.write("dev/null0");
  MachineFacts facts = read_machine(root.path());
  facts.container = false;  // the tests may run in one
  EXPECT_THAT(driver_advice(DriverState::kNoLibrary, facts),
              AllOf(HasSubstr("install NVIDIA's driver"), HasSubstr("TRIGEN_DRIVER=emulated:sm_70")));
}

TEST(Machine, HiddenDevices) {
  Folder root;
  root.write("dev/nvidia0");
  const Variable hidden("CUDA_VISIBLE_DEVICES", "");
  EXPECT_THAT(driver_advice(DriverState::kNoDevice, read_machine(root.path())),
              HasSubstr("CUDA_VISIBLE_DEVICES=\"\" hides devices"));
}

TEST(Driver, ANamedLibraryThatIsMissing) {
  const std::string text = error_of(Driver::load("/nowhere/libcuda.so.1"));
  EXPECT_THAT(text, AllOf(HasSubstr("does not load"), HasSubstr("/nowhere/libcuda.so.1"),
                          HasSubstr("TRIGEN_DRIVER")));
  EXPECT_EQ(probe_driver("/nowhere/libcuda.so.1").state, DriverState::kNoLibrary);
}

TEST(Driver, TheVariableNamesTheLibrary) {
  const Variable variable("TRIGEN_DRIVER", "/nowhere/from-environment.so");
  EXPECT_THAT(error_of(Driver::load()),
              HasSubstr("TRIGEN_DRIVER=/nowhere/from-environment.so does not load"));
}

TEST(Driver, ALibraryThatIsNoDriver) {
  const std::string text = error_of(Driver::load("libm.so.6"));
  EXPECT_THAT(text, AllOf(HasSubstr("lacks entries: cuInit, cuDriverGetVersion"),
                          HasSubstr("not a working libcuda.so.1")));
  EXPECT_EQ(probe_driver("libm.so.6").state, DriverState::kUnusable);
}

TEST(Driver, AFileThatIsNoLibrary) {
  Folder folder;
  const std::string path = folder.write("libcuda.so.1", std::string(200, 'x'));
  EXPECT_THAT(error_of(Driver::load(path)), HasSubstr("invalid ELF header"));
  EXPECT_EQ(probe_driver(path).state, DriverState::kUnusable);
}

TEST(Driver, TheSameErrorEveryTime) {
  const std::string first = error_of(Driver::load("libm.so.6"));
  EXPECT_EQ(error_of(Driver::load("libm.so.6")), first);
}

TEST(Device, TextsThatAreNoDevice) {
  for (const char* text : {"gpu", "cuda:", "cuda:x", "-1", "0x1", "1.5"})
    EXPECT_THAT(error_of(Device::open(text)),
                AllOf(HasSubstr("is not a device"), HasSubstr("emulated:sm_70")))
        << text;
  EXPECT_THAT(error_of(Device::open("emulated:")), HasSubstr("names no target"));
}

}  // namespace
}  // namespace trigen
