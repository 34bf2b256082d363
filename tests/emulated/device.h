// An emulated device for one test: context, memory, PTX text in, numbers, reports and counters out.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
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

namespace trigen::testing {

using namespace trigen::cuda;

/// A module with one kernel `k`. `parameters`: comma-separated declarations' types, named p0, p1 ...; the
/// body may use %p<..> %h<..> %r<..> %f<..> %d<..> (predicates, 16, 32, float 32 and 64 bits), 32 of each.
inline std::string kernel_ptx(const std::string& target, const std::vector<std::string>& parameters,
                              const std::string& body, const std::string& globals = "",
                              const std::string& directives = "") {
  std::string text =
      ".version 8.6\n.target " + target + "\n.address_size 64\n" + globals + "\n.visible .entry k(";
  for (size_t i = 0; i < parameters.size(); ++i)
    text += (i != 0 ? ", " : "") + (".param ." + parameters[i]) + " p" + std::to_string(i);
  return text + ")" + directives +
         " {\n.reg .pred %p<32>;\n.reg .b16 %h<32>;\n.reg .b32 %r<64>;\n.reg .f32 %f<64>;\n.reg .b64 "
         "%d<64>;\n" +
         body + "\nret;\n}\n";
}

class Device {
 public:
  explicit Device(const std::string& target, const std::string& options = "") {
    EXPECT_EQ(trigen_emulator_configure(
                  ("target=" + target +
                   " devices=1 threads=0 async=late lanes=order checks=all reports=fail " + options)
                      .c_str()),
              0)
        << error();
    EXPECT_EQ(cuInit(0), CUDA_SUCCESS) << error();
    EXPECT_EQ(cuDevicePrimaryCtxRetain(&context_, 0), CUDA_SUCCESS);
    EXPECT_EQ(cuCtxSetCurrent(context_), CUDA_SUCCESS);
    trigen_emulator_clear_reports(0);
    trigen_emulator_reset_counters(0);
  }
  ~Device() {
    trigen_emulator_clear_reports(0);
    if (module_ != nullptr) cuModuleUnload(module_);
    for (CUdeviceptr pointer : memory_) cuMemFree_v2(pointer);
    cuDevicePrimaryCtxRelease_v2(0);
    cuCtxSetCurrent(nullptr);
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  static std::string error() { return trigen_emulator_last_error(); }

  CUdeviceptr allocate(size_t bytes) {
    CUdeviceptr pointer = 0;
    EXPECT_EQ(cuMemAlloc_v2(&pointer, bytes), CUDA_SUCCESS) << error();
    memory_.push_back(pointer);
    return pointer;
  }
  void release(CUdeviceptr pointer) {
    std::erase(memory_, pointer);
    EXPECT_EQ(cuMemFree_v2(pointer), CUDA_SUCCESS);
  }
  template <class T>
  CUdeviceptr put(const std::vector<T>& values) {
    CUdeviceptr pointer = allocate(values.size() * sizeof(T));
    EXPECT_EQ(cuMemcpyHtoD_v2(pointer, values.data(), values.size() * sizeof(T)), CUDA_SUCCESS);
    return pointer;
  }
  template <class T>
  std::vector<T> get(CUdeviceptr pointer, size_t count) {
    std::vector<T> values(count);
    EXPECT_EQ(cuMemcpyDtoH_v2(values.data(), pointer, count * sizeof(T)), CUDA_SUCCESS)
        << error() << reports().dump();
    return values;
  }

  CUfunction load(const std::string& ptx) {
    if (module_ != nullptr) cuModuleUnload(module_);
    module_ = nullptr;
    function_ = nullptr;
    EXPECT_EQ(cuModuleLoadData(&module_, ptx.c_str()), CUDA_SUCCESS) << error();
    if (module_ != nullptr) {
      EXPECT_EQ(cuModuleGetFunction(&function_, module_, "k"), CUDA_SUCCESS) << error();
    }
    return function_;
  }
  /// Launches `k`; all arguments are passed with their own size.
  template <class... Args>
  CUresult launch(unsigned blocks, unsigned threads, unsigned shared, Args... args) {
    if (function_ == nullptr) return CUDA_ERROR_INVALID_HANDLE;
    void* pointers[] = {static_cast<void*>(&args)..., nullptr};
    if (shared > 0)
      cuFuncSetAttribute(function_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                         static_cast<int>(shared));
    CUresult result =
        cuLaunchKernel(function_, blocks, 1, 1, threads, 1, 1, shared, nullptr, pointers, nullptr);
    return result != CUDA_SUCCESS ? result : cuCtxSynchronize();
  }
  /// Loads and launches, and expects no fault.
  template <class... Args>
  void run(const std::string& ptx, unsigned blocks, unsigned threads, unsigned shared, Args... args) {
    load(ptx);
    EXPECT_EQ(launch(blocks, threads, shared, args...), CUDA_SUCCESS) << error() << "\n" << reports().dump(1);
  }

  nlohmann::json reports() const { return nlohmann::json::parse(read(trigen_emulator_reports)); }
  nlohmann::json counters() const {
    return nlohmann::json::parse(read(trigen_emulator_counters))["kernels"]["k"];
  }
  CUfunction function() const { return function_; }
  CUmodule module() const { return module_; }

 private:
  static std::string read(unsigned long long (*entry)(int, char*, unsigned long long)) {
    std::string text(entry(0, nullptr, 0), 0);
    entry(0, text.data(), text.size());
    text.pop_back();
    return text;
  }

  CUcontext context_ = nullptr;
  CUmodule module_ = nullptr;
  CUfunction function_ = nullptr;
  std::vector<CUdeviceptr> memory_;
};

}  // namespace trigen::testing
