// Kernel launches and occupancy.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "emulator/driver.h"

using namespace trigen::cuda;
using namespace trigen::emulator;

namespace {

struct Request {
  CUfunc_st* function = nullptr;
  uint32_t grid[3], threads[3], cluster[3] = {1, 1, 1};
  bool explicit_cluster = false;
  bool overlaps = false;  // may begin before the stream's launch before it has ended
  const CUstream_st* stream = nullptr;
  uint32_t shared = 0;
  std::vector<uint8_t> parameters;
};

CUresult check_request(Request& request) {
  const Program& program = *request.function->program;
  const DeviceModel& model = *driver().device(request.function->module->context->device)->model;
  const char* axis = "xyz";
  uint64_t threads = 1, cluster = 1;
  if (!request.explicit_cluster && program.required_cluster[0] != 0) {
    std::copy(program.required_cluster, program.required_cluster + 3, request.cluster);
    request.explicit_cluster = true;
  }
  for (int i = 0; i < 3; ++i) {
    uint32_t limit = i == 0 ? 2147483647u : 65535u;
    if (request.grid[i] == 0 || request.grid[i] > limit)
      return fail(CUDA_ERROR_INVALID_VALUE, std::string("grid.") + axis[i] + " is " +
                                                std::to_string(request.grid[i]) + ", allowed are 1 to " +
                                                std::to_string(limit));
    if (request.threads[i] == 0 || request.threads[i] > (i == 2 ? 64u : 1024u))
      return fail(CUDA_ERROR_INVALID_VALUE,
                  std::string("block.") + axis[i] + " is " + std::to_string(request.threads[i]));
    if (program.required_threads[0] != 0 && request.threads[i] != std::max(1u, program.required_threads[i]))
      return fail(CUDA_ERROR_INVALID_VALUE,
                  std::string("block.") + axis[i] + " is " + std::to_string(request.threads[i]) +
                      ", the kernel requires " + std::to_string(program.required_threads[i]));
    if (request.cluster[i] == 0 || request.grid[i] % request.cluster[i] != 0)
      return fail(CUDA_ERROR_INVALID_CLUSTER_SIZE,
                  std::string("grid.") + axis[i] + " = " + std::to_string(request.grid[i]) +
                      " is not a multiple of the cluster's " + std::to_string(request.cluster[i]));
    threads *= request.threads[i];
    cluster *= request.cluster[i];
  }
  if (threads > 1024 || threads > program.max_threads)
    return fail(threads > 1024 ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES,
                std::to_string(threads) + " threads in a block, the kernel allows " +
                    std::to_string(std::min(1024u, program.max_threads)));
  if (cluster > 1 || request.explicit_cluster) {
    if (model.capability < 90)
      return fail(CUDA_ERROR_INVALID_CLUSTER_SIZE, std::string(model.target) + " has no clusters");
    uint64_t most =
        request.function->non_portable_cluster != 0 ? static_cast<uint64_t>(max_cluster_size(model)) : 8;
    if (cluster > most)
      return fail(CUDA_ERROR_INVALID_CLUSTER_SIZE,
                  std::to_string(cluster) + " blocks in a cluster, allowed are " + std::to_string(most));
  }
  int allowed = 0;
  function_attribute(*request.function, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, &allowed);
  if (request.shared > static_cast<uint32_t>(allowed))
    return fail(CUDA_ERROR_INVALID_VALUE,
                std::to_string(request.shared) + " B of dynamic shared memory, " + std::to_string(allowed) +
                    " B are allowed; raise CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES");
  return CUDA_SUCCESS;
}

CUresult read_parameters(const Program& program, void** parameters, void** extra,
                         std::vector<uint8_t>* buffer) {
  buffer->assign(program.parameter_bytes, 0);
  if (parameters != nullptr) {
    for (const ParameterLayout& parameter : program.parameters)
      std::memcpy(buffer->data() + parameter.offset, parameters[&parameter - program.parameters.data()],
                  parameter.bytes);
    return CUDA_SUCCESS;
  }
  if (extra == nullptr)
    return program.parameters.empty() ? CUDA_SUCCESS
                                      : fail(CUDA_ERROR_INVALID_VALUE, "the kernel's parameters are missing");
  const void* from = nullptr;
  size_type bytes = 0;
  for (; *extra != kLaunchParamEnd; extra += 2) {
    if (*extra == kLaunchParamBufferPointer)
      from = extra[1];
    else if (*extra == kLaunchParamBufferSize)
      bytes = *static_cast<size_type*>(extra[1]);
    else
      return fail(CUDA_ERROR_INVALID_VALUE, "unknown extra launch option");
  }
  std::memcpy(buffer->data(), from, std::min<size_type>(bytes, buffer->size()));
  return CUDA_SUCCESS;
}

CUresult error_of(Fault fault) {
  switch (fault) {
    case Fault::kOutOfBounds:
    case Fault::kUseAfterFree:
    case Fault::kReadOnlyWrite:
      return CUDA_ERROR_ILLEGAL_ADDRESS;
    case Fault::kMisaligned:
      return CUDA_ERROR_MISALIGNED_ADDRESS;
    case Fault::kBadInstruction:
      return CUDA_ERROR_ILLEGAL_INSTRUCTION;
    case Fault::kDeadlock:
    case Fault::kMissingLanes:
    case Fault::kStepLimit:
      return CUDA_ERROR_LAUNCH_TIMEOUT;
    default:
      return CUDA_ERROR_LAUNCH_FAILED;
  }
}

// The launches that the next one may overlap, now that this one has begun. The next starts once all of this one's
// blocks let it: where a block does so after a wait, or at its end, the launches before this one have ended by then.
void follow(LaunchContext& launch, std::unique_ptr<GlobalRaces> own, LaunchesBefore* running,
            ReportLog* log) {
  if (launch.before != nullptr && !launch.waited && log->size() == 0) {
    Report report;
    report.fault = Fault::kAsyncHazard;
    report.kernel = launch.program->name;
    report.detail =
        "no thread of it waited for the launches before, which it may overlap: a launch that waits for this "
        "one "
        "does not know that those have ended; griddepcontrol.wait comes first";
    log->add(report);
  }
  if (launch.before == nullptr || (launch.waited && !launch.let_go)) running->clear();
  // Four launches are followed: each has a table of every device's memory, which takes four times its addresses, and
  // sixteen of them fit.
  if (own != nullptr) running->launches.push_back(std::move(own));
  const size_t most = std::min<size_t>(4, 16 / launch.memories.size() - 1);
  while (running->launches.size() > most) running->launches.erase(running->launches.begin());
}

// A launch itself succeeds; its faults show at the next call, as on a GPU.
CUresult run(const Request& request) {
  Driver& state = driver();
  CUctx_st* context = request.function->module->context;
  if (context->sticky != CUDA_SUCCESS) return context->sticky;
  Device& device = *state.device(context->device);
  LaunchContext launch;
  launch.program = request.function->program.get();
  launch.options = &state.options;
  for (auto& other : state.devices) launch.memories.push_back(other->memory.get());
  launch.device = device.ordinal;
  ReportLog log;
  launch.log = &log;
  launch.parameters = request.parameters;
  std::copy(request.grid, request.grid + 3, launch.grid);
  std::copy(request.threads, request.threads + 3, launch.threads);
  std::copy(request.cluster, request.cluster + 3, launch.cluster);
  launch.explicit_cluster = request.explicit_cluster;
  launch.dynamic_shared = request.shared;
  launch.shared_bytes = launch.program->static_shared + request.shared;
  launch.multiprocessors = static_cast<uint32_t>(device.model->multiprocessors);
  launch.grid_id = ++device.launches;
  LaunchesBefore& running = device.running;
  if (!state.options.check_races || !request.overlaps ||
      (device.last_stream != request.stream && !running.anything))
    running.clear();
  if (!running.empty()) launch.before = &running;
  device.last_stream = request.stream;
  std::unique_ptr<GlobalRaces> own;
  if (state.options.check_races)
    own = std::make_unique<GlobalRaces>(launch.memories, !launch.program->orders_threads);
  launch.global_races = own.get();
  auto& [launches, counters] = device.counters[launch.program->name];
  ++launches;
  Fault fault = run_grid(launch, &counters);
  follow(launch, std::move(own), &running, &log);
  for (const Report& report : log.all()) {
    if (state.options.print_reports)
      std::fprintf(stderr, "trigen emulator: %s%s\n", to_string(report).c_str(),
                   report.count > 1 ? (" (" + std::to_string(report.count) + " times)").c_str() : "");
    device.log.add(report);
  }
  if (fault == Fault::kCount && log.size() != 0 && state.options.abort_on_report)
    fault = log.all().front().fault;
  if (fault != Fault::kCount) {
    context->sticky = error_of(fault);
    for (const Report& report : log.all()) {
      if (report.fault != fault) continue;
      context->sticky_text = to_string(report);
      break;
    }
  }
  return CUDA_SUCCESS;
}

CUresult launch(Request request, CUstream handle, void** parameters, void** extra) {
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  if (stream->context != request.function->module->context)
    return fail(CUDA_ERROR_INVALID_HANDLE,
                "the stream belongs to device " + std::to_string(stream->context->device) +
                    ", the kernel to device " + std::to_string(request.function->module->context->device));
  if (CUresult error = check_request(request)) return error;
  if (CUresult error = read_parameters(*request.function->program, parameters, extra, &request.parameters))
    return error;
  request.stream = stream;
  return submit(stream, [request = std::move(request)] { return run(request); });
}

int active_blocks(const CUfunc_st& function, int block_size, size_type dynamic_shared) {
  const DeviceModel& model = *driver().device(function.module->context->device)->model;
  int warps = (block_size + 31) / 32;
  int blocks = std::min(model.blocks_per_multiprocessor, model.threads_per_multiprocessor / (warps * 32));
  size_type shared = dynamic_shared + function.program->static_shared + (model.capability >= 80 ? 1024 : 0);
  if (shared > 0)
    blocks =
        std::min(blocks, static_cast<int>(static_cast<size_type>(model.shared_per_multiprocessor) / shared));
  return blocks;
}

}  // namespace

