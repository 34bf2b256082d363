// One planted fault of each kind: the emulated device must find it and name kernel, line, block and thread.
#include "device.h"

namespace trigen::testing {
namespace {

using ::testing::HasSubstr;

// Line of the first line of `ptx` that holds `text`.
int line_of(const std::string& ptx, const std::string& text) {
  size_t at = ptx.find(text);
  EXPECT_NE(at, std::string::npos);
  return 1 + static_cast<int>(std::count(ptx.begin(), ptx.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

void expect_report(Device& device, const std::string& ptx, const std::string& fault,
                   const std::string& instruction, std::vector<int> block, int thread_x) {
  nlohmann::json reports = device.reports();
  ASSERT_EQ(reports.size(), 1u) << reports.dump(1);
  EXPECT_EQ(reports[0]["fault"], fault) << reports.dump(1);
  EXPECT_EQ(reports[0]["kernel"], "k");
  EXPECT_EQ(reports[0]["line"], line_of(ptx, instruction));
  EXPECT_THAT(reports[0]["instruction"].get<std::string>(), HasSubstr(instruction));
  EXPECT_EQ(reports[0]["block"], nlohmann::json(block));
  EXPECT_EQ(reports[0]["thread"][0], thread_x);
}

const std::string kThread =
    "mov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, %r1, 4;\nld.param.u64 %d1, [p0];\nadd.u64 %d3, %d1, %d2;\n";

TEST(Fault, OutOfBoundsStore) {
  Device device("sm_70");
  std::string ptx = kernel_ptx("sm_70", {"u64"}, kThread + "st.global.u32 [%d3], %r1;");
  device.load(ptx);
  CUdeviceptr out = device.allocate(40);  // ten threads' worth
  EXPECT_EQ(device.launch(1, 32, 0, out), CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_report(device, ptx, "out of bounds access", "st.global.u32", {0, 0, 0}, 10);
  EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(),
              HasSubstr("4 B past the end of an allocation of 40 B"));
  EXPECT_EQ(cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS) << "the error is sticky";
  EXPECT_THAT(Device::error(), HasSubstr("out of bounds access: kernel k, ptx line"));
}

TEST(Fault, AKernelWithoutAnEndIsGivenUp) {
  Device device("sm_80", "threads=1 steps=100000");
  const std::string ptx = kernel_ptx("sm_80", {}, "L:\nadd.u32 %r1, %r1, 1;\nbra L;");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 32, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_THAT(
      device.reports()[0]["detail"].get<std::string>(),
      HasSubstr("one cluster took more than 100000 steps, some seconds, and has not ended; a kernel that "
                "does end needs a higher TRIGEN_EMULATED_STEPS"));
  EXPECT_EQ(trigen_emulator_configure("steps=many"), -1);
}

// Steps follow the host's time: an access takes some 200 times as long as an addition.
TEST(Fault, TheLimitOfStepsCountsWhatTakesLong) {
  for (const auto& [body, enough] :
       {std::pair("add.u32 %r3, %r3, 1;", 430'000), std::pair("ld.global.u32 %r4, [%d3];", 26'000'000),
        std::pair("st.shared.u32 [%r5], %r1;", 26'000'000)}) {
    for (const int steps : {enough, enough / 2}) {
      Device device("sm_80", "threads=1 reports=quiet steps=" + std::to_string(steps));
      device.load(kernel_ptx("sm_80", {"u64"},
                             kThread + "mov.u32 %r5, s;\nmov.u32 %r2, 0;\nL:\n" + body +
                                 "\nadd.u32 %r2, %r2, 1;\nsetp.lt.u32 %p1, %r2, 100000;\n@%p1 bra L;",
                             ".shared .align 4 .b8 s[4];"));
      const CUdeviceptr at = device.put(std::vector<uint32_t>(32, 7));
      EXPECT_EQ(device.launch(1, 1, 0, at), steps == enough ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_TIMEOUT)
          << body << Device::error();
      if (steps == enough) {
        EXPECT_GT(device.counters()["steps"], 0.9 * enough) << body;
      }
    }
  }
}

// Each block counts its rounds of 1000 instructions. Of many that never end the first does not wait for the others to
// come as far.
TEST(Fault, ManyBlocksWithoutAnEndAreGivenUpAsSoonAsOne) {
  constexpr unsigned kBlocks = 100;
  constexpr uint64_t kSteps = 40'000'000, kRound = 1000;
  Device device("sm_80", "threads=1 reports=quiet checks=none steps=" + std::to_string(kSteps));
  std::string rounds =
      "ld.param.u64 %d1, [p0];\nmov.u32 %r1, %ctaid.x;\nmul.wide.u32 %d2, %r1, 4;\nadd.u64 %d3, %d1, "
      "%d2;\nL:\n"
      "add.u32 %r2, %r2, 1;\nst.global.u32 [%d3], %r2;\n";
  for (uint64_t i = 0; i < kRound; ++i) rounds += "add.u32 %r3, %r3, 1;\n";
  device.load(kernel_ptx("sm_80", {"u64"}, rounds + "bra L;"));
  const CUdeviceptr at = device.put(std::vector<uint32_t>(kBlocks, 0));
  EXPECT_EQ(device.launch(kBlocks, 1, 0, at), CUDA_ERROR_LAUNCH_TIMEOUT);
  trigen_emulator_clear_reports(0);
  uint64_t steps = 0;
  for (const uint32_t count : device.get<uint32_t>(at, kBlocks)) steps += count * kRound;
  EXPECT_GT(steps, kSteps / 2);
  EXPECT_LT(steps, 2 * kSteps);
}

// Lane 0 writes for all. In order it always goes first; nothing but a bar.warp.sync promises that.
TEST(Fault, LanesOfAWarpRunInAnyOrder) {
  for (const bool synchronises : {true, false}) {
    int early = 0;  // seeds for which a lane read before lane 0 had written
    for (int seed = 0; seed <= 8; ++seed) {
      Device device("sm_70", std::string("threads=1 checks=-races") +
                                 (seed == 0 ? "" : " lanes=random:" + std::to_string(seed)));
      device.load(kernel_ptx("sm_70", {"u64"},
                             kThread +
                                 "mov.u32 %r2, s;\nst.shared.u32 [%r2], 1;\nbar.sync 0;\n"
                                 "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra READ;\nst.shared.u32 [%r2], 7;\n"
                                 "READ:\n" +
                                 (synchronises ? "bar.warp.sync 0xffffffff;\n" : "") +
                                 "ld.shared.u32 %r3, [%r2];\nst.global.u32 [%d3], %r3;",
                             ".shared .align 4 .b8 s[4];"));
      const CUdeviceptr out = device.allocate(128);
      ASSERT_EQ(device.launch(1, 32, 0, out), CUDA_SUCCESS) << Device::error();
      const std::vector<uint32_t> read = device.get<uint32_t>(out, 32);
      const bool all = std::all_of(read.begin(), read.end(), [](uint32_t v) { return v == 7; });
      EXPECT_TRUE(all || (seed > 0 && !synchronises)) << seed;
      early += all ? 0 : 1;
    }
    EXPECT_EQ(early > 0, !synchronises);
  }
  EXPECT_EQ(trigen_emulator_configure("lanes=order:3"), -1);
  EXPECT_EQ(trigen_emulator_configure("lanes=random:x"), -1);
}

// `.aligned`: a warp arrives as one, however its lanes came there.
TEST(Fault, LanesMeetAtAnAlignedClusterBarrier) {
  for (int seed = 1; seed <= 8; ++seed) {
    Device device("sm_90", "threads=1 lanes=random:" + std::to_string(seed));
    std::string body = "mov.u32 %r1, %tid.x;\n";
    for (int turn = 0; turn < 3; ++turn)
      body += "setp.ne.u32 %p1, %r1, 0;\n@%p1 bra L" + std::to_string(turn) + ";\nadd.u32 %r2, %r2, 1;\nL" +
              std::to_string(turn) + ":\nbarrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;\n";
    device.load(kernel_ptx("sm_90", {}, body));
    EXPECT_EQ(device.launch(2, 64, 0), CUDA_SUCCESS) << seed << ": " << Device::error();
  }
}

TEST(Fault, OutOfBoundsSharedLoadNamesBlock) {
  Device device("sm_80", "threads=1");
  std::string ptx = kernel_ptx("sm_80", {},
                               "mov.u32 %r1, %ctaid.x;\nsetp.ne.u32 %p1, %r1, 1;\n@%p1 ret;\nmov.u32 %r2, "
                               "s;\nld.shared.u32 %r3, [%r2+64];",
                               ".shared .align 4 .b8 s[64];");
  device.load(ptx);
  EXPECT_EQ(device.launch(2, 32, 0), CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_report(device, ptx, "out of bounds access", "ld.shared.u32", {1, 0, 0}, 0);
}

TEST(Fault, MisalignedVectorLoad) {
  Device device("sm_70");
  std::string ptx =
      kernel_ptx("sm_70", {"u64"}, "ld.param.u64 %d1, [p0];\nld.global.v2.f32 {%f1, %f2}, [%d1+4];");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 1, 0, device.put(std::vector<float>(8, 1.0f))), CUDA_ERROR_MISALIGNED_ADDRESS);
  expect_report(device, ptx, "misaligned access", "ld.global.v2.f32", {0, 0, 0}, 0);
}

TEST(Fault, UseAfterFree) {
  Device device("sm_70");
  std::string ptx = kernel_ptx("sm_70", {"u64"}, kThread + "ld.global.u32 %r2, [%d3];");
  device.load(ptx);
  CUdeviceptr in = device.put(std::vector<int>(32, 1));
  device.release(in);
  EXPECT_EQ(device.launch(1, 32, 0, in), CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_report(device, ptx, "use after free", "ld.global.u32", {0, 0, 0}, 0);
}

TEST(Fault, WriteToInput) {
  Device device("sm_70");
  std::string ptx = kernel_ptx("sm_70", {"u64"}, kThread + "st.global.u32 [%d3], %r1;");
  device.load(ptx);
  CUdeviceptr in = device.put(std::vector<int>(32, 1));
  ASSERT_EQ(trigen_emulator_set_read_only(in, 1), 0);
  EXPECT_EQ(device.launch(1, 32, 0, in), CUDA_ERROR_ILLEGAL_ADDRESS);
  expect_report(device, ptx, "write to a read-only allocation", "st.global.u32", {0, 0, 0}, 0);
}

TEST(Fault, UninitialisedGlobalRead) {
  Device device("sm_70");
  std::string ptx = kernel_ptx("sm_70", {"u64"}, kThread + "ld.global.u32 %r2, [%d3];");
  device.load(ptx);
  CUdeviceptr in = device.allocate(128);
  ASSERT_EQ(cuMemsetD32_v2(in, 0, 5), CUDA_SUCCESS);
  EXPECT_EQ(device.launch(1, 32, 0, in), CUDA_ERROR_LAUNCH_FAILED);
  expect_report(device, ptx, "read of uninitialised memory", "ld.global.u32", {0, 0, 0}, 5);
  EXPECT_EQ(device.reports()[0]["count"], 27);
}

TEST(Fault, UninitialisedSharedRead) {
  Device device("sm_70");
  std::string ptx =
      kernel_ptx("sm_70", {}, "mov.u32 %r1, s;\nst.shared.u32 [%r1], 1;\nld.shared.u32 %r2, [%r1+4];",
                 ".shared .align 4 .b8 s[64];");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 1, 0), CUDA_ERROR_LAUNCH_FAILED);
  expect_report(device, ptx, "read of uninitialised memory", "ld.shared.u32", {0, 0, 0}, 0);
}

// Every thread writes its word and reads its neighbour's in the next warp.
std::string exchange(const std::string& barrier) {
  return kernel_ptx("sm_70", {},
                    "mov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.u32 %r4, %r2, "
                    "%r3;\nst.shared.u32 [%r4], %r1;\n" +
                        barrier +
                        "\nadd.u32 %r5, %r1, 32;\nand.b32 %r5, %r5, 63;\nshl.b32 %r5, %r5, 2;\nadd.u32 %r5, "
                        "%r5, %r2;\nld.shared.u32 %r6, [%r5];",
                    ".shared .align 4 .b8 s[256];");
}

TEST(Fault, SharedRaceWithoutBarrier) {
  Device device("sm_70", "checks=-uninitialised");
  std::string ptx = exchange("");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 64, 0), CUDA_ERROR_LAUNCH_FAILED);
  nlohmann::json reports = device.reports();
  ASSERT_GE(reports.size(), 1u);
  EXPECT_EQ(reports[0]["fault"], "shared memory race");
  EXPECT_THAT(reports[0]["detail"].get<std::string>(), HasSubstr("no barrier in between"));
  EXPECT_THAT((std::vector<int>{line_of(ptx, "st.shared"), line_of(ptx, "ld.shared")}),
              ::testing::Contains(reports[0]["line"].get<int>()));
}

TEST(Fault, NoRaceWithBarrier) {
  Device device("sm_70");
  device.run(exchange("bar.sync 0;"), 1, 64, 0);
  EXPECT_EQ(device.reports().size(), 0u);
}

TEST(Fault, SharedRaceWithinWarpNeedsSyncwarp) {
  auto ptx = [](const std::string& sync) {
    return kernel_ptx("sm_70", {},
                      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\nshl.b32 %r3, %r1, 2;\nadd.u32 %r4, %r2, "
                      "%r3;\nst.shared.u32 [%r4], %r1;\n" +
                          sync + "\nxor.b32 %r5, %r3, 4;\nadd.u32 %r5, %r5, %r2;\nld.shared.u32 %r6, [%r5];",
                      ".shared .align 4 .b8 s[128];");
  };
  Device device("sm_70");
  device.load(ptx(""));
  EXPECT_EQ(device.launch(1, 32, 0), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(device.reports()[0]["fault"], "shared memory race");
  trigen_emulator_clear_reports(0);
  device.run(ptx("bar.warp.sync -1;"), 1, 32, 0);
}

// `body` for blocks of one thread: %r1 is the block, %r2 is 7, %d1 is p0, %d3 the block's own word there, %p1
// holds in block 3.
std::string blocks_ptx(const std::string& body) {
  return kernel_ptx(
      "sm_70", {"u64"},
      "mov.u32 %r1, %ctaid.x;\nmov.u32 %r2, 7;\nld.param.u64 %d1, [p0];\nmul.wide.u32 %d2, %r1, "
      "4;\nadd.u64 %d3, %d1, %d2;\nsetp.eq.u32 %p1, %r1, 3;\n" +
          body);
}

TEST(Fault, GlobalRaceBetweenBlocks) {
  struct Case {
    const char *body, *instruction;  // nullptr: no race
  };
  const Case cases[] = {
      {"st.global.u32 [%d1], %r1;", "st.global.u32"},  // other values at one address
      {"st.global.u32 [%d3], %r1;\n@%p1 ld.global.u32 %r3, [%d1];", "ld.global.u32"},  // another block's word
      {"ld.global.u32 %r3, [%d1];\n@%p1 st.global.u32 [%d1], %r1;", "st.global.u32"},  // others have read it
      {"st.global.u8 [%d1], %r1;", "st.global.u8"},                                    // one byte
      {"st.global.u32 [%d3], %r1;\nld.global.u32 %r3, [%d3];", nullptr},               // its own word
      {"cvt.u64.u32 %d4, %r1;\nadd.u64 %d4, %d1, %d4;\nst.global.u8 [%d4], %r1;",
       nullptr},  // bytes side by side
      // A part of a word and all of it, either first.
      {"@!%p1 st.global.u8 [%d3], %r1;\n@%p1 st.global.u32 [%d1], %r2;", "st.global.u32"},
      {"@!%p1 st.global.u32 [%d3], %r1;\n@%p1 st.global.u8 [%d1+1], %r2;", "st.global.u8"},
      {"@!%p1 st.global.u8 [%d3+3], %r1;\n@%p1 ld.global.u32 %r3, [%d1];", "ld.global.u32"},
      {"@!%p1 st.global.u32 [%d3], %r1;\n@%p1 ld.global.u8 %r3, [%d1+2];", "ld.global.u8"},
      {"@!%p1 ld.global.u8 %r3, [%d1+2];\n@%p1 st.global.u32 [%d1], %r1;", "st.global.u32"},
      {"@!%p1 ld.global.u32 %r3, [%d1];\n@%p1 st.global.u8 [%d1+2], %r1;", "st.global.u8"},
      {"@!%p1 st.global.u32 [%d1], %r2;\n@%p1 st.global.u8 [%d1], %r2;", nullptr},   // the same value
      {"@!%p1 ld.global.u8 %r3, [%d1];\n@%p1 st.global.u8 [%d1+1], %r1;", nullptr},  // another byte
      {"st.global.u32 [%d1], %r2;", nullptr},       // the same value from all
      {"red.global.add.u32 [%d1], %r1;", nullptr},  // atomics
  };
  for (const Case& c : cases) {
    // One host thread runs the blocks in order, so the later access, which reports, is known.
    Device device("sm_70", "threads=1");
    std::string ptx = blocks_ptx(c.body);
    device.load(ptx);
    CUresult result = device.launch(4, 1, 0, device.put(std::vector<uint32_t>(4, 100)));
    nlohmann::json reports = device.reports();
    if (c.instruction == nullptr) {
      EXPECT_EQ(result, CUDA_SUCCESS) << c.body << reports.dump(1);
      continue;
    }
    EXPECT_EQ(result, CUDA_ERROR_LAUNCH_FAILED) << c.body;
    ASSERT_EQ(reports.size(), 1u) << c.body << reports.dump(1);
    EXPECT_EQ(reports[0]["fault"], "global memory race");
    EXPECT_EQ(reports[0]["line"], line_of(ptx, c.instruction)) << c.body;
    EXPECT_THAT(reports[0]["detail"].get<std::string>(), HasSubstr("nothing orders the two"));
  }
}

TEST(Fault, GlobalRaceIsFoundByAnyNumberOfHostThreads) {
  for (const char* options : {"threads=1", "threads=2", "threads=7"}) {
    Device device("sm_70", options);
    device.load(blocks_ptx("st.global.u32 [%d3], %r1;\n@%p1 ld.global.u32 %r3, [%d1];"));
    EXPECT_EQ(device.launch(4, 1, 0, device.put(std::vector<uint32_t>(4, 100))), CUDA_ERROR_LAUNCH_FAILED);
    ASSERT_GE(device.reports().size(), 1u);  // both accesses report where they meet
    EXPECT_EQ(device.reports()[0]["fault"], "global memory race");
  }
  Device device("sm_70", "checks=-races");
  device.run(blocks_ptx("st.global.u32 [%d1], %r1;"), 4, 1, 0, device.put(std::vector<uint32_t>(4, 100)));
}

TEST(Fault, CollectiveWithMissingLanes) {
  Device device("sm_70");
  std::string ptx = kernel_ptx("sm_70", {},
                               "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 16;\n@%p1 bra "
                               "SKIP;\nshfl.sync.bfly.b32 %r2, %r1, 1, 31, -1;\nSKIP:\nbar.sync 0;");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 32, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
  expect_report(device, ptx, "collective with missing lanes", "shfl.sync.bfly.b32", {0, 0, 0}, 16);
}

TEST(Fault, MatrixProductInPartialWarp) {
  Device device("sm_80");
  std::string ptx = kernel_ptx("sm_80", {},
                               "mov.b32 %r1, 0;\nmov.f32 %f1, 0f00000000;\n"
                               "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1,%f2,%f3,%f4}, "
                               "{%r1,%r1,%r1,%r1}, {%r1,%r1}, {%f1,%f1,%f1,%f1};");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 24, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
  expect_report(device, ptx, "collective with missing lanes", "mma.sync", {0, 0, 0}, 0);
}

TEST(Fault, BarrierDeadlock) {
  Device device("sm_70");
  std::string ptx = kernel_ptx("sm_70", {},
                               "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bra OTHER;\nbar.sync "
                               "1, 64;\nret;\nOTHER:\nbar.sync 2, 64;");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 64, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
  expect_report(device, ptx, "barrier deadlock", "bar.sync 2", {0, 0, 0}, 0);
  EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(), HasSubstr("bar.sync 1, 64"));
}

// Two groups of two warps wait for each other's halves at a barrier of 64 threads.
std::string two_groups(const std::string& number, const std::string& between) {
  return kernel_ptx(
      "sm_70", {},
      "mov.u32 %r1, %tid.x;\nshr.u32 %r2, %r1, 6;\nsetp.eq.u32 %p1, %r2, 0;\n@!%p1 bra SECOND;\n"
      "bar.sync 1, 64;\nSECOND:\n" +
          between + "\n@%p1 bra END;\nmov.u32 %r3, " + number + ";\nbar.sync %r3, 64;\nEND:\n");
}

TEST(Fault, GroupsOfWarpsShareABarrier) {
  Device device("sm_70");
  const std::string ptx = two_groups("1", "");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 128, 0), CUDA_ERROR_LAUNCH_FAILED);
  expect_report(device, ptx, "barrier race", "bar.sync %r3, 64", {0, 0, 0}, 64);
}

