// Streams, events, and graphs made by stream capture. Work runs when it is submitted: every order that
// streams and events ask for holds, and nothing is ever pending.
#include "emulator/driver.h"

using namespace trigen::cuda;
using namespace trigen::emulator;

namespace {

CUresult find_event(CUevent event) {
  return driver().events.count(event) != 0 ? CUDA_SUCCESS : fail(CUDA_ERROR_INVALID_HANDLE, "not an event");
}

void drop_capture(Capture* capture) {
  for (void* stream : driver().streams)
    if (static_cast<CUstream_st*>(stream)->capture == capture)
      static_cast<CUstream_st*>(stream)->capture = nullptr;
  for (void* event : driver().events)
    if (static_cast<CUevent_st*>(event)->capture == capture)
      static_cast<CUevent_st*>(event)->capture = nullptr;
  driver().captures.remove_if([=](const std::unique_ptr<Capture>& c) { return c.get() == capture; });
}

CUresult refuse_capturing(CUstream_st* stream, const char* call) {
  if (stream->capture == nullptr) return CUDA_SUCCESS;
  stream->capture->invalid = true;
  return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, std::string(call) + " on a capturing stream");
}

// What a call asks of a stream.
template <class T, class Ask>
CUresult ask(CUstream handle, T* answer, Ask of) {
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  *answer = of(*stream);
  return CUDA_SUCCESS;
}

CUresult run_nodes(const std::vector<std::shared_ptr<CUgraphNode_st>>& nodes) {
  for (const auto& node : nodes)
    if (CUresult error = node->run()) return error;
  return CUDA_SUCCESS;
}

}  // namespace