namespace trigen::cuda {

TRIGEN_ENTRY CUresult cuLaunchKernel(CUfunction handle, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                     unsigned block_x, unsigned block_y, unsigned block_z,
                                     unsigned shared_bytes, CUstream stream, void** parameters,
                                     void** extra) try {
  std::lock_guard lock(driver().mutex);
  Request request;
  request.function = find_function(handle);
  if (request.function == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
  const uint32_t grid[3] = {grid_x, grid_y, grid_z}, threads[3] = {block_x, block_y, block_z};
  std::copy(grid, grid + 3, request.grid);
  std::copy(threads, threads + 3, request.threads);
  request.shared = shared_bytes;
  return launch(std::move(request), stream, parameters, extra);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuLaunchKernelEx(const CUlaunchConfig* config, CUfunction handle, void** parameters,
                                       void** extra) try {
  std::lock_guard lock(driver().mutex);
  if (config == nullptr) return fail(CUDA_ERROR_INVALID_VALUE, "a null configuration");
  Request request;
  request.function = find_function(handle);
  if (request.function == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
  const uint32_t grid[3] = {config->gridDimX, config->gridDimY, config->gridDimZ};
  const uint32_t threads[3] = {config->blockDimX, config->blockDimY, config->blockDimZ};
  std::copy(grid, grid + 3, request.grid);
  std::copy(threads, threads + 3, request.threads);
  request.shared = config->sharedMemBytes;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const CUlaunchAttribute& attribute = config->attrs[i];
    if (attribute.id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION) {
      request.cluster[0] = attribute.value.clusterDim.x;
      request.cluster[1] = attribute.value.clusterDim.y;
      request.cluster[2] = attribute.value.clusterDim.z;
      request.explicit_cluster = true;
    } else if (attribute.id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION) {
      request.overlaps = attribute.value.programmaticStreamSerializationAllowed != 0;
    }  // the others change when and where a kernel runs, not what it computes
  }
  return launch(std::move(request), config->hStream, parameters, extra);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y,
                                                unsigned grid_z, unsigned block_x, unsigned block_y,
                                                unsigned block_z, unsigned shared_bytes, CUstream stream,
                                                void** parameters) try {
  return cuLaunchKernel(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream,
                        parameters, nullptr);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction handle,
                                                                  int block_size,
                                                                  size_type dynamic_shared) try {
  std::lock_guard lock(driver().mutex);
  CUfunc_st* function = find_function(handle);
  if (function == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
  if (block_size <= 0) return fail(CUDA_ERROR_INVALID_VALUE, "a block of no threads");
  *blocks = active_blocks(*function, block_size, dynamic_shared);  // registers are not known here
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction handle,
                                                   const CUlaunchConfig* config) try {
  std::lock_guard lock(driver().mutex);
  CUfunc_st* function = find_function(handle);
  if (function == nullptr) return fail(CUDA_ERROR_INVALID_HANDLE, "not a function");
  unsigned size = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i)
    if (config->attrs[i].id == CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION)
      size = config->attrs[i].value.clusterDim.x * config->attrs[i].value.clusterDim.y *
             config->attrs[i].value.clusterDim.z;
  int blocks =
      active_blocks(*function, static_cast<int>(config->blockDimX * config->blockDimY * config->blockDimZ),
                    config->sharedMemBytes);
  *clusters = blocks * driver().device(function->module->context->device)->model->multiprocessors /
              static_cast<int>(std::max(1u, size));
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

}  // namespace trigen::cuda
