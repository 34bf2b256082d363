// Orders between the lanes of a warp: planted faults, and the same kernels without them.
#include "device.h"

namespace trigen::testing {
namespace {

using ::testing::HasSubstr;

const std::string kWarpSync = "bar.warp.sync -1;\n";
// They wait for the warp's other lanes. Nothing says that what those have stored or read is done.
const std::vector<std::string> kExchanges = {
    "shfl.sync.bfly.b32 %r20, %r1, 1, 31, -1;\n", "vote.sync.any.pred %p20, %p1, -1;\n",
    "match.any.sync.b32 %r20, %r1, -1;\n", "redux.sync.add.s32 %r20, %r1, -1;\n",
    "elect.sync %r20|%p20, -1;\n"};

// Threads of warps 0 and 1. %r1 thread, %r2 lane, %r3 the lane's word of 32, %r4 its neighbour's, %r5 and %r6 mbarriers
// of one arrival; %p1 warp 1, %p2 lane 0 of a warp. `arrivals` of the first mbarrier.
std::string two_warps(const std::string& body, const std::string& arrivals = "1") {
  return kernel_ptx(
      "sm_90a", {"u64"},
      "mov.u32 %r1, %tid.x;\nand.b32 %r2, %r1, 31;\nmov.u32 %r3, s;\nmad.lo.u32 %r3, %r2, 4, %r3;\n"
      "xor.b32 %r4, %r3, 4;\nmov.u32 %r5, m;\nadd.u32 %r6, %r5, 8;\nsetp.ge.u32 %p1, %r1, 32;\n"
      "setp.eq.u32 %p2, %r2, 0;\nsetp.ne.u32 %p3, %r1, 0;\nld.param.u64 %d1, [p0];\n@%p3 bra READY;\n"
      "mbarrier.init.shared::cta.b64 [%r5], " +
          arrivals +
          ";\nmbarrier.init.shared::cta.b64 [%r6], 1;\nfence.mbarrier_init.release.cluster;\nREADY:\n"
          "@!%p1 st.shared.u32 [%r3], 0;\nbar.sync 0;\n" +
          body,
      ".shared .align 128 .b8 s[128];\n.shared .align 8 .b8 m[16];");
}

std::string wait_for(const std::string& barrier, int parity) {
  static int count = 0;
  const std::string label = "W" + std::to_string(count++);
  return label + ":\nmbarrier.try_wait.parity.shared::cta.b64 %p10, [" + barrier + "], " +
         std::to_string(parity) + ";\n@!%p10 bra " + label + ";\n";
}

// The fault that the threads run into, in whatever order lanes and copies come; "" for none, and in another order
// another fault is an error.
std::string fault_of(const std::string& ptx, unsigned threads = 64) {
  std::string found;
  for (const char* options : {"", "async=early", "lanes=random:3", "lanes=random:4 async=shuffled:1"}) {
    Device device("sm_90a", std::string("threads=1 checks=-uninitialised ") + options);
    device.load(ptx);
    const CUresult result = device.launch(1, threads, 0, device.put(std::vector<uint32_t>(64, 0)));
    const nlohmann::json reports = device.reports();
    EXPECT_EQ(result == CUDA_SUCCESS, reports.empty()) << options << reports.dump(1);
    const std::string fault = reports.empty() ? "" : reports[0]["fault"].get<std::string>();
    EXPECT_TRUE(*options == 0 || fault == found) << options << ": " << fault << ", in order: " << found;
    found = fault;
  }
  return found;
}

const char* const kRace = "shared memory race";

// Warp 0 stores, one lane arrives for all, warp 1 waits and reads.
std::string one_arrives_for_all(const std::string& between) {
  return two_warps("@%p1 bra READ;\nst.shared.u32 [%r3], %r1;\n" + between +
                   "@%p2 mbarrier.arrive.shared::cta.b64 %d2, [%r5];\nbra END;\nREAD:\n" +
                   wait_for("%r5", 0) + "ld.shared.u32 %r7, [%r3];\nEND:\n");
}

TEST(Lanes, OneArrivesForAll) {
  EXPECT_EQ(fault_of(one_arrives_for_all("")), kRace);
  EXPECT_EQ(fault_of(one_arrives_for_all(kWarpSync)), "");
  EXPECT_EQ(fault_of(one_arrives_for_all("bar.sync 1, 32;\n")), "");
  for (const std::string& exchange : kExchanges)
    EXPECT_EQ(fault_of(one_arrives_for_all(exchange)), kRace) << exchange;
}

TEST(Lanes, TheReportNamesALaneThatNobodySpokeFor) {
  Device device("sm_90a", "threads=1");
  device.load(one_arrives_for_all("setp.ge.u32 %p4, %r2, 16;\n@%p4 bra ON;\nbar.warp.sync 0xffff;\nON:\n"));
  EXPECT_EQ(device.launch(1, 64, 0, device.allocate(4)), CUDA_ERROR_LAUNCH_FAILED);
  const nlohmann::json reports = device.reports();
  ASSERT_EQ(reports.size(), 1u) << reports.dump(1);
  EXPECT_EQ(reports[0]["count"], 16);
  EXPECT_THAT(reports[0]["detail"].get<std::string>(), HasSubstr("is read after a write by warp 0 lane 16"));
  EXPECT_EQ(reports[0]["thread"][0], 48);
}

TEST(Lanes, EachMayArriveForItself) {
  EXPECT_EQ(fault_of(two_warps(
                "@%p1 bra READ;\nst.shared.u32 [%r3], %r1;\nmbarrier.arrive.shared::cta.b64 %d2, [%r5];\n"
                "bra END;\nREAD:\n" +
                    wait_for("%r5", 0) + "ld.shared.u32 %r7, [%r4];\nEND:\n",
                "32")),
            "");
}

// The place of what the lanes have read is written again.
TEST(Lanes, OneLetsGoForAll) {
  const auto ptx = [](const std::string& between) {
    return two_warps("@%p1 bra WRITE;\nld.shared.u32 %r7, [%r3];\n" + between +
                     "@%p2 mbarrier.arrive.shared::cta.b64 %d2, [%r5];\nbra END;\nWRITE:\n" +
                     wait_for("%r5", 0) + "st.shared.u32 [%r3], %r1;\nEND:\n");
  };
  EXPECT_EQ(fault_of(ptx("")), kRace);
  EXPECT_EQ(fault_of(ptx(kWarpSync)), "");
}

// One lane waits, all read.
TEST(Lanes, OneWaitsForAll) {
  const auto ptx = [](const std::string& behind) {
    return two_warps(
        "@%p1 bra READ;\nst.shared.u32 [%r3], %r1;\nbar.warp.sync -1;\n"
        "@%p2 mbarrier.arrive.shared::cta.b64 %d2, [%r5];\nbra END;\nREAD:\n@!%p2 bra WAITED;\n" +
        wait_for("%r5", 0) + "WAITED:\n" + behind + "ld.shared.u32 %r7, [%r3];\nEND:\n");
  };
  EXPECT_EQ(fault_of(ptx(kWarpSync)), "");
  EXPECT_EQ(fault_of(ptx("")), kRace);
  EXPECT_EQ(fault_of(ptx(kExchanges[0])), kRace);
}

TEST(Lanes, NeighboursInAWarp) {
  const auto ptx = [](const std::string& between) {
    return two_warps("@%p1 bra END;\nst.shared.u32 [%r3], %r1;\n" + between +
                     "ld.shared.u32 %r7, [%r4];\nEND:\n");
  };
  EXPECT_EQ(fault_of(ptx("")), kRace);
  EXPECT_EQ(fault_of(ptx(kWarpSync)), "");
  EXPECT_EQ(fault_of(ptx("bar.sync 1, 32;\n")), "");
  // Ordered when the barrier completes, for who waits for that.
  EXPECT_EQ(fault_of(ptx("bar.arrive 1, 64;\n")), kRace);
  // Of other barriers, fences and hand-overs none tells one lane of another.
  EXPECT_EQ(fault_of(ptx("@%p2 mbarrier.arrive.shared::cta.b64 %d2, [%r5];\n")), kRace);
  EXPECT_EQ(fault_of(ptx("fence.proxy.async.shared::cta;\n")), kRace);
  EXPECT_EQ(fault_of(ptx("griddepcontrol.wait;\n")), kRace);
  for (const std::string& exchange : kExchanges) EXPECT_EQ(fault_of(ptx(exchange)), kRace) << exchange;
}

// Warp 1 waits for the first mbarrier and lets go by the second, warp 0 waits for that and ends the first one's next
// phase. A lane that has not seen the end of the one before would wait for the one after.
TEST(Lanes, APhaseEndsWhileALaneStillWaits) {
  const auto ptx = [](const std::string& between) {
    return two_warps("@%p1 bra FOLLOW;\n@!%p2 bra END;\nmbarrier.arrive.shared::cta.b64 %d2, [%r5];\n" +
                     wait_for("%r6", 0) + "mbarrier.arrive.shared::cta.b64 %d2, [%r5];\nbra END;\nFOLLOW:\n" +
                     wait_for("%r5", 0) + between +
                     "@%p2 mbarrier.arrive.shared::cta.b64 %d2, [%r6];\nEND:\n");
  };
  EXPECT_EQ(fault_of(ptx(kWarpSync)), "");
  for (const std::string& exchange : kExchanges)
    EXPECT_EQ(fault_of(ptx(exchange)), "") << "none waits behind it";
  EXPECT_EQ(fault_of(ptx("bar.arrive 1, 64;\n")), "");
  Device device("sm_90a", "threads=1");
  device.load(ptx(""));
  EXPECT_EQ(device.launch(1, 64, 0, device.allocate(4)), CUDA_ERROR_LAUNCH_FAILED);
  EXPECT_EQ(device.reports()[0]["fault"], "barrier race");
  EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(),
              HasSubstr("while lanes 0xfffffffe of warp 1 may still"));
}

// The asynchronous proxy reads what the lanes stored and fenced.
TEST(Lanes, OneStartsACopyForAll) {
  const auto ptx = [](const std::string& fence, const std::string& between) {
    return two_warps("@%p1 bra END;\nst.shared.u32 [%r3], %r1;\n" + fence + between +
                     "@!%p2 bra END;\ncp.async.bulk.global.shared::cta.bulk_group [%d1], [%r3], 128;\n"
                     "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\n");
  };
  const std::string fence = "fence.proxy.async.shared::cta;\n";
  EXPECT_EQ(fault_of(ptx(fence, kWarpSync)), "");
  EXPECT_EQ(fault_of(ptx("", kWarpSync + "@%p2 " + fence)), "") << "lane 0 fences what it knows of";
  EXPECT_EQ(fault_of(ptx(fence, "")), kRace);
  EXPECT_EQ(fault_of(ptx("@%p2 " + fence, kWarpSync)), "asynchronous hazard") << "lane 0's alone are fenced";
}

// A warpgroup multiplies and lets go, a lane for a warp, and a fifth warp writes. A product whose A is what the lanes
// have loaded waits for that; any other says nothing of it.
TEST(Lanes, AProductWaitsForItsRegisters) {
  const auto ptx = [](const std::string& a) {
    return kernel_ptx(
        "sm_90a", {"u64"},
        "mov.u32 %r1, %tid.x;\nand.b32 %r2, %r1, 31;\nmov.u32 %r3, s;\nmov.u32 %r5, m;\n"
        "setp.ge.u32 %p1, %r1, 128;\nsetp.eq.u32 %p2, %r2, 0;\nsetp.ne.u32 %p3, %r1, 0;\n@%p3 bra READY;\n"
        "mbarrier.init.shared::cta.b64 [%r5], 4;\nREADY:\nbar.sync 0;\n@%p1 bra WRITE;\n"
        "mad.lo.u32 %r4, %r1, 4, %r3;\nld.shared.u32 %r7, [%r4];\nmov.u32 %r8, b;\nshr.u32 %r8, %r8, "
        "4;\ncvt.u64.u32 %d1, %r8;\n"
        "or.b64 %d1, %d1, 0x4000004000000000;\n"
        "mov.f32 %f1, 0f00000000;\nmov.f32 %f2, %f1;\nmov.f32 %f3, %f1;\nmov.f32 %f4, %f1;\n"
        "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, " +
            a +
            ";\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n"
            "@%p2 mbarrier.arrive.shared::cta.b64 %d2, [%r5];\nbra END;\nWRITE:\n" +
            wait_for("%r5", 0) +
            "mad.lo.u32 %r4, %r2, 16, %r3;\nst.shared.v4.u32 [%r4], {%r1,%r1,%r1,%r1};\nEND:\n",
        ".shared .align 1024 .b8 b[8192];\n.shared .align 128 .b8 s[512];\n.shared .align 8 .b8 m[8];");
  };
  EXPECT_EQ(fault_of(ptx("{%r7,%r7,%r7,%r7}, %d1, %p3, 1, 1, 0"), 160), "");
  EXPECT_EQ(fault_of(ptx("%d1, %d1, %p3, 1, 1, 0, 0"), 160), kRace);
}

}  // namespace
}  // namespace trigen::testing
