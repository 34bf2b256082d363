// The Driver API's own behaviour: handles, errors, streams, capture, attributes, memory.
#include "device.h"

#include <sys/resource.h>

#include <fstream>
#include <thread>

#include "tests/fault/child.h"

namespace trigen::testing {
namespace {

using ::testing::HasSubstr;

// out[i] += add
const std::string kAdd =
    kernel_ptx("sm_70", {"u64", "u32"},
               "mov.u32 %r1, %tid.x;\nmul.wide.u32 %d2, %r1, 4;\nld.param.u64 %d1, [p0];\nadd.u64 %d1, %d1, "
               "%d2;\nld.param.u32 %r2, [p1];\n"
               "ld.global.u32 %r3, [%d1];\nadd.u32 %r3, %r3, %r2;\nst.global.u32 [%d1], %r3;");

TEST(Driver, DeviceAttributes) {
  struct Case {
    const char* target;
    int major, minor, shared, reserved, cluster;
  };
  for (const Case& c : {Case{"sm_70", 7, 0, 98304, 0, 0}, Case{"sm_75", 7, 5, 65536, 0, 0},
                        Case{"sm_86", 8, 6, 101376, 1024, 0}, Case{"sm_90a", 9, 0, 232448, 1024, 1},
                        Case{"sm_120", 12, 0, 101376, 1024, 1}}) {
    Device device(c.target);
    auto get = [](CUdevice_attribute attribute) {
      int value = -1;
      EXPECT_EQ(cuDeviceGetAttribute(&value, attribute, 0), CUDA_SUCCESS);
      return value;
    };
    EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR), c.major);
    EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR), c.minor);
    EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN), c.shared);
    EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK), c.reserved);
    EXPECT_EQ(get(CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH), c.cluster);
    char name[64];
    EXPECT_EQ(cuDeviceGetName(name, sizeof name, 0), CUDA_SUCCESS);
    EXPECT_THAT(name, HasSubstr(c.target));
  }
}

