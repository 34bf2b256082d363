// Counts and times what is asked of a driver: each entry of its table is replaced by one that notes the call.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <string>
#include <vector>

#include "runtime/driver.h"

namespace trigen {

class DriverCalls {
 public:
  struct Entry {
    const char* name;
    int64_t calls, nanoseconds;
  };
  // For the rest of the process; of one driver.
  static void watch(const Driver& driver) {
    auto& api = const_cast<DriverApi&>(driver.api());
#define TRIGEN_WATCH(name, symbol, parameters) Watched<k_##name, cuda::fn::name>::install(api.name);
    TRIGEN_CUDA_ENTRIES(TRIGEN_WATCH)
#undef TRIGEN_WATCH
    Watched<kFuncLoad, cuda::CUresult(cuda::CUfunction)>::install(api.cuFuncLoad);
  }
  static void clear() {
    for (Count& count : counts()) count.calls = count.failed = count.nanoseconds = 0;
  }
  // Entries that were called, the longest first.
  static std::vector<Entry> list() {
    std::vector<Entry> entries;
    for (size_t i = 0; i < kEntries; ++i)
      if (counts()[i].calls > 0) entries.push_back({kNames[i], counts()[i].calls, counts()[i].nanoseconds});
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.nanoseconds > b.nanoseconds; });
    return entries;
  }
  // Calls that returned an error, "cuInit 1, cuMemAlloc 2"; "" for none. compute-sanitizer reports each.
  static std::string failed() {
    std::string all;
    for (size_t i = 0; i < kEntries; ++i)
      if (counts()[i].failed > 0)
        all += (all.empty() ? "" : ", ") + std::string(kNames[i]) + " " + std::to_string(counts()[i].failed);
    return all;
  }
  static int64_t calls(const std::string& name) {
    for (const Entry& entry : list())
      if (entry.name == name) return entry.calls;
    return 0;
  }

 private:
  enum Index : size_t {
#define TRIGEN_INDEX_OF(name, symbol, parameters) k_##name,
    TRIGEN_CUDA_ENTRIES(TRIGEN_INDEX_OF)
#undef TRIGEN_INDEX_OF
        kFuncLoad,
    kEntries
  };
  static constexpr const char* kNames[kEntries] = {
#define TRIGEN_NAME_OF(name, symbol, parameters) #name,
      TRIGEN_CUDA_ENTRIES(TRIGEN_NAME_OF)
#undef TRIGEN_NAME_OF
          "cuFuncLoad"};
  struct Count {
    std::atomic<int64_t> calls{0}, failed{0}, nanoseconds{0};
  };
  static std::array<Count, kEntries>& counts() {
    static std::array<Count, kEntries> counts;
    return counts;
  }

  template <Index index, class Function>
  struct Watched;
  template <Index index, class... Arguments>
  struct Watched<index, cuda::CUresult(Arguments...)> {
    static inline cuda::CUresult (*real)(Arguments...) = nullptr;
    static cuda::CUresult call(Arguments... arguments) {
      const auto since = std::chrono::steady_clock::now();
      const cuda::CUresult result = real(arguments...);
      const auto took = std::chrono::steady_clock::now() - since;
      counts()[index].nanoseconds += std::chrono::duration_cast<std::chrono::nanoseconds>(took).count();
      ++counts()[index].calls;
      if (result != cuda::CUDA_SUCCESS) ++counts()[index].failed;
      return result;
    }
    static void install(cuda::CUresult (*&entry)(Arguments...)) {
      if (entry == nullptr || entry == call) return;
      real = entry;
      entry = call;
    }
  };
};

}  // namespace trigen
