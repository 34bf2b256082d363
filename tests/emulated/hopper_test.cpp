// sm_90 and sm_90a: clusters, mbarriers, bulk and tensor copies, warpgroup products. Small integers, exact.
#include "device.h"

namespace trigen::testing {
namespace {

using ::testing::HasSubstr;

CUresult launch_cluster(Device& device, unsigned blocks, unsigned cluster, unsigned threads,
                        std::vector<void*> arguments) {
  CUlaunchAttribute attribute = {};
  attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  attribute.value.clusterDim = {cluster, 1, 1};
  CUlaunchConfig config = {blocks, 1, 1, threads, 1, 1, 0, nullptr, &attribute, 1};
  CUresult result = cuLaunchKernelEx(&config, device.function(), arguments.data(), nullptr);
  return result != CUDA_SUCCESS ? result : cuCtxSynchronize();
}

// Every block writes its rank, then reads the next block's through distributed shared memory.
std::string neighbours(const std::string& barrier) {
  return kernel_ptx(
      "sm_90", {"u64"},
      "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, %cluster_nctarank;\nmov.u32 %r3, s;\nadd.u32 %r4, %r1, "
      "100;\nst.shared.u32 [%r3], %r4;\n" +
          barrier +
          "\nadd.u32 %r5, %r1, 1;\nrem.u32 %r5, %r5, %r2;\nmapa.shared::cluster.u32 %r6, %r3, "
          "%r5;\nld.shared::cluster.u32 %r7, [%r6];\n"
          "barrier.cluster.arrive;\nbarrier.cluster.wait;\nmov.u32 %r8, %ctaid.x;\nmul.wide.u32 %d1, %r8, "
          "4;\nld.param.u64 %d2, [p0];\nadd.u64 %d2, %d2, %d1;\nst.global.u32 [%d2], %r7;",
      ".shared .align 4 .b8 s[4];");
}

TEST(Hopper, DistributedSharedMemory) {
  Device device("sm_90");
  device.load(neighbours("barrier.cluster.arrive;\nbarrier.cluster.wait;"));
  CUdeviceptr out = device.allocate(32);
  ASSERT_EQ(launch_cluster(device, 8, 4, 1, {&out}), CUDA_SUCCESS) << device.reports().dump(1);
  EXPECT_EQ(device.get<int>(out, 8), (std::vector<int>{101, 102, 103, 100, 101, 102, 103, 100}));
}

TEST(Hopper, MissingClusterBarrierIsARace) {
  Device device("sm_90", "checks=-uninitialised");
  device.load(neighbours(""));
  CUdeviceptr out = device.allocate(32);
  EXPECT_NE(launch_cluster(device, 8, 4, 1, {&out}), CUDA_SUCCESS);
  EXPECT_EQ(device.reports()[0]["fault"], "shared memory race");
}

// A 2-d tensor of u16 goes through shared memory with a box of 64 x 4 and is stored flat as it lies there. `base`: the map's, or
// null for the tensor's own.
std::vector<uint16_t> tensor_copy(const std::string& options, CUtensorMapSwizzle swizzle, int x, int y,
                                  bool wait, CUresult expected, void* base = nullptr) {
  Device device("sm_90", options);
  std::vector<uint16_t> data(80 * 6);
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<uint16_t>(1000 + i);
  CUdeviceptr in = device.put(data), out = device.allocate(512);
  CUtensorMap map;
  unsigned long long dims[] = {80, 6}, strides[] = {160};
  unsigned box[] = {64, 4}, ones[] = {1, 1};
  if (base == nullptr) base = reinterpret_cast<void*>(in);
  EXPECT_EQ(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, base, dims, strides, box, ones,
                                   CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                   CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
            CUDA_SUCCESS)
      << Device::error();
  std::string ptx =
      ".version 8.6\n.target sm_90\n.address_size 64\n.shared .align 1024 .b8 s[1024];\n.shared .align 8 .b8 "
      "m[8];\n"
      ".visible .entry k(.param .align 64 .b8 p0[128], .param .u64 p1, .param .u32 p2, .param .u32 p3) "
      "{\n.reg .pred %p<4>;\n.reg .b32 %r<16>;\n.reg .b64 %d<16>;\n"
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\nmov.u32 %r3, m;\nld.param.u32 %r4, [p2];\nld.param.u32 %r5, "
      "[p3];\nmov.b64 %d1, p0;\ncvta.param.u64 %d2, %d1;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra WAIT;\n"
      "mbarrier.init.shared::cta.b64 [%r3], "
      "1;\nfence.mbarrier_init.release.cluster;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;\n"
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r2], [%d2, {%r4, "
      "%r5}], [%r3];\nWAIT:\nbar.sync 0;\n" +
      std::string(wait ? "L:\nmbarrier.try_wait.parity.shared::cta.b64 %p2, [%r3], 0;\n@!%p2 bra L;\n" : "") +
      "shl.b32 %r6, %r1, 4;\nadd.u32 %r7, %r2, %r6;\nld.shared.v4.u32 {%r8,%r9,%r10,%r11}, "
      "[%r7];\nld.param.u64 %d3, [p1];\ncvt.u64.u32 %d4, %r6;\nadd.u64 %d3, %d3, %d4;\nst.global.v4.u32 "
      "[%d3], {%r8,%r9,%r10,%r11};\nret;\n}\n";
  device.load(ptx);
  void* arguments[] = {&map, &out, &x, &y};
  EXPECT_EQ(cuLaunchKernel(device.function(), 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr),
            CUDA_SUCCESS)
      << Device::error();
  EXPECT_EQ(cuCtxSynchronize(), expected) << device.reports().dump(1);
  return expected == CUDA_SUCCESS ? device.get<uint16_t>(out, 256) : std::vector<uint16_t>();
}

TEST(Hopper, TensorCopySwizzlesAndFills) {
  for (const char* options : {"async=late", "async=early", "async=random:3"})
    for (CUtensorMapSwizzle swizzle : {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B}) {
      const int x = 32, y = -1;  // the first row lies outside, and so do the last 16 columns
      std::vector<uint16_t> out = tensor_copy(options, swizzle, x, y, true, CUDA_SUCCESS);
      ASSERT_EQ(out.size(), 256u);
      for (int row = 0; row < 4; ++row)
        for (int column = 0; column < 64; ++column) {
          int chunk = column / 8, place = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE ? chunk : chunk ^ row;
          int expected = row + y < 0 || column + x >= 80 ? 0 : 1000 + (row + y) * 80 + column + x;
          EXPECT_EQ(out[static_cast<size_t>(row * 64 + place * 8 + column % 8)], expected)
              << options << " " << row << "," << column;
        }
    }
}

TEST(Hopper, TensorCopyBeginsAtWholePieces) {
  for (const int x : {1, 4, 7, -1, 33})
    tensor_copy("async=late", CU_TENSOR_MAP_SWIZZLE_NONE, x, 0, true, CUDA_ERROR_ILLEGAL_INSTRUCTION);
  for (const int x : {8, -8, 72})
    tensor_copy("async=late", CU_TENSOR_MAP_SWIZZLE_NONE, x, 0, true, CUDA_SUCCESS);
}

TEST(Hopper, TensorCopyFromOutsideLooksUpTheMapsAddress) {
  for (const int y : {6, -4}) {
    const auto zeros = tensor_copy("async=late", CU_TENSOR_MAP_SWIZZLE_NONE, 0, y, true, CUDA_SUCCESS);
    EXPECT_EQ(zeros, std::vector<uint16_t>(256, 0));
    tensor_copy("async=late", CU_TENSOR_MAP_SWIZZLE_NONE, 0, y, true, CUDA_ERROR_ILLEGAL_ADDRESS,
                reinterpret_cast<void*>(16));
  }
}

TEST(Hopper, TensorCopyWithoutWaitIsFound) {
  tensor_copy("async=late", CU_TENSOR_MAP_SWIZZLE_NONE, 0, 0, false, CUDA_ERROR_LAUNCH_FAILED);
}

// Warp 0 copies 512 bytes into shared memory and waits for them, warp 1 overwrites their source.
std::string overwritten_source(bool waits) {
  return kernel_ptx(
      "sm_90", {"u64"},
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\nmov.u32 %r3, m;\nld.param.u64 %d1, [p0];\nsetp.ne.u32 %p1, "
      "%r1, 0;\n@%p1 bra ISSUED;\nmbarrier.init.shared::cta.b64 [%r3], "
      "1;\nfence.mbarrier_init.release.cluster;\nmbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;\n"
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 512, "
      "[%r3];\nISSUED:\nbar.sync 0;\nsetp.ge.u32 %p2, %r1, 32;\n" +
          std::string(waits ? "" : "@%p2 bra WRITE;\n") +
          "L:\nmbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], 0;\n@!%p3 bra L;\n@!%p2 bra END;\n"
          "WRITE:\nsub.u32 %r4, %r1, 32;\nmul.wide.u32 %d2, %r4, 16;\nadd.u64 %d2, %d1, %d2;\n"
          "st.global.v4.u32 [%d2], {%r1, %r1, %r1, %r1};\nEND:",
      ".shared .align 128 .b8 s[512];\n.shared .align 8 .b8 m[8];");
}

// A block must not end while a copy into its memory may still be under way.
TEST(Hopper, BlocksStayUntilTheirCopiesHaveLanded) {
  for (const char* options : {"async=late", "async=early", "async=random:3"})
    for (bool waits : {true, false}) {
      Device device("sm_90", options);
      device.load(kernel_ptx(
          "sm_90", {"u64"},
          "mov.u32 %r2, s;\nmov.u32 %r3, m;\nld.param.u64 %d1, [p0];\n"
          "mbarrier.init.shared::cta.b64 [%r3], 1;\nfence.mbarrier_init.release.cluster;\n"
          "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;\n"
          "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d1], 512, [%r3];\n" +
              std::string(
                  waits ? "L:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0;\n@!%p1 bra L;\n" : ""),
          ".shared .align 128 .b8 s[512];\n.shared .align 8 .b8 m[8];"));
      EXPECT_EQ(device.launch(1, 1, 0, device.put(std::vector<uint32_t>(128, 7))),
                waits ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS)
          << options << device.reports().dump(1);
      if (waits) continue;
      ASSERT_EQ(device.reports().size(), 1u) << device.reports().dump(1);
      EXPECT_EQ(device.reports()[0]["fault"], "use after free");
      EXPECT_THAT(device.reports()[0]["instruction"].get<std::string>(), HasSubstr("cp.async.bulk"));
    }
}

// Each of two blocks sends the other one 16 bytes by st.async, and goes on by its own barrier. `bytes`: that it expects.
std::string sent_asynchronously(const std::string& barrier_of, int bytes, bool waits) {
  return kernel_ptx(
      "sm_90", {"u64"},
      "mov.u32 %r1, %cluster_ctarank;\nmov.u32 %r2, s;\nmov.u32 %r3, m;\nxor.b32 %r4, %r1, 1;\n"
      "mbarrier.init.shared::cta.b64 [%r3], 1;\nfence.mbarrier_init.release.cluster;\n"
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], " +
          std::to_string(bytes) +
          ";\nbarrier.cluster.arrive;\nbarrier.cluster.wait;\nmapa.shared::cluster.u32 %r5, %r2, %r4;\n"
          "mapa.shared::cluster.u32 %r6, %r3, " +
          barrier_of +
          ";\nadd.u32 %r7, %r1, 100;\n"
          "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r5], {%r7, %r7, %r1, %r1}, "
          "[%r6];\n" +
          std::string(waits ? "L:\nmbarrier.try_wait.parity.shared::cta.b64 %p1, [%r3], 0;\n@!%p1 bra L;\n"
                            : "") +
          "ld.shared.u32 %r8, [%r2+4];\nmul.wide.u32 %d1, %r1, 4;\nld.param.u64 %d2, [p0];\n"
          "add.u64 %d2, %d2, %d1;\nst.global.u32 [%d2], %r8;" +
          std::string(waits ? "" : "\nbarrier.cluster.arrive;\nbarrier.cluster.wait;"),
      ".shared .align 16 .b8 s[16];\n.shared .align 8 .b8 m[8];");
}

TEST(Hopper, StoresIntoAnotherBlockCountTheirBytesThere) {
  for (const char* options : {"async=late", "async=early", "async=random:3", "async=shuffled:3"}) {
    Device device("sm_90", options);
    device.load(sent_asynchronously("%r4", 16, true));
    CUdeviceptr out = device.allocate(8);
    ASSERT_EQ(launch_cluster(device, 2, 2, 1, {&out}), CUDA_SUCCESS) << device.reports().dump(1);
    EXPECT_EQ(device.get<int>(out, 2), (std::vector<int>{101, 100}));
  }
}

TEST(Hopper, FaultsOfAsynchronousStoresAreFound) {
  const struct {
    const char *barrier_of, *fault;
    int bytes;
    bool waits;
  } cases[] = {{"%r4", "read of uninitialised memory", 16, false},  // nobody waits
               {"%r4", "barrier deadlock", 32, true},               // bytes that never come
               {"%r1", "bad instruction", 16, true}};               // a barrier beside the target
  for (const auto& c : cases) {
    Device device("sm_90");
    device.load(sent_asynchronously(c.barrier_of, c.bytes, c.waits));
    CUdeviceptr out = device.allocate(8);
    EXPECT_NE(launch_cluster(device, 2, 2, 1, {&out}), CUDA_SUCCESS) << c.fault;
    ASSERT_FALSE(device.reports().empty()) << c.fault;
    EXPECT_EQ(device.reports()[0]["fault"], c.fault) << device.reports().dump(1);
  }
}

// A bulk copy's read of global memory has ended for whoever has waited for its mbarrier, and for nobody else:
// a barrier behind the thread that issued it says nothing.
TEST(Hopper, ABulkCopysSourceIsFreeOnceItsBarrierIsWaitedFor) {
  for (const char* options : {"async=late", "async=early", "async=random:3"})
    for (bool waits : {true, false}) {
      Device device("sm_90", options);
      CUdeviceptr data = device.put(std::vector<uint32_t>(128, 7));
      device.load(overwritten_source(waits));
      const CUresult result = device.launch(1, 64, 0, data);
      const nlohmann::json reports = device.reports();
      if (waits) {
        EXPECT_EQ(result, CUDA_SUCCESS) << options << reports.dump(1);
        EXPECT_EQ(device.get<uint32_t>(data, 128)[127], 63u);
        continue;
      }
      EXPECT_EQ(result, CUDA_ERROR_LAUNCH_FAILED) << options;
      ASSERT_GE(reports.size(), 1u) << options;
      EXPECT_EQ(reports[0]["fault"], "global memory race") << options;
    }
}

// A row of `width` floats at a pitch of 64, stored from a box of 32 of ones.
std::vector<float> stored_row(unsigned long long width) {
  Device device("sm_90");
  CUdeviceptr out = device.put(std::vector<float>(64, 0.0f));
  CUtensorMap map;
  unsigned long long dims[] = {width, 1}, strides[] = {256};
  unsigned box[] = {32, 1}, ones[] = {1, 1};
  EXPECT_EQ(
      cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, reinterpret_cast<void*>(out), dims,
                             strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                             CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
      CUDA_SUCCESS)
      << Device::error();
  device.load(
      ".version 8.6\n.target sm_90\n.address_size 64\n.shared .align 128 .b8 s[128];\n"
      ".visible .entry k(.param .align 64 .b8 p0[128]) {\n.reg .pred %p<2>;\n.reg .b32 %r<8>;\n.reg .b64 "
      "%d<4>;\nmov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\nmad.lo.u32 %r3, %r1, 4, %r2;\nmov.b32 %r4, "
      "0x3f800000;\nst.shared.b32 [%r3], %r4;\nfence.proxy.async.shared::cta;\nbar.sync 0;\nsetp.ne.u32 "
      "%p1, %r1, 0;\n@%p1 bra END;\nmov.b64 %d1, p0;\ncvta.param.u64 %d2, %d1;\nmov.b32 %r5, 0;\n"
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%d2, {%r5, %r5}], [%r2];\n"
      "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;\nEND:\nret;\n}\n");
  void* arguments[] = {&map};
  EXPECT_EQ(cuLaunchKernel(device.function(), 1, 1, 1, 32, 1, 1, 0, nullptr, arguments, nullptr),
            CUDA_SUCCESS)
      << Device::error();
  EXPECT_EQ(cuCtxSynchronize(), CUDA_SUCCESS) << device.reports().dump(1);
  return device.get<float>(out, 64);
}

TEST(Hopper, TensorStoresWriteWholePieces) {
  for (const auto& [width, written] : {std::pair{16, 16}, {17, 20}, {19, 20}, {20, 20}, {31, 32}}) {
    const std::vector<float> row = stored_row(static_cast<unsigned long long>(width));
    for (int i = 0; i < 64; ++i)
      EXPECT_EQ(row[static_cast<size_t>(i)], i < written ? 1.0f : 0.0f) << width << ": " << i;
  }
}

TEST(Hopper, TensorMapsAreChecked) {
  Device device("sm_90");
  CUdeviceptr in = device.allocate(4096);
  CUtensorMap map;
  unsigned long long dims[] = {80, 6}, strides[] = {160};
  unsigned box[] = {128, 4}, ones[] = {1, 1};
  auto encode = [&](CUtensorMapSwizzle swizzle) {
    return cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 2, reinterpret_cast<void*>(in), dims,
                                  strides, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  EXPECT_EQ(encode(CU_TENSOR_MAP_SWIZZLE_128B), CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Device::error(), HasSubstr("the swizzle allows 128"));
  EXPECT_EQ(encode(CU_TENSOR_MAP_SWIZZLE_NONE), CUDA_SUCCESS);
  strides[0] = 164;
  EXPECT_EQ(encode(CU_TENSOR_MAP_SWIZZLE_NONE), CUDA_ERROR_INVALID_VALUE);
}

// 32 threads write 512 bytes that thread 0 stores with one bulk copy; afterwards everybody fences, too late
// for that copy.
std::string bulk_store(const std::string& fence, const std::string& wait) {
  return kernel_ptx(
      "sm_90", {"u64"},
      "mov.u32 %r1, %tid.x;\nmov.u32 %r2, s;\nmad.lo.u32 %r3, %r1, 16, %r2;\nld.param.u64 %d1, [p0];\n"
      "st.shared.v4.u32 [%r3], {%r1,%r1,%r1,%r1};\n" +
          fence +
          "\nbar.sync 0;\nsetp.ne.u32 %p1, %r1, 0;\n@%p1 bra SKIP;\n"
          "cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r2], "
          "512;\ncp.async.bulk.commit_group;\nSKIP:\n"
          "bar.sync 0;\nfence.proxy.async.shared::cta;\nbar.sync 0;\n" +
          wait,
      ".shared .align 128 .b8 s[512];");
}

TEST(Hopper, BulkStoreNeedsFenceAndWait) {
  const std::string fence = "fence.proxy.async.shared::cta;", wait = "cp.async.bulk.wait_group 0;";
  {
    Device device("sm_90");
    CUdeviceptr out = device.allocate(512);
    device.run(bulk_store(fence, wait), 1, 32, 0, out);
    std::vector<int> values = device.get<int>(out, 128);
    for (int i = 0; i < 128; ++i) EXPECT_EQ(values[static_cast<size_t>(i)], i / 4);
    EXPECT_EQ(device.counters()["bulk_bytes"], 512);
    EXPECT_EQ(device.counters()["global_store_sectors"], 16);
  }
  {
    Device device("sm_90");
    device.load(bulk_store("", wait));
    EXPECT_EQ(device.launch(1, 32, 0, device.allocate(512)), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(device.reports()[0]["fault"], "asynchronous hazard");
    EXPECT_THAT(device.reports()[0]["instruction"].get<std::string>(), HasSubstr("cp.async.bulk.global"));
  }
  {
    Device device("sm_90");
    device.load(bulk_store(fence, ""));
    EXPECT_EQ(device.launch(1, 32, 0, device.allocate(512)), CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(), HasSubstr("when the block ends"));
  }
}

// D = A * B, m64n8k16, bf16, A and B K-major in shared memory with a 128-byte swizzle; the kernel's threads
// write the tiles, one 16-byte chunk each. `fence`: the proxy fence between those writes and wgmma. `wait`:
// the wait before D is read.
std::string product(const std::string& fence, const std::string& wait) {
  return ".version 8.6\n.target sm_90a\n.address_size 64\n.shared .align 1024 .b8 sa[8192];\n.shared .align "
         "1024 .b8 sb[1024];\n"
         ".visible .entry k(.param .u64 p0, .param .u64 p1, .param .u64 p2) {\n.reg .pred %p<4>;\n.reg .b32 "
         "%r<32>;\n.reg .f32 %f<8>;\n.reg .b64 %d<16>;\n"
         "mov.u32 %r1, %tid.x;\nmov.u32 %r2, sa;\nmov.u32 %r3, sb;\nld.param.u64 %d1, [p0];\nld.param.u64 "
         "%d2, [p1];\n"
         // A: 64 rows x 16 k: thread t writes chunk t % 2 of row t / 2, at row * 128 + ((chunk ^ row % 8) *
         // 16).
         "shr.u32 %r4, %r1, 1;\nand.b32 %r5, %r1, 1;\nand.b32 %r6, %r4, 7;\nxor.b32 %r6, %r5, %r6;\nshl.b32 "
         "%r7, %r4, 7;\nmad.lo.u32 %r7, %r6, 16, %r7;\nadd.u32 %r8, %r2, %r7;\nmul.wide.u32 %d3, %r1, "
         "16;\nadd.u64 %d4, %d1, %d3;\n"
         "ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%d4];\nst.shared.v4.u32 [%r8], "
         "{%r10,%r11,%r12,%r13};\nsetp.ge.u32 %p1, %r1, 16;\n@%p1 bra DONE;\nadd.u32 %r8, %r3, %r7;\nadd.u64 "
         "%d4, %d2, %d3;\n"
         "ld.global.v4.u32 {%r10,%r11,%r12,%r13}, [%d4];\nst.shared.v4.u32 [%r8], "
         "{%r10,%r11,%r12,%r13};\nDONE:\n" +
         fence +
         "\nbar.sync 0;\n"
         // Descriptor: address >> 4, stride of 8 rows 1024 B, swizzle 128B.
         "shr.u32 %r14, %r2, 4;\nshr.u32 %r15, %r3, 4;\ncvt.u64.u32 %d5, %r14;\ncvt.u64.u32 %d6, "
         "%r15;\nor.b64 %d5, %d5, 0x4000004000000000;\nor.b64 %d6, %d6, 0x4000004000000000;\n"
         "mov.f32 %f1, 0f00000000;\nmov.f32 %f2, %f1;\nmov.f32 %f3, %f1;\nmov.f32 %f4, %f1;\nsetp.eq.u32 "
         "%p2, %r1, 1000;\nwgmma.fence.sync.aligned;\n"
         "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%f1,%f2,%f3,%f4}, %d5, %d6, %p2, 1, 1, 0, "
         "0;\nwgmma.commit_group.sync.aligned;\n" +
         wait +
         "\n"
         "shr.u32 %r16, %r1, 5;\nand.b32 %r17, %r1, 31;\nshr.u32 %r18, %r17, 2;\nand.b32 %r19, %r17, "
         "3;\nmad.lo.u32 %r20, %r16, 16, %r18;\nshl.b32 %r20, %r20, 5;\nmad.lo.u32 %r20, %r19, 8, %r20;\n"
         "ld.param.u64 %d7, [p2];\ncvt.u64.u32 %d8, %r20;\nadd.u64 %d7, %d7, %d8;\nst.global.v2.f32 [%d7], "
         "{%f1,%f2};\nst.global.v2.f32 [%d7+256], {%f3,%f4};\nret;\n}\n";
}

uint16_t bf16(int value) {
  float f = static_cast<float>(value);
  uint32_t bits;
  std::memcpy(&bits, &f, 4);
  return static_cast<uint16_t>(bits >> 16);
}

TEST(Hopper, WarpgroupProduct) {
  auto av = [](int m, int k) { return (m + 3 * k + m * k) % 9 - 4; };
  auto bv = [](int k, int n) { return (5 * k + n * n) % 9 - 4; };
  std::vector<uint16_t> a(64 * 16), b(8 * 16);
  for (int m = 0; m < 64; ++m)
    for (int k = 0; k < 16; ++k) a[static_cast<size_t>(m * 16 + k)] = bf16(av(m, k));
  for (int n = 0; n < 8; ++n)
    for (int k = 0; k < 16; ++k) b[static_cast<size_t>(n * 16 + k)] = bf16(bv(k, n));
  const std::string fence = "fence.proxy.async.shared::cta;", wait = "wgmma.wait_group.sync.aligned 0;";
  for (const char* options : {"async=late", "async=early"}) {
    Device device("sm_90a", options);
    CUdeviceptr out = device.allocate(64 * 8 * 4);
    device.run(product(fence, wait), 1, 128, 0, device.put(a), device.put(b), out);
    std::vector<float> d = device.get<float>(out, 512);
    for (int m = 0; m < 64; ++m)
      for (int n = 0; n < 8; ++n) {
        int expected = 0;
        for (int k = 0; k < 16; ++k) expected += av(m, k) * bv(k, n);
        ASSERT_EQ(d[static_cast<size_t>(m * 8 + n)], static_cast<float>(expected)) << m << "," << n;
      }
    EXPECT_EQ(device.counters()["matrix_operations"], 1);
    EXPECT_EQ(device.counters()["matrix_flops"], 2 * 64 * 8 * 16);
  }
  {
    Device device("sm_90a");
    device.load(product(fence, ""));
    EXPECT_EQ(device.launch(1, 128, 0, device.put(a), device.put(b), device.allocate(2048)),
              CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(device.reports()[0]["fault"], "asynchronous hazard");
    EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(), HasSubstr("before wgmma.wait_group"));
  }
  {
    Device device("sm_90a");
    device.load(product("", wait));
    EXPECT_EQ(device.launch(1, 128, 0, device.put(a), device.put(b), device.allocate(2048)),
              CUDA_ERROR_LAUNCH_FAILED);
    EXPECT_EQ(device.reports()[0]["fault"], "asynchronous hazard");
    EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(), HasSubstr("without fence.proxy.async"));
  }
}

TEST(Hopper, WarpgroupProductNeedsItsFence) {
  std::string ptx = product("fence.proxy.async.shared::cta;", "wgmma.wait_group.sync.aligned 0;");
  const std::string fence = "wgmma.fence.sync.aligned;";
  ptx.erase(ptx.find(fence), fence.size());
  Device device("sm_90a");
  device.load(ptx);
  EXPECT_EQ(device.launch(1, 128, 0, device.put(std::vector<uint16_t>(64 * 16, bf16(1))),
                          device.put(std::vector<uint16_t>(8 * 16, bf16(1))), device.allocate(2048)),
            CUDA_ERROR_LAUNCH_FAILED);
  ASSERT_EQ(device.reports().size(), 1u) << device.reports().dump(1);
  EXPECT_EQ(device.reports()[0]["fault"], "asynchronous hazard");
  EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(), HasSubstr("without wgmma.fence"));
}

// A block whose shared memory a peer reads must not end before it knows of the read.
TEST(Hopper, BlocksStayWhilePeersRead) {
  const std::string barrier = "barrier.cluster.arrive;\nbarrier.cluster.wait;";
  std::string ptx = neighbours(barrier);
  ptx.erase(ptx.rfind(barrier), barrier.size());
  Device device("sm_90");
  device.load(ptx);
  CUdeviceptr out = device.allocate(32);
  EXPECT_EQ(launch_cluster(device, 8, 4, 1, {&out}), CUDA_ERROR_ILLEGAL_ADDRESS);
  ASSERT_FALSE(device.reports().empty());
  EXPECT_EQ(device.reports()[0]["fault"], "use after free");
  EXPECT_THAT(device.reports()[0]["instruction"].get<std::string>(), HasSubstr("ld.shared::cluster"));
}

// The second of two launches may begin before the first has ended: what the first wrote is there after
// griddepcontrol.wait, for the thread that waited and those that a barrier tells of it.
TEST(Hopper, OverlappingLaunchesWait) {
  const std::string fill =
      kernel_ptx("sm_90", {"u64", "u64"},
                 "mov.u32 %r1, %tid.x;\nmul.wide.u32 %d1, %r1, 4;\nld.param.u64 %d2, [p0];\n"
                 "add.u64 %d2, %d2, %d1;\nst.global.u32 [%d2], %r1;");
  const auto pass_on = [](const std::string& before, const std::string& after) {
    return kernel_ptx("sm_90", {"u64", "u64"},
                      "mov.u32 %r1, %tid.x;\nmul.wide.u32 %d1, %r1, 4;\nld.param.u64 %d2, [p0];\n"
                      "ld.param.u64 %d3, [p1];\nadd.u64 %d2, %d2, %d1;\nadd.u64 %d3, %d3, %d1;\n"
                      "setp.ge.u32 %p1, %r1, 32;\n" +
                          before + "\nld.global.u32 %r2, [%d2];\n" + after + "\nst.global.u32 [%d3], %r2;");
  };
  const struct {
    const char *before, *after;
    bool overlaps, right;
  } cases[] = {
      {"griddepcontrol.wait;", "", true, true},
      {"", "", false, true},
      {"", "", true, false},
      {"griddepcontrol.launch_dependents;", "", true, false},
      {"", "griddepcontrol.wait;", true, false},
      // The first warp waits, the second learns of it at the barrier, or does not.
      {"@!%p1 griddepcontrol.wait;\nbar.sync 0;", "", true, true},
      {"@!%p1 griddepcontrol.wait;", "", true, false},
  };
  for (const auto& each : cases) {
    Device device("sm_90");
    CUdeviceptr between = device.allocate(256), out = device.allocate(256);
    void* arguments[] = {&between, &out};
    CUmodule first = nullptr;
    CUfunction function = nullptr;
    ASSERT_EQ(cuModuleLoadData(&first, fill.c_str()), CUDA_SUCCESS) << Device::error();
    ASSERT_EQ(cuModuleGetFunction(&function, first, "k"), CUDA_SUCCESS);
    device.load(pass_on(each.before, each.after));
    ASSERT_EQ(cuLaunchKernel(function, 1, 1, 1, 64, 1, 1, 0, nullptr, arguments, nullptr), CUDA_SUCCESS);
    CUlaunchAttribute attribute = {};
    attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
    attribute.value.programmaticStreamSerializationAllowed = each.overlaps ? 1 : 0;
    const CUlaunchConfig config = {1, 1, 1, 64, 1, 1, 0, nullptr, &attribute, 1};
    ASSERT_EQ(cuLaunchKernelEx(&config, device.function(), arguments, nullptr), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSynchronize(), each.right ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED)
        << each.before << each.after;
    if (!each.right) {
      ASSERT_FALSE(device.reports().empty());
      EXPECT_EQ(device.reports()[0]["fault"], "asynchronous hazard");
      EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(),
                  HasSubstr("griddepcontrol.wait comes first"));
    }
    cuModuleUnload(first);
  }
}

