// Shared by the files of the C boundary: the error text of a thread, and the guard that lets nothing throw
// across.
#pragma once

#include <exception>
#include <mutex>
#include <string>

#include "cache/lock.h"
#include "generator/error.h"
#include "runtime/include/trigen/trigen.h"
#include "runtime/plan.h"
#include "runtime/problem_struct.h"

namespace trigen::api {

trigen_status set_error(trigen_status status, std::string text) noexcept;
// Success, or the error's status with its text kept for trigen_last_error.
trigen_status give(llvm::Error error) noexcept;

// Settings that a runtime was made with; runtime/api_plan.cpp defines trigen_runtime.
llvm::Expected<const Device*> device_of(const trigen_runtime& runtime, int ordinal);
Store& store_of(trigen_runtime& runtime);
const Store::Options& store_options_of(const trigen_runtime& runtime);
bool no_jit_of(const trigen_runtime& runtime);

template <typename Body>
trigen_status guarded(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::exception& exception) {
    return set_error(TRIGEN_INTERNAL_ERROR, std::string("unexpected: ") + exception.what());
  } catch (...) {
    return set_error(TRIGEN_INTERNAL_ERROR, "unexpected exception");
  }
}

// For what takes locks of the runtime's, a cache's or the driver's.
template <typename Body>
trigen_status guarded_call(Body&& body) noexcept {
  return guarded([&] {
    const cache::Call call;
    if (call.allowed()) return body();
    return set_error(
        TRIGEN_BAD_REQUEST,
        "this process was forked while another thread was making a plan or in another call of "
        "trigen's, whose locks stay held here; fork when none is under way, or start the process "
        "with exec");
  });
}

}  // namespace trigen::api
