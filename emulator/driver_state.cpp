#include "emulator/driver.h"

#include <pthread.h>

#include <new>

namespace trigen::emulator {

using namespace cuda;

namespace {

// fork() waits for the call under way to end, launches too: no other lock is held then, and the child has every
// table whole. Its one thread has another number than the owner of what it holds, so the lock is made anew.
void before_fork() { driver().mutex.lock(); }
void after_fork_in_parent() { driver().mutex.unlock(); }
void after_fork_in_child() { new (&driver().mutex) std::recursive_mutex; }

}  // namespace

Driver& driver() {
  // Lives as long as the process: other libraries' destructors may still call in.
  static Driver* const state = [] {
    auto* const made = new Driver;
    ::pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    return made;
  }();
  return *state;
}

ThreadState& thread_state() {
  thread_local ThreadState state;
  return state;
}

CUresult fail(CUresult code, const std::string& text) {
  thread_state().error = text;
  return code;
}

CUresult caught() noexcept try {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return fail(
        CUDA_ERROR_OUT_OF_MEMORY,
        "the emulated device got no memory or address space from the host; raise `ulimit -v`, or free "
        "some memory");
  } catch (const std::exception& error) {
    return fail(CUDA_ERROR_OPERATING_SYSTEM, std::string("the host refused the emulated device: ") +
                                                 error.what() + "; raise its limits (`ulimit -a`)");
  }
} catch (...) {  // no memory for the text either
  return CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult current_context(CUctx_st** context) {
  if (!driver().initialised)
    return fail(CUDA_ERROR_NOT_INITIALIZED, "the driver is not initialised; call cuInit first");
  if (thread_state().contexts.empty() || thread_state().contexts.back() == nullptr)
    return fail(CUDA_ERROR_INVALID_CONTEXT, "no context is current; call cuCtxSetCurrent first");
  *context = thread_state().contexts.back();
  if ((*context)->retained == 0)
    return fail(CUDA_ERROR_CONTEXT_IS_DESTROYED, "the primary context was released");
  if ((*context)->sticky != CUDA_SUCCESS) return fail((*context)->sticky, (*context)->sticky_text);
  return CUDA_SUCCESS;
}

CUresult resolve_stream(CUstream handle, CUstream_st** stream) {
  CUctx_st* context = nullptr;
  if (CUresult error = current_context(&context)) return error;
  if (handle == kStreamDefault || handle == kStreamLegacy || handle == kStreamPerThread) {
    *stream = &driver().device(context->device)->default_stream;
    return CUDA_SUCCESS;
  }
  if (driver().streams.count(handle) == 0) return fail(CUDA_ERROR_INVALID_HANDLE, "not a stream");
  if (handle->context->sticky != CUDA_SUCCESS)
    return fail(handle->context->sticky, handle->context->sticky_text);
  *stream = handle;
  return CUDA_SUCCESS;
}

CUresult submit(CUstream_st* stream, std::function<CUresult()> work) {
  if (stream->capture != nullptr) {
    if (stream->capture->invalid)
      return fail(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "the capture was invalidated");
    auto node = std::make_shared<CUgraphNode_st>();
    node->run = std::move(work);
    stream->capture->graph->nodes.push_back(std::move(node));
    if (stream != stream->capture->origin) stream->capture->forked.insert(stream);
    return CUDA_SUCCESS;
  }
  Device* device = driver().device(stream->context->device);
  if (stream == &device->default_stream) {  // the legacy stream would wait for the capturing ones
    for (auto& capture : driver().captures)
      if ((capture->origin->flags & CU_STREAM_NON_BLOCKING) == 0) {
        capture->invalid = true;
        return fail(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT,
                    "work in the default stream while a blocking stream captures");
      }
  }
  return work();
}

CUresult refuse_during_capture(const char* call) {
  if (thread_state().capture_mode == CU_STREAM_CAPTURE_MODE_RELAXED) return CUDA_SUCCESS;
  for (auto& capture : driver().captures)
    if (capture->mode != CU_STREAM_CAPTURE_MODE_RELAXED) {
      capture->invalid = true;
      return fail(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                  std::string(call) + " during a stream capture; make the plan before the capture begins");
    }
  return CUDA_SUCCESS;
}

}  // namespace trigen::emulator
