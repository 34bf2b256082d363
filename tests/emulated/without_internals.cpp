#include "without_internals.h"

#include <gtest/gtest.h>

#include "../unit/runtime_testing.h"
#include "runtime/device.h"
#include "test_driver.h"

namespace trigen::testing {

static const Driver* loaded;

bool has_emulated_device(const char* target) {
  loaded = load_test_driver(target);
  return loaded != nullptr;
}

bool has_compiler(const char* target) { return real_nvrtc(target) != nullptr; }

void capture_and_replay(const std::function<void(void*)>& run, const std::function<void()>& captured) {
  const DriverApi& api = loaded->api();
  const ContextScope scope(api, llvm::cantFail(llvm::cantFail(Device::open(*loaded, 0))->context()));
  cuda::CUstream stream = nullptr;
  cuda::CUgraph graph = nullptr;
  cuda::CUgraphExec executable = nullptr;
  ASSERT_EQ(api.cuStreamCreate(&stream, cuda::CU_STREAM_NON_BLOCKING), cuda::CUDA_SUCCESS);
  ASSERT_EQ(api.cuStreamBeginCapture(stream, cuda::CU_STREAM_CAPTURE_MODE_GLOBAL), cuda::CUDA_SUCCESS);
  run(stream);
  ASSERT_EQ(api.cuStreamEndCapture(stream, &graph), cuda::CUDA_SUCCESS);
  captured();
  ASSERT_EQ(api.cuGraphInstantiateWithFlags(&executable, graph, 0), cuda::CUDA_SUCCESS);
  ASSERT_EQ(api.cuGraphLaunch(executable, stream), cuda::CUDA_SUCCESS);
  ASSERT_EQ(api.cuStreamSynchronize(stream), cuda::CUDA_SUCCESS);
  api.cuGraphExecDestroy(executable);
  api.cuGraphDestroy(graph);
  api.cuStreamDestroy(stream);
}

}  // namespace trigen::testing