TEST(Fault, GroupsOfWarpsMayUseABarrierInTurn) {
  Device device("sm_70");
  device.run(two_groups("2", ""), 1, 128, 0);
  device.run(two_groups("1", "bar.sync 0;"), 1, 128, 0);
  EXPECT_EQ(device.reports().size(), 0u) << device.reports().dump(1);
}

// Warps that meet all others from different places: a barrier with a count may, __syncthreads not.
TEST(Fault, BarrierOfAllThreadsAtTwoPlaces) {
  const auto ptx = [](const std::string& count) {
    return kernel_ptx("sm_70", {},
                      "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bra OTHER;\nbar.sync 0" + count +
                          ";\nbra END;\nOTHER:\nbar.sync 0" + count + ";\nEND:\n");
  };
  Device device("sm_70");
  device.run(ptx(", 64"), 1, 64, 0);
  EXPECT_EQ(device.reports().size(), 0u) << device.reports().dump(1);
  device.load(ptx(""));
  EXPECT_NE(device.launch(1, 64, 0), CUDA_SUCCESS);
  EXPECT_EQ(device.reports()[0]["fault"], "barrier race");
  EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(), HasSubstr("at which others wait in line"));
}

// An arrival that does not wait may come a second time while the first one's phase is still open.
TEST(Fault, AnArrivalAheadOfItsBarrier) {
  const auto ptx = [](const std::string& back) {
    return kernel_ptx("sm_70", {},
                      "mov.u32 %r1, %tid.x;\nsetp.lt.u32 %p1, %r1, 32;\n@%p1 bra ARRIVE;\nbar.sync 1, 64;\n" +
                          back + "\nbar.sync 1, 64;\nbra END;\nARRIVE:\nbar.arrive 1, 64;\n" + back +
                          "\nbar.arrive 1, 64;\nEND:\n");
  };
  Device device("sm_70");
  device.run(ptx("bar.sync 2, 64;"), 1, 64, 0);
  EXPECT_EQ(device.reports().size(), 0u) << device.reports().dump(1);
  device.load(ptx(""));
  EXPECT_NE(device.launch(1, 64, 0), CUDA_SUCCESS);
  EXPECT_EQ(device.reports()[0]["fault"], "barrier race");
}

