// The property that holds for any bytes that the emulated device gets as a module: it refuses them, or runs their kernels to an
// end, with a fault or without. Whatever else it does is a crash, a sanitizer's report or a hang. Shared by the seeded
// test and the libFuzzer program.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "cuda_entries.h"
#include "emulator/emulator_api.h"

namespace trigen::cuda {
extern "C" {
#define TRIGEN_CUDA_DECLARE(name, symbol, parameters) CUresult symbol parameters;
TRIGEN_CUDA_ENTRIES(TRIGEN_CUDA_DECLARE)
#undef TRIGEN_CUDA_DECLARE
}
}  // namespace trigen::cuda

namespace trigen::fuzz {

// Kernels that loop end at the limit of steps; one launch of a block takes under a millisecond.
inline constexpr const char* kEmulatedOptions =
    "target=sm_90a devices=1 threads=1 reports=quiet steps=1000000";
inline constexpr size_t kMostText = 16 << 10;  // so no more parameters than kParameters

class EmulatedModules {
 public:
  enum class Answer { kRefused, kFaulted, kRan };

  // False: no emulated device here (a processor without AVX2).
  bool open() {
    return trigen_emulator_configure(kEmulatedOptions) == 0 && cuda::cuInit(0) == cuda::CUDA_SUCCESS;
  }

  Answer run(const std::string& text) {
    using namespace cuda;
    if (text.size() > kMostText) return Answer::kRefused;
    CUcontext context = nullptr;
    if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS || cuCtxSetCurrent(context) != CUDA_SUCCESS)
      return Answer::kRefused;
    const Answer answer = run_in_context(text);
    cuDevicePrimaryCtxRelease_v2(0);  // forgets a fault
    trigen_emulator_clear_reports(0);
    return answer;
  }

 private:
  static constexpr size_t kParameters = kMostText / 2;

  Answer run_in_context(const std::string& text) {
    using namespace cuda;
    CUmodule module = nullptr;
    if (cuModuleLoadData(&module, text.c_str()) != CUDA_SUCCESS) return Answer::kRefused;
    CUdeviceptr memory = 0;
    CUfunction kernel = nullptr;
    Answer answer = Answer::kFaulted;
    if (cuMemAlloc_v2(&memory, 4096) == CUDA_SUCCESS &&
        cuMemsetD32_v2(memory, 0x3c003c00, 1024) == CUDA_SUCCESS &&
        cuModuleGetFunction(&kernel, module, "k") == CUDA_SUCCESS) {
      std::vector<CUdeviceptr> value(32764 / sizeof(CUdeviceptr) + 1, memory);  // as large as any parameter
      std::vector<void*> parameters(kParameters, value.data());
      for (const unsigned threads : {64u, 128u})
        if (cuLaunchKernel(kernel, 1, 1, 1, threads, 1, 1, 1024, nullptr, parameters.data(), nullptr) ==
                CUDA_SUCCESS &&
            cuCtxSynchronize() == CUDA_SUCCESS)
          answer = Answer::kRan;
    }
    if (memory != 0) cuMemFree_v2(memory);
    cuModuleUnload(module);
    return answer;
  }
};

}  // namespace trigen::fuzz