// Three launches, of which the later two may start early: the third overlaps the first where the second lets
// it start before its own wait. And a first launch overlaps what the stream may have run before it.
TEST(Hopper, EarlyLaunchesOverlapThoseFurtherBack) {
  const std::string fill =
      kernel_ptx("sm_90", {"u64"}, "mov.u32 %r1, 7;\nld.param.u64 %d2, [p0];\nst.global.u32 [%d2], %r1;");
  const std::string read = "ld.param.u64 %d2, [p0];\nld.global.u32 %r2, [%d2];\n",
                    wait = "griddepcontrol.wait;\n", trigger = "griddepcontrol.launch_dependents;\n";
  const struct {
    bool after_fill;  // else after anything
    std::string second, third, fault;
  } cases[] = {
      {true, wait + trigger, read + wait, ""},
      {true, trigger + wait, read + wait, "griddepcontrol.wait comes first"},
      {true, trigger + wait, wait + read, ""},
      {true, trigger, wait + read, "no thread of it waited"},
      {true, wait, read + wait, ""},
      {false, wait + trigger, read + wait, ""},
      {false, trigger + wait, read + wait, "griddepcontrol.wait comes first"},
      {false, read + wait, wait, "griddepcontrol.wait comes first"},
      {false, wait + read, wait, ""},
  };
  for (const auto& each : cases) {
    Device device("sm_90");
    CUdeviceptr word = device.put(std::vector<int>{1});
    void* arguments[] = {&word};
    std::vector<CUmodule> modules;
    const auto launch = [&](const std::string& ptx, bool early) {
      CUfunction function = nullptr;
      if (cuModuleLoadData(&modules.emplace_back(), ptx.c_str()) != CUDA_SUCCESS) return;  // after a fault
      EXPECT_EQ(cuModuleGetFunction(&function, modules.back(), "k"), CUDA_SUCCESS);
      CUlaunchAttribute attribute = {};
      attribute.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
      attribute.value.programmaticStreamSerializationAllowed = early ? 1 : 0;
      const CUlaunchConfig config = {1, 1, 1, 1, 1, 1, 0, nullptr, &attribute, 1};
      cuLaunchKernelEx(&config, function, arguments, nullptr);
    };
    if (each.after_fill)
      launch(fill, false);
    else
      EXPECT_EQ(trigen_emulator_assume_busy(0), 0);
    launch(kernel_ptx("sm_90", {"u64"}, each.second), true);
    launch(kernel_ptx("sm_90", {"u64"}, each.third), true);
    EXPECT_EQ(cuCtxSynchronize(), each.fault.empty() ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED)
        << each.second << each.third;
    if (!each.fault.empty()) {
      ASSERT_FALSE(device.reports().empty());
      EXPECT_EQ(device.reports()[0]["fault"], "asynchronous hazard");
      EXPECT_THAT(device.reports()[0]["detail"].get<std::string>(), HasSubstr(each.fault));
    }
    for (CUmodule module : modules) cuModuleUnload(module);
  }
}

TEST(Hopper, WarpgroupProductNeedsTheArchitecture) {
  Device device("sm_90");
  CUmodule module = nullptr;
  EXPECT_EQ(cuModuleLoadData(&module, kernel_ptx("sm_90", {}, "wgmma.fence.sync.aligned;").c_str()),
            CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(Device::error(), HasSubstr("needs the target sm_90a"));
}

}  // namespace
}  // namespace trigen::testing