TEST(Fault, MbarrierNeverCompletes) {
  Device device("sm_90");
  std::string ptx = kernel_ptx(
      "sm_90", {},
      "mov.u32 %r1, m;\nmbarrier.init.shared.b64 [%r1], 2;\nmbarrier.arrive.shared.b64 %d1, [%r1];\n"
      "L:\nmbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;\n@!%p1 bra L;",
      ".shared .align 8 .b8 m[8];");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 1, 0), CUDA_ERROR_LAUNCH_TIMEOUT);
  EXPECT_EQ(device.reports()[0]["fault"], "barrier deadlock");
}

TEST(Fault, Trap) {
  Device device("sm_70");
  std::string ptx = kernel_ptx("sm_70", {}, "trap;");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 1, 0), CUDA_ERROR_LAUNCH_FAILED);
  expect_report(device, ptx, "trap", "trap", {0, 0, 0}, 0);
}

TEST(Fault, ReportsCanBeTurnedOff) {
  Device device("sm_70", "checks=none");
  device.run(exchange(""), 1, 64, 0);
  EXPECT_EQ(device.reports().size(), 0u);
}

// cp.async lands late: a kernel without the wait reads bytes that nobody wrote yet. With the wait, or with
// early copies, it is well.
std::string copy_kernel(const std::string& wait) {
  return kernel_ptx(
      "sm_80", {"u64", "u64"},
      "mov.u32 %r1, %tid.x;\nshl.b32 %r2, %r1, 4;\nmov.u32 %r3, s;\nadd.u32 %r3, %r3, %r2;\nld.param.u64 "
      "%d1, [p0];\n"
      "ld.param.u64 %d2, [p1];\ncvt.u64.u32 %d3, %r2;\nadd.u64 %d1, %d1, %d3;\nadd.u64 %d2, %d2, "
      "%d3;\ncp.async.cg.shared.global [%r3], [%d1], 16;\n"
      "cp.async.commit_group;\n" +
          wait + "\nld.shared.v4.u32 {%r4,%r5,%r6,%r7}, [%r3];\nst.global.v4.u32 [%d2], {%r4,%r5,%r6,%r7};",
      ".shared .align 16 .b8 s[512];");
}

TEST(Fault, MissingCopyWait) {
  std::vector<int> values(128);
  for (int i = 0; i < 128; ++i) values[static_cast<size_t>(i)] = i * 7;
  {
    Device device("sm_80");
    std::string ptx = copy_kernel("");
    device.load(ptx);
    EXPECT_EQ(device.launch(1, 32, 0, device.put(values), device.allocate(512)), CUDA_ERROR_LAUNCH_FAILED);
    expect_report(device, ptx, "read of uninitialised memory", "ld.shared.v4.u32", {0, 0, 0}, 0);
  }
  for (const char* options : {"async=late", "async=early", "async=random:7"}) {
    Device device("sm_80", options);
    CUdeviceptr out = device.allocate(512);
    device.run(copy_kernel("cp.async.wait_group 0;"), 1, 32, 0, device.put(values), out);
    EXPECT_EQ(device.get<int>(out, 128), values) << options;
  }
}

}  // namespace
}  // namespace trigen::testing
