// Plans through libtrigen.so for tests: a driver, device memory, a product with exact sums, and what they made
// freed again. On two emulated devices of sm_70, or (with TRIGEN_TEST_GPU=1) on this machine's GPUs.
#pragma once

#include <gtest/gtest.h>
#include <trigen/trigen.h>

#include <cmath>
#include <memory>
#include <vector>

#include "../unit/runtime_testing.h"
#include "cache/store.h"
#include "runtime/device.h"
#include "test_driver.h"

namespace trigen::testing {

inline constexpr const char* kForward = "forward,dtype=f32,B=2,T=20,D=12";

// The driver that libtrigen.so uses too: one library in the process. Null on a machine without a GPU.
inline const Driver* find_driver() {
  static const Driver* const driver = [] {
    if (!kOnGpu) ::setenv("TRIGEN_EMULATED_DEVICES", "2", 1);
    return load_test_driver("sm_70");
  }();
  return driver;
}
inline const Driver& driver() { return *find_driver(); }
inline const Target& own_target() { return llvm::cantFail(Device::open(driver(), 0))->target(); }
inline const DriverApi& api() { return driver().api(); }

#define ASSERT_CUDA(call) ASSERT_EQ((call), cuda::CUDA_SUCCESS)

class Memory {
 public:
  Memory(int ordinal, size_t bytes)
      : context_(llvm::cantFail(llvm::cantFail(Device::open(driver(), ordinal))->context())), bytes_(bytes) {
    const ContextScope scope(api(), context_);
    EXPECT_EQ(api().cuMemAlloc(&pointer_, bytes), cuda::CUDA_SUCCESS);
  }
  ~Memory() {
    const ContextScope scope(api(), context_);
    api().cuMemFree(pointer_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* get() const { return reinterpret_cast<void*>(pointer_); }
  void put(const std::vector<float>& values) {
    const ContextScope scope(api(), context_);
    EXPECT_EQ(api().cuMemcpyHtoD(pointer_, values.data(), values.size() * 4), cuda::CUDA_SUCCESS);
  }
  std::vector<float> take() {
    const ContextScope scope(api(), context_);
    std::vector<float> values(bytes_ / 4);
    EXPECT_EQ(api().cuCtxSynchronize(), cuda::CUDA_SUCCESS);
    EXPECT_EQ(api().cuMemcpyDtoH(values.data(), pointer_, bytes_), cuda::CUDA_SUCCESS);
    return values;
  }

 private:
  cuda::CUcontext context_;
  size_t bytes_;
  cuda::CUdeviceptr pointer_ = 0;
};

// forward,dtype=f32,B=2,T=20,D=12 with small integers, whose sums are exact.
struct Forward {
  static constexpr int B = 2, T = 20, D = 12;
  std::vector<float> x, w, expected;
  Memory dx, dw, dy;
  explicit Forward(int ordinal = 0)
      : x(B * T * D),
        w(T * T, NAN),
        expected(B * T * D),
        dx(ordinal, x.size() * 4),
        dw(ordinal, w.size() * 4),
        dy(ordinal, x.size() * 4) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(static_cast<int>(i * 7 % 11) - 5);
    for (int t = 0; t < T; ++t)
      for (int s = 0; s <= t; ++s) w[t * T + s] = static_cast<float>((t * 3 + s * 5) % 9 - 4);
    for (int b = 0; b < B; ++b)
      for (int t = 0; t < T; ++t)
        for (int s = 0; s <= t; ++s)
          for (int d = 0; d < D; ++d) expected[(b * T + t) * D + d] += w[t * T + s] * x[(b * T + s) * D + d];
    dx.put(x);
    dw.put(w);
    dy.put(std::vector<float>(x.size(), NAN));
  }
  trigen_args args() const {
    trigen_args args = TRIGEN_ARGS_INIT;
    args.x.data = dx.get();
    args.w = dw.get();
    args.y.data = dy.get();
    return args;
  }
};

class PlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_driver() == nullptr)
      GTEST_SKIP() << "[SKIP] " << probe_driver(kOnGpu ? "" : "emulated:sm_70").text;
    if (real_nvrtc(own_target().name.data()) == nullptr)
      GTEST_SKIP() << "[SKIP] no NVRTC that makes " << own_target().name.str() << "; set TRIGEN_NVRTC";
  }
  void TearDown() override {
    for (trigen_plan* plan : plans_) trigen_plan_destroy(plan);
    for (trigen_runtime* runtime : runtimes_) trigen_runtime_destroy(runtime);
  }

  trigen_runtime_options options() {
    trigen_runtime_options options = TRIGEN_RUNTIME_OPTIONS_INIT;
    cache_ = folder_ / "cache.db";
    layer_ = cache_.c_str();
    options.layers = &layer_;
    options.layer_count = 1;
    options.driver = driver().path().c_str();
    return options;
  }
  trigen_runtime* runtime(const trigen_runtime_options& given) {
    trigen_runtime* made = nullptr;
    EXPECT_EQ(trigen_runtime_create(&given, &made), TRIGEN_OK) << trigen_last_error();
    runtimes_.push_back(made);
    return made;
  }
  trigen_status try_plan(trigen_runtime* runtime, const char* text, int device, trigen_plan** plan) {
    trigen_problem problem;
    problem.struct_size = sizeof problem;
    EXPECT_EQ(trigen_problem_parse(text, &problem), TRIGEN_OK) << trigen_last_error();
    const trigen_status status = trigen_plan_create(runtime, &problem, device, plan);
    if (*plan != nullptr) plans_.push_back(*plan);
    return status;
  }
  trigen_plan* plan(trigen_runtime* runtime, const char* text, int device = 0) {
    trigen_plan* made = nullptr;
    EXPECT_EQ(try_plan(runtime, text, device, &made), TRIGEN_OK) << trigen_last_error();
    return made;
  }
  trigen_plan_info info(const trigen_plan* plan) {
    trigen_plan_info info{};
    info.struct_size = sizeof info;
    EXPECT_EQ(trigen_plan_describe(plan, &info), TRIGEN_OK);
    return info;
  }
  std::string refusal(const trigen_plan* plan, const trigen_args& args, void* stream = nullptr,
                      trigen_status status = TRIGEN_BAD_REQUEST) {
    EXPECT_EQ(trigen_plan_run(plan, &args, stream), status);
    return trigen_last_error();
  }
  std::unique_ptr<Store> store() {
    Store::Options options;
    options.layers = {folder_ / "cache.db"};
    return Store::open(options);
  }

  Folder folder_;
  std::string cache_;
  const char* layer_ = nullptr;
  std::vector<trigen_plan*> plans_;
  std::vector<trigen_runtime*> runtimes_;
};

}  // namespace trigen::testing