TEST(Driver, EveryEntryIsFoundByName) {
  Device device("sm_80");
#define FOUND(name, symbol, parameters)                                                        \
  {                                                                                            \
    void* by_name = nullptr;                                                                   \
    EXPECT_EQ(cuGetProcAddress_v2(#name, &by_name, 13000, 0, nullptr), CUDA_SUCCESS) << #name; \
    EXPECT_EQ(by_name, reinterpret_cast<void*>(symbol));                                       \
  }
  TRIGEN_CUDA_ENTRIES(FOUND)
#undef FOUND
  void* none = nullptr;
  CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
  EXPECT_EQ(cuGetProcAddress_v2("cuNothing", &none, 13000, 0, &status), CUDA_ERROR_NOT_FOUND);
  EXPECT_EQ(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
}

TEST(Driver, MachineCodeIsRefused) {
  Device device("sm_80");
  CUmodule module = nullptr;
  CUlibrary library = nullptr;
  const char elf[] = "\177ELF\2\1\1";
  EXPECT_EQ(cuModuleLoadData(&module, elf), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_THAT(Device::error(), HasSubstr("load the PTX"));
  EXPECT_EQ(cuLibraryLoadData(&library, elf, nullptr, nullptr, 0, nullptr, nullptr, 0),
            CUDA_ERROR_NO_BINARY_FOR_GPU);
}

TEST(Driver, ErrorLogOfAFailedLoad) {
  Device device("sm_80");
  CUmodule module = nullptr;
  char log[256] = "";
  CUjit_option options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void* values[] = {log, reinterpret_cast<void*>(sizeof log)};
  std::string ptx = kernel_ptx("sm_80", {}, "nonsense %r1;");
  EXPECT_EQ(cuModuleLoadDataEx(&module, ptx.c_str(), 2, options, values), CUDA_ERROR_INVALID_PTX);
  EXPECT_THAT(log, HasSubstr("unknown instruction 'nonsense'"));
}

TEST(Driver, CaptureReplaysWork) {
  Device device("sm_70");
  device.load(kAdd);
  CUdeviceptr data = device.put(std::vector<int>(32, 0));
  CUstream stream = nullptr, side = nullptr;
  CUevent fork = nullptr, join = nullptr;
  CUgraph graph = nullptr;
  CUgraphExec executable = nullptr;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamCreate(&side, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&fork, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  ASSERT_EQ(cuEventCreate(&join, CU_EVENT_DISABLE_TIMING), CUDA_SUCCESS);
  unsigned add = 5;
  void* arguments[] = {&data, &add};
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  CUstreamCaptureStatus status;
  EXPECT_EQ(cuStreamIsCapturing(stream, &status), CUDA_SUCCESS);
  EXPECT_EQ(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EXPECT_EQ(cuLaunchKernel(device.function(), 1, 1, 1, 32, 1, 1, 0, stream, arguments, nullptr),
            CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(fork, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(side, fork, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuLaunchKernel(device.function(), 1, 1, 1, 32, 1, 1, 0, side, arguments, nullptr), CUDA_SUCCESS);
  EXPECT_EQ(cuEventRecord(join, side), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamWaitEvent(stream, join, 0), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamEndCapture(stream, &graph), CUDA_SUCCESS) << Device::error();
  size_t nodes = 0;
  EXPECT_EQ(cuGraphGetNodes(graph, nullptr, &nodes), CUDA_SUCCESS);
  EXPECT_EQ(nodes, 2u);
  EXPECT_EQ(device.get<int>(data, 1)[0], 0) << "a captured launch does not run";
  ASSERT_EQ(cuGraphInstantiateWithFlags(&executable, graph, 0), CUDA_SUCCESS);
  EXPECT_EQ(cuGraphDestroy(graph), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(cuGraphLaunch(executable, stream), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_SUCCESS);
  EXPECT_EQ(device.get<int>(data, 1)[0], 30);
  cuGraphExecDestroy(executable);
  cuEventDestroy_v2(fork);
  cuEventDestroy_v2(join);
  cuStreamDestroy_v2(side);
  cuStreamDestroy_v2(stream);
}

TEST(Driver, ForbiddenCallsInvalidateACapture) {
  Device device("sm_70");
  CUstream stream = nullptr;
  CUgraph graph = nullptr;
  CUdeviceptr pointer = 0;
  ASSERT_EQ(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuMemAlloc_v2(&pointer, 64), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ASSERT_EQ(cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_GLOBAL), CUDA_SUCCESS);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  EXPECT_EQ(cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(cuStreamBeginCapture_v2(nullptr, CU_STREAM_CAPTURE_MODE_GLOBAL),
            CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  cuStreamDestroy_v2(stream);
}

TEST(Driver, LaunchesAreChecked) {
  Device device("sm_70");
  device.load(kernel_ptx("sm_70", {}, "ret;", "", " .maxntid 128, 1, 1"));
  EXPECT_EQ(device.launch(1, 129, 0), CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
  EXPECT_EQ(device.launch(0, 32, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device.launch(1, 32, 98304), CUDA_SUCCESS);
  EXPECT_EQ(cuFuncSetAttribute(device.function(), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 98305),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_THAT(Device::error(), HasSubstr("sm_70 allows 98304 B"));
  CUlaunchAttribute cluster = {};
  cluster.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
  cluster.value.clusterDim = {2, 1, 1};
  CUlaunchConfig config = {2, 1, 1, 32, 1, 1, 0, nullptr, &cluster, 1};
  EXPECT_EQ(cuLaunchKernelEx(&config, device.function(), nullptr, nullptr), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(
      cuLaunchKernel(reinterpret_cast<CUfunction>(&config), 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr),
      CUDA_ERROR_INVALID_HANDLE);
}

TEST(Driver, LibrariesAndPackedParameters) {
  Device device("sm_80");
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_EQ(cuLibraryLoadData(&library, kAdd.c_str(), nullptr, nullptr, 0, nullptr, nullptr, 0), CUDA_SUCCESS)
      << Device::error();
  ASSERT_EQ(cuLibraryGetKernel(&kernel, library, "k"), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryGetKernel(&kernel, library, "other"), CUDA_ERROR_NOT_FOUND);
  CUdeviceptr data = device.put(std::vector<int>(32, 1));
  struct {
    CUdeviceptr data;
    unsigned add;
  } packed = {data, 41};
  size_t bytes = sizeof packed;
  void* extra[] = {kLaunchParamBufferPointer, &packed, kLaunchParamBufferSize, &bytes, kLaunchParamEnd};
  // A kernel handle stands for its function.
  EXPECT_EQ(
      cuLaunchKernel(reinterpret_cast<CUfunction>(kernel), 1, 1, 1, 32, 1, 1, 0, nullptr, nullptr, extra),
      CUDA_SUCCESS)
      << Device::error();
  EXPECT_EQ(device.get<int>(data, 32), std::vector<int>(32, 42));
  size_t offset = 0, size = 0;
  CUfunction function = nullptr;
  ASSERT_EQ(cuKernelGetFunction(&function, kernel), CUDA_SUCCESS);
  EXPECT_EQ(cuFuncGetParamInfo(function, 1, &offset, &size), CUDA_SUCCESS);
  EXPECT_EQ(offset, 8u);
  EXPECT_EQ(size, 4u);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_SUCCESS);
  EXPECT_EQ(cuLibraryUnload(library), CUDA_ERROR_INVALID_HANDLE);
}

TEST(Driver, GlobalsAndConstants) {
  Device device("sm_70");
  CUdeviceptr out = device.allocate(16);
  device.run(
      kernel_ptx(
          "sm_70", {"u64"},
          "ld.param.u64 %d1, [p0];\nld.const.u32 %r1, [table+4];\nst.global.u32 [%d1], %r1;\nmov.u64 %d2, "
          "counter;\nld.global.u32 %r2, [%d2];\nst.global.u32 [%d1+4], %r2;\nst.global.u32 [%d2], 99;",
          ".const .align 4 .u32 table[3] = {10, 20, 30};\n.visible .global .align 4 .u32 counter = 7;"),
      1, 1, 0, out);
  EXPECT_EQ(device.get<int>(out, 2), (std::vector<int>{20, 7}));
  CUdeviceptr counter = 0;
  size_t bytes = 0;
  ASSERT_EQ(cuModuleGetGlobal_v2(&counter, &bytes, device.module(), "counter"), CUDA_SUCCESS);
  EXPECT_EQ(bytes, 4u);
  EXPECT_EQ(device.get<int>(counter, 1)[0], 99);
}

// A compiler leaves a kernel with a hundred small variables.
TEST(Driver, LoadingAModuleAgainAndAgainKeepsNoMemory) {
  Device device("sm_70");
  std::string variables;
  for (int i = 0; i < 118; ++i)
    variables += ".global .align 4 .u32 v" + std::to_string(i) + " = " + std::to_string(i) + ";\n";
  const std::string text = kernel_ptx("sm_70", {"u64"}, "ld.global.u32 %r1, [v7];", variables);
  const auto resident = [] {
    size_t pages = 0;
    std::ifstream("/proc/self/statm").ignore(64, ' ') >> pages;
    return pages * 4096;
  };
  size_t before = 0;
  for (int load = 0; load < 350; ++load) {
    if (load == 200) before = resident();
    CUmodule module = nullptr;
    ASSERT_EQ(cuModuleLoadData(&module, text.c_str()), CUDA_SUCCESS) << Device::error();
    ASSERT_EQ(cuModuleUnload(module), CUDA_SUCCESS);
  }
  EXPECT_LT(resident(), before + (1 << 20)) << "150 loads";  // 37 MB, when each kept its pages
}

TEST(Driver, PointerAttributesAndHostMemory) {
  Device device("sm_70");
  CUdeviceptr data = device.allocate(100);
  unsigned type = 0;
  int ordinal = -1;
  EXPECT_EQ(cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, data + 50), CUDA_SUCCESS);
  EXPECT_EQ(type, static_cast<unsigned>(CU_MEMORYTYPE_DEVICE));
  EXPECT_EQ(cuPointerGetAttribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, data), CUDA_SUCCESS);
  EXPECT_EQ(ordinal, 0);
  int stack = 0;
  EXPECT_EQ(
      cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(&stack)),
      CUDA_ERROR_INVALID_VALUE);
  void* host = nullptr;
  ASSERT_EQ(cuMemAllocHost_v2(&host, 128), CUDA_SUCCESS);
  for (int i = 0; i < 32; ++i) static_cast<int*>(host)[i] = i;
  device.run(kAdd, 1, 32, 0, reinterpret_cast<CUdeviceptr>(host), 100u);
  EXPECT_EQ(static_cast<int*>(host)[31], 131);
  EXPECT_EQ(cuMemFreeHost(host), CUDA_SUCCESS);
}

TEST(Driver, StreamsKeepPriorityAndEventsTime) {
  Device device("sm_70");
  CUstream stream = nullptr;
  CUevent start = nullptr, end = nullptr;
  ASSERT_EQ(cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -9), CUDA_SUCCESS);
  int priority = 0;
  EXPECT_EQ(cuStreamGetPriority(stream, &priority), CUDA_SUCCESS);
  EXPECT_EQ(priority, -5) << "clamped to the range";
  cuEventCreate(&start, CU_EVENT_DEFAULT);
  cuEventCreate(&end, CU_EVENT_DEFAULT);
  EXPECT_EQ(cuEventRecord(start, stream), CUDA_SUCCESS);
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(cuEventRecord(end, stream), CUDA_SUCCESS);
  float milliseconds = 0;
  EXPECT_EQ(cuEventElapsedTime(&milliseconds, start, end), CUDA_SUCCESS);
  EXPECT_GE(milliseconds, 5.0f);
  cuEventDestroy_v2(start);
  cuEventDestroy_v2(end);
  cuStreamDestroy_v2(stream);
  EXPECT_EQ(cuStreamSynchronize(stream), CUDA_ERROR_INVALID_HANDLE);
}

TEST(Driver, SizesThatWrapAreRefused) {
  Device device("sm_70");
  const CUdeviceptr at = device.put(std::vector<uint32_t>(64, 7));
  std::vector<uint32_t> host(64);
  for (const size_type bytes : std::vector<size_type>{~size_type{0}, ~at, ~at - 255, 257}) {
    EXPECT_EQ(cuMemcpyDtoH_v2(host.data(), at, bytes), CUDA_ERROR_INVALID_VALUE) << bytes;
    EXPECT_EQ(cuMemcpyHtoD_v2(at, host.data(), bytes), CUDA_ERROR_INVALID_VALUE) << bytes;
    EXPECT_EQ(cuMemsetD8_v2(at, 0, bytes), CUDA_ERROR_INVALID_VALUE) << bytes;
    EXPECT_EQ(trigen_emulator_forget(at, bytes), -1) << bytes;
  }
  EXPECT_EQ(cuMemsetD32_v2(at, 0, size_type{1} << 62), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD32_v2(at, 0, (size_type{1} << 62) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuMemsetD16_v2(at, 0, (size_type{1} << 63) + 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(device.get<uint32_t>(at, 64), std::vector<uint32_t>(64, 7));
}

// In a child: a launch in a process that gets no more of `what`; how it ended.
std::string launched_with(const std::function<void()>& limit, CUresult expected, const std::string& text) {
  Child child([&](const std::function<void()>&) -> std::string {
    Device device("sm_70", "threads=8");
    const CUdeviceptr at = device.put(std::vector<uint32_t>(32, 7));
    device.load(kernel_ptx("sm_70", {"u64"}, "ld.param.u64 %d1, [p0];\nld.global.u32 %r3, [%d1];"));
    limit();
    const CUresult got = device.launch(64, 32, 0, at);
    const std::string said = Device::error();
    if (got != expected || said.find(text) == std::string::npos)
      return "gave " + std::to_string(got) + " " + said + device.reports().dump();
    return ::testing::Test::HasFailure() ? "a call failed" : "";
  });
  return child.join();
}

TEST(Driver, NoAddressSpaceIsAnErrorWithAText) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "[SKIP] the address sanitizer needs the address space";
#endif
  const auto limit = [] {
    const rlimit little{rlim_t{1} << 30, rlim_t{1} << 30};  // what is mapped stays
    EXPECT_EQ(setrlimit(RLIMIT_AS, &little), 0);
  };
  EXPECT_EQ(launched_with(limit, CUDA_ERROR_OUT_OF_MEMORY, "raise `ulimit -v`"), "");
}

TEST(Driver, WithoutThreadsALaunchRunsOnTheCallers) {
  const auto limit = [] {
    const rlimit one{1, 1};
    EXPECT_EQ(setrlimit(RLIMIT_NPROC, &one), 0);
    if (geteuid() == 0) {  // root has no such limit
      EXPECT_EQ(setuid(65534), 0);
    }
    try {
      std::thread([] {}).join();
      ADD_FAILURE() << "the limit holds nothing";
    } catch (const std::system_error&) {
    }
  };
  EXPECT_EQ(launched_with(limit, CUDA_SUCCESS, ""), "");
}

TEST(Driver, OptionsAreChecked) {
  EXPECT_EQ(trigen_emulator_configure("target=sm_42"), -1);
  EXPECT_THAT(Device::error(), HasSubstr("unknown target 'sm_42', known: sm_70"));
  for (const char* wrong : {"async=never", "async=random:", "async=random:zz", "async=randomly",
                            "async=shuffled:", "async=late:1"})
    EXPECT_EQ(trigen_emulator_configure(wrong), -1) << wrong;
  for (const char* right : {"async=shuffled:3", "async=shuffled", "async=random:7", "async=late"})
    EXPECT_EQ(trigen_emulator_configure(right), 0) << right;
  EXPECT_EQ(trigen_emulator_configure("devices=0"), -1);
  EXPECT_EQ(trigen_emulator_configure("checks=all,-races"), 0);
}

}  // namespace
}  // namespace trigen::testing
