// The emulated driver's state: devices, contexts, streams, modules. Entries are in driver_*.cpp, one file per
// API chapter.
#pragma once

#include <chrono>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <unordered_set>
#include <vector>

#include "cuda_entries.h"
#include "emulator/block.h"
#include "emulator/device_table.h"
#include "emulator/launch.h"

#define TRIGEN_ENTRY extern "C" __attribute__((visibility("default")))
// Ends an entry that may allocate: `TRIGEN_ENTRY CUresult cuName(...) try { ... } TRIGEN_CATCH`.
#define TRIGEN_CATCH \
  catch (...) {      \
    return caught(); \
  }

namespace trigen::cuda {

// The entries under their exported names.
extern "C" {
// NOLINTNEXTLINE(bugprone-macro-parentheses): declarations
#define TRIGEN_CUDA_DECLARE(name, symbol, parameters) CUresult symbol parameters;
TRIGEN_CUDA_ENTRIES(TRIGEN_CUDA_DECLARE)
#undef TRIGEN_CUDA_DECLARE
}

struct CUctx_st {
  int device = 0;
  int retained = 0;                // primary context: how often
  CUresult sticky = CUDA_SUCCESS;  // a failed launch makes every later call fail
  std::string sticky_text;         // why
  std::map<int, size_type> limits;
};

struct Capture;

struct CUstream_st {
  CUctx_st* context = nullptr;
  unsigned flags = 0;
  int priority = 0;
  unsigned long long id = 0;
  Capture* capture = nullptr;
};

struct CUevent_st {
  unsigned flags = 0;
  bool recorded = false;
  std::chrono::steady_clock::time_point time;
  Capture* capture = nullptr;  // recorded in a capturing stream
  CUstream_st* capture_stream = nullptr;
};

struct CUgraphNode_st {
  std::function<CUresult()> run;
};

struct CUgraph_st {
  std::vector<std::shared_ptr<CUgraphNode_st>>
      nodes;  // in the order of capture, which respects all dependencies
};

struct CUgraphExec_st {
  std::vector<std::shared_ptr<CUgraphNode_st>> nodes;
};

struct Capture {
  CUstream_st* origin = nullptr;
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  std::set<CUstream_st*> forked;  // streams that joined by waiting on an event and have not been waited for
  bool invalid = false;
  unsigned long long id = 0;
};

struct CUfunc_st {
  CUmod_st* module = nullptr;
  std::unique_ptr<emulator::Program> program;
  int max_dynamic_shared = 0;  // what cuFuncSetAttribute allows
  int non_portable_cluster = 0;
  int carveout = -1;
};

struct CUmod_st {
  CUctx_st* context = nullptr;
  std::map<std::string, std::unique_ptr<CUfunc_st>> functions;
  std::map<std::string, std::pair<CUdeviceptr, size_type>> globals;
  int ptx_version = 0;  // 80 for 8.0
  int ptx_target = 0;
  bool arch_specific = false;  // sm_90a
};

struct CUkern_st {
  CUlib_st* library = nullptr;
  std::string name;
};

// A library belongs to no context: its module is loaded into a context when a function of it is first asked
// for there.
struct CUlib_st {
  std::string image;
  std::map<CUctx_st*, std::unique_ptr<CUmod_st>> modules;
  std::map<std::string, std::unique_ptr<CUkern_st>> kernels;
  std::map<std::pair<std::string, int>, int> attributes;  // set on kernels, for modules that come later
};

}  // namespace trigen::cuda

namespace trigen::emulator {

struct Device {
  int ordinal = 0;
  const DeviceModel* model = nullptr;
  std::unique_ptr<DeviceMemory> memory;
  cuda::CUctx_st primary;
  cuda::CUstream_st default_stream;
  ReportLog log;
  std::map<std::string, std::pair<uint64_t, Counters>> counters;  // by kernel: launches, sums
  uint64_t launches = 0;
  LaunchesBefore running;  // what an early launch may overlap, until something waits for it
  const cuda::CUstream_st* last_stream = nullptr;
};

struct Driver {
  std::recursive_mutex mutex;  // one API call at a time; launches run inside
  bool initialised = false;
  Options options = options_from_environment();
  DeviceModel model{};  // of its devices
  std::vector<std::unique_ptr<Device>> devices;
  std::unordered_set<void*> streams, events, modules, functions, libraries, kernels, graphs, executables;
  std::list<std::unique_ptr<cuda::Capture>> captures;
  unsigned long long next_id = 1;

  /// Every launch has ended: the next ones overlap none of them.
  void settle() {
    for (const auto& each : devices) each->running.clear();
  }
  Device* device(int ordinal) {
    return ordinal >= 0 && ordinal < static_cast<int>(devices.size())
               ? devices[static_cast<size_t>(ordinal)].get()
               : nullptr;
  }
  Device* device_of_address(uint64_t address) {
    for (auto& candidate : devices)
      if (candidate->memory->contains(address)) return candidate.get();
    return nullptr;
  }
};

Driver& driver();

/// This thread's context stack and last error text.
struct ThreadState {
  std::vector<cuda::CUctx_st*> contexts;
  std::string error;
  cuda::CUstreamCaptureMode capture_mode = cuda::CU_STREAM_CAPTURE_MODE_GLOBAL;
};
ThreadState& thread_state();

/// Sets the thread's error text and returns the code.
cuda::CUresult fail(cuda::CUresult code, const std::string& text);
/// fail() for the exception being handled, which never leaves an entry.
cuda::CUresult caught() noexcept;
/// The current context, or an error code when the driver is not initialised, no context is current, or it is
/// broken.
cuda::CUresult current_context(cuda::CUctx_st** context);
/// nullptr and the special values become the device's default stream; checks the handle.
cuda::CUresult resolve_stream(cuda::CUstream handle, cuda::CUstream_st** stream);
/// Runs `work` now, or adds it to the graph that the stream captures.
cuda::CUresult submit(cuda::CUstream_st* stream, std::function<cuda::CUresult()> work);
/// An error when a capture in progress forbids calls that might synchronise (allocation, blocking copies,
/// module loads).
cuda::CUresult refuse_during_capture(const char* call);

/// Loads PTX into a context. On failure the text goes to `log`.
cuda::CUresult load_module(cuda::CUctx_st* context, const void* image,
                           std::unique_ptr<cuda::CUmod_st>* module, std::string* log);
void unload_module(cuda::CUmod_st* module);
cuda::CUresult function_attribute(const cuda::CUfunc_st& function, cuda::CUfunction_attribute attribute,
                                  int* value);
cuda::CUresult set_function_attribute(cuda::CUfunc_st& function, cuda::CUfunction_attribute attribute,
                                      int value);
/// The function of a CUfunction, or of a CUkernel passed in its place as the driver allows; nullptr for a bad
/// handle.
cuda::CUfunc_st* find_function(cuda::CUfunction handle);

}  // namespace trigen::emulator
