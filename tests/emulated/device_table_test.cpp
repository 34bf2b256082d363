// The emulated devices beside the generator's targets: a kernel that is legal for a target must launch on the
// device of that name, and be refused where the target refuses it.
#include "emulator/device_table.h"

#include <gtest/gtest.h>

#include "generator/target.h"

namespace trigen::emulator {
namespace {

int attribute(const DeviceModel& model, cuda::CUdevice_attribute which) {
  int value = -1;
  EXPECT_TRUE(device_attribute(model, 0, which, &value));
  return value;
}

TEST(DeviceTable, HasEveryTargetWithItsLimits) {
  for (const Target& target : targets()) {
    const DeviceModel* model = find_device_model(target.name.str());
    ASSERT_NE(model, nullptr) << target.name.str();
    SCOPED_TRACE(target.name.str());
    const auto is = [&](cuda::CUdevice_attribute which) { return int64_t{attribute(*model, which)}; };
    EXPECT_EQ(is(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), target.max_shared_per_block);
    EXPECT_EQ(is(cuda::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR), target.shared_per_sm);
    EXPECT_EQ(is(cuda::CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK),
              target.reserved_shared_per_block);
    EXPECT_EQ(is(cuda::CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR), target.registers_per_sm);
    EXPECT_EQ(is(cuda::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR), target.max_threads_per_sm);
    EXPECT_EQ(is(cuda::CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR), target.max_blocks_per_sm);
    EXPECT_EQ(10 * is(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR) +
                  is(cuda::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
              target.compute_capability);
    // The chip that the cost model assumes, where both tables are of the same one.
    if (target.model_device == model->name) {
      EXPECT_EQ(is(cuda::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT), target.sms);
      EXPECT_EQ(is(cuda::CU_DEVICE_ATTRIBUTE_CLOCK_RATE), static_cast<int64_t>(target.clock_hz / 1000));
    }
    if (target.wgmma) EXPECT_GE(max_cluster_size(*model), 8) << "sizes up to 8 are portable";
  }
}

TEST(DeviceTable, KnowsWhatItDoesNotKnow) {
  EXPECT_EQ(find_device_model("sm_42"), nullptr);
  EXPECT_EQ(find_device_model(""), nullptr);
  EXPECT_NE(known_targets().find("sm_90a, "), std::string::npos);
  EXPECT_NE(known_targets().find("sm_120, sm_120a; with another target's kernels sm_87 (sm_86's), "),
            std::string::npos);
  int value = 7;
  EXPECT_FALSE(
      device_attribute(*find_device_model("sm_80"), 0, static_cast<cuda::CUdevice_attribute>(9999), &value));
  EXPECT_EQ(value, 7) << "not touched";
  EXPECT_EQ(attribute(*find_device_model("sm_80"), cuda::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), 0);
  EXPECT_EQ(attribute(*find_device_model("sm_90"), cuda::CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), 1);
}

}  // namespace
}  // namespace trigen::emulator
