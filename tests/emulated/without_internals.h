// What tests of the C++ headers need beside them: these have a trigen::Problem of their own, so no internal header goes beside
// one. Of the emulated device that load_test_driver gives.
#pragma once

#include <functional>

namespace trigen::testing {

// The process then has this one.
bool has_emulated_device(const char* target);
bool has_compiler(const char* target);
// run(stream) captured into a graph, then `captured`, then the graph launched.
void capture_and_replay(const std::function<void(void*)>& run, const std::function<void()>& captured);

}  // namespace trigen::testing
