// Counts of known access patterns, exact, and the same whatever the number of host threads.
#include "device.h"

namespace trigen::testing {
namespace {

// One warp loads `words` 4-byte words a lane from shared memory at lane * stride bytes.
nlohmann::json shared_load(int words, int stride) {
  Device device("sm_70", "checks=none");
  const char* loads[] = {"ld.shared.u32 %r4, [%r3];", "ld.shared.v2.u32 {%r4,%r5}, [%r3];", "",
                         "ld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r3];"};
  device.run(kernel_ptx("sm_70", {},
                        "mov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\nmad.lo.u32 %r3, %r1, " +
                            std::to_string(stride) + ", %r2;\n" + loads[words - 1],
                        ".shared .align 16 .b8 s[32768];"),
             1, 32, 0);
  return device.counters();
}

TEST(Counters, BankConflicts) {
  struct Case {
    int words, stride, wavefronts, conflicts;
  };
  const Case cases[] = {{1, 4, 1, 0}, {1, 8, 2, 1},  {1, 128, 32, 31}, {1, 132, 1, 0},
                        {1, 0, 1, 0}, {2, 8, 2, 0},  {2, 16, 4, 2},    {2, 0, 1, 0},
                        {4, 0, 2, 0}, {4, 16, 4, 0}, {4, 128, 32, 28}, {4, 144, 4, 0}};
  for (const Case& c : cases) {
    nlohmann::json counters = shared_load(c.words, c.stride);
    EXPECT_EQ(counters["shared_load_wavefronts"], c.wavefronts) << c.words << " words, stride " << c.stride;
    EXPECT_EQ(counters["shared_load_conflicts"], c.conflicts) << c.words << " words, stride " << c.stride;
    EXPECT_EQ(counters["shared_load_bytes"], 32 * 4 * c.words);
  }
}

// Vector loads of which pairs of lanes share addresses take half of the passes: lanes i and i ^ 1, or i and i
// ^ 2.
TEST(Counters, PairedLanesLoadTogether) {
  const auto wavefronts = [](const std::string& lane) {
    Device device("sm_70", "checks=none");
    device.run(kernel_ptx("sm_70", {},
                          "mov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\n" + lane +
                              "mad.lo.u32 %r3, %r1, 16, %r2;\nld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r3];",
                          ".shared .align 16 .b8 s[512];"),
               1, 32, 0);
    EXPECT_EQ(device.counters()["shared_load_conflicts"], 0);
    return device.counters()["shared_load_wavefronts"].get<int>();
  };
  EXPECT_EQ(wavefronts("shr.u32 %r1, %r1, 1;\n"), 2);  // 0 0 1 1 2 2 ...
  EXPECT_EQ(wavefronts("shr.u32 %r4, %r1, 2;\nand.b32 %r1, %r1, 1;\nmad.lo.u32 %r1, %r4, 2, %r1;\n"),
            2);                                        // 0 1 0 1 2 3 2 3 ...
  EXPECT_EQ(wavefronts("and.b32 %r1, %r1, 3;\n"), 4);  // 0 1 2 3 0 1 2 3 ...
}

TEST(Counters, GlobalSectors) {
  struct Case {
    int stride, offset, sectors;
  };
  for (const Case& c :
       {Case{4, 0, 4}, Case{4, 4, 5}, Case{8, 0, 8}, Case{32, 0, 32}, Case{128, 0, 32}, Case{0, 0, 1}}) {
    Device device("sm_70");
    CUdeviceptr in = device.put(std::vector<int>(2048, 1));
    device.run(kernel_ptx("sm_70", {"u64"},
                          "mov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, %r1, " + std::to_string(c.stride) +
                              ";\nld.param.u64 %d1, [p0];\nadd.u64 %d1, %d1, %d2;\nld.global.u32 %r2, [%d1+" +
                              std::to_string(c.offset) + "];"),
               1, 32, 0, in);
    EXPECT_EQ(device.counters()["global_load_sectors"], c.sectors) << "stride " << c.stride;
    EXPECT_EQ(device.counters()["global_load_requests"], 1);
    EXPECT_EQ(device.counters()["global_load_bytes"], 128);
  }
}

TEST(Counters, MatrixInstructionsAndClasses) {
  Device device("sm_80");
  device.run(kernel_ptx("sm_80", {},
                        "mov.b32 %r1, 0;\nmov.f32 %f1, 0f00000000;\n"
                        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, "
                        "{%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f1,%f1,%f1,%f1};\nbar.sync 0;"),
             3, 64, 0);
  nlohmann::json counters = device.counters();
  EXPECT_EQ(counters["matrix_operations"], 6);
  EXPECT_EQ(counters["matrix_flops"], 6 * 2 * 16 * 8 * 16);
  EXPECT_EQ(counters["barrier_waits"], 6);
  EXPECT_EQ(counters["instructions"]["matrix"], 6);
  EXPECT_EQ(counters["instructions"]["move"], 12);
  EXPECT_EQ(counters["launches"], 1);
}

TEST(Counters, SameOnEveryRun) {
  // Lanes loop different numbers of times, many blocks.
  std::string ptx = kernel_ptx(
      "sm_70", {"u64"},
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, %ctaid.x;\nadd.u32 %r3, %r1, %r2;\nand.b32 %r3, %r3, 15;\nmov.u32 "
      "%r4, 0;\n"
      "LOOP:\nadd.u32 %r4, %r4, %r3;\nsub.u32 %r3, %r3, 1;\nsetp.gt.s32 %p1, %r3, 0;\n@%p1 bra LOOP;\n"
      "mad.lo.u32 %r5, %r2, 64, %r1;\nmul.wide.u32 %d2, %r5, 4;\nld.param.u64 %d1, [p0];\nadd.u64 %d1, %d1, "
      "%d2;\nst.global.u32 [%d1], %r4;");
  std::string first;
  for (const char* threads : {"threads=1", "threads=2", "threads=4"}) {
    Device device("sm_70", threads);
    CUdeviceptr out = device.allocate(64 * 100 * 4);
    device.run(ptx, 100, 64, 0, out);
    if (first.empty()) first = device.counters().dump();
    EXPECT_EQ(device.counters().dump(), first) << threads;
    std::vector<int> values = device.get<int>(out, 6400);
    for (int i = 0; i < 6400; ++i) {
      int n = (i % 64 + i / 64) & 15;
      ASSERT_EQ(values[static_cast<size_t>(i)], n == 0 ? 0 : n * (n + 1) / 2) << i;
    }
  }
}

}  // namespace
}  // namespace trigen::testing