namespace trigen::cuda {

TRIGEN_ENTRY CUresult cuStreamCreateWithPriority(CUstream* stream, unsigned flags, int priority) try {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  if (flags > 1) return fail(CUDA_ERROR_INVALID_VALUE, "unknown stream flags");
  auto* created = new CUstream_st;
  created->context = context;
  created->flags = flags;
  created->priority = std::min(0, std::max(-5, priority));
  created->id = driver().next_id++;
  driver().streams.insert(created);
  *stream = created;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamCreate(CUstream* stream, unsigned flags) try {
  return cuStreamCreateWithPriority(stream, flags, 0);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamGetPriority(CUstream handle, int* priority) try {
  return ask(handle, priority, [](const CUstream_st& stream) { return stream.priority; });
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) try {
  return ask(handle, flags, [](const CUstream_st& stream) { return stream.flags; });
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamGetCtx(CUstream handle, CUcontext* context) try {
  return ask(handle, context, [](const CUstream_st& stream) { return stream.context; });
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) try {
  return ask(handle, device, [](const CUstream_st& stream) { return stream.context->device; });
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamGetId(CUstream handle, unsigned long long* id) try {
  return ask(handle, id, [](const CUstream_st& stream) { return stream.id; });
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamQuery(CUstream handle) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  return refuse_capturing(stream, "cuStreamQuery");
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamSynchronize(CUstream handle) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  driver().settle();
  return refuse_capturing(stream, "cuStreamSynchronize");
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamDestroy_v2(CUstream handle) try {
  std::lock_guard lock(driver().mutex);
  if (driver().streams.erase(handle) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a stream");
  if (handle->capture != nullptr && handle->capture->origin == handle) drop_capture(handle->capture);
  driver().settle();
  delete handle;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamWaitEvent(CUstream handle, CUevent event, unsigned) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  if (CUresult error = find_event(event)) return error;
  if (event->capture == nullptr) {
    if (stream->capture != nullptr && event->recorded)
      return fail(CUDA_ERROR_STREAM_CAPTURE_ISOLATION,
                  "a capturing stream waits for an event recorded outside the capture");
    return CUDA_SUCCESS;
  }
  if (stream->capture == nullptr)
    stream->capture = event->capture;  // the stream joins the capture
  else if (stream->capture != event->capture)
    return fail(CUDA_ERROR_STREAM_CAPTURE_MERGE, "two captures would be merged");
  stream->capture->forked.erase(event->capture_stream);
  if (stream != stream->capture->origin) stream->capture->forked.insert(stream);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void* user_data) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  return submit(stream, [=] {
    function(user_data);
    return CUDA_SUCCESS;
  });
}
TRIGEN_CATCH

// --- events ------------------------------------------------------------------------------------------------

TRIGEN_ENTRY CUresult cuEventCreate(CUevent* event, unsigned flags) try {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  auto* created = new CUevent_st;
  created->flags = flags;
  driver().events.insert(created);
  *event = created;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuEventRecord(CUevent event, CUstream handle) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = find_event(event)) return error;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  event->recorded = true;
  event->capture = stream->capture;
  event->capture_stream = stream;
  event->time = std::chrono::steady_clock::now();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned) try {
  return cuEventRecord(event, stream);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuEventQuery(CUevent event) try {
  std::lock_guard lock(driver().mutex);
  CUctx_st* context = nullptr;
  if (CUresult error = find_event(event)) return error;
  if (event->capture != nullptr)
    return fail(CUDA_ERROR_CAPTURED_EVENT, "the event was recorded in a capturing stream");
  return current_context(&context);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuEventSynchronize(CUevent event) try {
  std::lock_guard lock(driver().mutex);
  driver().settle();
  return cuEventQuery(event);
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuEventDestroy_v2(CUevent event) try {
  std::lock_guard lock(driver().mutex);
  if (driver().events.erase(event) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not an event");
  delete event;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuEventElapsedTime(float* milliseconds, CUevent start, CUevent end) try {
  std::lock_guard lock(driver().mutex);
  if (CUresult error = find_event(start)) return error;
  if (CUresult error = find_event(end)) return error;
  if (!start->recorded || !end->recorded || ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
    return fail(CUDA_ERROR_INVALID_HANDLE, "an event was not recorded or keeps no time");
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - start->time).count();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

// --- capture and graphs ------------------------------------------------------------------------------------

TRIGEN_ENTRY CUresult cuStreamBeginCapture_v2(CUstream handle, CUstreamCaptureMode mode) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  if (driver().streams.count(stream) == 0)
    return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "the default stream cannot capture; create a stream");
  if (stream->capture != nullptr) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream captures already");
  auto capture = std::make_unique<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->id = driver().next_id++;
  stream->capture = capture.get();
  driver().captures.push_back(std::move(capture));
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamEndCapture(CUstream handle, CUgraph* graph) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  *graph = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  Capture* capture = stream->capture;
  if (capture == nullptr) return fail(CUDA_ERROR_ILLEGAL_STATE, "the stream does not capture");
  if (capture->origin != stream)
    return fail(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "the capture began in another stream");
  CUresult result =
      capture->invalid
          ? fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated by a forbidden call")
      : !capture->forked.empty() ? fail(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "a forked stream was not joined")
                                 : CUDA_SUCCESS;
  if (result == CUDA_SUCCESS) {
    *graph = capture->graph.release();
    driver().graphs.insert(*graph);
  }
  drop_capture(capture);
  return result;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* status) try {
  std::lock_guard lock(driver().mutex);
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  // Of the legacy stream nothing can be said then, and the question does the capture no harm.
  if (stream == &driver().device(stream->context->device)->default_stream)
    for (auto& capture : driver().captures)
      if ((capture->origin->flags & CU_STREAM_NON_BLOCKING) == 0)
        return fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "a blocking stream captures");
  *status = stream->capture == nullptr ? CU_STREAM_CAPTURE_STATUS_NONE
            : stream->capture->invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
                                       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuStreamGetCaptureInfo_v2(CUstream handle, CUstreamCaptureStatus* status,
                                                unsigned long long* id, CUgraph* graph,
                                                const CUgraphNode** dependencies, size_type* count) try {
  std::lock_guard lock(driver().mutex);
  if (CUresult error = cuStreamIsCapturing(handle, status)) return error;
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  if (id != nullptr) *id = stream->capture != nullptr ? stream->capture->id : 0;
  if (graph != nullptr) *graph = stream->capture != nullptr ? stream->capture->graph.get() : nullptr;
  if (dependencies != nullptr) *dependencies = nullptr;
  if (count != nullptr) *count = 0;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) try {
  std::swap(*mode, thread_state().capture_mode);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGraphCreate(CUgraph* graph, unsigned) try {
  std::lock_guard lock(driver().mutex);
  *graph = new CUgraph_st;
  driver().graphs.insert(*graph);
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGraphDestroy(CUgraph graph) try {
  std::lock_guard lock(driver().mutex);
  if (driver().graphs.erase(graph) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a graph");
  delete graph;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGraphGetNodes(CUgraph graph, CUgraphNode* nodes, size_type* count) try {
  std::lock_guard lock(driver().mutex);
  if (driver().graphs.count(graph) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a graph");
  if (nodes != nullptr)
    for (size_type i = 0; i < *count && i < graph->nodes.size(); ++i) nodes[i] = graph->nodes[i].get();
  *count = graph->nodes.size();
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGraphInstantiateWithFlags(CUgraphExec* executable, CUgraph graph,
                                                  unsigned long long) try {
  std::lock_guard lock(driver().mutex);
  if (driver().graphs.count(graph) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a graph");
  auto* created = new CUgraphExec_st;
  created->nodes = graph->nodes;
  driver().executables.insert(created);
  *executable = created;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGraphUpload(CUgraphExec executable, CUstream) try {
  return driver().executables.count(executable) != 0
             ? CUDA_SUCCESS
             : fail(CUDA_ERROR_INVALID_HANDLE, "not an executable graph");
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGraphLaunch(CUgraphExec executable, CUstream handle) try {
  std::lock_guard lock(driver().mutex);
  if (driver().executables.count(executable) == 0)
    return fail(CUDA_ERROR_INVALID_HANDLE, "not an executable graph");
  CUstream_st* stream = nullptr;
  if (CUresult error = resolve_stream(handle, &stream)) return error;
  return submit(stream, [nodes = executable->nodes] { return run_nodes(nodes); });
}
TRIGEN_CATCH

TRIGEN_ENTRY CUresult cuGraphExecDestroy(CUgraphExec executable) try {
  std::lock_guard lock(driver().mutex);
  if (driver().executables.erase(executable) == 0)
    return fail(CUDA_ERROR_INVALID_HANDLE, "not an executable graph");
  delete executable;
  return CUDA_SUCCESS;
}
TRIGEN_CATCH

}  // namespace trigen::cuda
